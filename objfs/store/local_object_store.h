#ifndef ABACUS_OBJFS_STORE_LOCAL_OBJECT_STORE_H_
#define ABACUS_OBJFS_STORE_LOCAL_OBJECT_STORE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/disk.h"
#include "objfs/store/format.h"
#include "objfs/store/journal.h"
#include "objfs/store/object_state.h"
#include "objfs/store/object_store.h"
#include "objfs/store/shared_gate.h"
#include "objfs/store/spare_room.h"
#include "objfs/store/turns.h"
#include "runtime/base/block.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

struct StoreFault;

struct LocalObjectStoreOptions {
  uint64_t quota_bytes = UINT64_MAX;                // of blocks that can be read
  uint64_t journal_bytes_max = uint64_t{64} << 20;  // beyond it a Flush also makes a checkpoint
  uint64_t open_files_max = 512;                    // data files that stay open between calls
  uint64_t changed_blocks_max = uint64_t{1} << 20;  // of an object; beyond it a Write flushes first
  uint64_t removed_max = 1024;  // removals that wait for a Flush; then one is made
  uint64_t ids_batch = 65'536;  // identifiers reserved at once
  // An object of which no more blocks than these have changed is flushed by the journal alone,
  // which has their contents then; its data file is synced by the next checkpoint. 0: none is.
  uint64_t logged_blocks_max = 4;
  // None below this one is given from now on: whose numbers somebody else gave and lost.
  ObjectId ids_begin = 1;
  // Objects whose tables are damaged are made usable from what is left of these, and Salvaged()
  // tells how; else no call can use them. For repairs by whom nobody works beside.
  bool salvages = false;
  // Is told of wrong bytes whenever they are met, with object and block; empty: nobody is. It is
  // called with locks held and may call nothing of the store.
  std::function<void(const absl::Status& damage)> on_damage;
};

// What was left of an object's table that was damaged (LocalObjectStoreOptions::salvages).
struct SalvagedTable {
  absl::Status damage;
  bool lost_head = false;    // size and attributes: there are none, and it ends with its last block
  uint64_t lost_pages = 0;   // blocks of these read as zeros
  uint64_t lost_blocks = 0;  // others that do: two had one place, and the older one gave way
};

// All of an object, wherever it was kept, for LocalObjectStore::MakeWhole().
struct KeptTable {
  struct Block {
    uint64_t number = 0;
    VersionNumber version = 0;
    uint32_t crc = 0;  // CRC32C of its 8192 bytes
  };
  ObjectHead head;
  std::vector<Block> blocks;  // that are no holes, rising
};
struct KeptObject {
  std::function<absl::StatusOr<KeptTable>()> table;
  // All 8192 bytes of a block of the table.
  std::function<absl::StatusOr<std::string>(uint64_t number)> block;
};

// An ObjectStore in a directory of a local disk; FORMAT.md describes the files and argues why a
// crash at any moment leaves each block old or new.
//
//   a change                          a Flush
//   contents -> free slots of the     1. sync the data files    3. the new entries replace the old
//   object's data file, its entries   2. append the entries to     ones, whose slots become free
//   -> memory                            the journal, sync it
//
// Of an object of which a few blocks changed the contents go to the journal too, instead of 1.
//
// Flushes that come at the same time are one step, made by the thread of one of them: what it takes
// along is collected while no update is under way, and goes to the journal as one group of records.
// Changes of an object that a flush waits for begin after it: who writes without pause holds none
// up.
//
// A checkpoint now and then brings the entries of the journal into the objects' table files and
// begins a new journal.
//
// Limits: an object's table is in memory while it is in use, 40 bytes a block: 5 MB for 1 GB. An
//         object costs some 650 bytes of memory. A write takes at most kWriteBytesMax.
// Lock order: flush_turns_, updates_, commits_ (shared), StoredObject::sync_mutex, its mutex,
//         mutex_ or SpareRoom's; and checkpoint_mutex_, commits_ (exclusive), then an object's. One
//         object's at a time, but for Update(), which takes them by rising identifier.
class LocalObjectStore : public ObjectStore {
 public:
  static constexpr uint64_t kWriteBytesMax = uint64_t{1} << 30;
  // Of an object that MakeWhole() can help: 64 MiB.
  static constexpr uint64_t kMadeWholeBlocksMax = 8192;

