// What clients keep of files is what was written last: several clients of one volume, each with a
// cache of its own that is moved about, against a plain model and against the order of real time.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/movables.h"
#include "runtime/object/accounts.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::MutexLock;
using testing::FileSystemWorld;
using ::testing::HasSubstr;
using testing::Movables;

const Caller kSuperuser;
constexpr char kCached[] = "cache(block=512 B,ahead=1 KiB)/isolation/storage";
constexpr int64_t kLeaseOfVolumeNs = int64_t{30} * 1'000'000'000;

class CoherenceTest : public ::testing::Test {
 protected:
  explicit CoherenceTest(size_t nodes = 4)
      : world_(nodes, nullptr, [this] {
          const auto now = std::chrono::steady_clock::now().time_since_epoch();
          return steady_ns_ + std::chrono::nanoseconds(now).count();
        }) {}

  static ObjectId MakeFile(FileSystem& at, const std::string& name) {
    const auto made = at.Make(kSuperuser, at.root(), name, S_IFREG | 0644, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->id : 0;
  }
  static FileHandle Open(FileSystem& at, ObjectId id, int flags = O_RDWR) {
    const auto handle = at.Open(kSuperuser, id, flags);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.ok() ? *handle : 0;
  }
  static std::string Read(FileSystem& at, FileHandle handle, uint64_t offset = 0,
                          uint64_t bytes = 1 << 20) {
    const auto read = at.Read(handle, offset, bytes);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->view()) : "an error";
  }
  static void Write(FileSystem& at, FileHandle handle, uint64_t offset, const std::string& bytes) {
    const absl::Status written = at.Write(handle, offset, Block::CopyOf(bytes));
    EXPECT_TRUE(written.ok()) << written;
  }
  static uint64_t SizeOf(FileSystem& at, ObjectId id) {
    const auto node = at.Stat(id);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? node->size : UINT64_MAX;
  }

  std::string Fact(const std::string& kind, const std::string& name) {
    std::string fact = "none";
    for (const runtime::Rid& rid : movables_.objects(testing::Movables::kLayer)) {
      const auto state = world_.cluster()[1].RefTo<Layer>(rid)->Describe();
      if (!state.ok() || state->kind != kind) continue;
      for (const auto& [key, value] : state->facts) {
        if (key == name) fact = value;
      }
    }
    return fact;
  }
  uint64_t LayerMoves() { return movables_.moves(Movables::kLayer); }
  std::vector<std::string> Clients() {
    const auto clients = world_.volume()->Clients();
    EXPECT_TRUE(clients.ok()) << clients.status();
    return clients.ok() ? *clients : std::vector<std::string>();
  }

  std::atomic<int64_t> steady_ns_{0};  // by how much the clock of leases is ahead
  FileSystemWorld world_;
  Movables movables_{world_};
};

TEST_F(CoherenceTest, AReadSeesWhatAnotherClientWroteBefore) {
  const auto a = world_.Client(1, kCached), b = world_.Client(2, kCached);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle at_a = Open(*a, id), at_b = Open(*b, id);
  Write(*a, at_a, 0, "from a");
  EXPECT_EQ(Read(*b, at_b), "from a");
  EXPECT_EQ(Read(*a, at_a), "from a");
  Write(*b, at_b, 5, "b");
  EXPECT_EQ(Read(*a, at_a), "from b");
  EXPECT_EQ(Read(*b, at_b), "from b");
  Write(*a, at_a, 2000, "far");
  EXPECT_EQ(SizeOf(*b, id), 2003u) << "the size is seen too";
  EXPECT_EQ(b->Lookup(kSuperuser, b->root(), "f")->size, 2003u);
  ASSERT_TRUE(b->Set(kSuperuser, id, {.size = 3}).ok());
  EXPECT_EQ(Read(*a, at_a), "fro");
  Write(*a, at_a, 0, "F");
  EXPECT_EQ(Read(*b, at_b), "Fro") << "and what was cut off does not come back";
}

TEST_F(CoherenceTest, ACacheAndAClientWithoutOneSeeEachOther) {
  const auto a = world_.Client(1, kCached), b = world_.Client(2);
  const ObjectId id = MakeFile(*b, "f");
  const FileHandle at_a = Open(*a, id), at_b = Open(*b, id);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const std::string first = absl::StrCat("first ", round),
                      second = absl::StrCat("second ", round);
    Write(*a, at_a, 0, first);
    ASSERT_EQ(Read(*b, at_b, 0, first.size()), first);
    Write(*b, at_b, 0, second);
    ASSERT_EQ(Read(*a, at_a, 0, second.size()), second);
  }
}

