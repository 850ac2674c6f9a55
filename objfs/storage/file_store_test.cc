#include "objfs/storage/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/transport/no_transport.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::Ref;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest()
      : types_(std::move(runtime::ObjectTypes().Add<FileStore>().Add<StorageObject>())),
        binding_({1, 1}, {}, types_, &transport_, nullptr) {
    binding_.Start();
    std::string pattern = ::testing::TempDir() + "abacus-store-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    Begin({});
  }
  ~FileStoreTest() override {
    store_ = {};
    binding_.Stop();
    std::filesystem::remove_all(directory_);
  }

  // A store over the directory, as a server that begins makes one.
  void Begin(FileStore::Limits limits) {
    auto store = FileStore::Make(
        directory_,
        {.adopt = [this](auto object) { return binding_.Adopt(std::move(object)); },
         .end = [this](const runtime::Rid& rid) { EXPECT_TRUE(binding_.Destroy(rid).ok()); }},
        limits);
    store_ = binding_.Adopt(*std::move(store));
  }
  void Make(const std::string& name, const std::string& bytes) const {
    std::ofstream(directory_ + "/" + name) << bytes;
  }
  static std::vector<std::string> Names(const absl::StatusOr<std::vector<FileInfo>>& files) {
    std::vector<std::string> names;
    for (const FileInfo& file : files.value()) names.push_back(file.name);
    return names;
  }

  runtime::NoTransport transport_;
  runtime::ObjectTypes types_;
  runtime::BindingManager binding_;
  std::string directory_;
  Ref<FileStore> store_;
};

TEST_F(FileStoreTest, WhatWasWrittenIsRead) {
  const auto file = store_->Create("f");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write(0, Block::CopyOf("0123456789")).ok());
  ASSERT_TRUE((*file)->Flush().ok());
  EXPECT_EQ((*file)->Size().value(), 10u);
  EXPECT_EQ((*file)->Read(8, 100)->view(), "89");
}

TEST_F(FileStoreTest, OpenGivesAllTheSameStorageObject) {
  Make("f", "x");
  const auto first = store_->Open("f");
  const auto second = store_->Open("f");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->rid(), second->rid());
}

TEST_F(FileStoreTest, OpenFromManyThreadsMakesOneStorageObject) {
  Make("f", "x");
  std::vector<runtime::Rid> rids(8);
  std::vector<std::thread> threads;
  for (auto& rid : rids) {
    threads.emplace_back([this, &rid] { rid = store_->Open("f").value().rid(); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(std::set<runtime::Rid>(rids.begin(), rids.end()).size(), 1u);
}

TEST_F(FileStoreTest, OpenOfAMissingFileNamesItAndNotItsPath) {
  const auto file = store_->Open("absent");
  EXPECT_TRUE(absl::IsNotFound(file.status()));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("'absent'"));
  EXPECT_THAT(std::string(file.status().message()), Not(HasSubstr(directory_)));
}

TEST_F(FileStoreTest, CreateRefusesANameThatIsTaken) {
  Make("f", "x");
  EXPECT_TRUE(absl::IsAlreadyExists(store_->Create("f").status()));
}

TEST_F(FileStoreTest, NamesThatAreNotFlatAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string("../f"), std::string("."), std::string(".."),
        std::string("a\0b", 3), std::string(256, 'x')}) {
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Open(name).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Create(name).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Stat(name).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Remove(name))) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Rename(name, "f"))) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Rename("f", name))) << name;
  }
}

TEST_F(FileStoreTest, TheLongestNameIsTaken) {
  EXPECT_TRUE(store_->Create(std::string(FileStore::kNameBytesMax, 'x')).ok());
}

TEST_F(FileStoreTest, ReadAboveTheLimitIsRefused) {
  Make("f", "x");
  const auto file = store_->Open("f").value();
  EXPECT_TRUE(absl::IsInvalidArgument(file->Read(0, StorageObject::kReadBytesMax + 1).status()));
  EXPECT_TRUE(file->Read(0, StorageObject::kReadBytesMax).ok());
}

TEST_F(FileStoreTest, StatTellsNameAndSize) {
  Make("f", "four");
  const auto info = store_->Stat("f");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->name, "f");
  EXPECT_EQ(info->bytes, 4u);
  EXPECT_GT(info->modified, absl::UnixEpoch());
  EXPECT_TRUE(absl::IsNotFound(store_->Stat("absent").status()));
}

TEST_F(FileStoreTest, ListGoesOnBehindAName) {
  for (const char* name : {"c", "a", "b"}) Make(name, "x");
  EXPECT_THAT(Names(store_->List("", 2)), ElementsAre("a", "b"));
  EXPECT_THAT(Names(store_->List("b", 2)), ElementsAre("c"));
  EXPECT_THAT(Names(store_->List("c", 2)), IsEmpty());
}

