// abacus doctor: what this machine lacks, what that costs, and what mends it.

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/doctor_checks.h"
#include "apps/abacus/output.h"

namespace abacus::apps {
namespace {

std::string Lines(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%-8s  %-18s  %s\n", LevelName(finding.level), finding.subject,
                          finding.found);
    if (finding.level == Finding::Level::kOk) continue;
    absl::StrAppendFormat(&text, "%30seffect: %s\n%30smend:   %s\n", "", finding.effect, "",
                          finding.mend);
  }
  return text;
}

std::string JsonOf(const std::vector<Finding>& findings) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Finding& finding : findings) {
    rows.push_back({{"subject", finding.subject},
                    {"level", LevelName(finding.level)},
                    {"found", finding.found},
                    {"effect", finding.effect},
                    {"mend", finding.mend}});
  }
  return nlohmann::json{{"findings", rows}}.dump(2, ' ', false,
                                                 nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace

int Doctor(const DoctorOptions& options) {
  const std::vector<Finding> findings = Examine();
  if (auto status = WriteAll(STDOUT_FILENO, Lines(findings)); !status.ok()) return Fail(status);
  if (!options.json.empty()) {
    if (auto status = WriteFile(options.json, JsonOf(findings)); !status.ok()) return Fail(status);
  }
  for (const Finding& finding : findings) {
    if (finding.level == Finding::Level::kFail) return kExitNo;
  }
  return kExitOk;
}

}  // namespace abacus::apps
