// What a client keeps of inodes and names: facts, and clients that keep it under the promises of a
// volume's table, each with looks at the same time, while messages come one at a time in any order,
// clocks run as they like, and clients are cut off.

#include "objfs/fs/knowledge.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/volume/callback_table.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Node NodeWith(ObjectId id, uint64_t size) {
  Node node{.id = id, .inode = {}, .size = size};
  node.inode.links = 1;
  return node;
}

class KnowledgeTest : public ::testing::Test {
 protected:
  void Keep(ObjectId id, uint64_t size) {
    known_.Keep(NodeWith(id, size), Version{++stamp_}, known_.Seen(id));
  }
  uint64_t SizeOf(ObjectId id) {
    const auto node = known_.Find(id);
    return node.has_value() ? node->size : 0;
  }
  void KeepName(const std::string& name, ObjectId id) {
    const auto seen = known_.SeenNames(1);
    ASSERT_TRUE(seen.has_value());
    known_.KeepName(1, name, id == 0 ? std::nullopt : std::optional<Entry>({id, 0}), *seen);
  }
  // 0: known to be none; -1: not known.
  int64_t Named(const std::string& name) {
    const auto entry = known_.FindName(1, name);
    if (!entry.has_value()) return -1;
    return entry->has_value() ? static_cast<int64_t>((*entry)->id) : 0;
  }

  Knowledge known_{{.inodes_max = 4, .names_max = 16}};
  uint64_t stamp_ = 0;
};

TEST_F(KnowledgeTest, ShowsWhatWasPromisedUntilItIsForgotten) {
  Keep(1, 10);
  EXPECT_EQ(SizeOf(1), 10u);
  known_.Keep(NodeWith(2, 20), Version(), known_.Seen(2));
  EXPECT_EQ(SizeOf(2), 0u) << "nothing was promised";
  const uint64_t seen = known_.Seen(1);
  known_.Forget(1, Version{stamp_});
  EXPECT_EQ(SizeOf(1), 0u);
  known_.Keep(NodeWith(1, 10), Version{++stamp_}, seen);
  EXPECT_EQ(SizeOf(1), 0u) << "it was asked for before it was forgotten";
  EXPECT_THAT(known_.TakeReturned(), SizeIs(1)) << "the promise is given back";
  Keep(1, 11);
  EXPECT_EQ(SizeOf(1), 11u);
}

TEST_F(KnowledgeTest, APromiseEndsWithAYoungerOneThatIsGivenBack) {
  // Two questions: the first one is answered last, and meanwhile something ended.
  const uint64_t asked_first = known_.Seen(1);
  known_.Forget(1, Version{1});
  const uint64_t asked_last = known_.Seen(1);
  known_.Keep(NodeWith(1, 10), Version{3}, asked_first);
  EXPECT_THAT(known_.TakeReturned(), SizeIs(1));
  known_.Keep(NodeWith(1, 10), Version{2}, asked_last);
  EXPECT_EQ(SizeOf(1), 0u) << "with promise 3 the volume forgot that it had made promise 2";
  known_.Keep(NodeWith(1, 10), Version{4}, known_.Seen(1));
  EXPECT_EQ(SizeOf(1), 10u);
}

TEST_F(KnowledgeTest, TheYoungestPromiseIsGivenBack) {
  Keep(1, 10);
  const uint64_t asked = known_.Seen(1);
  known_.Keep(NodeWith(1, 10), Version{5}, asked);
  known_.Forget(1 + 1024, Version{1});  // what shares its slot
  known_.Keep(NodeWith(1, 10), Version{7}, asked);
  for (ObjectId id = 2; id < 6; ++id) Keep(id, 1);
  const auto returned = known_.TakeReturned();
  ASSERT_THAT(returned, SizeIs(1));
  EXPECT_EQ(returned[0].given, Version{7}) << "an older one is not what the volume remembers";
}

TEST_F(KnowledgeTest, WhereTheVolumeMayStillHaveThemPromisesAreGivenBack) {
  Keep(1, 10);
  known_.ForgetAll(/*give_back=*/true);
  EXPECT_EQ(SizeOf(1), 0u);
  const auto returned = known_.TakeReturned();
  ASSERT_THAT(returned, SizeIs(1));
  known_.PutBack(returned);
  EXPECT_THAT(known_.TakeReturned(), SizeIs(1)) << "it could not be told";
  Keep(2, 20);
  known_.ForgetAll(/*give_back=*/false);
  EXPECT_THAT(known_.TakeReturned(), IsEmpty()) << "there is nobody who has them";
}

