#ifndef ABACUS_OBJFS_CHECK_VOLUME_SCAN_H_
#define ABACUS_OBJFS_CHECK_VOLUME_SCAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/check/checker.h"
#include "objfs/check/directory_scan.h"
#include "objfs/check/report.h"
#include "objfs/directory/entry.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/inode.h"
#include "objfs/volume/object_table.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/shard_records.h"

namespace abacus::objfs {

// What a repair rests on: later ones on earlier ones.
enum class Stage : uint8_t {
  kRecords = 0,
  kObjects,
  kInodes,
  kBlocks,
  kNames,
  kTree,
  kCounts,
  kNone,
};

// Why the root of a shard is not made anew.
inline constexpr char kNoRootOfShard[] =
    "it also said how many shards the volume has, and where this one's records are: take the store "
    "of this shard from a copy";

// A fault, and what is to be done about it.
struct Found {
  Fault fault;
  Stage stage = Stage::kNone;  // kNone: nothing
  // kNames: what becomes of an entry of fault.object.
  EntryChange change;
  std::optional<SalvagedTable> salvaged;  // kObjects
  // kRecords: which of them; nullopt: the inode of the object that they are in.
  std::optional<ShardRecords::Slot> slot;
  // Online: it is one only where nobody has changed this since it was looked at; 0: it is one
  // whatever others do.
  ObjectId rests_on = 0;
};

// What one look at an object told.
struct Facts {
  enum Flag : uint8_t {
    kDamaged = 1,     // the store cannot tell its attributes
    kNoInode = 2,     // it can, and they are no inode
    kForeign = 4,     // of a later version: nothing is known, nor changed
    kEmpty = 8,       // no block is written
    kBadBlocks = 16,  // a directory of which not all names could be read
    kReached = 32,
    kUnreached = 64,  // it is below something that is not
    kOnPath = 128,    // while the tree is walked
  };
  ObjectId id = 0;
  ObjectId parent = 0;    // of a directory, by its inode
  ObjectId named_in = 0;  // the directory of its name; of several the inode's parent, or the first
  VersionNumber version = 0;
  uint64_t entries = 0;  // of a directory, by its inode
  uint32_t links = 0;    // by the inode
  // As they were found.
  uint32_t names = 0, subdirectories = 0, counted = 0;
  uint8_t type = 0;        // S_IFMT >> 12
  uint8_t named_type = 0;  // by the name
  uint8_t flags = 0;

  bool Is(Flag flag) const { return (flags & flag) != 0; }
  bool IsDirectory() const { return type == (S_IFDIR >> 12); }
  bool is_known() const { return (flags & (kDamaged | kNoInode | kForeign)) == 0; }
  uint32_t RightLinks() const { return IsDirectory() ? 2 + subdirectories : names; }
};

static_assert(sizeof(Facts) <= 64, "there is one for each object");

// One look at all of a volume. For CheckVolume() alone. Thread-compatible.
class VolumeScan {
 public:
  // `kept`: objects that repairs have made, so that no other shard can have names of them; null:
  // none.
  VolumeScan(ObjectTable& table, const CheckOptions& options,
             const std::set<ObjectId>* kept = nullptr)
      : table_(table), store_(table.store()), options_(options), kept_(kept) {}

  absl::Status Run();

  std::vector<Found>& found() { return found_; }
  // Of what was counted; no faults.
  const CheckReport& totals() const { return totals_; }
  // Some directories, or what may be some, could not be read: what has no name may have one there.
  bool incomplete() const { return incomplete_; }

  Facts* Find(ObjectId id);
  // 0: there is none.
  ObjectId root() const { return root_; }
  // The identifier of a root that is missing.
  ObjectId MissingRoot() const;
  // From the root; "" where it has none.
  std::string PathOf(ObjectId id);

  // Whether the volume has other shards, as its root says or its objects make believe.
  bool is_shard() const { return shard_.has_value(); }
  // Whether a transaction in doubt is to change it as it is now.
  bool IsHeld(ObjectId id) const { return held_.contains(id); }
  // Of a shard: what is to be compared with the others.
  ShardLook& look() { return look_; }

 private:
  Found& Fail(FaultKind kind, ObjectId object, std::string text, Stage stage = Stage::kNone);
  absl::Status GoOn() const;

