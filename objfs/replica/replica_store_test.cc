#include "objfs/replica/replica_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

using Kind = ReplicaOperation::Kind;

ReplicaBatch OneBatch(uint64_t first, Kind kind, ObjectId id, const std::string& blob,
                      ReplicaFlush flush = ReplicaFlush::kNone) {
  ReplicaOperation operation{.kind = kind, .version = first + 1, .parts = {}};
  operation.parts.push_back({.id = id, .writes = {}, .blob = blob});
  return {.first = first, .operations = {operation}, .flush = flush, .ids = {}};
}
ReplicaBatch Creation(uint64_t first, ObjectId id, ReplicaFlush flush = ReplicaFlush::kNone) {
  return OneBatch(first, Kind::kCreate, id, "blob", flush);
}
ReplicaBatch OnlyFlush(uint64_t first, ReplicaFlush flush) {
  return {.first = first, .operations = {}, .flush = flush, .ids = {}};
}

class ReplicaStoreTest : public ::testing::Test {
 protected:
  static constexpr absl::StatusCode kOfItsDisk = absl::StatusCode::kInternal;
  ReplicaStoreTest() { Open(); }
  void Open() {
    copy_.reset();
    auto opened = ReplicaStore::Open(disk_, {});
    ASSERT_TRUE(opened.ok()) << opened.status();
    copy_ = *std::move(opened);
  }
  void CrashAndOpen() {
    copy_.reset();
    disk_->CutPower();
    disk_->PowerOn(++seed_);
    Open();
  }
  // A session whose resync has come to its end, with one object.
  void MakeWhole() {
    ASSERT_TRUE(copy_->Begin(1, 1).ok());
    ASSERT_TRUE(copy_->Apply(1, 1, Creation(1, 10, ReplicaFlush::kFinish)).ok());
    ASSERT_TRUE(IsWhole());
  }
  bool IsWhole() { return copy_->State()->is_whole; }
  // Does `step` at a whole copy whose disk answers as one that is read-only, or is somebody else's:
  // to every call, or to calls of each one kind on files whose names begin with `name`.
  void ForEachForbidden(const std::string& name,
                        const std::function<void(std::string_view call)>& step) {
    std::vector<std::string> calls = {""};
    if (!name.empty()) calls = {"create", "write", "sync", "rename"};
    for (const int error : {EACCES, EPERM, EROFS}) {
      for (const std::string& call : calls) {
        SCOPED_TRACE(absl::StrCat(call, ": ", strerror(error)));
        std::atomic<bool> forbids{false};
        DiskModel model;
        model.wait = [](absl::Duration) {};
        model.fault = [&](std::string_view what, const std::string& path) {
          const bool is_it = (call.empty() || what == call) && path.starts_with(name);
          return forbids && is_it ? absl::ErrnoToStatus(error, "the disk") : absl::OkStatus();
        };
        copy_.reset();
        disk_ = std::make_shared<PowerCutDisk>();
        copy_ = *ReplicaStore::Open(std::make_shared<ModelDisk>(*disk_, std::move(model)), {});
        ASSERT_NO_FATAL_FAILURE(MakeWhole());
        ReplicaBatch bytes = OneBatch(2, Kind::kWrite, 10, "", ReplicaFlush::kAll);
        bytes.operations.front().parts.front().writes = {{0, runtime::Block::CopyOf("bytes")}};
        ASSERT_TRUE(copy_->Apply(1, 1, bytes).ok());
        if (begins_) {
          ASSERT_TRUE(copy_->Begin(2, 1).ok());
        }
        forbids = true;
        step(call);
        copy_.reset();
      }
    }
  }

  std::shared_ptr<PowerCutDisk> disk_ = std::make_shared<PowerCutDisk>();
  std::unique_ptr<ReplicaStore> copy_;
  uint64_t seed_ = 0;
  bool begins_ = false;  // another session, before a disk forbids
};

TEST_F(ReplicaStoreTest, AnEmptyOneIsNotWholeUntilAResyncHasEnded) {
  EXPECT_FALSE(IsWhole());
  EXPECT_TRUE(absl::IsFailedPrecondition(copy_->Retire(5)));
  MakeWhole();
  CrashAndOpen();
  EXPECT_TRUE(IsWhole());
  EXPECT_EQ(copy_->State()->objects, 1u);
}

