// What ScanStore finds of a store's own structures, and what its fixes leave.

#include "objfs/store/store_scan.h"

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/store/format.h"
#include "objfs/store/journal.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"
#include "objfs/store/testing/store_files.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kBytesOfBlock = ObjectStore::kBlockBytes;
constexpr uint64_t kFarBlock = 300;  // of another page than block 0

using testing::FilesOn;
using testing::PutFiles;
using testing::StoreFiles;

std::unique_ptr<LocalObjectStore> OpenedStore(Disk& disk) {
  auto store = LocalObjectStore::Open(disk, {.ids_batch = 16});
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

// What can be read of a store, with attributes and versions.
std::map<ObjectId, std::string> ObjectsOf(LocalObjectStore& store) {
  std::map<ObjectId, std::string> objects;
  const std::vector<ObjectId> ids = store.List(0, 100).value();
  for (const ObjectId id : ids) {
    const auto attributes = store.GetAttributes(id);
    if (!attributes.ok()) {
      objects[id] = attributes.status().ToString();
      continue;
    }
    std::string all = absl::StrCat(attributes->blob, " ", attributes->version, " ",
                                   attributes->size_bytes, " ", attributes->allocated_bytes, ";");
    for (const uint64_t block : {uint64_t{0}, uint64_t{1}, kFarBlock}) {
      std::string bytes(kBytesOfBlock, '\0');
      const auto read =
          store.Read(id, block * kBytesOfBlock, std::span(bytes.data(), bytes.size()));
      all += read.ok() ? bytes.substr(0, *read) : read.status().ToString();
    }
    objects[id] = all;
  }
  return objects;
}

// A store with tables in both places, and a journal with records of every kind.
class ScannedStore {
 public:
  ScannedStore() {
    auto store = OpenedStore(disk_);
    for (int i = 0; i < 4; ++i) ids_.push_back(store->Create(absl::StrCat("blob", i), 1).value());
    for (VersionNumber version = 2; version <= 3; ++version) {
      for (const ObjectId id : ids_) {
        Write(*store, id, 0, version);
        Write(*store, id, kFarBlock, version);
      }
      EXPECT_TRUE(store->FlushAll().ok());
      EXPECT_TRUE(store->Checkpoint().ok());
    }
    Write(*store, ids_[0], 0, 4);
    EXPECT_TRUE(store->Flush(ids_[0]).ok());
    const std::string many(8 * kBytesOfBlock, 'm');
    EXPECT_TRUE(store->Write(ids_[1], 0, many, 5).ok());
    EXPECT_TRUE(store->Flush(ids_[1]).ok());
    EXPECT_TRUE(store->Remove(ids_[2]).ok());
    ids_.push_back(store->Create("new", 6).value());
    Write(*store, ids_[4], 1, 7);
    EXPECT_TRUE(store->FlushAll().ok());
    EXPECT_TRUE(store->SetAttributes(ids_[3], "other", 8).ok());
    EXPECT_TRUE(store->FlushAll().ok());
    objects_ = ObjectsOf(*store);
    used_ = store->Space()->used_bytes;
    cut_off_ = FilesOn(disk_);  // as kill -9 leaves it
    store.reset();
    files_ = FilesOn(disk_);
    for (const auto& [path, bytes] : files_) {
      if (absl::StartsWith(path, kJournalPrefix)) journal_ = path;
    }
  }

  const StoreFiles& files() const { return files_; }
  const StoreFiles& cut_off() const { return cut_off_; }
  const std::string& journal() const { return journal_; }
  const std::map<ObjectId, std::string>& objects() const { return objects_; }
  const std::vector<ObjectId>& ids() const { return ids_; }

  // Damaged; the faults that are found; and whether the fixes leave exactly these files, or `opens`
  // a store of the same contents.
  StoreScanResult Scan(const std::function<void(StoreFiles*)>& damage, MemoryDisk* disk) const {
    StoreFiles files = files_;
    damage(&files);
    PutFiles(files, *disk);
    auto result = ScanStore(*disk);
    EXPECT_TRUE(result.ok()) << result.status();
    for (const StoreFault& fault : result->faults) {
      if (fault.fix.has_value()) {
        EXPECT_TRUE(ApplyFix(*disk, fault).ok());
      }
    }
    return *std::move(result);
  }
  void ExpectSameContents(Disk& disk) const {
    auto store = OpenedStore(disk);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(ObjectsOf(*store), objects_);
    EXPECT_EQ(store->Space()->used_bytes, used_);
    EXPECT_GT(store->Create("", 1).value(), ids_.back());
  }
  static void Write(LocalObjectStore& store, ObjectId id, uint64_t block, VersionNumber version) {
    const std::string bytes(kBytesOfBlock, static_cast<char>('a' + (id + version + block) % 26));
    EXPECT_TRUE(store.Write(id, block * kBytesOfBlock, bytes, version).ok());
  }

 private:
  MemoryDisk disk_;
  std::vector<ObjectId> ids_;
  std::map<ObjectId, std::string> objects_;
  uint64_t used_ = 0;
  StoreFiles files_, cut_off_;
  std::string journal_;
};

void TurnBit(std::string* bytes, uint64_t byte, int bit) {
  (*bytes)[byte] = static_cast<char>(static_cast<uint8_t>((*bytes)[byte]) ^ (1u << bit));
}

void Garble(std::string* bytes, uint64_t at, uint64_t count) {
  std::mt19937_64 random(at);
  for (uint64_t i = at; i < std::min<uint64_t>(at + count, bytes->size()); ++i) {
    (*bytes)[i] = static_cast<char>(random());
  }
}

TEST(StoreScanTest, AWholeStoreHasNoFault) {
  const ScannedStore whole;
  MemoryDisk disk;
  const auto result = whole.Scan([](StoreFiles*) {}, &disk);
  EXPECT_TRUE(result.faults.empty()) << result.faults[0].file << ": " << result.faults[0].text;
  EXPECT_EQ(result.cut_off_bytes, 0u);
  EXPECT_EQ(FilesOn(disk), whole.files());
  MemoryDisk empty;
  EXPECT_TRUE(ScanStore(empty)->faults.empty());
}

// Superblock, journal and tables, after an orderly end and after a crash.
TEST(StoreScanTest, ABitOfAnyByteIsToldWithItsPlaceAndSetRight) {
  const ScannedStore whole;
  std::mt19937_64 random(1);
  uint64_t turned = 0;
  for (const StoreFiles* files : {&whole.files(), &whole.cut_off()}) {
    MemoryDisk disk;
    ASSERT_NO_FATAL_FAILURE(PutFiles(*files, disk));
    for (const auto& [path, bytes] : *files) {
      if (absl::EndsWith(path, ".d")) continue;
      const bool is_table = absl::EndsWith(path, ".t");
      const auto file = disk.Open(path);
      for (uint64_t byte = random() % 7; byte < bytes.size(); byte += is_table ? 509 : 23) {
        // Of pages that were never written nothing is known.
        if (is_table &&
            bytes.substr(byte / kTablePageBytes * kTablePageBytes, 4) == std::string(4, '\0')) {
          continue;
        }
        std::string one = bytes.substr(byte, 1);
        TurnBit(&one, 0, static_cast<int>(random() % 8));
        ASSERT_TRUE((*file)->Write(byte, one).ok());
        const auto result = ScanStore(disk);
        ASSERT_TRUE(result.ok()) << result.status();
        SCOPED_TRACE(absl::StrCat(path, " byte ", byte));
        ASSERT_EQ(result->faults.size(), 1u);
        const StoreFault& fault = result->faults[0];
        EXPECT_EQ(fault.file, path);
        EXPECT_LE(fault.offset, byte);
        EXPECT_GT(fault.offset + fault.bytes, byte);
        ASSERT_TRUE(fault.fix.has_value());
        EXPECT_FALSE(fault.fix->loses);
        ASSERT_TRUE(ApplyFix(disk, fault).ok());
        ASSERT_EQ(ReadWhole(disk, path).value(), bytes);
        ++turned;
      }
    }
  }
  std::cout << turned << " bits\n";
  EXPECT_GT(turned, 1000u);
}

TEST(StoreScanTest, ASuperblockIsMadeAnewFromTheJournals) {
  const ScannedStore whole;
  const std::vector<std::function<void(StoreFiles*)>> damages = {
      [](StoreFiles* files) { Garble(&files->at(kSuperblockName), 0, 4096); },
      [](StoreFiles* files) { Garble(&files->at(kSuperblockName), 512, 512); },
      [](StoreFiles* files) { files->at(kSuperblockName) = std::string(4096, '\0'); },
      [](StoreFiles* files) { files->at(kSuperblockName).resize(100); },
      [](StoreFiles* files) { files->at(kSuperblockName)[8] = 127; },  // the version
      [](StoreFiles* files) { files->erase(kSuperblockName); },
  };
  for (const auto& damage : damages) {
    MemoryDisk disk;
    const auto result = whole.Scan(damage, &disk);
    ASSERT_EQ(result.faults.size(), 1u);
    EXPECT_EQ(result.faults[0].part, StorePart::kSuperblock);
    ASSERT_TRUE(result.faults[0].fix.has_value()) << result.faults[0].text;
    EXPECT_EQ(FilesOn(disk), whole.files());
    ASSERT_NO_FATAL_FAILURE(whole.ExpectSameContents(disk));
  }
}

TEST(StoreScanTest, AStoreOfAnotherVersionIsLeftAsItIs) {
  const ScannedStore whole;
  MemoryDisk disk;
  const auto result = whole.Scan(
      [](StoreFiles* files) {
        files->at(kSuperblockName) = EncodeSuperblock({.store = 1, .version = 9});
      },
      &disk);
  EXPECT_TRUE(result.faults.empty());
}

TEST(StoreScanTest, WhereNothingIsLeftThatIsSaid) {
  const ScannedStore whole;
  MemoryDisk disk;
  const auto result = whole.Scan(
      [&whole](StoreFiles* files) {
        Garble(&files->at(kSuperblockName), 0, 4096);
        Garble(&files->at(whole.journal()), 0, kJournalHeaderBytes);
      },
      &disk);
  ASSERT_EQ(result.faults.size(), 1u);
  EXPECT_FALSE(result.faults[0].fix.has_value());
  EXPECT_TRUE(absl::StrContains(result.faults[0].text, "nothing is left"));
}

TEST(StoreScanTest, AJournalsHeaderIsMadeAnewAndNothingIsLost) {
  const ScannedStore whole;
  for (const bool is_zero : {false, true}) {
    MemoryDisk disk;
    const auto result = whole.Scan(
        [&](StoreFiles* files) {
          std::string& journal = files->at(whole.journal());
          Garble(&journal, 0, kJournalHeaderBytes);
          if (is_zero) journal.replace(0, kJournalHeaderBytes, kJournalHeaderBytes, '\0');
        },
        &disk);
    ASSERT_EQ(result.faults.size(), 1u);
    EXPECT_FALSE(result.faults[0].fix->loses);
    ASSERT_NO_FATAL_FAILURE(whole.ExpectSameContents(disk));
  }
}

// Each record in turn: what the others say is there, and the object of the lost one is as before.
TEST(StoreScanTest, RecordsThatAreLostCostTheirOwnChangesOnly) {
  const ScannedStore whole;
  const std::string& journal = whole.files().at(whole.journal());
  const JournalHeader header = *DecodeJournalHeader(journal);
  uint64_t lost = 0;
  for (uint64_t at = kJournalHeaderBytes; at < journal.size();) {
    const auto view = DecodeRecord(header, std::string_view(journal).substr(at));
    ASSERT_TRUE(view.has_value());
    const auto payload = DecodePayload(view->payload);
    const uint64_t bytes = kRecordHeaderBytes + view->payload.size();
    SCOPED_TRACE(absl::StrCat("record ", view->sequence, " at ", at));
    MemoryDisk disk;
    const auto result = whole.Scan(
        [&](StoreFiles* files) { Garble(&files->at(whole.journal()), at, bytes); }, &disk);
    const bool is_last = at + bytes == journal.size();
    at += bytes;
    if (is_last) {
      // What the end of a store wrote says nothing itself.
      EXPECT_TRUE(result.faults.empty());
      EXPECT_EQ(result.cut_off_bytes, bytes);
      ASSERT_NO_FATAL_FAILURE(whole.ExpectSameContents(disk));
      continue;
    }
    ASSERT_EQ(result.faults.size(), 1u);
    ASSERT_TRUE(result.faults[0].fix.has_value());
    EXPECT_TRUE(result.faults[0].fix->loses);
    auto opened = LocalObjectStore::Open(disk, {.salvages = true});
    ASSERT_TRUE(opened.ok()) << opened.status();
    ObjectId of_record = 0;
    std::visit(
        [&](const auto& record) {
          if constexpr (requires { record.id; }) of_record = record.id;
        },
        payload->record);
    const auto objects = ObjectsOf(**opened);
    for (const auto& [id, contents] : whole.objects()) {
      if (id == of_record) continue;
      EXPECT_EQ(objects.at(id), contents) << "object " << id;
    }
    EXPECT_TRUE(ScanStore(disk)->faults.empty());
    ++lost;
  }
  EXPECT_GE(lost, 6u);
}

// After a power cut wherever: nothing is taken for damage.
TEST(StoreScanTest, WhatAPowerCutLeavesIsNoFault) {
  uint64_t cut_off = 0, cuts = 0;
  for (uint64_t calls = 0; calls < 400; calls += 1) {
    PowerCutDisk disk;
    {
      auto store = OpenedStore(disk);
      std::vector<ObjectId> ids;
      for (int i = 0; i < 3; ++i) ids.push_back(store->Create("blob", 1).value());
      EXPECT_TRUE(store->FlushAll().ok());
      disk.CutPowerAfter(calls);
      for (VersionNumber version = 2; version < 20; ++version) {
        const ObjectId id = ids[version % 3];
        const std::string bytes(kBytesOfBlock, static_cast<char>('a' + version));
        store->Write(id, version * 70 * kBytesOfBlock, bytes, version).IgnoreError();
        store->SetAttributes(id, absl::StrCat("blob", version), version).IgnoreError();
        store->FlushAll().IgnoreError();
        if (version % 5 == 0) store->Checkpoint().IgnoreError();
      }
    }
    disk.PowerOn(calls);
    const auto result = ScanStore(disk);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->faults.empty())
        << "cut after " << calls << " calls: " << result->faults[0].file << " at "
        << result->faults[0].offset << ": " << result->faults[0].text;
    cut_off += result->cut_off_bytes > 0 ? 1 : 0;
    ++cuts;
  }
  std::cout << cut_off << " of " << cuts << " left a journal that was cut off\n";
  EXPECT_GT(cut_off, 0u);
}

