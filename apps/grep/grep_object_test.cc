#include "apps/grep/grep_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/layer/testing/memory_layer.h"
#include "objfs/storage/storage_layer.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps {
namespace {

using objfs::Layer;
using objfs::Subgraph;
using objfs::Version;
using objfs::testing::MemoryLayer;
using runtime::Ref;
using ::testing::HasSubstr;

constexpr size_t kClient = 0;
constexpr size_t kServer = 1;

// Every other call would have to wait for another client.
class BusyLayer final : public Layer {
 public:
  static constexpr objfs::LayerKind kKind = {"busy", "test.BusyLayer", {}};

  absl::StatusOr<objfs::ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override {
    if (++calls_ % 2 != 0) return objfs::WouldBlock("another client");
    return Layer::Read(offset, bytes, now);
  }
  absl::StatusOr<objfs::Attributes> GetAttributes(Version now) override {
    if (++calls_ % 2 != 0) return objfs::WouldBlock("another client");
    return Layer::GetAttributes(now);
  }
  ABACUS_LAYER(BusyLayer, 1)

 private:
  std::atomic<int> calls_{0};
};

class GrepObjectTest : public ::testing::Test {
 protected:
  GrepObjectTest() {
    runtime::testing::ClusterOptions options;
    options.nodes = 2;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<MemoryLayer>().Add<BusyLayer>().Add<Grep>();
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
  }

  // A file at the server, seen from the client.
  Subgraph Store(const std::string& bytes) {
    const Ref<Layer> file = Make<MemoryLayer>({});
    if (!bytes.empty()) {
      EXPECT_TRUE(file->Write(0, runtime::Block::CopyOf(bytes), Version::Of(1, 1)).ok());
    }
    return {file, Version::Of(2, 1)};
  }
  template <typename T>
  Ref<Layer> Make(const std::vector<Ref<Layer>>& below) {
    const std::vector<std::pair<std::string, std::string>> no_options;
    const Ref<T> made = cluster_->Create<T>(kServer, below, no_options);
    return Ref<Layer>((*cluster_)[kClient].RefTo<T>(made.rid()).base());
  }

  // Lines of odd lengths, some longer than blocks, with carriage returns and no end to the last.
  static std::string Text(size_t bytes) {
    std::mt19937 random(7);
    std::string text;
    for (int line = 0; text.size() < bytes; ++line) {
      absl::StrAppend(&text, "line ", line);
      if (random() % 3 == 0) text += " kernel";
      if (random() % 50 == 0) text.append(3000, 'x');
      if (random() % 5 == 0) text += '\r';
      text += '\n';
    }
    return text + "the last kernel";
  }

  struct Found {
    std::string output;
    uint64_t matches = 0;
    std::string diagnostic;
    int chunks = 0;
  };
  template <typename BetweenChunks>
  static absl::StatusOr<Found> Run(const Ref<Grep>& grep, const Subgraph& file,
                                   BetweenChunks between) {
    Found found;
    for (;;) {
      const auto chunk = grep->Next(file);
      if (!chunk.ok()) return chunk.status();
      found.output += chunk->output.view();
      ++found.chunks;
      if (chunk->done) {
        found.matches = chunk->matches;
        found.diagnostic = chunk->diagnostic;
        return found;
      }
      between();
    }
  }

  std::unique_ptr<runtime::testing::Cluster> cluster_;
};

TEST_F(GrepObjectTest, OutputIsGrepsForEveryBlockSize) {
  const std::string text = Text(20000);
  const auto file = Store(text);
  for (const uint64_t block_bytes : {13, 512, 4096, 1 << 20}) {
    const auto grep = cluster_->Create<Grep>(kClient, file, "kernel", "file", block_bytes);
    const auto found = Run(grep, file, [] {});
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->output, GrepWhole("kernel", "file", text).value()) << block_bytes;
    EXPECT_EQ(found->chunks, text.size() / block_bytes + 1);
  }
}

TEST_F(GrepObjectTest, OutputIsTheSameWhenItMovesBetweenAllChunks) {
  const std::string text = Text(200000);
  const auto file = Store(text);
  const auto grep = cluster_->Create<Grep>(kClient, file, "kernel", "file", uint64_t{4096});
  size_t at = kClient;
  const auto found = Run(grep, file, [&] {
    ASSERT_TRUE(cluster_->Move(grep.rid(), at, 1 - at).ok());
    at = 1 - at;
  });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->output, GrepWhole("kernel", "file", text).value());
  EXPECT_GT(found->matches, 100u);
}

TEST_F(GrepObjectTest, ABinaryFilesDiagnosticSurvivesTheMove) {
  std::string text = Text(200000);
  text[150000] = '\0';
  const auto file = Store(text);
  const auto grep = cluster_->Create<Grep>(kClient, file, "kernel", "file", uint64_t{4096});
  size_t at = kClient;
  const auto found = Run(grep, file, [&] {
    ASSERT_TRUE(cluster_->Move(grep.rid(), at, 1 - at).ok());
    at = 1 - at;
  });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->output, GrepWhole("kernel", "file", text).value());
  EXPECT_EQ(found->diagnostic, "grep: file: binary file matches\n");
}

