// abacus run grep: the lines of a file that match a pattern.

#include <unistd.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/output.h"
#include "apps/abacus/run_console.h"
#include "apps/grep/grep_object.h"
#include "objfs/layer/subgraph.h"
#include "runtime/base/status.h"
#include "runtime/object/ref.h"

namespace abacus::apps {
namespace {

// `last`: the chunk that the search ends with.
absl::Status Search(const RunGrepOptions& options, RunConsole& console, GrepChunk* last) {
  ABACUS_ASSIGN_OR_RETURN(const size_t file, console.Open(options.name));
  runtime::Ref<Grep> grep;
  ABACUS_RETURN_IF_ERROR(console.With(file, [&](const objfs::Subgraph& subgraph) -> absl::Status {
    ABACUS_ASSIGN_OR_RETURN(grep,
                            console.node().Create<Grep>(subgraph, options.pattern, options.name,
                                                        options.run.block_bytes));
    return absl::OkStatus();
  }));
  ABACUS_RETURN_IF_ERROR(console.Follow(grep.rid()));
  const std::string title = absl::StrCat("grep ", options.pattern.substr(0, 16), " ", options.name);
  return console.Run(title, [&]() -> absl::Status {
    return console.ReadThrough(
        file, [&](const objfs::Subgraph& subgraph) -> absl::StatusOr<RunStep> {
          ABACUS_ASSIGN_OR_RETURN(*last, grep->Next(subgraph));
          return RunStep{.output = last->output, .offset = last->offset, .done = last->done};
        });
  });
}

}  // namespace

int RunGrep(const RunGrepOptions& options) {
  const auto console = RunConsole::Start("grep", options.run);
  if (!console.ok()) return Fail(console.status());
  GrepChunk last;
  const absl::Status searched = Search(options, **console, &last);
  if (!searched.ok()) return Fail(searched);
  WriteAll(STDERR_FILENO, last.diagnostic).IgnoreError();
  const nlohmann::json found{
      {"file", options.name}, {"pattern", options.pattern}, {"matches", last.matches}};
  // Patterns are any bytes; JSON takes only text.
  const absl::Status written =
      (*console)->WriteJson(found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!written.ok()) return Fail(written);
  return last.matches > 0 || !last.diagnostic.empty() ? kExitOk : kExitNo;
}

}  // namespace abacus::apps
