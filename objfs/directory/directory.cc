#include "objfs/directory/directory.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

absl::Status Directory::Init(const runtime::Ref<Volume>& volume, const runtime::Ref<Layer>& below,
                             ObjectId id, uint16_t writer) {
  volume_ = volume;
  below_ = below;
  id_ = id;
  writer_ = writer;
  return absl::OkStatus();
}

absl::StatusOr<BlockRead> Directory::Read(uint32_t number) {
  // Versions are the volume's to give; this says who asks.
  ABACUS_ASSIGN_OR_RETURN(
      ReadResult read,
      below_->Read(number * kDirectoryBlockBytes, kDirectoryBlockBytes, Version::Of(0, writer_)));
  return BlockRead{std::move(read.bytes), read.version};
}

absl::StatusOr<std::optional<Entry>> Directory::Lookup(const std::string& name) {
  return tree_.Lookup(name);
}

absl::StatusOr<std::vector<ListedEntry>> Directory::List(uint64_t cookie, uint32_t max) {
  return tree_.List(cookie, max);
}

absl::StatusOr<Part> Directory::Plan(const std::vector<EntryChange>& changes) {
  ABACUS_ASSIGN_OR_RETURN(Part part, tree_.Plan(changes));
  part.id = id_;
  return part;
}

absl::StatusOr<Outcome> Directory::Commit(const std::vector<EntryChange>& changes,
                                          const InodeChange& own, const std::vector<Part>& others,
                                          const std::optional<uint64_t>& tree) {
  Transaction transaction{.parts = others, .tree = tree};
  transaction.parts.emplace_back();
  for (int commits = 0; commits < kCommitsMax; ++commits) {
    ABACUS_ASSIGN_OR_RETURN(transaction.parts.back(), Plan(changes));
    transaction.parts.back().change = own;
    ABACUS_ASSIGN_OR_RETURN(Outcome outcome, volume_->Commit(writer_, transaction));
    if (outcome.state != CommitState::kStale || outcome.id != id_) return outcome;
    ++retries_;
  }
  return WouldBlock(absl::StrCat("others change directory ", id_, " all the time"));
}

absl::StatusOr<uint64_t> Directory::Retries() { return retries_.load(); }

void Directory::Checkpoint(runtime::CheckpointWriter& writer) const {
  writer.Write(volume_);
  writer.Write(below_);
  writer.Write(id_);
  writer.Write(writer_);
  writer.Write(retries_.load());
}

absl::Status Directory::Restore(runtime::CheckpointReader& reader) {
  reader.Read(volume_);
  reader.Read(below_);
  reader.Read(id_);
  reader.Read(writer_);
  uint64_t retries = 0;
  reader.Read(retries);
  retries_ = retries;
  return reader.status();
}

}  // namespace abacus::objfs
