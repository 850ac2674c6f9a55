#ifndef ABACUS_OBJFS_RAID_TESTING_ORDER_ORACLE_H_
#define ABACUS_OBJFS_RAID_TESTING_ORDER_ORACLE_H_

// Sees all that clients were told and all that servers decided, and judges it at the end.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/raid/timestamp_order.h"

namespace abacus::objfs::testing {

inline constexpr uint64_t kOrderServers = 3;
inline constexpr uint64_t kOrderStripes = 2;

inline std::string ToBytes(uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
inline uint64_t FromBytes(const std::string& bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}
// Its data blocks and, last, its parity.
inline std::vector<CommitPart> OrderStripe(uint64_t stripe) {
  const uint64_t parity = stripe % kOrderServers;
  return {{(parity + 1) % kOrderServers, stripe},
          {(parity + 2) % kOrderServers, stripe},
          {parity, stripe}};
}

class OrderOracle {
 public:
  // -- what happens ------------------------------------------------------------------------------

  void Sent(const CommitMessage& prepare) {
    Write& write = writes_[prepare.id];
    write.contents[prepare.part] = FromBytes(prepare.payload);
    write.group = prepare.group.size();
  }
  void Committed(uint64_t server, const CommitKey& key) {
    writes_[key.id].committed.insert({server, key.part});
  }
  void Acknowledged(Version time) { writes_[time].acknowledged = true; }
  // The client was told that this attempt has failed.
  void Lost(Version time) { writes_[time].lost = true; }
  void Read(const OrderMessage& content) { reads_.push_back(content); }
  void Final(CommitPart block, Version written, const std::string& content) {
    reads_.push_back({.kind = OrderKind::kContent,
                      .time = Version::Of(Version::kTicksMax, 0),
                      .block = block,
                      .content = content,
                      .written = written,
                      .newest = {}});
  }
  void Break(const std::string& what) {
    if (broken_.empty()) broken_ = what;
  }
  const std::string& broken() const { return broken_; }

  // -- the judgement -----------------------------------------------------------------------------

  void AtEnd() {
    for (const auto& [time, write] : writes_) {
      const std::string name = absl::StrCat("write ", time.ToString());
      if (write.acknowledged && write.committed.empty()) Break("lost: acknowledged " + name);
      if (write.lost && !write.committed.empty()) Break("failed, and yet written: " + name);
      if (!write.committed.empty() && write.committed.size() != write.group) {
        Break("atomic: in parts, " + name);
      }
    }
    CheckReads();
    CheckParity();
  }

 private:
  struct Write {
    std::map<CommitPart, uint64_t> contents;
    size_t group = 0;
    std::set<CommitPart> committed;
    bool acknowledged = false;
    bool lost = false;
  };

  // Each read saw the newest write before its time, of those that committed in the end.
  void CheckReads() {
    std::map<CommitPart, std::map<Version, uint64_t>> histories;
    for (const auto& [time, write] : writes_) {
      for (const CommitPart& part : write.committed)
        histories[part][time] = write.contents.at(part);
    }
    for (const OrderMessage& read : reads_) {
      const auto& history = histories[read.block];
      auto after = history.lower_bound(read.time);
      const Version written = after == history.begin() ? Version() : std::prev(after)->first;
      const uint64_t content = after == history.begin() ? 0 : std::prev(after)->second;
      if (read.written != written || FromBytes(read.content) != content) {
        Break(absl::StrCat("serialisable: a read at ", read.time.ToString(), " saw ",
                           read.written.ToString(), " and not ", written.ToString()));
      }
    }
  }
  // Played again in the order of their times, the writes keep parity = XOR of data throughout.
  void CheckParity() {
    std::array<std::map<CommitPart, uint64_t>, kOrderStripes> stripes;
    for (const auto& [time, write] : writes_) {
      if (write.committed.empty()) continue;
      const uint64_t stripe = write.contents.begin()->first.part;
      for (const auto& [part, content] : write.contents) stripes[stripe][part] = content;
      uint64_t sum = 0;
      for (const CommitPart& part : OrderStripe(stripe)) sum ^= stripes[stripe][part];
      if (sum != 0) Break("parity: wrong after write " + time.ToString());
    }
  }

  std::map<Version, Write> writes_;
  std::vector<OrderMessage> reads_;
  std::string broken_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_ORDER_ORACLE_H_
