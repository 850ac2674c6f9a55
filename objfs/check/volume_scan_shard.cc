// What a scan of a volume does where that is one shard of several.

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/check/volume_scan.h"
#include "objfs/store/disk.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr int kRecordReadsMax = 8;  // of one that is written meanwhile
// As many as there can be: nothing is taken for a fault that may be right.
constexpr ShardState kUnknownShard{.count = kShardsMax, .records = 0};

constexpr char kWhatRecordsAre[] =
    "what this shard has promised to change together with others, or has decided with them";

bool IsOfNames(FaultKind kind) {
  switch (kind) {
    case FaultKind::kName:
    case FaultKind::kUnreachable:
    case FaultKind::kParent:
    case FaultKind::kLinks:
    case FaultKind::kEntries:
      return true;
    default:
      return false;
  }
}

}  // namespace

// -- what it says of itself -----------------------------------------------------------------------

absl::Status VolumeScan::FindShard() {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, store_.List(0, 1));
  if (ids.empty()) return absl::OkStatus();
  const ObjectId first = ids.front();
  own_shard_ = ShardOf(first);
  const auto attributes = store_.GetAttributes(first);
  const absl::StatusOr<Inode> inode = attributes.ok() ? Inode::Decode(attributes->blob)
                                                      : absl::StatusOr<Inode>(attributes.status());
  if (inode.ok()) {
    const auto said = inode->xattrs.find(kShardsXattr);
    if (said != inode->xattrs.end()) return TakeShardState(first, said->second);
  }
  root_is_lost_ =
      !inode.ok() || !inode->IsDirectory() || (inode->parent != first && inode->parent != 0);
  if (own_shard_ == 0) return absl::OkStatus();
  shard_ = kUnknownShard;
  records_unread_ = true;
  if (root_is_lost_) return absl::OkStatus();  // which is told
  Fail(FaultKind::kInode, first,
       absl::StrCat("it is the root of shard ", own_shard_,
                    ", and does not say how many there are. Where the volume is new and was not ",
                    "made to its end: delete it, and make it again. Else ", kNoRootOfShard));
  return absl::OkStatus();
}

absl::Status VolumeScan::TakeShardState(ObjectId root, const std::string& text) {
  const absl::StatusOr<ShardState> state = ShardState::Parse(text);
  const bool fits = state.ok() && own_shard_ < state->count && state->records != root &&
                    ShardOf(state->records) == own_shard_;
  if (fits) {
    shard_ = *state;
    return LookAtRecords(state->records);
  }
  shard_ = kUnknownShard;
  records_unread_ = true;
  Fail(FaultKind::kInode, root,
       absl::StrCat("it says '", text, "' of the volume's shards, and is the root of shard ",
                    own_shard_, ": that is damaged; ", kNoRootOfShard));
  return absl::OkStatus();
}

void VolumeScan::NoteShardOf(ObjectId id) {
  if (!root_is_lost_ || is_shard() || ShardOf(id) == own_shard_) return;
  shard_ = kUnknownShard;
  records_unread_ = true;
}

bool VolumeScan::IsOfBrokenOffMaking(const ObjectAttributes& attributes,
                                     const absl::StatusOr<Inode>& inode) {
  return inode.ok() && inode->mode == ShardRecords::kMode && inode->links == 0 &&
         attributes.size_bytes == 0;
}

bool VolumeScan::MayBeRecords(const absl::StatusOr<Inode>& inode) {
  const bool is_unknown = is_shard() ? shard_->records == 0 : root_is_lost_;
  if (!is_unknown || !inode.ok() || inode->mode != ShardRecords::kMode) return false;
  // Nothing else is made without a type.
  if (!is_shard()) shard_ = kUnknownShard;
  records_unread_ = true;
  ++totals_.objects;
  return true;
}

