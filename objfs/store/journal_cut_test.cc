// The power goes while a store writes to its journal, or a byte of it rots: what is opened then is
// held against a model of each step.

#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "objfs/store/format.h"
#include "objfs/store/journal.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/names.h"
#include "objfs/store/store_scan.h"
#include "objfs/store/testing/model_object.h"
#include "objfs/store/testing/store_files.h"

namespace abacus::objfs {
namespace {

using ModelObjects = std::map<ObjectId, testing::ModelObject>;

// One write to the journal, which goes to its end, of a step that a flush waits for.
struct JournalWrite {
  testing::StoreFiles files;    // all that was written by then
  testing::StoreFiles durable;  // the same without contents that no sync had been told to keep
  uint64_t begins = 0;
  uint64_t counts_at = 0;  // the journal has all of the step when it has so many bytes
  ModelObjects before, after;

  // What the store has by the first bytes of the journal.
  const ModelObjects& At(uint64_t bytes) const { return bytes < counts_at ? before : after; }
};

// Steps of every kind behind a checkpoint, each flushed before the next one begins.
class JournalHistory {
 public:
  JournalHistory() {
    store_ = LocalObjectStore::Open(disk_, {.ids_batch = 16}).value();
    for (int i = 0; i < 4; ++i) {
      const ObjectId id = store_->Create("old", ++version_).value();
      objects_[id] = {.blob = "old", .version = version_};
      ids_.push_back(id);
      Write(id, 0, 2 * testing::kBlock);
    }
    EXPECT_TRUE(store_->FlushAll().ok() && store_->Checkpoint().ok());
    durable_ = testing::FilesOn(below_);
    for (const auto& [path, bytes] : durable_) {
      if (absl::StartsWith(path, kJournalPrefix)) journal_ = path;
    }
    journal_bytes_ = durable_.at(journal_).size();
    recording_ = true;
    Steps();
    store_.reset();
    ended_ = testing::FilesOn(below_);
  }

  const std::vector<JournalWrite>& writes() const { return writes_; }
  const std::string& journal() const { return journal_; }
  // After an orderly end.
  const testing::StoreFiles& ended() const { return ended_; }
  const ModelObjects& objects() const { return objects_; }
  ObjectId last_id() const { return ids_.back(); }

 private:
  void Steps() {
    Step([this] { Update({ids_[0]}, 0); });
    Step([this] { Write(ids_[1], 100, 50); });                      // by the journal alone
    Step([this] { Write(ids_[2], 0, 6 * testing::kBlock); });       // by its data file
    Step([this] { Update({ids_[0], ids_[1], ids_[3]}, 0); });       // of several records
    Step([this] { Update({ids_[3], ids_[0]}, testing::kBlock); });  // and with contents
    const ObjectId made = Made();
    Step([&] {
      EXPECT_TRUE(store_->Truncate(ids_[2], testing::kBlock, ++version_).ok());
      objects_[ids_[2]].Truncate(testing::kBlock, version_);
    });
    Step([&] {
      EXPECT_TRUE(store_->Remove(ids_[1]).ok());
      objects_.erase(ids_[1]);
    });
    Step([&] { Update({made, ids_[2]}, 0); });
  }

  void Step(const std::function<void()>& change) {
    const ModelObjects before = objects_;
    const size_t made = writes_.size();
    change();
    EXPECT_TRUE(store_->FlushAll().ok());
    EXPECT_GT(writes_.size(), made);
    for (size_t i = made; i < writes_.size(); ++i) {
      writes_[i].before = before;
      writes_[i].after = objects_;
      writes_[i].counts_at = journal_bytes_;
    }
  }
  // Its creation, which a record of its own tells, and then a flush that changes nothing.
  ObjectId Made() {
    const size_t first = writes_.size();
    Step([this] {
      ids_.push_back(store_->Create("new", ++version_).value());
      objects_[ids_.back()] = {.blob = "new", .version = version_};
    });
    const UpdateRecord record{.id = ids_.back(), .head = {.version = version_, .blob = "new"}};
    const uint64_t bytes = kRecordHeaderBytes + EncodePayload(record).size();
    for (size_t i = first; i < writes_.size(); ++i) {
      writes_[i].counts_at = writes_[first].begins + bytes;
    }
    return ids_.back();
  }
  void Write(ObjectId id, uint64_t offset, uint64_t count) {
    const std::string bytes = testing::RandomBytes(random_, count);
    EXPECT_TRUE(store_->Write(id, offset, bytes, ++version_).ok());
    objects_[id].Write(offset, bytes, version_);
  }
  // Of all of them at once: the attributes, and of the first one so many bytes.
  void Update(const std::vector<ObjectId>& ids, uint64_t count) {
    const std::string bytes = testing::RandomBytes(random_, count);
    ++version_;
    std::vector<ObjectUpdate> updates;
    for (const ObjectId id : ids) {
      const std::string blob = absl::StrCat("attributes of ", id, " at ", version_);
      ObjectUpdate update{.id = id, .writes = {}, .blob = blob};
      if (updates.empty() && count > 0) {
        update.writes.push_back({0, bytes});
        objects_[id].Write(0, bytes, version_);
      }
      updates.push_back(std::move(update));
      objects_[id].blob = blob;
      objects_[id].version = version_;
    }
    EXPECT_TRUE(store_->Update(updates, version_).ok());
  }

