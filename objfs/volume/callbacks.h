#ifndef ABACUS_OBJFS_VOLUME_CALLBACKS_H_
#define ABACUS_OBJFS_VOLUME_CALLBACKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/layer/layer.h"
#include "objfs/volume/callback_table.h"
#include "objfs/volume/client_end.h"
#include "objfs/volume/messenger.h"
#include "runtime/base/mutex.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// The answer to who is no client of the volume, or no more: it may join again.
absl::Status NoClient(uint16_t writer);
bool IsNoClient(const absl::Status& status);

// The promises of a volume's clients: the table (callback_table.h), and a messenger for each client
// that carries out what the table says.
//
// Errors: IsWouldBlock() - another client is in the way and was told; the client's end is woken
// when
//         it is worth asking again. IsNoClient() - the client has left, or was silent too long: its
//         promises are void, and so is what it kept under them.
// Thread-safety: thread-safe. Blocking: no call waits for a client.
class Callbacks {
 public:
  struct Options {
    absl::Duration lease;
    absl::Duration turn = absl::Seconds(1);  // how long one that was woken comes first
    // How long nobody may keep what is known of an object that another client has just changed.
    absl::Duration quiet = absl::Seconds(1);
    // How long a client that was promised an object together, as the first one, may take until it
    // shares it, while others wait for that. It opens columns, and may recover them.
    absl::Duration share = absl::Seconds(5);
    std::function<int64_t()> steady_ns;  // monotonic; empty: this machine's
    // Whether anybody is a client here now; empty: yes. Asked by whatever lets something be read,
    // kept or changed, which all layers pass. May not block.
    std::function<bool()> may_serve;
  };

  explicit Callbacks(Options options);
  ~Callbacks() { Stop(); }

  // `end` may be none: such a client is given no promises.
  void Join(uint16_t writer, const runtime::Ref<ClientEnd>& end);
  absl::Status Renew(uint16_t writer);
  void Leave(uint16_t writer);
  // OK where it is a client.
  absl::Status Check(uint16_t writer);

  // A promise for the whole object; of another kind than `kind` only where that is kTogether and
  // nobody has it so yet: then it is one to write, for the client to Share() or not. kNone: the
  // client will not share what it was promised like that; others need not wait for it any more.
  absl::StatusOr<Promise> Claim(ObjectId id, uint16_t writer, PromiseKind kind);
  // The client's promise to write is one together from now on, of the same version. False: it has
  // none, or it is being broken.
  bool Share(ObjectId id, uint16_t writer);
  // Whether it has a promise together, also one that is being broken.
  bool IsShared(ObjectId id, uint16_t writer);
  // Whether the store has all that was written: what is read after it returned OK is not older than
  // this call.
  absl::Status Look(ObjectId id, uint16_t writer);
  // A call of the client's that was answered IsWouldBlock() has been served since.
  void Pass(ObjectId id, uint16_t writer);
  // The client has closed it.
  void Release(ObjectId id, uint16_t writer);
  // Whose changes the store may not have; 0: nobody's. Of bytes that several change together it has
  // none.
  uint16_t WriterOf(ObjectId id);

  // A change of the object at the store: while it lives no other client is given a promise.
  class Change {
   public:
    Change(Callbacks* callbacks, ObjectId id, uint16_t writer)
        : callbacks_(callbacks), id_(id), writer_(writer) {}
    Change(Change&& other) noexcept
        : callbacks_(std::exchange(other.callbacks_, nullptr)),
          id_(other.id_),
          writer_(other.writer_) {}
    Change& operator=(Change&&) = delete;
    ~Change() {
      if (callbacks_ != nullptr) callbacks_->EndChange(id_, writer_);
    }

   private:
    Callbacks* callbacks_;
    const ObjectId id_;
    const uint16_t writer_;
  };
  absl::StatusOr<Change> BeginChange(ObjectId id, uint16_t writer);

  // Promises for the inodes and names of these objects, to be asked for before they are read; the
  // version of each, 0 where none is given.
  std::vector<Version> Know(const std::vector<ObjectId>& ids, uint16_t writer);
  // The client keeps nothing any more of what it was promised up to `given`.
  void Forgotten(ObjectId id, uint16_t writer, Version given);

  // A change of the inodes or names of objects: while it lives nobody is promised to know them.
  class Alteration {
   public:
    Alteration(Callbacks* callbacks, std::vector<ObjectId> ids)
        : callbacks_(callbacks), ids_(std::move(ids)) {}
    Alteration(Alteration&& other) noexcept
        : callbacks_(std::exchange(other.callbacks_, nullptr)), ids_(std::move(other.ids_)) {}
    Alteration& operator=(Alteration&&) = delete;
    ~Alteration() {
      if (callbacks_ != nullptr) callbacks_->EndAlter(ids_);
    }

   private:
    Callbacks* callbacks_;
    std::vector<ObjectId> ids_;
  };
  absl::StatusOr<Alteration> BeginAlter(std::vector<ObjectId> ids, uint16_t writer);
  // Of what began before this volume was opened. REQUIRES: nobody is promised to know anything yet.
  Alteration GoOnAltering(std::vector<ObjectId> ids);
  // Clients that were answered IsWouldBlock() for another reason than promises are to ask again.
  void WakeAll(ObjectId id, const std::vector<uint16_t>& writers);

  // Lets time pass; returns the clients that have left by their silence. To be called now and then.
  std::vector<uint16_t> Tick();
  // Tells nobody anything any more. Waits for calls that are under way.
  void Stop();
  // By the clock of leases.
  int64_t Now() const { return options_.steady_ns(); }

 private:
  bool MayServe() const { return !options_.may_serve || options_.may_serve(); }
  absl::Status Ask(ObjectId id, uint16_t writer, Want want, Version* given = nullptr,
                   bool* together = nullptr);
  void EndChange(ObjectId id, uint16_t writer);
  void EndAlter(const std::vector<ObjectId>& ids);
  void OnBroken(const CallbackTable::Action& action);
  // Gives the messengers what the table wants to be done, in its order.
  void Carry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndMessenger(uint16_t writer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  // Before those of messengers.
  runtime::Mutex mutex_;
  CallbackTable table_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_stamp_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint16_t, std::unique_ptr<Messenger>> messengers_ ABSL_GUARDED_BY(mutex_);
  // Of clients that have left, whose thread may be in a call yet.
  std::vector<std::unique_ptr<Messenger>> ending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_CALLBACKS_H_
