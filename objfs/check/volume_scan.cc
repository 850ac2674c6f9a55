#include "objfs/check/volume_scan.h"

#include <sys/stat.h>

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "objfs/layer/stack.h"
#include "objfs/store/disk.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kListedAtOnce = 4096;
constexpr uint64_t kDataReadAtOnce = uint64_t{1} << 20;
constexpr size_t kDamagedBlocksTold = 8;  // of one object
constexpr size_t kPathsMax = 1000;        // they are looked for of the first faults
constexpr size_t kPathDepthMax = 256;
constexpr uint64_t kTargetBytesMax = 4095;
constexpr int kScansMax = 3;  // of a directory that changes; then in its turn

bool IsType(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
      return (mode & ~uint32_t{S_IFMT | 07777}) == 0;
    default:
      return false;
  }
}

std::string Quoted(const std::string& name) { return absl::StrCat("'", name, "'"); }

// Its root has no names, so nothing there has a path.
constexpr char kNoLostAndFound[] =
    ". It is of a shard that is not the first, whose root has no lost+found: it is kept as it is";

}  // namespace

Found& VolumeScan::Fail(FaultKind kind, ObjectId object, std::string text, Stage stage) {
  found_.push_back(
      {.fault = {.kind = kind, .object = object, .text = std::move(text)}, .stage = stage});
  return found_.back();
}

absl::Status VolumeScan::GoOn() const {
  if (!options_.goes_on || options_.goes_on()) return absl::OkStatus();
  return absl::CancelledError("the check was broken off");
}

absl::Status VolumeScan::Run() {
  ABACUS_RETURN_IF_ERROR(FindShard());
  ABACUS_RETURN_IF_ERROR(LookAtObjects());
  FindRoot();
  ABACUS_RETURN_IF_ERROR(LookAtDirectories());
  ABACUS_RETURN_IF_ERROR(LookAtNamesOf(twice_, "a second name of the directory", true));
  std::set<ObjectId> circles;
  LookAtTree(&circles);
  ABACUS_RETURN_IF_ERROR(LookAtNamesOf(circles, "it is below itself", false));
  for (const Facts& facts : facts_) LookAtCounts(facts);
  for (const auto& [id, facts] : late_) LookAtCounts(facts);
  LeaveWhatIsHeld();
  FillLook();
  if (options_.online) ABACUS_RETURN_IF_ERROR(Settle());
  return FindPaths();
}

Facts* VolumeScan::Find(ObjectId id) {
  const auto at = std::lower_bound(facts_.begin(), facts_.end(), id,
                                   [](const Facts& facts, ObjectId i) { return facts.id < i; });
  if (at != facts_.end() && at->id == id) return &*at;
  const auto late = late_.find(id);
  return late == late_.end() ? nullptr : &late->second;
}

// -- objects --------------------------------------------------------------------------------------

absl::Status VolumeScan::LookAtObjects() {
  for (ObjectId after = 0;;) {
    ABACUS_RETURN_IF_ERROR(GoOn());
    ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, store_.List(after, kListedAtOnce));
    for (const ObjectId id : ids) {
      ABACUS_ASSIGN_OR_RETURN(const std::optional<Facts> facts, LookAtObject(id));
      if (facts.has_value()) facts_.push_back(*facts);
    }
    if (ids.size() < kListedAtOnce) return absl::OkStatus();
    after = ids.back();
  }
}

bool VolumeScan::IsOfLaterVersion(const ObjectAttributes& attributes) {
  return !attributes.blob.empty() &&
         static_cast<uint8_t>(attributes.blob[0]) > Inode::kNewestVersion;
}

void VolumeScan::TakeSalvaged(ObjectId id) {
  const auto salvaged = options_.salvaged ? options_.salvaged(id) : std::nullopt;
  if (!salvaged.has_value()) return;
  Fail(FaultKind::kTable, id, std::string(runtime::ToStd(salvaged->damage.message())),
       Stage::kObjects)
      .salvaged = salvaged;
}

