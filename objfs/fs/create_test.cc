// Files that are made and opened in one step.

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::FileSystemWorld;

const Caller kAdmin;
constexpr uint32_t kFile = S_IFREG | 0644;

class CreateTest : public ::testing::Test {
 protected:
  uint64_t FramesSent(size_t node) {
    uint64_t frames = 0;
    for (const auto& peer : world_.cluster()[node].transport().Traffic()) {
      frames += peer.sent_frames;
    }
    return frames;
  }
  uint64_t Objects() {
    const auto space = world_.volume()->Space();
    EXPECT_TRUE(space.ok()) << space.status();
    return space.ok() ? space->objects : 0;
  }

  FileSystemWorld world_;
};

TEST_F(CreateTest, WhoMakesAFileHasItOpenWhateverItsMode) {
  const auto a = world_.Client(1), b = world_.Client(2);
  Caller user;
  user.uid = user.gid = 7;
  ASSERT_TRUE(a->Set(kAdmin, a->root(), {.permissions = 0777}).ok());
  const auto made = a->Create(user, a->root(), "f", S_IFREG | 0400, O_RDWR, "");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->node.inode.uid, 7u);
  EXPECT_TRUE(a->Write(made->handle, 0, Block::CopyOf("bytes")).ok());
  EXPECT_EQ(a->Read(made->handle, 0, 100)->view(), "bytes");
  // Who opens it later is asked.
  EXPECT_EQ(FsErrorOf(a->Open(user, made->node.id, O_RDWR).status()), FsError::kAccess);
  EXPECT_EQ(b->Lookup(kAdmin, b->root(), "f")->size, 5u);

  const auto to_write = a->Create(user, a->root(), "g", kFile, O_WRONLY, "");
  ASSERT_TRUE(to_write.ok()) << to_write.status();
  EXPECT_EQ(FsErrorOf(a->Read(to_write->handle, 0, 1).status()), FsError::kBadHandle);

  EXPECT_EQ(FsErrorOf(b->Create(user, b->root(), "f", kFile, O_RDWR, "").status()),
            FsError::kExists);
  EXPECT_EQ(FsErrorOf(b->Create(user, b->root(), "d", S_IFDIR | 0755, O_RDWR, "").status()),
            FsError::kInvalid);
  // Closed, each has been opened once and no more: with its name it goes.
  const uint64_t before = Objects();
  for (const char* name : {"f", "g"}) EXPECT_TRUE(b->Unlink(kAdmin, b->root(), name).ok());
  EXPECT_TRUE(a->Release(made->handle).ok());
  EXPECT_TRUE(a->Release(to_write->handle).ok());
  EXPECT_TRUE(runtime::testing::Eventually([&] { return Objects() == before - 2; })) << Objects();
}

// A name is not looked up before it is made.
TEST_F(CreateTest, ANewFileIsAskedForInOneMessage) {
  const auto a = world_.Client(1);
  constexpr uint64_t kFiles = 200;
  const uint64_t before = FramesSent(1);
  for (uint64_t i = 0; i < kFiles; ++i) {
    const auto made = a->Create(kAdmin, a->root(), absl::StrCat("f", i), kFile, O_RDWR, "");
    ASSERT_TRUE(made.ok()) << made.status();
    // What was made is known.
    ASSERT_EQ(a->Stat(made->node.id)->inode.mode, kFile);
    ASSERT_EQ(a->Open(kAdmin, made->node.id, O_RDONLY).status(), absl::OkStatus());
  }
  // The file with its name; now and then identifiers, and signs of life.
  const uint64_t sent = FramesSent(1) - before;
  std::cout << sent << " frames for " << kFiles << " new files\n";
  EXPECT_LT(sent, kFiles * 3 / 2);
}

