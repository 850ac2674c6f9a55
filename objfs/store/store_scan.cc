#include "objfs/store/store_scan.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "objfs/store/format.h"
#include "objfs/store/journal.h"
#include "objfs/store/names.h"
#include "objfs/store/table_pages.h"
#include "objfs/store/wrong_bit.h"

namespace abacus::objfs {
namespace {

// Numbers that were given and are known nowhere any more are below these, by far: an object is made
// and removed again for each of them.
constexpr uint64_t kIdsSkipped = uint64_t{1} << 32;
constexpr uint64_t kSectorBytes = 512;  // what a disk writes whole
constexpr uint64_t kVersionAt = 8;      // in a superblock
constexpr uint64_t kLengthAt = 4;       // in a record
constexpr uint64_t kChecksumBytes = 4;
constexpr char kOneBit[] = "one bit of it is wrong, and its checksum tells which";
constexpr char kBitSetRight[] = "the bit was set right";

bool IsZero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

// Whether a power cut may have left `was` of what was to become `right`, at `offset` of the file,
// and not rot: a sector that was not written reads as zeros.
bool MayBeTorn(std::string_view was, std::string_view right, uint64_t offset) {
  const auto [differs, other] = std::mismatch(was.begin(), was.end(), right.begin(), right.end());
  if (differs == was.end()) return false;
  const auto at = static_cast<uint64_t>(differs - was.begin());
  const uint64_t sector = (offset + at) / kSectorBytes * kSectorBytes;
  const uint64_t begin = std::max(sector, offset) - offset;
  return IsZero(was.substr(begin, sector + kSectorBytes - offset - begin));
}

bool IsRecord(const JournalHeader& journal, std::string_view bytes, uint64_t sequence) {
  const auto view = DecodeRecord(journal, bytes);
  return view.has_value() && view->sequence == sequence && DecodePayload(view->payload).ok();
}

// The record that `rest` was to begin with, where one bit of it is wrong.
std::optional<std::string> RecordSetRight(const JournalHeader& journal, std::string_view rest,
                                          uint64_t sequence) {
  if (rest.size() < kRecordHeaderBytes) return std::nullopt;
  const auto number = [&rest](uint64_t at) {
    uint32_t value = 0;
    for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<uint8_t>(rest[at + i]);
    return value;
  };
  const uint32_t length = number(kLengthAt);
  // Where the length is wrong it is not known what the checksum is of.
  for (int bit = 0; bit < 32; ++bit) {
    const uint64_t right = length ^ (uint32_t{1} << bit);
    const uint64_t bytes = kRecordHeaderBytes + right;
    if (right > kWrongBitBytesMax || bytes > rest.size()) continue;
    std::string record(rest.substr(0, bytes));
    for (int i = 0; i < 4; ++i) record[kLengthAt + i] = static_cast<char>(right >> (8 * i));
    if (IsRecord(journal, record, sequence)) return record;
  }
  const uint64_t bytes = kRecordHeaderBytes + length;
  if (length > kWrongBitBytesMax || bytes > rest.size()) return std::nullopt;
  std::string record(rest.substr(0, bytes));
  const auto wrong =
      WrongBit::Find(bytes - kChecksumBytes, RecordChecksum(journal, record), number(0));
  if (!wrong.has_value()) return std::nullopt;
  const uint64_t at = wrong->byte + (wrong->in_checksum ? 0 : kChecksumBytes);
  record[at] = static_cast<char>(static_cast<uint8_t>(record[at]) ^ wrong->mask);
  if (!IsRecord(journal, record, sequence)) return std::nullopt;
  return record;
}

struct ScannedJournal {
  std::string name;
  uint64_t number = 0;
  std::string bytes;
  std::optional<JournalHeader> header;                  // as it is, or with a bit set right
  bool header_is_damaged = false;                       // and not by a bit
  std::vector<std::pair<uint64_t, uint64_t>> payloads;  // of whole records: where, and how long

