#include "objfs/check/volume_repair.h"

#include <sys/stat.h>

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/check/directory_scan.h"
#include "objfs/directory/block_format.h"
#include "objfs/layer/stack.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr int kReadsMax = 8;  // of a block that is changed meanwhile
constexpr int kNamesTriedMax = 1000;

constexpr char kRecordLost[] =
    "emptied: where it was a promise, this shard's part of that transaction is lost, whatever the "
    "others did of it; where it was a decision, those who ask for it hear that there was none. A "
    "check of all shards, while they are served, tells what does not fit then";

bool IsDirectoryEntry(const std::optional<Entry>& entry) {
  return entry.has_value() && entry->type == S_IFDIR;
}

}  // namespace

absl::StatusOr<BlockRead> StoredBlocks::Read(uint32_t number) {
  for (int i = 0; i < kReadsMax; ++i) {
    ABACUS_ASSIGN_OR_RETURN(const auto before, store_.ReadVersions(id_, number, 1));
    if (before.front() == 0) return BlockRead();
    std::string bytes(kDirectoryBlockBytes, '\0');
    ABACUS_ASSIGN_OR_RETURN(const uint64_t read,
                            store_.Read(id_, uint64_t{number} * kDirectoryBlockBytes,
                                        std::span(bytes.data(), bytes.size())));
    bytes.resize(read);
    ABACUS_ASSIGN_OR_RETURN(const auto after, store_.ReadVersions(id_, number, 1));
    if (before != after) continue;
    return BlockRead{runtime::Block::FromString(std::move(bytes)), Version{after.front()}};
  }
  return absl::AbortedError("the directory is changed all the time");
}

absl::StatusOr<Part> ChangeNames(ObjectStore& store, const Facts& directory,
                                 const std::vector<EntryChange>& changes) {
  StoredBlocks blocks(store, directory.id);
  DirectoryTree tree(blocks);
  ABACUS_ASSIGN_OR_RETURN(Part part, tree.Plan(changes));
  part.id = directory.id;
  // Its counts may be what is wrong.
  part.must_be_linked = false;
  for (const EntryChange& change : changes) {
    if (change.after.has_value() == change.before.has_value()) continue;
    const int added = change.after.has_value() ? 1 : -1;
    part.change.entries += added;
    const bool is_directory = IsDirectoryEntry(change.before) || IsDirectoryEntry(change.after);
    if (is_directory) part.change.links += added;
  }
  // What was counted wrong before is found so by the next scan, and told by itself.
  part.change.entries = std::max(part.change.entries, -static_cast<int64_t>(directory.entries));
  part.change.links = std::max(part.change.links, -static_cast<int32_t>(directory.links));
  part.change.touch_modified = part.change.touch_changed = true;
  return part;
}

InodeChange RightCount(FaultKind kind, const Facts& facts, ObjectId root) {
  InodeChange change;
  if (kind == FaultKind::kLinks) {
    change.links = static_cast<int32_t>(facts.RightLinks()) - static_cast<int32_t>(facts.links);
  } else if (kind == FaultKind::kEntries) {
    change.entries = static_cast<int64_t>(uint64_t{facts.counted} - facts.entries);
  } else {
    change.parent = facts.id == root ? root : facts.named_in;
  }
  return change;
}

absl::Status VolumeRepair::Repair(Found* found) {
  switch (found->stage) {
    case Stage::kRecords:
      return RepairRecords(found);
    case Stage::kObjects:
      return TellSalvaged(found);
    case Stage::kInodes:
      return RemakeInode(found);
    case Stage::kBlocks:
      return RebuildDirectory(found);
    case Stage::kNames:
      return ChangeName(found);
    case Stage::kTree:
      return Attach(found);
    case Stage::kCounts:
      return SetCount(found);
    case Stage::kNone:
      break;
  }
  return absl::InternalError("nothing is to be done");
}

absl::Status VolumeRepair::Commit(const Transaction& transaction) {
  ABACUS_ASSIGN_OR_RETURN(const Outcome outcome, table_.Commit(0, transaction));
  if (outcome.state == CommitState::kCommitted) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("object ", outcome.id, " is not what it was"));
}

// -- objects and inodes ---------------------------------------------------------------------------

