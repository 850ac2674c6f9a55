#include "runtime/base/config_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/nearest.h"

namespace abacus::runtime::config_internal {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr size_t kUnixPathBytesMax = 107;  // sockaddr_un::sun_path less its final zero

template <auto kSection, auto kKey>
Field At(Config& config) {
  return &(config.*kSection.*kKey);
}

constexpr double kMs = 1e6;
constexpr double kMinute = 60e9;
constexpr double kHour = 3600e9;
constexpr double kKiB = 1024;
constexpr double kMiB = 1024 * kKiB;
constexpr double kGiB = 1024 * kMiB;
constexpr double kTiB = 1024 * kGiB;

using C = Config;

constexpr std::array kRows = {
    Row{.section = "node",
        .key = "name",
        .field = At<&C::node, &C::Node::name>,
        .help = "name of this node in tables and logs; empty: the host's name",
        .form = Form::kName},
    Row{.section = "node",
        .key = "data_dir",
        .field = At<&C::node, &C::Node::data_dir>,
        .help = "directory of a server's storage objects; empty: a client, which stores nothing"},
    Row{.section = "node",
        .key = "control_address",
        .field = At<&C::node, &C::Node::control_address>,
        .help = "where commands and other nodes' control messages arrive; port 0: any free port",
        .form = Form::kListenAddress},
    Row{.section = "node",
        .key = "data_address",
        .field = At<&C::node, &C::Node::data_address>,
        .help = "where invocations and moving objects arrive; unix:/path for a unix socket",
        .form = Form::kListenAnyAddress},
    Row{.section = "node",
        .key = "advertised_control_address",
        .field = At<&C::node, &C::Node::advertised_control_address>,
        .help = "what others are told to call for control; empty: control_address",
        .form = Form::kAdvertised},
    Row{.section = "node",
        .key = "advertised_data_address",
        .field = At<&C::node, &C::Node::advertised_data_address>,
        .help = "what others are told to call for invocations; empty: data_address",
        .form = Form::kAdvertisedAny},

    Row{.section = "membership",
        .key = "heartbeat_interval",
        .field = At<&C::membership, &C::Membership::heartbeat_interval>,
        .help = "how often nodes tell each other that they live",
        .min = 10 * kMs,
        .max = kMinute},
    Row{.section = "membership",
        .key = "lease",
        .field = At<&C::membership, &C::Membership::lease>,
        .help = "a node that nobody has heard for so long stops serving by itself",
        .min = 50 * kMs,
        .max = 10 * kMinute},
    Row{.section = "membership",
        .key = "dead_after",
        .field = At<&C::membership, &C::Membership::dead_after>,
        .help = "a node not heard for so long is dead to the others; longer than the lease",
        .min = 100 * kMs,
        .max = kHour},

    Row{.section = "transport",
        .key = "spin_max",
        .field = At<&C::transport, &C::Transport::spin_max>,
        .help = "longest busy wait for a reply before the thread sleeps; adapts below this",
        .min = 0,
        .max = 10 * kMs},
    Row{.section = "transport",
        .key = "frame_bytes_max",
        .field = At<&C::transport, &C::Transport::frame_bytes_max>,
        .help = "largest message, header and data; larger ones are refused by both ends",
        .min = 64 * kKiB,
        .max = kTiB},
    Row{.section = "transport",
        .key = "workers_max",
        .field = At<&C::transport, &C::Transport::workers_max>,
        .help = "activities of other nodes that run here at once",
        .min = 1,
        .max = 4096},
    Row{.section = "transport",
        .key = "admission_queue_max",
        .field = At<&C::transport, &C::Transport::admission_queue_max>,
        .help = "activities that may wait for a worker; beyond, callers get back-pressure",
        .min = 1,
        .max = 1 << 20},
    Row{.section = "transport",
        .key = "nesting_depth_max",
        .field = At<&C::transport, &C::Transport::nesting_depth_max>,
        .help = "how deep calls of one activity may be nested over all nodes",
        .min = 1,
        .max = 64},
    Row{.section = "transport",
        .key = "rate_limit_mbit",
        .field = At<&C::transport, &C::Transport::rate_limit_mbit>,
        .help = "emulates a slow link: Mbit/s that this node sends to each peer; 0: no limit",
        .min = 0,
        .max = 1e6},
    Row{.section = "transport",
        .key = "probe_interval",
        .field = At<&C::transport, &C::Transport::probe_interval>,
        .help = "after this long without an answer a call is asked after, and a message of a move "
                "sent again",
        .min = 100 * kMs,
        .max = kHour},

    Row{.section = "migration",
        .key = "drain_deadline",
        .field = At<&C::migration, &C::Migration::drain_deadline>,
        .help = "a move is cancelled when calls inside the object have not returned by then",
        .min = kMs,
        .max = 10 * kMinute},
    Row{.section = "migration",
        .key = "transfer_deadline",
        .field = At<&C::migration, &C::Migration::transfer_deadline>,
        .help = "a move is cancelled when the state has not arrived by then",
        .min = 10 * kMs,
        .max = 24 * kHour},
    Row{.section = "migration",
        .key = "checkpoint_memory_bytes_max",
        .field = At<&C::migration, &C::Migration::checkpoint_memory_bytes_max>,
        .help = "larger checkpoints are written to a file in spill_dir",
        .min = 0,
        .max = kTiB},
    Row{.section = "migration",
        .key = "spill_dir",
        .field = At<&C::migration, &C::Migration::spill_dir>,
        .help = "directory for large checkpoints; empty: the system's directory for such files"},
    Row{.section = "migration",
        .key = "hand_move_hold",
        .field = At<&C::migration, &C::Migration::hand_move_hold>,
        .help = "the engine leaves an object alone for so long after it was moved by hand",
        .min = 0,
        .max = 24 * kHour},
    Row{.section = "migration",
        .key = "hints_max",
        .field = At<&C::migration, &C::Migration::hints_max>,
        .help = "location hints kept for objects of other homes; the oldest go first",
        .min = 16,
        .max = 1 << 26},

    Row{.section = "dedup",
        .key = "entries_per_object_max",
        .field = At<&C::dedup, &C::Dedup::entries_per_object_max>,
        .help = "results kept per object so that a repeated call is answered and not run again",
        .min = 1,
        .max = 1 << 20},
    Row{.section = "dedup",
        .key = "result_bytes_per_object_max",
        .field = At<&C::dedup, &C::Dedup::result_bytes_per_object_max>,
        .help = "size of the results kept per object",
        .min = kKiB,
        .max = 64 * kGiB},

    Row{.section = "lifetime",
        .key = "grace",
        .field = At<&C::lifetime, &C::Lifetime::grace>,
        .help = "an object outlives its owner's console or node by so long",
        .min = 0,
        .max = 24 * kHour},

    Row{.section = "placement",
        .key = "enabled",
        .field = At<&C::placement, &C::Placement::enabled>,
        .help = "whether the engine moves objects; moves by hand work either way"},
    Row{.section = "placement",
        .key = "window",
        .field = At<&C::placement, &C::Placement::window>,
        .help = "H: the observation window that a decision looks back over",
        .min = 50 * kMs,
        .max = kHour},
    Row{.section = "placement",
        .key = "threshold",
        .field = At<&C::placement, &C::Placement::threshold>,
        .help = "B_thresh: net gain that a move must promise, as a part of the new response time",
        .min = 0,
        .max = 100},
    Row{.section = "placement",
        .key = "digest_interval",
        .field = At<&C::placement, &C::Placement::digest_interval>,
        .help = "how often a client tells its servers what its objects cost",
        .min = 10 * kMs,
        .max = kMinute},
    Row{.section = "placement",
        .key = "min_evidence_bytes",
        .field = At<&C::placement, &C::Placement::min_evidence_bytes>,
        .help = "bytes that must have flowed in the window before the engine decides",
        .min = 0,
        .max = kTiB},
    Row{.section = "placement",
        .key = "min_link_evidence_bytes",
        .field = At<&C::placement, &C::Placement::min_link_evidence_bytes>,
        .help = "bytes over which a bandwidth must have been measured before it counts",
        .min = 0,
        .max = kTiB},
    Row{.section = "placement",
        .key = "confidence",
        .field = At<&C::placement, &C::Placement::confidence>,
        .help =
            "standard deviations of the gain of which a move must be sure; 0: the paper's letter",
        .min = 0,
        .max = 10},
    Row{.section = "placement",
        .key = "quiesce_prior",
        .field = At<&C::placement, &C::Placement::quiesce_prior>,
        .help = "what quiescing is taken to last until a move was seen",
        .min = 0,
        .max = kHour},
    Row{.section = "placement",
        .key = "protocol_round_trips",
        .field = At<&C::placement, &C::Placement::protocol_round_trips>,
        .help = "round trips of a migration while its objects are blocked",
        .min = 0,
        .max = 1000},
    Row{.section = "placement",
        .key = "fixed_point_iterations_max",
        .field = At<&C::placement, &C::Placement::fixed_point_iterations_max>,
        .help = "iterations of load and response time before a prediction is given up",
        .min = 1,
        .max = 10000},
    Row{.section = "placement",
        .key = "fixed_point_tolerance",
        .field = At<&C::placement, &C::Placement::fixed_point_tolerance>,
        .help = "relative change of the response time at which they end",
        .min = 1e-12,
        .max = 0.1},
    Row{.section = "placement",
        .key = "stack_objects_max",
        .field = At<&C::placement, &C::Placement::stack_objects_max>,
        .help = "most objects of one console that are decided on",
        .min = 2,
        .max = 4096},
    Row{.section = "placement",
        .key = "candidates_max",
        .field = At<&C::placement, &C::Placement::candidates_max>,
        .help = "placements that a decision about a graph lists",
        .min = 2,
        .max = 4096},
    Row{.section = "placement",
        .key = "cpu_share_max",
        .field = At<&C::placement, &C::Placement::cpu_share_max>,
        .help =
            "part of a server's capacity that objects pulled there may use together; 1: no limit",
        .min = 0,
        .max = 1},
    Row{.section = "placement",
        .key = "client_load_constant",
        .field = At<&C::placement, &C::Placement::client_load_constant>,
        .help = "takes a client's load as measured whatever the placement (paper 5.4.2)"},
    Row{.section = "placement",
        .key = "dry_run",
        .field = At<&C::placement, &C::Placement::dry_run>,
        .help = "decisions are recorded and explained, and nothing is moved"},
    Row{.section = "placement",
        .key = "decision_log_bytes_max",
        .field = At<&C::placement, &C::Placement::decision_log_bytes_max>,
        .help = "size at which decisions.jsonl in node.data_dir is rotated; 0: none is written",
        .min = 0,
        .max = kTiB},

    Row{.section = "planner",
        .key = "whole_window",
        .field = At<&C::planner, &C::Planner::whole_window>,
        .help = "a window counts as whole from this part of it on",
        .min = 0.1,
        .max = 1},
    Row{.section = "planner",
        .key = "fast_window",
        .field = At<&C::planner, &C::Planner::fast_window>,
        .help = "part of the window that is enough where the gain is large",
        .min = 0.001,
        .max = 1},
    Row{.section = "planner",
        .key = "fast_gain",
        .field = At<&C::planner, &C::Planner::fast_gain>,
        .help = "speed-up, surely reached, that is decided on before the window is whole",
        .min = 1,
        .max = 1000},
    Row{.section = "planner",
        .key = "hysteresis",
        .field = At<&C::planner, &C::Planner::hysteresis>,
        .help = "times the threshold that it takes to undo the last move of a phase",
        .min = 1,
        .max = 100},
    Row{.section = "planner",
        .key = "cool_down",
        .field = At<&C::planner, &C::Planner::cool_down>,
        .help = "windows after a move in which none is made unless the behaviour changes",
        .min = 0,
        .max = 1e6},
    Row{.section = "planner",
        .key = "cool_down_max",
        .field = At<&C::planner, &C::Planner::cool_down_max>,
        .help = "longest cool-down, doubled after each move that was undone; windows",
        .min = 0,
        .max = 1e6},
    Row{.section = "planner",
        .key = "forgive",
        .field = At<&C::planner, &C::Planner::forgive>,
        .help = "an undone move is forgotten after so many cool-downs",
        .min = 1,
        .max = 1000},
    Row{.section = "planner",
        .key = "load_step",
        .field = At<&C::planner, &C::Planner::load_step>,
        .help = "part of a node's cores that moves may change within a window",
        .min = 0.01,
        .max = 1000},
    Row{.section = "planner",
        .key = "settled_windows",
        .field = At<&C::planner, &C::Planner::settled_windows>,
        .help = "windows of one phase after which a lasting small gain is enough",
        .min = 2,
        .max = 1e6},
    Row{.section = "planner",
        .key = "settled_thresh",
        .field = At<&C::planner, &C::Planner::settled_thresh>,
        .help = "that gain, as a part of the new response time",
        .min = 0,
        .max = 1000},
    Row{.section = "planner",
        .key = "horizon_windows_max",
        .field = At<&C::planner, &C::Planner::horizon_windows_max>,
        .help = "most windows of work that a move may take to pay, where the phase lasts",
        .min = 1,
        .max = 1000},
    Row{.section = "planner",
        .key = "moves_per_phase",
        .field = At<&C::planner, &C::Planner::moves_per_phase>,
        .help = "moves that a phase which ends has to pay: there and back",
        .min = 1,
        .max = 10},
    Row{.section = "planner",
        .key = "undo_threshold",
        .field = At<&C::planner, &C::Planner::undo_threshold>,
        .help = "a move is undone if the same work takes so much longer than before",
        .min = 0.01,
        .max = 100},
    Row{.section = "planner",
        .key = "correction_max",
        .field = At<&C::planner, &C::Planner::correction_max>,
        .help = "most that a class's CPU time on a node is corrected by",
        .min = 1,
        .max = 1000},
    Row{.section = "planner",
        .key = "correction_half_life",
        .field = At<&C::planner, &C::Planner::correction_half_life>,
        .help = "windows in which half of a correction is forgotten",
        .min = 1,
        .max = 1e6},
    Row{.section = "planner",
        .key = "claim_windows_max",
        .field = At<&C::planner, &C::Planner::claim_windows_max>,
        .help = "a claim on an object whose move never ended lapses after so many windows",
        .min = 1,
        .max = 1e6},
    Row{.section = "planner",
        .key = "graphs_max",
        .field = At<&C::planner, &C::Planner::graphs_max>,
        .help = "consoles that are remembered",
        .min = 1,
        .max = 1e7},
    Row{.section = "planner",
        .key = "samples_max",
        .field = At<&C::planner, &C::Planner::samples_max>,
        .help = "samples that are kept of each",
        .min = 2,
        .max = 4096},
    Row{.section = "planner",
        .key = "corrections_max",
        .field = At<&C::planner, &C::Planner::corrections_max>,
        .help = "corrections that are kept",
        .min = 1,
        .max = 1e6},
    Row{.section = "planner",
        .key = "errors_max",
        .field = At<&C::planner, &C::Planner::errors_max>,
        .help = "audits in the running error of the model",
        .min = 1,
        .max = 1e6},
    Row{.section = "planner",
        .key = "phase_slack_deviations",
        .field = At<&C::planner, &C::Planner::phase_slack_deviations>,
        .help = "deviations of a share of the costs that are no evidence of a change",
        .min = 0.1,
        .max = 10},
    Row{.section = "planner",
        .key = "phase_alarm_sum",
        .field = At<&C::planner, &C::Planner::phase_alarm_sum>,
        .help = "sum of evidence at which the behaviour has changed",
        .min = 1,
        .max = 1000},
    Row{.section = "planner",
        .key = "phase_evidence_per_sample_max",
        .field = At<&C::planner, &C::Planner::phase_evidence_per_sample_max>,
        .help = "most evidence that one sample can give",
        .min = 1,
        .max = 1000},
    Row{.section = "planner",
        .key = "phase_deviation_floor",
        .field = At<&C::planner, &C::Planner::phase_deviation_floor>,
        .help = "least deviation that a share is taken to have",
        .min = 0.001,
        .max = 0.5},
    Row{.section = "planner",
        .key = "phase_deviation_prior",
        .field = At<&C::planner, &C::Planner::phase_deviation_prior>,
        .help = "part of itself that a share is taken to vary by before samples tell",
        .min = 0.01,
        .max = 1},
    Row{.section = "planner",
        .key = "phase_kind_distance",
        .field = At<&C::planner, &C::Planner::phase_kind_distance>,
        .help = "part of the costs that must change place to make another kind of phase",
        .min = 0.01,
        .max = 1},
    Row{.section = "planner",
        .key = "phase_kinds_max",
        .field = At<&C::planner, &C::Planner::phase_kinds_max>,
        .help = "kinds of phase that are remembered of a console",
        .min = 1,
        .max = 64},
    Row{.section = "planner",
        .key = "phase_lengths_max",
        .field = At<&C::planner, &C::Planner::phase_lengths_max>,
        .help = "lengths that are remembered of each kind",
        .min = 1,
        .max = 64},

    Row{.section = "monitor",
        .key = "source",
        .field = At<&C::monitor, &C::Monitor::source>,
        .help = "where the figures of threads come from; auto: the best that this machine permits",
        .form = Form::kMonitorSource},
    Row{.section = "monitor",
        .key = "rate_file",
        .field = At<&C::monitor, &C::Monitor::rate_file>,
        .help =
            "where nodes of this machine keep how fast a core is; empty: measure at each start"},

    Row{.section = "log",
        .key = "level",
        .field = At<&C::log, &C::Log::level>,
        .help = "least severe message that is logged",
        .form = Form::kLogLevel},
    Row{.section = "log",
        .key = "file",
        .field = At<&C::log, &C::Log::file>,
        .help = "file that the log is appended to; empty: standard error"},
};

constexpr std::array kLogLevels = {"debug", "info", "warning", "error"};
constexpr std::array kMonitorSources = {"auto", "ebpf", "schedstat", "thread-clock"};

// What a value may be that is one of a few words; nothing for other forms.
absl::Span<const char* const> Words(Form form) {
  if (form == Form::kLogLevel) return kLogLevels;
  if (form == Form::kMonitorSource) return kMonitorSources;
  return {};
}

absl::Duration FromNs(double ns) { return absl::Nanoseconds(static_cast<int64_t>(ns)); }

bool IsHostAndPort(std::string_view text, bool port_zero_allowed) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  // A bare IPv6 address cannot be told from its port: it stands in brackets.
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find_first_of(":[]/ ") != host.npos) return false;
  int port = -1;
  const char* end = port_text.data() + port_text.size();
  const auto [after, error] = std::from_chars(port_text.data(), end, port);
  return error == std::errc() && after == end && port <= 65535 &&
         port >= (port_zero_allowed ? 0 : 1);
}

