// Grep over files of a volume: it and the layers below it are moved about, other clients write to
// the file, and its own client loses its lease.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "apps/grep/grep_object.h"
#include "objfs/fs/testing/file_system_world.h"

namespace abacus::apps {
namespace {

using objfs::FileHandle;
using objfs::FileSystem;
using objfs::FsError;
using objfs::ObjectId;
using objfs::Subgraph;
using objfs::testing::FileSystemWorld;
using runtime::Block;
using runtime::MutexLock;
using runtime::Ref;

const objfs::Caller kSuperuser;
constexpr size_t kSearcher = 1, kOther = 2;
constexpr uint64_t kBlockBytes = 4096;
// Nobody renews it by himself while a test lasts.
constexpr absl::Duration kLease = absl::Minutes(10);
// A block of it is a block of the search, and the next ones are there before they are asked for.
constexpr char kCached[] = "cache(block=4 KiB,ahead=64 KiB)/isolation/storage";
constexpr char kPlain[] = "isolation/storage";

class GrepFileTest : public ::testing::Test {
 protected:
  GrepFileTest()
      : world_(
            3, nullptr,
            [this] {
              const auto now = std::chrono::steady_clock::now().time_since_epoch();
              return steady_ns_ + std::chrono::nanoseconds(now).count();
            },
            kLease, absl::Seconds(1), [](runtime::ObjectTypes& types) { types.Add<Grep>(); }) {
    world_.on_layer = [this](size_t, const runtime::Rid& rid) {
      MutexLock lock(mutex_);
      layers_.insert(rid);
    };
    world_.on_layer_end = [this](const runtime::Rid& rid) {
      MutexLock lock(mutex_);
      layers_.erase(rid);
    };
  }

