#ifndef ABACUS_OBJFS_VOLUME_CALLBACK_TABLE_H_
#define ABACUS_OBJFS_VOLUME_CALLBACK_TABLE_H_

// CallbackTable: which clients keep what of a volume's objects, and who is told when that breaks.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "objfs/layer/version.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {

// What a client asks of an object's bytes.
enum class Want : uint8_t {
  kLook = 0,  // to read once; nothing is kept
  kChange,    // to change them at the store, now
  kShare,     // a promise: what is read may be kept, until it is broken
  kWrite,     // a promise: changes may be kept from the store, until it is broken
  kAlter,     // to change the inode, or the names in a directory, now; see Alter()
  kTogether,  // a promise: nothing is kept; bytes of columns are read and written beside others
};

// The promises of one volume. A pure state machine: events and times in, answers and actions out;
// callbacks.h carries the actions out.
//
// A promise is for a whole object. It ends when its holder says so, when the holder leaves, or when
// somebody wants the object after the holder's lease has run out: then the holder has left,
// whatever it believes. Who has to wait stands in a queue; its head is woken when nothing is in its
// way any more, and then nobody else comes first until it has asked again, or its turn has lapsed.
//
// Several clients may have a promise together (Want::kTogether): each reads and writes the bytes,
// which are elsewhere then, beside the others, and keeps nothing. To all who want something else
// such a holder is in the way as one is that may write. The first one is given a promise to write:
// it has the object alone, and makes it ready for others; Share() then turns its promise into one
// together, and lets in those who wait for just that. While it is about to (Options::share) they
// wait for it and do not break its promise: else two that want it together would take it from each
// other for ever, each while the other one makes it ready. Who wants something else breaks it at
// once.
//
// What is known of an object beside its bytes - the inode, and of a directory the names - is under
// a promise of its own, Know(), which several clients may have at once and nobody waits for: where
// it cannot be given the client keeps nothing, and asks each time. Whoever changes the inode, the
// names or the bytes, or wants to keep changes of the bytes to itself, waits until all others have
// forgotten. That is before the change is made, so that no client sees the new state while another
// one still shows the old.
//   It cannot deadlock: to forget, a client waits for nobody; and while a client may write, nobody
// else knows the object, so that writing back waits for nobody either. Alter() takes all of its
// objects or none, and keeps nothing while it waits.
//   It cannot be kept going for ever by clients that look and change in turns: nobody is given the
// promise while somebody waits to change the object, nor for Options::quiet after it was broken.
//
// Invariants (each holds after every call):
// 1. Where one client has a promise to write, no other has any promise. Where one has a promise
//    together, others have only such promises.
// 2. kChange is granted where no other client has a promise, and while such a change lasts no other
//    client is given one. kLook is granted where no other client has a promise to write, or
//    together.
// 3. A promise has a version greater than every earlier one of its object: a break that names an
//    older one is of a promise that is no more.
// 4. No promise is broken but for somebody who waits.
// 5. While an object is changed nobody is promised anything that is known of it, and who was before
//    is the one who changes it. Where one client may write, no other knows the object; where
//    several have it together, none does.
// 6. A promise together is given beside others only while none of theirs breaks, and nobody who
//    wants something else was there before: who waits to be alone, or to look, gets it.
// Thread-safety: thread-compatible. Blocking: no. Limits: each client waits at most once for each
// Want of an object, and knows so many objects (Options). Units: nanoseconds of one monotonic
// clock. Source: paper, section 4.3.1 (AFS-style callbacks); leases as in Gray and Cheriton, 1989.
class CallbackTable {
 public:
  using Nanos = int64_t;
  struct Options {
    Nanos lease = 0;  // how long a client that is silent keeps its promises
    Nanos turn = 0;   // how long one that was woken comes first
    Nanos quiet = 0;  // how long nobody is promised to know what was just changed by another
    size_t knows_max = 262'144;  // objects that one client knows
    Nanos share = 0;  // how long one that is about to share keeps others waiting for that
  };
  enum class Answer : uint8_t {
    kGranted = 0,
    kWait,  // kWake tells when to ask again
    kLeft,  // the client is none
  };
  struct Action {
    enum class Kind : uint8_t { kInvalidate, kRecall, kWake, kForget };
    Kind kind = Kind::kWake;
    uint16_t writer = 0;  // whom to tell
    ObjectId id = 0;
    Version given;  // of the promise that breaks
    friend bool operator==(const Action&, const Action&) = default;
  };

  explicit CallbackTable(Options options) : options_(options) {}

  // -- clients -----------------------------------------------------------------------------------

  void Join(uint16_t writer, Nanos now);
  // False where it is none, or no more.
  bool Renew(uint16_t writer, Nanos now);
  // All its promises end. What it is changing at the store goes on until EndChange().
  void Leave(uint16_t writer, Nanos now);
  bool Has(uint16_t writer) const { return clients_.contains(writer); }

  // -- promises ----------------------------------------------------------------------------------