TEST_F(KnowledgeTest, NamesEndWithTheirDirectory) {
  EXPECT_FALSE(known_.SeenNames(1).has_value());
  Keep(1, 0);
  KeepName("a", 7);
  KeepName("b", 0);
  EXPECT_EQ(Named("a"), 7);
  EXPECT_EQ(Named("b"), 0);
  EXPECT_EQ(Named("c"), -1);
  const auto seen = known_.SeenNames(1);
  known_.KeepListed(1, 0, 10, {{"a", {7, 0}, 16}}, *seen);
  EXPECT_THAT(*known_.FindListed(1, 0, 10), SizeIs(1));
  EXPECT_FALSE(known_.FindListed(1, 0, 11).has_value());
  known_.Forget(1, Version{stamp_});
  Keep(1, 0);
  EXPECT_EQ(Named("a"), -1);
  EXPECT_FALSE(known_.FindListed(1, 0, 10).has_value());
  known_.KeepName(1, "a", Entry{7, 0}, *seen);
  EXPECT_EQ(Named("a"), -1) << "it was looked up before the directory was forgotten";
  EXPECT_EQ(known_.names(), 0u);
}

TEST_F(KnowledgeTest, OwnChangesTakeThePlaceOfWhatWasKept) {
  Keep(1, 10);
  KeepName("a", 7);
  KeepName("b", 0);
  known_.KeepListed(1, 0, 10, {{"a", {7, 0}, 16}}, *known_.SeenNames(1));
  {
    Knowledge::Change change(known_, 1);
    EXPECT_EQ(SizeOf(1), 0u) << "it may be changed already, or not";
    EXPECT_EQ(Named("a"), -1);
    Keep(1, 9);
    change.Became(NodeWith(1, 11),
                  {{"a", Entry{7, 0}, std::nullopt}, {"b", std::nullopt, Entry{8}}});
  }
  EXPECT_EQ(SizeOf(1), 11u);
  EXPECT_EQ(Named("a"), 0);
  EXPECT_EQ(Named("b"), 8);
  EXPECT_FALSE(known_.FindListed(1, 0, 10).has_value());
  { const Knowledge::Change change(known_, 1); }
  EXPECT_EQ(SizeOf(1), 0u) << "what came of it is not known";
  EXPECT_EQ(known_.names(), 0u);
}

TEST_F(KnowledgeTest, WhatWasListedIsKnownByItsName) {
  Keep(1, 0);
  known_.KeepListed(1, 0, 10, {{"a", {7, 0}, 16}, {"b", {8, 0}, 17}}, *known_.SeenNames(1));
  EXPECT_EQ(Named("a"), 7);
  EXPECT_EQ(Named("b"), 8);
  EXPECT_EQ(Named("c"), -1) << "it may be further behind";
  {
    Knowledge::Change change(known_, 1);
    change.Became(NodeWith(1, 0), {{"a", Entry{7, 0}, std::nullopt}});
  }
  EXPECT_EQ(Named("a"), 0);
  EXPECT_EQ(Named("b"), 8);
  EXPECT_FALSE(known_.FindListed(1, 0, 10).has_value());
}

TEST_F(KnowledgeTest, APromiseOutlivesAChangeOfTheBytes) {
  Keep(1, 10);
  const uint64_t asked_before = known_.Seen(1);
  {
    Knowledge::Change change(known_, 1);
    change.IsOfBytes();
  }
  EXPECT_EQ(SizeOf(1), 0u) << "what came of it is not known";
  EXPECT_TRUE(known_.IsPromised(1));
  EXPECT_THAT(known_.TakeReturned(), IsEmpty());
  known_.Keep(NodeWith(1, 10), Version{++stamp_}, asked_before);
  EXPECT_EQ(SizeOf(1), 0u) << "it was asked for before the change";
  Keep(1, 11);
  EXPECT_EQ(SizeOf(1), 11u);
  known_.Forget(1, Version{stamp_ - 1});
  EXPECT_TRUE(known_.IsPromised(1)) << "that was an older promise";
  known_.Forget(1, Version{stamp_});
  EXPECT_FALSE(known_.IsPromised(1));
}

TEST_F(KnowledgeTest, ChangesAtOnceLeaveNothing) {
  Keep(1, 10);
  {
    Knowledge::Change first(known_, 1);
    {
      Knowledge::Change second(known_, 1);
      second.Became(NodeWith(1, 12), {});
    }
    // Its answer comes later, and tells of an earlier change.
    first.Became(NodeWith(1, 11), {});
  }
  EXPECT_EQ(SizeOf(1), 0u);
}

