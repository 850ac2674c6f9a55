// Handles, objects and clients that nobody gave out: each call with one is refused, and harms
// nothing.

#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/volume/callbacks.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::FileSystemWorld;

const Caller kForger;

// A file with a name, open at one client; in the end all is as it was.
class ForgedTest : public ::testing::Test {
 protected:
  ForgedTest() {
    const auto made = a_->Create(kForger, a_->root(), "f", S_IFREG | 0644, O_RDWR, "");
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return;
    file_ = made->node.id;
    handle_ = made->handle;
    EXPECT_TRUE(a_->Write(handle_, 0, Block::CopyOf("bytes")).ok());
    EXPECT_TRUE(a_->SetXattr(kForger, file_, "user.x", "1", XattrRule::kAny).ok());
  }
  void ExpectAllIsThere() {
    EXPECT_EQ(a_->Read(handle_, 0, 100)->view(), "bytes");
    for (FileSystem* at : {a_.get(), b_.get()}) {
      const auto node = at->Lookup(kForger, at->root(), "f");
      ASSERT_TRUE(node.ok()) << node.status();
      EXPECT_EQ(node->id, file_);
      EXPECT_EQ(node->size, 5u);
      EXPECT_EQ(node->inode.mode, S_IFREG | 0644u);
      EXPECT_EQ(node->inode.links, 1u);
      const auto listed = at->List(kForger, at->root(), 0, 100, true);
      ASSERT_TRUE(listed.ok()) << listed.status();
      EXPECT_EQ(listed->size(), 3u) << "beside . and ..";
      EXPECT_EQ(at->GetXattr(kForger, file_, "user.x").value_or(""), "1");
    }
    EXPECT_TRUE(a_->Sync(handle_).ok());
    EXPECT_TRUE(world_.volume()->Renew(1).ok() && world_.volume()->Renew(2).ok());
    const auto clients = world_.volume()->Clients();
    ASSERT_TRUE(clients.ok()) << clients.status();
    EXPECT_EQ(clients->size(), 2u);
  }

  FileSystemWorld world_;
  std::unique_ptr<FileSystem> a_ = world_.Client(1, "cache/isolation/storage"),
                              b_ = world_.Client(2);
  ObjectId file_ = 0;
  FileHandle handle_ = 0;
};

TEST_F(ForgedTest, AHandleThatNobodyGaveIsBad) {
  const auto closed = a_->Open(kForger, file_, O_RDWR);
  ASSERT_TRUE(closed.ok()) << closed.status();
  ASSERT_TRUE(a_->Release(*closed).ok());
  const Block bytes = Block::CopyOf("forged");
  for (const FileHandle forged : {FileHandle{0}, *closed, *closed + 1, UINT64_MAX}) {
    const std::vector<std::pair<const char*, absl::Status>> answers = {
        {"read", a_->Read(forged, 0, 10).status()},
        {"write", a_->Write(forged, 0, bytes)},
        {"append", a_->Append(forged, bytes).status()},
        {"push", a_->Push(forged)},
        {"sync", a_->Sync(forged)},
        {"allocate", a_->Allocate(forged, 0, 0, 100)},
        {"seek data", a_->SeekData(forged, 0).status()},
        {"seek a hole", a_->SeekHole(forged, 0).status()},
        {"copy from", a_->CopyRange(forged, 0, handle_, 0, 5).status()},
        {"copy to", a_->CopyRange(handle_, 0, forged, 0, 5).status()},
        {"release", a_->Release(forged)},
    };
    for (const auto& [call, status] : answers) {
      EXPECT_EQ(FsErrorOf(status), FsError::kBadHandle) << call << " " << forged << ": " << status;
    }
  }
  // One client's handle is none of another's.
  EXPECT_EQ(FsErrorOf(b_->Write(handle_, 0, bytes)), FsError::kBadHandle);
  ExpectAllIsThere();
}

TEST_F(ForgedTest, AnObjectThatIsNotThereIsStale) {
  const auto removed = b_->Make(kForger, b_->root(), "removed", S_IFDIR | 0755, 0, "");
  ASSERT_TRUE(removed.ok()) << removed.status();
  ASSERT_TRUE(b_->RemoveDirectory(kForger, b_->root(), "removed").ok());
  ASSERT_TRUE(world_.volume()->Flush(std::vector<ObjectId>{b_->root()}).ok());
  ASSERT_TRUE(runtime::testing::Eventually([&] { return !b_->Stat(removed->id).ok(); }));
  for (const ObjectId forged : {ObjectId{0}, removed->id, file_ + 1000, UINT64_MAX}) {
    const std::vector<std::pair<const char*, absl::Status>> answers = {
        {"stat", a_->Stat(forged).status()},
        {"set", a_->Set(kForger, forged, {.permissions = 0}).status()},
        {"truncate", a_->Set(kForger, forged, {.size = 0}).status()},
        {"access", a_->Access(kForger, forged, R_OK)},
        {"open", a_->Open(kForger, forged, O_RDWR).status()},
        {"read link", a_->ReadLink(kForger, forged).status()},
        {"lookup", a_->Lookup(kForger, forged, "f").status()},
        {"lookup .", a_->Lookup(kForger, forged, ".").status()},
        {"list", a_->List(kForger, forged, 0, 10, true).status()},
        {"make", a_->Make(kForger, forged, "x", S_IFREG | 0644, 0, "").status()},
        {"create", a_->Create(kForger, forged, "x", S_IFREG | 0644, O_RDWR, "").status()},
        {"link it", a_->Link(kForger, forged, a_->root(), "x").status()},
        {"link there", a_->Link(kForger, file_, forged, "x").status()},
        {"unlink", a_->Unlink(kForger, forged, "f")},
        {"rmdir", a_->RemoveDirectory(kForger, forged, "f")},
        {"rename from", a_->Rename(kForger, forged, "f", a_->root(), "x", RenameRule::kReplace)},
        {"rename to", a_->Rename(kForger, a_->root(), "f", forged, "x", RenameRule::kReplace)},
        {"get xattr", a_->GetXattr(kForger, forged, "user.x").status()},
        {"set xattr", a_->SetXattr(kForger, forged, "user.x", "2", XattrRule::kAny)},
        {"remove xattr", a_->RemoveXattr(kForger, forged, "user.x")},
        {"list xattrs", a_->ListXattrs(kForger, forged).status()},
        {"stack", a_->StackOf(forged).status()},
    };
    for (const auto& [call, status] : answers) {
      EXPECT_EQ(FsErrorOf(status), FsError::kStale) << call << " " << forged << ": " << status;
    }
    // Of what is not there nothing has to become durable.
    a_->SyncDirectory(forged).IgnoreError();
  }
  ExpectAllIsThere();
}

