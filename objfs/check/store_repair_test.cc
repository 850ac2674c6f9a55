// A bit of a real store turned, everywhere: a check tells it or it is where nothing is kept, nobody
// reads anything else than before without being told, and a repair leaves all as it was.

#include "objfs/check/store_repair.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/atomicity/log_file.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/replica/replica_record.h"
#include "objfs/store/journal.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/names.h"
#include "objfs/store/testing/store_files.h"
#include "runtime/testing/sanitized.h"

namespace abacus::objfs {
namespace {

using testing::FilesOn;
using testing::FileSystemWorld;
using testing::PutFiles;
using testing::StoreFiles;

constexpr uint64_t kSlotBytes = ObjectStore::kBlockBytes;
const Caller kSomebody;

// By object, and in it by block, UINT64_MAX its attributes: what is read; an error is empty.
using Contents = std::map<ObjectId, std::map<uint64_t, std::string>>;

Contents ContentsOf(LocalObjectStore& store) {
  Contents contents;
  const std::vector<ObjectId> ids = store.List(0, 1000).value();
  for (const ObjectId id : ids) {
    std::map<uint64_t, std::string>& object = contents[id];
    const auto attributes = store.GetAttributes(id);
    if (!attributes.ok()) {
      object[UINT64_MAX] = "";
      continue;
    }
    object[UINT64_MAX] = absl::StrCat(attributes->version, " ", attributes->size_bytes, " ",
                                      attributes->allocated_bytes, " ", attributes->blob);
    for (uint64_t at = 0;;) {
      const auto next = store.NextData(id, at);
      if (!next.ok()) break;
      std::string bytes(kSlotBytes, '\0');
      const auto read = store.Read(id, *next, std::span(bytes.data(), bytes.size()));
      object[*next / kSlotBytes] = read.ok() ? "read: " + bytes.substr(0, *read) : "";
      at = *next / kSlotBytes * kSlotBytes + kSlotBytes;
    }
  }
  return contents;
}

// Whether each reads as before or is an error; that something is not there any more is neither.
bool IsSameOrError(const Contents& before, const Contents& now) {
  if (before.size() != now.size()) return false;
  for (const auto& [id, object] : before) {
    const auto found = now.find(id);
    if (found == now.end()) return false;
    const auto attributes = found->second.find(UINT64_MAX);
    if (attributes->second.empty()) continue;
    if (found->second.size() != object.size()) return false;
    for (const auto& [block, bytes] : object) {
      const auto other = found->second.find(block);
      if (other == found->second.end()) return false;
      if (!other->second.empty() && other->second != bytes) return false;
    }
  }
  return true;
}

// The files of a store that nobody has open, and what they mean.
class State {
 public:
  State() = default;
  explicit State(StoreFiles files) : files_(std::move(files)) {
    MemoryDisk copy;
    PutFiles(files_, copy);
    FindLogged(copy);
    auto store = LocalObjectStore::Open(copy, {}).value();
    contents_ = ContentsOf(*store);
    EXPECT_TRUE(store->Checkpoint().ok());
    store.reset();
    FindNamed(FilesOn(copy));
  }
  const StoreFiles& files() const { return files_; }
  const Contents& contents() const { return contents_; }
  // Whether a byte of a data file is in a slot that no table names, or of which the journal has the
  // contents, which opening the store writes anew.
  bool IsKeptNowhere(const std::string& path, uint64_t byte, uint64_t* logged) const {
    const auto id = path.size() > 2 ? NumberIn(path.substr(2), "", ".d") : std::nullopt;
    if (!id.has_value()) return false;
    const std::pair<ObjectId, uint64_t> slot(*id, byte / kSlotBytes);
    if (!named_.contains(slot)) return true;
    *logged += logged_.contains(slot) ? 1 : 0;
    return logged_.contains(slot);
  }