absl::StatusOr<std::optional<Facts>> VolumeScan::LookAtObject(ObjectId id) {
  if (is_shard() && shard_->records == id) return std::nullopt;  // FindShard() has looked at it
  Facts facts{.id = id};
  const auto attributes = store_.GetAttributes(id);
  if (absl::IsNotFound(attributes.status())) return std::nullopt;
  if (absl::IsDataLoss(attributes.status())) {
    ++totals_.objects;
    facts.flags = Facts::kDamaged;
    Fail(FaultKind::kTable, id, std::string(runtime::ToStd(attributes.status().message())));
    return facts;
  }
  ABACUS_RETURN_IF_ERROR(attributes.status());
  const auto inode = Inode::Decode(attributes->blob);
  if (MayBeRecords(inode)) return std::nullopt;
  if (IsOfBrokenOffMaking(*attributes, inode)) {
    ++totals_.objects;
    ++totals_.unnamed;
    return std::nullopt;
  }
  ++totals_.objects;
  TakeSalvaged(id);
  facts.version = attributes->version;
  if (attributes->allocated_bytes == 0) facts.flags |= Facts::kEmpty;
  if (IsOfLaterVersion(*attributes)) {
    facts.flags |= Facts::kForeign;
    incomplete_ = true;
    Fail(FaultKind::kInode, id,
         absl::StrCat(inode.status().message(),
                      ": it is left as it is; check the volume with a newer build"));
  } else if (!inode.ok()) {
    facts.flags |= Facts::kNoInode;
    Fail(FaultKind::kInode, id, std::string(runtime::ToStd(inode.status().message())),
         Stage::kInodes);
  } else {
    LookAtInode(*inode, &facts);
    ABACUS_RETURN_IF_ERROR(LookAtContents(*inode, *attributes, id));
  }
  if (options_.rest) options_.rest(id);
  return facts;
}

void VolumeScan::LookAtInode(const Inode& inode, Facts* facts) {
  facts->links = inode.links;
  facts->entries = inode.entries;
  facts->parent = inode.parent;
  if (!IsType(inode.mode)) {
    facts->flags |= Facts::kNoInode;
    Fail(FaultKind::kInode, facts->id,
         absl::StrCat("mode ", absl::Hex(inode.mode), " is of no type"), Stage::kInodes);
    return;
  }
  facts->type = static_cast<uint8_t>(inode.mode >> 12);
  if (inode.IsDirectory()) {
    ++totals_.directories;
  } else if (inode.IsRegular()) {
    ++totals_.files;
  } else {
    ++(S_ISLNK(inode.mode) ? totals_.links : totals_.others);
  }
  const absl::Status stack =
      inode.stack.empty() ? absl::OkStatus() : ParseStack(inode.stack).status();
  if (!stack.ok()) {
    // Layers over columns are what makes the columns a file.
    Fail(FaultKind::kInode, facts->id,
         absl::StrCat("its layers are no text of a stack: ", stack.message()),
         inode.IsSpread() ? Stage::kNone : Stage::kInodes);
  }
  std::set<uint32_t> columns;
  for (const uint32_t server : inode.columns) {
    if (server < options_.servers && columns.insert(server).second) continue;
    Fail(FaultKind::kColumn, facts->id,
         server < options_.servers
             ? absl::StrCat("two of its columns are at server ", server + 1)
             : absl::StrCat("a column is at server ", server + 1, " of ", options_.servers));
  }
}

absl::Status VolumeScan::LookAtContents(const Inode& inode, const ObjectAttributes& attributes,
                                        ObjectId id) {
  if (S_ISLNK(inode.mode)) {
    // A creation that a crash cut off leaves a link that has no name, and may have no target.
    return inode.links == 0 ? absl::OkStatus() : LookAtTarget(id, attributes.size_bytes);
  }
  const bool reads = inode.IsRegular() && !inode.IsSpread() && options_.data;
  return reads ? LookAtData(id, attributes.size_bytes) : absl::OkStatus();
}

