// abacus mount: a volume as a directory of this machine.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/local_store.h"
#include "apps/abacus/log_setup.h"
#include "apps/abacus/output.h"
#include "apps/abacus/volumes.h"
#include "objfs/fs/file_system.h"
#include "objfs/fuse/mount.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

// Layers of the files that are made in a server's volume, where nobody says others: what is read
// again, and what is written bit by bit, is not worth a round trip each time. Where the store is in
// the mount's own process there is none to spare, and the volume's standard stack holds.
constexpr char kServedFilesStack[] = "cache/isolation/storage";

// As long as what a client keeps is promised to it by default: a mount of a client that hangs shows
// nothing older.
constexpr absl::Duration kTimeoutMax = absl::Seconds(30);

// A volume remembers more of no client (CallbackTable::Options).
constexpr size_t kKnownInodesMax = 262'144;

// What -o says.
struct MountWords {
  objfs::Mount::Options mount;
  size_t known_inodes_max = objfs::FileSystem::Options().known_inodes_max;
  std::string stack;        // empty: the volume's own, else the usual one
  std::string usual_stack;  // empty: the volume's standard
  std::string volume;       // of a local store
  bool local = false;
  std::string config;  // the file
};

// The words between commas; those in parentheses are a stack's.
std::vector<std::string> SplitWords(const std::string& option) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char c : option) {
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth <= 0) {
      words.emplace_back();
    } else {
      words.back().push_back(c);
    }
  }
  std::erase(words, "");
  return words;
}

// Seconds for which the kernel may keep something, as FUSE mounts have them.
absl::Status SetTimeout(const std::vector<std::string>& parts, absl::Duration* timeout) {
  double seconds = 0;
  if (parts.size() != 2 || !absl::SimpleAtod(parts[1], &seconds) || !(seconds >= 0) ||
      seconds > absl::ToDoubleSeconds(kTimeoutMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "-o ", absl::StrJoin(parts, "="), ": ", parts[0], " is a number of seconds from 0 to ",
        absl::ToDoubleSeconds(kTimeoutMax), ", as in ", parts[0], "=1"));
  }
  *timeout = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status SetKnownInodes(const std::vector<std::string>& parts, size_t* count) {
  if (parts.size() == 2 && absl::SimpleAtoi(parts[1], count) && *count >= 1 &&
      *count <= kKnownInodesMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("-o ", absl::StrJoin(parts, "="),
                                                 ": known_inodes is a number from 1 to ",
                                                 kKnownInodesMax, ", as in known_inodes=131072"));
}

absl::StatusOr<MountWords> ParseWords(const std::vector<std::string>& options) {
  MountWords words;
  for (const std::string& option : options) {
    for (const std::string& word : SplitWords(option)) {
      const std::vector<std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
      if (word == "exclusive") {
        words.mount.exclusive = true;
      } else if (word == "direct_io") {
        words.mount.direct_io = true;
      } else if (parts[0] == "attr_timeout") {
        ABACUS_RETURN_IF_ERROR(SetTimeout(parts, &words.mount.attributes_for));
      } else if (parts[0] == "entry_timeout") {
        ABACUS_RETURN_IF_ERROR(SetTimeout(parts, &words.mount.names_for));
      } else if (parts[0] == "known_inodes") {
        ABACUS_RETURN_IF_ERROR(SetKnownInodes(parts, &words.known_inodes_max));
      } else if (word == "local") {
        words.local = true;
      } else if (parts[0] == "stack" && parts.size() == 2) {
        words.stack = parts[1];
      } else if (parts[0] == "volume" && parts.size() == 2) {
        words.volume = parts[1];
      } else if (parts[0] == "config" && parts.size() == 2) {
        words.config = parts[1];
      } else if (word == "defaults" || word == "_netdev" || word == "auto" || word == "noauto" ||
                 word == "user" || word == "users" || word == "nouser" || word == "owner" ||
                 word == "group" || word == "nofail" || parts[0].rfind("x-", 0) == 0) {
        // Of fstab: for others than us.
      } else if (word == "relatime") {
        // What every mount is anyway; libfuse does not know the word.
      } else {
        words.mount.more.push_back(word);
      }
    }
  }
  return words;
}

// Stops the mount on SIGTERM and SIGINT, which all other threads leave to it.
class StopOnSignal {
 public:
  explicit StopOnSignal(objfs::Mount& mount)
      : thread_([&mount] {
          int signal = 0;
          sigwait(&Signals(), &signal);
          if (signal != SIGUSR1) mount.Stop();
        }) {}
  ~StopOnSignal() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  // REQUIRES: called before the first thread.
  static void Block() { pthread_sigmask(SIG_BLOCK, &Signals(), nullptr); }

 private:
  static const sigset_t& Signals() {
    static const sigset_t signals = [] {
      sigset_t set;
      sigemptyset(&set);
      for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, signal);
      return set;
    }();
    return signals;
  }
  std::thread thread_;
};