// To each client that has no idea of what there is.
TEST_F(CreateTest, ANameThatIsThereIsToldByTheCommit) {
  Caller user;
  user.uid = user.gid = 7;
  const auto a = world_.Client(1);
  const auto there = a->Create(kAdmin, a->root(), "f", kFile, O_RDWR, "");
  ASSERT_TRUE(there.ok()) << there.status();
  ASSERT_TRUE(a->Make(kAdmin, a->root(), "d", S_IFDIR | 0755, 0, "").ok());
  const uint64_t objects = Objects();
  const auto expect = [](FsError error, const absl::Status& status) {
    EXPECT_EQ(FsErrorOf(status), error) << status;
  };
  for (const char* name : {"f", "d"}) {
    SCOPED_TRACE(name);
    const auto make = [&](const Caller& caller, uint32_t mode) {
      const auto b = world_.Client(2);
      expect(FsError::kExists, b->Make(caller, b->root(), name, mode, 0, "").status());
    };
    make(kAdmin, S_IFDIR | 0755);
    make(kAdmin, kFile);
    make(kAdmin, S_IFLNK | 0777);
    // Also to who could not make it; but only what is there.
    make(user, kFile);
    const auto b = world_.Client(2);
    expect(FsError::kExists, b->Create(kAdmin, b->root(), name, kFile, O_RDWR, "").status());
    expect(FsError::kAccess, b->Make(user, b->root(), "none", kFile, 0, "").status());
  }
  EXPECT_EQ(Objects(), objects);
  EXPECT_TRUE(a->Release(there->handle).ok());
}

TEST_F(CreateTest, ADirectoryThatIsGoneGetsNoNewNames) {
  const auto a = world_.Client(1);
  auto b = world_.Client(2);
  const uint64_t objects = Objects();
  const auto d = a->Make(kAdmin, a->root(), "d", S_IFDIR | 0755, 0, "");
  ASSERT_TRUE(d.ok()) << d.status();
  // So that it has the directory object, and what it read of it.
  ASSERT_TRUE(b->Make(kAdmin, d->id, "x", kFile, 0, "").ok());
  ASSERT_TRUE(b->Unlink(kAdmin, d->id, "x").ok());
  ASSERT_TRUE(a->RemoveDirectory(kAdmin, a->root(), "d").ok());
  const absl::Status made = b->Make(kAdmin, d->id, "y", kFile, 0, "").status();
  EXPECT_EQ(FsErrorOf(made), FsError::kNoEntry) << made;
  b.reset();
  EXPECT_TRUE(runtime::testing::Eventually([&] { return Objects() == objects; })) << Objects();
}

// A commit is planned on what the client has of the directory, which may be old.
TEST_F(CreateTest, ANameThatAnotherMadeSinceIsThere) {
  const auto a = world_.Client(1), b = world_.Client(2);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(a->Make(kAdmin, a->root(), absl::StrCat("a", i), kFile, 0, "").ok());
    const auto theirs = b->Make(kAdmin, b->root(), absl::StrCat("b", i), kFile, 0, "");
    ASSERT_TRUE(theirs.ok()) << theirs.status();
    const absl::Status made =
        a->Make(kAdmin, a->root(), absl::StrCat("b", i), kFile, 0, "").status();
    EXPECT_EQ(FsErrorOf(made), FsError::kExists) << made;
    EXPECT_EQ(a->Lookup(kAdmin, a->root(), absl::StrCat("b", i))->id, theirs->id);
  }
}

// Of clients that take turns in one directory each one's view is old each time.
TEST_F(CreateTest, WhoIsRefusedOnceReadsBeforeItCommits) {
  const auto a = world_.Client(1), b = world_.Client(2);
  constexpr uint64_t kRounds = 100;
  for (FileSystem* at : {a.get(), b.get()}) {  // what is asked for once
    ASSERT_TRUE(at->Make(kAdmin, at->root(), absl::StrCat(at == a.get()), kFile, 0, "").ok());
  }
  const uint64_t stale = world_.volume()->Commits()->stale;
  for (uint64_t i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(a->Make(kAdmin, a->root(), absl::StrCat("a", i), kFile, 0, "").ok());
    ASSERT_TRUE(b->Make(kAdmin, b->root(), absl::StrCat("b", i), kFile, 0, "").ok());
  }
  const uint64_t refused = world_.volume()->Commits()->stale - stale;
  std::cout << refused << " of " << 2 * kRounds << " refused\n";
  // Each ninth is planned on what the one before it wrote, as the other may be gone.
  EXPECT_LT(refused, kRounds / 2);
  EXPECT_GT(refused, 0u);
}

