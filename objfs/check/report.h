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
};
inline constexpr size_t kFaultKinds = 16;
// "links": as it stands in JSON.
const char* NameOf(FaultKind kind);

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

  uint64_t left() const { return found - repaired; }
  void Add(Fault fault, uint64_t faults_max);
  ABACUS_FIELDS(faults, found, repaired, objects, directories, files, links, others, names,
                bytes_read, unnamed, unsettled, cut_off_bytes)
};

// What is asked of a volume that clients work with.
struct CheckRequest {
  bool repair = false, data = false;
  uint64_t servers = 0;  // of the volume, which knows them
  ABACUS_FIELDS(repair, data, servers)
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
  ABACUS_FIELDS(report, repairs)
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_REPORT_H_