  // `stamp`: greater than in every call before; the version of the promise where one is given.
  // Where a change was granted, EndChange() ends it. `given` may be null. `together`, which may be
  // null: what is granted for kTogether is a promise together, and not one to write.
  Answer Ask(ObjectId id, uint16_t writer, Want want, Version stamp, Nanos now, Version* given,
             bool* together = nullptr);
  // The client's promise to write becomes one together, of the same version. False, and nothing is
  // changed: it has none, or it is being broken.
  bool Share(ObjectId id, uint16_t writer, Nanos now);
  // The client, which was given a promise to write when it asked for one together, will not share:
  // those who wait for that break it now.
  void StayAlone(ObjectId id, uint16_t writer, Nanos now);
  void EndChange(ObjectId id, uint16_t writer, Nanos now);
  // The client keeps nothing any more under promises up to `given`.
  void Broken(ObjectId id, uint16_t writer, Version given, Nanos now);
  // A call of the client's that had waited is served. It may not have asked for what it waited for:
  // then nobody would take the turn that it comes to. Other calls of the client ask again.
  void Pass(ObjectId id, uint16_t writer, Nanos now);
  // It neither has nor wants anything of the object.
  void Release(ObjectId id, uint16_t writer, Nanos now);
  // Who has the promise to write; 0: nobody, as where several have it together.
  uint16_t WriterOf(ObjectId id) const;
  // Whether it has a promise together, also one that is being broken.
  bool IsShared(ObjectId id, uint16_t writer) const;

  // -- what is known beside the bytes ------------------------------------------------------------

  // Whether the client may keep what it reads of the object after this call, until it is told to
  // forget; `stamp` as for Ask(), and the version of the promise. Refused at Options::knows_max.
  bool Know(ObjectId id, uint16_t writer, Version stamp, Nanos now);
  // The client keeps nothing any more that it was promised up to `given`.
  void Forgotten(ObjectId id, uint16_t writer, Version given, Nanos now);
  // Leave to change all these objects beside their bytes, or the bytes of directories: of all or of
  // none. Where it is granted EndAlter() ends it. Changes of one object may go on at once: who
  // applies them orders them.
  Answer Alter(const std::vector<ObjectId>& ids, uint16_t writer, Nanos now);
  // Such a change that began before this table was: nobody has to be asked. REQUIRES: nobody knows
  // any of these objects. EndAlter() ends it.
  void GoOnAltering(const std::vector<ObjectId>& ids);
  void EndAlter(const std::vector<ObjectId>& ids, Nanos now);
  size_t KnownBy(uint16_t writer) const;

  // Lets time pass: turns lapse, and clients leave that were silent for two leases, or for one
  // where somebody waits for them. To be called now and then.
  void Tick(Nanos now);

  // -- what is to be done ------------------------------------------------------------------------

  std::vector<Action> TakeActions();
  // Clients that have left by their silence.
  std::vector<uint16_t> TakeSilent();

  // Objects with promises, changes or waiters; for tests and people.
  size_t objects() const { return objects_.size(); }

 private:
  struct Holder {
    bool may_write = false;
    bool together = false;  // not with may_write
    Version given;
    bool breaking = false;
    Nanos shares_until = 0;  // one that may write, and is about to share
    bool excludes() const { return may_write || together; }
  };
  struct Waiter {
    uint16_t writer = 0;
    Want want = Want::kLook;
    std::optional<Nanos> woken;
  };
  struct Knower {
    Version given;
    bool breaking = false;
  };
  struct Object {
    std::map<uint16_t, Holder> holders;
    std::map<uint16_t, uint32_t> changing;  // by writer: how many changes at the store
    std::map<uint16_t, Knower> knowers;
    uint32_t altering = 0;  // how many changes beside the bytes
    std::vector<Waiter> queue;
    Nanos quiet_until = 0;
    bool empty(Nanos now) const {
      return holders.empty() && changing.empty() && knowers.empty() && altering == 0 &&
             queue.empty() && quiet_until <= now;
    }
  };
  struct Client {
    Nanos ends = 0;    // its lease
    size_t knows = 0;  // objects
  };

  // A promise of the bytes, and not a call that ends by itself.
  static bool IsPromise(Want want) {
    return want == Want::kShare || want == Want::kWrite || want == Want::kTogether;
  }
  static bool Follows(Want want, Want earlier);
  // What promises and changes stand in the way of; the queue is not looked at.
  static bool IsInTheWay(uint16_t writer, Want want, uint16_t other, const Holder& holder);
  static bool IsHindered(const Object& object, uint16_t writer, Want want);
  // Whether a promise that does not break is enough for `want`.
  static bool Has(const Holder& holder, Want want);
  Holder Promised(Want want, bool is_alone, Version stamp, Nanos now) const;
  // Whether others may not know the object meanwhile.
  static bool StopsKnowing(Want want);
  static bool IsKnownToOthers(const Object& object, uint16_t writer);
  static bool MayBeKnown(const Object& object, Nanos now);
  static bool IsBehind(const Object& object, uint16_t writer, Want want);
  // Other calls of a client that has just been promised `want` need not wait for less any more:
  // they may never ask again, and would keep a turn that nobody takes.
  void DropServed(Object* object, ObjectId id, uint16_t writer, Want want);
  // Breaks what is in the way of those first in the queue, and wakes those that nothing hinders.
  void Advance(ObjectId id, Nanos now);
  // Where the lease of one that is in the way has run out: it has left. True where it has.
  bool HasLapsed(ObjectId id, uint16_t other, Nanos now);
  // Tells all but `writer`. True where one has left: then the object is looked at anew.
  bool TellToForget(ObjectId id, uint16_t writer, Object* object, Nanos now);
  void Forget(uint16_t writer);
  // Advances all objects that have changed.
  void Settle(Nanos now);

  const Options options_;
  std::map<uint16_t, Client> clients_;  // by writer
  std::map<ObjectId, Object> objects_;
  std::set<ObjectId> changed_;
  std::set<ObjectId> timed_;  // those that the time changes: somebody waits, or it is quiet
  std::vector<Action> actions_;
  std::vector<uint16_t> silent_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_CALLBACK_TABLE_H_