bool IsUnixAddress(std::string_view text) {
  constexpr std::string_view kPrefix = "unix:/";
  return text.substr(0, kPrefix.size()) == kPrefix && text.size() > kPrefix.size() &&
         text.size() - kPrefix.size() + 1 <= kUnixPathBytesMax;
}

bool IsName(std::string_view text) {
  return text.size() <= kNameBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

// The right key in the wrong section costs as much as two wrong letters.
constexpr size_t kWrongSectionCost = 2;
// A longer name is no slip of the finger, and comparing it would cost its length squared.
constexpr size_t kSuggestBytesMax = 128;

}  // namespace

absl::Span<const Row> Rows() { return kRows; }

std::string FormatDouble(double value) {
  std::array<char, 32> buffer;
  // 100000 and not 1e+05, as long as it stays readable and within the buffer.
  const double size = std::abs(value);
  const auto format = value == 0 || (size >= 1e-6 && size < 1e15) ? std::chars_format::fixed
                                                                  : std::chars_format::general;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format);
  return {buffer.data(), result.ptr};
}

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 8> escaped;
      snprintf(escaped.data(), escaped.size(), "\\u%04X", byte);
      quoted += escaped.data();
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FormatValue(const Field& field) {
  return std::visit(
      Overloaded{
          [](const bool* value) { return std::string(*value ? "true" : "false"); },
          [](const int64_t* value) { return absl::StrCat(*value); },
          [](const double* value) { return FormatDouble(*value); },
          [](const std::string* value) { return Quote(*value); },
          [](const absl::Duration* value) { return Quote(absl::FormatDuration(*value)); },
          [](const uint64_t* value) { return Quote(FormatBytes(*value)); },
      },
      field);
}

