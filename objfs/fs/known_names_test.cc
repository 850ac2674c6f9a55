// What clients keep of names and attributes is what there is: several clients of one volume,
// against the order of real time, and while clients are lost.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::testing::Eventually;
using testing::FileSystemWorld;

const Caller kAdmin;
constexpr int64_t kLeaseOfKnowersNs = int64_t{30} * 1'000'000'000;

class KnownNamesTest : public ::testing::Test {
 protected:
  KnownNamesTest()
      : world_(
            4, nullptr,
            [this] {
              const auto now = std::chrono::steady_clock::now().time_since_epoch();
              return steady_ns_ + std::chrono::nanoseconds(now).count();
            },
            absl::Seconds(30), absl::ZeroDuration()) {}

  static ObjectId MakeNode(FileSystem& at, ObjectId in, const std::string& name, uint32_t mode) {
    const auto made = at.Make(kAdmin, in, name, mode, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->id : 0;
  }
  static ObjectId MakeFile(FileSystem& at, const std::string& name) {
    return MakeNode(at, at.root(), name, S_IFREG | 0644);
  }
  static uint32_t ModeOf(FileSystem& at, ObjectId id) {
    const auto node = at.Stat(id);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? node->inode.mode & 07777 : 0;
  }
  static absl::Status SetMode(FileSystem& at, ObjectId id, uint32_t mode) {
    return at.Set(kAdmin, id, {.permissions = mode}).status();
  }
  static std::string ListedIn(FileSystem& at, ObjectId directory) {
    const auto listed = at.List(kAdmin, directory, 2, 100, true);
    EXPECT_TRUE(listed.ok()) << listed.status();
    std::vector<std::string> names;
    if (listed.ok()) {
      for (const auto& one : *listed) {
        names.push_back(absl::StrCat(one.name, ":", one.node.inode.links));
      }
    }
    std::sort(names.begin(), names.end());
    std::string all;
    for (const std::string& name : names) absl::StrAppend(&all, all.empty() ? "" : " ", name);
    return all;
  }
  uint64_t FramesSent(size_t node) {
    uint64_t frames = 0;
    for (const auto& peer : world_.cluster()[node].transport().Traffic()) {
      frames += peer.sent_frames;
    }
    return frames;
  }
  bool IsClient(const std::string& name) {
    const auto clients = world_.volume()->Clients();
    EXPECT_TRUE(clients.ok()) << clients.status();
    return clients.ok() && std::find(clients->begin(), clients->end(), name) != clients->end();
  }

  std::atomic<int64_t> steady_ns_{0};  // by how much the clock of leases is ahead
  FileSystemWorld world_;
};

TEST_F(KnownNamesTest, WhatNobodyElseChangesIsAskedForOnce) {
  const auto a = world_.Client(1), b = world_.Client(2);
  const ObjectId directory = MakeNode(*b, b->root(), "d", S_IFDIR | 0755);
  const ObjectId file = MakeNode(*b, directory, "f", S_IFREG | 0644);
  const auto look = [&] {
    ASSERT_EQ(a->Stat(file)->id, file);
    ASSERT_EQ(a->Lookup(kAdmin, directory, "f")->id, file);
    ASSERT_FALSE(a->Lookup(kAdmin, directory, "none").ok());
    ASSERT_EQ(a->Lookup(kAdmin, directory, "..")->id, a->root());
    ASSERT_TRUE(a->Access(kAdmin, file, R_OK).ok());
    ASSERT_EQ(ListedIn(*a, directory), "f:1");
  };
  look();
  constexpr uint64_t kRounds = 1000;
  const uint64_t before = FramesSent(1);
  for (uint64_t i = 0; i < kRounds && !HasFailure(); ++i) look();
  // Renewals and signs of life are all that is left.
  const uint64_t sent = FramesSent(1) - before;
  std::cout << sent << " frames in " << kRounds << " rounds of 6 calls\n";
  EXPECT_LT(sent, kRounds) << "each call that asked would be a frame or more";
  // And what the client changes itself, it knows after as well.
  ASSERT_TRUE(SetMode(*a, file, 0600).ok());
  EXPECT_EQ(ModeOf(*a, file), 0600u);
  EXPECT_EQ(ModeOf(*b, file), 0600u);
}

// As a mount lists it, whose kernel then looks at each entry.
TEST_F(KnownNamesTest, AListingAsksForManyEntriesAtOnceAndThenForNone) {
  const auto a = world_.Client(1), b = world_.Client(2);
  const ObjectId directory = MakeNode(*b, b->root(), "d", S_IFDIR | 0755);
  constexpr uint64_t kFiles = 400;
  for (uint64_t i = 0; i < kFiles; ++i) {
    MakeNode(*b, directory, absl::StrCat("f", i), S_IFREG | 0644);
  }
  const uint64_t before = FramesSent(1);
  uint64_t seen = 0;
  for (uint64_t cookie = 2;;) {
    const auto listed = a->List(kAdmin, directory, cookie, 100, true);
    ASSERT_TRUE(listed.ok()) << listed.status();
    if (listed->empty()) break;
    for (const auto& one : *listed) {
      ASSERT_EQ(a->Lookup(kAdmin, directory, one.name)->id, one.node.id);
      ++seen;
    }
    cookie = listed->back().cookie;
  }
  EXPECT_EQ(seen, kFiles);
  const uint64_t sent = FramesSent(1) - before;
  std::cout << sent << " frames for a listing of " << kFiles << " entries\n";
  EXPECT_LT(sent, kFiles / 8);
}

TEST_F(KnownNamesTest, EachChangeOfOneClientIsSeenByTheOthers) {
  const std::string cached = "cache(block=512 B)/isolation/storage";
  const auto a = world_.Client(1), b = world_.Client(2), c = world_.Client(3, cached);
  FileSystem* const clients[] = {a.get(), b.get(), c.get()};
  const ObjectId d = MakeNode(*a, a->root(), "d", S_IFDIR | 0755);
  const ObjectId e = MakeNode(*a, a->root(), "e", S_IFDIR | 0755);
  const ObjectId f = MakeNode(*c, d, "f", S_IFREG | 0644);
  const auto all_see = [&](const std::string& in_d, const std::string& in_e) {
    for (FileSystem* at : clients) {
      EXPECT_EQ(ListedIn(*at, d), in_d);
      EXPECT_EQ(ListedIn(*at, e), in_e);
      for (const char* name : {"f", "g", "h"}) {
        const auto has = [&](const std::string& text) {
          return text.find(absl::StrCat(name, ":")) != std::string::npos;
        };
        EXPECT_EQ(at->Lookup(kAdmin, d, name).ok(), has(in_d)) << name;
        EXPECT_EQ(at->Lookup(kAdmin, e, name).ok(), has(in_e)) << name;
      }
    }
  };
  for (size_t i = 0; i < 12 && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    FileSystem& at = *clients[i % 3];
    FileSystem& other = *clients[(i + 1) % 3];
    all_see("f:1", "");
    ASSERT_TRUE(at.Link(kAdmin, f, e, "g").ok());
    all_see("f:2", "g:2");
    ASSERT_TRUE(other.Rename(kAdmin, e, "g", d, "h", RenameRule::kReplace).ok());
    all_see("f:2 h:2", "");
    ASSERT_TRUE(at.Rename(kAdmin, d, "h", d, "g", RenameRule::kNoReplace).ok());
    all_see("f:2 g:2", "");
    const ObjectId sub = MakeNode(other, d, "h", S_IFDIR | 0755);
    all_see("f:2 g:2 h:2", "");
    ASSERT_TRUE(at.Rename(kAdmin, d, "h", e, "h", RenameRule::kReplace).ok());
    for (FileSystem* one : clients) EXPECT_EQ(one->Lookup(kAdmin, sub, "..")->id, e);
    ASSERT_TRUE(at.Rename(kAdmin, d, "g", e, "h", RenameRule::kExchange).ok());
    all_see("f:2 g:2", "h:2");
    ASSERT_TRUE(other.Unlink(kAdmin, e, "h").ok());
    all_see("f:1 g:2", "");
    ASSERT_TRUE(at.RemoveDirectory(kAdmin, d, "g").ok());
    all_see("f:1", "");
    // Attributes, and bytes.
    ASSERT_TRUE(SetMode(other, f, 0600 + static_cast<uint32_t>(i)).ok());
    ASSERT_TRUE(at.SetXattr(kAdmin, f, "user.x", absl::StrCat(i), XattrRule::kAny).ok());
    const auto handle = at.Open(kAdmin, f, O_RDWR);
    ASSERT_TRUE(handle.ok()) << handle.status();
    ASSERT_TRUE(at.Write(*handle, 100 + i, Block::CopyOf("x")).ok());
    for (FileSystem* one : clients) {
      EXPECT_EQ(ModeOf(*one, f), 0600 + i);
      EXPECT_EQ(*one->GetXattr(kAdmin, f, "user.x"), absl::StrCat(i));
      EXPECT_EQ(one->Stat(f)->size, 101 + i);
    }
    ASSERT_TRUE(other.Set(kAdmin, f, {.size = 7}).ok());
    for (FileSystem* one : clients) EXPECT_EQ(one->Lookup(kAdmin, d, "f")->size, 7u);
    ASSERT_EQ(*at.Append(*handle, Block::CopyOf("yz")), 7u);
    for (FileSystem* one : clients) EXPECT_EQ(one->Stat(f)->size, 9u);
    ASSERT_TRUE(at.Release(*handle).ok());
    for (FileSystem* one : clients) EXPECT_EQ(one->Stat(f)->size, 9u);
  }
}

// Nobody sees what is older than what anybody has seen: one client sets a file's time and makes
// names with rising numbers, and others look.
TEST_F(KnownNamesTest, LooksAreInTheOrderOfRealTime) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(7));
  const auto a = world_.Client(1), b = world_.Client(2), c = world_.Client(3);
  FileSystem* const clients[] = {a.get(), b.get(), c.get()};
  const ObjectId file = MakeFile(*a, "f");
  const ObjectId directory = MakeNode(*a, a->root(), "d", S_IFDIR | 0755);
  const int64_t rounds = runtime::testing::kSanitized ? 60 : 300;
  constexpr int64_t kNamesThere = 4;
  std::atomic<int64_t> time_seen{0}, name_seen{0};
  std::atomic<uint64_t> looks{0};
  std::atomic<bool> stop{false};
  const auto raise = [](std::atomic<int64_t>& seen, int64_t to) {
    int64_t before = seen;
    while (before < to && !seen.compare_exchange_weak(before, to)) {
    }
  };
  ASSERT_TRUE(a->Set(kAdmin, file, {.modified_ns = 0}).ok());
  const auto look = [&](FileSystem& at, std::mt19937& random) {
    ++looks;
    const int64_t floor = time_seen;
    const auto node = random() % 2 == 0 ? at.Stat(file) : at.Lookup(kAdmin, at.root(), "f");
    ASSERT_TRUE(node.ok()) << node.status();
    ASSERT_GE(node->inode.modified_ns, floor);
    raise(time_seen, node->inode.modified_ns);
    // Some name at or behind the newest that was seen is there.
    const int64_t newest = name_seen;
    int64_t found = -1;
    for (int64_t i = newest; found < 0 && i <= rounds; ++i) {
      if (at.Lookup(kAdmin, directory, absl::StrCat("n", i)).ok()) found = i;
    }
    ASSERT_TRUE(newest == 0 || found >= newest) << "n" << newest;
    if (found > 0) raise(name_seen, found);
    if (newest <= kNamesThere) return;
    ASSERT_FALSE(at.Lookup(kAdmin, directory, absl::StrCat("n", newest - kNamesThere - 1)).ok());
    const auto listed = at.List(kAdmin, directory, 2, 100, false);
    ASSERT_TRUE(listed.ok());
    int64_t last = 0;
    for (const auto& one : *listed) last = std::max(last, std::stol(one.name.substr(1)));
    ASSERT_GE(last, newest);
  };
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + static_cast<uint32_t>(t));
      while (!stop && !HasFatalFailure()) look(*clients[t % 3], random);
    });
  }
  for (int64_t i = 1; i <= rounds; ++i) {
    FileSystem& at = *clients[static_cast<size_t>(i / 20) % 2];
    EXPECT_TRUE(at.Set(kAdmin, file, {.modified_ns = i}).ok());
    raise(time_seen, i);
    MakeNode(at, directory, absl::StrCat("n", i), S_IFREG | 0644);
    raise(name_seen, i);
    if (i <= kNamesThere) continue;
    EXPECT_TRUE(at.Unlink(kAdmin, directory, absl::StrCat("n", i - kNamesThere)).ok());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::cout << looks << " looks beside " << 3 * rounds << " changes\n";
  EXPECT_GT(looks, 0u);
}