TEST_F(CoherenceTest, WhatNobodyElseChangesIsReadBelowOnce) {
  // Also through layers that stand between.
  const auto a = world_.Client(1, "cache/statistics/isolation/storage");
  const auto b = world_.Client(2);
  const ObjectId id = MakeFile(*b, "f");
  const FileHandle at_a = Open(*a, id), at_b = Open(*b, id);
  Write(*b, at_b, 0, "hello");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Read(*a, at_a), "hello");
  EXPECT_THAT(Fact("statistics", "read"), HasSubstr("1 calls"));
  EXPECT_EQ(Read(*b, at_b), "hello") << "readers break nothing";
  EXPECT_EQ(Read(*a, at_a), "hello");
  EXPECT_THAT(Fact("statistics", "read"), HasSubstr("1 calls"));
  Write(*b, at_b, 0, "world");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Read(*a, at_a), "world");
  EXPECT_THAT(Fact("statistics", "read"), HasSubstr("2 calls"));
  EXPECT_THAT(Fact("statistics", "invalidate"), HasSubstr("1 calls"));
}

TEST_F(CoherenceTest, ACacheOverACacheIsCoherentToo) {
  const std::string stack = "cache(block=512 B)/statistics/cache(block=1 KiB)/isolation/storage";
  const auto a = world_.Client(1, stack), b = world_.Client(2, stack);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle at_a = Open(*a, id), at_b = Open(*b, id);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const std::string text = absl::StrFormat("round %04d", round);
    FileSystem& writer = round % 2 == 0 ? *a : *b;
    Write(writer, round % 2 == 0 ? at_a : at_b, 0, text);
    if (round % 5 == 0) {
      ASSERT_EQ(movables_.MoveOne(static_cast<uint64_t>(round) * 131), absl::OkStatus());
    }
    ASSERT_EQ(Read(*a, at_a), text);
    ASSERT_EQ(Read(*b, at_b), text);
  }
  EXPECT_GT(LayerMoves(), 0u);
}

// One call after the other: everything is as in a plain string, whoever asks.
TEST_F(CoherenceTest, ThreeClientsWithMovingCachesAreOnePlainFile) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(21));
  std::mt19937 random(seed);
  std::vector<std::unique_ptr<FileSystem>> clients;
  clients.push_back(world_.Client(1, kCached));
  clients.push_back(world_.Client(2, kCached));
  clients.push_back(world_.Client(3));
  const ObjectId id = MakeFile(*clients[2], "f");
  std::vector<FileHandle> handles;
  for (const auto& client : clients) handles.push_back(Open(*client, id));
  std::string model;
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  const int steps = runtime::testing::kSanitized ? 400 : 2500;
  for (int i = 0; i < steps && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i));
    // Mostly the same one, so that something is kept.
    const size_t who = draw(9) < 3 ? draw(2) : static_cast<size_t>(i) / 8 % 3;
    FileSystem& fs = *clients[who];
    FileHandle& handle = handles[who];
    const uint64_t offset = draw(6000), bytes = 1 + draw(1500);
    switch (draw(12)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const std::string text(bytes, static_cast<char>('a' + draw(25)));
        Write(fs, handle, offset, text);
        model.resize(std::max(model.size(), offset + bytes));
        model.replace(offset, bytes, text);
        break;
      }
      case 4:
        ASSERT_TRUE(fs.Set(kSuperuser, id, {.size = offset}).ok());
        model.resize(offset);
        break;
      case 5:
        ASSERT_TRUE(fs.Allocate(handle, 3 /* a hole, size kept */, offset, bytes).ok());
        for (uint64_t at = offset; at < std::min(offset + bytes, model.size()); ++at) model[at] = 0;
        break;
      case 6:
        ASSERT_EQ(SizeOf(fs, id), model.size());
        break;
      case 7:
        ASSERT_EQ(movables_.MoveOne(random()), absl::OkStatus());
        break;
      case 8:
        ASSERT_EQ(fs.Release(handle), absl::OkStatus());
        handle = Open(fs, id);
        break;
      case 9:
        ASSERT_EQ(fs.Sync(handle), absl::OkStatus());
        break;
      default:
        ASSERT_EQ(Read(fs, handle, offset, bytes),
                  offset < model.size() ? model.substr(offset, bytes) : std::string());
    }
  }
  EXPECT_GT(LayerMoves(), 0u);
}

// -- at once --------------------------------------------------------------------------------------