absl::Status VolumeScan::LookAtData(ObjectId id, uint64_t size) {
  constexpr uint64_t kBlock = ObjectStore::kBlockBytes;
  std::string bytes(std::min(size, kDataReadAtOnce), '\0');
  std::vector<uint64_t> damaged;
  uint64_t count = 0, unread = 0;
  for (uint64_t at = 0; at < size;) {
    const auto data = store_.NextData(id, at);
    if (absl::IsOutOfRange(data.status()) || absl::IsNotFound(data.status())) break;
    ABACUS_RETURN_IF_ERROR(data.status());
    at = *data / kBlock * kBlock;
    ABACUS_RETURN_IF_ERROR(GoOn());
    auto read = store_.Read(id, at, std::span(bytes.data(), bytes.size()));
    if (absl::IsNotFound(read.status())) break;
    if (absl::IsDataLoss(read.status()) && bytes.size() > kBlock) {
      // Which block of these it is.
      const uint64_t end = std::min(size, at + bytes.size());
      for (; at < end; at += kBlock) {
        read = store_.Read(id, at, std::span(bytes.data(), kBlock));
        if (read.ok()) totals_.bytes_read += *read;
        if (!absl::IsDataLoss(read.status())) continue;
        unread += IsUnread(read.status()) ? 1 : 0;
        ++count;
        if (damaged.size() < kDamagedBlocksTold) damaged.push_back(at / kBlock);
      }
      continue;
    }
    if (absl::IsDataLoss(read.status())) {
      unread += IsUnread(read.status()) ? 1 : 0;
      ++count;
      if (damaged.size() < kDamagedBlocksTold) damaged.push_back(at / kBlock);
      at += kBlock;
      continue;
    }
    ABACUS_RETURN_IF_ERROR(read.status());
    totals_.bytes_read += *read;
    at += std::max<uint64_t>(*read, 1);
  }
  if (count == 0) return absl::OkStatus();
  std::string blocks;
  for (const uint64_t block : damaged) absl::StrAppend(&blocks, blocks.empty() ? "" : ", ", block);
  Fail(FaultKind::kData, id,
       absl::StrCat(count, " of its blocks do not match their checksums",
                    unread > 0 ? absl::StrCat(", or cannot be read (", unread, ")") : "", ": ",
                    blocks, count > damaged.size() ? ", ..." : "", " (of ", kBlock,
                    " bytes; reading them is an error). Write them anew, or the file from a copy"));
  return absl::OkStatus();
}

absl::Status VolumeScan::LookAtTarget(ObjectId id, uint64_t size) {
  if (size == 0 || size > kTargetBytesMax) {
    Fail(FaultKind::kTarget, id, absl::StrCat("a target of ", size, " bytes: remove the link"));
    return absl::OkStatus();
  }
  std::string target(size, '\0');
  const auto read = store_.Read(id, 0, std::span(target.data(), target.size()));
  if (absl::IsNotFound(read.status())) return absl::OkStatus();
  if (absl::IsDataLoss(read.status()) && !IsUnread(read.status())) {
    Fail(FaultKind::kData, id, "its target does not match its checksum: remove the link");
    return absl::OkStatus();
  }
  ABACUS_RETURN_IF_ERROR(read.status());
  totals_.bytes_read += *read;
  if (target.find('\0') != std::string::npos) {
    Fail(FaultKind::kTarget, id, "a target with a zero byte: remove the link");
  }
  return absl::OkStatus();
}

void VolumeScan::FindRoot() {
  if (facts_.empty()) return;
  // Nothing is made before it.
  const Facts& first = facts_.front();
  const bool is_root = first.IsDirectory() && (first.parent == first.id || first.parent == 0);
  if (is_root || !first.is_known()) {
    root_ = first.id;
    return;
  }
  // That of a shard also says how many there are, and where its records are.
  const bool can_be_made = first.id > 1 && !is_shard();
  Fail(FaultKind::kInode, MissingRoot(),
       absl::StrCat("the root directory is missing",
                    is_shard() ? absl::StrCat("; ", kNoRootOfShard) : ""),
       can_be_made ? Stage::kInodes : Stage::kNone);
}

ObjectId VolumeScan::MissingRoot() const {
  ObjectId missing = facts_.front().id - 1;
  for (const Facts& facts : facts_) {
    const bool is_here = facts.parent != 0 && !IsOfOtherShard(facts.parent);
    if (facts.IsDirectory() && is_here) missing = std::min(missing, facts.parent);
  }
  return missing;
}

// -- directories ----------------------------------------------------------------------------------

absl::Status VolumeScan::LookAtDirectories() {
  for (Facts& facts : facts_) {
    if (facts.IsDirectory()) ABACUS_RETURN_IF_ERROR(LookAtDirectory(&facts));
  }
  while (!unscanned_.empty()) {
    Facts* const directory = Find(unscanned_.back());
    unscanned_.pop_back();
    ABACUS_RETURN_IF_ERROR(LookAtDirectory(directory));
  }
  return absl::OkStatus();
}