  // Opens the store of the disk, after a crash too, or makes one where the disk is empty.
  // REQUIRES: the disk outlives the store, and no other store uses it.
  // Errors: kFailedPrecondition - the disk has other files, or a store of a format version that is
  //         not known; the message says what can be done. kDataLoss - the superblock or a durable
  //         part of the journal is damaged. The disk's.
  static absl::StatusOr<std::unique_ptr<LocalObjectStore>> Open(Disk& disk,
                                                                LocalObjectStoreOptions options);
  // Forgets what was not flushed, as a crash does. REQUIRES: no call is under way.
  ~LocalObjectStore() override;

  absl::StatusOr<ObjectId> Create(std::string_view blob, VersionNumber version) override;
  absl::StatusOr<ObjectId> Reserve() override;
  absl::Status CreateAs(ObjectId id, std::string_view blob, VersionNumber version) override;
  absl::Status Remove(ObjectId id) override;
  absl::StatusOr<uint64_t> Read(ObjectId id, uint64_t offset, std::span<char> bytes) override;
  absl::Status Write(ObjectId id, uint64_t offset, std::string_view bytes,
                     VersionNumber version) override;
  absl::Status Update(std::span<const ObjectUpdate> updates, VersionNumber version) override;
  absl::Status Truncate(ObjectId id, uint64_t size_bytes, VersionNumber version) override;
  absl::Status Punch(ObjectId id, uint64_t offset, uint64_t bytes, VersionNumber version) override;
  absl::StatusOr<uint64_t> NextData(ObjectId id, uint64_t offset) override;
  absl::StatusOr<uint64_t> NextHole(ObjectId id, uint64_t offset) override;
  absl::StatusOr<std::vector<VersionNumber>> ReadVersions(ObjectId id, uint64_t first,
                                                          uint64_t count) override;
  absl::StatusOr<ObjectAttributes> GetAttributes(ObjectId id) override;
  absl::Status SetAttributes(ObjectId id, std::string_view blob, VersionNumber version) override;
  absl::StatusOr<std::vector<ObjectId>> List(ObjectId after, uint64_t count_max) override;
  absl::Status Flush(ObjectId id) override;
  absl::Status FlushTogether(std::span<const ObjectId> ids) override;
  absl::Status FlushAll() override;
  absl::StatusOr<StoreSpace> Space() override;
  StoreStatistics Statistics() override;

  // Brings the journal's changes into the tables and begins a new journal, so that the next Open
  // has nothing to repeat. Flush does so when the journal is long.
  absl::Status Checkpoint();

  // Puts a damaged block's contents back, from wherever they were kept: what the block was written
  // with has the checksum that is known of it, so nothing else is taken. Durable with the object's
  // next flush. Errors: kFailedPrecondition - these are not the contents, or the block is a hole.
  absl::Status PutBack(ObjectId id, uint64_t block, std::string_view bytes);

  // The same as Read(), of contents that were kept elsewhere: `fetch` gives all bytes of a block of
  // the object, and is called without locks. Only what the object had at one moment of the call is
  // taken, by the checksums that are known of it. From the disk nothing is read but the object's
  // table, where that is not in memory. Damage is not counted.
  // Errors: kFailedPrecondition - these are not the contents. Those of Read() and of `fetch`.
  absl::StatusOr<uint64_t> ReadKept(
      ObjectId id, uint64_t offset, std::span<char> bytes,
      const std::function<absl::StatusOr<runtime::Block>(uint64_t block)>& fetch);

  // Makes an object whole again whose table is damaged, from what was kept of it elsewhere. Only
  // what it had is taken: of a table that was in memory since the store was opened, and was given
  // back as it was on the disk, a checksum is known. In one step: until then each call is told of
  // the damage, and after it has the object as it was, durably; a crash leaves it damaged or whole.
  // That it is not damaged (any more) is no error.
  // Errors: kNotFound - there is none, or it was removed meanwhile.
  //         kDataLoss - the damage stays, as nothing is known of what the table had: it was not in
  //         memory since the store was opened, or has more than kMadeWholeBlocksMax blocks.
  //         kFailedPrecondition - what was kept is not what the object had.
  //         kUnavailable - a sync failed. Those of `kept`; the disk's.
  // Blocking: disk I/O, and for `kept`, which is called without locks, a block at a time. Who calls
  // it for an object that somebody is making whole waits for that, and does it where they failed.
  absl::Status MakeWhole(ObjectId id, const KeptObject& kept);
  // What the table of an object had that MakeWhole() may help. nullopt: the table is not damaged,
  // or nothing is known of it. A hint to who has to fetch what was kept: it may be whole by then.
  std::optional<TableDigest> DigestOfDamaged(ObjectId id);