// A process of its own that goes on when the command has returned. The parent learns by a pipe what
// became of the mount: nothing where all is well, else the message.
class Daemon {
 public:
  // Returns in the child, and in the parent only where the mount is there or has failed.
  // nullopt: this is the child.
  std::optional<int> Begin() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return Fail(absl::ErrnoToStatus(errno, "cannot make a pipe"));
    const pid_t child = fork();
    if (child < 0) return Fail(absl::ErrnoToStatus(errno, "cannot fork"));
    if (child == 0) {
      close(ends[0]);
      report_ = ends[1];
      setsid();
      return std::nullopt;
    }
    close(ends[1]);
    char byte = 0;
    const bool ready = read(ends[0], &byte, 1) == 1;
    if (ready) return kExitOk;
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : kExitError;
  }
  void Ready() const {
    if (report_ < 0) return;
    LeaveStandardError();
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {0, 1, 2}) dup2(null, fd);
    if (chdir("/") != 0) return;  // holds no other file system in use
    const char byte = 1;
    if (write(report_, &byte, 1) == 1) close(report_);
  }

 private:
  int report_ = -1;
};

// "host:/mnt": one host may have several mounts, and people move objects to them by name.
std::string NameOf(const std::string& directory) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) return "";
  std::error_code error;
  const std::string whole = std::filesystem::absolute(directory, error).string();
  return absl::StrCat(host.data(), ":", error ? directory : whole);
}

// Shows the volume until the directory is unmounted.
int Show(const MountOptions& options, const MountWords& words,
         const runtime::Ref<objfs::Volume>& volume, objfs::FileSystem::Host host,
         const std::string& client, const runtime::Config& config, const Daemon& daemon) {
  auto files = objfs::FileSystem::Make(volume, Kinds(), std::move(host),
                                       {.client = client,
                                        .file_stack = words.stack,
                                        .usual_file_stack = words.usual_stack,
                                        .push_after = config.cache.dirty_age,
                                        .known_inodes_max = words.known_inodes_max});
  if (!files.ok()) return Fail(files.status());
  objfs::Mount::Options mount_options = words.mount;
  mount_options.name = options.source;
  auto mount = objfs::Mount::Make(**files, options.directory, mount_options);
  if (!mount.ok()) return Fail(mount.status());
  daemon.Ready();
  absl::Status status;
  {
    const StopOnSignal stop(**mount);
    status = (*mount)->Run();
  }
  return status.ok() ? kExitOk : Fail(status);
}

int ServeLocally(const MountOptions& options, const MountWords& words, const Daemon& daemon) {
  const auto config = ConfigOf(words.config);
  if (!config.ok()) return Fail(config.status());
  runtime::Config::Log log = config->log;
  if (words.config.empty()) log.level = "warning";
  if (auto status = SetUpLog(log); !status.ok()) return Fail(status);
  if (auto status = CheckNoShard(words.volume); !status.ok()) return Fail(status);
  const auto store = LocalStore::Open(options.source, config->cache);
  if (!store.ok()) return Fail(store.status());
  const auto volume = (*store)->VolumeNamed(words.volume);
  if (!volume.ok()) return Fail(volume.status());
  // The store is locked, and this process listens to nobody: no other client can change the volume.
  MountWords alone = words;
  alone.mount.exclusive = true;
  return Show(options, alone, *volume, (*store)->Host(), "local", *config, daemon);
}

int Serve(const MountOptions& options, const Daemon& daemon) {
  absl::StatusOr<MountWords> parsed = ParseWords(options.options);
  if (!parsed.ok()) return Fail(parsed.status());
  MountWords words = *std::move(parsed);
  if (!options.config.empty()) words.config = options.config;
  if (options.local || words.local) return ServeLocally(options, words, daemon);
  if (!words.volume.empty()) {
    return Fail(absl::InvalidArgumentError(
        "-o volume=NAME is of --local; a server's volume is named SERVER/VOLUME"));
  }
  ClientOptions client_options;
  client_options.config = words.config;
  const size_t slash = options.source.find('/');
  client_options.servers = absl::StrSplit(options.source.substr(0, slash), ',');
  const std::string name = slash == std::string::npos ? "" : options.source.substr(slash + 1);
  if (auto status = CheckNoShard(name); !status.ok()) return Fail(status);

  const auto client = ClientNode::Start(client_options, NameOf(options.directory));
  if (!client.ok()) return Fail(client.status());
  runtime::Node& node = (*client)->node();
  const auto volume = VolumeOf(node, name);
  if (!volume.ok()) return Fail(volume.status());
  words.usual_stack = kServedFilesStack;
  return Show(options, words, *volume, HostOf(node), node.name(), (*client)->config(), daemon);
}

}  // namespace

int Mount(const MountOptions& options) {
  StopOnSignal::Block();
  Daemon daemon;
  if (!options.foreground) {
    // Before the first thread: a fork has one.
    if (const auto done = daemon.Begin(); done.has_value()) return *done;
  }
  return Serve(options, daemon);
}

}  // namespace abacus::apps
