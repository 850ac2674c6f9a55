#include "objfs/volume/isolation_layer.h"

#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

template <typename F>
absl::Status IsolationLayer::ChangeBytes(Version now, F&& change) {
  ABACUS_ASSIGN_OR_RETURN(const Callbacks::Change lasting,
                          callbacks_->BeginChange(id_, now.writer()));
  const std::function<absl::Status(Version)> apply(std::forward<F>(change));
  const absl::Status changed = table_->ChangeBytes(now.writer(), id_, apply);
  if (!absl::IsResourceExhausted(changed) || table_->waiting_removals() == 0) return changed;
  // What was removed still takes space.
  ABACUS_RETURN_IF_ERROR(table_->FlushAndRemove());
  return table_->ChangeBytes(now.writer(), id_, apply);
}

absl::StatusOr<ReadResult> IsolationLayer::Read(uint64_t offset, uint64_t bytes, Version now) {
  ABACUS_RETURN_IF_ERROR(callbacks_->Look(id_, now.writer()));
  ABACUS_ASSIGN_OR_RETURN(const std::optional<Version> of_all, table_->VersionOfAll(id_));
  ABACUS_ASSIGN_OR_RETURN(ReadResult read, Layer::Read(offset, bytes, now));
  // What was never written stays so.
  if (of_all.has_value() && read.version != Version()) read.version = *of_all;
  return read;
}

absl::Status IsolationLayer::Write(uint64_t offset, const runtime::Block& bytes, Version now) {
  return ChangeBytes(now, [&](Version version) { return below()->Write(offset, bytes, version); });
}

absl::StatusOr<uint64_t> IsolationLayer::Append(const runtime::Block& bytes, Version now) {
  uint64_t offset = 0;
  // The end is looked at in the object's turn: nobody moves it before the bytes are there.
  ABACUS_RETURN_IF_ERROR(ChangeBytes(now, [&](Version version) -> absl::Status {
    ABACUS_ASSIGN_OR_RETURN(const Attributes attributes, below()->GetAttributes(version));
    offset = attributes.size;
    return below()->Write(offset, bytes, version);
  }));
  return offset;
}

absl::Status IsolationLayer::Truncate(uint64_t size, Version now) {
  return ChangeBytes(now, [&](Version version) { return below()->Truncate(size, version); });
}

absl::Status IsolationLayer::Punch(Range range, Version now) {
  return ChangeBytes(now, [&](Version version) { return below()->Punch(range, version); });
}

absl::StatusOr<uint64_t> IsolationLayer::Seek(uint64_t offset, bool data, Version now) {
  ABACUS_RETURN_IF_ERROR(callbacks_->Look(id_, now.writer()));
  return Layer::Seek(offset, data, now);
}

absl::StatusOr<Promise> IsolationLayer::Claim(PromiseKind kind, Version now) {
  return callbacks_->Claim(id_, now.writer(), kind);
}

absl::Status IsolationLayer::Attach(uint16_t, const runtime::Ref<Layer>&) {
  return absl::OkStatus();
}
absl::Status IsolationLayer::Detach(uint16_t) { return absl::OkStatus(); }

// Not through ChangeBytes(): a change of the object would break the promises of the others, and
// there is none of the bytes that are here.
absl::Status IsolationLayer::Push(Version now) {
  if (!callbacks_->IsShared(id_, now.writer())) return absl::OkStatus();
  return table_->ChangeBytes(now.writer(), id_, [](Version) { return absl::OkStatus(); });
}
absl::Status IsolationLayer::Flush(Version) { return table_->Flush(id_); }

absl::StatusOr<Attributes> IsolationLayer::GetAttributes(Version now) {
  ABACUS_RETURN_IF_ERROR(callbacks_->Look(id_, now.writer()));
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(id_));
  if (node.id == 0) return absl::NotFoundError(absl::StrCat("there is no object ", id_));
  return Attributes{node.size, node.allocated, node.version, node.inode.Encode()};
}

absl::Status IsolationLayer::SetInode(const std::string&, Version) {
  return absl::FailedPreconditionError(
      absl::StrCat("the inode of object ", id_, " is changed by its volume"));
}

absl::StatusOr<CommitResult> IsolationLayer::Commit(const std::vector<RangeVersion>& reads,
                                                    const std::vector<RangeWrite>& writes,
                                                    Version now) {
  ABACUS_ASSIGN_OR_RETURN(const Callbacks::Change lasting,
                          callbacks_->BeginChange(id_, now.writer()));
  Transaction transaction;
  transaction.parts.push_back({.id = id_, .reads = reads, .writes = writes});
  ABACUS_ASSIGN_OR_RETURN(const Outcome outcome, table_->Commit(now.writer(), transaction));
  switch (outcome.state) {
    case CommitState::kCommitted:
      ABACUS_RETURN_IF_ERROR(table_->Flush(id_));
      return CommitResult{.committed = true, .stale = {}};
    case CommitState::kStale:
      return CommitResult{.committed = false, .stale = reads};
    default:
      return absl::NotFoundError(absl::StrCat("there is no object ", id_));
  }
}

}  // namespace abacus::objfs
