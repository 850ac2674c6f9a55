#include "runtime/testing/bench_report.h"

#include <sys/utsname.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"

namespace abacus::runtime {
namespace {

std::string CpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

nlohmann::json Machine() {
  utsname name{};
  uname(&name);
  return {{"kernel", name.release},  {"machine", name.machine},
          {"cpu", CpuModel()},       {"cores", std::thread::hardware_concurrency()},
          {"compiler", __VERSION__},
#ifdef NDEBUG
          {"assertions", false}
#else
          {"assertions", true}
#endif
  };
}

// Three significant digits say more than six decimals.
std::string Number(double value) {
  char text[32];
  const char* format = value >= 100 || value <= -100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f";
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

size_t BenchReport::missed() const {
  size_t missed = 0;
  for (const BenchRow& row : rows_) missed += row.met == false ? 1 : 0;
  return missed;
}

std::string BenchReport::ToText() const {
  std::string text = "bench " + room_ + "\n";
  for (const std::string& note : notes_) text += "  " + note + "\n";
  char line[512];
  std::snprintf(line, sizeof line, "%-50s %10s %-8s %-34s %10s %7s  %-20s %s\n", "name", "value",
                "unit", "baseline", "", "ratio", "goal", "met");
  text += line;
  for (const BenchRow& row : rows_) {
    const char* met = !row.met ? "" : *row.met ? "yes" : "NO";
    std::snprintf(line, sizeof line, "%-50s %10s %-8s %-34s %10s %7s  %-20s %s\n", row.name.c_str(),
                  Number(row.value).c_str(), row.unit.c_str(), row.baseline_name.c_str(),
                  row.baseline_name.empty() ? "" : Number(row.baseline).c_str(),
                  row.baseline_name.empty() ? "" : Number(row.ratio).c_str(), row.goal.c_str(),
                  met);
    text += line;
  }
  return text;
}

absl::Status BenchReport::WriteJson(const std::string& path) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const BenchRow& row : rows_) {
    nlohmann::json json = {{"name", row.name},         {"value", row.value},
                           {"unit", row.unit},         {"baseline_name", row.baseline_name},
                           {"baseline", row.baseline}, {"ratio", row.ratio},
                           {"goal", row.goal},         {"met", nullptr}};
    if (row.met) json["met"] = *row.met;
    rows.push_back(std::move(json));
  }
  nlohmann::json machine = Machine();
  machine["notes"] = notes_;
  std::ofstream file(path);
  file << nlohmann::json{{"machine", machine}, {"rows", rows}}.dump(2) << "\n";
  file.close();
  if (!file) {
    return absl::UnavailableError(
        absl::StrCat("cannot write ", path, ": is the directory there and writable?"));
  }
  return absl::OkStatus();
}

int BenchMain(int argc, char** argv, const std::string& room,
              const std::function<void(BenchReport&)>& measure) {
  bool strict = false;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--strict") == 0) {
      strict = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc && json.empty()) {
      json = argv[++i];
    } else {
      std::cerr << "usage: " << argv[0] << " [--strict] [--json FILE]\n";
      return 2;
    }
  }
  BenchReport report(room);
  measure(report);
  return FinishBench(report, json, strict);
}

int FinishBench(const BenchReport& report, const std::string& json, bool strict) {
  std::cout << report.ToText();
  if (!json.empty()) {
    if (const absl::Status written = report.WriteJson(json); !written.ok()) {
      std::cerr << written << "\n";
      return 1;
    }
  }
  if (!strict || report.missed() == 0) return 0;
  std::cerr << report.missed() << " goals were not met\n";
  return 3;
}

}  // namespace abacus::runtime
