#include "objfs/directory/directory.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

absl::Status Directory::Init(const runtime::Ref<Volume>& volume, const runtime::Ref<Layer>& below,
                             ObjectId id, uint16_t writer) {
  volume_ = volume;
  below_ = below;
  id_ = id;
  writer_ = writer;
  here_ = DirectoryTurns::Member(turns_.get(), {volume_.rid(), id_});
  return absl::OkStatus();
}

class Directory::KeptSource final : public BlockSource {
 public:
  KeptSource(Directory& directory, Kept kept) : directory_(directory), kept_(std::move(kept)) {}

  // Once: a plan that finds that a block does not fit asks for it again.
  absl::StatusOr<BlockRead> Read(uint32_t number) override {
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [number](const auto& kept) { return kept.first == number; });
    if (found == kept_.end()) return directory_.Read(number);
    BlockRead block = std::move(found->second);
    kept_.erase(found);
    used_ = true;
    return block;
  }
  bool used() const { return used_; }

 private:
  Directory& directory_;
  Kept kept_;
  bool used_ = false;
};

absl::StatusOr<BlockRead> Directory::Read(uint32_t number) {
  // Versions are the volume's to give; this says who asks.
  ABACUS_ASSIGN_OR_RETURN(
      ReadResult read,
      below_->Read(number * kDirectoryBlockBytes, kDirectoryBlockBytes, Version::Of(0, writer_)));
  BlockRead block{std::move(read.bytes), read.version};
  runtime::MutexLock lock(mutex_);
  Keep(number, block);
  return block;
}

void Directory::Keep(uint32_t number, const BlockRead& block) {
  // Of one readSet all have one version, and what has an older one is refused.
  const bool is_one = is_one_read_set_;
  std::erase_if(kept_, [&](const auto& kept) {
    return kept.first == number || (is_one && kept.second.version < block.version);
  });
  if (kept_.size() >= (is_one ? kWholeKeptMax : kKeptMax)) kept_.erase(kept_.begin());
  kept_.emplace_back(number, block);
}

void Directory::KeepUnlessNewer(uint32_t number, const BlockRead& block) {
  const bool has_newer = std::any_of(kept_.begin(), kept_.end(), [&](const auto& kept) {
    return kept.first == number && kept.second.version > block.version;
  });
  if (!has_newer) Keep(number, block);
}

// In one: another commit that took up some of it would plan on old bytes that seem to be new.
void Directory::KeepCommitted(const Part& part, const Outcome& outcome, const Kept& others) {
  const auto number_of = [](const RangeWrite& write) {
    return static_cast<uint32_t>(write.offset / kDirectoryBlockBytes);
  };
  runtime::MutexLock lock(mutex_);
  is_one_read_set_ = outcome.whole_read_sets;
  if (calm_ < kCalmCommits) return;  // soon others will have changed them
  const auto has_newer = [&](const Kept& kept, std::optional<uint32_t> number) {
    return std::any_of(kept.begin(), kept.end(), [&](const auto& one) {
      return one.second.version > outcome.version && one.first == number.value_or(one.first);
    });
  };
  const bool has_all = outcome.whole_read_sets && !part.reads.empty() && !part.writes.empty() &&
                       !has_newer(kept_, std::nullopt);
  for (const auto& [number, block] : others) {
    const bool is_written = std::any_of(
        part.writes.begin(), part.writes.end(),
        [&, number = number](const RangeWrite& write) { return number_of(write) == number; });
    if (is_written) continue;
    if (!outcome.whole_read_sets) {
      KeepUnlessNewer(number, block);
    } else if (has_all && block.version == part.reads.front().version) {
      // As it was in what the commit rests on, and so in what it made.
      Keep(number, {block.bytes, outcome.version});
    }
  }
  for (const RangeWrite& write : part.writes) {
    if (has_newer(kept_, number_of(write))) continue;
    Keep(number_of(write), {write.bytes, outcome.version});
  }
}

Directory::Kept Directory::TakeKept() {
  runtime::MutexLock lock(mutex_);
  return std::exchange(kept_, {});
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

absl::StatusOr<Part> Directory::PlanWith(const std::vector<EntryChange>& changes, Kept kept) {
  if (kept.empty()) return Plan(changes);
  KeptSource source(*this, std::move(kept));
  absl::StatusOr<Part> part = tree_.Plan(changes, source);
  // What old blocks stand against may be so no more.
  if (!part.ok() && source.used()) return Plan(changes);
  if (part.ok()) part->id = id_;
  return part;
}

absl::StatusOr<Outcome> Directory::Commit(const std::vector<EntryChange>& changes,
                                          const InodeChange& own, const std::vector<Part>& others,
                                          const std::optional<uint64_t>& tree) {
  Transaction transaction{.parts = others, .tree = tree};
  transaction.parts.emplace_back();
  const DirectoryTurns::Turn turn(here_);
  // After a commit they are old. Whoever had the turn before has changed them.
  Kept known = TakeKept();
  if (turn.taken()) known.clear();
  ABACUS_ASSIGN_OR_RETURN(transaction.parts.back(), PlanWith(changes, known));
  transaction.parts.back().change = own;
  const absl::StatusOr<Outcome> outcome = volume_->Commit(writer_, transaction);
  const Kept read = TakeKept();
  if (!outcome.ok()) return outcome.status();
  const bool is_refused = outcome->state == CommitState::kStale && outcome->id == id_;
  if (is_refused) ++retries_;
  {
    runtime::MutexLock lock(mutex_);
    calm_ = is_refused ? 0 : std::min(calm_ + 1, kCalmCommits);
  }
  if (outcome->state != CommitState::kCommitted) return outcome;
  known.insert(known.end(), read.begin(), read.end());
  KeepCommitted(transaction.parts.back(), *outcome, known);
  return outcome;
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
  ABACUS_RETURN_IF_ERROR(reader.status());
  here_ = DirectoryTurns::Member(turns_.get(), {volume_.rid(), id_});
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<runtime::MobileObject>> DirectoryManager::CreateObj(
    const runtime::ClassInfo&, size_t) {
  return std::make_unique<Directory>(turns_);
}

}  // namespace abacus::objfs
