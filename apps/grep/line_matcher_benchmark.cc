// How fast LineMatcher is, beside GNU grep on the same file and pattern.
//
//   abacus_grep_benchmark [--strict] [--json FILE] [TEXT]
//
// Without TEXT a made-up one of 16 MiB is searched: lines of 0 to 79 bytes, a word in 1 of 100.
// Blocks are 64 KiB; each figure is the best of several runs. grep's time includes its start, so
// its figure is a lower bound of what it can do.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/grep/line_matcher.h"
#include "apps/grep/testing/gnu_grep.h"
#include "runtime/testing/bench_report.h"

namespace abacus::apps {
namespace {

constexpr size_t kBlockBytes = 64 * 1024;
constexpr int kRuns = 9;

struct Case {
  const char* name;
  const char* pattern;
  double goal_gb_s;  // 0: none was set
};

constexpr Case kCases[] = {
    {"word, few lines", "kernel", 1.0},
    {"word, no line", "zqzqzq", 1.0},
    {"letter, most lines", "e", 0},
    {"every line", "", 0},
    {"expression with a word", "kernel.*[a-z]$", 0},
    {"expression without", "[a-z]*z[0-9]", 0},
    {"back reference", "\\([aeiou]\\)\\1\\1", 0},
};

std::string MakeText() {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < size_t{16} << 20) {
    for (size_t n = random() % 80; n > 0; --n) text += " etaoinshrdlucmfwypvbgkqjxz"[random() % 27];
    if (random() % 100 == 0) text += "kernel";
    text += '\n';
  }
  return text;
}

double BestSeconds(const std::string& pattern, std::string_view text) {
  double best = std::numeric_limits<double>::infinity();
  std::string out;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    LineMatcher matcher = *LineMatcher::Create(pattern, "text");
    out.clear();
    for (size_t at = 0; at < text.size(); at += kBlockBytes) {
      if (!matcher.Feed(text.substr(at, kBlockBytes), &out).ok()) return best;
    }
    if (!matcher.Finish(&out).ok()) return best;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

double BestGrepSeconds(const GnuGrep& grep, const std::string& pattern) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) best = std::min(best, grep.Time(pattern));
  return best;
}

int Main(int argc, char** argv) {
  std::string json_path;
  std::string text_path;
  bool strict = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json_path = argv[++i];
    } else if (std::strcmp(argv[i], "--strict") == 0) {
      strict = true;
    } else if (argv[i][0] != '-') {
      text_path = argv[i];
    } else {
      std::fprintf(stderr, "usage: %s [--strict] [--json FILE] [TEXT]\n", argv[0]);
      return 2;
    }
  }
  std::string text = text_path.empty() ? MakeText() : std::string();
  if (!text_path.empty()) {
    std::ifstream file(text_path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
    if (text.empty()) {
      std::fprintf(stderr, "%s cannot be read, or is empty\n", text_path.c_str());
      return 1;
    }
  }
  const GnuGrep grep;
  runtime::BenchReport report("grep");
  report.Note("search of blocks of 64 KiB; grep's time includes its start");
  for (const Case& one : kCases) {
    grep.Run(one.pattern, text);  // writes the file, and warms the page cache
    const double gb = static_cast<double>(text.size()) / 1e9;
    const double ours = gb / BestSeconds(one.pattern, text);
    const double theirs = gb / BestGrepSeconds(grep, one.pattern);
    runtime::BenchRow row{.name = one.name,
                          .value = ours,
                          .unit = "GB/s",
                          .baseline_name = "grep",
                          .baseline = theirs,
                          .ratio = ours / theirs};
    if (one.goal_gb_s != 0) {
      row.goal = absl::StrCat(">= ", one.goal_gb_s, " GB/s");
      row.met = ours >= one.goal_gb_s;
    }
    report.Add(row);
  }
  return runtime::FinishBench(report, json_path, strict);
}

}  // namespace
}  // namespace abacus::apps

int main(int argc, char** argv) { return abacus::apps::Main(argc, argv); }