// As a mount asks for it, whose kernel looks at a file before it removes it.
TEST_F(CreateTest, AFileThatIsMadeWrittenClosedAndRemovedIsFourMessages) {
  const auto a = world_.Client(1);
  Caller checked;
  checked.checked = true;
  constexpr uint64_t kFiles = 200;
  const uint64_t objects = Objects();
  const uint64_t before = FramesSent(1);
  for (uint64_t i = 0; i < kFiles; ++i) {
    ASSERT_EQ(FsErrorOf(a->Lookup(checked, a->root(), "f").status()), FsError::kNoEntry);
    const auto made = a->Create(checked, a->root(), "f", kFile, O_WRONLY, "");
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(a->Write(made->handle, 0, Block::CopyOf("bytes")).ok());
    ASSERT_TRUE(a->Push(made->handle).ok());
    ASSERT_TRUE(a->Release(made->handle).ok());
    ASSERT_EQ(a->Lookup(checked, a->root(), "f")->size, 5u);
    ASSERT_TRUE(a->Unlink(checked, a->root(), "f").ok());
  }
  const uint64_t sent = FramesSent(1) - before;
  std::cout << sent << " frames for " << kFiles << " files\n";
  EXPECT_LT(sent, kFiles * 9 / 2);
  // With its name each was closed.
  EXPECT_TRUE(runtime::testing::Eventually([&] { return Objects() == objects; })) << Objects();
}

TEST_F(CreateTest, WhatIsOpenedAgainSoonIsNotAskedFor) {
  const auto a = world_.Client(1), b = world_.Client(2);
  const auto made = a->Create(kAdmin, a->root(), "f", kFile, O_RDWR, "");
  ASSERT_TRUE(made.ok() && a->Release(made->handle).ok()) << made.status();
  const uint64_t objects = Objects();
  constexpr uint64_t kRounds = 200;
  const uint64_t before = FramesSent(1);
  for (uint64_t i = 0; i < kRounds; ++i) {
    const auto handle = a->Open(kAdmin, made->node.id, O_RDONLY);
    ASSERT_TRUE(handle.ok() && a->Release(*handle).ok()) << handle.status();
  }
  EXPECT_LT(FramesSent(1) - before, kRounds / 2);
  // It is open at the volume for no longer than until the client says that it lives.
  ASSERT_TRUE(b->Unlink(kAdmin, b->root(), "f").ok());
  ASSERT_TRUE(a->Renew().ok());
  EXPECT_TRUE(runtime::testing::Eventually([&] { return Objects() == objects - 1; })) << Objects();
  // Many are closed sooner, and with a client that goes all.
  for (int i = 0; i < 100; ++i) {
    const auto one = a->Create(kAdmin, a->root(), absl::StrCat("n", i), kFile, O_RDWR, "");
    ASSERT_TRUE(one.ok() && a->Release(one->handle).ok()) << one.status();
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(b->Unlink(kAdmin, b->root(), absl::StrCat("n", i)).ok());
  }
  EXPECT_TRUE(runtime::testing::Eventually([&] { return Objects() < objects + 60; })) << Objects();
}