// A write or a read of one register, in the order of real time.
struct Event {
  bool write = false;
  size_t place = 0;
  uint64_t value = 0;
  uint64_t begun = 0, ended = 0;
};

// Each read returns a write that had begun when the read ended, and that no other one had followed
// and overwritten by the time the read began.
void CheckOrder(const std::vector<Event>& events, size_t places) {
  for (size_t place = 0; place < places; ++place) {
    std::map<uint64_t, Event> writes;
    writes[0] = {.write = true};
    std::vector<Event> reads;
    for (const Event& event : events) {
      if (event.place != place) continue;
      if (event.write) {
        writes[event.value] = event;
      } else {
        reads.push_back(event);
      }
    }
    // By their ends, with the latest beginning of those that ended before.
    std::vector<std::pair<uint64_t, uint64_t>> by_end;
    for (const auto& [value, write] : writes) by_end.emplace_back(write.ended, write.begun);
    std::sort(by_end.begin(), by_end.end());
    for (size_t i = 1; i < by_end.size(); ++i) {
      by_end[i].second = std::max(by_end[i].second, by_end[i - 1].second);
    }
    for (const Event& read : reads) {
      ASSERT_TRUE(writes.contains(read.value)) << "nobody wrote " << read.value;
      const Event& write = writes[read.value];
      ASSERT_LT(write.begun, read.ended) << "it was read before it was written";
      const auto after =
          std::lower_bound(by_end.begin(), by_end.end(), std::make_pair(read.begun, uint64_t{0}));
      if (after == by_end.begin()) continue;
      ASSERT_LE((after - 1)->second, std::max(write.ended, write.begun))
          << "place " << place << ": " << read.value << " was overwritten before the read began";
    }
  }
}

