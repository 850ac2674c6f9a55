// Directory objects over a volume: clients that meet, and objects that are moved meanwhile.

#include "objfs/directory/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/directory/testing/directory_world.h"
#include "objfs/store/memory_disk.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using runtime::testing::kSanitized;
using testing::DirectoryWorld;
using ::testing::HasSubstr;
using Names = std::map<std::string, Entry>;

// Lets others do something after each read of a directory's blocks.
class HookLayer final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"hook", "test.HookLayer", {}, 1, 1, true};
  explicit HookLayer(const std::function<void()>& after_read) : after_read_(after_read) {}

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override {
    auto read = below()->Read(offset, bytes, now);
    // A copy: it may put another one in its place.
    if (const auto others = after_read_; others != nullptr) others();
    return read;
  }
  ABACUS_LAYER(HookLayer, 1)

 private:
  const std::function<void()>& after_read_;
};

Entry File(ObjectId id) { return {id, S_IFREG}; }
InodeChange Entries(int64_t more) {
  InodeChange change;
  change.entries = more;
  change.touch_modified = change.touch_changed = true;
  return change;
}

class DirectoryTest : public ::testing::Test {
 protected:
  explicit DirectoryTest(bool whole_read_sets = false)
      : world_(
            disk_, 3, [](runtime::ObjectTypes& types) { types.Add<HookLayer>(); },
            /*managed=*/false, whole_read_sets) {}

  absl::StatusOr<Outcome> Try(const Ref<Directory>& directory,
                              const std::vector<EntryChange>& changes) {
    int64_t more = 0;
    for (const EntryChange& change : changes) {
      more += change.after.has_value() ? 1 : 0;
      more -= change.before.has_value() ? 1 : 0;
    }
    return directory->Commit(changes, Entries(more), std::vector<Part>(),
                             std::optional<uint64_t>());
  }
  // As a front end does.
  absl::StatusOr<Outcome> Commit(const Ref<Directory>& directory,
                                 const std::vector<EntryChange>& changes) {
    for (;;) {
      auto outcome = Try(directory, changes);
      if (!outcome.ok() || outcome->state != CommitState::kStale) return outcome;
    }
  }
  void Must(const absl::StatusOr<Outcome>& outcome) {
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_EQ(outcome->state, CommitState::kCommitted);
  }
  // So many new names, each by a commit.
  void Add(const Ref<Directory>& to, int names) {
    for (int i = 0; i < names; ++i) {
      ++added_;
      Must(Commit(to, {{absl::StrCat("name-", added_), std::nullopt, File(added_)}}));
    }
  }
  // By several threads, into several leaves.
  void CommitAtOnce(const Ref<Directory>& directory) {
    constexpr int kThreads = 4, kNames = 200;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kNames; ++i) {
          const std::string name = absl::StrCat("name-", thread, "-", i);
          Must(Commit(directory, {{name, std::nullopt, File(static_cast<ObjectId>(i + 1))}}));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ListAll(directory).size(), size_t{kThreads} * kNames);
  }
  // A directory object whose reads are hooked.
  Ref<Directory> Hooked(size_t node, const DirectoryWorld::Client& client) {
    auto hook = std::make_unique<HookLayer>(after_read_);
    EXPECT_TRUE(hook->Init({client.below}, {}).ok());
    auto hooked = client;
    hooked.below =
        Ref<Layer>(world_.cluster()[0].binding().Adopt<HookLayer>(std::move(hook)).base());
    return world_.Root(node, hooked);
  }
  Names ListAll(const Ref<Directory>& directory) {
    Names names;
    for (uint64_t cookie = 0;;) {
      const auto some = directory->List(cookie, 50);
      EXPECT_TRUE(some.ok()) << some.status();
      if (!some.ok() || some->empty()) return names;
      for (const ListedEntry& listed : *some) {
        EXPECT_TRUE(names.emplace(listed.name, listed.entry).second) << listed.name;
      }
      cookie = some->back().cookie;
    }
  }
  uint64_t EntriesOfRoot(const DirectoryWorld::Client& client) {
    const auto nodes = world_.volume()->Stat(std::vector<ObjectId>{client.root});
    EXPECT_TRUE(nodes.ok()) << nodes.status();
    return nodes.ok() ? nodes->at(0).inode.entries : 0;
  }
  // Three clients change the same names at once while their objects are moved: what is there then
  // is what was committed, one after the other.
  void ChangeTheSameNames();
  // `second` rests on leaves that it read before `first` changed another name. How many of 40 such
  // changes have to be planned again. None of them makes a leaf fuller: beside one that was split
  // an old one is no plan at all.
  uint64_t RetriesOfUnlikeNames() {
    const Ref<Directory> first = world_.Root(0, world_.Join());
    const Ref<Directory> second = world_.Root(1, world_.Join());
    const auto name_of = [](ObjectId i) {
      return absl::StrCat("stays-", i, std::string(150, '.'));
    };
    std::vector<EntryChange> many;  // in some twenty leaves
    for (ObjectId i = 0; i < 800; ++i) many.push_back({name_of(i), std::nullopt, File(5000 + i)});
    Must(Commit(first, many));
    for (ObjectId i = 0; i < 80; i += 2) {
      EXPECT_TRUE(second->Lookup(name_of(i)).ok());
      Must(Commit(first, {{name_of(i + 1), File(5000 + i + 1), File(i + 1)}}));
      Must(Commit(second, {{name_of(i), File(5000 + i), File(1000 + i)}}));
    }
    return *second->Retries();
  }
  void MoveTo(const Ref<Directory>& directory, size_t node) {
    const auto host = world_.cluster().HostOf(directory.rid());
    ASSERT_TRUE(host.has_value());
    if (*host == node) return;
    const auto moved = world_.cluster().Move(directory.rid(), *host, node);
    ASSERT_TRUE(moved.ok()) << moved.status();
    ASSERT_TRUE(moved->status.ok()) << moved->status;
  }

  std::function<void()> after_read_;
  ObjectId added_ = 0;  // names, by Add()
  MemoryDisk disk_;
  DirectoryWorld world_;
};