TEST_F(KnowledgeTest, WhatIsForgottenDuringAChangeStaysForgotten) {
  Keep(1, 10);
  {
    Knowledge::Change change(known_, 1);
    known_.Forget(1, Version{stamp_});
    change.Became(NodeWith(1, 11), {});
  }
  EXPECT_EQ(SizeOf(1), 0u);
  EXPECT_THAT(known_.TakeReturned(), IsEmpty());
}

TEST_F(KnowledgeTest, TheOldestGoesAndIsGivenBack) {
  for (ObjectId id = 1; id <= 4; ++id) Keep(id, id);
  EXPECT_EQ(SizeOf(1), 1u) << "used";
  Keep(5, 5);
  EXPECT_EQ(SizeOf(2), 0u);
  EXPECT_EQ(SizeOf(1), 1u);
  const auto returned = known_.TakeReturned();
  ASSERT_THAT(returned, SizeIs(1));
  EXPECT_EQ(returned[0].id, 2u);
  EXPECT_EQ(returned[0].given, Version{2});
  EXPECT_EQ(known_.inodes(), 4u);
}

TEST_F(KnowledgeTest, NamesAreLimited) {
  Keep(1, 1);
  for (int i = 0; i < 100; ++i) KeepName(absl::StrCat("n", i), 7);
  EXPECT_LE(known_.names(), 8u);
  EXPECT_EQ(Named("n99"), 7);
  known_.KeepListed(1, 0, 10, std::vector<ListedEntry>(5), *known_.SeenNames(1));
  EXPECT_FALSE(known_.FindListed(1, 0, 10).has_value()) << "more than one directory may have";
}

TEST_F(KnowledgeTest, WhatItNamesItselfIsKnownAndLimitedToo) {
  Keep(1, 1);
  const auto name = [this](const std::string& name, std::optional<Entry> after) {
    Knowledge::Change change(known_, 1);
    change.Became(NodeWith(1, 1), {{name, std::nullopt, after}});
  };
  // As many as a directory may have, half of them by their places.
  std::vector<ListedEntry> listed(4);
  for (size_t i = 0; i < listed.size(); ++i) {
    listed[i].name = absl::StrCat("l", i);
    listed[i].entry = {10 + i, 0};
  }
  known_.KeepListed(1, 0, 10, listed, *known_.SeenNames(1));
  ASSERT_TRUE(known_.FindListed(1, 0, 10).has_value());
  name("new", Entry{7, 0});
  EXPECT_EQ(Named("new"), 7);
  EXPECT_EQ(Named("l3"), 13) << "the listing made room enough";
  EXPECT_FALSE(known_.FindListed(1, 0, 10).has_value());
  EXPECT_EQ(known_.names(), 5u);
  for (int i = 0; i < 3; ++i) name(absl::StrCat("n", i), Entry{20, 0});
  EXPECT_EQ(known_.names(), 8u);
  name("l3", std::nullopt);  // is known: it takes no room
  EXPECT_EQ(Named("l3"), 0);
  EXPECT_EQ(known_.names(), 8u);
  name("n3", Entry{21, 0});
  EXPECT_EQ(Named("n3"), 21);
  EXPECT_EQ(Named("new"), -1);
  EXPECT_EQ(known_.names(), 1u);
}

// -- the property ---------------------------------------------------------------------------------

constexpr int64_t kLeaseNs = 1000;
constexpr size_t kIds = 3;  // 1 is a directory with a name "n"

struct Letter {
  enum class What {
    kKnow,
    kKnowAnswer,
    kName,
    kNameAnswer,
    kChange,
    kChangeAnswer,
    kRenew,
    kRenewAnswer,
    kForget,
    kObeyed,
    kWake,
  };
  What what = What::kKnow;
  size_t link = 0;
  uint16_t writer = 0;
  size_t look = 0;  // which of the client's looks it is of
  std::vector<ObjectId> ids = {};
  std::vector<KnownInode> returned = {};
  std::vector<Node> nodes = {};
  Version given = {};
  bool bytes = false;  // a change of the bytes
  bool good = false;
  int64_t sent = 0;
};
using Sent = Letter::What;

// One that is under way; `id` 0: none is.
struct Look {
  ObjectId id = 0;
  bool at_name = false, asking = false;
  uint64_t floor = 0, seen = 0;
  std::optional<uint64_t> seen_names;
};

