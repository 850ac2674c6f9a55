// abacus top: what the objects of a cluster cost, live.

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/control.h"
#include "apps/abacus/figures.h"
#include "apps/abacus/output.h"
#include "apps/abacus/top_view.h"
#include "runtime/node/control_client.h"

namespace abacus::apps {
namespace {

using runtime::NodeReport;
using Json = nlohmann::json;

constexpr size_t kBatchColumns = 1000;

Json SampleOf(const NodeReport& report) {
  Json json{{"time", absl::FormatTime(absl::Now(), absl::UTCTimeZone())},
            {"health", report.health},
            {"nodes", Json::array()},
            {"objects", Json::array()},
            {"edges", Json::array()},
            {"links", Json::array()}};
  for (const auto& member : report.members) {
    Json node{{"name", member.info.name}, {"id", member.info.instance.node}};
    if (member.measured) {
      node["load"] = member.statistics.load;
      node["cores"] = member.statistics.cores;
      node["source"] = member.statistics.source;
      node["source_missing"] = member.statistics.source_missing;
      for (const LostCount& one : LostCounts(member.statistics.lost)) {
        node["lost"][one.name] = one.count;
      }
    }
    json["nodes"].push_back(std::move(node));
  }
  for (const auto& object : report.objects) {
    Json line{{"rid", object.rid.ToString()},
              {"class", object.class_name},
              {"node", object.node},
              {"node_name", NodeName(report, object.node)},
              {"memory_bytes", object.memory_bytes}};
    for (const NamedFigure& figure : FiguresOf(object)) {
      line[figure.name] = figure.value ? Json(*figure.value) : Json();
    }
    json["objects"].push_back(std::move(line));
  }
  for (const auto& edge : report.edges) {
    json["edges"].push_back({{"from", edge.from.ToString()},
                             {"to", edge.to.ToString()},
                             {"calls_s", edge.calls_s},
                             {"request_bytes_s", edge.request_bytes_s},
                             {"reply_bytes_s", edge.reply_bytes_s}});
  }
  for (const auto& link : report.links) {
    json["links"].push_back({{"node", link.node},
                             {"node_name", link.node == 0 ? "" : NodeName(report, link.node)},
                             {"connections", link.connections},
                             {"peer", link.peer},
                             {"delivered_bytes_s", link.delivered_bytes_s},
                             {"app_limited", link.app_limited},
                             {"round_trip_s", absl::ToDoubleSeconds(link.round_trip)},
                             {"bytes_sent", link.bytes_sent},
                             {"bytes_received", link.bytes_received}});
  }
  return json;
}

// A terminal that gives keys one by one, on a screen of its own; as it was before when this ends.
class Screen {
 public:
  Screen() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    WriteAll(STDOUT_FILENO, "\x1b[?1049h\x1b[?25l").IgnoreError();
  }
  ~Screen() {
    WriteAll(STDOUT_FILENO, "\x1b[?25h\x1b[?1049l").IgnoreError();
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;

  absl::Status Draw(const TopView& view) const {
    winsize size = {};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) size = {24, 80, 0, 0};
    std::string text = "\x1b[H";
    for (const char c : view.Text(size.ws_row - 1u, size.ws_col)) {
      if (c == '\n') text += "\x1b[K";
      text += c;
    }
    return WriteAll(STDOUT_FILENO, text + "\x1b[J");
  }

 private:
  termios before_;
};

absl::StatusOr<NodeReport> Ask(runtime::ControlClient& server, const TopOptions& options) {
  return server.GetStatus(options.objects_max, kAskDeadline);
}

int Batch(runtime::ControlClient& server, const TopOptions& options, TopView view) {
  Json json{{"samples", Json::array()}};
  for (uint32_t i = 0; i < options.rounds; ++i) {
    if (i > 0) absl::SleepFor(options.interval);
    auto report = Ask(server, options);
    if (!report.ok()) return Fail(report.status());
    SortForTop(*ParseTopSort(options.sort), report->objects);
    json["samples"].push_back(SampleOf(*report));
    view.SetReport(*std::move(report));
    const std::string text =
        view.Text(SIZE_MAX, kBatchColumns) + (i + 1 < options.rounds ? "\n" : "");
    if (auto status = WriteAll(STDOUT_FILENO, text); !status.ok()) return Fail(status);
  }
  if (!options.control.json.empty()) {
    if (auto status = WriteFile(options.control.json, json.dump(2) + "\n"); !status.ok())
      return Fail(status);
  }
  return kExitOk;
}

int Live(runtime::ControlClient& server, const TopOptions& options, TopView view) {
  absl::Status failed;
  {
    const Screen screen;
    for (bool goes_on = true; goes_on && failed.ok();) {
      auto report = Ask(server, options);
      failed = report.status();
      if (!failed.ok()) break;
      view.SetReport(*std::move(report));
      const absl::Time next = absl::Now() + options.interval;
      while (goes_on && failed.ok()) {
        failed = screen.Draw(view);
        pollfd keys{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
        const auto left = absl::ToInt64Milliseconds(next - absl::Now());
        if (left <= 0 || poll(&keys, 1, static_cast<int>(left)) <= 0) break;
        char key[16];
        const ssize_t bytes = read(STDIN_FILENO, key, sizeof(key));
        goes_on = bytes > 0 && view.Key(std::string_view(key, static_cast<size_t>(bytes)));
      }
    }
  }
  return failed.ok() ? kExitOk : Fail(failed);
}

}  // namespace

int Top(const TopOptions& options) {
  runtime::ControlClient server(options.control.server);
  const TopView view(*ParseTopSort(options.sort));
  if (options.batch) return Batch(server, options, view);
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return Fail(absl::FailedPreconditionError(
        "this is no terminal: --batch prints the table once, --batch -n 3 three times"));
  }
  return Live(server, options, view);
}

}  // namespace abacus::apps
