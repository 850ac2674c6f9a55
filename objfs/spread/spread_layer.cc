#include "objfs/spread/spread_layer.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using runtime::Ref;

SpreadLayer::SpreadLayer()
    : SpreadLayer([] {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        return int64_t{std::chrono::nanoseconds(now).count()};
      }) {}

absl::Status SpreadLayer::Bind(const Ref<Volume>& volume, const Ref<ColumnsLayer>& columns,
                               ObjectId id, uint16_t writer) {
  volume_ = volume;
  columns_ = columns;
  id_ = id;
  writer_ = writer;
  return absl::OkStatus();
}

// -- the promise, and the columns under it --------------------------------------------------------

SpreadLayer::Inside::~Inside() {
  if (layer_ == nullptr) return;
  MutexLock lock(layer_->mutex_);
  --layer_->inside_;
  layer_->changed_.SignalAll();
}

absl::StatusOr<SpreadLayer::Inside> SpreadLayer::Enter(Use use, Version now) {
  bool closes = false;
  {
    MutexLock lock(mutex_);
    newest_ = std::max(newest_, now);
    for (;;) {
      // Who comes now waits at the front end, or the break would never see the last one leave.
      if (breaking_ > 0) return WouldBlock("a promise that is being given back");
      if (!opening_) {
        if (use == Use::kAlone && (shared_ || !open_)) alone_ = true;
        // After a while it is tried alone again, by a call that has nobody here to wait for.
        const bool leaves =
            shared_ && (alone_ || (inside_ == 0 && !choice_.WantsTogether(steady_ns_())));
        closes = open_ && (leaves || stale_) && inside_ == 0;
        if (!open_ || closes) break;
        if (!leaves) {
          ++inside_;
          return Inside(this, shared_);
        }
      }
      // For calls of this client to columns, which wait for no other one.
      changed_.Wait(mutex_);
    }
    opening_ = true;
  }
  if (closes) {
    // What the columns had may come back with them, or is lost: as after a crash.
    const absl::Status left = Leave(now);
    MutexLock lock(mutex_);
    late_.Update(left);
  }
  const absl::Status opened = Open(now);
  MutexLock lock(mutex_);
  opening_ = false;
  changed_.SignalAll();
  ABACUS_RETURN_IF_ERROR(opened);
  // A break that has come meanwhile waits for this call: were it sent away, two clients could take
  // the columns from each other for ever, and no call of either were made.
  ++inside_;
  return Inside(this, shared_);
}

std::optional<SpreadLayer::Inside> SpreadLayer::EnterIfOpen(Version now) {
  MutexLock lock(mutex_);
  newest_ = std::max(newest_, now);
  // What is being given back is pushed and flushed by that.
  while (breaking_ > 0 || opening_) changed_.Wait(mutex_);
  if (!open_) return std::nullopt;
  ++inside_;
  return Inside(this, shared_);
}

absl::StatusOr<Promise> SpreadLayer::TakePromise(PromiseKind kind, Version now, bool* is_another) {
  Promise promise;
  for (;;) {
    const absl::StatusOr<Promise> claimed = below()->Claim(kind, now);
    MutexLock lock(mutex_);
    // What is above writes back while the promise breaks that it was written under: it is not over.
    // Under one together nothing was kept.
    const bool breaks = IsWouldBlock(claimed.status()) && promise_.kind == PromiseKind::kWrite &&
                        promise_.given > broken_;
    if (!breaks) ABACUS_RETURN_IF_ERROR(claimed.status());
    promise = breaks ? promise_ : *claimed;
    if (promise.given <= broken_) continue;  // that one is over already
    *is_another = promise.given != promise_.given;
    promise_ = promise;
    break;
  }
  if (*is_another) {
    // Others may have written under a promise between: what is left of before is not for these.
    const absl::Status closed = Close(now);
    MutexLock lock(mutex_);
    late_.Update(closed);
  }
  return promise;
}