// What FileSystem does with what is known, with two looks and one change at a time.
struct Knower {
  uint16_t writer = 0;
  int64_t clock = 0, lease_until = 0;
  double rate = 1;
  bool cut_off = false;
  std::unique_ptr<Knowledge> known =
      std::make_unique<Knowledge>(Knowledge::Options{.inodes_max = 2, .names_max = 64});
  std::array<Look, 2> looks;
  // The change that is under way.
  std::unique_ptr<Knowledge::Change> change;
  std::vector<ObjectId> changes;
  bool changes_bytes = false, asking = false, blocked = false, woken = false;

  bool Leased() const { return clock < lease_until; }
  bool Idle() const {
    return change == nullptr &&
           std::all_of(looks.begin(), looks.end(), [](const Look& look) { return look.id == 0; });
  }
};

class KnowingWorld {
 public:
  explicit KnowingWorld(uint64_t seed, int64_t quiet_ns)
      : random_(seed), table_({.lease = kLeaseNs, .turn = 100, .quiet = quiet_ns}) {
    for (Knower& client : clients_) {
      client.rate = 0.95 + 0.1 * static_cast<double>(Draw(1000)) / 1000;
      Join(client);
    }
  }

  void Step(bool quiet) {
    switch (Draw(quiet ? 10 : 20)) {
      case 0:
        Advance(static_cast<int64_t>(Draw(kLeaseNs / 20)));
        break;
      case 1:
        table_.Tick(now_);
        break;
      case 2: {
        Knower& client = Any();
        Send(client, {.what = Sent::kRenew, .sent = client.clock});
        break;
      }
      case 3:
        Apply();
        break;
      case 4:
        // Asks again though nobody has woken it.
        if (Draw(20) == 0) Any().blocked = false;
        break;
      case 10:
      case 11:
      case 12:
      case 13:
        BeginLook(Any());
        break;
      case 14:
        if (Draw(3) == 0) BeginChange(Any());
        break;
      case 15: {
        Knower& client = Any();
        if (Draw(client.cut_off ? 150 : 400) == 0) client.cut_off = !client.cut_off;
        if (Draw(30) == 0) Advance(static_cast<int64_t>(Draw(kLeaseNs)));
        break;
      }
      default:
        Deliver();
    }
    Post();
    for (Knower& client : clients_) GoOn(client);
  }
  void Heal() {
    for (Knower& client : clients_) client.cut_off = false;
  }
  bool Idle() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const Knower& client) { return client.Idle(); });
  }
  // Once all that was sent has arrived, the volume remembers no promise that its client does not.
  void CheckPromises() {
    while (!net_.empty() || !applying_.empty()) {
      Apply();
      Deliver();
      Post();
    }
    for (const Knower& client : clients_) {
      EXPECT_LE(table_.KnownBy(client.writer),
                client.known->inodes() + client.known->TakeReturned().size());
    }
  }
  uint64_t looks = 0, kept = 0, changes = 0, breaks = 0, rejoins = 0;

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  Knower& Any() { return clients_[Draw(clients_.size())]; }
  void Send(const Knower& client, Letter letter) {
    letter.link = static_cast<size_t>(&client - clients_.data());
    letter.writer = client.writer;
    net_.push_back(std::move(letter));
  }
  void Advance(int64_t by) {
    now_ += by;
    for (Knower& client : clients_) {
      client.clock += static_cast<int64_t>(static_cast<double>(by) * client.rate);
    }
  }
  void Join(Knower& client) {
    client.change.reset();
    client.known->ForgetAll(/*give_back=*/false);
    client.looks = {};
    client.asking = client.blocked = client.woken = false;
    client.writer = ++last_writer_;
    client.lease_until = client.clock + kLeaseNs * 9 / 10;
    table_.Join(client.writer, now_);
  }

  // -- clients -----------------------------------------------------------------------------------

  void BeginLook(Knower& client) {
    Look& look = client.looks[Draw(client.looks.size())];
    if (look.id != 0) return;
    look = {.id = 1 + Draw(kIds), .seen_names = {}};
    look.floor = required_[look.id];
  }
  void BeginChange(Knower& client) {
    if (client.change != nullptr) return;
    client.changes = {1 + Draw(kIds)};
    client.changes_bytes = Draw(4) == 0;
    const ObjectId other = 1 + Draw(kIds);
    if (!client.changes_bytes && other != client.changes[0]) client.changes.push_back(other);
    client.change = std::make_unique<Knowledge::Change>(*client.known, client.changes);
    client.blocked = false;
  }
  void GoOn(Knower& client) {
    for (size_t i = 0; i < client.looks.size(); ++i) {
      if (client.looks[i].id != 0 && !client.looks[i].asking) GoOn(client, i);
    }
    if (client.change == nullptr || client.asking || client.blocked) return;
    client.asking = true;
    client.woken = false;
    Send(client, {.what = Sent::kChange, .ids = client.changes, .bytes = client.changes_bytes});
  }
  void GoOn(Knower& client, size_t place) {
    Look& look = client.looks[place];
    const bool leased = client.Leased();
    if (!look.at_name) {
      const auto node = client.known->Find(look.id);
      if (leased && node.has_value()) {
        ++kept;
        return Looked(look, node->size);
      }
      look.seen = client.known->Seen(look.id);
      look.asking = true;
      return Send(client, {.what = Sent::kKnow,
                           .look = place,
                           .ids = {look.id},
                           .returned = client.known->TakeReturned()});
    }
    look.seen_names = client.known->SeenNames(1);
    const auto entry = client.known->FindName(1, "n");
    if (leased && look.seen_names.has_value() && entry.has_value()) {
      ++kept;
      return Looked(look, entry->has_value() ? (*entry)->id : 0);
    }
    look.asking = true;
    Send(client, {.what = Sent::kName, .look = place});
  }
  // No look shows what is older than what any look or change showed that ended before it began.
  void Looked(Look& look, uint64_t value) {
    ASSERT_GE(value, look.floor) << "of object " << look.id << (look.at_name ? ", its name" : "");
    required_[look.id] = std::max(required_[look.id], value);
    ++looks;
    if (look.id == 1 && !look.at_name) {
      look.at_name = true;
      look.floor = required_[1];
    } else {
      look.id = 0;
    }
    look.asking = false;
  }

  // -- messages ----------------------------------------------------------------------------------

  void Post() {
    for (const CallbackTable::Action& action : table_.TakeActions()) {
      outbox_[action.writer].push_back(action);
    }
    for (const uint16_t writer : table_.TakeSilent()) outbox_.erase(writer);
    for (Knower& client : clients_) {
      auto& actions = outbox_[client.writer];
      if (actions.empty() || telling_[client.writer]) continue;
      const CallbackTable::Action action = actions.front();
      actions.pop_front();
      const bool wake = action.kind == CallbackTable::Action::Kind::kWake;
      telling_[client.writer] = !wake;
      breaks += wake ? 0 : 1;
      Send(client,
           {.what = wake ? Sent::kWake : Sent::kForget, .ids = {action.id}, .given = action.given});
    }
  }
  void Deliver() {
    if (net_.empty()) return;
    const size_t place = Draw(net_.size());
    const Letter letter = net_[place];
    Knower& client = clients_[letter.link];
    if (client.cut_off) return;
    net_.erase(net_.begin() + static_cast<ptrdiff_t>(place));
    switch (letter.what) {
      case Sent::kKnow:
      case Sent::kName:
      case Sent::kChange:
      case Sent::kRenew:
      case Sent::kObeyed:
        return AtServer(letter);
      default:
        if (letter.writer == client.writer) AtClient(client, letter);
    }
  }
  void Reply(Letter letter, Sent what) {
    letter.what = what;
    net_.push_back(std::move(letter));
  }
  void AtServer(Letter letter) {
    switch (letter.what) {
      case Sent::kKnow: {
        for (const KnownInode& back : letter.returned) {
          table_.Forgotten(back.id, letter.writer, back.given, now_);
        }
        const Version stamp{++stamp_};
        if (table_.Know(letter.ids[0], letter.writer, stamp, now_)) letter.given = stamp;
        letter.nodes = {NodeWith(letter.ids[0], values_[letter.ids[0]])};
        return Reply(letter, Sent::kKnowAnswer);
      }
      case Sent::kName:
        letter.nodes = {NodeWith(1, values_[1])};
        return Reply(letter, Sent::kNameAnswer);
      case Sent::kChange: {
        const auto answer = letter.bytes ? table_.Ask(letter.ids[0], letter.writer, Want::kChange,
                                                      Version{++stamp_}, now_, nullptr)
                                         : table_.Alter(letter.ids, letter.writer, now_);
        if (answer == CallbackTable::Answer::kGranted) return applying_.push_back(letter);
        return Reply(letter, answer == CallbackTable::Answer::kLeft ? Sent::kRenewAnswer
                                                                    : Sent::kChangeAnswer);
      }
      case Sent::kRenew:
        letter.good = table_.Renew(letter.writer, now_);
        return Reply(letter, Sent::kRenewAnswer);
      default:
        telling_[letter.writer] = false;
        table_.Forgotten(letter.ids[0], letter.writer, letter.given, now_);
    }
  }
  // One of the changes that are under way happens.
  void Apply() {
    if (applying_.empty()) return;
    const size_t place = Draw(applying_.size());
    Letter letter = applying_[place];
    applying_.erase(applying_.begin() + static_cast<ptrdiff_t>(place));
    ++last_value_;
    for (const ObjectId id : letter.ids) {
      values_[id] = last_value_;
      letter.nodes.push_back(NodeWith(id, last_value_));
    }
    letter.good = true;
    Reply(letter, Sent::kChangeAnswer);
    if (letter.bytes) return table_.EndChange(letter.ids[0], letter.writer, now_);
    table_.EndAlter(letter.ids, now_);
  }
  void AtClient(Knower& client, const Letter& letter) {
    Look& look = client.looks[letter.look];
    switch (letter.what) {
      case Sent::kKnowAnswer:
        client.known->Keep(letter.nodes[0], letter.given, look.seen);
        return Looked(look, letter.nodes[0].size);
      case Sent::kNameAnswer:
        if (look.seen_names.has_value()) {
          client.known->KeepName(1, "n", Entry{letter.nodes[0].size, 0}, *look.seen_names);
        }
        return Looked(look, letter.nodes[0].size);
      case Sent::kChangeAnswer:
        client.asking = false;
        if (!letter.good) {
          client.blocked = !client.woken;
          return;
        }
        for (const Node& node : letter.nodes) {
          required_[node.id] = std::max(required_[node.id], node.size);
          if (letter.bytes) continue;
          std::vector<EntryChange> entries;
          if (node.id == 1) entries.push_back({"n", std::nullopt, Entry{node.size, 0}});
          client.change->Became(node, entries);
        }
        client.change.reset();
        ++changes;
        return;
      case Sent::kRenewAnswer:
        if (!letter.good) {
          ++rejoins;
          return Join(client);
        }
        client.lease_until = std::max(client.lease_until, letter.sent + kLeaseNs * 9 / 10);
        return;
      case Sent::kForget:
        client.known->Forget(letter.ids[0], letter.given);
        return Send(client, {.what = Sent::kObeyed, .ids = letter.ids, .given = letter.given});
      default:
        client.woken = true;
        client.blocked = false;
    }
  }

  std::mt19937_64 random_;
  CallbackTable table_;
  std::array<Knower, 3> clients_;
  std::vector<Letter> net_, applying_;
  std::map<uint16_t, std::deque<CallbackTable::Action>> outbox_;
  std::map<uint16_t, bool> telling_;
  int64_t now_ = 0;
  uint64_t stamp_ = 0, last_value_ = 0;
  std::array<uint64_t, kIds + 1> values_{}, required_{};
  uint16_t last_writer_ = 0;
};

