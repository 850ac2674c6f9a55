#ifndef ABACUS_RUNTIME_BASE_CONFIG_H_
#define ABACUS_RUNTIME_BASE_CONFIG_H_

// The configuration of a node: a TOML file, read through one typed schema from which validation,
// `abacus config check|show` and the reference documentation come.
//
// A file need not name every key: what it leaves out has its default. Nothing here describes how
// fast a machine or a link is; the runtime measures that.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace abacus::runtime {

// The values. A member is called as its key; ConfigReference() says what each is for. Defaults
// stand here and nowhere else. Units: bytes where the name has "bytes" in it; durations carry their
// own.
struct Config {
  struct Node {
    std::string name;
    std::string data_dir;
    std::string control_address = "127.0.0.1:7070";
    std::string data_address = "127.0.0.1:7071";
    std::string advertised_control_address;
    std::string advertised_data_address;
    bool operator==(const Node&) const = default;
  };
  struct Membership {
    absl::Duration heartbeat_interval = absl::Milliseconds(500);
    absl::Duration lease = absl::Seconds(3);
    absl::Duration dead_after = absl::Seconds(5);
    bool operator==(const Membership&) const = default;
  };
  struct Transport {
    absl::Duration spin_max = absl::Microseconds(50);
    uint64_t frame_bytes_max = uint64_t{1} << 30;
    int64_t workers_max = 64;
    int64_t admission_queue_max = 4096;
    int64_t nesting_depth_max = 64;
    double rate_limit_mbit = 0;
    absl::Duration probe_interval = absl::Seconds(2);
    bool operator==(const Transport&) const = default;
  };
  struct Migration {
    absl::Duration drain_deadline = absl::Seconds(2);
    absl::Duration transfer_deadline = absl::Seconds(60);
    uint64_t checkpoint_memory_bytes_max = uint64_t{16} << 20;
    std::string spill_dir;
    absl::Duration hand_move_hold = absl::Seconds(300);
    int64_t hints_max = 65536;
    bool operator==(const Migration&) const = default;
  };
  struct Dedup {
    int64_t entries_per_object_max = 1024;
    uint64_t result_bytes_per_object_max = uint64_t{8} << 20;
    bool operator==(const Dedup&) const = default;
  };
  struct Lifetime {
    absl::Duration grace = absl::Seconds(30);
    bool operator==(const Lifetime&) const = default;
  };
  struct Placement {
    bool enabled = true;
    absl::Duration window = absl::Seconds(1);
    double threshold = 0.30;
    absl::Duration digest_interval = absl::Milliseconds(50);
    uint64_t min_evidence_bytes = uint64_t{16} << 10;
    uint64_t min_link_evidence_bytes = uint64_t{16} << 10;
    double confidence = 1.645;
    absl::Duration quiesce_prior = absl::Milliseconds(2);
    double protocol_round_trips = 2.5;
    int64_t fixed_point_iterations_max = 100;
    double fixed_point_tolerance = 1e-9;
    int64_t stack_objects_max = 1024;
    int64_t candidates_max = 16;
    double cpu_share_max = 1;
    bool client_load_constant = false;
    bool dry_run = false;
    uint64_t decision_log_bytes_max = uint64_t{8} << 20;
    uint64_t decision_memory_max = uint64_t{64} << 20;
    uint64_t memory_limit = 0;
    bool operator==(const Placement&) const = default;
  };
  // See placement/planner_config.h and placement/phases.h for what the defaults rest on.
  struct Planner {
    double whole_window = 0.95;
    double fast_window = 0.05;
    double fast_gain = 2;
    double fast_calls = 2;
    double hysteresis = 2;
    double cool_down = 2;
    double cool_down_max = 64;
    double forgive = 10;
    double load_step = 0.5;
    double settled_windows = 10;
    double settled_thresh = 0.05;
    double horizon_windows_max = 8;
    double moves_per_phase = 2;
    double undo_threshold = 0.2;
    double correction_max = 4;
    double correction_half_life = 120;
    double claim_windows_max = 30;
    int64_t graphs_max = 20000;
    int64_t samples_max = 32;
    int64_t corrections_max = 1024;
    int64_t errors_max = 256;
    double phase_slack_deviations = 1;
    double phase_alarm_sum = 8;
    double phase_evidence_per_sample_max = 5;
    double phase_deviation_floor = 0.03;
    double phase_deviation_prior = 0.2;
    double phase_kind_distance = 0.25;
    int64_t phase_kinds_max = 8;
    int64_t phase_lengths_max = 4;
    bool operator==(const Planner&) const = default;
  };
  // Of the object file system.
  struct Cache {
    uint64_t memory = uint64_t{256} << 20;
    double dirty_share = 0.8;
    absl::Duration dirty_age = absl::Seconds(5);
    bool operator==(const Cache&) const = default;
  };
  // Of volumes over several servers, at the one that has their inodes.
  struct Scrub {
    absl::Duration every = absl::Hours(7 * 24);
    uint64_t rate = uint64_t{16} << 20;
    bool operator==(const Scrub&) const = default;
  };
  struct Monitor {
    std::string source = "auto";
    std::string rate_file = "/run/abacus/rate";
    bool operator==(const Monitor&) const = default;
  };
  struct Log {
    std::string level = "info";
    std::string file;
    bool operator==(const Log&) const = default;
  };

  Node node;
  Membership membership;
  Transport transport;
  Migration migration;
  Dedup dedup;
  Lifetime lifetime;
  Placement placement;
  Planner planner;
  Cache cache;
  Scrub scrub;
  Monitor monitor;
  Log log;

  bool operator==(const Config&) const = default;
};

// One key of the schema, as documentation and commands show it.
struct ConfigKey {
  std::string name;           // "placement.window"
  std::string type;           // "duration"
  std::string default_value;  // as it would stand in a file: "\"1s\""
  std::string range;          // "10ms to 1h"; empty: any
  std::string help;           // one line
};

// All keys, in the order of the file that ShowConfig() prints.
std::vector<ConfigKey> ConfigKeys();

// Reads the configuration from a file.
// Errors: kNotFound, kPermissionDenied - the file's; kInvalidArgument - as ParseConfig(), or the
//         file is larger than 1 MiB. The message names the file.
// Blocking: reads a file.
absl::StatusOr<Config> LoadConfig(const std::string& path);

// The same from text; `file_name` stands in the messages.
// Errors: kInvalidArgument - the message has a line for each thing that is wrong with the text, in
// the order of the text: "abacus.toml:3:1: unknown key 'placment.window' (nearest valid key:
// 'placement.window')". A text that is not TOML has one, because its parser stops there.
absl::StatusOr<Config> ParseConfig(std::string_view text, std::string_view file_name);

// A complete file, each key under a comment that says what it is; ParseConfig() of it gives
// `config` again.
std::string ShowConfig(const Config& config);

// A Markdown table for each section.
std::string ConfigReference();

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_CONFIG_H_
