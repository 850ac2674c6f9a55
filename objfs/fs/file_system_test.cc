// The file system by its rules.

#include "objfs/fs/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using ::testing::ElementsAre;
using testing::FileSystemWorld;
using ::testing::UnorderedElementsAre;

const Caller kRoot;

class FileSystemTest : public ::testing::Test {
 protected:
  void Restart() {
    a_.reset();
    b_.reset();
    world_.Restart();
    a_ = world_.Client(1);
    b_ = world_.Client(2);
  }
  ObjectId Root() const { return a_->root(); }

  ObjectId MakeFile(FileSystem& at, ObjectId directory, const std::string& name,
                    const std::string& bytes = "") {
    const auto made = at.Make(kRoot, directory, name, S_IFREG | 0644, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return 0;
    if (!bytes.empty()) Write(at, made->id, 0, bytes);
    return made->id;
  }
  ObjectId MakeDirectory(FileSystem& at, ObjectId directory, const std::string& name) {
    const auto made = at.Make(kRoot, directory, name, S_IFDIR | 0755, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->id : 0;
  }
  static void Write(FileSystem& at, ObjectId file, uint64_t offset, const std::string& bytes) {
    const auto handle = at.Open(kRoot, file, O_WRONLY);
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_TRUE(at.Write(*handle, offset, Block::CopyOf(bytes)).ok());
    EXPECT_TRUE(at.Release(*handle).ok());
  }
  static std::string Read(FileSystem& at, ObjectId file) {
    const auto handle = at.Open(kRoot, file, O_RDONLY);
    EXPECT_TRUE(handle.ok()) << handle.status();
    if (!handle.ok()) return "";
    const auto bytes = at.Read(*handle, 0, 1 << 20);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_TRUE(at.Release(*handle).ok());
    return bytes.ok() ? std::string(bytes->view()) : "";
  }
  static std::vector<std::string> Names(FileSystem& at, ObjectId directory) {
    std::vector<std::string> names;
    uint64_t cookie = 0;
    for (;;) {
      const auto listed = at.List(kRoot, directory, cookie, 7, false);
      EXPECT_TRUE(listed.ok()) << listed.status();
      if (!listed.ok() || listed->empty()) return names;
      for (const auto& one : *listed) {
        if (one.name != "." && one.name != "..") names.push_back(one.name);
      }
      cookie = listed->back().cookie;
    }
  }
  static FsError ErrorOf(const absl::Status& status) { return FsErrorOf(status); }
  static FsError LookupError(FileSystem& at, ObjectId directory, const std::string& name) {
    return FsErrorOf(at.Lookup(kRoot, directory, name).status());
  }

  FileSystemWorld world_;
  std::unique_ptr<FileSystem> a_ = world_.Client(1), b_ = world_.Client(2);
};

TEST_F(FileSystemTest, WhatOneClientMakesTheOtherSeesAtOnce) {
  const ObjectId directory = MakeDirectory(*a_, Root(), "d");
  const ObjectId file = MakeFile(*a_, directory, "f", "hello");
  const auto found = b_->Lookup(kRoot, directory, "f");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->id, file);
  EXPECT_EQ(found->size, 5u);
  EXPECT_EQ(Read(*b_, file), "hello");
  Write(*b_, file, 5, " there");
  EXPECT_EQ(Read(*a_, file), "hello there");
  EXPECT_THAT(Names(*b_, directory), ElementsAre("f"));
  EXPECT_EQ(b_->Stat(Root())->inode.links, 3u);
  EXPECT_EQ(b_->Stat(directory)->inode.entries, 1u);
}

TEST_F(FileSystemTest, WhatWasSyncedIsThereAfterARestartWithItsName) {
  const ObjectId directory = MakeDirectory(*a_, Root(), "d");
  const auto file = a_->Make(kRoot, directory, "f", S_IFREG | 0600, 0, "");
  ASSERT_TRUE(file.ok());
  const auto handle = a_->Open(kRoot, file->id, O_RDWR);
  ASSERT_TRUE(handle.ok());
  ASSERT_TRUE(a_->Write(*handle, 0, Block::CopyOf("synced")).ok());
  ASSERT_TRUE(a_->Sync(*handle).ok());
  ASSERT_TRUE(a_->Release(*handle).ok());
  Restart();
  const auto d = a_->Lookup(kRoot, Root(), "d");
  ASSERT_TRUE(d.ok()) << d.status();
  const auto f = a_->Lookup(kRoot, d->id, "f");
  ASSERT_TRUE(f.ok()) << f.status();
  EXPECT_EQ(f->inode.mode, S_IFREG | 0600u);
  EXPECT_EQ(Read(*a_, f->id), "synced");
}

TEST_F(FileSystemTest, AFileThatIsOpenOutlivesItsName) {
  const ObjectId file = MakeFile(*a_, Root(), "f", "still here");
  const auto handle = a_->Open(kRoot, file, O_RDWR);
  ASSERT_TRUE(handle.ok());
  ASSERT_TRUE(b_->Unlink(kRoot, Root(), "f").ok());
  EXPECT_EQ(LookupError(*a_, Root(), "f"), FsError::kNoEntry);
  ASSERT_TRUE(world_.volume()->Flush(std::vector<ObjectId>{Root()}).ok());
  EXPECT_EQ(a_->Read(*handle, 0, 100)->view(), "still here");
  EXPECT_EQ(a_->Stat(file)->inode.links, 0u);
  EXPECT_TRUE(a_->Write(*handle, 10, Block::CopyOf("!")).ok());
  EXPECT_TRUE(a_->Release(*handle).ok());
  // The space comes back with the next flush of the volume.
  EXPECT_TRUE(runtime::testing::Eventually(
      [&] { return FsErrorOf(a_->Stat(file).status()) == FsError::kStale; }));
}

// Records of two clients, each through several threads, in files of either stack: whole, each once,
// and each thread's in its order.
TEST_F(FileSystemTest, AppendsOfTwoClientsAreWholeAndNoneIsLost) {
  constexpr int kThreads = 2, kRecordBytes = 100;
  const int records = runtime::testing::kSanitized ? 20 : 100;
  for (const char* stack : {"isolation/storage", "cache(block=512 B)/isolation/storage"}) {
    const auto one = world_.Client(1, stack), two = world_.Client(2, stack);
    const ObjectId file = MakeFile(*one, Root(), stack[0] == 'c' ? "cached" : "plain", "begin\n");
    std::vector<std::thread> threads;
    for (FileSystem* const client : {one.get(), two.get()}) {
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, client, t] {
          const std::string who = absl::StrCat(client == one.get() ? "one" : "two", " ", t, " ");
          const auto handle = client->Open(kRoot, file, O_WRONLY | O_APPEND);
          ASSERT_TRUE(handle.ok()) << handle.status();
          for (int i = 0; i < records; ++i) {
            std::string record = absl::StrCat(who, i, " ");
            record.resize(kRecordBytes - 1, '.');
            const auto at = client->Append(*handle, Block::CopyOf(record + "\n"));
            ASSERT_TRUE(at.ok()) << at.status();
            EXPECT_EQ((*at - 6) % kRecordBytes, 0u);
          }
          EXPECT_TRUE(client->Release(*handle).ok());
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
    const std::string bytes = Read(*a_, file);
    ASSERT_EQ(bytes.size(), size_t{6} + 2 * kThreads * records * kRecordBytes) << stack;
    std::map<std::string, int> next;
    for (size_t at = 6; at < bytes.size(); at += kRecordBytes) {
      const std::string who = bytes.substr(at, 6);
      std::string record = absl::StrCat(who, next[who]++, " ");
      record.resize(kRecordBytes - 1, '.');
      ASSERT_EQ(bytes.substr(at, kRecordBytes), record + "\n") << stack << ", byte " << at;
    }
    EXPECT_EQ(next.size(), size_t{2} * kThreads);
  }
}

TEST_F(FileSystemTest, AnAppendBeyondTheLargestFileIsRefused) {
  const ObjectId file = MakeFile(*a_, Root(), "f");
  const auto handle = a_->Open(kRoot, file, O_WRONLY | O_APPEND);
  ASSERT_TRUE(handle.ok()) << handle.status();
  SetAttributes set;
  set.size = ObjectStore::kObjectBytesMax - 2;
  ASSERT_TRUE(a_->Set(kRoot, file, set).ok());
  EXPECT_EQ(ErrorOf(a_->Append(*handle, Block::CopyOf("abc")).status()), FsError::kTooBig);
  EXPECT_EQ(a_->Append(*handle, Block::CopyOf("ab")).value_or(0), ObjectStore::kObjectBytesMax - 2);
  EXPECT_TRUE(a_->Release(*handle).ok());
  const auto reader = a_->Open(kRoot, file, O_RDONLY);
  EXPECT_EQ(ErrorOf(a_->Append(*reader, Block::CopyOf("x")).status()), FsError::kBadHandle);
  EXPECT_TRUE(a_->Release(*reader).ok());
}

TEST_F(FileSystemTest, DirectoriesGoWhenTheyAreEmptyOnly) {
  const ObjectId d = MakeDirectory(*a_, Root(), "d");
  MakeFile(*b_, d, "f");
  EXPECT_EQ(ErrorOf(a_->RemoveDirectory(kRoot, Root(), "d")), FsError::kNotEmpty);
  EXPECT_EQ(ErrorOf(a_->Unlink(kRoot, Root(), "d")), FsError::kIsDirectory);
  EXPECT_EQ(ErrorOf(a_->RemoveDirectory(kRoot, d, "f")), FsError::kNotDirectory);
  ASSERT_TRUE(a_->Unlink(kRoot, d, "f").ok());
  ASSERT_TRUE(a_->RemoveDirectory(kRoot, Root(), "d").ok());
  // Who still knows the directory makes nothing in it any more.
  EXPECT_EQ(ErrorOf(b_->Make(kRoot, d, "g", S_IFREG | 0644, 0, "").status()), FsError::kNoEntry);
  EXPECT_EQ(a_->Stat(Root())->inode.links, 2u);
  EXPECT_EQ(a_->Stat(Root())->inode.entries, 0u);
}

TEST_F(FileSystemTest, BeyondTheLargestCountOfLinksNothingIsNamed) {
  const ObjectId d = MakeDirectory(*a_, Root(), "d"), e = MakeDirectory(*a_, Root(), "e");
  const ObjectId f = MakeFile(*a_, d, "f");
  MakeDirectory(*a_, e, "sub");
  const auto info = world_.volume()->Join("c", runtime::Ref<ClientEnd>());
  ASSERT_TRUE(info.ok()) << info.status();
  for (const ObjectId id : {d, f}) {
    const uint32_t links = a_->Stat(id)->inode.links;
    InodeChange change;
    change.links = static_cast<int32_t>(Inode::kLinksMax - links);
    // Others forget what they know of it first.
    ASSERT_TRUE(runtime::testing::Eventually(
        [&] { return world_.volume()->Change(info->writer, id, change).ok(); }));
  }
  EXPECT_EQ(ErrorOf(a_->Link(kRoot, f, Root(), "f2").status()), FsError::kTooManyLinks);
  EXPECT_EQ(ErrorOf(a_->Make(kRoot, d, "g", S_IFDIR | 0755, 0, "").status()),
            FsError::kTooManyLinks);
  EXPECT_EQ(ErrorOf(a_->Rename(kRoot, e, "sub", d, "sub", RenameRule::kReplace)),
            FsError::kTooManyLinks);
  EXPECT_TRUE(a_->Lookup(kRoot, e, "sub").ok());
}

TEST_F(FileSystemTest, ARenameReplacesByTheRules) {
  const ObjectId d = MakeDirectory(*a_, Root(), "d"), e = MakeDirectory(*a_, Root(), "e");
  const ObjectId f = MakeFile(*a_, d, "f", "f"), g = MakeFile(*a_, e, "g", "g");
  const auto rename = [&](ObjectId from, const char* name, ObjectId to, const char* as,
                          RenameRule rule = RenameRule::kReplace) {
    return ErrorOf(b_->Rename(kRoot, from, name, to, as, rule));
  };
  EXPECT_EQ(rename(d, "f", e, "g", RenameRule::kNoReplace), FsError::kExists);
  EXPECT_EQ(rename(d, "f", e, "x", RenameRule::kExchange), FsError::kNoEntry);
  EXPECT_EQ(rename(d, "f", e, "g", RenameRule::kExchange), FsError::kNone);
  EXPECT_EQ(a_->Lookup(kRoot, e, "g")->id, f);
  EXPECT_EQ(a_->Lookup(kRoot, d, "f")->id, g);
  EXPECT_EQ(rename(d, "f", e, "g"), FsError::kNone);
  EXPECT_EQ(a_->Lookup(kRoot, e, "g")->id, g);
  EXPECT_EQ(LookupError(*a_, d, "f"), FsError::kNoEntry);

  EXPECT_EQ(rename(Root(), "d", e, "g"), FsError::kNotDirectory);
  EXPECT_EQ(rename(e, "g", Root(), "d"), FsError::kIsDirectory);
  EXPECT_EQ(rename(Root(), "d", Root(), "e"), FsError::kNotEmpty);
  EXPECT_EQ(rename(Root(), "e", e, "below"), FsError::kInvalid);
  EXPECT_EQ(rename(Root(), "e", d, "moved"), FsError::kNone);
  EXPECT_EQ(a_->Lookup(kRoot, e, "..")->id, d);
  EXPECT_EQ(rename(Root(), "d", e, "cycle"), FsError::kInvalid);
  EXPECT_EQ(a_->Stat(Root())->inode.links, 3u);
  EXPECT_EQ(a_->Stat(d)->inode.links, 3u);
}

TEST_F(FileSystemTest, TwoNamesOfAFileAreOneFile) {
  const ObjectId f = MakeFile(*a_, Root(), "f", "x");
  ASSERT_TRUE(b_->Link(kRoot, f, Root(), "g").ok());
  EXPECT_EQ(a_->Stat(f)->inode.links, 2u);
  EXPECT_TRUE(a_->Rename(kRoot, Root(), "f", Root(), "g", RenameRule::kReplace).ok());
  EXPECT_THAT(Names(*a_, Root()), UnorderedElementsAre("f", "g"));
  ASSERT_TRUE(a_->Unlink(kRoot, Root(), "f").ok());
  EXPECT_EQ(Read(*b_, f), "x");
  EXPECT_EQ(ErrorOf(a_->Link(kRoot, Root(), Root(), "h").status()), FsError::kNotPermitted);
}

TEST_F(FileSystemTest, PermissionsAreAskedWhereNobodyDidBefore) {
  const Caller other{.uid = 7, .gid = 7, .groups = {}, .checked = false};
  const ObjectId d = MakeDirectory(*a_, Root(), "d");
  MakeFile(*a_, d, "f");
  EXPECT_EQ(ErrorOf(a_->Make(other, d, "g", S_IFREG | 0644, 0, "").status()), FsError::kAccess);
  EXPECT_EQ(ErrorOf(a_->Unlink(other, d, "f")), FsError::kAccess);
  ASSERT_TRUE(a_->Set(kRoot, d, {.permissions = 01777}).ok());
  EXPECT_EQ(ErrorOf(a_->Unlink(other, d, "f")), FsError::kNotPermitted);  // sticky
  EXPECT_TRUE(a_->Make(other, d, "g", S_IFREG | 0600, 0, "").ok());
  EXPECT_TRUE(a_->Unlink(other, d, "g").ok());
}

TEST_F(FileSystemTest, ASymbolicLinkKeepsItsTarget) {
  const auto link = a_->Make(kRoot, Root(), "l", S_IFLNK | 0777, 0, "over/there");
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(*b_->ReadLink(kRoot, link->id), "over/there");
  EXPECT_EQ(b_->Stat(link->id)->size, 10u);
}

TEST_F(FileSystemTest, ExtendedAttributesFollowTheirRules) {
  const ObjectId f = MakeFile(*a_, Root(), "f");
  EXPECT_EQ(ErrorOf(a_->SetXattr(kRoot, f, "user.x", "1", XattrRule::kMustExist)),
            FsError::kNoAttribute);
  ASSERT_TRUE(a_->SetXattr(kRoot, f, "user.x", "1", XattrRule::kMustBeNew).ok());
  EXPECT_EQ(ErrorOf(a_->SetXattr(kRoot, f, "user.x", "2", XattrRule::kMustBeNew)),
            FsError::kExists);
  EXPECT_EQ(*b_->GetXattr(kRoot, f, "user.x"), "1");
  EXPECT_THAT(*b_->ListXattrs(kRoot, f), ElementsAre("user.x"));
  EXPECT_EQ(ErrorOf(a_->SetXattr(kRoot, f, "user.big", std::string(5000, 'x'), XattrRule::kAny)),
            FsError::kNoSpace);
  EXPECT_EQ(ErrorOf(a_->SetXattr(kRoot, f, "system.posix_acl_access", "", XattrRule::kAny)),
            FsError::kNotSupported);
  ASSERT_TRUE(a_->RemoveXattr(kRoot, f, "user.x").ok());
  EXPECT_EQ(ErrorOf(b_->GetXattr(kRoot, f, "user.x").status()), FsError::kNoAttribute);
}

TEST_F(FileSystemTest, ADirectorySaysOfWhichLayersItsFilesAre) {
  const ObjectId d = MakeDirectory(*a_, Root(), "d");
  EXPECT_EQ(ErrorOf(a_->SetXattr(kRoot, d, kStackXattr, "cache/nonsense", XattrRule::kAny)),
            FsError::kInvalid);
  ASSERT_TRUE(
      a_->SetXattr(kRoot, d, kStackXattr, "cache/statistics/isolation/storage", XattrRule::kAny)
          .ok());
  const ObjectId below = MakeDirectory(*a_, d, "e");
  const ObjectId f = MakeFile(*a_, below, "f", "through a cache");
  EXPECT_EQ(*a_->StackOf(f), "cache/statistics/isolation/storage");
  EXPECT_EQ(Read(*a_, f), "through a cache");
  // What a cache held back is at the volume when the file is closed.
  EXPECT_EQ(Read(*b_, f), "through a cache");
}

// Each client's own names, and names that both want: all that was made is there, once.
TEST_F(FileSystemTest, ClientsThatMakeNamesInOneDirectoryLoseNone) {
  constexpr int kEach = 60;
  std::vector<std::thread> threads;
  std::atomic<int> won{0};
  for (FileSystem* at : {a_.get(), b_.get()}) {
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, at, t] {
        for (int i = 0; i < kEach; ++i) {
          const std::string own = absl::StrCat(at == a_.get() ? "a" : "b", t, "-", i);
          EXPECT_TRUE(at->Make(kRoot, Root(), own, S_IFREG | 0644, 0, "").ok());
          const auto both =
              at->Make(kRoot, Root(), absl::StrCat("both-", i), S_IFREG | 0644, 0, "");
          if (both.ok()) ++won;
          EXPECT_EQ(FsErrorOf(both.status()), both.ok() ? FsError::kNone : FsError::kExists);
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, kEach);
  EXPECT_EQ(Names(*a_, Root()).size(), 5u * kEach);
  EXPECT_EQ(a_->Stat(Root())->inode.entries, 5u * kEach);
}

// Two clients that move directories below each other: one is refused, or a part of the tree would
// hang on itself.
TEST_F(FileSystemTest, CrossingRenamesMakeNoCycle) {
  const int rounds = runtime::testing::kSanitized ? 10 : 60;
  for (int i = 0; i < rounds; ++i) {
    const ObjectId top = MakeDirectory(*a_, Root(), absl::StrCat("top", i));
    const ObjectId x = MakeDirectory(*a_, top, "x"), y = MakeDirectory(*a_, top, "y");
    FsError first = FsError::kNone, second = FsError::kNone;
    std::thread one(
        [&] { first = ErrorOf(a_->Rename(kRoot, top, "x", y, "x", RenameRule::kReplace)); });
    std::thread two(
        [&] { second = ErrorOf(b_->Rename(kRoot, top, "y", x, "y", RenameRule::kReplace)); });
    one.join();
    two.join();
    // Who comes second finds its own directory above, or the other's name gone.
    EXPECT_NE(first == FsError::kNone, second == FsError::kNone)
        << FsErrorName(first) << " and " << FsErrorName(second);
    EXPECT_EQ(Names(*a_, top).size(), 1u);
  }
}

}  // namespace
}  // namespace abacus::objfs
