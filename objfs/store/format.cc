#include "objfs/store/format.h"

#include <isa-l.h>

#include <algorithm>
#include <concepts>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::objfs {
namespace {

constexpr std::string_view kSuperblockMagic = "ABACUSST";
constexpr std::string_view kJournalMagic = "ABACUSJL";
constexpr uint32_t kPageMagic = 0x50544241;  // "ABTP"
constexpr uint64_t kCrcBytes = 4;
constexpr uint64_t kPageHeadBytes = 32;
constexpr uint64_t kEntriesAt = kPageHeadBytes + 24 + ObjectStore::kBlobBytesMax;  // of page 0

enum Kind : uint8_t { kUpdate = 1, kRemove = 2, kIds = 3, kAttributes = 4, kContents = 5 };
constexpr uint8_t kMore = 0x80;  // beside the kind

// Little-endian, whatever the machine.
class Writer {
 public:
  template <std::unsigned_integral T>
  Writer& Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  Writer& Put(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  Writer& PadTo(uint64_t bytes) {
    bytes_.resize(std::max<uint64_t>(bytes, bytes_.size()), '\0');
    return *this;
  }
  // Ends what began at byte 0 with its checksum.
  std::string Seal() {
    Put(Crc32c(bytes_));
    return std::move(bytes_);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Past the end it gives zeros and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <std::unsigned_integral T>
  T Get() {
    const std::string_view raw = Bytes(sizeof(T));
    T value = 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      value = static_cast<T>(value | (static_cast<T>(static_cast<uint8_t>(raw[i])) << (8 * i)));
    }
    return value;
  }
  std::string_view Bytes(uint64_t count) {
    if (count > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  bool ok() const { return ok_; }
  uint64_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

bool SealIsWhole(std::string_view bytes) {
  const std::string_view sealed = bytes.substr(0, bytes.size() - kCrcBytes);
  return Reader(bytes.substr(sealed.size())).Get<uint32_t>() == Crc32c(sealed);
}

absl::Status Damaged(const char* what) {
  return absl::DataLossError(absl::StrCat(what, " is damaged"));
}

bool RunIsValid(const BlockRun& run) {
  if (run.count == 0 || run.count > kObjectBlocksMax) return false;
  if (run.first > kObjectBlocksMax - run.count) return false;
  if (!run.slot.has_value()) return true;
  return run.version != 0 && *run.slot <= kSlotsMax - run.count;
}

void PutRun(Writer& writer, const BlockRun& run) {
  writer.Put<uint8_t>(run.slot.has_value() ? 1 : 0).Put(run.first).Put(run.count);
  if (!run.slot.has_value()) return;
  writer.Put(*run.slot).Put(run.version);
  for (const uint32_t crc : run.crcs) writer.Put(crc);
}

std::optional<BlockRun> GetRun(Reader& reader) {
  BlockRun run;
  const auto kind = reader.Get<uint8_t>();
  run.first = reader.Get<uint64_t>();
  run.count = reader.Get<uint64_t>();
  if (kind > 1 || !reader.ok()) return std::nullopt;
  if (kind == 1) {
    run.slot = reader.Get<uint64_t>();
    run.version = reader.Get<uint64_t>();
    if (run.count > reader.left() / kCrcBytes) return std::nullopt;
    run.crcs.reserve(run.count);
    for (uint64_t i = 0; i < run.count; ++i) run.crcs.push_back(reader.Get<uint32_t>());
  }
  if (!RunIsValid(run)) return std::nullopt;
  return run;
}

std::optional<ObjectHead> GetHead(Reader& reader) {
  ObjectHead head;
  head.size_bytes = reader.Get<uint64_t>();
  head.version = reader.Get<uint64_t>();
  const auto blob_bytes = reader.Get<uint16_t>();
  head.blob = std::string(reader.Bytes(blob_bytes));
  const bool valid = reader.ok() && head.size_bytes <= ObjectStore::kObjectBytesMax &&
                     blob_bytes <= ObjectStore::kBlobBytesMax;
  if (!valid) return std::nullopt;
  return head;
}

std::optional<UpdateRecord> GetUpdate(Reader& reader) {
  UpdateRecord update;
  update.id = reader.Get<uint64_t>();
  std::optional<ObjectHead> head = GetHead(reader);
  update.blocks_before = reader.Get<uint64_t>();
  update.blocks_after = reader.Get<uint64_t>();
  const auto runs = reader.Get<uint32_t>();
  if (!head.has_value() || update.id == 0 || !reader.ok()) return std::nullopt;
  update.head = *std::move(head);
  for (uint32_t i = 0; i < runs; ++i) {
    std::optional<BlockRun> run = GetRun(reader);
    if (!run.has_value()) return std::nullopt;
    update.runs.push_back(*std::move(run));
  }
  return update;
}

std::optional<AttributesRecord> GetAttributes(Reader& reader) {
  AttributesRecord attributes;
  attributes.id = reader.Get<uint64_t>();
  attributes.version = reader.Get<uint64_t>();
  const auto blob_bytes = reader.Get<uint16_t>();
  attributes.blob = std::string(reader.Bytes(blob_bytes));
  attributes.blocks = reader.Get<uint64_t>();
  if (attributes.id == 0 || blob_bytes > ObjectStore::kBlobBytesMax) return std::nullopt;
  return attributes;
}

RemoveRecord GetRemove(Reader& reader) {
  RemoveRecord remove;
  remove.id = reader.Get<uint64_t>();
  remove.blocks_before = reader.Get<uint64_t>();
  return remove;
}

std::optional<ContentsRecord> GetContents(Reader& reader) {
  ContentsRecord contents;
  contents.id = reader.Get<uint64_t>();
  contents.block = reader.Get<uint64_t>();
  contents.slot = reader.Get<uint64_t>();
  contents.bytes = std::string(reader.Bytes(ObjectStore::kBlockBytes));
  const bool valid = reader.ok() && contents.id != 0 && contents.block < kObjectBlocksMax &&
                     contents.slot < kSlotsMax;
  if (!valid) return std::nullopt;
  return contents;
}

void PutRecord(Writer& writer, uint8_t more, const UpdateRecord& update) {
  writer.Put<uint8_t>(kUpdate | more).Put(update.id);
  writer.Put(update.head.size_bytes).Put(update.head.version);
  writer.Put(static_cast<uint16_t>(update.head.blob.size())).Put(update.head.blob);
  writer.Put(update.blocks_before).Put(update.blocks_after);
  writer.Put(static_cast<uint32_t>(update.runs.size()));
  for (const BlockRun& run : update.runs) PutRun(writer, run);
}

void PutRecord(Writer& writer, uint8_t more, const AttributesRecord& attributes) {
  writer.Put<uint8_t>(kAttributes | more).Put(attributes.id).Put(attributes.version);
  writer.Put(static_cast<uint16_t>(attributes.blob.size())).Put(attributes.blob);
  writer.Put(attributes.blocks);
}

void PutRecord(Writer& writer, uint8_t more, const RemoveRecord& remove) {
  writer.Put<uint8_t>(kRemove | more).Put(remove.id).Put(remove.blocks_before);
}

void PutRecord(Writer& writer, uint8_t more, const IdsRecord& ids) {
  writer.Put<uint8_t>(kIds | more).Put(ids.ids_end);
}

void PutRecord(Writer& writer, uint8_t more, const ContentsRecord& contents) {
  writer.Put<uint8_t>(kContents | more).Put(contents.id).Put(contents.block).Put(contents.slot);
  writer.Put(contents.bytes);
}

uint32_t RecordCrc(const JournalHeader& journal, std::string_view sealed) {
  // Seeded with where the record belongs: one of another store or journal is none.
  const std::string place = Writer().Put(journal.store).Put(journal.number).Take();
  return Crc32c(sealed, Crc32c(place));
}

uint64_t EntriesOfPage(uint64_t page) { return page == 0 ? kHeadPageEntries : kPageEntries; }

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t seed) {
  // ISA-L takes a length of 31 bits, and a pointer that it does not write through.
  constexpr size_t kStepMax = size_t{1} << 30;
  uint32_t crc = ~seed;
  while (!bytes.empty()) {
    const size_t step = std::min(bytes.size(), kStepMax);
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data())),
                      static_cast<int>(step), crc);
    bytes.remove_prefix(step);
  }
  return ~crc;
}

std::string EncodeSuperblock(const Superblock& superblock) {
  return Writer()
      .Put(kSuperblockMagic)
      .Put(superblock.version)
      .Put(static_cast<uint32_t>(ObjectStore::kBlockBytes))
      .Put(superblock.store)
      .PadTo(kSuperblockBytes - kCrcBytes)
      .Seal();
}

absl::StatusOr<Superblock> DecodeSuperblock(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.Bytes(kSuperblockMagic.size()) != kSuperblockMagic) {
    return absl::FailedPreconditionError("this is not the superblock of an object store");
  }
  const auto version = reader.Get<uint32_t>();
  const auto block_bytes = reader.Get<uint32_t>();
  // Before the checksum: another version may keep it elsewhere.
  if (reader.ok() && (version < kFormatVersionMin || version > kFormatVersion)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the store has on-disk format version ", version, ", and this program knows versions ",
        kFormatVersionMin, " to ", kFormatVersion,
        ": start the program of the version that wrote it, or copy its objects ",
        "with that program into a new store. Nothing was changed"));
  }
  if (bytes.size() != kSuperblockBytes || !SealIsWhole(bytes) ||
      block_bytes != ObjectStore::kBlockBytes) {
    return Damaged("the superblock");
  }
  return Superblock{.store = reader.Get<uint64_t>(), .version = version};
}

