// abacus run aggregate: the sum of a column of a table, of all rows or of those with a value.

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/output.h"
#include "apps/abacus/run_console.h"
#include "apps/column_aggregate/column_aggregate.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/subgraph.h"
#include "runtime/base/nearest.h"
#include "runtime/base/status.h"
#include "runtime/object/ref.h"

namespace abacus::apps {
namespace {

constexpr uint64_t kNamesBytesMax = uint64_t{64} << 10;

// The names of the columns: the fields of the first line.
absl::StatusOr<std::vector<std::string>> ColumnNames(RunConsole& console, size_t file,
                                                     const RunAggregateOptions& options) {
  objfs::ReadResult read;
  ABACUS_RETURN_IF_ERROR(console.With(file, [&](const objfs::Subgraph& subgraph) -> absl::Status {
    ABACUS_ASSIGN_OR_RETURN(read, subgraph.top->Read(uint64_t{0}, kNamesBytesMax, subgraph.now));
    return absl::OkStatus();
  }));
  std::string_view line = read.bytes.view();
  const size_t end = line.find('\n');
  if (end == std::string_view::npos && line.size() == kNamesBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, ": the first line has more than ", kNamesBytesMax,
                     " bytes: without --header columns are told by their numbers"));
  }
  line = line.substr(0, end);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  std::vector<std::string> names = absl::StrSplit(runtime::ToAbsl(line), options.separator);
  return names;
}

// Which column `option` means by `text`: its name, where there are names, or its number.
absl::StatusOr<uint64_t> ColumnOf(const char* option, const std::string& text,
                                  const std::vector<std::string>& names) {
  const auto named = std::find(names.begin(), names.end(), text);
  if (named != names.end()) return static_cast<uint64_t>(named - names.begin()) + 1;
  uint64_t number = 0;
  const bool is_number = absl::SimpleAtoi(text, &number) && number > 0;
  if (names.empty()) {
    if (is_number) return number;
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": '", text, "' is no column: they are counted from 1; with --header ",
                     "the first line has their names"));
  }
  if (is_number && number <= names.size()) return number;
  const std::string nearest = runtime::Nearest(text, names);
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": there is no column '", text, "'",
                   nearest.empty() ? "." : absl::StrCat(", did you mean '", nearest, "'?"),
                   " The first line has ", names.size(), ": ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<AggregateOptions> ColumnsOf(const RunAggregateOptions& options,
                                           const std::vector<std::string>& names) {
  AggregateOptions columns;
  columns.read_bytes = options.run.block_bytes;
  columns.separator = options.separator;
  columns.skip_lines = options.header ? 1 : 0;
  ABACUS_ASSIGN_OR_RETURN(columns.value_column, ColumnOf("--sum", options.sum, names));
  if (options.where.empty()) return columns;
  const size_t equals = options.where.find('=');
  if (equals == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("--where: '", options.where, "' has no '=': say COLUMN=VALUE"));
  }
  ABACUS_ASSIGN_OR_RETURN(columns.where_column,
                          ColumnOf("--where", options.where.substr(0, equals), names));
  columns.where_value = options.where.substr(equals + 1);
  return columns;
}

// What the object says of a line, with the file and the way out.
absl::Status OfTable(const absl::Status& status, const RunAggregateOptions& options) {
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(options.name, ": ", status.message(), "; columns end at each '",
                   options.separator, "' (--separator)",
                   options.header ? "" : ", and a first line of names is left out with --header"));
}

absl::StatusOr<Aggregate> AddUp(const RunAggregateOptions& options, RunConsole& console) {
  ABACUS_ASSIGN_OR_RETURN(const size_t file, console.Open(options.name));
  std::vector<std::string> names;
  if (options.header) {
    ABACUS_ASSIGN_OR_RETURN(names, ColumnNames(console, file, options));
  }
  ABACUS_ASSIGN_OR_RETURN(const AggregateOptions columns, ColumnsOf(options, names));
  ABACUS_ASSIGN_OR_RETURN(const runtime::Ref<ColumnAggregate> aggregate,
                          console.node().Create<ColumnAggregate>(columns));
  ABACUS_RETURN_IF_ERROR(console.Follow(aggregate.rid()));
  Aggregate total;
  const absl::Status added =
      console.Run(absl::StrCat("aggregate ", options.name), [&]() -> absl::Status {
        return console.ReadThrough(
            file, [&](const objfs::Subgraph& subgraph) -> absl::StatusOr<RunStep> {
              ABACUS_ASSIGN_OR_RETURN(const AggregateChunk chunk, aggregate->Next(subgraph));
              total = chunk.so_far;
              return RunStep{.offset = chunk.offset, .done = chunk.done};
            });
      });
  if (!added.ok()) return OfTable(added, options);
  return total;
}

// Fifteen digits are all that a sum of decimal fractions is good for: 0.1 + 0.2 is 0.3 then.
std::string AggregateLines(const Aggregate& total) {
  std::string lines = absl::StrFormat("rows   %d\nsum    %.15g\n", total.rows, total.sum);
  if (total.rows == 0) return lines;
  absl::StrAppendFormat(&lines, "least  %.15g\nmost   %.15g\n", total.least, total.most);
  return lines;
}

}  // namespace

int RunAggregate(const RunAggregateOptions& options) {
  if (!options.header) {  // what can be told without a server is
    const auto columns = ColumnsOf(options, {});
    if (!columns.ok()) return Fail(columns.status());
  }
  const auto console = RunConsole::Start("aggregate", options.run);
  if (!console.ok()) return Fail(console.status());
  const absl::StatusOr<Aggregate> total = AddUp(options, **console);
  if (!total.ok()) return Fail(total.status());
  absl::Status told = WriteAll(STDOUT_FILENO, AggregateLines(*total));
  const nlohmann::json found{{"file", options.name},
                             {"rows", total->rows},
                             {"sum", total->sum},
                             {"least", total->least},
                             {"most", total->most}};
  // Names are any bytes; JSON takes only text.
  told.Update(
      (*console)->WriteJson(found.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  if (!told.ok()) return Fail(told);
  return total->rows > 0 ? kExitOk : kExitNo;
}

}  // namespace abacus::apps