TEST_F(CoherenceTest, ReadsAreInTheOrderOfRealTimeWhileCachesAreMoved) {
  constexpr size_t kPlaces = 6, kThreads = 4;
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(5));
  const auto a = world_.Client(1, kCached), b = world_.Client(2, kCached);
  FileSystem* const clients[] = {a.get(), b.get()};
  const ObjectId ids[] = {MakeFile(*a, "f"), MakeFile(*b, "g")};
  // Three registers a file, each over a block's border. A read beside a write may find one block of
  // before and one of after it: so what values differ in is in one block, and what they have alike,
  // their leading zeros, is there from the start.
  const auto offset_of = [](size_t place) { return place / 2 * 512 + 500; };
  for (size_t place = 0; place < kPlaces; ++place) {
    FileSystem& fs = *clients[place % 2];
    const FileHandle handle = Open(fs, ids[place % 2]);
    Write(fs, handle, offset_of(place), std::string(16, '0'));
    EXPECT_EQ(fs.Release(handle), absl::OkStatus());
  }
  const uint64_t calls = runtime::testing::kSanitized ? 60 : 250;
  std::atomic<uint64_t> clock{1};
  std::atomic<bool> stop{false};
  std::vector<std::vector<Event>> events(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + static_cast<uint32_t>(t));
      FileSystem& fs = *clients[t % 2];
      FileHandle handles[] = {Open(fs, ids[0]), Open(fs, ids[1])};
      for (uint64_t i = 1; i <= calls; ++i) {
        Event event;
        event.place = random() % kPlaces;
        event.write = random() % 3 == 0;
        const FileHandle handle = handles[event.place % 2];
        event.begun = clock++;
        if (event.write) {
          event.value = i * kThreads + t;
          Write(fs, handle, offset_of(event.place), absl::StrFormat("%016d", event.value));
        } else {
          const std::string text = Read(fs, handle, offset_of(event.place), 16);
          EXPECT_TRUE(absl::SimpleAtoi(text, &event.value)) << "'" << text << "'";
        }
        event.ended = clock++;
        events[t].push_back(event);
        if (random() % 40 == 0) {
          EXPECT_EQ(fs.Release(handles[0]), absl::OkStatus());
          handles[0] = Open(fs, ids[0]);
        }
      }
      for (const FileHandle handle : handles) EXPECT_EQ(fs.Release(handle), absl::OkStatus());
    });
  }
  std::thread mover([&] {
    std::mt19937 random(seed + 99);
    // A move that is refused is of an object that was about to be ended.
    while (!stop) movables_.MoveOne(random()).IgnoreError();
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  mover.join();
  std::vector<Event> all;
  for (const auto& of_thread : events) all.insert(all.end(), of_thread.begin(), of_thread.end());
  std::cout << all.size() << " calls, " << LayerMoves() << " moves\n";
  EXPECT_GT(LayerMoves(), 0u);
  CheckOrder(all, kPlaces);
}

TEST_F(CoherenceTest, WhatIsOldIsPushedWithoutBeingAskedFor) {
  const auto a = world_.Client(1, kCached);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle at_a = Open(*a, id);
  const auto size_at_server = [&] {
    const auto nodes = world_.volume()->Stat(std::vector<ObjectId>{id});
    return nodes.ok() && nodes->size() == 1 ? nodes->front().size : UINT64_MAX;
  };
  // What the client does that is in no response time.
  const auto background_calls = [&] {
    uint64_t calls = 0;
    for (const auto& [key, sums] : world_.cluster()[1].binding().threads().CollectAccounts()) {
      if (runtime::IsBackground(key)) calls += sums.calls + sums.remote_calls;
    }
    return calls;
  };
  Write(*a, at_a, 0, "kept");
  // However long this program was held up since: it is young.
  world_.wall_ahead_us -= 600'000'000;
  ASSERT_TRUE(a->Renew().ok());
  EXPECT_EQ(size_at_server(), 0u) << "it is young";
  EXPECT_EQ(background_calls(), 0u);
  world_.wall_ahead_us += 1'200'000'000;
  ASSERT_TRUE(a->Renew().ok());
  EXPECT_EQ(size_at_server(), 4u);
  EXPECT_GT(background_calls(), 0u);
  EXPECT_EQ(Read(*a, at_a), "kept");
}

// -- what is kept above a client: a kernel's pages ------------------------------------------------

// Forgets when the test says so.
class Keeper {
 public:
  explicit Keeper(FileSystem* files)
      : files_(files), number_(files->AddKeeper([this](ObjectId, std::function<void()> done) {
          MutexLock lock(mutex_);
          asked_.push_back(std::move(done));
        })) {}
  ~Keeper() {
    files_->RemoveKeeper(number_);
    Forget();
  }
  bool IsAsked() {
    MutexLock lock(mutex_);
    return !asked_.empty();
  }
  void Forget() {
    std::vector<std::function<void()>> asked;
    {
      MutexLock lock(mutex_);
      asked.swap(asked_);
    }
    for (const auto& done : asked) done();
  }

 private:
  FileSystem* const files_;
  runtime::Mutex mutex_;
  std::vector<std::function<void()>> asked_ ABSL_GUARDED_BY(mutex_);
  const uint64_t number_;
};

TEST_F(CoherenceTest, WhatIsKeptAboveIsForgottenBeforeTheOtherClientGoesOn) {
  const auto a = world_.Client(1, kCached), b = world_.Client(2, kCached);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle at_a = Open(*a, id), at_b = Open(*b, id);
  Keeper keeper(a.get());
  EXPECT_EQ(Read(*a, at_a), "");
  EXPECT_FALSE(keeper.IsAsked());
  std::atomic<bool> forgotten{false};
  auto write = std::async(std::launch::async, [&] {
    Write(*b, at_b, 0, "new");
    return forgotten.load();
  });
  ASSERT_TRUE(runtime::testing::Eventually([&] { return keeper.IsAsked(); }));
  // Time enough for a write that would not wait.
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Clients().size(), 2u);
  forgotten = true;
  keeper.Forget();
  EXPECT_TRUE(write.get());
}

// Nothing of it is kept below the mount: what tells is the promise for its attributes.
TEST_F(CoherenceTest, WhatIsKeptAboveOfAPlainFileIsForgottenBeforeTheOtherClientGoesOn) {
  const auto a = world_.Client(1), b = world_.Client(2);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle at_a = Open(*a, id), at_b = Open(*b, id);
  EXPECT_TRUE(a->IsTold(id));
  Write(*a, at_a, 0, "old");
  EXPECT_TRUE(a->IsTold(id)) << "what it writes itself ends no promise";
  ASSERT_EQ(a->Stat(id)->size, 3u);
  Keeper keeper(a.get());
  std::atomic<bool> forgotten{false};
  auto write = std::async(std::launch::async, [&] {
    Write(*b, at_b, 0, "new");
    return forgotten.load();
  });
  ASSERT_TRUE(runtime::testing::Eventually([&] { return keeper.IsAsked(); }));
  EXPECT_FALSE(a->IsTold(id)) << "from now on it may change untold";
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Clients().size(), 2u);
  forgotten = true;
  keeper.Forget();
  EXPECT_TRUE(write.get());
  EXPECT_EQ(Read(*a, at_a), "new");
}