TEST_F(FileStoreTest, RemoveEndsTheStorageObject) {
  Make("f", "x");
  const auto file = store_->Open("f").value();
  ASSERT_TRUE(store_->Remove("f").ok());
  EXPECT_EQ(runtime::KindOf(file->Size().status()), runtime::ErrorKind::kObjectNotFound);
  EXPECT_TRUE(absl::IsNotFound(store_->Open("f").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Remove("f")));
}

TEST_F(FileStoreTest, RenameReplacesAndEndsWhatWasReplaced) {
  Make("f", "old");
  const auto old = store_->Open("f").value();
  const auto made = store_->Create("f.new").value();
  ASSERT_TRUE(made->Write(0, Block::CopyOf("new")).ok());
  ASSERT_TRUE(store_->Rename("f.new", "f").ok());
  EXPECT_EQ(runtime::KindOf(old->Size().status()), runtime::ErrorKind::kObjectNotFound);
  EXPECT_EQ(made->Read(0, 9)->view(), "new");
  EXPECT_EQ(store_->Open("f")->rid(), made.rid());
  EXPECT_TRUE(absl::IsNotFound(store_->Open("f.new").status()));
}

TEST_F(FileStoreTest, RenameToItselfKeepsTheFile) {
  Make("f", "x");
  const auto file = store_->Open("f").value();
  EXPECT_TRUE(store_->Rename("f", "f").ok());
  EXPECT_EQ(file->Read(0, 9)->view(), "x");
  EXPECT_TRUE(absl::IsNotFound(store_->Rename("absent", "absent")));
}

TEST_F(FileStoreTest, RenameOfAMissingFileLeavesTheTarget) {
  Make("f", "x");
  const auto file = store_->Open("f").value();
  EXPECT_TRUE(absl::IsNotFound(store_->Rename("absent", "f")));
  EXPECT_EQ(file->Read(0, 9)->view(), "x");
}

TEST_F(FileStoreTest, TooManyStorageObjectsAreATypedError) {
  Begin({.objects_max = 2});
  for (const char* name : {"a", "b", "c"}) Make(name, "x");
  EXPECT_TRUE(store_->Open("a").ok());
  EXPECT_TRUE(store_->Open("b").ok());
  const absl::Status status = store_->Open("c").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(store_->Open("a").ok());
  EXPECT_TRUE(store_->Remove("a").ok());
  EXPECT_TRUE(store_->Open("c").ok());
}

TEST_F(FileStoreTest, MoreFilesAreInUseThanAreOpenAtOnce) {
  Begin({.open_files_max = 2});
  std::vector<Ref<StorageObject>> files;
  for (int i = 0; i < 10; ++i) {
    files.push_back(store_->Create("f" + std::to_string(i)).value());
    ASSERT_TRUE(files.back()->Write(0, Block::CopyOf(std::to_string(i))).ok());
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(files[i]->Read(0, 9)->view(), std::to_string(i));
    EXPECT_TRUE(files[i]->Flush().ok());
  }
}

TEST_F(FileStoreTest, AClosedFileIsFoundAgainUnderItsNewNameOnly) {
  Begin({.open_files_max = 1});
  Make("f", "old");
  const auto old = store_->Open("f").value();
  const auto made = store_->Create("f.new").value();
  ASSERT_TRUE(made->Write(0, Block::CopyOf("new")).ok());
  Make("other", "x");
  ASSERT_TRUE(store_->Open("other").ok());
  ASSERT_TRUE(store_->Rename("f.new", "f").ok());
  EXPECT_EQ(runtime::KindOf(old->Size().status()), runtime::ErrorKind::kObjectNotFound);
  EXPECT_EQ(made->Read(0, 9)->view(), "new");
}

TEST_F(FileStoreTest, FilesThatWereBeingWrittenAreGoneWhenTheNextServerBegins) {
  const std::string part = FileStore::PartName(7, 41);
  for (const std::string& name : {part, std::string("put-7-41.part.txt"), std::string("put-.part"),
                                  std::string("put-me-41.part"), std::string("f")}) {
    Make(name, "x");
  }
  Begin({});
  EXPECT_TRUE(absl::IsNotFound(store_->Stat(part).status()));
  EXPECT_THAT(Names(store_->List("", 9)),
              ElementsAre("f", "put-.part", "put-7-41.part.txt", "put-me-41.part"));
}

TEST_F(FileStoreTest, AFileThatIsBeingWrittenIsNotListedUntilItHasItsName) {
  const std::string part = FileStore::PartName(7, 41);
  ASSERT_TRUE(store_->Create(part).ok());
  EXPECT_THAT(Names(store_->List("", 9)), IsEmpty());
  ASSERT_TRUE(store_->Rename(part, "f").ok());
  EXPECT_THAT(Names(store_->List("", 9)), ElementsAre("f"));
  // No user's file gets a name under which it would be removed.
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Rename("f", part)));
}

TEST_F(FileStoreTest, MakeRefusesADirectoryThatIsAFile) {
  Make("f", "x");
  EXPECT_FALSE(FileStore::Make(directory_ + "/f", {}).ok());
}

}  // namespace
}  // namespace abacus::objfs