// Any two changes of a directory meet.
class WholeReadSetsTest : public DirectoryTest {
 protected:
  WholeReadSetsTest() : DirectoryTest(/*whole_read_sets=*/true) {}
};

// One client's thread: changes names that all others change as well, and keeps what it committed.
class Worker {
 public:
  struct Done {
    Version version;
    std::vector<EntryChange> changes;
  };
  Worker(Ref<Directory> directory, uint32_t seed, ObjectId first_id)
      : directory_(std::move(directory)), random_(seed), id_(first_id) {}

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) Step();
  }
  const std::vector<Done>& done() const { return done_; }

 private:
  // Adds the change that the name is to get, as it was just seen.
  void Draw(std::vector<EntryChange>* changes, InodeChange* own) {
    const std::string name = absl::StrCat("contended-", random_() % 40);
    if (!changes->empty() && changes->back().name == name) return;
    const auto before = directory_->Lookup(name);
    ASSERT_TRUE(before.ok()) << before.status();
    EntryChange change{name, *before, std::nullopt};
    if (random_() % 2 == 0) change.after = File(++id_);
    own->entries += (change.after.has_value() ? 1 : 0) - (change.before.has_value() ? 1 : 0);
    changes->push_back(change);
  }
  void Step() {
    std::vector<EntryChange> changes;
    InodeChange own;
    Draw(&changes, &own);
    if (random_() % 3 == 0) Draw(&changes, &own);
    absl::StatusOr<Outcome> outcome;
    do {
      outcome = directory_->Commit(changes, own, std::vector<Part>(), std::optional<uint64_t>());
    } while (outcome.ok() && outcome->state == CommitState::kStale);  // others were quicker
    if (!outcome.ok()) {
      ASSERT_TRUE(IsChanged(outcome.status()) || IsWouldBlock(outcome.status()))
          << outcome.status();
      return;
    }
    ASSERT_EQ(outcome->state, CommitState::kCommitted);
    done_.push_back({outcome->version, changes});
  }

  const Ref<Directory> directory_;
  std::mt19937 random_;
  ObjectId id_;
  std::vector<Done> done_;
};

// What was committed, one change after the other in the order of their versions.
Names Replay(const std::vector<Worker>& workers) {
  std::map<uint64_t, const std::vector<EntryChange>*> order;
  for (const Worker& worker : workers) {
    for (const auto& done : worker.done()) {
      EXPECT_TRUE(order.emplace(done.version.value, &done.changes).second);
    }
  }
  Names names;
  for (const auto& [version, changes] : order) {
    for (const EntryChange& change : *changes) {
      const auto now = names.find(change.name);
      const auto before = now == names.end() ? std::nullopt : std::optional(now->second);
      EXPECT_EQ(before, change.before) << change.name << " at " << version;
      if (change.after.has_value()) {
        names[change.name] = *change.after;
      } else {
        names.erase(change.name);
      }
    }
  }
  return names;
}

