#ifndef ABACUS_OBJFS_SPREAD_SPREAD_LAYER_H_
#define ABACUS_OBJFS_SPREAD_SPREAD_LAYER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "objfs/layer/layer.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/raid/shared_columns.h"
#include "objfs/spread/share_choice.h"
#include "objfs/volume/volume.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// A client's end of a file that is spread over servers: stands on the file's isolation object, at
// the volume's first server, and has the layer over the file's columns (raid5, mirror) serve while
// the client has the promise to write the file. So of all clients one at a time has such a layer
// open, unless they use the columns together:
//
//   cache -> spread --- Claim, size ---> isolation/storage   (the inode; no bytes)
//              |
//              +-- while promised --> raid5, mirror --> a column at each server
//
// A call that finds no promise claims it, has the volume open the columns, which shuts out whoever
// had them before, and gives them to the layer. When the promise breaks, what is above writes back,
// the layer's bytes and records are made durable, and it is closed; the size goes to the inode.
//
// Where clients take the file from each other all the time (ShareChoice) they come to use it
// together: each has a promise together, under which nothing is kept here or above, and its layer
// writes so that all of them see it when a call returns (ColumnsLayer::TakeShared). The first of
// them opens the columns alone, and then has the volume open them for all. A call that cannot be
// made so - what grows or cuts the file, and what meets a column that fails - takes the file alone,
// and is made then; after it the others come back, and they go on together.
//
// Invariants:
// 1. The layer over columns is open only under a promise to write the whole file, for this client;
//    or under one together, and then in the opening that all who have one share.
// 2. After Recall() returned OK, or GiveUp(), it is closed, and what it had was durable; where that
//    could not be, the next Flush() or Push() tells it, once. What had been written is then as
//    after a crash: old or new, block by block, and what was flushed is there.
// 3. The inode has the size, and knows that bytes were changed, when Push() has returned.
// 4. Each promise that was granted serves the call that claimed it, whatever breaks it meanwhile.
// 5. No promise to write that those above know of becomes one together.
// Where a column does not serve and the layer cannot do without, the next call opens the columns
// anew: what is back by then serves again.
// Thread-safety: thread-safe. Blocking: as the layer over the columns and the volume's server; and
// while the promise is given back.
class SpreadLayer final : public Layer {
 public:
  static constexpr LayerKind kKind = {"spread", "objfs.SpreadLayer", {}};

  SpreadLayer();  // by this machine's clock
  // `steady_ns`: monotonic; by it is chosen when the file is used together.
  explicit SpreadLayer(std::function<int64_t()> steady_ns) : steady_ns_(std::move(steady_ns)) {}

  // Once, before any other call. `columns` stands on as many layers as the file has columns.
  absl::Status Bind(const runtime::Ref<Volume>& volume, const runtime::Ref<ColumnsLayer>& columns,
                    ObjectId id, uint16_t writer);

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  // The inode at the volume's first server is left alone where it has the size, durably.
  absl::Status FlushData(Version now) override;
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  // To write, whatever is asked for: that is what is claimed below. kNone while the file is used
  // together.
  absl::StatusOr<Promise> Claim(PromiseKind kind, Version now) override;
  absl::Status Invalidate(Range range, Version version) override;
  absl::Status Recall(Range range, Version version) override;

  // The client uses the file no more, or not for now.
  absl::Status GiveUp(Version now);
  // Of the layer over the columns. Where a column does not answer they are opened anew first.
  absl::StatusOr<RebuildProgress> Rebuild(uint64_t from, uint64_t stripes, Version now);
  absl::StatusOr<ScrubProgress> Scrub(uint64_t from, uint64_t stripes, Version now);

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;

  ABACUS_OBJECT(SpreadLayer, kKind.class_name, 2, Read, Write, Append, Truncate, Punch, Seek, Push,
                Flush, GetAttributes, SetInode, Commit, Attach, Detach, Invalidate, Recall,
                Describe, Claim, SaveInode, FlushData, ReadRanges, Bind, GiveUp, Rebuild, Scrub)

 protected:
  const LayerKind& Kind() const override { return kKind; }

 private:
  // A call that is inside while the columns are open. They are not closed while it lives.
  class Inside {
   public:
    Inside(SpreadLayer* layer, bool is_shared) : layer_(layer), is_shared_(is_shared) {}
    Inside(Inside&& other) noexcept
        : layer_(std::exchange(other.layer_, nullptr)), is_shared_(other.is_shared_) {}
    Inside& operator=(Inside&&) = delete;
    ~Inside();
    // Beside calls of other clients.
    bool is_shared() const { return is_shared_; }

