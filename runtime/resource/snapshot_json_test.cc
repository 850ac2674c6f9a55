// Recorded snapshots: what a decision was made from, read back, also by a later build.

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_replace.h"
#include "runtime/resource/placement_loop.h"

namespace abacus::runtime {
namespace {

placement::Snapshot SomeSnapshot() {
  placement::Snapshot snapshot;
  snapshot.window_s = 1;
  snapshot.nodes = {{.node = 1,
                     .name = "s",
                     .is_server = true,
                     .rate = 1e9,
                     .cores = 2,
                     .load = 0.5,
                     .source = "ebpf",
                     .sees_switches = true,
                     .sees_io = true},
                    {.node = 7,
                     .name = "c",
                     .rate = 2e9,
                     .source = "thread-clock",
                     .source_missing = "no right to eBPF",
                     .lost = {.threads = 1, .io_requests = 2, .io_times = 3, .edges = 4}}};
  return snapshot;
}

TEST(SnapshotJsonTest, EachNodeKeepsTheSourceOfItsFiguresWhatIsMissingAndWhatWasLost) {
  const auto snapshot = SnapshotFromJson(ToJson(SomeSnapshot()));
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  ASSERT_EQ(snapshot->nodes.size(), 2u);
  EXPECT_EQ(snapshot->nodes[0].source, "ebpf");
  EXPECT_EQ(snapshot->nodes[0].source_missing, "");
  EXPECT_EQ(snapshot->nodes[0].lost.all(), 0u);
  EXPECT_EQ(snapshot->nodes[1].source, "thread-clock");
  EXPECT_EQ(snapshot->nodes[1].source_missing, "no right to eBPF");
  EXPECT_EQ(snapshot->nodes[1].lost, SomeSnapshot().nodes[1].lost);
}

// As builds wrote it before the last two were in it.
TEST(SnapshotJsonTest, RecordOfBeforeStillReads) {
  constexpr char kNode[] =
      R"({"contention":1.0,"cores":1.0,"load":1.0,"memory_bytes":null,"memory_free_bytes":null,)"
      R"("memory_limit_bytes":null,"name":"c","node":7,"rate":2e9,"sees_io":false,)"
      R"("sees_memory":true,"sees_switches":false,"server":false,"source":"thread-clock"})";
  const std::string text = absl::StrReplaceAll(
      R"({"console":"7.1.1","edges":[],"history":{"count":0,"quiesce_s":0.0},"links":[],)"
      R"("measured_t_app_s":null,"nodes":[NODE],"objects":[],"suspended":false,"window_s":1.0})",
      {{"NODE", kNode}});
  const auto snapshot = SnapshotFromJson(text);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  ASSERT_EQ(snapshot->nodes.size(), 1u);
  EXPECT_EQ(snapshot->nodes[0].source, "thread-clock");
  EXPECT_EQ(snapshot->nodes[0].source_missing, "");
  EXPECT_EQ(snapshot->nodes[0].lost.all(), 0u);
}

TEST(SnapshotJsonTest, TextThatIsNoSnapshotIsAnErrorAndNoCrash) {
  for (const char* text : {"", "{", "[]", "{\"window_s\": \"x\"}", "null", "{\"window_s\": 1}"}) {
    EXPECT_EQ(SnapshotFromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace abacus::runtime
