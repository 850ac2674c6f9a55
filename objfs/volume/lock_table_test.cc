// Locks against a model that keeps the holders of each byte, and the facts that people rely on.

#include "objfs/volume/lock_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Grant = LockTable::Grant;

constexpr ObjectId kFile = 7;

LockRequest Claim(uint64_t owner, bool exclusive, uint64_t first, uint64_t last,
                  uint64_t ticket = 0) {
  return {.file = kFile,
          .kind = LockKind::kRecord,
          .exclusive = exclusive,
          .range = {first, last},
          .owner = owner,
          .pid = static_cast<uint32_t>(owner),
          .ticket = ticket};
}
LockRequest Flock(uint64_t owner, bool exclusive, uint64_t ticket = 0) {
  LockRequest request = Claim(owner, exclusive, 0, kLockEnd, ticket);
  request.kind = LockKind::kFlock;
  return request;
}

class LockTableTest : public ::testing::Test {
 protected:
  LockState Lock(uint16_t writer, const LockRequest& request) {
    const auto state = table_.Lock(writer, request, &grants_);
    EXPECT_TRUE(state.ok()) << state.status();
    return state.value_or(LockState::kHeld);
  }
  void Unlock(uint16_t writer, const LockRequest& request) {
    EXPECT_TRUE(table_.Unlock(writer, request, &grants_).ok());
  }
  // "1/5 w 0-9": client, owner, mode, bytes.
  std::vector<std::string> Held(LockKind kind = LockKind::kRecord) {
    std::vector<std::string> all;
    for (const HeldLock& held : table_.Held(kFile, kind)) {
      all.push_back(absl::StrCat(
          held.writer, "/", held.owner, held.exclusive ? " w " : " r ", held.range.first, "-",
          held.range.last == kLockEnd ? "end" : absl::StrCat(held.range.last)));
    }
    return all;
  }

  LockTable table_;
  LockTable::Grants grants_;
};

TEST_F(LockTableTest, LocksOfOneOwnerSplitAndGrowTogether) {
  EXPECT_EQ(Lock(1, Claim(5, true, 0, 99)), LockState::kGranted);
  Unlock(1, Claim(5, false, 40, 59));
  EXPECT_THAT(Held(), ElementsAre("1/5 w 0-39", "1/5 w 60-99"));
  EXPECT_EQ(Lock(1, Claim(5, false, 70, 79)), LockState::kGranted);
  EXPECT_THAT(Held(), ElementsAre("1/5 w 0-39", "1/5 w 60-69", "1/5 r 70-79", "1/5 w 80-99"));
  EXPECT_EQ(Lock(1, Claim(5, true, 40, 79)), LockState::kGranted);
  EXPECT_THAT(Held(), ElementsAre("1/5 w 0-99"));
  EXPECT_EQ(Lock(1, Claim(5, true, 100, kLockEnd)), LockState::kGranted);
  EXPECT_THAT(Held(), ElementsAre("1/5 w 0-end"));
  Unlock(1, Claim(5, false, 10, kLockEnd));
  EXPECT_THAT(Held(), ElementsAre("1/5 w 0-9"));
}

TEST_F(LockTableTest, TheSameOwnersNumberOfAnotherClientIsAnotherOwner) {
  EXPECT_EQ(Lock(1, Claim(5, true, 0, 9)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Claim(5, true, 0, 9)), LockState::kHeld);
  EXPECT_EQ(Lock(2, Claim(5, true, 10, 19)), LockState::kGranted);
}

TEST_F(LockTableTest, TellsTheFirstLockThatExcludes) {
  EXPECT_EQ(Lock(1, Claim(5, false, 20, 29)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Claim(6, false, 10, 39)), LockState::kGranted);
  EXPECT_FALSE(table_.Excluding(3, Claim(9, false, 0, kLockEnd)).has_value());
  const auto excluding = table_.Excluding(3, Claim(9, true, 25, kLockEnd));
  ASSERT_TRUE(excluding.has_value());
  EXPECT_EQ(excluding->pid, 6u);
  EXPECT_EQ(excluding->range, (LockRange{10, 39}));
  EXPECT_EQ(table_.Excluding(2, Claim(6, true, 0, kLockEnd))->pid, 5u);
}

