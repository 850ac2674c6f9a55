#include "objfs/atomicity/commit_log_state.h"

#include <algorithm>
#include <utility>

#include "objfs/atomicity/group_part.h"
#include "objfs/store/numbers.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kCommitTag = 'c', kEpochTag = 'e', kHeldTag = 'h';

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

void AppendKey(std::string* bytes, const CommitKey& key) {
  AppendNumber(bytes, key.id.value);
  AppendNumber(bytes, key.part);
}

absl::StatusOr<CommitKey> TakeKey(std::string_view* bytes) {
  if (bytes->size() < 2 * sizeof(uint64_t)) return absl::DataLossError("a key is cut short");
  const CommitKey key{Version{NumberAt<uint64_t>(*bytes, 0)},
                      NumberAt<uint64_t>(*bytes, sizeof(uint64_t))};
  bytes->remove_prefix(2 * sizeof(uint64_t));
  return key;
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

std::string CommitLogState::HeldBytes(const CommitKey& key) {
  std::string bytes(1, kHeldTag);
  AppendKey(&bytes, key);
  return bytes;
}

void CommitLogState::ApplyCommit(const CommitRecord& record) {
  commits.Apply(record);
  if (!commits.entries.contains(record.key)) held.erase(record.key);
}

void CommitLogState::Hold(const CommitKey& key) {
  const auto entry = commits.entries.find(key);
  if (entry == commits.entries.end()) return;
  entry->second.committed = true;
  held.insert(key);
}

absl::Status CommitLogState::Apply(std::string_view record) {
  if (record.starts_with(kEpochTag)) {
    record.remove_prefix(1);
    ABACUS_ASSIGN_OR_RETURN(const uint64_t later, TakeEpoch(&record));
    if (!record.empty()) return absl::DataLossError("an epoch's record is too long");
    epoch = std::max(epoch, later);
    return absl::OkStatus();
  }
  if (record.starts_with(kHeldTag)) {
    record.remove_prefix(1);
    ABACUS_ASSIGN_OR_RETURN(const CommitKey key, TakeKey(&record));
    if (!record.empty()) return absl::DataLossError("a record of a held group is too long");
    Hold(key);
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
  ApplyCommit(commit);
  return absl::OkStatus();
}

std::string CommitLogState::Encode() const {
  std::string bytes = EpochNumber(epoch);
  AppendNumber(&bytes, static_cast<uint64_t>(held.size()));
  for (const CommitKey& key : held) AppendKey(&bytes, key);
  return bytes + commits.Encode();
}

absl::StatusOr<CommitLogState> CommitLogState::Decode(std::string_view snapshot) {
  CommitLogState state;
  ABACUS_ASSIGN_OR_RETURN(state.epoch, TakeEpoch(&snapshot));
  if (snapshot.size() < sizeof(uint64_t)) return absl::DataLossError("a snapshot is cut short");
  const auto count = NumberAt<uint64_t>(snapshot, 0);
  snapshot.remove_prefix(sizeof count);
  for (uint64_t i = 0; i < count; ++i) {
    ABACUS_ASSIGN_OR_RETURN(const CommitKey key, TakeKey(&snapshot));
    const bool rises = state.held.empty() || *state.held.rbegin() < key;
    if (!rises) return absl::DataLossError("groups that are held do not rise");
    state.held.insert(key);
  }
  ABACUS_ASSIGN_OR_RETURN(state.commits, CommitEntries::Decode(snapshot));
  for (const auto& [key, entry] : state.commits.entries) {
    ABACUS_RETURN_IF_ERROR(CheckPayload(entry.payload));
  }
  for (const CommitKey& key : state.held) {
    if (!state.commits.entries.contains(key)) {
      return absl::DataLossError("a group is held that is not there");
    }
  }
  return state;
}

}  // namespace abacus::objfs
