#ifndef ABACUS_OBJFS_CHECK_REPORT_H_
#define ABACUS_OBJFS_CHECK_REPORT_H_

// What a check of a volume found, and what was done about it.

#include <cstdint>
#include <string>
#include <vector>

#include "objfs/store/object_store.h"
#include "objfs/volume/transaction.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

enum class FaultKind : uint8_t {
  kStore = 0,    // it cannot be opened
  kTable,        // where an object's blocks are, and its attributes
  kInode,        // the attributes are no inode, or one that cannot be
  kBlocks,       // of a directory: its tree
  kName,         // it leads nowhere, or to something else, or is one too many
  kUnreachable,  // no name leads to it, and nobody has removed it
  kParent,       // of a directory: another one than the one that has its name
  kLinks,        // the count of names
  kEntries,      // of a directory: the count of what is in it
  kData,         // bytes that are not those that were written
  kTarget,       // of a symbolic link: none that can be
  kColumn,       // of a file over several servers
  kServers,      // the list of a volume's servers
  kSuperblock,   // of the store
  kJournal,      // of the store
  kReplica,      // the record of what this server's copy is worth
  kRecords,      // of a shard: what it knows of transactions that other shards are in too
  kLog,          // of groups of writes to columns
};
inline constexpr size_t kFaultKinds = 18;
// "links": as it stands in JSON.
const char* NameOf(FaultKind kind);
// "directory"; `type`: S_IFMT of a mode >> 12.
const char* NameOfType(uint32_t type);

struct Fault {
  FaultKind kind = FaultKind::kStore;
  ObjectId object = 0;  // 0: none
  std::string path;     // from the volume's root; empty: none is known
  std::string text;     // what is wrong, and where that is needed, the way out
  std::string done;     // what was done about it; empty: nothing
  std::string place;    // file of the store, and bytes of it; empty: not known, or no one place
  bool repaired() const { return !done.empty(); }
  // All of it in one line, without its end.
  std::string Line() const;
  ABACUS_FIELDS(kind, object, path, text, done, place)
};

struct CheckReport {
  std::vector<Fault> faults;  // the first CheckOptions::faults_max of them
  uint64_t found = 0;         // faults
  uint64_t repaired = 0;      // of these

  uint64_t objects = 0, directories = 0, files = 0, links = 0, others = 0;
  uint64_t names = 0;
  uint64_t bytes_read = 0;  // of contents
  // Without a name, as a crash leaves what was open, or new, or about to be removed: no fault, they
  // are removed one lease after the volume's next start.
  uint64_t unnamed = 0;
  // At the end of the store's journal, of changes that a crash cut off before they were
  // acknowledged: no fault, but damage of the last ones that were could not be told from it.
  uint64_t cut_off_bytes = 0;
  // Changed by clients all the time that they were looked at: nothing is said of them.
  uint64_t unsettled = 0;
  // Of a shard: names that lead to objects of others, and how many of them were compared with what
  // the others have.
  uint64_t elsewhere = 0, followed = 0;
  // Transactions over several shards that it has prepared, and of which it does not know the end:
  // no fault, it asks for it while it is served. Nothing is said of their objects.
  uint64_t in_doubt = 0;

  uint64_t left() const { return found - repaired; }
  void Add(Fault fault, uint64_t faults_max);
  ABACUS_FIELDS(faults, found, repaired, objects, directories, files, links, others, names,
                bytes_read, unnamed, unsettled, cut_off_bytes, elsewhere, followed, in_doubt)
};

// Names of one shard that lead to an object of another.
struct ForeignNames {
  ObjectId id = 0;
  ObjectId directory = 0;  // one that has such a name, the first that was found
  uint32_t names = 0;
  uint32_t types = 0;  // that they say: the bits 1 << (S_IFMT >> 12)
  ABACUS_FIELDS(id, directory, names, types)
};

// An inode that the names of its own shard do not explain: others may have more. Of type 0: nothing
// is known of it, as it is damaged or a transaction is in doubt, and nothing is said.
struct UnexplainedInode {
  ObjectId id = 0;
  ObjectId parent = 0;    // of a directory
  ObjectId named_in = 0;  // the directory of a name of its shard; 0: there is none
  VersionNumber version = 0;
  uint32_t links = 0;  // by the inode
  uint32_t names = 0;  // of its shard
  uint8_t type = 0;    // S_IFMT >> 12
  ABACUS_FIELDS(id, parent, named_in, version, links, names, type)
};

struct GroupInDoubt {
  uint64_t group = 0;
  uint32_t coordinator = 0;  // a shard
  friend bool operator==(const GroupInDoubt&, const GroupInDoubt&) = default;
  ABACUS_FIELDS(group, coordinator)
};

// What the check of a shard leaves to be compared with the others' (shards_scan.h).
struct ShardLook {
  static constexpr size_t kToldMax = 200'000;  // of each list; then the lowest are told
  uint32_t shard = 0;
  uint32_t count = 1;  // of the volume's shards; 1: it has no others, and all that follows is empty
  ObjectId root = 0, records = 0;             // no name leads to these
  std::vector<ForeignNames> foreign;          // by rising id, each once
  std::vector<UnexplainedInode> unexplained;  // likewise
  // From these on nothing is told.
  ObjectId foreign_end = UINT64_MAX, unexplained_end = UINT64_MAX;
  std::vector<GroupInDoubt> in_doubt;
  bool incomplete = false;  // names could not be read: there may be more
  ABACUS_FIELDS(shard, count, root, records, foreign, unexplained, foreign_end, unexplained_end,
                in_doubt, incomplete)
};

// What is asked of a volume that clients work with.
struct CheckRequest {
  bool repair = false, data = false;
  uint64_t servers = 0;  // of the volume, which knows them
  // Rising: of other shards, where a look found no such object. Names that lead there lead nowhere.
  std::vector<ObjectId> gone;
  ABACUS_FIELDS(repair, data, servers, gone)
};

// Of a volume that clients work with: what was found, and transactions that make some of it right.
struct OnlineCheck {
  struct Repair {
    uint64_t fault = 0;  // which of the report's
    Transaction transaction;
    ABACUS_FIELDS(fault, transaction)
  };
  CheckReport report;
  std::vector<Repair> repairs;
  ShardLook look;
  ABACUS_FIELDS(report, repairs, look)
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_REPORT_H_