void DirectoryTest::ChangeTheSameNames() {
  constexpr size_t kClients = 3;
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(11));
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::vector<Ref<Directory>> directories;
  std::vector<Worker> workers;
  const DirectoryWorld::Client first = world_.Join();
  for (uint32_t i = 0; i < kClients; ++i) {
    directories.push_back(world_.Root(i, i == 0 ? first : world_.Join()));
    workers.emplace_back(directories[i], seed + i, (i + 1) * 1'000'000);
  }
  // Names that nobody touches, in as many leaves as it takes.
  std::vector<EntryChange> stay;
  for (uint64_t i = 0; i < 300; ++i) {
    stay.push_back({absl::StrCat("stays-", i, std::string(100, '.')), std::nullopt, File(i + 1)});
  }
  Must(Commit(directories[0], stay));

  const int steps = kSanitized ? 60 : 300;
  std::atomic<size_t> running{kClients};
  std::vector<std::thread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&worker, &running] {
      worker.Run(steps);
      --running;
    });
  }
  std::mt19937 random(seed);
  while (running > 0) {
    MoveTo(directories[random() % kClients], random() % kClients);
    const Names listed = ListAll(directories[random() % kClients]);
    for (const EntryChange& change : stay) {
      const auto found = listed.find(change.name);
      EXPECT_TRUE(found != listed.end() && found->second == *change.after) << change.name;
    }
  }
  for (std::thread& thread : threads) thread.join();

  Names expected = Replay(workers);
  EXPECT_FALSE(expected.empty());
  for (const EntryChange& change : stay) expected.emplace(change.name, *change.after);
  for (const auto& directory : directories) EXPECT_EQ(ListAll(directory), expected);
  EXPECT_EQ(EntriesOfRoot(first), expected.size());
}

TEST_F(DirectoryTest, ClientsThatChangeTheSameNamesAreOneAfterTheOtherWhileTheyAreMoved) {
  ChangeTheSameNames();
}

TEST_F(WholeReadSetsTest, ClientsThatChangeTheSameNamesAreOneAfterTheOtherWhileTheyAreMoved) {
  ChangeTheSameNames();
}

TEST_F(DirectoryTest, ChangesOfUnlikeNamesSeldomMeet) { EXPECT_LT(RetriesOfUnlikeNames(), 15u); }

TEST_F(WholeReadSetsTest, AnyTwoChangesOfADirectoryMeet) { EXPECT_EQ(RetriesOfUnlikeNames(), 40u); }

TEST_F(DirectoryTest, ACommitThatMeetsAnotherIsToBeMadeAgain) {
  const auto client = world_.Join();
  const Ref<Directory> other = world_.Root(0, world_.Join());
  const Ref<Directory> mine = Hooked(0, client);
  ObjectId id = 100;
  after_read_ = [&] {
    after_read_ = nullptr;
    Must(Commit(other, {{"other", std::nullopt, File(++id)}}));
  };
  const auto met = Try(mine, {{"mine", std::nullopt, File(1)}});
  ASSERT_TRUE(met.ok()) << met.status();
  EXPECT_EQ(met->state, CommitState::kStale);
  EXPECT_EQ(met->id, client.root) << "call again";
  EXPECT_EQ(*mine->Retries(), 1u);
  EXPECT_EQ(*other->Retries(), 0u);
  Must(Try(mine, {{"mine", std::nullopt, File(1)}}));
  EXPECT_EQ(*mine->Retries(), 1u);
  EXPECT_EQ(ListAll(mine), (Names{{"mine", File(1)}, {"other", File(101)}}));

  MoveTo(mine, 1);
  EXPECT_EQ(*mine->Retries(), 1u) << "it moves along";
  EXPECT_EQ(*mine->Lookup("mine"), File(1));
  MoveTo(mine, 0);

  after_read_ = [&] {
    after_read_ = nullptr;
    Must(Commit(other, {{"mine", File(1), std::nullopt}}));
  };
  const auto changed = Commit(mine, {{"mine", File(1), File(2)}});
  EXPECT_TRUE(IsChanged(changed.status())) << changed.status();
}

