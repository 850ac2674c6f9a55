#ifndef ABACUS_OBJFS_LAYER_PROBE_LAYER_H_
#define ABACUS_OBJFS_LAYER_PROBE_LAYER_H_

// ProbeLayer: sees every call that passes through it, and may refuse it. The layers for tests and
// for looking closely are made of it: error, delay, trace and statistics.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "objfs/layer/layer.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// The calls of a layer that a probe sees.
enum class LayerCall : uint8_t {
  kRead,
  kWrite,
  kTruncate,
  kPunch,
  kSeek,
  kPush,
  kFlush,
  kGetAttributes,
  kSetInode,
  kCommit,
  kInvalidate,
  kRecall,
  kAppend,
};
inline constexpr size_t kLayerCalls = 13;
// "read", "write", ...: as options name them.
const char* LayerCallName(LayerCall call);

class ProbeLayer : public Layer {
 public:
  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::Status SetInode(const std::string& inode, Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  absl::Status Invalidate(Range range, Version version) override;
  absl::Status Recall(Range range, Version version) override;

 protected:
  // One call: what it is and which bytes it is about (the new size of a truncation is its offset;
  // an append has the offset 0).
  struct Seen {
    LayerCall call = LayerCall::kRead;
    Range range;
    Version version;
  };
  // Before the call passes on. An error is its answer, and it does not pass on.
  virtual absl::Status Before(const Seen& seen) {
    (void)seen;
    return absl::OkStatus();
  }
  // After it came back; `took` is wall time.
  virtual void After(const Seen& seen, const absl::Status& status, absl::Duration took) {
    (void)seen, (void)status, (void)took;
  }

 private:
  template <typename F>
  auto Through(const Seen& seen, F&& call) -> decltype(call());
};

// Fails calls, as a disk or a server would that is broken: which, after how many, how often.
// Thread-safety: as Layer; which call of several at once is the failing one is not defined.
class ErrorLayer final : public ProbeLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      {"calls", OptionType::kText, "all", 1, 16, "the call that fails: read, write, ... or all"},
      {"code", OptionType::kText, "unavailable", 1, 16, "unavailable, no-space or wrong-bytes"},
      {"after", OptionType::kCount, "0", 0, 1e15, "such calls that pass before the first fails"},
      {"share", OptionType::kShare, "1", 0, 1, "share of the calls that fail from then on"},
      {"seed", OptionType::kCount, "1", 0, 1e15, "which of them fail"},
  };
  static constexpr LayerKind kKind = {"error", "objfs.ErrorLayer", kOptions};

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_LAYER(ErrorLayer, 1)

 private:
  absl::Status Begin() override;
  absl::Status Before(const Seen& seen) override;
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;

  std::array<bool, kLayerCalls> fails_{};
  absl::Status error_;
  uint64_t after_ = 0;
  double share_ = 1;
  uint64_t seed_ = 1;
  std::atomic<uint64_t> matching_{0};  // calls so far
  std::atomic<uint64_t> failed_{0};
};

// Makes calls take longer: a fixed time each, and a rate for the bytes that are read or written.
class DelayLayer final : public ProbeLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      {"each", OptionType::kDuration, "1ms", 0, 60, "added to every call"},
      {"rate", OptionType::kBytes, "1 TiB", 1024, 1.1e12, "bytes a second, of reads and writes"},
  };
  static constexpr LayerKind kKind = {"delay", "objfs.DelayLayer", kOptions};
  ABACUS_LAYER(DelayLayer, 1)

 private:
  absl::Status Before(const Seen& seen) override;
};

// Keeps the last calls, for `abacus stack`.
class TraceLayer final : public ProbeLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      {"calls", OptionType::kCount, "64", 1, 4096, "how many are kept"},
  };
  static constexpr LayerKind kKind = {"trace", "objfs.TraceLayer", kOptions};

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_LAYER(TraceLayer, 1)

 private:
  void After(const Seen& seen, const absl::Status& status, absl::Duration took) override;
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;

  mutable runtime::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);  // a ring
  uint64_t seen_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Counts calls, their bytes, errors and time. The counts move with the layer.
class StatisticsLayer final : public ProbeLayer {
 public:
  static constexpr LayerKind kKind = {"statistics", "objfs.StatisticsLayer", {}};

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_LAYER(StatisticsLayer, 2)

 private:
  struct Counts {
    uint64_t calls = 0;
    uint64_t errors = 0;
    uint64_t bytes = 0;
    uint64_t ns = 0;
    ABACUS_FIELDS(calls, errors, bytes, ns)
  };
  void After(const Seen& seen, const absl::Status& status, absl::Duration took) override;
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;
  std::array<Counts, kLayerCalls> Copy() const;

  mutable runtime::Mutex mutex_;
  std::array<Counts, kLayerCalls> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_LAYER_PROBE_LAYER_H_