TEST_F(GrepObjectTest, OutputIsTheSameWhenItMovesWhileItSearches) {
  const std::string text = Text(1000000);
  const auto file = Store(text);
  const auto grep = cluster_->Create<Grep>(kClient, file, "kernel", "file", uint64_t{512});
  std::atomic<bool> over{false};
  std::atomic<int> chunks{0};
  int committed = 0, cancelled = 0, with_calls = 0;
  std::thread mover([&] {
    size_t at = kClient;
    while (!over.load()) {
      // Right behind a chunk: the next call is on its way or inside.
      const int seen = chunks.load();
      const auto report = cluster_->Move(grep.rid(), at, 1 - at);
      if (report.ok()) {
        ++committed;
        with_calls += report->had_calls ? 1 : 0;
        at = 1 - at;
      } else {
        ++cancelled;
      }
      chunks.wait(seen);
    }
  });
  const auto found = Run(grep, file, [&] {
    ++chunks;
    chunks.notify_one();
  });
  over = true;
  ++chunks;
  chunks.notify_one();
  mover.join();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->output, GrepWhole("kernel", "file", text).value());

  std::cout << "moves: " << committed << " committed, " << cancelled << " cancelled, " << with_calls
            << " with a call inside or waiting\n";
  ASSERT_GT(committed, 1);
  EXPECT_GE(committed, cancelled);
  EXPECT_GE(with_calls * 10, committed * 3);
}

TEST_F(GrepObjectTest, NextAfterTheEndIsDoneAndEmpty) {
  const auto file = Store("a\n");
  const auto grep = cluster_->Create<Grep>(kClient, file, "a", "file", uint64_t{10});
  ASSERT_TRUE(grep->Next(file)->done);
  const auto after = grep->Next(file);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(after->done);
  EXPECT_EQ(after->output.view(), "");
  EXPECT_EQ(after->matches, 1u);
}

TEST_F(GrepObjectTest, AnEmptyFileIsDoneAtOnce) {
  const auto file = Store("");
  const auto grep = cluster_->Create<Grep>(kClient, file, "a", "file", uint64_t{10});
  const auto chunk = grep->Next(file);
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_TRUE(chunk->done);
  EXPECT_EQ(chunk->matches, 0u);
}

TEST_F(GrepObjectTest, InitRefusesWhatIsNoPattern) {
  auto& binding = (*cluster_)[kClient].binding();
  const auto grep = binding.Create<Grep>(Store("a\n"), "\\(a", "file", uint64_t{10});
  EXPECT_TRUE(absl::IsInvalidArgument(grep.status())) << grep.status();
}

TEST_F(GrepObjectTest, InitRefusesBlocksThatCannotBeRead) {
  auto& binding = (*cluster_)[kClient].binding();
  const auto file = Store("a\n");
  for (const uint64_t block_bytes : {uint64_t{0}, Grep::kBlockBytesMax + 1}) {
    const auto grep = binding.Create<Grep>(file, "a", "file", block_bytes);
    EXPECT_TRUE(absl::IsInvalidArgument(grep.status()));
    EXPECT_THAT(std::string(grep.status().message()), HasSubstr("block"));
  }
}

TEST_F(GrepObjectTest, AStorageLayerReadsTheLargestBlockAtOnce) {
  EXPECT_LE(Grep::kBlockBytesMax, objfs::StorageLayer::kReadBytesMax);
}

TEST_F(GrepObjectTest, WhoHasToWaitIsToldAndTheSearchKeepsItsPlace) {
  const std::string text = Text(20000);
  const Subgraph file{Make<BusyLayer>({Store(text).top}), Version::Of(2, 1)};
  auto& binding = (*cluster_)[kClient].binding();
  const auto refused = binding.Create<Grep>(file, "kernel", "file", uint64_t{512});
  ASSERT_TRUE(objfs::IsWouldBlock(refused.status())) << refused.status();
  const auto grep = cluster_->Create<Grep>(kClient, file, "kernel", "file", uint64_t{512});
  // Where it is asked from elsewhere, too.
  ASSERT_TRUE(cluster_->Move(grep.rid(), kClient, kServer).ok());
  std::string output;
  int waits = 0;
  for (bool done = false; !done;) {
    const auto chunk = grep->Next(file);
    if (objfs::IsWouldBlock(chunk.status())) {
      ++waits;
      continue;
    }
    ASSERT_TRUE(chunk.ok()) << chunk.status();
    output += chunk->output.view();
    done = chunk->done;
  }
  EXPECT_EQ(output, GrepWhole("kernel", "file", text).value());
  EXPECT_GT(waits, 20);
}

TEST_F(GrepObjectTest, NextTellsThatTheFileIsGone) {
  const auto file = Store(Text(100000));
  const auto grep = cluster_->Create<Grep>(kClient, file, "kernel", "file", uint64_t{4096});
  ASSERT_TRUE(grep->Next(file).ok());
  ASSERT_TRUE((*cluster_)[kServer].binding().Destroy(file.top.rid()).ok());
  EXPECT_TRUE(absl::IsNotFound(grep->Next(file).status()));
}

}  // namespace
}  // namespace abacus::apps