std::string TypeName(const Field& field) {
  static constexpr std::array kNames = {"bool", "integer", "number", "string", "duration", "size"};
  static_assert(kNames.size() == std::variant_size_v<Field>);
  return kNames[field.index()];
}

std::string FormatRange(const Row& row, const Field& field) {
  auto range = [](const std::string& min, const std::string& max) {
    return absl::StrCat(min, " to ", max);
  };
  if (!Words(row.form).empty()) return absl::StrJoin(Words(row.form), ", ");
  return std::visit(
      Overloaded{
          [](const bool*) { return std::string(); },
          [](const std::string*) { return std::string(); },
          [&](const int64_t*) {
            return range(absl::StrCat(static_cast<int64_t>(row.min)),
                         absl::StrCat(static_cast<int64_t>(row.max)));
          },
          [&](const double*) { return range(FormatDouble(row.min), FormatDouble(row.max)); },
          [&](const absl::Duration*) {
            return range(absl::FormatDuration(FromNs(row.min)),
                         absl::FormatDuration(FromNs(row.max)));
          },
          [&](const uint64_t*) {
            return range(FormatBytes(static_cast<uint64_t>(row.min)),
                         FormatBytes(static_cast<uint64_t>(row.max)));
          },
      },
      field);
}

std::optional<std::string> WrongForm(Form form, std::string_view text) {
  const bool has_control = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (has_control) return "text without control characters";
  switch (form) {
    case Form::kAny:
      return std::nullopt;
    case Form::kName:
      if (IsName(text)) return std::nullopt;
      return absl::StrCat("at most ", kNameBytesMax, " letters, digits, '.', '_' and '-'");
    case Form::kListenAddress:
      if (IsHostAndPort(text, true)) return std::nullopt;
      return "host:port, port 0 to 65535";
    case Form::kListenAnyAddress:
      if (IsHostAndPort(text, true) || IsUnixAddress(text)) return std::nullopt;
      return absl::StrCat("host:port, port 0 to 65535, or unix:/path of at most ",
                          kUnixPathBytesMax, " bytes");
    case Form::kAdvertised:
      if (text.empty() || IsHostAndPort(text, false)) return std::nullopt;
      return "host:port, port 1 to 65535, or nothing";
    case Form::kAdvertisedAny:
      if (text.empty() || IsHostAndPort(text, false) || IsUnixAddress(text)) return std::nullopt;
      return "host:port, port 1 to 65535, unix:/path, or nothing";
    case Form::kLogLevel:
    case Form::kMonitorSource: {
      const auto words = Words(form);
      if (std::find(words.begin(), words.end(), text) != words.end()) return std::nullopt;
      return absl::StrCat("one of ", absl::StrJoin(words, ", "));
    }
  }
  return std::nullopt;
}

std::string NearestKey(std::string_view name) {
  if (name.size() > kSuggestBytesMax) return kRows[0].name();
  const std::string_view leaf = name.substr(name.rfind('.') + 1);
  std::string nearest;
  size_t least = SIZE_MAX;
  for (const Row& row : kRows) {
    const std::string full = row.name();
    const size_t distance =
        std::min(EditDistance(name, full), EditDistance(leaf, row.key) + kWrongSectionCost);
    if (distance < least) {
      least = distance;
      nearest = full;
    }
  }
  return nearest;
}

}  // namespace abacus::runtime::config_internal