std::string EncodeJournalHeader(const JournalHeader& header) {
  return Writer()
      .Put(kJournalMagic)
      .Put(header.store)
      .Put(header.number)
      .Put(header.ids_end)
      .Put(header.used_blocks)
      .PadTo(kJournalHeaderBytes - kCrcBytes)
      .Seal();
}

absl::StatusOr<JournalHeader> DecodeJournalHeader(std::string_view bytes) {
  if (bytes.size() < kJournalHeaderBytes || !SealIsWhole(bytes.substr(0, kJournalHeaderBytes)) ||
      bytes.substr(0, kJournalMagic.size()) != kJournalMagic) {
    return Damaged("a journal's header");
  }
  Reader reader(bytes.substr(kJournalMagic.size()));
  JournalHeader header;
  header.store = reader.Get<uint64_t>();
  header.number = reader.Get<uint64_t>();
  header.ids_end = reader.Get<uint64_t>();
  header.used_blocks = reader.Get<uint64_t>();
  return header;
}

std::string EncodePayload(const JournalRecord& record, bool more) {
  Writer writer;
  const uint8_t flag = more ? kMore : 0;
  std::visit([&writer, flag](const auto& one) { PutRecord(writer, flag, one); }, record);
  return writer.Take();
}

absl::StatusOr<Payload> DecodePayload(std::string_view payload) {
  Reader reader(payload);
  std::optional<JournalRecord> record;
  const auto kind = reader.Get<uint8_t>();
  switch (kind & ~kMore) {
    case kUpdate:
      if (auto update = GetUpdate(reader); update.has_value()) record = *std::move(update);
      break;
    case kAttributes:
      if (auto attributes = GetAttributes(reader); attributes.has_value()) {
        record = *std::move(attributes);
      }
      break;
    case kRemove:
      record = GetRemove(reader);
      break;
    case kContents:
      if (auto contents = GetContents(reader); contents.has_value()) record = *std::move(contents);
      break;
    case kIds:
      record = IdsRecord{.ids_end = reader.Get<uint64_t>()};
      break;
    default:
      break;
  }
  if (!record.has_value() || !reader.ok() || reader.left() != 0) return Damaged("a record");
  return Payload{*std::move(record), (kind & kMore) != 0};
}