TEST_F(LockTableTest, WhoWaitsIsServedInTheOrderOfComing) {
  EXPECT_EQ(Lock(1, Claim(1, true, 0, 9)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Claim(2, false, 0, 4, 22)), LockState::kWaiting);
  EXPECT_EQ(Lock(3, Claim(3, true, 4, 6, 33)), LockState::kWaiting);
  EXPECT_EQ(Lock(4, Claim(4, false, 0, 4, 44)), LockState::kWaiting);
  EXPECT_EQ(Lock(5, Claim(5, true, 9, 9, 55)), LockState::kWaiting);
  Unlock(1, Claim(1, false, 0, 6));
  EXPECT_THAT(grants_, ElementsAre(Grant{2, 22}, Grant{4, 44}));
  EXPECT_TRUE(table_.Waits(3, 33));
  Unlock(2, Claim(2, false, 0, kLockEnd));
  Unlock(4, Claim(4, false, 0, kLockEnd));
  EXPECT_EQ(grants_.back(), (Grant{3, 33}));
  EXPECT_TRUE(table_.Cancel(5, 55));
  EXPECT_FALSE(table_.Cancel(5, 55));
  EXPECT_FALSE(table_.Cancel(3, 33));
  Unlock(1, Claim(1, false, 0, kLockEnd));
  EXPECT_EQ(grants_.size(), 3u);
  EXPECT_EQ(table_.counts().waiting, 0u);
}

TEST_F(LockTableTest, ALockThatBecomesSharedLetsSharersIn) {
  EXPECT_EQ(Lock(1, Claim(1, true, 0, 9)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Claim(2, false, 5, 5, 22)), LockState::kWaiting);
  EXPECT_EQ(Lock(1, Claim(1, false, 0, 9)), LockState::kGranted);
  EXPECT_THAT(grants_, ElementsAre(Grant{2, 22}));
}

TEST_F(LockTableTest, WhoWouldWaitForHimselfIsRefused) {
  EXPECT_EQ(Lock(1, Claim(1, true, 0, 0)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Claim(2, true, 1, 1)), LockState::kGranted);
  EXPECT_EQ(Lock(3, Claim(3, true, 2, 2)), LockState::kGranted);
  EXPECT_EQ(Lock(1, Claim(1, true, 1, 1, 11)), LockState::kWaiting);
  EXPECT_EQ(Lock(2, Claim(2, true, 2, 2, 22)), LockState::kWaiting);
  EXPECT_EQ(Lock(3, Claim(3, true, 0, 0, 33)), LockState::kDeadlock);
  EXPECT_EQ(Lock(3, Claim(3, true, 0, 0)), LockState::kHeld) << "who does not wait may ask";
  EXPECT_TRUE(table_.Cancel(1, 11));
  EXPECT_EQ(Lock(3, Claim(3, true, 0, 0, 34)), LockState::kWaiting);
  Unlock(1, Claim(1, false, 0, kLockEnd));
  EXPECT_THAT(grants_, ElementsAre(Grant{3, 34}));
}

TEST_F(LockTableTest, TwoWhoSharedCannotBothBecomeExclusive) {
  EXPECT_EQ(Lock(1, Claim(1, false, 0, 9)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Claim(2, false, 0, 9)), LockState::kGranted);
  EXPECT_EQ(Lock(1, Claim(1, true, 0, 9, 11)), LockState::kWaiting);
  EXPECT_THAT(Held(), ElementsAre("1/1 r 0-9", "2/2 r 0-9"));
  EXPECT_EQ(Lock(2, Claim(2, true, 0, 9, 22)), LockState::kDeadlock);
  Unlock(2, Claim(2, false, 0, 9));
  EXPECT_THAT(Held(), ElementsAre("1/1 w 0-9"));
}