absl::Status VolumeScan::LookAtDirectory(Facts* directory) {
  ABACUS_RETURN_IF_ERROR(GoOn());
  ABACUS_ASSIGN_OR_RETURN(const std::optional<ScannedDirectory> scanned, ScanSettled(directory));
  if (!scanned.has_value()) return absl::OkStatus();
  if (!scanned->faults.empty()) {
    directory->flags |= Facts::kBadBlocks;
    std::string text;
    for (const std::string& fault : scanned->faults) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", fault);
    }
    Fail(FaultKind::kBlocks, directory->id, std::move(text), Stage::kBlocks);
  }
  if (directory->id == root_ && own_shard_ != 0) LookAtNamesOfRoot(*scanned);
  for (const ScannedName& name : scanned->names) ABACUS_RETURN_IF_ERROR(TakeName(directory, name));
  if (options_.rest) options_.rest(directory->id);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ScannedDirectory>> VolumeScan::ScanSettled(Facts* directory) {
  using Scanned = std::optional<ScannedDirectory>;
  const ObjectId id = directory->id;
  if (!options_.online) {
    ABACUS_ASSIGN_OR_RETURN(ScannedDirectory scanned, ScanDirectory(store_, id));
    return Scanned(std::move(scanned));
  }
  Scanned scanned;
  bool settled = false;
  const auto look = [&]() -> absl::Status {
    ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes before, store_.GetAttributes(id));
    ABACUS_ASSIGN_OR_RETURN(scanned, ScanDirectory(store_, id));
    ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes after, store_.GetAttributes(id));
    settled = before.version == after.version;
    ABACUS_ASSIGN_OR_RETURN(const Inode inode, Inode::Decode(after.blob));
    directory->links = inode.links;
    directory->entries = inode.entries;
    return absl::OkStatus();
  };
  absl::Status looked;
  for (int i = 0; i < kScansMax && looked.ok() && !settled; ++i) looked = look();
  // Its times may still be set meanwhile, and nothing else.
  const bool again = looked.ok() && (!settled || !scanned->faults.empty());
  if (again) looked = table_.InTurn(id, look);
  if (absl::IsNotFound(looked)) return Scanned();
  ABACUS_RETURN_IF_ERROR(looked);
  return scanned;
}

absl::Status VolumeScan::TakeName(Facts* directory, const ScannedName& name) {
  ++totals_.names;
  ++directory->counted;
  NoteShardOf(name.entry.id);
  if (IsOfOtherShard(name.entry.id)) {
    TakeForeign(directory, name);
    return absl::OkStatus();
  }
  Facts* child = Find(name.entry.id);
  if (child == nullptr && options_.online) {
    ABACUS_ASSIGN_OR_RETURN(child, LookLate(directory, name));
    if (child == nullptr) return absl::OkStatus();
  }
  if (child != nullptr) {
    NameLeadsTo(directory, name, child);
    return absl::OkStatus();
  }
  LeadsNowhere(directory, name);
  return absl::OkStatus();
}

void VolumeScan::LeadsNowhere(Facts* directory, const ScannedName& name, const std::string& why) {
  // With what it counts: the name and its counts were made, and go, together.
  if (name.entry.type == S_IFDIR) ++directory->subdirectories;
  Fail(FaultKind::kName, directory->id,
       absl::StrCat(Quoted(name.name), " leads to object ", name.entry.id, why), Stage::kNames)
      .change = {name.name, name.entry, std::nullopt};
}

absl::StatusOr<Facts*> VolumeScan::LookLate(Facts* directory, const ScannedName& name) {
  ABACUS_ASSIGN_OR_RETURN(const std::optional<Facts> facts, LookAtObject(name.entry.id));
  if (facts.has_value()) {
    Facts* const late = &late_.emplace(name.entry.id, *facts).first->second;
    if (late->IsDirectory()) unscanned_.push_back(late->id);
    return late;
  }
  // Its name goes before the object does: where that is there still, it is there to stay.
  bool is_there = false;
  const absl::Status looked = table_.InTurn(directory->id, [&]() -> absl::Status {
    ABACUS_ASSIGN_OR_RETURN(const ScannedDirectory now, ScanDirectory(store_, directory->id));
    for (const ScannedName& other : now.names) {
      is_there = is_there || (other.name == name.name && other.entry == name.entry);
    }
    return absl::OkStatus();
  });
  if (!looked.ok() && !absl::IsNotFound(looked)) return looked;
  if (looked.ok() && is_there) LeadsNowhere(directory, name);
  return nullptr;
}

