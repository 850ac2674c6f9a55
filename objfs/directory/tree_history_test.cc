// Clients that plan against what they read earlier and commit later: what was committed must be
// what one client after the other would have done, in the order of the commits.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/directory/directory_tree.h"
#include "objfs/directory/testing/hashes.h"
#include "objfs/directory/testing/memory_blocks.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using testing::CrowdedHash;
using testing::DeepHash;
using testing::Hash;
using testing::MemoryBlocks;
using testing::WithHash;
using Names = std::map<std::string, Entry>;

// What a client believes, and what it wants to make of it.
struct Pending {
  std::vector<EntryChange> changes;
  Part part;
};

// Several clients of one directory in one thread: while one reads block after block for its plan,
// plans that others made before are committed in between.
class History {
 public:
  History(uint32_t seed, Hash hash) : random_(seed) {
    for (int i = 0; i < 5; ++i) {
      clients_.push_back(std::make_unique<DirectoryTree>(blocks_, WithHash(hash)));
    }
    blocks_.before_read = [this] {
      if (random_() % 4 == 0) CommitOne();
    };
  }

  void Step() {
    std::vector<EntryChange> changes = DrawChanges();
    DirectoryTree& client = *clients_[random_() % clients_.size()];
    const auto part = client.Plan(changes);
    if (part.ok()) {
      pending_.push_back({std::move(changes), *part});
    } else {
      // What it believed was so when it was drawn, so somebody came in between.
      ASSERT_TRUE(IsChanged(part.status())) << part.status();
      ++changed_;
    }
    // Some plans wait long.
    while (pending_.size() > 12) CommitOne();
  }
  void Finish() {
    while (!pending_.empty()) CommitOne();
    blocks_.before_read = nullptr;
    for (const auto& client : clients_) {
      Names listed;
      for (uint64_t cookie = 0;;) {
        const auto some = client->List(cookie, 100);
        ASSERT_TRUE(some.ok()) << some.status();
        if (some->empty()) break;
        for (const ListedEntry& entry : *some) listed.emplace(entry.name, entry.entry);
        cookie = some->back().cookie;
      }
      EXPECT_EQ(listed, model_);
    }
    EXPECT_GT(committed_, 100u);
    EXPECT_GT(stale_, 100u) << "nobody met";
    EXPECT_GT(changed_, 0u);
    EXPECT_GT(blocks_.size(), 4u) << "nothing was split";
  }

 private:
  std::vector<EntryChange> DrawChanges() {
    std::map<std::string, EntryChange> changes;
    const size_t count = 1 + random_() % 3;
    for (size_t i = 0; i < count; ++i) {
      std::string name = absl::StrCat("n", random_() % 300);
      name.append(100 + name.size() * 20, '.');
      const auto now = model_.find(name);
      EntryChange change{name, std::nullopt, std::nullopt};
      if (now != model_.end()) change.before = now->second;
      if (random_() % 5 < 3) change.after = Entry{++ids_, S_IFREG};
      changes[name] = change;
    }
    std::vector<EntryChange> all;
    for (const auto& [name, change] : changes) all.push_back(change);
    return all;
  }
  // Any of the plans, not the oldest.
  void CommitOne() {
    if (pending_.empty()) return;
    const size_t which = random_() % pending_.size();
    const Pending one = std::move(pending_[which]);
    pending_.erase(pending_.begin() + static_cast<int>(which));
    if (!blocks_.Commit(one.part)) {
      ++stale_;
      return;
    }
    ++committed_;
    for (const EntryChange& change : one.changes) {
      const auto now = model_.find(change.name);
      const auto before = now == model_.end() ? std::nullopt : std::optional<Entry>(now->second);
      ASSERT_EQ(before, change.before) << "committed, and it was not so: " << change.name;
      if (change.after.has_value()) {
        model_[change.name] = *change.after;
      } else {
        model_.erase(change.name);
      }
    }
  }

  std::mt19937 random_;
  MemoryBlocks blocks_;
  std::vector<std::unique_ptr<DirectoryTree>> clients_;
  std::deque<Pending> pending_;
  Names model_;
  ObjectId ids_ = 0;
  uint64_t committed_ = 0, stale_ = 0, changed_ = 0;
};

TEST(TreeHistoryTest, CommitsAreSerialisableWhateverIsPlannedAgainstOldBlocks) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(5));
  for (const Hash hash : {Hash{&SipHash}, Hash{&CrowdedHash}, Hash{&DeepHash}}) {
    History history(seed, hash);
    for (int step = 0; step < 4000; ++step) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", step));
      history.Step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    history.Finish();
  }
}

}  // namespace
}  // namespace abacus::objfs