// While an older journal is there a damaged place of a page may be one that a checkpoint was
// writing: but only of pages that a record changed. Else the place that is left may be older.
TEST(StoreScanTest, ARottenPageIsNotTakenForOneThatACheckpointWasWriting) {
  uint64_t told = 0;
  for (uint64_t calls = 1; calls < 40; ++calls) {
    PowerCutDisk disk;
    ObjectId id = 0;
    {
      auto store = OpenedStore(disk);
      id = store->Create("blob", 1).value();
      for (VersionNumber version = 2; version <= 3; ++version) {
        ScannedStore::Write(*store, id, kFarBlock + version, version);
        ASSERT_TRUE(store->FlushAll().ok() && store->Checkpoint().ok());
      }
      ScannedStore::Write(*store, id, 0, 4);
      ASSERT_TRUE(store->FlushAll().ok());
      disk.CutPowerAfter(calls);
      store->Checkpoint().IgnoreError();
    }
    disk.PowerOn(calls);
    uint64_t journals = 0;
    const std::vector<std::string> names = disk.List("").value();
    for (const std::string& name : names) {
      journals += absl::StartsWith(name, kJournalPrefix) ? 1 : 0;
    }
    const auto table = disk.Open(TablePath(id));
    ASSERT_TRUE(table.ok());
    std::string page(kTablePageBytes, '\0');
    int newest = 0;
    uint64_t sequence = 0;
    for (const int place : {0, 1}) {
      ASSERT_TRUE((*table)->Read(OffsetOfPage(1, place), std::span(page.data(), page.size())).ok());
      const auto read = DecodeTablePage(id, 1, page);
      if (!read.ok() || read->sequence < sequence) continue;
      sequence = read->sequence;
      newest = place;
    }
    ASSERT_TRUE((*table)->Write(OffsetOfPage(1, newest) + 100, "rotten").ok());
    auto store = OpenedStore(disk);
    std::string bytes(kBytesOfBlock, '\0');
    // Of what only the newest place tells there would be a hole by the other one.
    const auto read =
        store->Read(id, (kFarBlock + 3) * kBytesOfBlock, std::span(bytes.data(), bytes.size()));
    EXPECT_TRUE(absl::IsDataLoss(read.status())) << "cut after " << calls << " calls";
    told += journals > 1 ? 1 : 0;
  }
  EXPECT_GT(told, 0u);
}