  std::string_view Payload(size_t i) const {
    return std::string_view(bytes).substr(payloads[i].first, payloads[i].second);
  }
  // A removal of an object that its step made again, where the record of that is lost. The table is
  // there, as good as it was.
  bool IsHalfOfRemaking(size_t i) const {
    const uint64_t next = payloads[i].first + payloads[i].second + kRecordHeaderBytes;
    if (i + 1 < payloads.size() && payloads[i + 1].first == next) return false;
    const auto payload = DecodePayload(Payload(i));
    return payload->more && std::holds_alternative<RemoveRecord>(payload->record);
  }
};

class StoreScan {
 public:
  explicit StoreScan(Disk& disk) : disk_(disk) {}

  absl::StatusOr<StoreScanResult> Run();

 private:
  absl::Status ReadJournals();
  void FindHeaders();
  // False: nothing can be said of the rest.
  absl::StatusOr<bool> LookAtSuperblock();
  bool IsLeftOver(const ScannedJournal& journal) const;
  bool HasRecords(const ScannedJournal& journal) const;
  void LookAtJournal(ScannedJournal& journal, bool next_has_records);
  void NoteRecord(const JournalRecord& record);
  void RewriteJournal(const ScannedJournal& journal, uint64_t at, uint64_t lost);
  absl::Status LookAtTables();
  absl::Status LookAtTable(ObjectId id);
  void LookAtPage(ObjectId id, uint64_t page, std::string_view both);
  void RebuildHeaders();

  void Patch(StoreFault fault, uint64_t at, std::string bytes, std::string done);