// -- clients that are lost ------------------------------------------------------------------------

TEST_F(KnownNamesTest, AClientThatDiedKeepsChangesWaitingForItsLeaseOnly) {
  auto a = world_.Client(1), b = world_.Client(2);
  const ObjectId file = MakeFile(*b, "f");
  ASSERT_EQ(a->Lookup(kAdmin, a->root(), "f")->id, file);
  world_.cluster().Kill(1);
  std::future<absl::Status> set =
      std::async(std::launch::async, [&] { return SetMode(*b, file, 0600); });
  std::future<ObjectId> made = std::async(std::launch::async, [&] { return MakeFile(*b, "g"); });
  for (int i = 0; i < 2; ++i) {
    steady_ns_ += kLeaseOfKnowersNs * 6 / 10;
    ASSERT_TRUE(b->Renew().ok());
  }
  EXPECT_TRUE(set.get().ok());
  EXPECT_NE(made.get(), 0u);
  ASSERT_TRUE(Eventually([&] { return !IsClient("client 1"); }));
  a.reset();  // what it says now reaches nobody
}

TEST_F(KnownNamesTest, AfterAFailedRenewalNothingThatWasKeptIsShown) {
  const auto a = world_.Client(1);
  const ObjectId file = MakeFile(*a, "f");
  ASSERT_EQ(ModeOf(*a, file), 0644u);
  world_.cluster().Kill(FileSystemWorld::kServer);
  EXPECT_FALSE(a->Renew().ok());
  EXPECT_FALSE(a->Stat(file).ok()) << "though its lease is not over yet";
}