 private:
  void FindLogged(Disk& disk) {
    const auto take = [this](const JournalRecord& record) {
      if (const auto* contents = std::get_if<ContentsRecord>(&record)) {
        logged_.emplace(contents->id, contents->slot);
      }
      return absl::OkStatus();
    };
    for (const auto& [path, bytes] : files_) {
      if (!absl::StartsWith(path, kJournalPrefix)) continue;
      EXPECT_TRUE(ReadJournal(disk, path, take).ok());
    }
  }
  void FindNamed(const StoreFiles& checkpointed) {
    for (const auto& [path, bytes] : checkpointed) {
      const auto id = path.size() > 2 ? NumberIn(path.substr(2), "", ".t") : std::nullopt;
      if (!id.has_value()) continue;
      for (uint64_t page = 0; OffsetOfPage(page, 0) < bytes.size(); ++page) {
        std::optional<TablePage> newest;
        for (const int place : {0, 1}) {
          if (OffsetOfPage(page, place) >= bytes.size()) continue;
          const std::string of_place = bytes.substr(OffsetOfPage(page, place), kTablePageBytes);
          auto read = DecodeTablePage(*id, page, of_place);
          if (!read.ok() || (newest.has_value() && newest->sequence > read->sequence)) continue;
          newest = *std::move(read);
        }
        if (!newest.has_value()) continue;
        for (const auto& [block, entry] : newest->blocks) named_.emplace(*id, entry.slot);
      }
    }
  }

  StoreFiles files_;
  Contents contents_;
  std::set<std::pair<ObjectId, uint64_t>> named_, logged_;
};

// A volume with tables in both places and of several pages, a journal with contents, updates and
// removals, holes, and slots that nothing is in.
class SmallVolume {
 public:
  SmallVolume() {
    for (int session = 0; session < 3; ++session) {
      FileSystemWorld world(2, &disk_);
      const auto at = world.Client(1);
      if (session == 0) Make(*at);
      for (const auto& [name, id] : files_) {
        Write(*at, id, 0, 3000 + 1000 * session, static_cast<char>('a' + session));
      }
      Write(*at, files_["sparse"], 250 * kSlotBytes, 500, static_cast<char>('k' + session));
      Write(*at, files_["large"], kSlotBytes, 7 * kSlotBytes, static_cast<char>('p' + session));
      if (session == 2) {
        EXPECT_TRUE(at->Unlink(kSomebody, at->root(), "gone").ok());
        files_.erase("gone");
      }
      EXPECT_TRUE(world.store().FlushAll().ok());
      if (session == 2) killed_ = State(FilesOn(disk_));
    }
    ended_ = State(FilesOn(disk_));
  }
  const State& killed() const { return killed_; }
  const State& ended() const { return ended_; }