absl::Status SpreadLayer::Open(Version now) {
  Version refused;  // the promise together under which the volume opened nothing
  for (;;) {
    bool together = false;
    {
      MutexLock lock(mutex_);
      // Those above may keep something under a promise to write that is there already.
      together =
          !alone_ && promise_.kind != PromiseKind::kWrite && choice_.WantsTogether(steady_ns_());
    }
    bool is_another = false;
    ABACUS_ASSIGN_OR_RETURN(
        const Promise promise,
        TakePromise(together ? PromiseKind::kTogether : PromiseKind::kWrite, now, &is_another));
    if (promise.kind != PromiseKind::kTogether) {
      ABACUS_RETURN_IF_ERROR(OpenAlone(now));
      {
        MutexLock lock(mutex_);
        if (is_another) choice_.OpenedAlone(steady_ns_());
        if (!together) alone_ = false;
      }
      return together ? Share(now) : absl::OkStatus();
    }
    const absl::StatusOr<SharedColumns> shared = volume_->OpenShared(writer_, id_);
    if (shared.ok() && TakeShared(*shared).ok()) return absl::OkStatus();
    // The promise is over, and is claimed anew. Where it is not, it is the opening that is no more,
    // or of no use here: it is made anew alone.
    if (!IsWouldBlock(shared.status()) || refused == promise.given) WantAlone();
    refused = promise.given;
  }
}

absl::Status SpreadLayer::OpenAlone(Version now) {
  ABACUS_ASSIGN_OR_RETURN(const OpenedColumns opened, volume_->OpenColumns(writer_, id_));
  ABACUS_RETURN_IF_ERROR(columns_->TakeColumns(opened.columns, opened.witness));
  if (!opened.missed.empty()) {
    ABACUS_RETURN_IF_ERROR(columns_->NoteMissed(opened.missed, now));
  }
  ABACUS_ASSIGN_OR_RETURN(const uint64_t size, columns_->Size(now));
  // A client that died may not have told it.
  if (size != opened.size) ABACUS_RETURN_IF_ERROR(below()->Truncate(size, now));
  MutexLock lock(mutex_);
  open_ = true;
  stale_ = false;
  unpushed_ = false;
  told_size_.reset();
  durable_size_.reset();
  return absl::OkStatus();
}

absl::Status SpreadLayer::Share(Version now) {
  const absl::StatusOr<bool> closed = columns_->CloseToShare(now);
  bool may_later = false;
  if (closed.ok() && *closed) {
    {
      MutexLock lock(mutex_);
      open_ = false;
    }
    const absl::StatusOr<SharedColumns> shared = volume_->BeginShared(writer_, id_);
    if (shared.ok()) {
      {
        MutexLock lock(mutex_);
        promise_.kind = PromiseKind::kTogether;
      }
      if (TakeShared(*shared).ok()) return absl::OkStatus();
      WantAlone();
      return Open(now);  // by a promise of its own
    }
    may_later = IsWouldBlock(shared.status());
  }
  // Others who wait to share wait for this one no more. Where its promise breaks they do not.
  below()->Claim(PromiseKind::kNone, now).status().IgnoreError();
  bool is_open = false;
  {
    MutexLock lock(mutex_);
    if (!may_later) choice_.CouldNotShare();
    is_open = open_;
  }
  return is_open ? absl::OkStatus() : OpenAlone(now);
}

absl::Status SpreadLayer::TakeShared(const SharedColumns& shared) {
  ABACUS_RETURN_IF_ERROR(columns_->TakeShared(shared));
  MutexLock lock(mutex_);
  open_ = shared_ = true;
  stale_ = false;
  shared_size_ = shared.size;
  // The inode has it: who opened the columns alone before has told it.
  told_size_ = shared.size;
  durable_size_.reset();
  choice_.OpenedTogether();
  return absl::OkStatus();
}

void SpreadLayer::WantAlone() {
  MutexLock lock(mutex_);
  alone_ = true;
}

absl::Status SpreadLayer::Close(Version now) {
  {
    MutexLock lock(mutex_);
    if (!open_ && !unflushed_) return absl::OkStatus();
  }
  absl::Status status = TellSize(now);
  status.Update(columns_->CloseColumns(now));
  MutexLock lock(mutex_);
  open_ = shared_ = false;
  return std::exchange(unflushed_, false) ? status : absl::OkStatus();
}

