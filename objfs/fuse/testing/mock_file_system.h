#ifndef ABACUS_OBJFS_FUSE_TESTING_MOCK_FILE_SYSTEM_H_
#define ABACUS_OBJFS_FUSE_TESTING_MOCK_FILE_SYSTEM_H_

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "objfs/fs/file_system.h"

namespace abacus::objfs {

class MockFileSystem : public FileSystem {
 public:
  MOCK_METHOD(ObjectId, root, (), (const, override));
  MOCK_METHOD(absl::StatusOr<Node>, Lookup, (const Caller&, ObjectId, const std::string&),
              (override));
  MOCK_METHOD(absl::StatusOr<Node>, Make,
              (const Caller&, ObjectId, const std::string&, uint32_t, uint64_t, const std::string&),
              (override));
  MOCK_METHOD(absl::StatusOr<Created>, Create,
              (const Caller&, ObjectId, const std::string&, uint32_t, int, const std::string&),
              (override));
  MOCK_METHOD(absl::StatusOr<Node>, Link, (const Caller&, ObjectId, ObjectId, const std::string&),
              (override));
  MOCK_METHOD(absl::Status, Unlink, (const Caller&, ObjectId, const std::string&), (override));
  MOCK_METHOD(absl::Status, RemoveDirectory, (const Caller&, ObjectId, const std::string&),
              (override));
  MOCK_METHOD(absl::Status, Rename,
              (const Caller&, ObjectId, const std::string&, ObjectId, const std::string&,
               RenameRule),
              (override));
  MOCK_METHOD(absl::StatusOr<std::string>, ReadLink, (const Caller&, ObjectId), (override));
  MOCK_METHOD(absl::StatusOr<std::vector<Listed>>, List,
              (const Caller&, ObjectId, uint64_t, uint32_t, bool), (override));
  MOCK_METHOD(absl::StatusOr<Node>, Stat, (ObjectId), (override));
  MOCK_METHOD(absl::StatusOr<Node>, Set, (const Caller&, ObjectId, const SetAttributes&),
              (override));
  MOCK_METHOD(absl::Status, Access, (const Caller&, ObjectId, int), (override));
  MOCK_METHOD(absl::StatusOr<std::string>, GetXattr, (const Caller&, ObjectId, const std::string&),
              (override));
  MOCK_METHOD(absl::Status, SetXattr,
              (const Caller&, ObjectId, const std::string&, const std::string&, XattrRule),
              (override));
  MOCK_METHOD(absl::Status, RemoveXattr, (const Caller&, ObjectId, const std::string&), (override));
  MOCK_METHOD(absl::StatusOr<std::vector<std::string>>, ListXattrs, (const Caller&, ObjectId),
              (override));
  MOCK_METHOD(absl::StatusOr<FileHandle>, Open, (const Caller&, ObjectId, int), (override));
  MOCK_METHOD(absl::Status, Release, (FileHandle), (override));
  MOCK_METHOD(absl::StatusOr<runtime::Block>, Read, (FileHandle, uint64_t, uint64_t), (override));
  MOCK_METHOD(absl::Status, Write, (FileHandle, uint64_t, const runtime::Block&), (override));
  MOCK_METHOD(absl::StatusOr<uint64_t>, Append, (FileHandle, const runtime::Block&), (override));
  MOCK_METHOD(absl::Status, Renew, (), (override));
  MOCK_METHOD(absl::Status, Push, (FileHandle), (override));
  MOCK_METHOD(absl::Status, Sync, (FileHandle), (override));
  MOCK_METHOD(absl::Status, SyncDirectory, (ObjectId), (override));
  MOCK_METHOD(absl::Status, Allocate, (FileHandle, int, uint64_t, uint64_t), (override));
  MOCK_METHOD(absl::StatusOr<uint64_t>, SeekData, (FileHandle, uint64_t), (override));
  MOCK_METHOD(absl::StatusOr<uint64_t>, SeekHole, (FileHandle, uint64_t), (override));
  MOCK_METHOD(absl::StatusOr<uint64_t>, CopyRange,
              (FileHandle, uint64_t, FileHandle, uint64_t, uint64_t), (override));
  MOCK_METHOD(absl::Status, WithSubgraph,
              (FileHandle, const std::function<absl::Status(const Subgraph&)>&), (override));
  MOCK_METHOD(uint64_t, NewLockTicket, (), (override));
  MOCK_METHOD(void, Lock, (const LockRequest&, const LockDone&), (override));
  MOCK_METHOD(void, CancelLock, (uint64_t), (override));
  MOCK_METHOD(absl::Status, Unlock, (const LockRequest&), (override));
  MOCK_METHOD(absl::Status, UnlockAll, (ObjectId, LockKind, uint64_t), (override));
  MOCK_METHOD(absl::StatusOr<std::optional<HeldLock>>, GetLock, (const LockRequest&), (override));
  MOCK_METHOD(uint64_t, AddKeeper, (Forget), (override));
  MOCK_METHOD(void, RemoveKeeper, (uint64_t), (override));
  MOCK_METHOD(bool, IsTold, (ObjectId), (override));
  MOCK_METHOD(absl::StatusOr<VolumeSpace>, Space, (), (override));
  MOCK_METHOD(absl::StatusOr<std::string>, StackOf, (ObjectId), (override));
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FUSE_TESTING_MOCK_FILE_SYSTEM_H_
