#include "runtime/base/status.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

struct Row {
  ErrorKind kind;
  absl::StatusCode code;
  std::string_view name;
};

// Written out again on purpose: kinds and codes are on the wire, so a change must be seen.
const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      {ErrorKind::kOutcomeUnknown, absl::StatusCode::kUnknown, "outcome-unknown"},
      {ErrorKind::kObjectLost, absl::StatusCode::kDataLoss, "object-lost"},
      {ErrorKind::kObjectNotFound, absl::StatusCode::kNotFound, "object-not-found"},
      {ErrorKind::kNoSuchMethod, absl::StatusCode::kUnimplemented, "no-such-method"},
      {ErrorKind::kNoSuchClass, absl::StatusCode::kUnimplemented, "no-such-class"},
      {ErrorKind::kBadArguments, absl::StatusCode::kInvalidArgument, "bad-arguments"},
      {ErrorKind::kBadCheckpoint, absl::StatusCode::kDataLoss, "bad-checkpoint"},
      {ErrorKind::kBadFrame, absl::StatusCode::kDataLoss, "bad-frame"},
      {ErrorKind::kVersionMismatch, absl::StatusCode::kFailedPrecondition, "version-mismatch"},
      {ErrorKind::kBackPressure, absl::StatusCode::kResourceExhausted, "back-pressure"},
      {ErrorKind::kNestingTooDeep, absl::StatusCode::kResourceExhausted, "nesting-too-deep"},
      {ErrorKind::kDuplicateEvicted, absl::StatusCode::kAborted, "duplicate-evicted"},
      {ErrorKind::kNodeUnreachable, absl::StatusCode::kUnavailable, "node-unreachable"},
      {ErrorKind::kMoveCancelled, absl::StatusCode::kAborted, "move-cancelled"},
      {ErrorKind::kNodeFenced, absl::StatusCode::kUnavailable, "node-fenced"},
  };
  return rows;
}

TEST(StatusTest, EachKindHasItsCodeAndItsName) {
  std::set<std::string_view> names;
  for (const Row& row : Rows()) {
    const absl::Status status = MakeError(row.kind, "what happened");
    EXPECT_EQ(status.code(), row.code) << row.name;
    EXPECT_EQ(ToStd(status.message()), "what happened");
    EXPECT_EQ(KindOf(status), row.kind) << row.name;
    EXPECT_EQ(KindName(row.kind), row.name);
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " names two kinds";
  }
}

TEST(StatusTest, RowsCoverEveryKind) {
  // The last kind plus one is not a kind: a new one has to be added to Rows().
  EXPECT_EQ(static_cast<size_t>(ErrorKind::kNodeFenced), Rows().size());
  for (size_t i = 0; i < Rows().size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(Rows()[i].kind), i + 1) << Rows()[i].name;
  }
}

TEST(StatusTest, KindSurvivesCopiesMovesAndStatusOr) {
  const absl::Status made = MakeError(ErrorKind::kObjectLost, "gone");
  absl::Status copy = made;
  EXPECT_EQ(KindOf(copy), ErrorKind::kObjectLost);
  const absl::Status moved = std::move(copy);
  EXPECT_EQ(KindOf(moved), ErrorKind::kObjectLost);
  const absl::StatusOr<int> or_value = moved;
  EXPECT_EQ(KindOf(or_value.status()), ErrorKind::kObjectLost);
  EXPECT_EQ(or_value.status(), made);
}

TEST(StatusTest, StatusesOfOthersHaveNoKind) {
  EXPECT_EQ(KindOf(absl::OkStatus()), ErrorKind::kNone);
  EXPECT_EQ(KindOf(absl::NotFoundError("a file")), ErrorKind::kNone);
  absl::Status other = absl::UnknownError("x");
  other.SetPayload("somebody/else", absl::Cord("\x01"));
  EXPECT_EQ(KindOf(other), ErrorKind::kNone);
}

TEST(StatusTest, DamagedPayloadHasNoKind) {
  for (const char* bytes : {"", "ab", "\x7f", "\xff"}) {
    absl::Status status = absl::UnknownError("x");
    status.SetPayload("abacus/error-kind", absl::Cord(bytes));
    EXPECT_EQ(KindOf(status), ErrorKind::kNone);
  }
}

TEST(StatusTest, KindOfANewerBuildIsAnErrorWithoutAKind) {
  for (const int value : {17, 100, 255}) {
    const auto kind = static_cast<ErrorKind>(value);
    const absl::Status status = MakeError(kind, "from elsewhere");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
    EXPECT_EQ(KindOf(status), ErrorKind::kNone);
    EXPECT_EQ(KindName(kind), "none");
  }
}

TEST(StatusTest, OutcomeUnknownIsToldFromOtherUnknownErrors) {
  EXPECT_TRUE(IsOutcomeUnknown(MakeError(ErrorKind::kOutcomeUnknown, "")));
  EXPECT_FALSE(IsOutcomeUnknown(absl::UnknownError("")));
  EXPECT_FALSE(IsOutcomeUnknown(absl::OkStatus()));
}

TEST(StatusTest, ViewsKeepBytesAndLengthBothWays) {
  const std::string_view text("a\0b", 3);
  EXPECT_EQ(ToStd(ToAbsl(text)), text);
  EXPECT_EQ(ToAbsl(std::string_view()).size(), 0u);
}

absl::Status ReturnIfError(const absl::Status& status, int* after) {
  ABACUS_RETURN_IF_ERROR(status);
  ++*after;
  return absl::OkStatus();
}

TEST(StatusTest, ReturnIfErrorReturnsErrorsOnly) {
  int after = 0;
  EXPECT_TRUE(ReturnIfError(absl::OkStatus(), &after).ok());
  EXPECT_EQ(after, 1);
  EXPECT_EQ(KindOf(ReturnIfError(MakeError(ErrorKind::kBadFrame, "x"), &after)),
            ErrorKind::kBadFrame);
  EXPECT_EQ(after, 1);
}

absl::StatusOr<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return std::make_unique<int>(value / 2);
}
absl::StatusOr<int> Quarter(int value) {
  ABACUS_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(value));
  std::unique_ptr<int> quarter;
  ABACUS_ASSIGN_OR_RETURN(quarter, Half(*half));
  return *quarter;
}

TEST(StatusTest, AssignOrReturnTakesMoveOnlyValuesAndReturnsErrors) {
  const absl::StatusOr<int> two = Quarter(8);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(*two, 2);
  EXPECT_EQ(Quarter(7).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Quarter(6).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace abacus::runtime