absl::Status VolumeScan::LookAtRecords(ObjectId id) {
  const auto attributes = store_.GetAttributes(id);
  if (absl::IsNotFound(attributes.status())) {
    records_unread_ = true;
    Fail(FaultKind::kRecords, id, absl::StrCat("it is missing, and with it ", kWhatRecordsAre),
         Stage::kRecords);
    return absl::OkStatus();
  }
  if (absl::IsDataLoss(attributes.status())) {
    records_unread_ = true;
    Fail(FaultKind::kTable, id, std::string(runtime::ToStd(attributes.status().message())));
    return absl::OkStatus();
  }
  ABACUS_RETURN_IF_ERROR(attributes.status());
  const absl::StatusOr<Inode> inode = Inode::Decode(attributes->blob);
  if (inode.ok() && inode->mode != ShardRecords::kMode) {
    // Whoever's bytes these are: they are no records.
    shard_->records = 0;
    records_unread_ = true;
    Fail(FaultKind::kRecords, id,
         absl::StrCat("the root names it as what has this shard's records, and it is a ",
                      NameOfType(inode->mode >> 12), "; ", kNoRootOfShard));
    return absl::OkStatus();
  }
  ++totals_.objects;
  TakeSalvaged(id);
  if (!inode.ok() || inode->links == 0) {
    Fail(FaultKind::kRecords, id,
         inode.ok()
             ? "it has this shard's records, and counts no links, so that it would be removed"
             : absl::StrCat("it has this shard's records: ", inode.status().message()),
         IsOfLaterVersion(*attributes) ? Stage::kNone : Stage::kRecords);
  }
  for (ShardRecords::Slot slot = 0; slot < ShardRecords::kSlots; ++slot) {
    ABACUS_RETURN_IF_ERROR(LookAtRecord(id, slot));
  }
  return absl::OkStatus();
}

absl::Status VolumeScan::LookAtRecord(ObjectId id, ShardRecords::Slot slot) {
  auto record = ShardRecords::ReadSlot(store_, id, slot);
  const auto is_damaged = [&record] {
    return absl::IsDataLoss(record.status()) && !IsUnread(record.status());
  };
  for (int i = 1; i < kRecordReadsMax && options_.online && is_damaged(); ++i) {
    record = ShardRecords::ReadSlot(store_, id, slot);
  }
  if (is_damaged() || absl::IsFailedPrecondition(record.status())) {
    records_unread_ = true;
    Found& found = Fail(
        FaultKind::kRecords, id,
        absl::StrCat("slot ", slot, ": ", record.status().message(),
                     is_damaged() ? absl::StrCat(". It was of ", kWhatRecordsAre)
                                  : ". It is left as it is: check the volume with a newer build"),
        is_damaged() ? Stage::kRecords : Stage::kNone);
    found.slot = slot;
    return absl::OkStatus();
  }
  ABACUS_RETURN_IF_ERROR(record.status());
  if (!record->has_value() || (*record)->kind != ShardRecord::Kind::kPrepared) {
    return absl::OkStatus();
  }
  const ShardRecord& prepared = **record;
  if (prepared.coordinator == own_shard_ || prepared.coordinator >= shard_->count) {
    records_unread_ = true;
    Found& found =
        Fail(FaultKind::kRecords, id,
             absl::StrCat("slot ", slot, ": it waits for what shard ", prepared.coordinator,
                          " decides, which this one, ", own_shard_, " of ", shard_->count,
                          ", cannot ask: it is of another volume"),
             Stage::kRecords);
    found.slot = slot;
    return absl::OkStatus();
  }
  ++totals_.in_doubt;
  look_.in_doubt.push_back({.group = prepared.group, .coordinator = prepared.coordinator});
  for (const Part& part : prepared.transaction.parts) held_.insert(part.id);
  return absl::OkStatus();
}

// -- names ----------------------------------------------------------------------------------------

void VolumeScan::TakeForeign(Facts* directory, const ScannedName& name) {
  const ObjectId id = name.entry.id;
  const uint32_t shard = ShardOf(id);
  if (shard >= shard_->count) {
    LeadsNowhere(directory, name,
                 absl::StrCat(" of shard ", shard, ", and there are ", shard_->count));
    return;
  }
  if (std::binary_search(options_.gone.begin(), options_.gone.end(), id)) {
    LeadsNowhere(directory, name,
                 absl::StrCat(" of shard ", shard, ", where there is no such file"));
    return;
  }
  ++totals_.elsewhere;
  if (name.entry.type == S_IFDIR) ++directory->subdirectories;
  if (id >= look_.foreign_end) return;
  ForeignNames& names = foreign_[id];
  if (names.names == 0) names = {.id = id, .directory = directory->id};
  ++names.names;
  names.types |= uint32_t{1} << ((name.entry.type >> 12) & 0xf);
  if (foreign_.size() <= ShardLook::kToldMax) return;
  const auto last = std::prev(foreign_.end());
  look_.foreign_end = last->first;
  foreign_.erase(last);
}

void VolumeScan::LookAtNamesOfRoot(const ScannedDirectory& scanned) {
  if (scanned.names.empty()) return;
  Fail(FaultKind::kName, root_,
       absl::StrCat("it is the root of shard ", own_shard_,
                    ", which no client looks into, and has ", scanned.names.size(), " names, '",
                    scanned.names.front().name, "' among them. They are kept as they are"));
}