  static std::string Text(size_t bytes) {
    std::mt19937 random(7);
    std::string text;
    for (int line = 0; text.size() < bytes; ++line) {
      absl::StrAppend(&text, "line ", line, random() % 3 == 0 ? " kernel\n" : "\n");
    }
    return text;
  }
  // A file of that stack, with those bytes at the server.
  ObjectId Store(const std::string& stack, const std::string& bytes) {
    const auto maker = world_.Client(kSearcher, stack);
    const auto made = maker->Make(kSuperuser, maker->root(), "file", S_IFREG | 0644, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    const FileHandle handle = maker->Open(kSuperuser, made->id, O_WRONLY).value();
    EXPECT_TRUE(maker->Write(handle, 0, Block::CopyOf(bytes)).ok());
    EXPECT_EQ(maker->Release(handle), absl::OkStatus());
    return made->id;
  }

  // As the console of `abacus run grep` does it.
  struct Search {
    FileSystem* files = nullptr;
    FileHandle handle = 0;
    Ref<Grep> grep;
    std::string output;
    uint64_t calls = 0;
    uint64_t waits = 0;  // calls that were answered: another client is in the way
  };
  Search Begin(FileSystem& files, ObjectId id) {
    Search search{.files = &files};
    search.handle = files.Open(kSuperuser, id, O_RDONLY).value();
    const absl::Status made =
        files.WithSubgraph(search.handle, [&](const Subgraph& file) -> absl::Status {
          auto grep = world_.cluster()[kSearcher].binding().Create<Grep>(file, "kernel", "file",
                                                                         kBlockBytes);
          if (grep.ok()) search.grep = *std::move(grep);
          return grep.status();
        });
    EXPECT_TRUE(made.ok()) << made;
    return search;
  }
  static absl::StatusOr<GrepChunk> Next(Search& search) {
    GrepChunk chunk;
    const absl::Status status =
        search.files->WithSubgraph(search.handle, [&](const Subgraph& file) -> absl::Status {
          ++search.calls;
          auto next = search.grep->Next(file);
          if (objfs::IsWouldBlock(next.status())) ++search.waits;
          if (next.ok()) chunk = *std::move(next);
          return next.status();
        });
    if (!status.ok()) return status;
    search.output += chunk.output.view();
    return chunk;
  }
  static absl::Status RunAll(Search& search, const std::function<void()>& between) {
    for (;;) {
      const auto chunk = Next(search);
      if (!chunk.ok()) return chunk.status();
      if (chunk->done) return absl::OkStatus();
      between();
    }
  }

  bool MoveTo(const runtime::Rid& rid, size_t to) {
    const auto from = world_.cluster().HostOf(rid);
    if (!from.has_value() || *from == to) return false;
    const auto moved = world_.cluster().Move(rid, *from, to);
    return moved.ok() && moved->status.ok();
  }
  std::set<runtime::Rid> Layers() {
    MutexLock lock(mutex_);
    return layers_;
  }

  std::atomic<int64_t> steady_ns_{0};  // by how much the clock of leases is ahead
  FileSystemWorld world_;
  runtime::Mutex mutex_;
  std::set<runtime::Rid> layers_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(GrepFileTest, OutputIsGrepsOnEachStackWhileItAndTheLayersAreMoved) {
  const std::string text = Text(200000);
  for (const char* stack : {kPlain, kCached, "statistics/cache(block=4 KiB)/isolation/storage"}) {
    const ObjectId id = Store(stack, text);
    const auto files = world_.Client(kSearcher);
    Search search = Begin(*files, id);
    uint64_t grep_moves = 0, layer_moves = 0;
    std::mt19937 random(3);
    const absl::Status status = RunAll(search, [&] {
      grep_moves += MoveTo(search.grep.rid(), random() % 3) ? 1 : 0;
      for (const runtime::Rid& layer : Layers()) {
        layer_moves += MoveTo(layer, random() % 3) ? 1 : 0;
      }
    });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(search.output, GrepWhole("kernel", "file", text).value()) << stack;
    EXPECT_GT(grep_moves, 10u);
    if (stack == std::string(kPlain)) {
      EXPECT_EQ(layer_moves, 0u) << "it has no layers of its client's";
    } else {
      EXPECT_GT(layer_moves, 10u) << stack;
    }
    EXPECT_EQ(files->Release(search.handle), absl::OkStatus());
    ASSERT_TRUE(files->Unlink(kSuperuser, files->root(), "file").ok());
  }
}

// The bytes stay the same; the promises for them go to and fro.
TEST_F(GrepFileTest, OutputIsGrepsWhileAnotherClientWritesAndAllIsMoved) {
  const std::string text = Text(400000);
  const ObjectId id = Store(kCached, text);
  const auto files = world_.Client(kSearcher), others = world_.Client(kOther);
  const FileHandle at_other = others->Open(kSuperuser, id, O_RDWR).value();
  Search search = Begin(*files, id);
  std::atomic<bool> over{false};
  std::atomic<uint64_t> writes{0}, moves{0}, rounds{0};
  std::thread writer([&] {
    std::mt19937 random(5);
    while (!over) {
      const size_t offset = random() % (text.size() - 100);
      const absl::Status written =
          others->Write(at_other, offset, Block::CopyOf(text.substr(offset, 100)));
      ASSERT_TRUE(written.ok()) << written;
      ++writes;
    }
  });
  std::thread mover([&] {
    std::mt19937 random(6);
    while (!over) {
      moves += MoveTo(search.grep.rid(), random() % 3) ? 1 : 0;
      for (const runtime::Rid& layer : Layers()) moves += MoveTo(layer, random() % 3) ? 1 : 0;
      ++rounds;
    }
  });
  const absl::Status status = RunAll(search, [&] {
    const uint64_t writes_before = writes, rounds_before = rounds;
    while (writes == writes_before || rounds == rounds_before) std::this_thread::yield();
  });
  over = true;
  writer.join();
  mover.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(search.output, GrepWhole("kernel", "file", text).value());
  std::cout << writes << " writes of the other client, " << moves << " moves, " << search.waits
            << " of " << search.calls << " calls had to wait\n";
  EXPECT_GT(writes, 10u);
  EXPECT_GT(moves, 10u);
  EXPECT_GT(search.waits, 0u);
}

TEST_F(GrepFileTest, AChunkHasWhatAnotherClientWroteBeforeItWasAskedFor) {
  for (const char* stack : {kPlain, kCached}) {
    std::string text(16 * kBlockBytes, 'x');
    for (size_t i = 63; i < text.size(); i += 64) text[i] = '\n';
    const ObjectId id = Store(stack, text);
    const auto files = world_.Client(kSearcher), others = world_.Client(kOther);
    const FileHandle at_other = others->Open(kSuperuser, id, O_RDWR).value();
    Search search = Begin(*files, id);
    for (uint64_t block = 0; block < 16; ++block) {
      // It has been read ahead, and is promised.
      ASSERT_TRUE(others->Write(at_other, block * kBlockBytes + 64, Block::CopyOf("kernel")).ok());
      text.replace(block * kBlockBytes + 64, 6, "kernel");
      ASSERT_TRUE(Next(search).ok());
    }
    ASSERT_TRUE(Next(search)->done);
    EXPECT_EQ(search.output, GrepWhole("kernel", "file", text).value()) << stack;
    EXPECT_EQ(files->Release(search.handle), absl::OkStatus());
    EXPECT_EQ(others->Release(at_other), absl::OkStatus());
    ASSERT_TRUE(files->Unlink(kSuperuser, files->root(), "file").ok());
  }
}

// What its cache has kept is old by then. Asked without the front end, the layers would show it.
TEST_F(GrepFileTest, WhoseLeaseIsOverIsShownNothingOldAndGoesOnWithANewJoining) {
  std::string text(16 * kBlockBytes, 'x');
  for (size_t i = 63; i < text.size(); i += 64) text[i] = '\n';
  const ObjectId id = Store(kCached, text);
  const auto files = world_.Client(kSearcher);
  Search search = Begin(*files, id);
  ASSERT_TRUE(Next(search).ok());
  // What a filter must not: it keeps the layers, and so can ask them when nobody has looked at the
  // lease. The next block is in the cache from now on.
  Subgraph leaked;
  const absl::Status read = files->WithSubgraph(search.handle, [&](const Subgraph& file) {
    leaked = file;
    return file.top->Read(kBlockBytes, kBlockBytes, file.now).status();
  });
  ASSERT_TRUE(read.ok()) << read;
  // It sleeps, and is given up.
  ASSERT_TRUE(runtime::testing::Eventually([&] {
    steady_ns_ += 2 * absl::ToInt64Nanoseconds(kLease);
    return world_.volume()->Clients()->empty();
  }));
  {
    const auto others = world_.Client(kOther);
    const FileHandle at_other = others->Open(kSuperuser, id, O_RDWR).value();
    for (uint64_t block = 1; block < 16; ++block) {
      ASSERT_TRUE(others->Write(at_other, block * kBlockBytes + 64, Block::CopyOf("kernel")).ok());
      text.replace(block * kBlockBytes + 64, 6, "kernel");
    }
    ASSERT_TRUE(others->Sync(at_other).ok());
  }
  const auto kept = leaked.top->Read(kBlockBytes, kBlockBytes, leaked.now);
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_EQ(kept->bytes.view().substr(64, 6), "xxxxxx") << "it is old, and there";
  const absl::Status status = RunAll(search, [] {});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(search.output, GrepWhole("kernel", "file", text).value());
}

TEST_F(GrepFileTest, WithoutAServerNoCallIsMade) {
  const ObjectId id = Store(kCached, Text(100000));
  auto files = world_.Client(kSearcher);
  Search search = Begin(*files, id);
  ASSERT_TRUE(Next(search).ok());
  world_.LoseServer();
  steady_ns_ += 2 * absl::ToInt64Nanoseconds(kLease);
  const uint64_t calls = search.calls;
  EXPECT_FALSE(Next(search).ok());
  EXPECT_EQ(search.calls, calls);
  search = Search();
  files.reset();
}

TEST_F(GrepFileTest, AFileThatIsNotOpenForReadingHasNoSubgraph) {
  const ObjectId id = Store(kPlain, "a\n");
  const auto files = world_.Client(kSearcher);
  const auto no_call = [](const Subgraph&) -> absl::Status {
    ADD_FAILURE();
    return absl::OkStatus();
  };
  const FileHandle handle = files->Open(kSuperuser, id, O_WRONLY).value();
  EXPECT_EQ(objfs::FsErrorOf(files->WithSubgraph(handle, no_call)), FsError::kBadHandle);
  EXPECT_EQ(files->Release(handle), absl::OkStatus());
  EXPECT_EQ(objfs::FsErrorOf(files->WithSubgraph(handle, no_call)), FsError::kBadHandle);
}

}  // namespace
}  // namespace abacus::apps
