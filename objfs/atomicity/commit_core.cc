#include "objfs/atomicity/commit_core.h"

#include <algorithm>

#include "objfs/atomicity/commit_core_inl.h"

namespace abacus::objfs {
namespace {

template <typename T>
std::string Encoded(const T& value) {
  runtime::Writer writer;
  runtime::Encode(writer, value);
  return std::move(writer).Finish().inline_bytes;
}

template <typename T>
absl::StatusOr<T> Decoded(std::string_view bytes) {
  const std::vector<runtime::Block> no_blocks;
  runtime::Reader reader(bytes, no_blocks, nullptr);
  T value{};
  runtime::Decode(reader, value);
  if (!reader.ok() || !reader.AtEnd()) return absl::DataLossError("a commit record is damaged");
  return value;
}

// Maps travel as lists.
struct StateForm {
  Version ceiling;
  std::vector<std::pair<CommitKey, CommitEntries::Entry>> entries;
  ABACUS_FIELDS(ceiling, entries)
};

}  // namespace

std::string EncodeCommitRecord(const CommitRecord& record) { return Encoded(record); }

absl::StatusOr<CommitRecord> DecodeCommitRecord(std::string_view bytes) {
  absl::StatusOr<CommitRecord> record = Decoded<CommitRecord>(bytes);
  if (record.ok() && record->kind > CommitRecord::Kind::kForget) {
    return absl::DataLossError("a commit record is of no known kind");
  }
  return record;
}

void CommitEntries::Apply(const CommitRecord& record) {
  ceiling = std::max(ceiling, record.key.id);
  switch (record.kind) {
    case CommitRecord::Kind::kCeiling:
      break;
    case CommitRecord::Kind::kPrepare:
      entries[record.key] = {record.group, record.payload, false};
      break;
    case CommitRecord::Kind::kCommit:
      if (const auto found = entries.find(record.key); found != entries.end()) {
        found->second.committed = true;
      }
      break;
    case CommitRecord::Kind::kAbort:
    case CommitRecord::Kind::kForget:
      entries.erase(record.key);
      break;
  }
}

std::string CommitEntries::Encode() const {
  return Encoded(StateForm{ceiling, {entries.begin(), entries.end()}});
}

absl::StatusOr<CommitEntries> CommitEntries::Decode(std::string_view bytes) {
  absl::StatusOr<StateForm> form = Decoded<StateForm>(bytes);
  if (!form.ok()) return form.status();
  return CommitEntries{form->ceiling, {form->entries.begin(), form->entries.end()}};
}

template class CommitDriver<FaithfulCommitPolicy>;
template class CommitParticipant<FaithfulCommitPolicy>;

}  // namespace abacus::objfs