TEST_F(DirectoryTest, WhoIsAloneReadsALeafOnceForALookupAndItsCommits) {
  const Ref<Directory> other = world_.Root(0, world_.Join());
  const Ref<Directory> mine = Hooked(0, world_.Join());
  Must(Commit(mine, {{"first", std::nullopt, File(1)}}));
  int reads = 0;
  after_read_ = [&] { ++reads; };
  EXPECT_EQ(*mine->Lookup("second"), std::nullopt);
  EXPECT_EQ(reads, 1);
  Must(Commit(mine, {{"second", std::nullopt, File(2)}}));
  EXPECT_EQ(reads, 1) << "the commit planned with what the lookup had read";
  Must(Commit(mine, {{"third", std::nullopt, File(3)}}));
  EXPECT_EQ(reads, 1) << "what it has committed is what is there";
  EXPECT_EQ(*mine->Retries(), 0u);

  // What another client did since the lookup is found when the plan is validated,
  EXPECT_EQ(*mine->Lookup("fourth"), std::nullopt);
  Must(Commit(other, {{"others", std::nullopt, File(100)}}));
  Must(Commit(mine, {{"fourth", std::nullopt, File(4)}}));
  EXPECT_EQ(*mine->Retries(), 1u);
  // and what it undid is no error before it was read again.
  EXPECT_EQ(*mine->Lookup("others"), File(100));
  Must(Commit(other, {{"others", File(100), File(101)}}));
  Must(Commit(mine, {{"others", File(101), std::nullopt}}));
  EXPECT_EQ(*mine->Retries(), 1u);
  EXPECT_EQ(ListAll(mine), ListAll(other));
}

TEST_F(DirectoryTest, WhoIsAloneReadsNoneOfAFewLeavesAgainUntilSomebodyElseChangesIt) {
  const Ref<Directory> other = world_.Root(0, world_.Join());
  const Ref<Directory> mine = Hooked(0, world_.Join());
  int reads = 0;
  after_read_ = [&] { ++reads; };
  Add(mine, 1000);
  EXPECT_GT(EntriesOfRoot(world_.Join()), 3 * 310u) << "several leaves";
  EXPECT_LT(reads, 20);
  EXPECT_EQ(*mine->Retries(), 0u);
  // Of what another client changes that leaf is refused, once, and for a while nothing is kept.
  Add(other, 1);
  reads = 0;
  Add(mine, 100);
  EXPECT_EQ(*mine->Retries(), 1u);
  EXPECT_LT(reads, 40);
  // Who meets others all the time plans with what it has just read.
  for (int i = 0; i < 50; ++i) {
    Add(other, 1);
    Add(mine, 1);
  }
  EXPECT_LT(*mine->Retries(), 20u);
  EXPECT_EQ(ListAll(mine), ListAll(other));
  EXPECT_EQ(ListAll(mine).size(), added_);
}

TEST_F(WholeReadSetsTest, WhoIsAloneReadsNoLeafAgainUntilSomebodyElseChangesOne) {
  const Ref<Directory> other = world_.Root(0, world_.Join());
  const Ref<Directory> mine = Hooked(0, world_.Join());
  int reads = 0;
  after_read_ = [&] { ++reads; };
  Add(mine, 1000);
  EXPECT_GT(EntriesOfRoot(world_.Join()), 3 * 310u) << "several leaves";
  EXPECT_LT(reads, 20);
  EXPECT_EQ(*mine->Retries(), 0u);
  Add(other, 1);
  Add(mine, 1);
  EXPECT_EQ(*mine->Retries(), 1u) << "any change of the directory breaks all of it";
  reads = 0;
  Add(mine, 200);
  EXPECT_EQ(*mine->Retries(), 1u);
  EXPECT_LT(reads, 30);
  // Who meets others all the time plans with what it has just read.
  for (int i = 0; i < 50; ++i) {
    Add(other, 1);
    Add(mine, 1);
  }
  EXPECT_LT(*mine->Retries(), 40u);
  EXPECT_EQ(ListAll(mine), ListAll(other));
  EXPECT_EQ(ListAll(mine).size(), added_);
}

TEST_F(DirectoryTest, CommitsOfOneObjectAtOnceLoseNoName) {
  CommitAtOnce(world_.Root(0, world_.Join()));
}