void VolumeScan::NameLeadsTo(Facts* directory, const ScannedName& name, Facts* child) {
  if (child->id == root_) {
    Fail(FaultKind::kName, directory->id,
         absl::StrCat(Quoted(name.name), " leads to the root directory"), Stage::kNames)
        .change = {name.name, name.entry, std::nullopt};
    return;
  }
  ++child->names;
  if (child->named_in == 0) child->named_type = static_cast<uint8_t>(name.entry.type >> 12);
  const bool is_parent = child->IsDirectory() && child->parent == directory->id;
  if (child->named_in == 0 || is_parent) child->named_in = directory->id;
  const uint32_t type = child->is_known() ? child->type : name.entry.type >> 12;
  if (type == (S_IFDIR >> 12)) ++directory->subdirectories;
  if (child->is_known() && uint32_t{child->type} << 12 != name.entry.type) {
    Fail(FaultKind::kName, directory->id,
         absl::StrCat(Quoted(name.name), " is called a ", NameOfType(name.entry.type >> 12),
                      ", and object ", child->id, " is a ", NameOfType(child->type)),
         Stage::kNames)
        .change = {name.name, name.entry, Entry{child->id, uint32_t{child->type} << 12}};
  }
  if (child->IsDirectory() && child->names > 1) twice_.insert(child->id);
}

absl::Status VolumeScan::LookAtNamesOf(const std::set<ObjectId>& ids, const char* text,
                                       bool keeps_one) {
  if (ids.empty()) return absl::OkStatus();
  // What comes out of a circle has no name then, and only the first shard has a place for it.
  const Stage stage = keeps_one || own_shard_ == 0 ? Stage::kNames : Stage::kNone;
  std::set<ObjectId> kept, directories;
  for (const Facts& facts : facts_) {
    if (facts.IsDirectory()) directories.insert(facts.id);
  }
  for (const ObjectId directory : directories) {
    const auto scanned = ScanDirectory(store_, directory);
    if (absl::IsNotFound(scanned.status())) continue;
    ABACUS_RETURN_IF_ERROR(scanned.status());
    for (const ScannedName& name : scanned->names) {
      const ObjectId id = name.entry.id;
      if (!ids.contains(id)) continue;
      const bool counts = Find(id)->named_in == directory;
      if (keeps_one && counts && kept.insert(id).second) continue;
      if (!keeps_one && !counts) continue;
      Found& found =
          Fail(FaultKind::kName, directory,
               absl::StrCat(Quoted(name.name), " leads to object ", id, ": ", text), stage);
      found.change = {name.name, name.entry, std::nullopt};
      found.rests_on = id;
    }
  }
  return absl::OkStatus();
}

// -- what fits together ---------------------------------------------------------------------------

void VolumeScan::LookAtTree(std::set<ObjectId>* circles) {
  if (Facts* root = root_ == 0 ? nullptr : Find(root_); root != nullptr) {
    root->flags |= Facts::kReached;
  }
  const auto look = [&](Facts* facts) {
    if (facts->IsDirectory()) {
      WalkUp(facts, circles);
    } else if (facts->names == 0 && facts->is_known()) {
      LookAtTop(facts);
    }
  };
  for (Facts& facts : facts_) look(&facts);
  for (auto& [id, facts] : late_) look(&facts);
}

void VolumeScan::WalkUp(Facts* facts, std::set<ObjectId>* circles) {
  constexpr uint8_t kMarked = Facts::kReached | Facts::kUnreached | Facts::kOnPath;
  std::vector<Facts*> path;
  Facts* at = facts;
  while (at != nullptr && (at->flags & kMarked) == 0) {
    at->flags |= Facts::kOnPath;
    path.push_back(at);
    at = at->named_in == 0 ? nullptr : Find(at->named_in);
  }
  const bool reached = at != nullptr && at->Is(Facts::kReached);
  if (at != nullptr && at->Is(Facts::kOnPath)) {
    ObjectId lowest = at->id;
    for (Facts* of = Find(at->named_in); of != at; of = Find(of->named_in)) {
      lowest = std::min(lowest, of->id);
    }
    circles->insert(lowest);
  }
  if (at == nullptr && path.back()->names == 0) LookAtTop(path.back());
  for (Facts* of : path) {
    of->flags = static_cast<uint8_t>((of->flags & ~Facts::kOnPath) |
                                     (reached ? Facts::kReached : Facts::kUnreached));
  }
}

void VolumeScan::LookAtTop(Facts* facts) {
  const bool is_unused = facts->entries == 0 && facts->counted == 0;
  if (facts->links == 0 && (!facts->IsDirectory() || is_unused)) {
    ++totals_.unnamed;
    return;
  }
  if (incomplete_ || MayBeNamedElsewhere(*facts)) return;
  const bool has_place = own_shard_ == 0;
  Fail(FaultKind::kUnreachable, facts->id,
       absl::StrCat("a ", NameOfType(facts->type),
                    facts->IsDirectory() ? absl::StrCat(" with ", facts->counted, " names") : "",
                    ": no name leads to it", has_place ? "" : kNoLostAndFound),
       has_place ? Stage::kTree : Stage::kNone)
      .rests_on = facts->id;
}