  // Asked before each call to the disk. The journal is synced right after it was written to.
  absl::Status Note(std::string_view call, const std::string& path) {
    if (!recording_ || call != "sync") return absl::OkStatus();
    if (absl::EndsWith(path, ".d")) durable_[path] = ReadWhole(below_, path).value();
    if (path != journal_) return absl::OkStatus();
    JournalWrite write{.files = testing::FilesOn(below_), .begins = journal_bytes_};
    for (const auto& [name, bytes] : write.files) {
      if (!absl::EndsWith(name, ".d")) {
        write.durable[name] = bytes;
      } else if (const auto kept = durable_.find(name); kept != durable_.end()) {
        write.durable[name] = kept->second;
      }
    }
    journal_bytes_ = write.files.at(journal_).size();
    writes_.push_back(std::move(write));
    return absl::OkStatus();
  }

  MemoryDisk below_;
  ModelDisk disk_{below_, {.fault = [this](std::string_view call, const std::string& path) {
                    return Note(call, path);
                  }}};
  std::unique_ptr<LocalObjectStore> store_;
  std::mt19937_64 random_{1};
  bool recording_ = false;
  std::string journal_;
  uint64_t journal_bytes_ = 0;
  testing::StoreFiles durable_;  // contents as they were when they were synced last
  std::vector<JournalWrite> writes_;
  testing::StoreFiles ended_;
  std::vector<ObjectId> ids_;
  ModelObjects objects_;
  VersionNumber version_ = 0;
};

// The next byte to look at of a write: each, but for the middle of long ones, which is contents.
uint64_t NextByte(uint64_t at, uint64_t begins, uint64_t end) {
  constexpr uint64_t kEach = 300, kStride = 101;
  const bool is_inside = at >= begins + kEach && at + kEach + kStride < end;
  return at + (is_inside ? kStride : 1);
}

void PutJournal(const testing::StoreFiles& files, const std::string& name, std::string journal,
                Disk& disk) {
  testing::StoreFiles with = files;
  with.at(name) = std::move(journal);
  testing::PutFiles(with, disk);
}

std::string WithWrongByte(std::string journal, uint64_t at) {
  journal[at] = static_cast<char>(~journal[at]);
  return journal;
}

// The store has exactly these objects, and no number comes again up to `last_id`.
void ExpectObjects(Disk& disk, const ModelObjects& expected, ObjectId last_id) {
  auto opened = LocalObjectStore::Open(disk, {});
  ASSERT_TRUE(opened.ok()) << opened.status();
  LocalObjectStore& store = **opened;
  const auto ids = store.List(0, 100);
  ASSERT_TRUE(ids.ok()) << ids.status();
  ModelObjects found;
  uint64_t used_bytes = 0;
  for (const ObjectId id : *ids) {
    auto object = testing::ReadObject(store, id);
    ASSERT_TRUE(object.ok()) << "object " << id << ": " << object.status();
    used_bytes += object->AllocatedBytes();
    found[id] = *std::move(object);
  }
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [id, object] : expected) {
    ASSERT_TRUE(found.contains(id)) << "object " << id << " is gone";
    ASSERT_TRUE(found[id] == object)
        << "object " << id << " has '" << found[id].blob << "', version " << found[id].version
        << ", and not '" << object.blob << "', version " << object.version;
  }
  EXPECT_EQ(store.Space()->used_bytes, used_bytes);
  EXPECT_GT(store.Create("", 1).value(), last_id);
}

TEST(JournalCutTest, CutAtAnyByteItLeavesAPrefixOfTheStepsAndAllThatWasAcknowledged) {
  const JournalHistory history;
  uint64_t cuts = 0;
  for (const JournalWrite& write : history.writes()) {
    const std::string& journal = write.files.at(history.journal());
    for (uint64_t cut = write.begins; cut <= journal.size();
         cut = NextByte(cut, write.begins, journal.size())) {
      for (const testing::StoreFiles* left : {&write.files, &write.durable}) {
        SCOPED_TRACE(absl::StrCat("cut at ", cut, ", written from ", write.begins, " to ",
                                  journal.size(), left == &write.files ? "" : ", no contents"));
        MemoryDisk disk;
        ASSERT_NO_FATAL_FAILURE(PutJournal(*left, history.journal(), journal.substr(0, cut), disk));
        const auto scanned = ScanStore(disk);
        ASSERT_TRUE(scanned.ok()) << scanned.status();
        EXPECT_TRUE(scanned->faults.empty()) << scanned->faults[0].text;
        ASSERT_NO_FATAL_FAILURE(ExpectObjects(disk, write.At(cut), history.last_id()));
        ++cuts;
      }
    }
  }
  std::cout << cuts << " cuts\n";
  EXPECT_GT(cuts, 2'000u);
}

TEST(JournalCutTest, AWrongByteOfWhatWasNotAcknowledgedCostsThatStepAlone) {
  const JournalHistory history;
  for (const JournalWrite& write : history.writes()) {
    const std::string& journal = write.files.at(history.journal());
    for (uint64_t at = write.begins; at < journal.size();
         at = NextByte(at, write.begins, journal.size())) {
      SCOPED_TRACE(
          absl::StrCat("byte ", at, " of a write from ", write.begins, " to ", journal.size()));
      MemoryDisk disk;
      ASSERT_NO_FATAL_FAILURE(
          PutJournal(write.files, history.journal(), WithWrongByte(journal, at), disk));
      ASSERT_NO_FATAL_FAILURE(ExpectObjects(disk, write.At(at), history.last_id()));
    }
  }
}

// By what was written after it: the next step, or what the end of a store writes.
TEST(JournalCutTest, AWrongByteOfWhatWasAcknowledgedIsTold) {
  constexpr uint64_t kStride = 5;
  const JournalHistory history;
  const JournalWrite& last = history.writes().back();
  const uint64_t written = last.files.at(history.journal()).size();
  for (const auto& [files, acknowledged] :
       {std::pair(&last.files, last.begins), std::pair(&history.ended(), written)}) {
    const std::string& journal = files->at(history.journal());
    ASSERT_GT(journal.size(), acknowledged);
    for (uint64_t at = 0; at < acknowledged; at += kStride) {
      MemoryDisk disk;
      ASSERT_NO_FATAL_FAILURE(
          PutJournal(*files, history.journal(), WithWrongByte(journal, at), disk));
      const absl::Status status = LocalObjectStore::Open(disk, {}).status();
      ASSERT_TRUE(absl::IsDataLoss(status))
          << "byte " << at << " of " << acknowledged << ": " << status;
    }
  }
}

TEST(JournalCutTest, WhatTheEndOfAStoreWritesSaysNothingItself) {
  const JournalHistory history;
  const std::string& journal = history.ended().at(history.journal());
  const uint64_t written = history.writes().back().files.at(history.journal()).size();
  ASSERT_GT(journal.size(), written);
  for (uint64_t at = written; at < journal.size(); ++at) {
    SCOPED_TRACE(at);
    for (const std::string& left : {journal.substr(0, at), WithWrongByte(journal, at)}) {
      MemoryDisk disk;
      ASSERT_NO_FATAL_FAILURE(PutJournal(history.ended(), history.journal(), left, disk));
      ASSERT_NO_FATAL_FAILURE(ExpectObjects(disk, history.objects(), history.last_id()));
    }
  }
}

// It is durable before the first record is written.
TEST(JournalCutTest, ACutInTheHeaderIsDamage) {
  const JournalHistory history;
  const JournalWrite& last = history.writes().back();
  for (uint64_t cut = 0; cut < kJournalHeaderBytes; ++cut) {
    MemoryDisk disk;
    ASSERT_NO_FATAL_FAILURE(PutJournal(last.files, history.journal(),
                                       last.files.at(history.journal()).substr(0, cut), disk));
    EXPECT_TRUE(absl::IsDataLoss(LocalObjectStore::Open(disk, {}).status())) << cut;
  }
}

}  // namespace
}  // namespace abacus::objfs