std::string EncodeRecord(const JournalHeader& journal, uint64_t sequence, uint64_t durable,
                         std::string_view payload) {
  const std::string sealed = Writer()
                                 .Put(static_cast<uint32_t>(payload.size()))
                                 .Put(sequence)
                                 .Put(durable)
                                 .Put(payload)
                                 .Take();
  return Writer().Put(RecordCrc(journal, sealed)).Put(sealed).Take();
}

uint32_t RecordChecksum(const JournalHeader& journal, std::string_view record) {
  return RecordCrc(journal, record.substr(kCrcBytes));
}

std::optional<RecordView> PeekRecord(std::string_view bytes) {
  Reader reader(bytes);
  reader.Get<uint32_t>();  // checksum
  reader.Get<uint32_t>();  // length
  RecordView record;
  record.sequence = reader.Get<uint64_t>();
  record.durable = reader.Get<uint64_t>();
  if (!reader.ok()) return std::nullopt;
  return record;
}

std::optional<RecordView> DecodeRecord(const JournalHeader& journal, std::string_view bytes) {
  Reader reader(bytes);
  const auto crc = reader.Get<uint32_t>();
  const auto payload_bytes = reader.Get<uint32_t>();
  RecordView record;
  record.sequence = reader.Get<uint64_t>();
  record.durable = reader.Get<uint64_t>();
  if (payload_bytes > kRecordPayloadBytesMax) return std::nullopt;
  record.payload = reader.Bytes(payload_bytes);
  if (!reader.ok()) return std::nullopt;
  const uint64_t sealed_bytes = kRecordHeaderBytes - kCrcBytes + payload_bytes;
  if (RecordCrc(journal, bytes.substr(kCrcBytes, sealed_bytes)) != crc) return std::nullopt;
  return record;
}