  // Reads again what the disk has of the superblock, of the journal as far as it is durable, and of
  // the tables that are in memory, in both places of each page, and tells what is damaged
  // (store_scan.h). The store goes on with what it has in memory; its next opening would not. With
  // `repair` that is written anew, and of tables that are not in memory what is wrong by one bit: a
  // fix without bytes says what was done. Calls go on meanwhile, checkpoints wait.
  // Errors: the disk's.
  absl::StatusOr<std::vector<StoreFault>> Examine(bool repair);

  // How the object was made usable, once; nullopt: it was not damaged, or this was asked before.
  std::optional<SalvagedTable> Salvaged(ObjectId id);
  // Calls `take` with what the object's data file has in slots that no block of it is in, in their
  // order, without those that are all zeros: of a table that lost pages, what these had named, and
  // what the object had before. Errors: those of `take`, which may call nothing of this object.
  absl::Status ReadUnnamed(ObjectId id,
                           const std::function<absl::Status(std::string_view block)>& take);
  // Gives the memory of the object's table back, where it is on the disk as it is.
  void Rest(ObjectId id);

 private:
  struct StoredObject {
    explicit StoredObject(ObjectId object_id) : id(object_id) {}
    StoredObject(ObjectId object_id, ObjectHead head)  // a new one, in the journal only
        : id(object_id),
          state(std::move(head)),
          loaded(true),
          durable(true),
          listed_changed(true) {}
    const ObjectId id;
    runtime::Mutex sync_mutex;  // one sync of the data file at a time: a failed one is told once
    runtime::Mutex mutex;
    std::atomic<int> awaited{0};  // flushes that are to have it before changes that have not begun
    runtime::CondVar passed;      // with `mutex`: one of them had it
    ObjectState state ABSL_GUARDED_BY(mutex);
    bool loaded ABSL_GUARDED_BY(mutex) = false;
    bool removed ABSL_GUARDED_BY(mutex) = false;
    bool durable ABSL_GUARDED_BY(mutex) = false;         // the journal or a table knows of it
    bool listed_changed ABSL_GUARDED_BY(mutex) = false;  // it is in changed_
    bool has_data ABSL_GUARDED_BY(mutex) = false;        // there is a data file,
    bool data_named ABSL_GUARDED_BY(mutex) = false;      // and its name is durable
    bool has_table ABSL_GUARDED_BY(mutex) = false;
    bool table_unsynced ABSL_GUARDED_BY(mutex) = false;  // a checkpoint is under way
    bool logged ABSL_GUARDED_BY(mutex) = false;          // some of its contents, since Open
    uint64_t data_written ABSL_GUARDED_BY(mutex) = 0;    // bytes, to the data file since Open,
    uint64_t data_synced ABSL_GUARDED_BY(mutex) = 0;     // and how many of them were synced
    absl::Status damage ABSL_GUARDED_BY(mutex);          // of the table: no call can use it
    bool mending ABSL_GUARDED_BY(mutex) = false;         // a call makes it whole
    bool table_anew ABSL_GUARDED_BY(mutex) = false;      // none of the table file's pages count
    // What the table had when its memory was given back; what it has on the disk until it is read.
    std::optional<TableDigest> unloaded ABSL_GUARDED_BY(mutex);
    absl::Status unsynced ABSL_GUARDED_BY(mutex);           // a sync failed: no more changes
    std::shared_ptr<DiskFile> data ABSL_GUARDED_BY(mutex);  // while it is open
    // The place (0 or 1) of the table file where each page that was written is.
    absl::btree_map<uint64_t, int> places ABSL_GUARDED_BY(mutex);
  };
  using ObjectPtr = std::shared_ptr<StoredObject>;
  // A lock of the object for which changes wait that have not begun. Who writes without pause would
  // have a plain one again before a thread that waited for it is awake.
  class ABSL_SCOPED_LOCKABLE LockFirst {
   public:
    explicit LockFirst(StoredObject& object) ABSL_EXCLUSIVE_LOCK_FUNCTION(object.mutex)
        : object_(object) {
      ++object_.awaited;
      object_.mutex.Lock();
    }
    ~LockFirst() ABSL_UNLOCK_FUNCTION() {
      --object_.awaited;
      object_.passed.SignalAll();
      object_.mutex.Unlock();
    }
    LockFirst(const LockFirst&) = delete;
    LockFirst& operator=(const LockFirst&) = delete;