TEST_F(KnownNamesTest, NothingIsShownForLongerThanItsServerIsSureToServe) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  world_.serves_for_ns = 20 * kSecondNs;
  const auto a = world_.Client(1);
  const ObjectId file = MakeFile(*a, "f");
  // Twice where it is not to: a lease may be renewed meanwhile, which is a frame too.
  const auto asks = [&] {
    const uint64_t before = FramesSent(1);
    EXPECT_EQ(ModeOf(*a, file), 0644u);
    return FramesSent(1) > before;
  };
  asks();
  EXPECT_FALSE(asks() && asks());
  steady_ns_ += 25 * kSecondNs;
  EXPECT_TRUE(asks()) << "another server may have come to answer for the volume";
  ASSERT_TRUE(a->Renew().ok());
  asks();
  EXPECT_FALSE(asks() && asks());
  world_.cluster().Kill(FileSystemWorld::kServer);
  EXPECT_FALSE(asks() && asks());
  steady_ns_ += 25 * kSecondNs;
  EXPECT_FALSE(a->Stat(file).ok());
}

TEST_F(KnownNamesTest, AClientThatCouldNotRenewShowsNothingThatItKept) {
  const auto a = world_.Client(1);
  const ObjectId file = MakeFile(*a, "f");
  ASSERT_EQ(ModeOf(*a, file), 0644u);
  ASSERT_EQ(a->Lookup(kAdmin, a->root(), "f")->id, file);
  // It sleeps, and is given up.
  ASSERT_TRUE(Eventually([&] {
    steady_ns_ += 2 * kLeaseOfKnowersNs;
    return !IsClient("client 1");
  }));
  const auto b = world_.Client(2);
  ASSERT_TRUE(SetMode(*b, file, 0600).ok());
  ASSERT_TRUE(b->Rename(kAdmin, b->root(), "f", b->root(), "g", RenameRule::kReplace).ok());
  EXPECT_EQ(ModeOf(*a, file), 0600u);
  EXPECT_FALSE(a->Lookup(kAdmin, a->root(), "f").ok());
}

}  // namespace
}  // namespace abacus::objfs