// A journal with records had a header: one that has none is not what a checkpoint had just begun.
TEST(StoreScanTest, AJournalWithRecordsIsNotThrownAwayForItsHeader) {
  const ScannedStore whole;
  MemoryDisk disk;
  StoreFiles files = whole.cut_off();
  const std::string& journal = files.at(whole.journal());
  const JournalHeader header = *DecodeJournalHeader(journal);
  JournalHeader next = header;
  ++next.number;
  std::string bytes = EncodeJournalHeader(next);
  bytes += EncodeRecord(next, 1, 0, EncodePayload(RemoveRecord{.id = whole.ids()[0]}));
  bytes[20] ^= 0x11;
  files[JournalName(next.number)] = bytes;
  ASSERT_NO_FATAL_FAILURE(PutFiles(files, disk));
  EXPECT_TRUE(absl::IsDataLoss(LocalObjectStore::Open(disk, {}).status()));
  const auto result = ScanStore(disk);
  ASSERT_EQ(result->faults.size(), 1u);
  ASSERT_TRUE(ApplyFix(disk, result->faults[0]).ok());
  auto store = OpenedStore(disk);
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(absl::IsNotFound(store->GetAttributes(whole.ids()[0]).status()));
}

// All of a journal that is told whole, with records that are no store's.
class WrittenJournal {
 public:
  explicit WrittenJournal(const JournalHeader& header)
      : header_(header), bytes_(EncodeJournalHeader(header)) {}
  void Add(const JournalRecord& record, bool more = false) {
    begins_ = bytes_.size();
    const uint64_t before = records_++;
    bytes_ += EncodeRecord(header_, records_, before, EncodePayload(record, more));
  }
  const std::string& bytes() const { return bytes_; }
  uint64_t last_begins() const { return begins_; }