absl::Status SpreadLayer::Leave(Version now) {
  absl::Status status;
  bool kept = false;
  {
    MutexLock lock(mutex_);
    kept = unflushed_;
  }
  if (kept) {
    status = TellSize(now);
    status.Update(columns_->Flush(now));
  }
  if (status.ok()) return Close(now);
  MutexLock lock(mutex_);
  open_ = shared_ = false;
  return status;
}

absl::Status SpreadLayer::Retire(Version now, Version given, bool ends) {
  {
    MutexLock lock(mutex_);
    ++breaking_;
    while (inside_ > 0 || opening_ || closing_) changed_.Wait(mutex_);
    if (promise_.given > given) {  // a newer one than that which breaks
      --breaking_;
      changed_.SignalAll();
      return absl::OkStatus();
    }
    closing_ = true;
    if (ends) broken_ = std::max(broken_, given);
    now = std::max(now, newest_);
  }
  const absl::Status status = Close(now);
  MutexLock lock(mutex_);
  if (ends) {
    if (promise_.kind == PromiseKind::kWrite) choice_.Broken(steady_ns_());
    promise_ = Promise();
    late_.Update(status);
  }
  closing_ = false;
  --breaking_;
  changed_.SignalAll();
  return status;
}

absl::StatusOr<Promise> SpreadLayer::Claim(PromiseKind, Version now) {
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(Use::kAny, now));
  MutexLock lock(mutex_);
  return inside.is_shared() ? Promise{PromiseKind::kNone, promise_.given} : promise_;
}

// A promise to share is never claimed here.
absl::Status SpreadLayer::Invalidate(Range range, Version version) {
  return Layer::Invalidate(range, version);
}

absl::Status SpreadLayer::Recall(Range range, Version version) {
  // First what those above have not told us yet.
  ABACUS_RETURN_IF_ERROR(Layer::Recall(range, version));
  // Another client waits, whatever becomes of it here: that is told later.
  Retire(Version(), version, /*ends=*/true).IgnoreError();
  return absl::OkStatus();
}

absl::Status SpreadLayer::GiveUp(Version now) {
  absl::Status status = Retire(now, Version{UINT64_MAX}, /*ends=*/false);
  status.Update(TakeLate());
  return status;
}

absl::Status SpreadLayer::TakeLate() {
  MutexLock lock(mutex_);
  return std::exchange(late_, absl::OkStatus());
}

absl::Status SpreadLayer::TellSize(Version now) {
  uint64_t size = 0;
  bool shared = false;
  {
    // One after the other: an older size is not to come last.
    MutexLock lock(mutex_);
    while (telling_) changed_.Wait(mutex_);
    if (!std::exchange(unpushed_, false)) return absl::OkStatus();
    telling_ = true;
    shared = shared_;
    size = shared_size_;
  }
  absl::Status told;
  if (shared) {
    told = below()->Push(now);  // the size stays, and to set it would break others' promises
  } else {
    const absl::StatusOr<uint64_t> now_there = columns_->Size(now);
    told = now_there.status();
    if (told.ok()) {
      size = *now_there;
      told = below()->Truncate(size, now);  // of the same size: the times
    }
  }
  MutexLock lock(mutex_);
  telling_ = false;
  changed_.SignalAll();
  if (told.ok()) {
    ++tells_;
    told_size_ = size;
    if (durable_size_ != size) durable_size_.reset();
    return told;
  }
  unpushed_ = true;
  return told;
}

// -- calls ----------------------------------------------------------------------------------------

// More than the layer over the columns can do without does not serve. A later call looks again.
void SpreadLayer::TakeNotice(const absl::Status& status) {
  if (status.ok() || !absl::IsUnavailable(status)) return;
  MutexLock lock(mutex_);
  stale_ = true;
}

// Before a call changes anything, for a break while it is under way; and after it, as a flush
// beside it did not flush what came later.
void SpreadLayer::Changes() {
  MutexLock lock(mutex_);
  unpushed_ = true;
  if (!shared_) unflushed_ = true;  // else it is durable when the call returns
}

