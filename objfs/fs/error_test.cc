#include "objfs/fs/error.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "objfs/layer/layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr auto kLast = FsError::kNoLocks;

TEST(FsErrorTest, AStatusTellsTheErrorThatItWasMadeOf) {
  for (int i = 1; i <= static_cast<int>(kLast); ++i) {
    const auto error = static_cast<FsError>(i);
    const absl::Status status = FsStatus(error, "because");
    EXPECT_FALSE(status.ok()) << FsErrorName(error);
    EXPECT_EQ(FsErrorOf(status), error) << FsErrorName(error);
    EXPECT_EQ(runtime::ToStd(status.message()), "because");
  }
}

TEST(FsErrorTest, NoErrorIsOkAndBack) {
  EXPECT_TRUE(FsStatus(FsError::kNone, "nothing").ok());
  EXPECT_EQ(FsErrorOf(absl::OkStatus()), FsError::kNone);
}

TEST(FsErrorTest, EachErrorHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(kLast); ++i) {
    names.insert(std::string(FsErrorName(static_cast<FsError>(i))));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kLast) + 1);
  EXPECT_EQ(FsErrorName(FsError::kNoEntry), "no-entry");
}

TEST(FsErrorTest, AStatusOfTheLayersIsUnderstoodByItsCode) {
  const struct {
    absl::Status status;
    FsError error;
  } rows[] = {
      {absl::NotFoundError("object 7"), FsError::kStale},
      {absl::ResourceExhaustedError("disk"), FsError::kNoSpace},
      {absl::DataLossError("block 3"), FsError::kInputOutput},
      {absl::OutOfRangeError("2^62"), FsError::kTooBig},
      {absl::InvalidArgumentError("name"), FsError::kInvalid},
      {absl::AlreadyExistsError("name"), FsError::kExists},
      {absl::UnimplementedError("acl"), FsError::kNotSupported},
      {absl::PermissionDeniedError("no"), FsError::kAccess},
      {absl::CancelledError("signal"), FsError::kInterrupted},
      {WouldBlock("a lock"), FsError::kWouldBlock},
      {absl::UnavailableError("server"), FsError::kInputOutput},
      {absl::DeadlineExceededError("server"), FsError::kInputOutput},
      {absl::FailedPreconditionError("?"), FsError::kInputOutput},
      {absl::InternalError("?"), FsError::kInputOutput},
      {absl::UnknownError("?"), FsError::kInputOutput},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(FsErrorOf(row.status), row.error) << row.status;
  }
}

TEST(FsErrorTest, WhatTheRuntimeCouldNotDoIsNoMistakeOfTheCaller) {
  using runtime::ErrorKind;
  for (int i = 1; i <= static_cast<int>(ErrorKind::kTooLarge); ++i) {
    const auto kind = static_cast<ErrorKind>(i);
    EXPECT_EQ(FsErrorOf(runtime::MakeError(kind, "")),
              kind == ErrorKind::kObjectNotFound ? FsError::kStale : FsError::kInputOutput)
        << runtime::KindName(kind);
  }
}

TEST(FsErrorTest, APayloadThatIsNoErrorIsNotTakenForOne) {
  for (const char* bytes : {"", "\xff", "\x01\x01"}) {
    absl::Status status = absl::ResourceExhaustedError("disk");
    status.SetPayload("abacus/fs-error", absl::Cord(bytes));
    EXPECT_EQ(FsErrorOf(status), FsError::kNoSpace);
  }
}

}  // namespace
}  // namespace abacus::objfs
