#include "apps/multiphase/multiphase.h"

#include <random>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

using Versions = std::unordered_map<uint64_t, uint64_t>;  // of records that were inserted here

absl::Status InsertOne(RecordTable& table, uint64_t record, Versions& versions) {
  const uint64_t version = versions[record] + 1;
  ABACUS_RETURN_IF_ERROR(table.Insert(record, version));
  versions[record] = version;
  return absl::OkStatus();
}

absl::Status ScanOne(RecordTable& table, uint64_t record, const Versions& versions) {
  ABACUS_ASSIGN_OR_RETURN(const std::string contents, table.Read(record));
  const auto found = versions.find(record);
  if (found == versions.end() || contents == table.ContentsOf(record, found->second)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("record ", record, " is '", contents.substr(0, 24),
                                          "', and version ", found->second, " was inserted last"));
}

}  // namespace

absl::StatusOr<std::vector<PhaseResult>> RunPhases(RecordTable& table,
                                                   const std::vector<Phase>& phases, uint64_t seed,
                                                   const std::function<void()>& done) {
  std::mt19937_64 random(seed);
  Versions versions;
  std::vector<PhaseResult> results;
  for (const Phase& phase : phases) {
    const absl::Time begin = absl::Now();
    for (uint64_t i = 0; i < phase.operations; ++i) {
      const uint64_t record = table.RandomRecord(random);
      ABACUS_RETURN_IF_ERROR(phase.kind == Phase::Kind::kInsert ? InsertOne(table, record, versions)
                                                                : ScanOne(table, record, versions));
      done();
    }
    results.push_back({phase, absl::Now() - begin});
  }
  return results;
}

}  // namespace abacus::apps