uint64_t PageOfBlock(uint64_t block) {
  return block < kHeadPageEntries ? 0 : 1 + (block - kHeadPageEntries) / kPageEntries;
}

uint64_t FirstBlockOfPage(uint64_t page) {
  return page == 0 ? 0 : kHeadPageEntries + (page - 1) * kPageEntries;
}

uint64_t OffsetOfPage(uint64_t page, int place) {
  return (2 * page + static_cast<uint64_t>(place)) * kTablePageBytes;
}

std::string EncodeTablePage(const TablePage& page) {
  Writer writer;
  writer.Put(kPageMagic).Put(uint32_t{0}).Put(page.id).Put(page.page).Put(page.sequence);
  if (page.page == 0) {
    writer.Put(page.head.size_bytes).Put(page.head.version);
    writer.Put(static_cast<uint64_t>(page.head.blob.size())).Put(page.head.blob).PadTo(kEntriesAt);
  }
  const uint64_t first = FirstBlockOfPage(page.page);
  for (uint64_t i = 0; i < EntriesOfPage(page.page); ++i) {
    const auto entry = page.blocks.find(first + i);
    const bool hole = entry == page.blocks.end();
    const BlockEntry value = hole ? BlockEntry() : entry->second;
    writer.Put(value.slot).Put(value.version).Put(value.crc);
  }
  return writer.PadTo(kTablePageBytes - kCrcBytes).Seal();
}

absl::StatusOr<TablePage> DecodeTablePage(ObjectId id, uint64_t page, std::string_view bytes) {
  if (bytes.find_first_not_of('\0') == std::string_view::npos) {
    return absl::NotFoundError("the page was never written");
  }
  TablePage table;
  Reader reader(bytes);
  const bool ours = reader.Get<uint32_t>() == kPageMagic && reader.Get<uint32_t>() == 0;
  table.id = reader.Get<uint64_t>();
  table.page = reader.Get<uint64_t>();
  table.sequence = reader.Get<uint64_t>();
  if (bytes.size() != kTablePageBytes || !SealIsWhole(bytes) || !ours || table.id != id ||
      table.page != page || page > PageOfBlock(kObjectBlocksMax - 1)) {
    return Damaged("a table page");
  }
  if (page == 0) {
    table.head.size_bytes = reader.Get<uint64_t>();
    table.head.version = reader.Get<uint64_t>();
    const auto blob_bytes = reader.Get<uint64_t>();
    const std::string_view blob = reader.Bytes(ObjectStore::kBlobBytesMax);
    if (table.head.size_bytes > ObjectStore::kObjectBytesMax || blob_bytes > blob.size()) {
      return Damaged("a table page");
    }
    table.head.blob = std::string(blob.substr(0, blob_bytes));
  }
  const uint64_t first = FirstBlockOfPage(page);
  for (uint64_t i = 0; i < EntriesOfPage(page); ++i) {
    BlockEntry entry;
    entry.slot = reader.Get<uint64_t>();
    entry.version = reader.Get<uint64_t>();
    entry.crc = reader.Get<uint32_t>();
    if (entry.version == 0) continue;
    if (entry.slot >= kSlotsMax || first + i >= kObjectBlocksMax) return Damaged("a table page");
    table.blocks.emplace_hint(table.blocks.end(), first + i, entry);
  }
  return table;
}

}  // namespace abacus::objfs