// Each client keeps a file that the other one wants to read. It forgets it when its own read is
// over, as a kernel does that waits for the pages which it is reading.
TEST_F(CoherenceTest, ClientsThatWaitForEachOtherDoNotWaitForWhatIsKeptAbove) {
  const auto a = world_.Client(1, kCached), b = world_.Client(2, kCached);
  const ObjectId f = MakeFile(*a, "f"), g = MakeFile(*a, "g");
  const FileHandle f_at_a = Open(*a, f), f_at_b = Open(*b, f), g_at_a = Open(*a, g),
                   g_at_b = Open(*b, g);
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const std::string text = absl::StrFormat("round %04d", round);
    Write(*a, f_at_a, 0, text);
    Write(*b, g_at_b, 0, text);
    Keeper at_a(a.get()), at_b(b.get());
    auto read_g = std::async(std::launch::async, [&] { return Read(*a, g_at_a); });
    auto read_f = std::async(std::launch::async, [&] { return Read(*b, f_at_b); });
    // Well before a lease runs out. A keeper whose client reads nothing any more forgets at once.
    EXPECT_TRUE(runtime::testing::Eventually(
        [&] {
          const bool a_reads =
              read_g.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
          const bool b_reads =
              read_f.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
          if (!a_reads) at_a.Forget();
          if (!b_reads) at_b.Forget();
          return !a_reads && !b_reads;
        },
        std::chrono::seconds(20)));
    if (HasFailure()) steady_ns_ += 2 * kLeaseOfVolumeNs;
    EXPECT_EQ(read_g.get(), text);
    EXPECT_EQ(read_f.get(), text);
  }
}

// -- clients that are lost ------------------------------------------------------------------------

TEST_F(CoherenceTest, AClientThatDiedKeepsOthersWaitingForItsLeaseOnly) {
  auto a = world_.Client(1, kCached), b = world_.Client(2, kCached);
  const ObjectId id = MakeFile(*b, "f");
  const FileHandle at_a = Open(*a, id), at_b = Open(*b, id);
  Write(*a, at_a, 0, "synced");
  ASSERT_TRUE(a->Sync(at_a).ok());
  Write(*a, at_a, 0, "LOST");
  world_.cluster().Kill(1);
  std::future<std::string> read = std::async(std::launch::async, [&] { return Read(*b, at_b); });
  std::future<absl::Status> written =
      std::async(std::launch::async, [&] { return b->Write(at_b, 6, Block::CopyOf("!")); });
  for (int i = 0; i < 2; ++i) {
    steady_ns_ += kLeaseOfVolumeNs * 6 / 10;
    ASSERT_TRUE(b->Renew().ok());
  }
  ASSERT_TRUE(written.get().ok());
  EXPECT_THAT(read.get(), ::testing::AnyOf("synced", "synced!"));
  EXPECT_EQ(Read(*b, at_b), "synced!");
  ASSERT_TRUE(runtime::testing::Eventually([&] { return Clients().size() == 1; }));
  a.reset();  // what it says now reaches nobody
}

TEST_F(CoherenceTest, AClientThatCouldNotRenewServesNothingThatItKept) {
  auto a = world_.Client(1, kCached);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle at_a = Open(*a, id);
  Write(*a, at_a, 0, "synced");
  ASSERT_TRUE(a->Sync(at_a).ok());
  Write(*a, at_a, 0, "KEPT");
  ASSERT_EQ(Read(*a, at_a), "KEPTed");
  // It sleeps, and is given up.
  ASSERT_TRUE(runtime::testing::Eventually([&] {
    steady_ns_ += 2 * kLeaseOfVolumeNs;
    return Clients().empty();
  }));
  const auto b = world_.Client(2, kCached);
  const FileHandle at_b = Open(*b, id);
  EXPECT_EQ(Read(*b, at_b), "synced");
  Write(*b, at_b, 0, "theirs");
  EXPECT_EQ(Read(*a, at_a), "theirs") << "it has joined again";
  EXPECT_EQ(FsErrorOf(a->Sync(at_a)), FsError::kInputOutput) << "and says what is lost";
  EXPECT_EQ(a->Release(at_a), absl::OkStatus());
  EXPECT_EQ(Read(*b, at_b), "theirs");
}

TEST_F(CoherenceTest, AClientThatWasLateAndMissedByNobodyGoesOn) {
  const auto a = world_.Client(1, kCached);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle at_a = Open(*a, id);
  Write(*a, at_a, 0, "kept");
  steady_ns_ += kLeaseOfVolumeNs * 15 / 10;
  EXPECT_EQ(Read(*a, at_a), "kept");
  EXPECT_TRUE(a->Sync(at_a).ok());
}

}  // namespace
}  // namespace abacus::objfs
