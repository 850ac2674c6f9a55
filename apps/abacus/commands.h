#ifndef ABACUS_APPS_ABACUS_COMMANDS_H_
#define ABACUS_APPS_ABACUS_COMMANDS_H_

// The sub-commands of `abacus`: what each takes, and the function that does it. main.cc reads the
// command line into these; nothing here knows how that is done.
//
// Every function runs to the end of its command, prints what there is to tell, and returns the
// program's exit code. Results go to standard output, everything else to standard error.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace abacus::apps {

inline constexpr int kExitOk = 0;
inline constexpr int kExitNo = 1;  // done, and the answer is no: nothing matched, not healthy, ...
inline constexpr int kExitError = 2;  // wrong usage, or it could not be done

inline constexpr char kDefaultServer[] = "127.0.0.1:7070";

struct ServeOptions {
  std::string config;
  std::string data;
  std::string listen;  // control address; the data plane listens at the next port
  std::string name;
  std::string ready_file;
  int ready_fd = -1;
  int lease_s = 30;  // of the volumes' clients
};
int Serve(const ServeOptions& options);

// What the commands that join a cluster as a client have in common.
struct ClientOptions {
  std::string config;
  std::vector<std::string> servers = {kDefaultServer};
};

// `name` of all that follow: "[VOLUME:]PATH".
struct PutOptions {
  ClientOptions client;
  std::string name;
  std::string file;  // empty: standard input
};
int Put(const PutOptions& options);

struct GetOptions {
  ClientOptions client;
  std::string name;
  std::string file;  // empty: standard output
};
int Get(const GetOptions& options);

struct ListOptions {
  ClientOptions client;
  std::string name;  // of a directory; empty: the volume's root
  std::string json;
};
int List(const ListOptions& options);

struct RemoveOptions {
  ClientOptions client;
  std::string name;
};
int Remove(const RemoveOptions& options);

struct VolumeOptions {
  enum class What : uint8_t {
    kList,
    kCreate,
    kDelete,
    kAddServer,
    kReplaceServer,
    kDrain,
    kRestoreMap,
  };
  ClientOptions client;
  What what = What::kList;
  std::string name;
  std::string json;
  std::string quota;                 // of a new one, "10 GiB"; empty: none
  std::vector<std::string> servers;  // of a new one: over which its files may be spread; none: not
  std::string map;                   // of a new one: its address; empty: at its first server
  uint64_t metadata_copies = 1;      // of a new one with a map
  // Of a new one over several servers; nullopt: all names and inodes are together.
  std::optional<uint32_t> metadata_shards;
  std::string stack;        // of a new one's files; empty: as each client has it
  std::string before, now;  // servers: kAddServer has only `now`
  bool force = false;       // kReplaceServer, kRestoreMap
};
int VolumeCommand(const VolumeOptions& options);
int DrainCommand(const VolumeOptions& options);  // kDrain

// Volumes whose files are spread over servers.
struct RepairOptions {
  enum class What : uint8_t { kStatus, kRebuild, kScrub };
  ClientOptions client;
  What what = What::kStatus;
  std::string name;
  std::string json;
  std::string to;  // kRebuild: a server that takes the place of the one that is lost; empty: none
};
// kExitNo: not all files are whole.
int RepairCommand(const RepairOptions& options);

struct FsckOptions {
  ClientOptions client;  // of a volume that a server has open
  std::string where;     // a server's data directory, or HOST:PORT; empty: client.servers
  std::string volume;    // empty: all of a directory
  bool repair = false;
  bool data = false;  // reads the contents of files as well
  std::string json;
};
// The exit codes are those of e2fsck: 0 clean, 1 repaired, 4 something is left, 5 both, 8 it could
// not be done, 16 wrong usage.
int FsckCommand(const FsckOptions& options);

struct MountOptions {
  std::string source;  // SERVER[,SERVER...][/VOLUME], or a directory
  bool local = false;  // a directory that a server could serve, and none does
  std::string directory;
  std::vector<std::string> options;  // as mount(8) takes them by -o
  std::string config;
  bool foreground = false;
};
int Mount(const MountOptions& options);

struct UnmountOptions {
  std::string directory;
  bool lazily = false;
};
int Unmount(const UnmountOptions& options);

struct StackOptions {
  enum class What : uint8_t { kShow, kSet, kUnset, kState, kKinds };
  What what = What::kShow;
  std::string path;     // none for kKinds
  std::string stack;    // kSet: of the files that will be made in directory `path`
  std::string pattern;  // of those only whose names match; empty: of all
};
int StackCommand(const StackOptions& options);

// What the commands that run an application on files have in common.
struct RunOptions {
  ClientOptions client;
  std::string pin;  // "", "client" or "server"
  uint64_t block_bytes = uint64_t{64} << 10;
  std::string json;
  bool quiet = false;
};

struct RunGrepOptions {
  RunOptions run;
  std::string pattern;
  std::string name;  // "[VOLUME:]PATH"
};
// kExitNo: no line matched.
int RunGrep(const RunGrepOptions& options);

struct RunWordCountOptions {
  RunOptions run;
  std::vector<std::string> names;  // each "[VOLUME:]PATH"
};
int RunWordCount(const RunWordCountOptions& options);

// A column is its number, counted from 1, or with `header` its name.
struct RunAggregateOptions {
  RunOptions run;
  std::string name;             // "[VOLUME:]PATH"
  std::string sum;              // the column that is added up
  std::string where;            // "COLUMN=VALUE": of these rows; empty: of all
  std::string separator = ",";  // one character
  bool header = false;          // the first line has the columns' names
};
// kExitNo: no row counts.
int RunAggregate(const RunAggregateOptions& options);

// What the commands that talk to a server's control plane have in common.
struct ControlOptions {
  std::string server = kDefaultServer;  // one
  std::string json;
};

struct StatusOptions {
  ControlOptions control;
  // All of it fits one screen.
  uint32_t nodes_max = 8;
  uint32_t objects_max = 8;
  uint32_t moves_max = 3;
};
int Status(const StatusOptions& options);

struct TopOptions {
  ControlOptions control;
  std::string sort = "cpu";
  absl::Duration interval = absl::Seconds(1);
  uint32_t objects_max = 100;
  bool batch = false;
  uint32_t rounds = 1;  // of a batch
};
int Top(const TopOptions& options);

struct ExplainOptions {
  ControlOptions control;
  std::string rid;
  uint32_t decisions_max = 1;
  bool details = false;
};
int Explain(const ExplainOptions& options);

struct MoveOptions {
  ControlOptions control;
  std::string rid;
  std::string node;  // id or name
};
int Move(const MoveOptions& options);

struct PinOptions {
  ControlOptions control;
  std::string rid;
  std::string node;  // id or name; empty: where the object is
  bool unpin = false;
};
int Pin(const PinOptions& options);

struct AllowOptions {
  ControlOptions control;
  std::string rid;
  std::vector<std::string> nodes;  // ids or names; none: any node
};
int Allow(const AllowOptions& options);

struct AttachOptions {
  ControlOptions control;
  std::vector<std::string> rids;
  bool detach = false;
};
int Attach(const AttachOptions& options);

struct EngineOptions {
  ControlOptions control;
  std::optional<bool> suspended;
  std::optional<bool> dry_run;
};
int Engine(const EngineOptions& options);

int ConfigCheck(const std::string& file);
int ConfigShow(const std::string& file);  // empty: the defaults

struct DoctorOptions {
  std::string json;
};
int Doctor(const DoctorOptions& options);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_COMMANDS_H_
