#ifndef ABACUS_OBJFS_RAID_SMALL_WRITE_H_
#define ABACUS_OBJFS_RAID_SMALL_WRITE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "objfs/raid/timestamp_order.h"

namespace abacus::objfs {

struct SmallWriteOptions {
  CommitOptions commit;
  Nanos ask_again_ns = 100'000'000;   // what was not answered, or would block
  Nanos back_off_min_ns = 1'000'000;  // of the first retry; doubles up to the maximum
  Nanos back_off_max_ns = 256'000'000;
  int attempts_max = 64;
};

// The client's half of a write to a shared stripe: reads the old contents of a group of blocks at
// one time, and writes new ones at that time, all or none. A small write's group is a data block
// and its parity: two reads and two out-of-place writes, where nobody else is in the way. Who loses
// against another client comes again, later and with a newer time.
//
// Lifecycle: Tick() once at the start, then at or after NextAt(); answers as they come, until
// ended(). From done() on what was written stays, whoever dies; the rest tells the servers so.
// Thread-safety: thread-compatible. Blocking: no. Ownership: `clock` must live longer.
template <typename Policy>
class SmallWrite {
 public:
  using Driver = CommitDriver<Policy>;
  // From the old contents, in the group's order, the new ones.
  using Combine = std::function<std::vector<std::string>(const std::vector<std::string>& old)>;

  // `reads_first` false: nothing is read (a whole stripe), and `combine` gets empty contents.
  // `random`: any number, to spread retries.
  SmallWrite(const SmallWriteOptions& options, HybridClock& clock, std::vector<CommitPart> group,
             bool reads_first, Combine combine, std::function<uint64_t()> random);

  struct Sends {
    std::vector<OrderSend> order;
    std::vector<CommitSend> commit;
  };
  void OnAnswer(const OrderMessage& answer, Nanos now, Sends* out);
  void OnAnswer(const CommitMessage& answer, Nanos now, Sends* out);
  void Tick(Nanos now, Sends* out);
  Nanos NextAt() const;

  bool done() const { return driver_.has_value() && driver_->committed(); }
  // After attempts_max attempts: nothing of it has happened, and nothing will.
  bool failed() const { return failed_; }
  // Another has resolved it, because it took longer than a lease: it may have happened or not.
  bool in_doubt() const { return driver_.has_value() && driver_->in_doubt(); }
  bool ended() const;
  Version time() const { return time_; }  // of the current attempt
  int attempts() const { return attempts_; }

 private:
  void Begin(Nanos now, Sends* out);
  void Ask(Nanos now, Sends* out);
  void Prewrite(Nanos now, Sends* out);
  void Lose(Version newest, Nanos now);
  void AfterDriver(Nanos now);

  const SmallWriteOptions options_;
  HybridClock& clock_;
  const std::vector<CommitPart> group_;
  const bool reads_first_;
  const Combine combine_;
  const std::function<uint64_t()> random_;
  Version time_;
  std::vector<std::optional<std::string>> old_;
  std::optional<Driver> driver_;  // from round 2 on
  bool waiting_ = true;           // for the next attempt
  Nanos next_at_ = 0;
  int attempts_ = 0;
  bool failed_ = false;
};

extern template class SmallWrite<FaithfulOrderPolicy>;

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_SMALL_WRITE_H_