TEST_F(ReplicaStoreTest, EarlierEpochsAreRefusedAlsoAfterARestart) {
  MakeWhole();
  ASSERT_TRUE(copy_->Begin(7, 1).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Apply(1, 1, Creation(2, 11))));
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Begin(6, 100).status()));
  CrashAndOpen();
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Begin(6, 100).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Apply(1, 1, Creation(2, 11))));
  EXPECT_EQ(copy_->State()->objects, 1u);
  EXPECT_TRUE(IsWhole()) << "nothing of a later epoch has changed it";
  EXPECT_TRUE(copy_->Begin(7, 1).ok());
}

TEST_F(ReplicaStoreTest, EarlierSessionsAreRefused) {
  MakeWhole();
  ASSERT_TRUE(copy_->Begin(1, 2).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Apply(1, 1, Creation(2, 11))));
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Begin(1, 2).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Begin(1, 1).status()));
  EXPECT_TRUE(IsWhole());
}

TEST_F(ReplicaStoreTest, ASessionThatWasNotBegunIsRefusedAndChangesNothing) {
  MakeWhole();
  EXPECT_TRUE(absl::IsFailedPrecondition(copy_->Apply(1, 2, Creation(1, 11))));
  EXPECT_TRUE(absl::IsFailedPrecondition(copy_->Apply(2, 1, Creation(1, 11))));
  CrashAndOpen();
  EXPECT_TRUE(absl::IsFailedPrecondition(copy_->Apply(1, 1, Creation(2, 11))))
      << "what was not flushed is lost: its primary has to begin anew";
  EXPECT_TRUE(IsWhole());
  EXPECT_EQ(copy_->State()->objects, 1u);
}

TEST_F(ReplicaStoreTest, WhoMissedAnOperationIsNotWholeAndTakesNoMore) {
  for (const uint64_t first : {3u, 1u}) {  // one is missing; one comes twice
    SCOPED_TRACE(first);
    disk_ = std::make_shared<PowerCutDisk>();
    Open();
    MakeWhole();
    EXPECT_TRUE(absl::IsFailedPrecondition(copy_->Apply(1, 1, Creation(first, 11))));
    EXPECT_FALSE(IsWhole());
    EXPECT_TRUE(absl::IsFailedPrecondition(copy_->Apply(1, 1, Creation(2, 11))));
    EXPECT_EQ(copy_->State()->objects, 1u);
    CrashAndOpen();
    EXPECT_FALSE(IsWhole());
    EXPECT_TRUE(absl::IsFailedPrecondition(copy_->Retire(9)));
  }
}

TEST_F(ReplicaStoreTest, WhatItsStoreRefusesMakesItNotWhole) {
  MakeWhole();
  EXPECT_TRUE(absl::IsAlreadyExists(copy_->Apply(1, 1, Creation(2, 10))));
  EXPECT_FALSE(IsWhole());
  CrashAndOpen();
  EXPECT_FALSE(IsWhole());
}

TEST_F(ReplicaStoreTest, ADiskThatForbidsSomethingIsNoLaterPrimary) {
  ASSERT_NO_FATAL_FAILURE(ForEachForbidden("", [this](std::string_view) {
    EXPECT_EQ(copy_->Apply(1, 1, Creation(3, 11, ReplicaFlush::kAll)).code(), kOfItsDisk);
    EXPECT_EQ(copy_->Begin(2, 1).status().code(), kOfItsDisk);
    EXPECT_EQ(copy_->State().status().code(), kOfItsDisk) << "which asks for its space";
    EXPECT_EQ(copy_->ReadBlock(10, 0).status().code(), kOfItsDisk);
    EXPECT_EQ(copy_->Describe(10, 0, 1, true).status().code(), kOfItsDisk);
  }));
}

TEST_F(ReplicaStoreTest, ARecordThatTheDiskForbidsToWriteIsNoLaterPrimary) {
  ASSERT_NO_FATAL_FAILURE(ForEachForbidden("replica", [this](std::string_view call) {
    EXPECT_EQ(copy_->Begin(2, 1).status().code(), kOfItsDisk) << call;
  }));
  ASSERT_NO_FATAL_FAILURE(ForEachForbidden("replica", [this](std::string_view call) {
    EXPECT_EQ(copy_->Retire(2).code(), kOfItsDisk) << call;
  }));
}

TEST_F(ReplicaStoreTest, AResyncThatTheDiskForbidsIsNoLaterPrimary) {
  for (const auto flush : {ReplicaFlush::kNone, ReplicaFlush::kAll, ReplicaFlush::kFinish}) {
    begins_ = true;
    ASSERT_NO_FATAL_FAILURE(ForEachForbidden("replica", [&](std::string_view call) {
      // Not whole from its first change on, which is to be written first.
      EXPECT_EQ(copy_->Apply(2, 1, Creation(1, 11, flush)).code(), kOfItsDisk) << call;
    }));
  }
}