 private:
  const JournalHeader header_;
  std::string bytes_;
  uint64_t records_ = 0, begins_ = 0;
};

// A sector that was not written in time is zeros, and may have been to have one bit in it.
TEST(StoreScanTest, ACutOffRecordThatLacksOneBitIsACutOffRecord) {
  const ScannedStore whole;
  const JournalHeader header = *DecodeJournalHeader(whole.files().at(whole.journal()));
  constexpr uint64_t kBitAt = 2000, kFar = 1500;  // in the blob; sectors of zeros around it
  for (const bool is_torn : {true, false}) {
    SCOPED_TRACE(is_torn);
    std::string blob(4000, '\0');
    blob[kBitAt] = 1;
    if (!is_torn) blob.replace(kBitAt - kFar, 2 * kFar, 2 * kFar, 'x');
    WrittenJournal journal(header);
    journal.Add(AttributesRecord{.id = whole.ids()[0], .version = 9, .blob = blob});
    std::string bytes = journal.bytes();
    const uint64_t at = bytes.find(blob) + kBitAt;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    MemoryDisk disk;
    const auto result =
        whole.Scan([&](StoreFiles* files) { files->at(whole.journal()) = bytes; }, &disk);
    EXPECT_EQ(result.faults.size(), is_torn ? 0u : 1u);
    EXPECT_EQ(result.cut_off_bytes > 0, is_torn);
  }
}

