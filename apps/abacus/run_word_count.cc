// abacus run word-count: what wc(1) counts of files.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/output.h"
#include "apps/abacus/run_console.h"
#include "apps/word_count/word_count.h"
#include "objfs/layer/subgraph.h"
#include "runtime/base/status.h"
#include "runtime/object/ref.h"

namespace abacus::apps {
namespace {

struct CountedFile {
  size_t number = 0;  // the console's
  std::string name;   // as it was given
  Counts counts;
};

// As wc prints it, which gives each number the width that all bytes together have.
std::string CountsLine(const Counts& counts, uint64_t all_bytes, const std::string& name) {
  const int width = static_cast<int>(absl::StrCat(all_bytes).size());
  return absl::StrFormat("%*d %*d %*d %s\n", width, counts.lines, width, counts.words, width,
                         counts.bytes, name);
}

Counts TotalOf(const std::vector<CountedFile>& files) {
  Counts total;
  for (const CountedFile& file : files) {
    total.lines += file.counts.lines;
    total.words += file.counts.words;
    total.bytes += file.counts.bytes;
  }
  return total;
}

// One object counts all of them: it is where it went for those before.
absl::Status CountAll(const RunWordCountOptions& options, RunConsole& console,
                      std::vector<CountedFile>* files) {
  ABACUS_ASSIGN_OR_RETURN(const runtime::Ref<WordCount> counter,
                          console.node().Create<WordCount>(options.run.block_bytes));
  ABACUS_RETURN_IF_ERROR(console.Follow(counter.rid()));
  const auto count = [&](CountedFile& file) {
    return console.ReadThrough(
        file.number, [&](const objfs::Subgraph& subgraph) -> absl::StatusOr<RunStep> {
          ABACUS_ASSIGN_OR_RETURN(const WordCountChunk chunk, counter->Next(subgraph));
          file.counts = chunk.so_far;
          return RunStep{.offset = chunk.so_far.bytes, .done = chunk.done};
        });
  };
  const std::string title =
      absl::StrCat("word-count ", files->size() == 1 ? files->front().name
                                                     : absl::StrCat(files->size(), " files"));
  return console.Run(title, [&]() -> absl::Status {
    for (CountedFile& file : *files) {
      ABACUS_RETURN_IF_ERROR(counter->Restart());
      ABACUS_RETURN_IF_ERROR(count(file));
      ABACUS_RETURN_IF_ERROR(
          WriteAll(STDOUT_FILENO, CountsLine(file.counts, console.bytes(), file.name)));
    }
    if (options.names.size() < 2) return absl::OkStatus();
    return WriteAll(STDOUT_FILENO, CountsLine(TotalOf(*files), console.bytes(), "total"));
  });
}

std::string CountsJson(const std::vector<CountedFile>& files) {
  const Counts total = TotalOf(files);
  nlohmann::json rows = nlohmann::json::array();
  for (const CountedFile& file : files) {
    rows.push_back({{"file", file.name},
                    {"lines", file.counts.lines},
                    {"words", file.counts.words},
                    {"bytes", file.counts.bytes}});
  }
  const nlohmann::json counted{{"files", rows}, {"lines", total.lines}, {"words", total.words}};
  // Names are any bytes; JSON takes only text.
  return counted.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

int RunWordCount(const RunWordCountOptions& options) {
  const auto console = RunConsole::Start("word-count", options.run);
  if (!console.ok()) return Fail(console.status());
  int code = kExitOk;
  std::vector<CountedFile> files;
  for (const std::string& name : options.names) {
    const absl::StatusOr<size_t> number = (*console)->Open(name);
    if (number.ok()) {
      files.push_back({.number = *number, .name = name, .counts = {}});
    } else {
      code = Fail(number.status());  // as wc, it goes on with the others
    }
  }
  if (files.empty()) return code;
  const absl::Status counted = CountAll(options, **console, &files);
  if (!counted.ok()) return Fail(counted);
  const absl::Status written = (*console)->WriteJson(CountsJson(files));
  return written.ok() ? code : Fail(written);
}

}  // namespace abacus::apps
