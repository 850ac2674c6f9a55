#include "objfs/fuse/testing/bench_mounts.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace abacus::objfs::testing {
namespace {

constexpr std::chrono::seconds kComesUpIn{20};

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A process; ended with the object, by a signal first.
class Child {
 public:
  // Its output goes to `log`. `end_signal`: that it ends by.
  Child(const std::vector<std::string>& words, std::string log, int end_signal = SIGTERM)
      : log_(std::move(log)), end_signal_(end_signal) {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int out = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out, 1);
    dup2(out, 2);
    execvp(argv[0], argv.data());
    std::perror(argv[0]);
    _exit(127);
  }
  ~Child() {
    if (pid_ <= 0 || ended_) return;
    kill(pid_, end_signal_);
    if (!EndsIn(std::chrono::seconds(10))) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  bool Running() {
    if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return !ended_;
  }
  bool EndsIn(std::chrono::seconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (Running() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return ended_;
  }
  int Wait() {
    if (!ended_) waitpid(pid_, &status_, 0);
    ended_ = true;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  // Until `is_up`. Errors: kUnavailable.
  absl::Status ComesUp(const std::function<bool()>& is_up) {
    const auto until = std::chrono::steady_clock::now() + kComesUpIn;
    while (!is_up()) {
      if (!Running() || std::chrono::steady_clock::now() > until) {
        return absl::UnavailableError(
            absl::StrCat(Running() ? "it does not come up: " : "it ended: ", TextOf(log_)));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return absl::OkStatus();
  }

 private:
  const std::string log_;
  const int end_signal_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

bool IsMountPoint(const std::string& path) {
  struct stat here = {}, above = {};
  return stat(path.c_str(), &here) == 0 && stat((path + "/..").c_str(), &above) == 0 &&
         here.st_dev != above.st_dev;
}

class NativeDirectory final : public BenchMount {
 public:
  explicit NativeDirectory(std::string path) : path_(std::move(path)) {}
  std::string path() const override { return path_; }

 private:
  const std::string path_;
};

// Processes begun one after the other, the last of which serves `path`. What they kept goes with
// it.
class ServedDirectory final : public BenchMount {
 public:
  ServedDirectory(const BenchPlace& place, const std::string& name)
      : folder_(absl::StrCat(place.folder, "/", name)), path_(folder_ + "/mount") {
    std::filesystem::create_directories(path_);
  }
  ~ServedDirectory() override {
    umount2(path_.c_str(), MNT_DETACH);
    if (!children_.empty()) children_.back()->EndsIn(std::chrono::seconds(10));
    while (!children_.empty()) children_.pop_back();
    std::filesystem::remove_all(folder_);
  }
  std::string path() const override { return path_; }
  pid_t server() const override { return children_.back()->pid(); }
  std::vector<pid_t> servers() const override {
    std::vector<pid_t> pids;
    for (size_t i = 0; i + 1 < children_.size(); ++i) pids.push_back(children_[i]->pid());
    return pids;
  }
  std::vector<std::string> addresses() const override { return addresses_; }

  std::string Under(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  absl::Status Begin(const std::vector<std::string>& words, const std::function<bool()>& is_up) {
    children_.push_back(
        std::make_unique<Child>(words, Under(absl::StrCat("log", children_.size()))));
    return children_.back()->ComesUp(is_up);
  }
  absl::Status BeginMount(const std::vector<std::string>& words) {
    return Begin(words, [this] { return IsMountPoint(path_); });
  }
  // `abacus serve`. Returns its address.
  absl::StatusOr<std::string> BeginServer(const std::string& program) {
    const std::string name = absl::StrCat("server", children_.size());
    const std::string ready = Under(name + ".ready"), config = Under(name + ".toml");
    std::ofstream(config) << "[node]\nname = \"" << name
                          << "\"\ndata_address = \"unix:" << Under(name + ".socket") << "\"\n";
    absl::Status begun = Begin({program, "serve", "--config", config, "--data", Under(name),
                                "--listen", "127.0.0.1:0", "--ready-file", ready},
                               [&] { return !TextOf(ready).empty(); });
    if (!begun.ok()) return begun;
    addresses_.emplace_back(absl::StripAsciiWhitespace(TextOf(ready)));
    return addresses_.back();
  }

 private:
  const std::string folder_, path_;
  std::vector<std::unique_ptr<Child>> children_;
  std::vector<std::string> addresses_;  // of those that are servers
};

absl::StatusOr<std::unique_ptr<BenchMount>> OrError(const absl::Status& begun,
                                                    std::unique_ptr<ServedDirectory> mount) {
  if (!begun.ok()) return begun;
  return mount;
}

std::vector<std::string> WithStack(std::vector<std::string> words, const std::string& stack) {
  if (!stack.empty()) words.insert(words.end(), {"-o", "stack=" + stack});
  return words;
}

// glusterd keeps its state in fixed folders of the machine, and takes no brick on a loopback
// address: it gets namespaces in which these folders are empty and lo has an address of its own.
class GlusterDirectory final : public BenchMount {
 public:
  explicit GlusterDirectory(const BenchPlace& place)
      : folder_(place.folder + "/gluster"), path_(folder_ + "/mount") {
    std::filesystem::create_directories(path_);
  }
  ~GlusterDirectory() override {
    umount2(path_.c_str(), MNT_DETACH);
    if (client_ != nullptr) client_->EndsIn(std::chrono::seconds(10));
    client_.reset();
    daemon_.reset();  // and all processes in its namespace, the brick's among them
    std::filesystem::remove_all(folder_);
  }
  std::string path() const override { return path_; }
  pid_t server() const override { return client_->pid(); }

  absl::Status Begin(size_t bricks) {
    if (geteuid() != 0) return absl::PermissionDeniedError("its server has to be run by root");
    if (auto status = RunProgram({"which", "glusterd", "gluster", "glusterfs", "ip"});
        !status.ok()) {
      return absl::NotFoundError("apt-get install glusterfs-server iproute2");
    }
    const std::string script = absl::StrCat(
        "for d in /var/lib/glusterd /var/log/glusterfs /var/run; do mount -t tmpfs none $d; done "
        "&& ",
        "mkdir -p /var/run/gluster && ip link set lo up && ip address add ", kAddress,
        "/32 dev lo && exec glusterd --no-daemon");
    daemon_ = std::make_unique<Child>(
        std::vector<std::string>{"unshare", "--net", "--mount", "--pid", "--kill-child",
                                 "--mount-proc", "sh", "-c", script},
        folder_ + "/daemon.log", SIGKILL);  // unshare(1) holds SIGTERM back
    const auto answers = [this] { return Gluster({"volume", "list"}).ok(); };
    if (auto status = daemon_->ComesUp(answers); !status.ok()) return status;
    std::vector<std::string> create = {"volume", "create", kVolume};
    if (bricks > 1) {
      create.insert(create.end(), {"disperse-data", absl::StrCat(bricks - 1), "redundancy", "1"});
    }
    for (size_t i = 0; i < bricks; ++i) {
      const std::string brick = absl::StrCat(folder_, "/brick", i);
      std::filesystem::create_directories(brick);
      create.push_back(absl::StrCat(kAddress, ":", brick));
    }
    create.push_back("force");
    if (auto status = Gluster(create); !status.ok()) return status;
    if (auto status = Gluster({"volume", "start", kVolume}); !status.ok()) return status;
    client_ = std::make_unique<Child>(
        Inside({"--net=%net"},
               {"glusterfs", "--no-daemon", "--log-file=" + folder_ + "/client.gluster.log",
                absl::StrCat("--volfile-server=", kAddress), absl::StrCat("--volfile-id=", kVolume),
                path_}),
        folder_ + "/client.log");
    return client_->ComesUp([this] { return IsMountPoint(path_); });
  }

 private:
  static constexpr char kVolume[] = "abacus-benchmark", kAddress[] = "10.255.37.1";

  // A program in namespaces of the server's.
  std::vector<std::string> Inside(std::vector<std::string> options,
                                  const std::vector<std::string>& words) const {
    for (std::string& option : options) {
      option = absl::StrReplaceAll(option, {{"%", absl::StrCat("/proc/", daemon_->pid(), "/ns/")}});
    }
    options.insert(options.begin(), "nsenter");
    options.insert(options.end(), words.begin(), words.end());
    return options;
  }
  absl::Status Gluster(std::vector<std::string> words) const {
    words.insert(words.begin(), {"gluster", "--mode=script"});
    return RunProgram(Inside({"--mount=%mnt", "--pid=%pid_for_children"}, words));
  }

  const std::string folder_, path_;
  std::unique_ptr<Child> daemon_, client_;
};

}  // namespace

uint64_t RaiseOpenFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  rlim_t most = limit.rlim_max;
  if (geteuid() == 0) std::ifstream("/proc/sys/fs/nr_open") >> most;
  rlimit raised{.rlim_cur = most, .rlim_max = std::max(most, limit.rlim_max)};
  // Root of a container may be refused more than its hard limit.
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) {
    raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) != 0) raised = limit;
  }
  return raised.rlim_cur;
}

absl::Status RunProgram(const std::vector<std::string>& words) {
  char log[] = "/tmp/abacus-benchmark-XXXXXX";
  const int fd = mkstemp(log);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a file for the output");
  close(fd);
  Child child(words, log);
  const int code = child.Wait();
  const std::string said = TextOf(log);
  unlink(log);
  if (code == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(absl::StrJoin(words, " "), ": ", said));
}

std::unique_ptr<BenchMount> BenchNative(const BenchPlace& place) {
  const std::string path = place.folder + "/native";
  std::filesystem::create_directories(path);
  return std::make_unique<NativeDirectory>(path);
}

absl::StatusOr<std::unique_ptr<BenchMount>> BenchNull(const BenchPlace& place, uint64_t bytes) {
  auto mount = std::make_unique<ServedDirectory>(place, "null");
  const absl::Status begun =
      mount->BeginMount({place.self, "--serve-null", mount->path(), absl::StrCat(bytes)});
  return OrError(begun, std::move(mount));
}

absl::StatusOr<std::unique_ptr<BenchMount>> BenchPassThrough(const BenchPlace& place) {
  auto mount = std::make_unique<ServedDirectory>(place, "pass-through");
  const std::string source = mount->Under("source");
  std::filesystem::create_directories(source);
  const absl::Status begun =
      mount->BeginMount({place.self, "--serve-pass-through", mount->path(), source});
  return OrError(begun, std::move(mount));
}

absl::StatusOr<std::unique_ptr<BenchMount>> BenchLocal(const BenchPlace& place,
                                                       const std::string& stack) {
  auto mount = std::make_unique<ServedDirectory>(place, "local");
  const absl::Status begun = mount->BeginMount(WithStack(
      {place.program, "mount", "--foreground", "--local", mount->Under("store"), mount->path()},
      stack));
  return OrError(begun, std::move(mount));
}

absl::StatusOr<std::unique_ptr<BenchMount>> BenchRemote(const BenchPlace& place,
                                                        const std::string& stack,
                                                        const std::string& option) {
  auto mount = std::make_unique<ServedDirectory>(place, "remote");
  const auto address = mount->BeginServer(place.program);
  if (!address.ok()) return address.status();
  const absl::Status made =
      RunProgram({place.program, "volume", "create", kBenchVolume, "--server", *address});
  if (!made.ok()) return made;
  std::vector<std::string> words =
      WithStack({place.program, "mount", "--foreground", absl::StrCat(*address, "/", kBenchVolume),
                 mount->path()},
                stack.empty() ? "isolation/storage" : stack);
  if (!option.empty()) words.insert(words.end(), {"-o", option});
  const absl::Status begun = mount->BeginMount(words);
  return OrError(begun, std::move(mount));
}

absl::StatusOr<std::unique_ptr<BenchMount>> BenchSpread(const BenchPlace& place, size_t servers,
                                                        const std::string& stack, size_t spares) {
  auto mount = std::make_unique<ServedDirectory>(place, "spread");
  std::vector<std::string> addresses;
  for (size_t i = 0; i < servers + spares; ++i) {
    const auto address = mount->BeginServer(place.program);
    if (!address.ok()) return address.status();
    if (i < servers) addresses.push_back(*address);
  }
  const absl::Status made = RunProgram({place.program, "volume", "create", kBenchVolume,
                                        "--servers", absl::StrJoin(addresses, ",")});
  if (!made.ok()) return made;
  const absl::Status begun =
      mount->BeginMount(WithStack({place.program, "mount", "--foreground",
                                   absl::StrCat(addresses[0], "/", kBenchVolume), mount->path()},
                                  stack));
  return OrError(begun, std::move(mount));
}

absl::StatusOr<std::unique_ptr<BenchMount>> BenchGluster(const BenchPlace& place, size_t bricks) {
  auto mount = std::make_unique<GlusterDirectory>(place);
  if (auto status = mount->Begin(bricks); !status.ok()) return status;
  return mount;
}

}  // namespace abacus::objfs::testing
