// The log by itself; commit_simulation_test.cc has it under crashes of servers.

#include "objfs/atomicity/log_core.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "objfs/atomicity/log_core_inl.h"

namespace abacus::objfs {
namespace {

const LogOptions kOptions{.log = 7, .half_bytes = 512};

// A log, its disk, and an owner whose state is the text of all records.
template <typename Policy = FaithfulLogPolicy>
struct TestLog {
  std::string state;
  std::string disk = std::string(2 * kOptions.half_bytes, '\0');
  RecoveredLog recovered;
  LogCore<Policy> core;

  TestLog() : core(kOptions, [this] { return state; }) { Flush(); }
  explicit TestLog(const std::string& left)
      : disk(left),
        core(
            kOptions, [this] { return state; }, Recover(left)) {
    Flush();
  }
  const RecoveredLog* Recover(const std::string& left) {
    recovered = *RecoverLog(kOptions, left);
    state = recovered.snapshot;
    for (const std::string& record : recovered.records) state += record;
    return &recovered;
  }
  void Append(const std::string& record) {
    state += record;
    EXPECT_TRUE(core.Append(record).ok());
  }
  size_t Flush() {
    const auto write = core.NextWrite();
    if (!write.has_value()) return 0;
    disk.replace(write->offset, write->bytes.size(), write->bytes);
    core.Written(absl::OkStatus());
    return write->bytes.size();
  }
};

std::string StateOf(const RecoveredLog& log) {
  std::string state = log.snapshot;
  for (const std::string& record : log.records) state += record;
  return state;
}

TEST(LogCore, ManyRecordsRideOnOneFlush) {
  TestLog log;
  log.Append("a");
  const auto write = log.core.NextWrite();
  for (int i = 0; i < 5; ++i) log.Append("b");
  EXPECT_FALSE(log.core.NextWrite().has_value());
  const uint64_t before = log.core.durable();
  log.core.Written(absl::OkStatus());
  EXPECT_EQ(log.core.durable(), before + 1);
  EXPECT_GT(log.Flush(), 0u);
  EXPECT_EQ(log.core.durable(), before + 6);
  EXPECT_EQ(log.Flush(), 0u);
}

TEST(LogCore, NothingIsDurableAfterAFailedFlush) {
  TestLog log;
  const uint64_t before = log.core.durable();
  log.Append("a");
  ASSERT_TRUE(log.core.NextWrite().has_value());
  log.core.Written(absl::UnavailableError("disk"));
  EXPECT_EQ(log.core.durable(), before);
  EXPECT_TRUE(absl::IsUnavailable(log.core.Append("b").status()));
  EXPECT_FALSE(log.core.NextWrite().has_value());
}

// Each prefix of what was written gives a prefix of the records, and no less than was durable.
TEST(LogCore, CutAtAnyByteItRecoversAPrefix) {
  TestLog log;
  log.Append("one,");
  log.Flush();
  const std::string before = log.disk;
  const std::string durable = log.state;
  log.Append("two,");
  log.Append("three,");
  const auto write = *log.core.NextWrite();
  for (size_t cut = 0; cut <= write.bytes.size(); ++cut) {
    std::string disk = before;
    disk.replace(write.offset, cut, write.bytes.substr(0, cut));
    const auto recovered = RecoverLog(kOptions, disk);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    const std::string state = StateOf(*recovered);
    EXPECT_TRUE(state.starts_with(durable) && log.state.starts_with(state)) << state;
    EXPECT_EQ(state == log.state, cut == write.bytes.size());
  }
}

TEST(LogCore, ACheckpointThatIsTornLeavesTheOneBefore) {
  TestLog log;
  const uint64_t checkpoints = log.core.checkpoints();
  std::string before;
  std::optional<LogWrite> write;
  while (log.core.checkpoints() == checkpoints) {
    if (write.has_value()) {
      log.disk.replace(write->offset, write->bytes.size(), write->bytes);
      log.core.Written(absl::OkStatus());
    }
    before = log.disk;
    log.Append("record,");
    write = log.core.NextWrite();
  }
  for (size_t cut = 0; cut < write->bytes.size(); ++cut) {
    std::string disk = before;
    disk.replace(write->offset, cut, write->bytes.substr(0, cut));
    const auto recovered = RecoverLog(kOptions, disk);
    ASSERT_TRUE(recovered.ok()) << recovered.status() << ", cut at " << cut;
    EXPECT_EQ(StateOf(*recovered) + "record,", log.state);
  }
}

TEST(LogCore, DamageToWhatWasDurableIsTold) {
  TestLog log;
  log.Append("one,");
  log.Flush();
  log.Append("two,");
  log.Flush();
  std::string disk = log.disk;
  disk[disk.find("one,")] ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(RecoverLog(kOptions, disk).status()));
  EXPECT_TRUE(absl::IsDataLoss(RecoverLog(kOptions, std::string(1024, '\0')).status()));
  EXPECT_TRUE(absl::IsDataLoss(RecoverLog({.log = 8, .half_bytes = 512}, log.disk).status()));
}

TEST(LogCore, FullCountsWhatACheckpointWillWrite) {
  TestLog log;
  // Records come and go within bounds, while the state stays as small as it is.
  EXPECT_FALSE(log.core.IsFull(400, 40));
  EXPECT_TRUE(log.core.IsFull(440, 40));
  EXPECT_TRUE(log.core.IsFull(0, 500));
  EXPECT_TRUE(absl::IsInvalidArgument(log.core.Append(std::string(512, 'x')).status()));
}

// A write of three records is torn: the first is lost, the others are whole. Later a checkpoint of
// just the right size ends where the third of them stands.
template <typename Policy>
std::string StateAfterPhantom() {
  TestLog<Policy> log;
  const std::string before = log.disk;
  log.Append("1");
  log.Append("2");
  log.Append("3");
  LogWrite write = *log.core.NextWrite();
  write.bytes[kLogHeaderBytes] ^= 1;
  std::string disk = before;
  disk.replace(write.offset, write.bytes.size(), write.bytes);
  // Recovered, it begins anew in the other half; the next checkpoint goes over the torn records.
  TestLog<Policy> again(disk);
  EXPECT_EQ(again.state, "");
  // A snapshot as long as two records: two appended bytes and their headers.
  again.state = std::string(2 * (kLogHeaderBytes + 1), 's');
  const LogRecordView checkpoint{.kind = LogKind::kCheckpoint,
                                 .sequence = again.core.appended() + 1,
                                 .durable = again.core.durable(),
                                 .payload = again.state};
  const std::string bytes = EncodeLogRecord(kOptions.log, checkpoint);
  again.disk.replace(write.offset - kLogHeaderBytes, bytes.size(), bytes);
  const auto recovered = RecoverLog(kOptions, again.disk);
  return recovered.ok() ? StateOf(*recovered) : std::string(recovered.status().message());
}

struct WithoutJump : FaithfulLogPolicy {
  static constexpr bool kJumpSequence = false;
};

TEST(LogCore, TornRecordsOfBeforeNeverContinueARecoveredLog) {
  EXPECT_EQ(StateAfterPhantom<FaithfulLogPolicy>(), std::string(2 * (kLogHeaderBytes + 1), 's'));
  // The mutation is seen: the phantom is taken for a record.
  EXPECT_EQ(StateAfterPhantom<WithoutJump>(), std::string(2 * (kLogHeaderBytes + 1), 's') + "3");
}

}  // namespace
}  // namespace abacus::objfs