namespace {
const absl::Status& SpreadStatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& SpreadStatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}
}  // namespace

template <typename F>
auto SpreadLayer::Call(Use use, Version now, F&& call) -> decltype(call()) {
  for (;;) {
    {
      ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(use, now));
      auto result = call();
      const absl::Status& status = SpreadStatusOf(result);
      if (!inside.is_shared()) {
        TakeNotice(status);
        return result;
      }
      // Shut out: the columns were opened for somebody else, or a server was started again. Whether
      // it is the client that is none any more, who claims a promise is told.
      const bool needs_alone =
          IsNeedsAlone(status) || IsNoClient(status) || absl::IsUnavailable(status);
      if (!needs_alone) return result;
    }
    use = Use::kAlone;  // where the answer is another one
  }
}

absl::StatusOr<ReadResult> SpreadLayer::Read(uint64_t offset, uint64_t bytes, Version now) {
  return Call(Use::kAny, now, [&] { return columns_->Read(offset, bytes, now); });
}

absl::Status SpreadLayer::Write(uint64_t offset, const Block& bytes, Version now) {
  return Call(Use::kAny, now, [&] {
    Changes();
    auto result = columns_->Write(offset, bytes, now);
    Changes();
    return result;
  });
}

absl::StatusOr<uint64_t> SpreadLayer::Append(const Block& bytes, Version now) {
  return Call(Use::kAlone, now, [&] {
    Changes();
    auto result = columns_->Append(bytes, now);
    Changes();
    return result;
  });
}

// Who sets a size asks the inode for it then.
absl::Status SpreadLayer::Truncate(uint64_t size, Version now) {
  return Call(Use::kAlone, now, [&]() -> absl::Status {
    Changes();
    const absl::Status cut = columns_->Truncate(size, now);
    Changes();
    return cut.ok() ? TellSize(now) : cut;
  });
}

absl::Status SpreadLayer::Punch(Range range, Version now) {
  return Call(Use::kAlone, now, [&] {
    Changes();
    auto result = columns_->Punch(range, now);
    Changes();
    return result;
  });
}

absl::StatusOr<uint64_t> SpreadLayer::Seek(uint64_t offset, bool data, Version now) {
  return Call(Use::kAlone, now, [&] { return columns_->Seek(offset, data, now); });
}

absl::Status SpreadLayer::Push(Version now) {
  ABACUS_RETURN_IF_ERROR(TakeLate());
  const std::optional<Inside> inside = EnterIfOpen(now);
  return inside.has_value() ? TellSize(now) : absl::OkStatus();
}

absl::Status SpreadLayer::Flush(Version now) { return FlushWith(/*times=*/true, now); }
absl::Status SpreadLayer::FlushData(Version now) { return FlushWith(/*times=*/false, now); }

absl::Status SpreadLayer::FlushWith(bool times, Version now) {
  ABACUS_RETURN_IF_ERROR(TakeLate());
  bool stale = false;
  {
    MutexLock lock(mutex_);
    stale = open_ && stale_;
  }
  // Nobody else may call for as long as what is left cannot be flushed. A promise that is being
  // given back has it flushed.
  const absl::Status opened = stale ? Enter(Use::kAny, now).status() : absl::OkStatus();
  if (!opened.ok() && !IsWouldBlock(opened)) return opened;
  {
    const std::optional<Inside> inside = EnterIfOpen(now);
    if (inside.has_value()) {
      {
        MutexLock lock(mutex_);
        unflushed_ = false;
      }
      const absl::Status flushed = columns_->Flush(now);
      TakeNotice(flushed);
      if (!flushed.ok()) {
        MutexLock lock(mutex_);
        unflushed_ = true;
        return flushed;
      }
      if (!times) {
        ABACUS_ASSIGN_OR_RETURN(const uint64_t size, columns_->Size(now));
        MutexLock lock(mutex_);
        if (durable_size_ == size) return std::exchange(late_, absl::OkStatus());
      }
      ABACUS_RETURN_IF_ERROR(TellSize(now));
    }
  }
  // A break that came between tells what it could not flush.
  ABACUS_RETURN_IF_ERROR(TakeLate());
  uint64_t tells = 0;
  {
    MutexLock lock(mutex_);
    tells = tells_;
  }
  ABACUS_RETURN_IF_ERROR(below()->Flush(now));
  MutexLock lock(mutex_);
  // Unless another one was told meanwhile; none is known where the columns were opened anew.
  durable_size_ = tells_ == tells ? told_size_ : std::nullopt;
  return absl::OkStatus();
}

