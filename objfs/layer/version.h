#ifndef ABACUS_OBJFS_LAYER_VERSION_H_
#define ABACUS_OBJFS_LAYER_VERSION_H_

// When something was read or written, in an order that all clients of a volume agree on.

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// A reading of a hybrid logical clock (48 bits, in ticks) and the number of the writer whose clock
// it is (16 bits): one number, so that it is compared in one step and fits beside a block's
// checksum on the disk. Version 0 is before all others: what was never written has it.
// Source: Kulkarni et al., "Logical Physical Clocks", 2014, for the clock; ours for the form.
struct Version {
  static constexpr int kWriterBits = 16;
  // A tick is 10 microseconds since 2020: 48 bits of them last until the year 2109.
  static constexpr int64_t kTickUs = 10;
  static constexpr uint64_t kTicksMax = (uint64_t{1} << 48) - 1;

  uint64_t value = 0;

  // REQUIRES: ticks <= kTicksMax.
  static Version Of(uint64_t ticks, uint16_t writer) { return {ticks << kWriterBits | writer}; }
  uint64_t ticks() const { return value >> kWriterBits; }
  uint16_t writer() const { return static_cast<uint16_t>(value); }
  // "123456.7": ticks and writer.
  std::string ToString() const;

  friend auto operator<=>(const Version&, const Version&) = default;
  ABACUS_FIELDS(value)
};

// The clock of one writer: a client of a volume, or a store that must refuse what is too old.
//
// Invariants:
// 1. Next() is greater than every version that this clock has given or observed before.
// 2. It runs ahead of the physical clock only as far as others made it, or by one tick a call where
//    calls come faster than ticks. A physical clock that steps back changes nothing.
// Thread-safety: thread-safe. Blocking: no.
class HybridClock {
 public:
  // Further ahead than this, a version is of a clock that is wrong, and would drag all others on.
  static constexpr uint64_t kAheadTicksMax = uint64_t{3600} * 1'000'000 / Version::kTickUs;

  // `now_us`: microseconds since 1970; must be thread-safe.
  HybridClock(uint16_t writer, std::function<int64_t()> now_us);

  Version Next();
  // Makes later versions greater than `seen`.
  // Errors: kInvalidArgument - more than an hour ahead of the physical clock; nothing is changed.
  absl::Status Observe(Version seen);
  // The same for a version that comes from where this clock's own versions are kept: it is not
  // refused, or what was written before the physical clock was set back could not be used any more.
  void Follow(Version own);

 private:
  uint64_t PhysicalTicks() const;

  const uint16_t writer_;
  const std::function<int64_t()> now_us_;
  std::atomic<uint64_t> last_{0};
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_LAYER_VERSION_H_