TEST_F(LockTableTest, FlocksAreApartFromRecordLocksAndLetGoBeforeTheyChange) {
  EXPECT_EQ(Lock(1, Claim(1, true, 0, kLockEnd)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Flock(2, false)), LockState::kGranted);
  EXPECT_EQ(Lock(3, Flock(3, false)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Flock(2, true, 22)), LockState::kWaiting);
  EXPECT_THAT(Held(LockKind::kFlock), ElementsAre("3/3 r 0-end"));
  EXPECT_EQ(Lock(3, Flock(3, true, 33)), LockState::kWaiting) << "2 was before it, and is served";
  EXPECT_THAT(grants_, ElementsAre(Grant{2, 22}));
  EXPECT_THAT(Held(LockKind::kFlock), ElementsAre("2/2 w 0-end"));
}

TEST_F(LockTableTest, AClientThatLeavesTakesAllItsLocksAlong) {
  EXPECT_EQ(Lock(1, Claim(1, true, 0, 9)), LockState::kGranted);
  EXPECT_EQ(Lock(1, Flock(2, true)), LockState::kGranted);
  EXPECT_EQ(Lock(2, Claim(1, true, 10, 19)), LockState::kGranted);
  EXPECT_EQ(Lock(1, Claim(3, true, 10, 19, 11)), LockState::kWaiting);
  EXPECT_EQ(Lock(2, Claim(2, true, 0, 0, 21)), LockState::kWaiting);
  EXPECT_EQ(Lock(2, Flock(3, false, 22)), LockState::kWaiting);
  table_.Drop(1, &grants_);
  EXPECT_THAT(grants_, UnorderedElementsAre(Grant{2, 21}, Grant{2, 22}));
  EXPECT_EQ(table_.counts().waiting, 0u);
  EXPECT_EQ(table_.counts().held, 3u);
  table_.Drop(2, &grants_);
  EXPECT_EQ(table_.counts().held, 0u);
  EXPECT_THAT(Held(), IsEmpty());
}