   private:
    SpreadLayer* layer_;
    const bool is_shared_;
  };
  enum class Use : uint8_t {
    kAny = 0,
    kAlone,  // not beside calls of other clients
  };
  // Opens the columns where they are not open, or not as `use` needs them. Where another client has
  // to give back a promise, or this one is doing so, that is IsWouldBlock(), and the front end
  // waits.
  absl::StatusOr<Inside> Enter(Use use, Version now);
  // Where the columns are open; nullopt: they are not, and are not opened.
  std::optional<Inside> EnterIfOpen(Version now);
  // Opens the columns. REQUIRES: opening_ is this call's, as for the four after it.
  absl::Status Open(Version now);
  // Claims one. What is left of an earlier one is closed where it is another.
  absl::StatusOr<Promise> TakePromise(PromiseKind kind, Version now, bool* is_another);
  // Under a promise to write, whatever was open before.
  absl::Status OpenAlone(Version now);
  // Has others use the columns too, which are open alone and which nobody has used yet. Where that
  // cannot be they are open alone after it.
  absl::Status Share(Version now);
  // Under a promise together.
  absl::Status TakeShared(const SharedColumns& shared);
  // The next opening is alone.
  void WantAlone();
  // Closes them; tells of an error only where something may be lost. REQUIRES: nobody is inside.
  absl::Status Close(Version now);
  // Likewise, of columns that do not serve: what could not be written stays with the layer, for
  // those that are opened next under the same promise.
  absl::Status Leave(Version now);
  // Takes all others out, closes, and lets others in again. With `given` only where the promise is
  // not newer.
  absl::Status Retire(Version now, Version given, bool ends);
  // Makes the call with the columns open; where it cannot be made together with others, alone.
  template <typename F>
  auto Call(Use use, Version now, F&& call) -> decltype(call());
  void TakeNotice(const absl::Status& status);
  void Changes();
  // Gives the inode the size and the times.
  absl::Status TellSize(Version now);
  // Of the columns; and of the inode, where it has another size than is durable there, or `times`.
  absl::Status FlushWith(bool times, Version now);
  absl::Status TakeLate();
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;

  const std::function<int64_t()> steady_ns_;
  // Constant after Bind() or Restore().
  runtime::Ref<Volume> volume_;
  runtime::Ref<ColumnsLayer> columns_;
  ObjectId id_ = 0;
  uint16_t writer_ = 0;

  mutable runtime::Mutex mutex_;
  runtime::CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool shared_ ABSL_GUARDED_BY(mutex_) = false;   // open, and beside other clients
  bool alone_ ABSL_GUARDED_BY(mutex_) = false;    // a call needs them alone: the next opening is so
  bool opening_ ABSL_GUARDED_BY(mutex_) = false;  // a call is at it
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;  // a break is at it
  bool telling_ ABSL_GUARDED_BY(mutex_) = false;  // TellSize() is at it
  bool stale_ ABSL_GUARDED_BY(mutex_) = false;    // what serves is to be found out anew
  int breaking_ ABSL_GUARDED_BY(mutex_) = 0;      // nobody enters
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool unpushed_ ABSL_GUARDED_BY(mutex_) = false;  // bytes were changed that the inode knows not of
  bool unflushed_ ABSL_GUARDED_BY(mutex_) = false;  // bytes were changed that may not be durable
  // Of the inode, since the columns were opened: the size that it was told, and that is durable.
  std::optional<uint64_t> told_size_ ABSL_GUARDED_BY(mutex_), durable_size_ ABSL_GUARDED_BY(mutex_);
  uint64_t tells_ ABSL_GUARDED_BY(mutex_) = 0;        // how often it was told one
  uint64_t shared_size_ ABSL_GUARDED_BY(mutex_) = 0;  // of the file, where it is shared
  ShareChoice choice_ ABSL_GUARDED_BY(mutex_);
  Promise promise_ ABSL_GUARDED_BY(mutex_);
  Version broken_ ABSL_GUARDED_BY(mutex_);  // the newest promise that was broken
  Version newest_ ABSL_GUARDED_BY(mutex_);  // the client's clock, as it was seen last
  absl::Status late_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_SPREAD_LAYER_H_