 private:
  void Make(FileSystem& at) {
    for (const std::string name : {"small", "sparse", "large", "gone", "other"}) {
      const auto made = at.Make(kSomebody, at.root(), name, S_IFREG | 0644, 0, "");
      ASSERT_TRUE(made.ok()) << made.status();
      files_[name] = made->id;
    }
    ASSERT_TRUE(at.Make(kSomebody, at.root(), "d", S_IFDIR | 0755, 0, "").ok());
    ASSERT_TRUE(at.Make(kSomebody, at.root(), "l", S_IFLNK | 0777, 0, "small").ok());
  }
  void Write(FileSystem& at, ObjectId id, uint64_t offset, uint64_t bytes, char c) {
    const auto handle = at.Open(kSomebody, id, O_RDWR);
    ASSERT_TRUE(handle.ok()) << handle.status();
    const std::string text(bytes, c);
    EXPECT_TRUE(at.Write(*handle, offset, runtime::Block::CopyOf(text)).ok());
    EXPECT_TRUE(at.Release(*handle).ok());
  }
  MemoryDisk disk_;
  std::map<std::string, ObjectId> files_;
  State killed_, ended_;
};

CheckReport CheckStore(Disk& disk, bool repair) {
  auto report = CheckVolumeOn(disk, {.repair = repair, .data = true});
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : CheckReport();
}

std::string LinesOf(const CheckReport& report) {
  std::string lines;
  for (const Fault& fault : report.faults) absl::StrAppend(&lines, fault.Line(), "\n");
  return lines;
}

Contents ContentsOn(Disk& disk) {
  auto store = LocalObjectStore::Open(disk, {});
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? ContentsOf(**store) : Contents();
}

struct Sweep {
  uint64_t told = 0, set_right = 0, unused = 0, logged = 0, silent_at_opening = 0;
};

// Looks at one bit of a store that was ended, or killed.
void TryBit(const State& state, bool was_ended, const std::string& path, uint64_t byte, int bit,
            Sweep* sweep) {
  StoreFiles files = state.files();
  char& c = files[path][byte];
  c = static_cast<char>(static_cast<uint8_t>(c) ^ (1u << bit));
  const bool is_data = absl::EndsWith(path, ".d");
  {
    MemoryDisk disk;
    ASSERT_NO_FATAL_FAILURE(PutFiles(files, disk));
    auto store = LocalObjectStore::Open(disk, {});
    if (store.ok() && !IsSameOrError(state.contents(), ContentsOf(**store))) {
      // What was synced last, by a server that was killed: the end that a crash cuts off looks so.
      ++sweep->silent_at_opening;
      EXPECT_FALSE(was_ended);
      EXPECT_TRUE(absl::StartsWith(path, kJournalPrefix));
    }
  }
  MemoryDisk disk;
  ASSERT_NO_FATAL_FAILURE(PutFiles(files, disk));
  const CheckReport found = CheckStore(disk, false);
  ASSERT_EQ(FilesOn(disk), files);  // nothing is written
  if (found.found == 0) {
    const bool is_nowhere = state.IsKeptNowhere(path, byte, &sweep->logged);
    EXPECT_TRUE(is_nowhere) << "not told";
    EXPECT_EQ(ContentsOn(disk), state.contents());
    ++sweep->unused;
    return;
  }
  ++sweep->told;
  const CheckReport repaired = CheckStore(disk, true);
  EXPECT_GT(repaired.found, 0u);
  const CheckReport again = CheckStore(disk, false);
  EXPECT_EQ(again.found, repaired.left()) << LinesOf(repaired) << "then\n" << LinesOf(again);
  if (is_data) {
    // A file's bytes are lost, and reading them is an error; a directory's are made anew.
    for (const Fault& fault : again.faults) EXPECT_EQ(fault.kind, FaultKind::kData);
    return;
  }
  EXPECT_EQ(repaired.left(), 0u) << LinesOf(repaired);
  EXPECT_FALSE(repaired.faults[0].place.empty());
  EXPECT_TRUE(absl::StartsWith(repaired.faults[0].place, path)) << repaired.faults[0].place;
  EXPECT_EQ(ContentsOn(disk), state.contents());
  ++sweep->set_right;
}

void SweepStore(const State& state, bool was_ended, uint64_t every) {
  std::mt19937_64 random(every + (was_ended ? 1 : 0));
  Sweep sweep;
  for (const auto& [path, bytes] : state.files()) {
    for (uint64_t at = 0; at < bytes.size() && !::testing::Test::HasFailure(); at += every) {
      const uint64_t byte = at + random() % std::min<uint64_t>(every, bytes.size() - at);
      SCOPED_TRACE(absl::StrCat(path, " byte ", byte, was_ended ? "" : ", killed"));
      ASSERT_NO_FATAL_FAILURE(
          TryBit(state, was_ended, path, byte, static_cast<int>(random() % 8), &sweep));
    }
  }
  std::cout << (was_ended ? "ended" : "killed") << ": " << sweep.told << " told, of these "
            << sweep.set_right << " set right; " << sweep.unused
            << " where nothing is kept, of these " << sweep.logged
            << " of which the journal has it; " << sweep.silent_at_opening
            << " that opening would take for a crash\n";
  EXPECT_GT(sweep.set_right * every, uint64_t{300} * 256);
  EXPECT_GT(sweep.told, sweep.set_right);
  EXPECT_GT(sweep.unused, sweep.logged);
  EXPECT_GT(sweep.logged, 0u);
}

TEST(StoreRepairTest, ABitTurnedAnywhereIsToldOrWhereNothingIsKept) {
  const SmallVolume volume;
  const uint64_t every = std::getenv("ABACUS_LONG") != nullptr ? 16
                         : runtime::testing::kSanitized        ? 1024
                                                               : 256;
  SweepStore(volume.ended(), true, every);
  SweepStore(volume.killed(), false, every);
}

TEST(StoreRepairTest, LostRecordsAreLeftOutWhereNobodyElseHasThem) {
  const SmallVolume volume;
  for (uint64_t seed = 0; seed < 30 && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    StoreFiles files = volume.ended().files();
    std::string name;
    for (auto& [path, bytes] : files) {
      if (!absl::StartsWith(path, kJournalPrefix)) continue;
      name = path;
      // Not what the end of the store wrote.
      const uint64_t at = kJournalHeaderBytes + random() % (bytes.size() - 200);
      for (uint64_t i = at; i < at + 60; ++i) bytes[i] = static_cast<char>(random());
    }
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    MemoryDisk disk;
    ASSERT_NO_FATAL_FAILURE(PutFiles(files, disk));
    const CheckReport found = CheckStore(disk, false);
    ASSERT_EQ(found.found, 1u) << LinesOf(found);
    EXPECT_EQ(found.faults[0].kind, FaultKind::kJournal);
    // Never of what others have the same of.
    {
      MemoryDisk columns;
      ASSERT_NO_FATAL_FAILURE(PutFiles(files, columns));
      CheckReport report;
      ASSERT_TRUE(CheckColumnsOn(columns, {.repair = true}, &report).ok());
      EXPECT_EQ(report.left(), 1u) << LinesOf(report);
      EXPECT_TRUE(absl::StrContains(report.faults[0].text, "abacus rebuild"));
      EXPECT_EQ(FilesOn(columns), files);
      MemoryDisk copy;
      ASSERT_NO_FATAL_FAILURE(PutFiles(files, copy));
      ASSERT_TRUE(ReplicaRecord({.epoch = 3, .is_whole = true}).Save(copy).ok());
      const CheckReport of_copy = CheckStore(copy, true);
      EXPECT_EQ(of_copy.left(), 1u) << LinesOf(of_copy);
      EXPECT_TRUE(absl::StrContains(of_copy.faults[0].text, "made anew from there"));
    }
    const CheckReport repaired = CheckStore(disk, true);
    const CheckReport again = CheckStore(disk, false);
    EXPECT_EQ(again.found, repaired.left()) << LinesOf(repaired) << "then\n" << LinesOf(again);
    for (const Fault& fault : again.faults) EXPECT_EQ(fault.kind, FaultKind::kData);
  }
}

TEST(StoreRepairTest, TheRecordOfACopyIsLookedAt) {
  const SmallVolume volume;
  MemoryDisk disk;
  ASSERT_NO_FATAL_FAILURE(PutFiles(volume.ended().files(), disk));
  const ReplicaRecord record{.epoch = 3, .is_whole = true};
  ASSERT_TRUE(record.Save(disk).ok());
  EXPECT_EQ(CheckStore(disk, false).found, 0u);
  for (uint64_t byte = 0; byte < ReplicaRecord::kBytes; ++byte) {
    std::string bytes = record.Encode();
    bytes[byte] = static_cast<char>(bytes[byte] ^ 4);
    ASSERT_TRUE((*disk.Open("replica"))->Write(0, bytes).ok());
    const CheckReport found = CheckStore(disk, false);
    ASSERT_EQ(found.found, 1u) << "byte " << byte;
    EXPECT_EQ(found.faults[0].kind, FaultKind::kReplica);
    EXPECT_EQ(CheckStore(disk, true).left(), 0u);
    EXPECT_EQ(ReplicaRecord::Load(disk).value(), record);
  }
  ASSERT_TRUE((*disk.Open("replica"))->Write(3, "rotten").ok());
  const CheckReport found = CheckStore(disk, true);
  EXPECT_EQ(found.left(), 1u);
  EXPECT_TRUE(absl::StrContains(found.faults[0].text, "move this directory away"));
}

TEST(StoreRepairTest, TheLogOfGroupsIsLookedAt) {
  MemoryDisk disk;
  ASSERT_TRUE(LocalObjectStore::Open(disk, {}).ok());
  const std::string state = "what is prepared";
  uint64_t end = 0;
  {
    const auto log = LogFile::Open(disk, 3, LogFile::kHalfBytesMin, state);
    ASSERT_TRUE(log.ok()) << log.status();
    end = LogFile::kHeaderBytes + kLogHeaderBytes + state.size();
  }
  CheckReport whole;
  ASSERT_TRUE(CheckColumnsOn(disk, {}, &whole).ok());
  EXPECT_EQ(whole.found, 0u) << LinesOf(whole);
  const auto file = *disk.Open(LogFile::Name());
  for (uint64_t at = 0; at < end; ++at) {
    char byte = 0;
    ASSERT_EQ(*file->Read(at, std::span(&byte, 1)), 1u);
    const char rotten = static_cast<char>(byte ^ 8);
    // Behind what is sealed of the header there is nothing.
    const bool counts = at < 44 || at >= LogFile::kHeaderBytes;
    ASSERT_TRUE(file->Write(at, std::string_view(&rotten, 1)).ok());
    CheckReport found;
    ASSERT_TRUE(CheckColumnsOn(disk, {.repair = true}, &found).ok());
    ASSERT_EQ(found.left(), counts ? 1u : 0u) << "byte " << at << ": " << LinesOf(found);
    if (counts) {
      EXPECT_EQ(found.faults[0].kind, FaultKind::kLog);
      EXPECT_TRUE(absl::StrContains(found.faults[0].text, "abacus rebuild"));
    }
    ASSERT_TRUE(file->Write(at, std::string_view(&byte, 1)).ok());
  }
}

}  // namespace
}  // namespace abacus::objfs