   private:
    StoredObject& object_;
  };

  // A read: where the blocks are, as long as `frees` does not change.
  struct ReadPlan {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::vector<BlockEntry> entries;
    std::shared_ptr<DiskFile> data;
    uint64_t frees = 0;
  };
  // A write: the contents of whole blocks, of which the first and the last may be made up of old
  // and new ones.
  struct WritePlan {
    uint64_t first = 0, count = 0;
    std::string head, tail;
    std::string_view middle;
    uint64_t added_blocks = 0;
    std::vector<uint32_t> crcs;
  };
  // Writes whose contents are in free slots, and nothing refers to them yet.
  struct WrittenOut {
    struct One {
      WritePlan plan;
      uint64_t slot = 0;
    };
    absl::InlinedVector<One, 1> writes;
    uint64_t added_blocks = 0;
    uint64_t end = 0;  // the furthest byte written
  };
  // What updates did to an object and no flush has made durable: all such becomes so in one step.
  // kMade: contents that may be lost go along, and where they are lost the attributes do.
  enum class Tie : uint8_t { kNone = 0, kAttributes, kMade, kContents };
  // An object's part of a step: one of the two, or nothing.
  struct Member {
    ObjectPtr object;
    Tie tie = Tie::kNone;
    std::optional<FlushBatch> batch;
    std::optional<AttributesRecord> attributes;
    std::vector<ContentsRecord> contents;  // of the batch, where the data file is not synced
  };
  // A step of flushes, and for whom it is made.
  struct Step {
    std::vector<ObjectId> ids;
    bool done = false;
    bool gives_back = false;                             // some of its updates do
    absl::Status status;                                 // of the updates and of the journal
    absl::Status lost;                                   // contents that kept nothing back
    absl::flat_hash_map<ObjectId, absl::Status> failed;  // of `ids`
  };
  // An object that is made whole: its table, with slots behind all that the data file has.
  struct Remade {
    UpdateRecord table;
    std::shared_ptr<DiskFile> data;  // null: it has no blocks
    uint64_t first_slot = 0;
    bool is_logged = false;  // or may be
  };
  // What recovery knows of the journals.
  struct Removed {
    uint64_t journal, sequence;  // of the record
    ObjectId id;
    bool data, table;
    uint64_t unlinker;  // the call that removes its files now; 0: none
  };
  struct Recovery {
    std::vector<uint64_t> journals;  // numbers, rising
    bool torn_tables = false;        // a checkpoint may have been under way
    // Of these, such as were cut off, and where their last whole step ends.
    std::vector<std::pair<uint64_t, uint64_t>> cut_off;
    ObjectId ids_end = 1;
    int64_t used_blocks = 0;
    bool first = true;
    absl::btree_map<ObjectId, uint64_t> blocks;  // of objects that a record named
    absl::btree_set<ObjectId> removed;           // at some time; they may have been made again
    // Pages of tables of which one place is damaged, by object: a checkpoint that was cut off wrote
    // those only that a record changed.
    absl::btree_map<ObjectId, std::vector<uint64_t>> torn;
    // By object and block, the last ones that were logged.
    absl::btree_map<std::pair<ObjectId, uint64_t>, ContentsRecord> contents;
  };

  LocalObjectStore(Disk& disk, LocalObjectStoreOptions options)
      : disk_(disk), options_(std::move(options)), spare_(disk) {}