absl::Status VolumeRepair::RepairRecords(Found* found) {
  const ObjectId id = found->fault.object;
  const VersionNumber version = table_.NextVersion().value;
  if (found->slot.has_value()) {
    // Whole blocks: what is there cannot be in the way.
    ABACUS_RETURN_IF_ERROR(store_.Punch(id, *found->slot * ShardRecords::kSlotBytes,
                                        ShardRecords::kSlotBytes, version));
    found->fault.done = kRecordLost;
    return absl::OkStatus();
  }
  Inode inode;
  inode.mode = ShardRecords::kMode;
  inode.links = 1;
  const absl::Status set = store_.SetAttributes(id, inode.Encode(), version);
  found->fault.done = "its inode was made anew";
  if (!absl::IsNotFound(set)) return set;
  found->fault.done = absl::StrCat("made anew, empty; each of its records was ", kRecordLost);
  return store_.CreateAs(id, inode.Encode(), version);
}

absl::Status VolumeRepair::TellSalvaged(Found* found) {
  const SalvagedTable& table = *found->salvaged;
  std::string done = "made usable from what is left of its table";
  if (table.lost_head) absl::StrAppend(&done, ", without its attributes");
  if (table.lost_pages == 0 && table.lost_blocks == 0) {
    absl::StrAppend(&done, "; it may be as it was some time ago");
  }
  if (table.lost_blocks > 0) {
    absl::StrAppend(&done, "; ", table.lost_blocks, " blocks are lost and read as zeros");
  }
  if (table.lost_pages > 0) {
    ABACUS_ASSIGN_OR_RETURN(const ObjectId kept, KeepUnnamed(found->fault.object));
    absl::StrAppend(&done, "; the blocks of ", table.lost_pages,
                    " pages of it are lost and read as zeros");
    if (kept != 0) {
      absl::StrAppend(&done, "; what the disk has beside those that are left is in object ", kept);
    }
  }
  found->fault.done = std::move(done);
  return absl::OkStatus();
}

// It counts a name and has none: a later stage gives it one.
absl::StatusOr<ObjectId> VolumeRepair::KeepUnnamed(ObjectId id) {
  ObjectId kept = 0;
  uint64_t bytes = 0;
  const auto take = [&](std::string_view block) -> absl::Status {
    if (kept == 0) {
      Inode inode;
      inode.mode = S_IFREG | 0600;
      inode.links = 1;
      ABACUS_ASSIGN_OR_RETURN(kept, store_.Create(inode.Encode(), table_.NextVersion().value));
      if (kept_ != nullptr) kept_->insert(kept);
    }
    ABACUS_RETURN_IF_ERROR(store_.Write(kept, bytes, block, table_.NextVersion().value));
    bytes += block.size();
    return absl::OkStatus();
  };
  ABACUS_RETURN_IF_ERROR(options_.read_unnamed(id, take));
  return kept;
}

absl::Status VolumeRepair::MakeRoot(Found* found) {
  Inode root;
  root.mode = S_IFDIR | 0755;
  root.links = 2;
  root.parent = found->fault.object;
  ABACUS_RETURN_IF_ERROR(
      store_.CreateAs(found->fault.object, root.Encode(), table_.NextVersion().value));
  found->fault.done = "made anew, empty";
  return absl::OkStatus();
}

absl::Status VolumeRepair::RemakeInode(Found* found) {
  const ObjectId id = found->fault.object;
  const Facts* const facts = scan_.Find(id);
  if (facts == nullptr) return MakeRoot(found);
  ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes attributes, store_.GetAttributes(id));
  auto inode = Inode::Decode(attributes.blob);
  const uint32_t type = TypeOf(*facts);
  ABACUS_RETURN_IF_ERROR(CheckKnownHere(*facts, type));
  if (!inode.ok()) {
    if (options_.servers > 0 && type == S_IFREG && facts->Is(Facts::kEmpty)) {
      return absl::FailedPreconditionError(
          "it may have columns at other servers, and what tells where is lost");
    }
    inode = Inode();
    inode->mode = type | (type == S_IFDIR ? 0700 : 0600);
    inode->links = std::max(facts->names, 1u);
    // One too many keeps the bytes when all names are gone; one too few loses them before that.
    if (scan_.is_shard()) ++inode->links;
    if (type == S_IFDIR) {
      inode->parent = id == scan_.root() ? id : facts->named_in;
      ABACUS_RETURN_IF_ERROR(CountNames(id, &*inode));
    }
    found->fault.done = "made anew, for nobody but root to use";
    if (scan_.is_shard() && type != S_IFDIR) {
      absl::StrAppend(&found->fault.done, ", with a name more than this shard has of it: others ",
                      "may have one");
    }
  } else if (!facts->is_known()) {
    inode->mode = type | (inode->mode & 07777);
    found->fault.done = "given the type that its name, or its contents, has";
  } else {
    inode->stack.clear();
    found->fault.done = "given the volume's own layers";
  }
  return store_.SetAttributes(id, inode->Encode(), table_.NextVersion().value);
}