TEST_F(LockTableTest, LimitsAreTypedErrors) {
  EXPECT_EQ(table_.Lock(1, Claim(1, true, 9, 8), &grants_).status().code(),
            absl::StatusCode::kInvalidArgument);
  absl::Status last;
  uint64_t locks = 0;
  for (ObjectId file = 1; last.ok() && file <= LockTable::kLocksPerClientMax; ++file) {
    LockRequest request = Claim(1, true, 0, 0);
    request.file = file;
    last = table_.Lock(1, request, &grants_).status();
    if (last.ok()) ++locks;
  }
  EXPECT_EQ(last.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(locks, LockTable::kLocksPerClientMax - 2);
  EXPECT_EQ(Lock(2, Claim(1, true, 5, 5)), LockState::kGranted);
  table_.Drop(1, &grants_);
  EXPECT_EQ(Lock(1, Claim(1, true, 0, 0)), LockState::kGranted);
}

// Two files of a few bytes, a few owners of two clients: for each byte, who has it and how.
class ByteModel {
 public:
  // The last one stands for all from there on.
  static constexpr uint64_t kBytes = 13;
  using Owner = std::pair<uint16_t, uint64_t>;
  struct Asked {
    uint16_t writer;
    LockRequest request;
  };

  bool IsFree(const Asked& asked) const { return HoldersOf(asked).empty(); }
  std::set<Owner> HoldersOf(const Asked& asked) const {
    std::set<Owner> holders;
    ForBytes(asked.request, [&](uint64_t at) {
      const auto found = bytes_.find({asked.request.file, asked.request.kind, at});
      if (found == bytes_.end()) return;
      for (const auto& [owner, exclusive] : found->second) {
        if (owner == OwnerOf(asked)) continue;
        if (exclusive || asked.request.exclusive) holders.insert(owner);
      }
    });
    return holders;
  }
  // Whether somebody that `asked` would wait for waits for its owner, by the closure of who waits
  // for whom.
  bool WouldDeadlock(const Asked& asked) const {
    std::set<std::pair<Owner, Owner>> waits_for;
    for (const Asked& one : waiting_) {
      if (one.request.kind != LockKind::kRecord) continue;
      for (const Owner& holder : HoldersOf(one)) waits_for.insert({OwnerOf(one), holder});
    }
    for (bool grew = true; grew;) {
      grew = false;
      const auto now = waits_for;
      for (const auto& [a, b] : now) {
        for (const auto& [c, d] : now) {
          if (b == c && waits_for.insert({a, d}).second) grew = true;
        }
      }
    }
    const std::set<Owner> holders = HoldersOf(asked);
    return std::any_of(holders.begin(), holders.end(), [&](const Owner& holder) {
      return waits_for.contains({holder, OwnerOf(asked)});
    });
  }
  void Set(const Asked& asked, std::optional<bool> exclusive) {
    ForBytes(asked.request, [&](uint64_t at) {
      auto& holders = bytes_[{asked.request.file, asked.request.kind, at}];
      holders.erase(OwnerOf(asked));
      if (exclusive.has_value()) holders[OwnerOf(asked)] = *exclusive;
    });
  }
  void Wait(const Asked& asked) { waiting_.push_back(asked); }
  bool Cancel(uint16_t writer, uint64_t ticket) {
    return std::erase_if(waiting_, [&](const Asked& one) {
             return one.writer == writer && one.request.ticket == ticket;
           }) > 0;
  }
  // The oldest that is free, again and again.
  std::vector<Grant> Wake() {
    std::vector<Grant> grants;
    for (;;) {
      const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                     [&](const Asked& one) { return IsFree(one); });
      if (next == waiting_.end()) return grants;
      const Asked asked = *next;
      waiting_.erase(next);
      Set(asked, asked.request.exclusive);
      grants.push_back({asked.writer, asked.request.ticket});
    }
  }
  void Drop(uint16_t writer) {
    std::erase_if(waiting_, [&](const Asked& one) { return one.writer == writer; });
    for (auto& [at, holders] : bytes_) {
      std::erase_if(holders, [&](const auto& one) { return one.first.first == writer; });
    }
  }
  bool ConvertsFlock(const Asked& asked) const {
    const auto found = bytes_.find({asked.request.file, LockKind::kFlock, 0});
    if (asked.request.kind != LockKind::kFlock || found == bytes_.end()) return false;
    const auto mine = found->second.find(OwnerOf(asked));
    return mine != found->second.end() && mine->second != asked.request.exclusive;
  }
  // The bytes of one owner, as a table tells them.
  using ByteKey = std::tuple<ObjectId, LockKind, uint64_t>;
  const std::map<ByteKey, std::map<Owner, bool>>& bytes() const { return bytes_; }
  const std::vector<Asked>& waiting() const { return waiting_; }

 private:
  static Owner OwnerOf(const Asked& asked) { return {asked.writer, asked.request.owner}; }
  template <typename F>
  static void ForBytes(const LockRequest& request, F f) {
    for (uint64_t at = request.range.first; at <= std::min(request.range.last, kBytes - 1); ++at) {
      f(at);
    }
  }
  std::map<ByteKey, std::map<Owner, bool>> bytes_;
  std::vector<Asked> waiting_;
};

