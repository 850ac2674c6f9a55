#include "apps/filter/filter.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

constexpr uint64_t kLookupsLeast = 256;
// Looked at between two readings of the clock: about a microsecond.
constexpr size_t kStretchBytes = 512;

int64_t ThreadCpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

bool Passes(uint64_t record, double share) {
  const auto before = std::floor(static_cast<double>(record) * share);
  return std::floor(static_cast<double>(record + 1) * share) > before;
}

uint64_t LookAt(std::string_view bytes, double cpu_ns) {
  uint64_t state = 0;
  if (bytes.empty() || cpu_ns <= 0) return state;
  const int64_t end = ThreadCpuNs() + static_cast<int64_t>(cpu_ns);
  for (size_t at = 0; ThreadCpuNs() < end; at = (at + kStretchBytes) % bytes.size()) {
    for (const char c : bytes.substr(at, kStretchBytes)) {
      state = state * 31 + static_cast<unsigned char>(c);
    }
  }
  return state;
}

absl::Status Filter::Init(const FilterOptions& options) {
  if (options.read_bytes == 0 || options.read_bytes % kRecordBytes != 0 ||
      options.read_bytes > kReadBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("read_bytes is ", options.read_bytes,
                                                   ": it must be a multiple of ", kRecordBytes,
                                                   ", up to ", kReadBytesMax));
  }
  if (!(options.pass_share >= 0 && options.pass_share <= 1) || !(options.cpu_ns_per_byte >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a filter passes a share of 0 to 1, and costs 0 ns a byte or more, not ",
                     options.pass_share, " and ", options.cpu_ns_per_byte));
  }
  options_ = options;
  return absl::OkStatus();
}

const std::string& Filter::Lookups() {
  if (lookups_ == nullptr) {
    lookups_ = std::make_unique<std::string>(std::max(options_.memory_bytes, kLookupsLeast), 't');
  }
  return *lookups_;
}

absl::StatusOr<FilterChunk> Filter::Next(const objfs::Subgraph& file) {
  // Nothing has changed here when this fails: whoever is asked to wait asks again.
  ABACUS_ASSIGN_OR_RETURN(const objfs::ReadResult read,
                          file.top->Read(offset_, options_.read_bytes, file.now));
  const std::string_view bytes = read.bytes.view();
  seen_ += static_cast<unsigned char>(Lookups()[bytes.size() % kLookupsLeast]);
  seen_ += LookAt(bytes, options_.cpu_ns_per_byte * static_cast<double>(bytes.size()));
  std::string output;
  output.reserve(static_cast<size_t>(static_cast<double>(bytes.size()) * options_.pass_share) +
                 kRecordBytes);
  for (size_t at = 0; at < bytes.size(); at += kRecordBytes) {
    if (!Passes((offset_ + at) / kRecordBytes, options_.pass_share)) continue;
    output.append(bytes.substr(at, kRecordBytes));
  }
  offset_ += bytes.size();
  return FilterChunk{.output = runtime::Block::FromString(std::move(output)),
                     .offset = offset_,
                     .done = bytes.size() < options_.read_bytes};
}

void Filter::Checkpoint(runtime::CheckpointWriter& writer) const {
  writer.Write(options_);
  writer.Write(offset_);
}

absl::Status Filter::Restore(runtime::CheckpointReader& reader) {
  reader.Read(options_);
  reader.Read(offset_);
  return reader.status();
}

}  // namespace abacus::apps