  absl::Status LookAtObjects();
  // nullopt: it is not there, or is none of the volume's files.
  absl::StatusOr<std::optional<Facts>> LookAtObject(ObjectId id);
  static bool IsOfLaterVersion(const ObjectAttributes& attributes);
  void TakeSalvaged(ObjectId id);
  void LookAtInode(const Inode& inode, Facts* facts);
  absl::Status LookAtContents(const Inode& inode, const ObjectAttributes& attributes, ObjectId id);
  absl::Status LookAtData(ObjectId id, uint64_t size);
  absl::Status LookAtTarget(ObjectId id, uint64_t size);
  void FindRoot();

  absl::Status LookAtDirectories();
  absl::Status LookAtDirectory(Facts* directory);
  // Its blocks and its inode of one moment; nullopt: it is not there any more.
  absl::StatusOr<std::optional<ScannedDirectory>> ScanSettled(Facts* directory);
  absl::Status TakeName(Facts* directory, const ScannedName& name);
  void LeadsNowhere(Facts* directory, const ScannedName& name,
                    const std::string& why = ", which is not there");
  void NameLeadsTo(Facts* directory, const ScannedName& name, Facts* child);
  // Online: an object that was made since the others were listed, or a name that leads nowhere.
  absl::StatusOr<Facts*> LookLate(Facts* directory, const ScannedName& name);
  // Has the names of these directories removed, but for the one that counts.
  absl::Status LookAtNamesOf(const std::set<ObjectId>& ids, const char* text, bool keeps_one);

  void LookAtTree(std::set<ObjectId>* circles);
  void WalkUp(Facts* facts, std::set<ObjectId>* circles);
  void LookAtTop(Facts* facts);
  void LookAtCounts(const Facts& facts);
  void LookAtLinks(const Facts& facts);
  void LookAtParent(const Facts& facts);
  // Drops what others have changed since.
  absl::Status Settle();
  absl::Status FindPaths();
  absl::StatusOr<std::string> NameIn(ObjectId directory, ObjectId id);

  // -- of a shard (volume_scan_shard.cc) ---

  // Whether this is one, and what transactions hold.
  absl::Status FindShard();
  absl::Status TakeShardState(ObjectId root, const std::string& text);
  // Where the root cannot say whether this is a shard, a name may.
  void NoteShardOf(ObjectId id);
  // Whether it was to be the records of a shard, and a crash came first: it has no name, and nobody
  // wants it.
  static bool IsOfBrokenOffMaking(const ObjectAttributes& attributes,
                                  const absl::StatusOr<Inode>& inode);
  // Where it is not known which object has the records: whether this may be it.
  bool MayBeRecords(const absl::StatusOr<Inode>& inode);
  absl::Status LookAtRecords(ObjectId id);
  absl::Status LookAtRecord(ObjectId id, ShardRecords::Slot slot);
  bool IsOfOtherShard(ObjectId id) const {
    return is_shard() && id != 0 && ShardOf(id) != own_shard_;
  }
  void TakeForeign(Facts* directory, const ScannedName& name);
  void LookAtNamesOfRoot(const ScannedDirectory& scanned);
  // Whether names of other shards may lead to it beside those that were found.
  bool MayBeNamedElsewhere(const Facts& facts) const;
  void LookAtParentElsewhere(const Facts& facts);
  // What a transaction in doubt rests on is not judged, and not changed.
  void LeaveWhatIsHeld();
  void FillLook();
  void AddToLook(const Facts& facts);

  ObjectTable& table_;
  ObjectStore& store_;
  const CheckOptions& options_;
  ObjectId root_ = 0;
  std::vector<Facts> facts_;         // by rising id
  std::map<ObjectId, Facts> late_;   // online
  std::vector<ObjectId> unscanned_;  // directories of these
  std::set<ObjectId> twice_;
  std::map<ObjectId, std::string> names_;  // that were asked for
  std::vector<Found> found_;
  CheckReport totals_;
  bool incomplete_ = false;

  // Of a shard.
  const std::set<ObjectId>* const kept_;
  std::optional<ShardState> shard_;  // records 0: it is not known which object has them
  uint32_t own_shard_ = 0;
  bool root_is_lost_ = false;    // nobody can tell whether this is one
  bool records_unread_ = false;  // more may be held than is known
  std::set<ObjectId> held_;
  std::map<ObjectId, ForeignNames> foreign_;
  ShardLook look_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_VOLUME_SCAN_H_