class LockModelTest : public LockTableTest {
 protected:
  void CheckHeld() {
    for (const ObjectId file : {ObjectId{1}, ObjectId{2}}) {
      for (const LockKind kind : {LockKind::kRecord, LockKind::kFlock}) {
        std::map<ByteModel::ByteKey, std::map<ByteModel::Owner, bool>> seen;
        uint64_t before = 0;
        const std::vector<HeldLock> all = table_.Held(file, kind);
        for (const HeldLock& held : all) {
          EXPECT_LE(before, held.range.first);
          before = held.range.first;
          for (uint64_t at = held.range.first;
               at <= std::min(held.range.last, ByteModel::kBytes - 1); ++at) {
            const bool is_new =
                seen[{file, kind, at}]
                    .emplace(ByteModel::Owner(held.writer, held.owner), held.exclusive)
                    .second;
            EXPECT_TRUE(is_new) << "a byte twice";
          }
        }
        for (uint64_t at = 0; at < ByteModel::kBytes; ++at) {
          const auto expected = model_.bytes().find({file, kind, at});
          const std::map<ByteModel::Owner, bool> none;
          EXPECT_EQ((seen[{file, kind, at}]),
                    expected == model_.bytes().end() ? none : expected->second)
              << "file " << file << ", byte " << at;
        }
      }
    }
    EXPECT_EQ(table_.counts().waiting, model_.waiting().size());
  }
  // What is granted in several files at once is in no order.
  void CheckGrants(bool in_order) {
    std::vector<Grant> expected = model_.Wake();
    if (!in_order) {
      std::sort(expected.begin(), expected.end());
      std::sort(grants_.begin(), grants_.end());
    }
    EXPECT_EQ(grants_, expected);
    grants_.clear();
  }
  void Ask(const ByteModel::Asked& asked) {
    EXPECT_EQ(table_.Excluding(asked.writer, asked.request).has_value(), !model_.IsFree(asked));
    if (model_.ConvertsFlock(asked)) {
      model_.Set(asked, std::nullopt);
      const std::vector<Grant> granted = model_.Wake();
      expected_before_.assign(granted.begin(), granted.end());
    }
    LockState expected = LockState::kHeld;
    if (model_.IsFree(asked)) {
      expected = LockState::kGranted;
    } else if (asked.request.ticket != 0) {
      const bool deadlock = asked.request.kind == LockKind::kRecord && model_.WouldDeadlock(asked);
      expected = deadlock ? LockState::kDeadlock : LockState::kWaiting;
    }
    EXPECT_EQ(Lock(asked.writer, asked.request), expected);
    for (const Grant& grant : expected_before_) {
      EXPECT_EQ(std::erase(grants_, grant), 1u);
    }
    expected_before_.clear();
    if (expected == LockState::kGranted) model_.Set(asked, asked.request.exclusive);
    if (expected == LockState::kWaiting) model_.Wait(asked);
  }

  ByteModel model_;
  std::vector<Grant> expected_before_;
};

TEST_F(LockModelTest, IsItsModelByteForByte) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(5));
  std::mt19937 random(seed);
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  uint64_t last_ticket = 0;
  const int steps = runtime::testing::kSanitized ? 5'000 : 50'000;
  for (int i = 0; i < steps && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i));
    const auto writer = static_cast<uint16_t>(1 + draw(1));
    LockRequest request = Claim(draw(2), draw(1) == 0, draw(ByteModel::kBytes - 2), 0);
    request.file = 1 + draw(1);
    request.range.last =
        draw(5) == 0 ? kLockEnd : std::min(request.range.first + draw(4), ByteModel::kBytes - 2);
    if (draw(4) == 0) {
      request.kind = LockKind::kFlock;
      request.range = {0, kLockEnd};
    }
    const uint64_t what = draw(9);
    switch (what) {
      case 0:
      case 1:
      case 2:
        Unlock(writer, request);
        model_.Set({writer, request}, std::nullopt);
        break;
      case 3: {
        const uint64_t ticket = last_ticket - draw(std::min<uint64_t>(last_ticket, 5));
        EXPECT_EQ(table_.Cancel(writer, ticket), model_.Cancel(writer, ticket));
        break;
      }
      case 4:
        if (draw(30) != 0) break;
        table_.Drop(writer, &grants_);
        model_.Drop(writer);
        break;
      case 5:
      case 6:
        request.ticket = ++last_ticket;
        [[fallthrough]];
      default:
        Ask({writer, request});
    }
    CheckGrants(what != 4);
    CheckHeld();
  }
}

}  // namespace
}  // namespace abacus::objfs