  // open.cc
  static absl::Status CheckUnused(Disk& disk);
  static absl::Status Format(Disk& disk);
  static absl::Status WriteSuperblock(Disk& disk, const Superblock& superblock);
  absl::Status ReadSuperblock();
  absl::Status FindObjects();
  absl::Status Recover();
  absl::Status ReplayJournals(Recovery& recovery);
  absl::Status RemoveUnused(Recovery& recovery);
  absl::Status Replay(Recovery& recovery, const JournalRecord& record);
  // The object of a record, with its table, as it was before it.
  absl::StatusOr<ObjectPtr> ReplayTo(Recovery& recovery, ObjectId id, bool is_first);
  absl::Status ReplayAttributes(Recovery& recovery, const AttributesRecord& attributes);
  absl::Status ReplayUpdate(Recovery& recovery, const UpdateRecord& record);
  absl::Status FinishRecovery(const Recovery& recovery);
  void GiveBackRoom(const Recovery& recovery);
  absl::Status KeepOldJournals(const Recovery& recovery);
  // Brings contents that only the journal may have into their data files.
  absl::Status RestoreContents(const Recovery& recovery);
  absl::Status RemoveOrphans(const Recovery& recovery);

  // table.cc
  absl::Status Load(StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  // `torn`: not null where a page may have been cut off while it was written. The other place
  // counts then, and the page is added there.
  absl::Status LoadPages(StoredObject& object, std::vector<uint64_t>* torn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::Status LoadPage(StoredObject& object, std::string_view both, uint64_t page,
                        std::vector<uint64_t>* torn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  // Once the journals were replayed: that each of these pages is one that a checkpoint wrote.
  absl::Status CheckTorn(StoredObject& object, const std::vector<uint64_t>& torn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  // Notes that the page is damaged, and has it written anew. `lost`: in both places.
  absl::Status SalvagePage(StoredObject& object, uint64_t page, bool lost)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  SalvagedTable& NoteSalvaged(ObjectId id, const absl::Status& damage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // ObjectState::Recovered(), or why the object is damaged.
  absl::Status FinishTable(StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  // Where nothing of it is other than on the disk.
  static void Unload(StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::Status NewJournal(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_);
  absl::Status WriteTables(const absl::btree_set<ObjectId>& ids, uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_);
  absl::Status WriteTable(const ObjectPtr& pointer, uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_);
  void TablesWritten(bool durable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_);
  absl::Status CheckpointLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_);
  absl::Status CheckpointTables(const absl::btree_set<ObjectId>& ids)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_);

  // examine.cc
  absl::Status ExamineSuperblock(bool repair, std::vector<StoreFault>* faults);
  absl::Status ExamineJournal(bool repair, std::vector<StoreFault>* faults)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_);
  absl::Status ExamineTable(StoredObject& object, bool repair, std::vector<StoreFault>* faults)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_);
  absl::Status ExaminePlace(StoredObject& object, uint64_t page, int place, std::string_view bytes,
                            bool repair, DiskFile& table, std::vector<StoreFault>* faults)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(checkpoint_mutex_, object.mutex);

  // local_object_store.cc
  absl::StatusOr<ObjectPtr> Find(ObjectId id);
  // Makes the object's table and state usable, or says why it is not.
  absl::Status Prepare(StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::Status PrepareChange(StoredObject& object, VersionNumber version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  // The same, behind flushes that wait for the object. Never inside updates_, which a step closes.
  absl::Status BeginChange(StoredObject& object, VersionNumber version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  static void LetFlushesGoFirst(StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::StatusOr<std::shared_ptr<DiskFile>> DataFile(StoredObject& object, bool make)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  void CloseOthers(const StoredObject& object);
  void NoteChanged(StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::Status Counted(absl::Status status);
  void TellDamage(const absl::Status& damage) const;

  // Which blocks; without the file that they are in.
  absl::StatusOr<ReadPlan> PlanBlocks(StoredObject& object, uint64_t offset, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::StatusOr<ReadPlan> PlanRead(StoredObject& object, uint64_t offset, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::Status ReadBlocks(ObjectId id, const ReadPlan& plan, char* to);
  absl::Status ReadRun(ObjectId id, const ReadPlan& plan, uint64_t index, uint64_t count, char* to);
  absl::Status ReadOne(ObjectId id, DiskFile* data, uint64_t block, const BlockEntry& entry,
                       char* to);
  absl::StatusOr<std::string> BlockWith(StoredObject& object, uint64_t block, uint64_t within,
                                        std::string_view bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::StatusOr<WritePlan> PlanWrite(StoredObject& object, uint64_t offset, std::string_view bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  // Whether a write may take room of spare_, which what adds to an object never does.
  enum class Spare : uint8_t { kNo, kUnlessItAdds };
  // Writes the contents to free slots; returns the first. Nothing refers to them yet.
  absl::StatusOr<uint64_t> WriteOut(StoredObject& object, const WritePlan& plan, bool takes_spare)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  // Reserves the space of these writes and writes their contents out: all of them or none.
  absl::StatusOr<WrittenOut> WriteOutAll(StoredObject& object, std::span<const ObjectWrite> writes,
                                         Spare spare) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  void Install(StoredObject& object, const WrittenOut& written, VersionNumber version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  void Drop(StoredObject& object, const WrittenOut& written)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::Status WriteLocked(StoredObject& object, const ObjectWrite& write, VersionNumber version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  using Deadline = std::chrono::steady_clock::time_point;
  // False: it is not locked, as others had it until then.
  static bool LockSoon(runtime::Mutex& mutex, Deadline deadline)
      ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true, mutex);
  // Returns null, or one that a call is in for longer than flushes may be held up, or that one of
  // them waits for; then none is locked.
  static ObjectPtr LockAll(std::span<const ObjectPtr> objects);
  // Whether any of these does; or it is not known.
  static bool AddBlocks(std::span<const ObjectPtr> objects, std::span<const ObjectUpdate> updates);
  absl::Status UpdateLocked(std::span<const ObjectPtr> objects,
                            std::span<const ObjectUpdate> updates, VersionNumber version);
  // Makes byte ranges [begin, end), each within one block, zeros: all of them or none.
  absl::Status ZeroParts(StoredObject& object,
                         const std::vector<std::pair<uint64_t, uint64_t>>& ranges,
                         VersionNumber version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  absl::Status Reserve(uint64_t blocks);
  void SetHoles(StoredObject& object, uint64_t first, uint64_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);

  // make_whole.cc
  absl::Status MakeWholeAlone(StoredObject& object, const KeptObject& kept);
  absl::StatusOr<Remade> PlanRemade(StoredObject& object, const KeptTable& table);
  // Contents into their slots, durably.
  absl::Status WriteRemade(StoredObject& object, const Remade& remade, const KeptObject& kept);
  // The step.
  absl::Status LogRemade(StoredObject& object, Remade& remade);
  void InstallRemade(StoredObject& object, const Remade& remade);

  // flush.cc
  // How many blocks a flush of the object now would have to log; nullopt: its data file is to be
  // synced.
  std::optional<uint64_t> BlocksToLog(StoredObject& object);
  // What the member's batch names in the data file, as it reads now; nullopt: it does not.
  std::optional<std::vector<ContentsRecord>> ReadContents(const Member& member);
  // Syncs the data file where it has unsynced bytes.
  absl::Status SyncData(StoredObject& object);
  absl::Status SyncFile(StoredObject& object, DiskFile& data, bool named, uint64_t written)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.sync_mutex);
  // Syncs it so far that a step has little to do, while other flushes go on.
  absl::Status SyncBeforeStep(StoredObject& object);
  // `heard`: whether somebody who asked for it to be durable is told of the error.
  absl::Status FlushSome(std::span<const ObjectId> ids, bool heard);
  // Has a step flush these whose data is synced, and waits for it. `lost`: what may be lost and is.
  absl::Status JoinStep(std::span<const ObjectId> ids, absl::Status* lost);
  void MakeStep(Step& step);
  // While no update is under way. Returns null, or an object that a call is in for longer than
  // updates may be stopped; then `members` are to be aborted once updates go on.
  ObjectPtr CollectMembers(Step& step, std::vector<Member>* members);
  std::optional<Member> MemberOf(Step& step, const ObjectPtr& object, Tie tie, bool asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(object->mutex);
  void SyncMembers(Step& step, std::vector<Member>& members);
  // What the member's failed sync means for the step.
  void LeaveOut(Step& step, Member& member, const absl::Status& synced);
  // Without all that updates changed.
  void LeaveOutUpdates(std::vector<Member>& members);
  // No update can become durable any more. Returns what is said from now on.
  absl::Status LoseUpdates(const absl::Status& why);
  // Changes of these wait for the step no longer.
  static void LetGoOn(const std::vector<ObjectPtr>& awaited);
  absl::Status LogMembers(const Step& step, const std::vector<Member>& members);
  // Whether the journal was given what room it wanted.
  bool JournalHasPlenty();
  void CommitMember(const Member& member);
  void AbortMember(Member& member);
  void GiveBackSlots(StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(object.mutex);
  // What the journal and the spare room lack.
  void TakeRoom();
  absl::Status SyncRemovals();
  absl::Status ReserveIds();
  // Unlinks the files of objects whose removal is durable: that is in an older journal, or up to
  // record `durable` of this one.
  absl::Status UnlinkRemoved(uint64_t journal, uint64_t durable);
  // Until none is left of a removal in that journal or an older one.
  absl::Status UnlinkAllUpTo(uint64_t journal);
  // Until no files are left of an object of that identifier that was removed.
  absl::Status AwaitUnlinked(ObjectId id);
  // Null: none are.
  const Removed* FilesLeftOf(ObjectId id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RemoveFiles(ObjectId id, bool data, bool table);
  void CheckpointIfLong();
  // A sync failed of what a journal may have alone: no checkpoint takes one away any more. What the
  // kernel could not write it takes for written, and another sync would succeed without it.
  void KeepJournals(const absl::Status& why);

  Disk& disk_;
  const LocalObjectStoreOptions options_;
  SpareRoom spare_;
  Superblock superblock_;
  absl::btree_set<ObjectId> found_data_;  // data files that Open found; empty afterwards

  runtime::Mutex steps_mutex_;  // held alone
  runtime::CondVar stepped_;
  bool stepping_ ABSL_GUARDED_BY(steps_mutex_) = false;
  std::shared_ptr<Step> next_step_ ABSL_GUARDED_BY(steps_mutex_) = std::make_shared<Step>();
  Turns flush_turns_;   // an object is in one step or removal at a time
  SharedGate updates_;  // shared: updates; exclusive: what a step takes along is collected

  runtime::Mutex checkpoint_mutex_;
  // Shared: records are appended and, once durable, brought into ObjectState. Exclusive: the
  // journal changes, so that all of the old one's are in the states.
  SharedGate commits_;
  std::shared_ptr<Journal> journal_;  // constant while commits_ is held
  // Tables written and not yet known to be durable: object, page, place.
  struct NewPlace {
    ObjectPtr object;
    uint64_t page;
    int place;
  };
  std::vector<uint64_t> old_journals_ ABSL_GUARDED_BY(checkpoint_mutex_);  // to be removed
  std::vector<NewPlace> new_places_ ABSL_GUARDED_BY(checkpoint_mutex_);

  runtime::Mutex ids_mutex_;  // held while a batch of identifiers is reserved; before commits_
  runtime::Mutex mutex_;      // the last one
  absl::btree_map<ObjectId, ObjectPtr> objects_ ABSL_GUARDED_BY(mutex_);
  absl::btree_set<ObjectId> changed_ ABSL_GUARDED_BY(mutex_);    // to be flushed
  absl::btree_map<ObjectId, Tie> tied_ ABSL_GUARDED_BY(mutex_);  // by updates; in changed_
  bool gives_back_ ABSL_GUARDED_BY(mutex_) = false;              // ObjectUpdate's, of one of these
  absl::Status updates_lost_ ABSL_GUARDED_BY(mutex_);            // as their contents are
  absl::Status journals_stay_ ABSL_GUARDED_BY(mutex_);  // they alone have what was to be synced
  absl::Status lost_unheard_ ABSL_GUARDED_BY(mutex_);   // what may be lost, found by FlushAll()
  absl::btree_set<ObjectId> changed_tables_ ABSL_GUARDED_BY(mutex_);  // to be checkpointed
  absl::flat_hash_map<ObjectId, SalvagedTable> salvaged_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::weak_ptr<StoredObject>> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<Removed> removed_ ABSL_GUARDED_BY(mutex_);
  uint64_t unlinkers_ ABSL_GUARDED_BY(mutex_) = 0;
  runtime::CondVar unlinked_;  // with mutex_: one of them has ended
  ObjectId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  ObjectId ids_end_ ABSL_GUARDED_BY(mutex_) = 1;  // reserved up to here

  std::atomic<int64_t> used_blocks_{0};
  std::atomic<int64_t> durable_blocks_{0};
  std::atomic<uint64_t> checksum_errors_{0}, damaged_tables_{0}, checkpoints_{0},
      checkpoints_failed_{0}, refused_for_space_{0}, repaired_objects_{0};
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_LOCAL_OBJECT_STORE_H_
