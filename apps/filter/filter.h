#ifndef ABACUS_APPS_FILTER_FILTER_H_
#define ABACUS_APPS_FILTER_FILTER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/subgraph.h"
#include "runtime/base/block.h"
#include "runtime/object/mobile_object.h"

namespace abacus::apps {

struct FilterOptions {
  uint64_t read_bytes = 64 * 1024;  // of the file, at each call
  double pass_share = 0.2;          // of the records, 0 to 1; the paper's selectivity is 1 - this
  double cpu_ns_per_byte = 0;       // of the thread's CPU time, spent on looking at the data
  uint64_t memory_bytes = 0;        // of the table that the data are looked up in
  ABACUS_FIELDS(read_bytes, pass_share, cpu_ns_per_byte, memory_bytes)
};

struct FilterChunk {
  runtime::Block output;  // the records that passed
  uint64_t offset = 0;    // bytes of the file that were read so far
  bool done = false;      // nothing follows
  ABACUS_FIELDS(output, offset, done)
};

// Passes on a share of a file's records (paper, section 6.3): the synthetic filter whose
// selectivity and cost are parameters. It reads from the layers of the file's stack, which its
// caller appends to the graph that it is in (objfs::FileSystem::WithSubgraph).
//
// Which records pass depends on their place in the file and on nothing else, so that the output is
// the same wherever and however often the filter moves.
// Thread-safety: one activity at a time. Blocking: as the file's layers.
class Filter final : public runtime::MobileObject {
 public:
  static constexpr bool kOneAtATime = true;
  static constexpr uint64_t kRecordBytes = 128;
  static constexpr uint64_t kReadBytesMax = uint64_t{64} << 20;

  // Errors: kInvalidArgument - read_bytes is no multiple of kRecordBytes up to kReadBytesMax, a
  //         share is not from 0 to 1, or a cost is negative.
  absl::Status Init(const FilterOptions& options);

  // Filters the next bytes of `file`, always the same one, by whatever layers.
  // Errors: those of the layers, objfs::IsWouldBlock() among them: nothing was done, ask again.
  absl::StatusOr<FilterChunk> Next(const objfs::Subgraph& file);

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_OBJECT(Filter, "apps.Filter", 1, Next)

 private:
  // Made where the object works for the first time: it can be made anew, so it does not travel.
  const std::string& Lookups();

  FilterOptions options_;
  uint64_t offset_ = 0;
  uint64_t seen_ = 0;  // what the data looked like, so that no compiler leaves the looking out
  std::unique_ptr<std::string> lookups_;
};

// Whether the record with this number passes: of any `n` that follow each other, n x share, within
// one.
bool Passes(uint64_t record, double share);

// Spends `cpu_ns` of the calling thread's CPU time on `bytes`. Returns what it made of them.
uint64_t LookAt(std::string_view bytes, double cpu_ns);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_FILTER_FILTER_H_
