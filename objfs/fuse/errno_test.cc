#include "objfs/fuse/errno.h"

#include <cerrno>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace abacus::objfs::fuse {
namespace {

// The table of POSIX (and of Linux, where POSIX has no word), written a second time.
const std::map<FsError, int> kTable = {
    {FsError::kNone, 0},
    {FsError::kNoEntry, ENOENT},
    {FsError::kExists, EEXIST},
    {FsError::kNotDirectory, ENOTDIR},
    {FsError::kIsDirectory, EISDIR},
    {FsError::kNotEmpty, ENOTEMPTY},
    {FsError::kAccess, EACCES},
    {FsError::kNotPermitted, EPERM},
    {FsError::kInvalid, EINVAL},
    {FsError::kNameTooLong, ENAMETOOLONG},
    {FsError::kTooManyLinks, EMLINK},
    {FsError::kCrossVolume, EXDEV},
    {FsError::kNoSpace, ENOSPC},
    {FsError::kTooBig, EFBIG},
    {FsError::kNoAttribute, ENODATA},
    {FsError::kNotSupported, EOPNOTSUPP},
    {FsError::kStale, ESTALE},
    {FsError::kWouldBlock, EAGAIN},
    {FsError::kDeadlock, EDEADLK},
    {FsError::kOutOfRange, ENXIO},
    {FsError::kNoDevice, ENODEV},
    {FsError::kTextBusy, ETXTBSY},
    {FsError::kTooManyOpen, ENFILE},
    {FsError::kInterrupted, EINTR},
    {FsError::kBadHandle, EBADF},
    {FsError::kInputOutput, EIO},
    {FsError::kNoLocks, ENOLCK},
};

TEST(ErrnoTest, EachErrorHasItsNumberAndNoOtherHasIt) {
  std::set<int> numbers;
  for (int i = 0; i <= static_cast<int>(FsError::kNoLocks); ++i) {
    const auto error = static_cast<FsError>(i);
    ASSERT_TRUE(kTable.contains(error)) << FsErrorName(error);
    EXPECT_EQ(ErrnoOf(error), kTable.at(error)) << FsErrorName(error);
    EXPECT_EQ(ErrnoOf(FsStatus(error, "")), kTable.at(error)) << FsErrorName(error);
    EXPECT_TRUE(numbers.insert(ErrnoOf(error)).second) << FsErrorName(error);
  }
  EXPECT_EQ(kTable.size(), numbers.size());
}

TEST(ErrnoTest, AStatusWithoutAnErrorOfOursIsTakenByItsCode) {
  EXPECT_EQ(ErrnoOf(absl::OkStatus()), 0);
  EXPECT_EQ(ErrnoOf(absl::NotFoundError("object")), ESTALE);
  EXPECT_EQ(ErrnoOf(absl::ResourceExhaustedError("disk")), ENOSPC);
  EXPECT_EQ(ErrnoOf(absl::UnavailableError("server")), EIO);
}

TEST(ErrnoTest, AnErrorOfAnotherBuildIsInputOutput) {
  EXPECT_EQ(ErrnoOf(static_cast<FsError>(200)), EIO);
}

TEST(ErrnoTest, TheEndOfTheConnectionIsNoError) {
  EXPECT_TRUE(IsEndOfConnection(0));
  EXPECT_TRUE(IsEndOfConnection(-ENODEV));
  EXPECT_TRUE(IsEndOfConnection(-ECONNABORTED));
  EXPECT_FALSE(IsEndOfConnection(-EPROTO));
  EXPECT_FALSE(IsEndOfConnection(-EIO));
}

}  // namespace
}  // namespace abacus::objfs::fuse