// Of an object that was removed nothing is known any more, and its number does not come again.
TEST(StoreScanTest, NoNumberComesAgainFromAHeaderThatIsMadeAnew) {
  MemoryDisk disk;
  ObjectId removed = 0;
  {
    auto store = OpenedStore(disk);
    ASSERT_TRUE(store->Create("kept", 1).ok());
    removed = store->Create("removed", 1).value();
    ASSERT_TRUE(store->FlushAll().ok() && store->Remove(removed).ok() && store->FlushAll().ok());
    ASSERT_TRUE(store->Checkpoint().ok());
  }
  StoreFiles files = FilesOn(disk);
  for (auto& [path, bytes] : files) {
    if (absl::StartsWith(path, kJournalPrefix)) Garble(&bytes, 0, kJournalHeaderBytes);
  }
  MemoryDisk damaged;
  ASSERT_NO_FATAL_FAILURE(PutFiles(files, damaged));
  const auto result = ScanStore(damaged);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->faults.size(), 1u);
  ASSERT_TRUE(ApplyFix(damaged, result->faults[0]).ok());
  auto store = OpenedStore(damaged);
  ASSERT_NE(store, nullptr);
  EXPECT_GT(store->Create("", 2).value(), removed);
}

// The end of a step is lost: what is left of it counts, also where nothing follows in the journal.
TEST(StoreScanTest, WhatIsLeftOfAStepThatLostItsEndCounts) {
  const ScannedStore whole;
  JournalHeader header = *DecodeJournalHeader(whole.files().at(whole.journal()));
  WrittenJournal older(header);
  older.Add(AttributesRecord{.id = whole.ids()[0], .version = 9, .blob = "of a step"}, true);
  older.Add(AttributesRecord{.id = whole.ids()[1], .version = 9, .blob = "lost"});
  std::string bytes = older.bytes();
  Garble(&bytes, older.last_begins(), bytes.size());
  const std::string name = JournalName(header.number);
  ++header.number;
  WrittenJournal next(header);
  next.Add(AttributesRecord{.id = whole.ids()[3], .version = 9, .blob = "of the next journal"});
  MemoryDisk disk;
  const auto result = whole.Scan(
      [&](StoreFiles* files) {
        files->at(name) = bytes;
        (*files)[JournalName(header.number)] = next.bytes();
      },
      &disk);
  ASSERT_EQ(result.faults.size(), 1u);
  EXPECT_EQ(result.faults[0].file, name);
  auto store = LocalObjectStore::Open(disk, {.salvages = true});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->GetAttributes(whole.ids()[0])->blob, "of a step");
  EXPECT_EQ((*store)->GetAttributes(whole.ids()[3])->blob, "of the next journal");
}