TEST(KnowledgePropertyTest, NothingOldIsShownWhateverComesWhen) {
  const uint64_t seeds = runtime::testing::kSanitized ? 50 : 1000;
  const uint64_t first = runtime::testing::Seed(1);
  uint64_t looks = 0, kept = 0, changes = 0, breaks = 0, rejoins = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    KnowingWorld world(seed, seed % 2 == 0 ? 0 : 30);
    for (int step = 0; step < 20'000; ++step) {
      world.Step(false);
      if (HasFatalFailure()) return;
    }
    // Whoever is connected gets on.
    world.Heal();
    for (int step = 0; step < 200'000 && !world.Idle(); ++step) {
      world.Step(true);
      if (HasFatalFailure()) return;
    }
    ASSERT_TRUE(world.Idle()) << "somebody waits for ever";
    world.CheckPromises();
    if (HasFailure()) return;
    looks += world.looks;
    kept += world.kept;
    changes += world.changes;
    breaks += world.breaks;
    rejoins += world.rejoins;
  }
  std::cout << looks << " looks, " << kept << " of them at what was kept, " << changes
            << " changes, " << breaks << " breaks, " << rejoins << " lost leases\n";
  EXPECT_GT(kept, seeds * 100);
  EXPECT_GT(changes, seeds * 50);
  EXPECT_GT(breaks, seeds * 50);
  EXPECT_GT(rejoins, 0u);
}

}  // namespace
}  // namespace abacus::objfs