bool VolumeScan::MayBeNamedElsewhere(const Facts& facts) const {
  if (!is_shard()) return false;
  if (!facts.IsDirectory()) return kept_ == nullptr || !kept_->contains(facts.id);
  // A directory's name and its parent change together.
  return facts.parent == 0 || IsOfOtherShard(facts.parent);
}

void VolumeScan::LookAtParentElsewhere(const Facts& facts) {
  const uint32_t shard = ShardOf(facts.parent);
  if (facts.parent != 0 && shard >= shard_->count) {
    Fail(FaultKind::kParent, facts.id,
         absl::StrCat("its parent is object ", facts.parent, " of shard ", shard,
                      ", and there are ", shard_->count))
        .rests_on = facts.id;
  } else if (facts.names > 0 && !options_.online) {  // where the shards are compared
    Fail(FaultKind::kParent, facts.id,
         absl::StrCat("its parent is object ", facts.parent, " of shard ", shard,
                      ", and its name is in ", facts.named_in,
                      " of this one: a check of all shards, while they are served, tells more"));
  }
}

// -- what is left to others -----------------------------------------------------------------------

void VolumeScan::LeaveWhatIsHeld() {
  if (held_.empty() && !records_unread_) return;
  // A transaction that was committed elsewhere is: these are right then, or become so.
  std::erase_if(found_, [this](const Found& found) {
    return IsHeld(found.fault.object) && IsOfNames(found.fault.kind);
  });
  const auto is_left = [this](const Found& found) {
    return found.stage > Stage::kObjects && found.stage != Stage::kNone &&
           IsHeld(found.fault.object);
  };
  // Later repairs rest on these.
  const bool all = records_unread_ || std::any_of(found_.begin(), found_.end(), is_left);
  if (!all) return;
  const char* const why =
      records_unread_ ? " (not repaired: what transactions over several shards hold is not known)"
                      : " (not repaired: a transaction over several shards is in doubt. Start the "
                        "servers of all shards: they decide it)";
  for (Found& found : found_) {
    if (found.stage <= Stage::kObjects || found.stage == Stage::kNone) continue;
    found.stage = Stage::kNone;
    if (root_is_lost_ && found.fault.object == root_) {
      absl::StrAppend(&found.fault.text, "; ", kNoRootOfShard);
    } else if (options_.repair) {
      absl::StrAppend(&found.fault.text, why);
    }
  }
}

void VolumeScan::AddToLook(const Facts& facts) {
  const bool is_read = facts.is_known() && !facts.Is(Facts::kBadBlocks);
  look_.incomplete = look_.incomplete || !is_read;
  if (facts.id == root_ || facts.id >= look_.unexplained_end) return;
  if (!facts.is_known() || IsHeld(facts.id)) {
    look_.unexplained.push_back({.id = facts.id});
    return;
  }
  if (facts.IsDirectory()) {
    const bool is_unused = facts.links == 0 && facts.entries == 0 && facts.counted == 0;
    const bool is_explained = facts.names > 0 && !IsOfOtherShard(facts.parent);
    if (is_explained || (facts.names == 0 && is_unused)) return;
  } else if (facts.links <= facts.names) {
    return;
  }
  look_.unexplained.push_back({.id = facts.id,
                               .parent = facts.parent,
                               .named_in = facts.named_in,
                               .version = facts.version,
                               .links = facts.links,
                               .names = facts.names,
                               .type = facts.type});
}

void VolumeScan::FillLook() {
  if (!is_shard()) return;
  look_.shard = own_shard_;
  look_.count = shard_->count;
  look_.root = root_;
  look_.records = shard_->records;
  look_.incomplete = look_.incomplete || incomplete_;
  for (const auto& [id, names] : foreign_) look_.foreign.push_back(names);
  std::vector<UnexplainedInode>& told = look_.unexplained;
  for (const Facts& facts : facts_) {
    AddToLook(facts);
    if (told.size() == ShardLook::kToldMax) look_.unexplained_end = told.back().id + 1;
  }
  for (const auto& [id, facts] : late_) AddToLook(facts);
  std::sort(told.begin(), told.end(),
            [](const UnexplainedInode& a, const UnexplainedInode& b) { return a.id < b.id; });
  if (told.size() <= ShardLook::kToldMax) return;
  look_.unexplained_end = told[ShardLook::kToldMax].id;
  told.resize(ShardLook::kToldMax);
}

}  // namespace abacus::objfs
