#ifndef ABACUS_OBJFS_STORE_STORE_SCAN_H_
#define ABACUS_OBJFS_STORE_STORE_SCAN_H_

// What is damaged of that by which a store knows itself, and what of it can be made right from what
// is left. For stores that nobody has open.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/disk.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {

enum class StorePart : uint8_t { kSuperblock, kJournal, kTable };

struct StoreFix {
  bool anew = false;    // `bytes` are the whole file; else those from the fault's offset on
  bool loses = false;   // what the damaged part alone had is lost: something is as it was before
  uint64_t offset = 0;  // in the file
  std::string bytes;
  std::string done;  // what it does, as said when it is done
};

struct StoreFault {
  StorePart part = StorePart::kSuperblock;
  ObjectId object = 0;  // whose table it is; else 0
  std::string file;
  uint64_t offset = 0;  // the bytes of it that are damaged
  uint64_t bytes = 0;
  std::string text;  // what is wrong, and what it means
  std::optional<StoreFix> fix;
};

struct StoreScanResult {
  // In the order in which they are to be made right.
  std::vector<StoreFault> faults;
  // Of records at the end of the last journal that a crash cut off, before they were acknowledged.
  // Where more than a bit is wrong, damage of the last ones that were cannot be told from it; after
  // an orderly end of the store there is none.
  uint64_t cut_off_bytes = 0;
};

// Looks at the superblock, the journals with each record, and the tables' pages in both places.
//
// | damaged | is made right from | loses |
// | --- | --- | --- |
// | one bit of any of these | its checksum (WrongBit) | nothing |
// | superblock, also missing | the journals' headers | nothing |
// | a journal's header | superblock, records, tables | numbers of objects: it goes on 2^32 above |
// | records of the journal | the other ones, which say wholly what they change | what these changed
// | | a page of a table | not here: LocalObjectStoreOptions::salvages | - and is no fault here |
//
// A store that is not there, of another version, or without any journal is not looked at: opening
// it tells. Errors: the disk's. Thread-safety: nobody else may use the disk. Blocking: reads
// journals and tables once.
absl::StatusOr<StoreScanResult> ScanStore(Disk& disk);

// Makes it right, durably; a crash in the middle leaves what the next scan finds again.
// REQUIRES: fault.fix; those before it in the result were applied.
absl::Status ApplyFix(Disk& disk, const StoreFault& fault);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_STORE_SCAN_H_
