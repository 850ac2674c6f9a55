#ifndef ABACUS_OBJFS_STORE_FORMAT_H_
#define ABACUS_OBJFS_STORE_FORMAT_H_

// The bytes of a store's files; FORMAT.md says what they mean and why they are so. Pure: nothing
// here waits or touches a disk, and no input makes it do other than return an error.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {

inline constexpr uint32_t kFormatVersion = 3;
// The oldest that is read: it lacks ContentsRecord, and is made one of this version when it is
// opened.
inline constexpr uint32_t kFormatVersionMin = 2;
inline constexpr uint64_t kSuperblockBytes = 4096;
inline constexpr uint64_t kJournalHeaderBytes = 64;
inline constexpr uint64_t kRecordHeaderBytes = 24;
inline constexpr uint64_t kRecordPayloadBytesMax = uint64_t{1} << 26;
inline constexpr uint64_t kTablePageBytes = 8192;
inline constexpr uint64_t kHeadPageEntries = 200;  // page 0 also holds the head
inline constexpr uint64_t kPageEntries = 400;
inline constexpr uint64_t kObjectBlocksMax =
    ObjectStore::kObjectBytesMax / ObjectStore::kBlockBytes;
// Slots of a data file: twice the blocks, as old contents stay until the new ones are durable.
inline constexpr uint64_t kSlotsMax = 2 * kObjectBlocksMax;

uint32_t Crc32c(std::string_view bytes, uint32_t seed = 0);

struct Superblock {
  uint64_t store = 0;  // a random number; ties the journal to its store
  uint32_t version = kFormatVersion;
  friend bool operator==(const Superblock&, const Superblock&) = default;
};
std::string EncodeSuperblock(const Superblock& superblock);
// Errors: kFailedPrecondition - not a store's, or of a format version that is not known here.
//         kDataLoss - damaged.
absl::StatusOr<Superblock> DecodeSuperblock(std::string_view bytes);

struct JournalHeader {
  uint64_t store = 0;
  uint64_t number = 0;
  ObjectId ids_end = 0;      // no identifier from this one on was given before the journal began
  uint64_t used_blocks = 0;  // of all objects, when the journal began
  friend bool operator==(const JournalHeader&, const JournalHeader&) = default;
};
std::string EncodeJournalHeader(const JournalHeader& header);
absl::StatusOr<JournalHeader> DecodeJournalHeader(std::string_view bytes);

// Where a block's contents are, and what they are.
struct BlockEntry {
  uint64_t slot = 0;  // of the data file, in blocks
  VersionNumber version = 0;
  uint32_t crc = 0;
  friend bool operator==(const BlockEntry&, const BlockEntry&) = default;
};
using BlockMap = absl::btree_map<uint64_t, BlockEntry>;  // by block

struct ObjectHead {
  uint64_t size_bytes = 0;
  VersionNumber version = 0;
  std::string blob;
  friend bool operator==(const ObjectHead&, const ObjectHead&) = default;
};

// A range of blocks whose contents change: holes where `slot` is absent, else `crcs.size()` blocks
// of one version in slots that follow each other.
struct BlockRun {
  uint64_t first = 0;
  uint64_t count = 0;
  std::optional<uint64_t> slot;
  VersionNumber version = 0;
  std::vector<uint32_t> crcs;
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

struct UpdateRecord {
  ObjectId id = 0;
  ObjectHead head;
  // How many of the object's blocks are no holes, before the update and after it: the store's sum
  // is known without reading every table.
  uint64_t blocks_before = 0;
  uint64_t blocks_after = 0;
  std::vector<BlockRun> runs;
  friend bool operator==(const UpdateRecord&, const UpdateRecord&) = default;
};
// Of an object whose contents are not flushed along: they stay as they were.
struct AttributesRecord {
  ObjectId id = 0;
  VersionNumber version = 0;
  std::string blob;
  uint64_t blocks = 0;  // of the object that are no holes, before the record and after it
  friend bool operator==(const AttributesRecord&, const AttributesRecord&) = default;
};
struct RemoveRecord {
  ObjectId id = 0;
  uint64_t blocks_before = 0;
  friend bool operator==(const RemoveRecord&, const RemoveRecord&) = default;
};
struct IdsRecord {
  ObjectId ids_end = 0;
  friend bool operator==(const IdsRecord&, const IdsRecord&) = default;
};
// What a block has whose data file was not synced: it counts where the object's table, as it is
// after the whole journal, has that block in that slot with that checksum.
struct ContentsRecord {
  ObjectId id = 0;
  uint64_t block = 0;
  uint64_t slot = 0;
  std::string bytes;  // kBlockBytes
  friend bool operator==(const ContentsRecord&, const ContentsRecord&) = default;
};
using JournalRecord =
    std::variant<UpdateRecord, AttributesRecord, RemoveRecord, IdsRecord, ContentsRecord>;

struct Payload {
  JournalRecord record;
  // The step that the record is of goes on with the next record: all of a step counts, or nothing.
  bool more = false;
};
std::string EncodePayload(const JournalRecord& record, bool more = false);
absl::StatusOr<Payload> DecodePayload(std::string_view payload);

// The header and the payload of the `sequence`-th record (from 1) of a journal. `durable`: the last
// record that was known to be on the disk when this one was made.
std::string EncodeRecord(const JournalHeader& journal, uint64_t sequence, uint64_t durable,
                         std::string_view payload);
// What a record, all of it, should have for a checksum. REQUIRES: it is as long as its header.
uint32_t RecordChecksum(const JournalHeader& journal, std::string_view record);
struct RecordView {
  uint64_t sequence = 0;
  uint64_t durable = 0;
  std::string_view payload;
};
// What the header that `bytes` begins with says, whatever follows; nullopt where it is cut short.
std::optional<RecordView> PeekRecord(std::string_view bytes);
// The record that `bytes` begins with; nullopt where it is cut short, damaged or none.
std::optional<RecordView> DecodeRecord(const JournalHeader& journal, std::string_view bytes);

// A page of an object's table. It stands in either of two places of the table file; the one with
// the higher sequence counts.
struct TablePage {
  ObjectId id = 0;
  uint64_t page = 0;
  uint64_t sequence = 0;  // of the checkpoint that wrote it
  ObjectHead head;        // page 0 only
  BlockMap blocks;        // those of the page
};
uint64_t PageOfBlock(uint64_t block);
uint64_t FirstBlockOfPage(uint64_t page);
// The byte at which place `place` (0 or 1) of a page begins.
uint64_t OffsetOfPage(uint64_t page, int place);
std::string EncodeTablePage(const TablePage& page);
// Errors: kNotFound - all zeros: nothing was written there. kDataLoss - damaged, or another page.
absl::StatusOr<TablePage> DecodeTablePage(ObjectId id, uint64_t page, std::string_view bytes);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_FORMAT_H_