TEST_F(ReplicaStoreTest, OperationsThatAreNoneAreRefused) {
  ReplicaBatch without_part{.first = 1, .operations = {{.kind = Kind::kWrite}}};
  ReplicaBatch unknown = Creation(1, 1);
  unknown.operations.front().kind = static_cast<Kind>(99);
  ReplicaBatch without_bytes = OneBatch(1, Kind::kWrite, 1, "");
  uint64_t session = 0;
  for (const ReplicaBatch& batch : {without_part, unknown, without_bytes}) {
    ASSERT_TRUE(copy_->Begin(1, ++session).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(copy_->Apply(1, session, batch)));
  }
}

TEST_F(ReplicaStoreTest, IsNotWholeFromTheFirstChangeOfAResyncOn) {
  MakeWhole();
  ASSERT_TRUE(copy_->Begin(2, 1).ok());
  ASSERT_TRUE(copy_->Apply(2, 1, OnlyFlush(1, ReplicaFlush::kAll)).ok());
  EXPECT_TRUE(IsWhole()) << "nothing has changed";
  ASSERT_TRUE(copy_->Apply(2, 1, Creation(1, 11)).ok());
  EXPECT_FALSE(IsWhole());
  CrashAndOpen();
  EXPECT_FALSE(IsWhole());
  ASSERT_TRUE(copy_->Begin(2, 1).ok());
  ASSERT_TRUE(copy_->Apply(2, 1, OnlyFlush(1, ReplicaFlush::kFinish)).ok());
  CrashAndOpen();
  EXPECT_TRUE(IsWhole());
}

// The power goes at each call of the first batch of a resync: where anything of it is there, it is
// known not to be whole.
TEST_F(ReplicaStoreTest, APowerCutNeverLeavesAHalfResyncedCopyThatIsBelieved) {
  bool is_done = false;
  for (uint64_t cut = 0; !is_done; ++cut) {
    ASSERT_LT(cut, 200u);
    disk_ = std::make_shared<PowerCutDisk>();
    Open();
    MakeWhole();
    ASSERT_TRUE(copy_->Begin(2, 1).ok());
    disk_->CutPowerAfter(cut);
    is_done = copy_->Apply(2, 1, Creation(1, 11, ReplicaFlush::kAll)).ok();
    CrashAndOpen();
    const bool is_changed = copy_->State()->objects != 1;
    EXPECT_FALSE(is_changed && IsWhole()) << cut;
  }
}

TEST_F(ReplicaStoreTest, APowerCutAtTheEndOfAResyncLeavesAllOfItOrACopyThatIsNotWhole) {
  bool is_done = false;
  for (uint64_t cut = 0; !is_done; ++cut) {
    ASSERT_LT(cut, 200u);
    disk_ = std::make_shared<PowerCutDisk>();
    Open();
    ASSERT_TRUE(copy_->Begin(1, 1).ok());
    disk_->CutPowerAfter(cut);
    is_done = copy_->Apply(1, 1, Creation(1, 11, ReplicaFlush::kFinish)).ok();
    CrashAndOpen();
    if (IsWhole()) {
      EXPECT_EQ(copy_->State()->objects, 1u) << cut;
    }
    EXPECT_TRUE(IsWhole() || !is_done);
  }
}

TEST_F(ReplicaStoreTest, WhoIsRetiredTakesNothingAndCanBeOpenedAsThePrimarys) {
  MakeWhole();
  ASSERT_TRUE(copy_->Apply(1, 1, Creation(2, 11)).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Retire(1)));
  ASSERT_TRUE(copy_->Retire(2).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Apply(1, 1, Creation(3, 12))));
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Begin(3, 1).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->List(0, 10).status()));
  copy_.reset();
  const auto primary = OpenPrimaryStore(*disk_, 2, {});
  ASSERT_TRUE(primary.ok()) << primary.status();
  EXPECT_EQ((*primary)->List(0, 10)->size(), 2u);
  EXPECT_EQ(*(*primary)->Create("", 1), uint64_t{2} << 40);
}

TEST_F(ReplicaStoreTest, WhoDiesBetweenItsRetirementAndTheOpeningRefusesTheOldPrimary) {
  MakeWhole();
  ASSERT_TRUE(copy_->Retire(2).ok());
  CrashAndOpen();
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Begin(1, 9).status()));
  EXPECT_TRUE(IsWhole());
  copy_.reset();
  EXPECT_TRUE(OpenPrimaryStore(*disk_, 2, {}).ok());
}

