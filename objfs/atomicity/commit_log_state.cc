#include "objfs/atomicity/commit_log_state.h"

#include <algorithm>
#include <utility>

#include "objfs/atomicity/group_part.h"
#include "objfs/store/numbers.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kCommitTag = 'c', kEpochTag = 'e';

std::string EpochNumber(uint64_t epoch) {
  std::string bytes;
  AppendNumber(&bytes, epoch);
  return bytes;
}

absl::StatusOr<uint64_t> TakeEpoch(std::string_view* bytes) {
  if (bytes->size() < sizeof(uint64_t)) return absl::DataLossError("an epoch is cut short");
  const auto epoch = NumberAt<uint64_t>(*bytes, 0);
  bytes->remove_prefix(sizeof epoch);
  return epoch;
}

absl::Status CheckPayload(std::string_view payload) {
  if (GroupPart::Decode(payload).ok()) return absl::OkStatus();
  return absl::DataLossError("what a group was to write is damaged");
}

}  // namespace

std::string CommitLogState::CommitBytes(const CommitRecord& record) {
  return kCommitTag + EncodeCommitRecord(record);
}

std::string CommitLogState::EpochBytes(uint64_t epoch) { return kEpochTag + EpochNumber(epoch); }

absl::Status CommitLogState::Apply(std::string_view record) {
  if (record.starts_with(kEpochTag)) {
    record.remove_prefix(1);
    ABACUS_ASSIGN_OR_RETURN(const uint64_t later, TakeEpoch(&record));
    if (!record.empty()) return absl::DataLossError("an epoch's record is too long");
    epoch = std::max(epoch, later);
    return absl::OkStatus();
  }
  if (!record.starts_with(kCommitTag)) {
    return absl::DataLossError("a log's record is of no known kind");
  }
  record.remove_prefix(1);
  ABACUS_ASSIGN_OR_RETURN(const CommitRecord commit, DecodeCommitRecord(record));
  if (commit.kind == CommitRecord::Kind::kPrepare) {
    ABACUS_RETURN_IF_ERROR(CheckPayload(commit.payload));
  }
  commits.Apply(commit);
  return absl::OkStatus();
}

std::string CommitLogState::Encode() const { return EpochNumber(epoch) + commits.Encode(); }

absl::StatusOr<CommitLogState> CommitLogState::Decode(std::string_view snapshot) {
  CommitLogState state;
  ABACUS_ASSIGN_OR_RETURN(state.epoch, TakeEpoch(&snapshot));
  ABACUS_ASSIGN_OR_RETURN(state.commits, CommitState::Decode(snapshot));
  for (const auto& [key, entry] : state.commits.entries) {
    ABACUS_RETURN_IF_ERROR(CheckPayload(entry.payload));
  }
  return state;
}

}  // namespace abacus::objfs