  Disk& disk_;
  StoreScanResult result_;
  std::vector<ScannedJournal> journals_;  // rising
  std::optional<uint64_t> store_;
  absl::btree_map<ObjectId, uint64_t> blocks_;  // of tables
  absl::btree_map<ObjectId, uint64_t> before_;  // of records: what the first of each object says
  ObjectId ids_end_ = 1;                        // above all numbers that are known
};

absl::StatusOr<StoreScanResult> StoreScan::Run() {
  if (auto status = ReadJournals(); !status.ok()) return status;
  if (journals_.empty()) return result_;
  FindHeaders();
  const auto is_known = LookAtSuperblock();
  if (!is_known.ok()) return is_known.status();
  if (!*is_known || !store_.has_value()) return result_;
  for (size_t i = 0; i < journals_.size(); ++i) {
    LookAtJournal(journals_[i], i + 1 < journals_.size() && HasRecords(journals_[i + 1]));
  }
  if (auto status = LookAtTables(); !status.ok()) return status;
  RebuildHeaders();
  return std::move(result_);
}

void StoreScan::Patch(StoreFault fault, uint64_t at, std::string bytes, std::string done) {
  fault.fix = StoreFix{.offset = at, .bytes = std::move(bytes), .done = std::move(done)};
  result_.faults.push_back(std::move(fault));
}

absl::Status StoreScan::ReadJournals() {
  const auto names = disk_.List("");
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const auto number = NumberIn(name, kJournalPrefix, "");
    if (!number.has_value()) continue;
    auto bytes = ReadWhole(disk_, name);
    if (!bytes.ok()) return bytes.status();
    journals_.push_back({.name = name, .number = *number, .bytes = *std::move(bytes)});
  }
  return absl::OkStatus();
}

void StoreScan::FindHeaders() {
  for (ScannedJournal& journal : journals_) {
    const std::string_view bytes = std::string_view(journal.bytes).substr(0, kJournalHeaderBytes);
    auto header = DecodeJournalHeader(bytes);
    if (header.ok() && header->number == journal.number) {
      journal.header = *header;
      continue;
    }
    journal.header_is_damaged = true;
    const auto right =
        bytes.size() == kJournalHeaderBytes ? WrongBit::SetRight(bytes) : std::nullopt;
    if (!right.has_value()) continue;
    header = DecodeJournalHeader(*right);
    if (!header.ok() || header->number != journal.number) continue;
    journal.header = *header;
    journal.header_is_damaged = false;
    journal.bytes.replace(0, kJournalHeaderBytes, *right);
    Patch({.part = StorePart::kJournal,
           .file = journal.name,
           .bytes = kJournalHeaderBytes,
           .text = absl::StrCat("its header is damaged: ", kOneBit)},
          0, *right, kBitSetRight);
  }
}

absl::StatusOr<bool> StoreScan::LookAtSuperblock() {
  std::optional<uint64_t> by_headers;
  for (const ScannedJournal& journal : journals_) {
    if (!journal.header.has_value()) continue;
    if (by_headers.has_value() && *by_headers != journal.header->store) return false;
    by_headers = journal.header->store;
  }
  auto bytes = ReadWhole(disk_, kSuperblockName);
  const bool is_missing = absl::IsNotFound(bytes.status());
  if (!is_missing && !bytes.ok()) return bytes.status();
  StoreFault fault{.file = kSuperblockName, .bytes = kSuperblockBytes};
  if (!is_missing) {
    bytes->resize(std::min<uint64_t>(bytes->size(), kSuperblockBytes));
    if (const auto superblock = DecodeSuperblock(*bytes); superblock.ok()) {
      store_ = superblock->store;
      return true;
    }
    if (const auto right = WrongBit::SetRight(*bytes); right.has_value()) {
      if (const auto superblock = DecodeSuperblock(*right); superblock.ok()) {
        store_ = superblock->store;
        fault.text = absl::StrCat("it is damaged: ", kOneBit);
        Patch(std::move(fault), 0, *right, kBitSetRight);
        return true;
      }
    }
    // One of another version is left as it is.
    std::string of_ours = *bytes;
    const std::string ours = EncodeSuperblock({});
    if (of_ours.size() == kSuperblockBytes) of_ours.replace(kVersionAt, 4, ours, kVersionAt, 4);
    const bool is_foreign = bytes->starts_with(std::string_view(ours).substr(0, kVersionAt)) &&
                            bytes->size() == kSuperblockBytes && of_ours != *bytes &&
                            !DecodeSuperblock(of_ours).ok();
    if (is_foreign) return false;
  } else if (journals_.size() == 1 && journals_[0].number == 1 && !HasRecords(journals_[0])) {
    return false;  // a store that was about to be made
  }
  fault.text = is_missing ? "it is missing" : "it is damaged";
  if (!by_headers.has_value()) {
    absl::StrAppend(&fault.text, ", and so is what the journals have of it: the store cannot be ",
                    "opened, and nothing is left to make it anew from");
    result_.faults.push_back(std::move(fault));
    return false;
  }
  store_ = by_headers;
  absl::StrAppend(&fault.text, ": the store cannot be opened. The journals have what was in it");
  fault.fix = StoreFix{.anew = true,
                       .bytes = EncodeSuperblock({.store = *by_headers}),
                       .done = "made anew from the journals"};
  result_.faults.push_back(std::move(fault));
  return true;
}

// Begun by a checkpoint, or when the store was opened, that a crash cut off; opening removes it.
bool StoreScan::IsLeftOver(const ScannedJournal& journal) const {
  const bool is_last_of_several = journals_.size() > 1 && &journal == &journals_.back();
  const bool is_whole = journal.bytes.size() >= kJournalHeaderBytes;
  return is_last_of_several && !HasRecords(journal) && (!is_whole || IsZero(journal.bytes));
}

bool StoreScan::HasRecords(const ScannedJournal& journal) const {
  return journal.bytes.size() > kJournalHeaderBytes;
}

void StoreScan::LookAtJournal(ScannedJournal& journal, bool next_has_records) {
  if (!journal.header.has_value()) {
    if (IsLeftOver(journal)) {
      journal.header_is_damaged = false;
      return;
    }
    journal.header = JournalHeader{.store = *store_, .number = journal.number};
  }
  const JournalHeader& header = *journal.header;
  // Where records are lost, and how many.
  uint64_t lost_at = 0, lost = 0, number = 1;
  for (uint64_t at = kJournalHeaderBytes; at < journal.bytes.size();) {
    const std::string_view rest = std::string_view(journal.bytes).substr(at);
    const auto view = DecodeRecord(header, rest);
    if (view.has_value() && view->sequence == number) {
      const auto payload = DecodePayload(view->payload);
      if (!payload.ok()) return;  // of a later version, which opening tells
      NoteRecord(payload->record);
      journal.payloads.emplace_back(at + kRecordHeaderBytes, view->payload.size());
      at += kRecordHeaderBytes + view->payload.size();
      ++number;
      continue;
    }
    const bool counts = next_has_records || RecordWasDurable(header, rest, number);
    auto right = RecordSetRight(header, rest, number);
    if (right.has_value() && (counts || !MayBeTorn(rest.substr(0, right->size()), *right, at))) {
      const uint64_t bytes = right->size();
      journal.bytes.replace(at, bytes, *right);
      Patch({.part = StorePart::kJournal,
             .file = journal.name,
             .offset = at,
             .bytes = bytes,
             .text = absl::StrCat("record ", number, " is damaged: ", kOneBit,
                                  counts ? ". As it is, the store cannot be opened"
                                         : ". Opening the store would take it, and what follows, "
                                           "for the end that a crash cut off")},
            at, *std::move(right), kBitSetRight);
      continue;
    }
    if (!counts) {
      result_.cut_off_bytes += rest.size();
      break;
    }
    if (lost == 0) lost_at = at;
    uint64_t next = 1;
    std::optional<RecordView> found;
    for (; next + kRecordHeaderBytes <= rest.size(); ++next) {
      const auto seems = PeekRecord(rest.substr(next));
      const bool may_be = seems->sequence > number &&
                          seems->sequence <= number + rest.size() / kRecordHeaderBytes &&
                          seems->durable < seems->sequence;
      if (!may_be) continue;
      found = DecodeRecord(header, rest.substr(next));
      if (found.has_value()) break;
    }
    lost += found.has_value() ? found->sequence - number : 1;
    if (!found.has_value()) break;
    number = found->sequence;
    at += next;
  }
  if (lost > 0) RewriteJournal(journal, lost_at, lost);
}

// Each record says wholly what an object's head and some of its blocks become, so those behind a
// lost one are worth no less; but what is built on it is not there, which a check of the volume
// finds.
void StoreScan::RewriteJournal(const ScannedJournal& journal, uint64_t at, uint64_t lost) {
  StoreFault fault{.part = StorePart::kJournal,
                   .file = journal.name,
                   .offset = at,
                   .bytes = journal.bytes.size() - at};
  fault.text = absl::StrCat(
      "records that were durable are damaged, ", lost, " or more, and the store cannot be opened. ",
      "What they changed is nowhere else here: the objects of these changes, which are not known, ",
      "are as they were before. The other ", journal.payloads.size(), " records are whole");
  std::string bytes = journal.bytes.substr(0, kJournalHeaderBytes);
  // Of a step that lost a record all that is left counts, but for half of one that made an object
  // again.
  std::vector<std::string_view> kept;
  for (size_t i = 0; i < journal.payloads.size(); ++i) {
    if (!journal.IsHalfOfRemaking(i)) kept.push_back(journal.Payload(i));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    std::string payload(kept[i]);
    const bool is_last = i + 1 == kept.size();
    if (is_last) payload = EncodePayload(DecodePayload(payload)->record);
    bytes += EncodeRecord(*journal.header, i + 1, i, payload);
  }
  fault.fix = StoreFix{
      .anew = true,
      .loses = true,
      .bytes = std::move(bytes),
      .done = absl::StrCat("written anew with ", kept.size(), " of the records that are whole")};
  result_.faults.push_back(std::move(fault));
}

absl::Status StoreScan::LookAtTables() {
  for (uint64_t folder = 0; folder < kFolders; ++folder) {
    const auto names = disk_.List(FolderName(folder));
    if (absl::IsNotFound(names.status())) continue;
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      const auto id = NumberIn(name, "", ".t");
      if (!id.has_value() || *id == 0) continue;
      if (auto status = LookAtTable(*id); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status StoreScan::LookAtTable(ObjectId id) {
  auto table = disk_.Open(TablePath(id));
  if (!table.ok()) return table.status();
  blocks_[id] = 0;
  for (TablePages pages(**table);;) {
    const auto more = pages.Next();
    if (!more.ok()) return more.status();
    if (!*more) break;
    LookAtPage(id, pages.page(), pages.both());
  }
  return absl::OkStatus();
}

void StoreScan::LookAtPage(ObjectId id, uint64_t page, std::string_view both) {
  std::optional<TablePage> newest;
  for (const int place : {0, 1}) {
    const uint64_t offset = OffsetOfPage(page, place);
    const std::string_view bytes =
        both.substr(static_cast<uint64_t>(place) * kTablePageBytes, kTablePageBytes);
    auto read = DecodeTablePage(id, page, bytes);
    if (absl::IsNotFound(read.status())) continue;
    if (!read.ok()) {
      const auto right = WrongBit::SetRight(bytes);
      if (right.has_value()) read = DecodeTablePage(id, page, *right);
      if (!right.has_value() || !read.ok()) continue;  // the store tells and salvages it
      // A checkpoint that was cut off may leave it.
      if (journals_.size() > 1 && MayBeTorn(bytes, *right, offset)) continue;
      Patch({.part = StorePart::kTable,
             .object = id,
             .file = TablePath(id),
             .offset = offset,
             .bytes = kTablePageBytes,
             .text = absl::StrCat("page ", page, " of its table is damaged: ", kOneBit,
                                  ". Until then the object cannot be used")},
            offset, *right, kBitSetRight);
    }
    if (!newest.has_value() || newest->sequence < read->sequence) newest = *std::move(read);
  }
  if (newest.has_value()) blocks_[id] += newest->blocks.size();
}

void StoreScan::NoteRecord(const JournalRecord& record) {
  ObjectId id = 0;
  if (const auto* update = std::get_if<UpdateRecord>(&record)) {
    before_.try_emplace(id = update->id, update->blocks_before);
  } else if (const auto* attributes = std::get_if<AttributesRecord>(&record)) {
    before_.try_emplace(id = attributes->id, attributes->blocks);
  } else if (const auto* remove = std::get_if<RemoveRecord>(&record)) {
    before_.try_emplace(id = remove->id, remove->blocks_before);
  } else if (const auto* ids = std::get_if<IdsRecord>(&record)) {
    ids_end_ = std::max(ids_end_, ids->ids_end);
  }
  ids_end_ = std::max(ids_end_, id + 1);
}

void StoreScan::RebuildHeaders() {
  for (const ScannedJournal& journal : journals_) {
    if (journal.header.has_value()) ids_end_ = std::max(ids_end_, journal.header->ids_end);
  }
  if (!blocks_.empty()) ids_end_ = std::max(ids_end_, blocks_.rbegin()->first + 1);
  // When the first journal began, as many blocks were in use as tables have, but of objects that
  // records name: what the first record of each says it had before.
  uint64_t used = 0;
  for (const auto& [id, blocks] : before_) used += blocks;
  for (const auto& [id, blocks] : blocks_) used += before_.contains(id) ? 0 : blocks;
  for (const ScannedJournal& journal : journals_) {
    if (!journal.header_is_damaged) continue;
    JournalHeader header = *journal.header;
    header.ids_end = ids_end_ + kIdsSkipped;
    header.used_blocks = used;
    Patch({.part = StorePart::kJournal,
           .file = journal.name,
           .bytes = kJournalHeaderBytes,
           .text = "its header is damaged, and the store cannot be opened. The superblock, its "
                   "records and the tables have what was in it, but for how far numbers of objects "
                   "were given"},
          0, EncodeJournalHeader(header),
          absl::StrCat("made anew; numbers of objects go on with ", header.ids_end));
    if (journal.bytes.size() >= kJournalHeaderBytes) continue;
    result_.faults.back().text += ". It ends there: records that it had are lost";
    result_.faults.back().fix->loses = true;
  }
}

}  // namespace

absl::StatusOr<StoreScanResult> ScanStore(Disk& disk) { return StoreScan(disk).Run(); }

absl::Status ApplyFix(Disk& disk, const StoreFault& fault) {
  if (!fault.fix->anew) {
    const auto file = disk.Open(fault.file);
    if (!file.ok()) return file.status();
    const absl::Status written = (*file)->Write(fault.fix->offset, fault.fix->bytes);
    return written.ok() ? (*file)->Sync() : written;
  }
  const std::string name = fault.file + ".new";
  const absl::Status removed = disk.Remove(name);  // of a crash
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  const auto file = disk.Create(name);
  if (!file.ok()) return file.status();
  if (auto status = (*file)->Write(0, fault.fix->bytes); !status.ok()) return status;
  if (auto status = (*file)->Sync(); !status.ok()) return status;
  if (auto status = disk.Rename(name, fault.file); !status.ok()) return status;
  return disk.SyncDirectory("");
}

}  // namespace abacus::objfs