absl::Status VolumeRepair::CheckKnownHere(const Facts& facts, uint32_t type) {
  if (!scan_.is_shard() || facts.is_known() || facts.id == scan_.root()) return absl::OkStatus();
  if (facts.names > 0 || type == S_IFDIR) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "no name of this shard leads to it, so only other shards can tell what it was");
}

absl::Status VolumeRepair::CountNames(ObjectId id, Inode* inode) {
  ABACUS_ASSIGN_OR_RETURN(const ScannedDirectory scanned, ScanDirectory(store_, id));
  inode->entries = scanned.names.size();
  inode->links = 2;
  for (const ScannedName& name : scanned.names) inode->links += name.entry.type == S_IFDIR ? 1 : 0;
  return absl::OkStatus();
}

uint32_t VolumeRepair::TypeOf(const Facts& facts) {
  if (facts.is_known()) return uint32_t{facts.type} << 12;
  if (facts.id == scan_.root()) return S_IFDIR;
  const uint32_t named = uint32_t{facts.named_type} << 12;
  if (named == S_IFDIR || named == S_IFLNK || named == S_IFIFO || named == S_IFSOCK) return named;
  // Which device it was nobody knows.
  if (named != 0) return S_IFREG;
  StoredBlocks blocks(store_, facts.id);
  const auto first = blocks.Read(0);
  const bool is_directory = first.ok() && first->bytes.size() == kDirectoryBlockBytes &&
                            DecodeHead(first->bytes.view(), 0).ok();
  return is_directory ? S_IFDIR : S_IFREG;
}

// -- directories ----------------------------------------------------------------------------------

absl::Status VolumeRepair::RebuildDirectory(Found* found) {
  const ObjectId id = found->fault.object;
  ABACUS_ASSIGN_OR_RETURN(const ScannedDirectory scanned, ScanDirectory(store_, id));
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> blocks,
                          BuildDirectory(scanned.names, scanned.seed));
  ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes attributes, store_.GetAttributes(id));
  ABACUS_ASSIGN_OR_RETURN(Inode inode, Inode::Decode(attributes.blob));
  ABACUS_RETURN_IF_ERROR(CountNames(id, &inode));
  ObjectUpdate update{.id = id, .writes = {}, .blob = inode.Encode()};
  for (size_t i = 0; i < blocks.size(); ++i) {
    update.writes.push_back({i * kDirectoryBlockBytes, blocks[i]});
  }
  ABACUS_RETURN_IF_ERROR(store_.Update(std::span(&update, 1), table_.NextVersion().value));
  if (scanned.blocks > blocks.size()) {
    // Not before the others are durable: what is beyond them may be all that there is of a name.
    ABACUS_RETURN_IF_ERROR(store_.Flush(id));
  }
  ABACUS_RETURN_IF_ERROR(
      store_.Truncate(id, blocks.size() * kDirectoryBlockBytes, table_.NextVersion().value));
  found->fault.done =
      absl::StrCat("written anew with the ", scanned.names.size(), " names that can be read");
  return absl::OkStatus();
}

absl::Status VolumeRepair::ChangeName(Found* found) {
  Facts* const directory = scan_.Find(found->fault.object);
  Transaction transaction;
  ABACUS_ASSIGN_OR_RETURN(Part part, ChangeNames(store_, *directory, {found->change}));
  directory->entries += static_cast<uint64_t>(part.change.entries);
  directory->links += static_cast<uint32_t>(part.change.links);
  transaction.parts.push_back(std::move(part));
  ABACUS_RETURN_IF_ERROR(Commit(transaction));
  found->fault.done = found->change.after.has_value() ? "name made right" : "name removed";
  return absl::OkStatus();
}

// -- lost+found -----------------------------------------------------------------------------------