void VolumeScan::LookAtCounts(const Facts& facts) {
  if (!facts.is_known()) return;
  if (facts.names == 0 && facts.id != root_) {
    // As LookAtTop() says; but what is in a directory that other shards name is known here.
    const bool is_used = facts.links != 0 || facts.entries != 0 || facts.counted != 0;
    if (!facts.IsDirectory() || !is_used || !MayBeNamedElsewhere(facts)) return;
  }
  LookAtLinks(facts);
  if (!facts.IsDirectory()) return;
  if (facts.entries != facts.counted && !facts.Is(Facts::kBadBlocks)) {
    Fail(FaultKind::kEntries, facts.id,
         absl::StrCat("it has ", facts.counted, " names, and counts ", facts.entries),
         Stage::kCounts);
  }
  LookAtParent(facts);
}

void VolumeScan::LookAtLinks(const Facts& facts) {
  const uint32_t right = facts.RightLinks();
  if (facts.links == right) return;
  // Other shards may have the rest of them.
  if (is_shard() && !facts.IsDirectory() && facts.links > right) return;
  // There may be more of them.
  if (facts.Is(Facts::kBadBlocks) || (incomplete_ && right < facts.links)) return;
  Found& found = Fail(FaultKind::kLinks, facts.id,
                      facts.IsDirectory()
                          ? absl::StrCat("it has ", facts.subdirectories, " directories, and ",
                                         facts.links, " links instead of ", right)
                          : absl::StrCat(right, " names lead to it, and it counts ", facts.links),
                      Stage::kCounts);
  // A directory's are of one moment with its blocks, but not with its name.
  if (!facts.IsDirectory() || facts.links == 0) found.rests_on = facts.id;
}

void VolumeScan::LookAtParent(const Facts& facts) {
  const bool is_root = facts.id == root_;
  if (!is_root && is_shard() && (facts.names == 0 || IsOfOtherShard(facts.parent))) {
    LookAtParentElsewhere(facts);
    return;
  }
  const bool is_new = is_root && facts.parent == 0 && facts.entries == 0;
  const ObjectId right = is_root ? root_ : facts.named_in;
  if (facts.parent == right || is_new) return;
  Fail(FaultKind::kParent, facts.id,
       absl::StrCat("its parent is object ", facts.parent, ", and its name is in ", right),
       Stage::kCounts)
      .rests_on = facts.id;
}

absl::Status VolumeScan::Settle() {
  std::set<ObjectId> unsettled;
  std::vector<Found> settled;
  for (Found& found : found_) {
    const ObjectId id = found.rests_on;
    if (id != 0) {
      const auto attributes = store_.GetAttributes(id);
      const bool is_same = attributes.ok() && attributes->version == Find(id)->version;
      if (attributes.ok() && !is_same) unsettled.insert(id);
      if (!is_same) continue;
    }
    settled.push_back(std::move(found));
  }
  found_ = std::move(settled);
  totals_.unsettled = unsettled.size();
  return absl::OkStatus();
}

// -- paths ----------------------------------------------------------------------------------------

absl::Status VolumeScan::FindPaths() {
  size_t count = 0;
  for (Found& found : found_) {
    if (++count > kPathsMax) return absl::OkStatus();
    found.fault.path = PathOf(found.fault.object);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> VolumeScan::NameIn(ObjectId directory, ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(const ScannedDirectory scanned, ScanDirectory(store_, directory));
  for (const ScannedName& name : scanned.names) {
    if (name.entry.id == id) return name.name;
  }
  return absl::NotFoundError("it has no name there any more");
}

std::string VolumeScan::PathOf(ObjectId id) {
  std::string path;
  for (size_t depth = 0; depth < kPathDepthMax; ++depth) {
    if (id == root_) return path.empty() ? "/" : path;
    const Facts* const facts = Find(id);
    if (facts == nullptr || facts->named_in == 0) return "";
    std::string& name = names_[id];
    if (name.empty()) name = NameIn(facts->named_in, id).value_or("");
    if (name.empty()) return "";
    path = absl::StrCat("/", name, path);
    id = facts->named_in;
  }
  return "";
}

}  // namespace abacus::objfs