TEST_F(CreateTest, WhatATransactionMakesIsThereWithIt) {
  const auto& volume = world_.volume();
  const uint64_t before = Objects();
  const auto client = volume->Join("client", runtime::Ref<ClientEnd>());
  const auto other = volume->Join("other", runtime::Ref<ClientEnd>());
  ASSERT_TRUE(client.ok() && other.ok());
  const auto ids = volume->Reserve(client->writer, 3u);
  ASSERT_TRUE(ids.ok() && ids->size() == 3) << ids.status();
  const auto making = [](ObjectId id, bool opens) {
    Part part{.id = id};
    part.change.links = 1;
    part.creation = Creation{.inode = {}, .contents = "bytes", .opens = opens};
    part.creation->inode.mode = kFile;
    part.creation->inode.links = 7;  // not the client's to say
    return part;
  };
  const auto commit = [&](uint16_t writer, std::vector<Part> parts) {
    return volume->Commit(writer, Transaction{.parts = std::move(parts), .tree = {}});
  };
  // Refused, it makes nothing, and the client may try again with the same identifier.
  Part stale{.id = client->root};
  stale.reads.push_back({{0, 8192}, Version::Of(1, 1)});
  const auto refused = commit(client->writer, {stale, making((*ids)[0], true)});
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->state, CommitState::kStale);
  EXPECT_EQ(Objects(), before);
  const auto made = commit(client->writer, {making((*ids)[0], true)});
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->state, CommitState::kCommitted);
  EXPECT_EQ(made->nodes[0].inode.links, 1u);
  ASSERT_TRUE(made->made.has_value() && made->made->layer);
  const auto read = made->made->layer->Read(0, 10, Version::Of(1, client->writer));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->bytes.view(), "bytes");
  EXPECT_EQ(Objects(), before + 1);
  EXPECT_TRUE(volume->Close(client->writer, (*ids)[0]).ok());
  EXPECT_FALSE(volume->Close(client->writer, (*ids)[0]).ok()) << "it was opened once";

  // Identifiers are good once, and for the client that has reserved them.
  for (const ObjectId id : {(*ids)[0], (*ids)[2] + 1, ObjectId{0}, client->root}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(commit(client->writer, {making(id, false)}).status()));
  }
  EXPECT_TRUE(
      absl::IsFailedPrecondition(commit(other->writer, {making((*ids)[1], true)}).status()));
  const auto two = commit(client->writer, {making((*ids)[1], false), making((*ids)[2], false)});
  EXPECT_TRUE(absl::IsInvalidArgument(two.status())) << two.status();
  Part reads = making((*ids)[1], false);
  reads.reads.push_back({{0, 8192}, Version::Of(1, 1)});
  EXPECT_TRUE(absl::IsInvalidArgument(commit(client->writer, {reads}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(volume->Reserve(client->writer, 100'000u).status()));
  EXPECT_EQ(Objects(), before + 1);
  EXPECT_TRUE(volume->Leave(client->writer).ok());
  EXPECT_TRUE(IsNoClient(commit(client->writer, {making((*ids)[1], false)}).status()));
  EXPECT_TRUE(IsNoClient(volume->Reserve(client->writer, 1u).status()));
  EXPECT_EQ(Objects(), before + 1);
}

TEST_F(CreateTest, AFileHasTheStackThatTheCallTheRuleOrTheDirectorySays) {
  const auto a = world_.Client(1), b = world_.Client(2);
  const std::string statistics = "statistics/isolation/storage";
  const std::string cached = "cache(block=4 KiB,ahead=64 KiB)/isolation/storage";
  const std::string plain = "isolation/storage";
  const auto stack_of = [&](ObjectId in, const std::string& name, const std::string& stack) {
    const auto made = a->Create(kAdmin, in, name, kFile, O_RDWR, stack);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return std::string();
    EXPECT_TRUE(a->Release(made->handle).ok());
    return b->StackOf(made->node.id).value_or("none");
  };
  const auto directory = a->Make(kAdmin, a->root(), "d", S_IFDIR | 0755, 0, "");
  ASSERT_TRUE(directory.ok()) << directory.status();
  const ObjectId d = directory->id;
  const auto set = [&](const char* attribute, const std::string& text) {
    return a->SetXattr(kAdmin, d, attribute, text, XattrRule::kAny);
  };
  ASSERT_TRUE(set(kStackXattr, plain).ok());
  ASSERT_TRUE(set(kStackRulesXattr, absl::StrCat("*.db ", cached, "\na* ", statistics, "\n")).ok());
  EXPECT_EQ(stack_of(d, "a.db", ""), cached);
  EXPECT_EQ(stack_of(d, "a.txt", ""), statistics);
  EXPECT_EQ(stack_of(d, "b.txt", ""), plain);
  EXPECT_EQ(stack_of(d, "b.db", statistics), statistics) << "what the call says comes first";
  // Directories hand both down, and b sees them too.
  const auto below = b->Make(kAdmin, d, "below", S_IFDIR | 0755, 0, "");
  ASSERT_TRUE(below.ok()) << below.status();
  EXPECT_EQ(stack_of(below->id, "a.db", ""), cached);
  EXPECT_EQ(stack_of(below->id, "c", ""), plain);

  // Mistakes are told with their places, and change nothing.
  const auto wrong = a->Create(kAdmin, d, "wrong", kFile, O_RDWR, "cache/nonsense/storage");
  EXPECT_EQ(FsErrorOf(wrong.status()), FsError::kInvalid);
  EXPECT_NE(wrong.status().message().find("nonsense"), std::string::npos) << wrong.status();
  EXPECT_EQ(FsErrorOf(a->Lookup(kAdmin, d, "wrong").status()), FsError::kNoEntry);
  EXPECT_EQ(FsErrorOf(set(kStackRulesXattr, "*.db")), FsError::kInvalid);
  EXPECT_EQ(FsErrorOf(set(kStackRulesXattr, "*.db nonsense/storage")), FsError::kInvalid);
  EXPECT_EQ(stack_of(d, "c.db", ""), cached);
}

TEST_F(CreateTest, AVolumesOwnStackComesBeforeTheUsualOneAndAfterWhatAClientOrDirectorySays) {
  const std::string own = "statistics/isolation/storage";
  const std::string usual = "cache(block=4 KiB)/isolation/storage";
  const std::string said = "statistics/cache(block=4 KiB)/isolation/storage";
  const std::string plain = "isolation/storage";
  const auto stack_of = [&](FileSystem& at, ObjectId in, const std::string& name) {
    const auto made = at.Make(kAdmin, in, name, kFile, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->inode.stack : std::string("none");
  };
  world_.usual_file_stack = usual;
  {
    const auto before = world_.Client(1);
    EXPECT_EQ(stack_of(*before, before->root(), "before"), usual);
    // It would go on without the volume's.
    EXPECT_TRUE(absl::IsFailedPrecondition(world_.volume()->KeepFileStack(own)));
    EXPECT_EQ(stack_of(*before, before->root(), "still"), usual);
  }
  ASSERT_TRUE(world_.volume()->KeepFileStack(own).ok());
  const auto a = world_.Client(1), b = world_.Client(2, said);
  EXPECT_EQ(stack_of(*a, a->root(), "a"), own);
  EXPECT_EQ(stack_of(*b, b->root(), "b"), said);
  const auto directory = a->Make(kAdmin, a->root(), "d", S_IFDIR | 0755, 0, "");
  ASSERT_TRUE(directory.ok()) << directory.status();
  const ObjectId d = directory->id;
  EXPECT_EQ(stack_of(*a, d, "a"), own);
  ASSERT_TRUE(a->SetXattr(kAdmin, d, kStackXattr, plain, XattrRule::kAny).ok());
  EXPECT_EQ(stack_of(*a, d, "of d"), plain);
  EXPECT_EQ(stack_of(*b, d, "of d too"), plain);

  const auto listed = a->ListXattrs(kAdmin, a->root());
  EXPECT_TRUE(listed.ok() && listed->empty());
  EXPECT_FALSE(a->GetXattr(kAdmin, a->root(), kFileStackXattr).ok());
  EXPECT_EQ(FsErrorOf(a->SetXattr(kAdmin, a->root(), kFileStackXattr, plain, XattrRule::kAny)),
            FsError::kNotPermitted);
  EXPECT_EQ(FsErrorOf(a->RemoveXattr(kAdmin, a->root(), kFileStackXattr)), FsError::kNotPermitted);
}

TEST_F(CreateTest, LayersTellOfThemselves) {
  const auto a = world_.Client(1);
  const auto made = a->Create(kAdmin, a->root(), "f", kFile, O_RDWR,
                              "statistics/cache(block=4 KiB)/isolation/storage");
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(a->Write(made->handle, 0, Block::CopyOf("bytes")).ok());
  const auto state = a->GetXattr(kAdmin, made->node.id, kStateXattr);
  ASSERT_TRUE(state.ok()) << state.status();
  std::cout << *state;
  for (const char* line : {"statistics\n", "\n  write: 1 calls", "\ncache\n", "\n  block: 4 KiB\n",
                           "\n  dirty: 4096 bytes\n", "\nisolation\n"}) {
    EXPECT_NE(state->find(line), std::string::npos) << line;
  }
  const auto listed = a->ListXattrs(kAdmin, made->node.id);
  EXPECT_TRUE(listed.ok() && listed->empty());
  EXPECT_EQ(FsErrorOf(a->SetXattr(kAdmin, made->node.id, kStateXattr, "x", XattrRule::kAny)),
            FsError::kNotPermitted);
}

TEST_F(CreateTest, OfWhatIsRefusedNothingIsLeftNorOpen) {
  const auto a = world_.Client(1), b = world_.Client(2);
  const uint64_t before = Objects();
  constexpr int kRounds = 100;
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (FileSystem* at : {a.get(), b.get()}) {
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, at] {
        for (int i = 0; i < kRounds; ++i) {
          const std::string name = absl::StrCat("f", i);
          const auto made = at->Create(kAdmin, at->root(), name, kFile, O_RDWR, "");
          EXPECT_EQ(FsErrorOf(made.status()), made.ok() ? FsError::kNone : FsError::kExists);
          if (!made.ok()) continue;
          ++won;
          EXPECT_TRUE(at->Write(made->handle, 0, Block::CopyOf(name)).ok());
          EXPECT_TRUE(at->Release(made->handle).ok());
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, kRounds);
  // Those of who came too late are gone without having had a name.
  const auto commits = world_.volume()->Commits();
  std::cout << (commits.ok() ? commits->stale : 0) << " commits came too late\n";
  EXPECT_EQ(Objects(), before + kRounds);
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_TRUE(a->Unlink(kAdmin, a->root(), absl::StrCat("f", i)).ok());
  }
  // Nothing is open that would keep them.
  EXPECT_TRUE(runtime::testing::Eventually([&] { return Objects() == before; })) << Objects();
}

}  // namespace
}  // namespace abacus::objfs