TEST_F(ReplicaStoreTest, WhatAPrimaryLeftIsNoWholeCopyButCanBeServedFromAgain) {
  MakeWhole();
  ASSERT_TRUE(copy_->Retire(2).ok());
  copy_.reset();
  ASSERT_TRUE(OpenPrimaryStore(*disk_, 2, {}).ok());
  Open();
  EXPECT_FALSE(IsWhole());
  copy_.reset();
  EXPECT_TRUE(OpenPrimaryStore(*disk_, 3, {}).ok()) << "nobody took its place";
  Open();
  ASSERT_TRUE(copy_->Begin(4, 1).ok());
  copy_.reset();
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenPrimaryStore(*disk_, 5, {}).status()));
}

// Where whoever took its place has given up.
TEST_F(ReplicaStoreTest, WhatAPrimaryLeftTakesOverWhereTheMapBelievesItAndNobodyHasBegunSince) {
  MakeWhole();
  ASSERT_TRUE(copy_->Retire(2).ok());
  copy_.reset();
  ASSERT_TRUE(OpenPrimaryStore(*disk_, 2, {}).ok());
  Open();
  EXPECT_TRUE(absl::IsFailedPrecondition(copy_->Retire(4)));
  copy_->BelieveWhatWasLeft();
  EXPECT_TRUE(IsWhole());
  EXPECT_TRUE(absl::IsPermissionDenied(copy_->Retire(2)));
  ASSERT_TRUE(copy_->Retire(4).ok());
  copy_.reset();
  ASSERT_TRUE(OpenPrimaryStore(*disk_, 4, {}).ok());
  Open();
  copy_->BelieveWhatWasLeft();
  ASSERT_TRUE(copy_->Begin(5, 1).ok());
  EXPECT_FALSE(IsWhole()) << "this primary may have gone on without it";
  copy_->BelieveWhatWasLeft();
  EXPECT_FALSE(IsWhole());
  CrashAndOpen();
  copy_->BelieveWhatWasLeft();
  EXPECT_FALSE(IsWhole());
}

TEST_F(ReplicaStoreTest, ADamagedObjectIsMadeAnewAndItsFilesSurviveAReplay) {
  MakeWhole();
  const std::string bytes(20'000, 'x');
  const auto write = [&](uint64_t first, char letter) {
    ReplicaBatch batch = OneBatch(first, Kind::kWrite, 10, "", ReplicaFlush::kAll);
    batch.operations.front().parts.front().writes = {
        {0, runtime::Block::CopyOf(std::string(20'000, letter))}};
    return batch;
  };
  ASSERT_TRUE(copy_->Apply(1, 1, write(2, 'x')).ok());
  ASSERT_TRUE(copy_->Apply(1, 1, OneBatch(3, Kind::kMakeAnew, 10, "anew")).ok());
  ASSERT_TRUE(copy_->Apply(1, 1, write(4, 'y')).ok());
  CrashAndOpen();
  const auto object = copy_->Describe(10, 0, 3, true);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->size, 20'000u);
  EXPECT_EQ(object->blob, "anew");
  EXPECT_TRUE(object->damaged.empty());
  EXPECT_EQ(copy_->ReadBlock(10, 0)->view()[0], 'y');
}

TEST_F(ReplicaStoreTest, DescribesBlocksAndFindsDamagedOnes) {
  MakeWhole();
  ReplicaBatch batch = OneBatch(2, Kind::kWrite, 10, "", ReplicaFlush::kAll);
  batch.operations.front().parts.front().writes = {
      {8192, runtime::Block::CopyOf(std::string(8192, 'x'))}};
  ASSERT_TRUE(copy_->Apply(1, 1, batch).ok());
  auto object = copy_->Describe(10, 0, 1, true);
  EXPECT_EQ(object->versions, std::vector<VersionNumber>{0});
  EXPECT_EQ(object->next, 1u);
  object = copy_->Describe(10, 1, 2, true);
  EXPECT_EQ(object->versions, (std::vector<VersionNumber>{3, 0}));
  EXPECT_EQ(object->next, UINT64_MAX);
  EXPECT_NE(object->digests[0], 0u);
  EXPECT_TRUE(object->damaged.empty());
  const auto file = disk_->Open("a/000000000000000a.d");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write(100, "damage").ok());
  object = copy_->Describe(10, 1, 2, true);
  ASSERT_TRUE(object.ok());
  EXPECT_EQ(object->damaged, std::vector<uint64_t>{1});
  EXPECT_FALSE(copy_->Describe(11, 0, 1, true)->is_there);
  EXPECT_TRUE(absl::IsInvalidArgument(copy_->Describe(10, 0, 1025, true).status()));
}

}  // namespace
}  // namespace abacus::objfs
