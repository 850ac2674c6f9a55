#include "experiments/lab/job.h"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::lab {
namespace {

using nlohmann::json;

template <typename Value>
absl::StatusOr<Value> OneOf(const std::string& key, const std::string& word,
                            std::initializer_list<std::pair<const char*, Value>> words) {
  std::string known;
  for (const auto& [name, value] : words) {
    if (word == name) return value;
    absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", word, "' is no ", key, "; there are: ", known));
}

// Takes what there is of `key`, and notes that it is known.
class Keys {
 public:
  explicit Keys(const json& object) : left_(object) {}
  template <typename Value>
  void Take(const char* key, Value* value) {
    const auto found = left_.find(key);
    if (found == left_.end()) return;
    *value = found->template get<Value>();
    left_.erase(found);
  }
  absl::Status None() const {
    if (left_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("a job has no key '", left_.begin().key(), "'"));
  }

 private:
  json left_;
};

absl::Status TakePhases(Keys& keys, Job* job) {
  json phases = json::array();
  keys.Take("phases", &phases);
  for (const json& phase : phases) {
    ABACUS_ASSIGN_OR_RETURN(const auto kind,
                            (OneOf<apps::Phase::Kind>("phase", phase.at("name").get<std::string>(),
                                                      {{"insert", apps::Phase::Kind::kInsert},
                                                       {"scan", apps::Phase::Kind::kScan}})));
    job->phases.push_back({kind, phase.at("operations").get<uint64_t>()});
  }
  return absl::OkStatus();
}

absl::StatusOr<Job> FromJson(const json& object) {
  Keys keys(object);
  Job job;
  std::string kind, placement = "adaptive";
  keys.Take("kind", &kind);
  keys.Take("placement", &placement);
  ABACUS_ASSIGN_OR_RETURN(job.kind, (OneOf<Job::Kind>("kind", kind,
                                                      {{"null", Job::Kind::kNull},
                                                       {"filter", Job::Kind::kFilter},
                                                       {"table", Job::Kind::kTable},
                                                       {"directory", Job::Kind::kDirectory},
                                                       {"stream", Job::Kind::kStream},
                                                       {"grep", Job::Kind::kGrep},
                                                       {"word_count", Job::Kind::kWordCount},
                                                       {"aggregate", Job::Kind::kAggregate}})));
  ABACUS_ASSIGN_OR_RETURN(job.placement, (OneOf<Placement>("placement", placement,
                                                           {{"client", Placement::kClient},
                                                            {"adaptive", Placement::kAdaptive},
                                                            {"server", Placement::kServer}})));
  keys.Take("only", &job.only);
  keys.Take("seed", &job.seed);
  keys.Take("calls", &job.calls);
  keys.Take("call_bytes", &job.call_bytes);
  keys.Take("file", &job.file);
  keys.Take("stack", &job.stack);
  keys.Take("read_bytes", &job.filter.read_bytes);
  keys.Take("pass_share", &job.filter.pass_share);
  keys.Take("cpu_ns_per_byte", &job.filter.cpu_ns_per_byte);
  keys.Take("memory_bytes", &job.filter.memory_bytes);
  keys.Take("record_bytes", &job.table.record_bytes);
  keys.Take("records", &job.table.records);
  keys.Take("first", &job.table.first);
  keys.Take("step", &job.table.step);
  keys.Take("warm", &job.warm);
  keys.Take("writes", &job.writes);
  keys.Take("pattern", &job.pattern);
  keys.Take("directory", &job.directory);
  keys.Take("prefix", &job.prefix);
  keys.Take("files", &job.files);
  ABACUS_RETURN_IF_ERROR(TakePhases(keys, &job));
  ABACUS_RETURN_IF_ERROR(keys.None());
  return job;
}

}  // namespace

absl::StatusOr<Job> ParseJob(const std::string& text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("a job is a JSON object, not '", text, "'"));
  }
  try {
    return FromJson(object);
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("a job: ", error.what()));
  }
}

}  // namespace abacus::lab