TEST_F(WholeReadSetsTest, CommitsOfOneObjectAtOnceLoseNoName) {
  CommitAtOnce(world_.Root(0, world_.Join()));
}

TEST_F(DirectoryTest, ObjectsOfOneDirectoryThatAreOnOneNodeNeverTryAgain) {
  constexpr uint64_t kObjects = 3;
  const uint64_t names = kSanitized ? 40 : 200;
  MemoryDisk disk;
  DirectoryWorld world(disk, 2, nullptr, /*managed=*/true);
  std::vector<Ref<Directory>> directories;
  for (uint64_t i = 0; i < kObjects; ++i) directories.push_back(world.Root(1, world.Join()));
  const auto insert_all = [&](const std::string& kind) {
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kObjects; ++i) {
      threads.emplace_back([&, i] {
        for (uint64_t n = 0; n < names; ++n) {
          const std::string name = absl::StrCat(kind, i, "-", n);
          EXPECT_EQ(*directories[i]->Lookup(name), std::nullopt);
          Must(Commit(directories[i], {{name, std::nullopt, File(i * names + n + 1)}}));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  insert_all("made-here-");
  // They come one by one, and the last one makes no exception.
  for (const auto& directory : directories) {
    ASSERT_TRUE(world.cluster().Move(directory.rid(), 1, 0).ok());
  }
  insert_all("arrived-");
  for (const auto& directory : directories) EXPECT_EQ(*directory->Retries(), 0u);
  const auto counts = world.volume()->Commits();
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->stale, 0u);
  EXPECT_EQ(counts->committed, 2 * kObjects * names);
  EXPECT_EQ(ListAll(directories[0]).size(), 2 * kObjects * names);
}

TEST_F(DirectoryTest, AnErrorThatSaysChangedDoesSoOnOtherNodes) {
  const Ref<Directory> directory = world_.Root(0, world_.Join());
  MoveTo(directory, 1);
  const auto outcome = Commit(directory, {{"a", File(1), std::nullopt}});
  EXPECT_TRUE(IsChanged(outcome.status())) << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("\"a\""));
  EXPECT_FALSE(IsChanged(WouldBlock("a lock")));
}

TEST_F(DirectoryTest, NothingIsInsertedIntoADirectoryThatWasRemoved) {
  const auto client = world_.Join();
  const Ref<Directory> directory = world_.Root(0, client);
  Must(Commit(directory, {{"a", std::nullopt, File(1)}}));
  InodeChange unlinked;
  unlinked.links = -2;
  ASSERT_TRUE(world_.volume()->Change(client.writer, client.root, unlinked).ok());
  const auto gone = Commit(directory, {{"b", std::nullopt, File(2)}});
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_EQ(gone->state, CommitState::kGone);
  EXPECT_EQ(gone->id, client.root);
  EXPECT_EQ(ListAll(directory), (Names{{"a", File(1)}}));
  Must(Commit(directory, {{"a", File(1), std::nullopt}}));
}

TEST_F(DirectoryTest, WhatElseRefusesATransactionIsTheCallersToSee) {
  const auto client = world_.Join();
  const Ref<Directory> directory = world_.Root(0, client);
  const auto ids = world_.volume()->Reserve(client.writer, 1u);
  ASSERT_TRUE(ids.ok()) << ids.status();
  const ObjectId id = ids->front();
  Transaction makes;
  makes.parts.push_back({.id = id});
  makes.parts[0].change.links = 1;
  makes.parts[0].creation = Creation{};
  makes.parts[0].creation->inode.mode = S_IFREG | 0644;
  const auto made = world_.volume()->Commit(client.writer, makes);
  ASSERT_TRUE(made.ok()) << made.status();
  Part other{.id = id, .reads = {{{0, 8192}, Version::Of(1, 1)}}, .writes = {}};
  const auto outcome = directory->Commit(std::vector<EntryChange>{{"a", {}, File(id)}}, Entries(1),
                                         std::vector<Part>{other}, std::optional<uint64_t>());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->state, CommitState::kStale);
  EXPECT_EQ(outcome->id, id);
  EXPECT_EQ(*directory->Retries(), 0u);
  EXPECT_EQ(*directory->Lookup("a"), std::nullopt);
  EXPECT_EQ(EntriesOfRoot(client), 0u);
}

}  // namespace
}  // namespace abacus::objfs