// What the volume is told in the name of a client that is none, or of one that has left.
TEST_F(ForgedTest, AClientThatIsNoneChangesNothing) {
  const runtime::Ref<Volume>& volume = world_.volume();
  const auto left = volume->Join("who left", runtime::Ref<ClientEnd>());
  ASSERT_TRUE(left.ok() && volume->Leave(left->writer).ok());
  const auto closed = b_->Make(kForger, b_->root(), "closed", S_IFREG | 0644, 0, "");
  ASSERT_TRUE(closed.ok()) << closed.status();
  InodeChange change;
  change.permissions = 0;
  Transaction transaction;
  transaction.parts.push_back({.id = file_, .change = change});
  LockRequest lock;
  lock.file = file_;
  Transaction making;
  making.parts.push_back({.id = file_ + 1000});
  making.parts[0].creation = Creation{.inode = {}, .contents = "bytes", .opens = true};
  for (const uint16_t forged : {uint16_t{0}, left->writer, uint16_t{999}, uint16_t{UINT16_MAX}}) {
    const std::vector<std::pair<const char*, absl::Status>> answers = {
        {"renew", volume->Renew(forged).status()},
        {"settle", volume->Settle(forged, file_)},
        {"reserve", volume->Reserve(forged, 1u).status()},
        {"make", volume->Commit(forged, making).status()},
        {"commit", volume->Commit(forged, transaction).status()},
        {"change", volume->Change(forged, file_, change).status()},
        {"tell when", volume->TellWhenWritten(forged, file_, 1)},
        {"open", volume->Open(forged, file_).status()},
        {"listen", volume->ListenForLocks(forged, runtime::Ref<LockClient>())},
        {"lock", volume->Lock(forged, lock).status()},
    };
    for (const auto& [call, status] : answers) {
      EXPECT_TRUE(IsNoClient(status)) << call << " as " << forged << ": " << status;
    }
    const auto known =
        volume->Know(forged, std::vector<ObjectId>{file_}, std::vector<KnownInode>{});
    ASSERT_TRUE(known.ok()) << known.status();
    EXPECT_EQ(known->given.front(), Version()) << "nothing is promised to " << forged;
    EXPECT_FALSE(volume->Close(forged, file_).ok());
    EXPECT_FALSE(volume->CloseAll(forged, std::vector<ObjectId>{closed->id, file_}).ok());
    volume->Pass(forged, file_).IgnoreError();
    volume->Leave(forged).IgnoreError();
  }
  EXPECT_EQ(a_->Lookup(kForger, a_->root(), "closed")->id, closed->id);
  ASSERT_TRUE(a_->Unlink(kForger, a_->root(), "closed").ok());
  ExpectAllIsThere();
}

// The layers at the volume see the client in the versions that they are given.
TEST_F(ForgedTest, AVersionOfNoClientChangesNoBytes) {
  const auto own = world_.volume()->Join("c", runtime::Ref<ClientEnd>());
  ASSERT_TRUE(own.ok()) << own.status();
  const auto layer = world_.volume()->Open(own->writer, file_);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const Block bytes = Block::CopyOf("forged");
  const auto node = a_->Stat(file_);
  ASSERT_TRUE(node.ok()) << node.status();
  const Version now = Version::Of(node->version.ticks() + 1, 999);
  const std::vector<std::pair<const char*, absl::Status>> answers = {
      {"read", (*layer)->Read(0, 10, now).status()},
      {"write", (*layer)->Write(0, bytes, now)},
      {"append", (*layer)->Append(bytes, now).status()},
      {"truncate", (*layer)->Truncate(0, now)},
      {"punch", (*layer)->Punch(Range{0, 5}, now)},
      {"seek", (*layer)->Seek(0, true, now).status()},
      {"claim", (*layer)->Claim(PromiseKind::kWrite, now).status()},
      {"attributes", (*layer)->GetAttributes(now).status()},
      {"commit", (*layer)
                     ->Commit(std::vector<RangeVersion>{}, std::vector<RangeWrite>{{0, bytes}}, now)
                     .status()},
  };
  for (const auto& [call, status] : answers) {
    EXPECT_TRUE(IsNoClient(status)) << call << ": " << status;
  }
  EXPECT_FALSE((*layer)->SetInode("forged", now).ok()) << "inodes are the volume's to change";
  ASSERT_TRUE(world_.volume()->Leave(own->writer).ok());
  ExpectAllIsThere();
}

}  // namespace
}  // namespace abacus::objfs
