#include "objfs/volume/isolation_layer.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

absl::Status IsolationLayer::Write(uint64_t offset, const runtime::Block& bytes, Version now) {
  return table_->ChangeBytes(
      now.writer(), id_, [&](Version version) { return below()->Write(offset, bytes, version); });
}

absl::Status IsolationLayer::Truncate(uint64_t size, Version now) {
  return table_->ChangeBytes(now.writer(), id_,
                             [&](Version version) { return below()->Truncate(size, version); });
}

absl::Status IsolationLayer::Punch(Range range, Version now) {
  return table_->ChangeBytes(now.writer(), id_,
                             [&](Version version) { return below()->Punch(range, version); });
}

absl::Status IsolationLayer::Push(Version) { return absl::OkStatus(); }
absl::Status IsolationLayer::Flush(Version) { return table_->Flush(id_); }

absl::StatusOr<Attributes> IsolationLayer::GetAttributes(Version) {
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(id_));
  if (node.id == 0) return absl::NotFoundError(absl::StrCat("there is no object ", id_));
  return Attributes{node.size, node.allocated, node.version, node.inode.Encode()};
}

absl::StatusOr<CommitResult> IsolationLayer::Commit(const std::vector<RangeVersion>& reads,
                                                    const std::vector<RangeWrite>& writes,
                                                    Version now) {
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