absl::StatusOr<Attributes> SpreadLayer::GetAttributes(Version now) {
  return Call(Use::kAny, now, [&] { return columns_->GetAttributes(now); });
}

absl::StatusOr<CommitResult> SpreadLayer::Commit(const std::vector<RangeVersion>& reads,
                                                 const std::vector<RangeWrite>& writes,
                                                 Version now) {
  return Call(Use::kAlone, now, [&] { return columns_->Commit(reads, writes, now); });
}

absl::StatusOr<RebuildProgress> SpreadLayer::Rebuild(uint64_t from, uint64_t stripes, Version now) {
  const auto rebuild = [&] { return columns_->Rebuild(from, stripes, now); };
  auto progress = Call(Use::kAlone, now, rebuild);
  // The server may be back since the columns were opened: they are opened anew, once.
  return absl::IsUnavailable(progress.status()) ? Call(Use::kAlone, now, rebuild) : progress;
}

absl::StatusOr<ScrubProgress> SpreadLayer::Scrub(uint64_t from, uint64_t stripes, Version now) {
  return Call(Use::kAlone, now, [&] { return columns_->Scrub(from, stripes, now); });
}

// -- state ----------------------------------------------------------------------------------------

// No call is inside.
void SpreadLayer::Checkpoint(runtime::CheckpointWriter& writer) const {
  Layer::Checkpoint(writer);
  MutexLock lock(mutex_);
  writer.Write(volume_);
  writer.Write(columns_);
  writer.Write(id_);
  writer.Write(writer_);
  writer.Write(open_);
  writer.Write(shared_);
  writer.Write(alone_);
  writer.Write(shared_size_);
  const ShareChoice::Travelling choice = choice_.Travels();
  writer.Write(choice.breaks);
  writer.Write(choice.together);
  writer.Write(choice.together_for);
  writer.Write(stale_);
  writer.Write(unpushed_);
  writer.Write(unflushed_);
  writer.Write(promise_);
  writer.Write(broken_);
  writer.Write(newest_);
  writer.Write(static_cast<int32_t>(late_.code()));
  writer.Write(std::string(runtime::ToStd(late_.message())));
}

absl::Status SpreadLayer::Restore(runtime::CheckpointReader& reader) {
  ABACUS_RETURN_IF_ERROR(Layer::Restore(reader));
  MutexLock lock(mutex_);
  reader.Read(volume_);
  reader.Read(columns_);
  reader.Read(id_);
  reader.Read(writer_);
  reader.Read(open_);
  if (reader.version() >= 2) {
    reader.Read(shared_);
    reader.Read(alone_);
    reader.Read(shared_size_);
    ShareChoice::Travelling choice;
    reader.Read(choice.breaks);
    reader.Read(choice.together);
    reader.Read(choice.together_for);
    choice_.Arrives(choice, steady_ns_());
  }
  reader.Read(stale_);
  reader.Read(unpushed_);
  reader.Read(unflushed_);
  reader.Read(promise_);
  reader.Read(broken_);
  reader.Read(newest_);
  const auto code = reader.Read<int32_t>();
  const auto message = reader.Read<std::string>();
  if (code != 0) late_ = absl::Status(static_cast<absl::StatusCode>(code), message);
  return reader.status();
}

void SpreadLayer::AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
  MutexLock lock(mutex_);
  facts->emplace_back("columns", shared_ ? "shared" : open_ ? "open" : "closed");
}

}  // namespace abacus::objfs