// As LocalObjectStore::MakeWhole() does, a step removes an object and makes it again.
TEST(StoreScanTest, OfAStepThatLostWhatItMadeAgainTheRemovalDoesNotCount) {
  const ScannedStore whole;
  const ObjectId made_again = whole.ids()[0], before = whole.ids()[1], behind = whole.ids()[3];
  const JournalHeader header = *DecodeJournalHeader(whole.files().at(whole.journal()));
  JournalHeader next_header = header;
  ++next_header.number;
  for (const bool is_at_end : {false, true}) {
    SCOPED_TRACE(is_at_end ? "at the end of its journal" : "with a record behind it");
    WrittenJournal journal(header), next(next_header);
    journal.Add(AttributesRecord{.id = before, .version = 9, .blob = "before it"});
    journal.Add(RemoveRecord{.id = made_again, .blocks_before = 2}, /*more=*/true);
    journal.Add(UpdateRecord{.id = made_again, .head = {.version = 9, .blob = "made again"}});
    const uint64_t lost_at = journal.last_begins(), lost_end = journal.bytes().size();
    (is_at_end ? next : journal)
        .Add(AttributesRecord{.id = behind, .version = 9, .blob = "behind it"});
    std::string bytes = journal.bytes();
    Garble(&bytes, lost_at, lost_end - lost_at);
    MemoryDisk disk;
    const auto result = whole.Scan(
        [&](StoreFiles* files) {
          files->at(whole.journal()) = bytes;
          if (is_at_end) (*files)[JournalName(next_header.number)] = next.bytes();
        },
        &disk);
    ASSERT_EQ(result.faults.size(), 1u);
    ASSERT_TRUE(result.faults[0].fix.has_value());
    EXPECT_TRUE(result.faults[0].fix->loses);
    auto store = LocalObjectStore::Open(disk, {});
    ASSERT_TRUE(store.ok()) << store.status();
    const auto attributes = (*store)->GetAttributes(made_again);
    ASSERT_TRUE(attributes.ok()) << attributes.status();
    EXPECT_EQ(attributes->blob, "blob0") << "as its table has it";
    EXPECT_EQ((*store)->GetAttributes(before)->blob, "before it");
    EXPECT_EQ((*store)->GetAttributes(behind)->blob, "behind it");
  }
}

// A journal that was just begun has no more than a header. One that has zeros instead is not it.
TEST(StoreScanTest, AJournalOfZerosIsTold) {
  const ScannedStore whole;
  const JournalHeader header = *DecodeJournalHeader(whole.files().at(whole.journal()));
  MemoryDisk disk;
  StoreFiles files = whole.files();
  files[JournalName(header.number + 1)] = std::string(kJournalHeaderBytes + 5000, '\0');
  ASSERT_NO_FATAL_FAILURE(PutFiles(files, disk));
  EXPECT_TRUE(absl::IsDataLoss(LocalObjectStore::Open(disk, {}).status()));
  const auto result = ScanStore(disk);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->faults.size(), 1u);
  EXPECT_EQ(result->faults[0].file, JournalName(header.number + 1));
  ASSERT_TRUE(result->faults[0].fix.has_value());
  ASSERT_TRUE(ApplyFix(disk, result->faults[0]).ok());
  ASSERT_NO_FATAL_FAILURE(whole.ExpectSameContents(disk));
}

}  // namespace
}  // namespace abacus::objfs