absl::StatusOr<std::string> VolumeRepair::FreeName(ObjectId directory, const std::string& wanted) {
  StoredBlocks blocks(store_, directory);
  DirectoryTree tree(blocks);
  for (int i = 0; i < kNamesTriedMax; ++i) {
    std::string name = i == 0 ? wanted : absl::StrCat(wanted, ".", i);
    ABACUS_ASSIGN_OR_RETURN(const std::optional<Entry> entry, tree.Lookup(name));
    if (!entry.has_value()) return name;
  }
  return absl::AlreadyExistsError(absl::StrCat("all names like '", wanted, "' are taken"));
}

absl::StatusOr<ObjectId> VolumeRepair::LostAndFound() {
  if (lost_and_found_.has_value()) return *lost_and_found_;
  if (scan_.root() == 0) return absl::FailedPreconditionError("there is no root directory");
  StoredBlocks blocks(store_, scan_.root());
  DirectoryTree tree(blocks);
  std::string name = kLostAndFound;
  for (int i = 1; i <= kNamesTriedMax; ++i) {
    ABACUS_ASSIGN_OR_RETURN(const std::optional<Entry> entry, tree.Lookup(name));
    if (!entry.has_value()) {
      ABACUS_RETURN_IF_ERROR(MakeLostAndFound(name));
      return *lost_and_found_;
    }
    // One may be of another shard.
    const bool is_here = entry->type == S_IFDIR && scan_.Find(entry->id) != nullptr;
    if (is_here && !scan_.IsHeld(entry->id)) {
      lost_and_found_name_ = name;
      lost_and_found_ = entry->id;
      return entry->id;
    }
    name = absl::StrCat(kLostAndFound, ".", i);
  }
  return absl::AlreadyExistsError(absl::StrCat("all names like '", kLostAndFound, "' are taken"));
}

absl::Status VolumeRepair::MakeLostAndFound(const std::string& name) {
  if (scan_.IsHeld(scan_.root())) {
    return absl::FailedPreconditionError(
        "a transaction over several shards is to change the root directory: start the servers of "
        "all shards, and they decide it");
  }
  ABACUS_ASSIGN_OR_RETURN(const ObjectId id, table_.Reserve());
  Transaction transaction;
  ABACUS_ASSIGN_OR_RETURN(Part root, ChangeNames(store_, *scan_.Find(scan_.root()),
                                                 {{name, std::nullopt, Entry{id, S_IFDIR}}}));
  Part made{.id = id};
  made.creation = Creation();
  made.creation->inode.mode = S_IFDIR | 0700;
  made.creation->inode.parent = scan_.root();
  made.change.links = 2;
  transaction.parts.push_back(std::move(root));
  transaction.parts.push_back(std::move(made));
  ABACUS_RETURN_IF_ERROR(Commit(transaction));
  lost_and_found_name_ = name;
  lost_and_found_ = id;
  return absl::OkStatus();
}

absl::Status VolumeRepair::Attach(Found* found) {
  const Facts& facts = *scan_.Find(found->fault.object);
  ABACUS_ASSIGN_OR_RETURN(const ObjectId directory, LostAndFound());
  ABACUS_ASSIGN_OR_RETURN(const std::string name, FreeName(directory, absl::StrCat("#", facts.id)));
  const Entry entry{facts.id, uint32_t{facts.type} << 12};
  Transaction transaction;
  ABACUS_ASSIGN_OR_RETURN(
      Part named, ChangeNames(store_, Facts{.id = directory}, {{name, std::nullopt, entry}}));
  transaction.parts.push_back(std::move(named));
  Part attached{.id = facts.id};
  const uint32_t right = facts.IsDirectory() ? facts.RightLinks() : 1;
  attached.change.links = static_cast<int32_t>(right) - static_cast<int32_t>(facts.links);
  if (facts.IsDirectory()) attached.change.parent = directory;
  attached.change.touch_changed = true;
  transaction.parts.push_back(std::move(attached));
  ABACUS_RETURN_IF_ERROR(Commit(transaction));
  found->fault.done = absl::StrCat("named /", lost_and_found_name_, "/", name);
  return absl::OkStatus();
}

absl::Status VolumeRepair::SetCount(Found* found) {
  const FaultKind kind = found->fault.kind;
  const Facts& facts = *scan_.Find(found->fault.object);
  ABACUS_RETURN_IF_ERROR(
      table_.Change(0, facts.id, RightCount(kind, facts, scan_.root())).status());
  found->fault.done = kind == FaultKind::kParent ? "parent set right" : "count set right";
  return absl::OkStatus();
}

}  // namespace abacus::objfs
