#include "objfs/fuse/mount.h"

#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "objfs/fuse/adapter.h"
#include "objfs/fuse/errno.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kDevice[] = "/dev/fuse";

bool IsRoot() { return geteuid() == 0; }

// Commas separate mount options.
std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {",", "\\,"}});
}

std::string MountOptionText(const Mount::Options& options) {
  std::vector<std::string> parts = {absl::StrCat("fsname=", Escaped(options.name)),
                                    "subtype=abacus", "default_permissions"};
  if (options.allow_other && IsRoot()) parts.emplace_back("allow_other");
  for (const std::string& more : options.more) parts.push_back(Escaped(more));
  return absl::StrJoin(parts, ",");
}

absl::Status CheckDirectory(const std::string& directory) {
  std::error_code error;
  const auto status = std::filesystem::status(directory, error);
  if (error == std::errc::not_connected) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": a mount whose process has ended is on it; unmount it first"));
  }
  if (!std::filesystem::exists(status)) {
    return absl::NotFoundError(absl::StrCat(directory, ": no such directory"));
  }
  if (!std::filesystem::is_directory(status)) {
    return absl::FailedPreconditionError(absl::StrCat(directory, ": not a directory"));
  }
  if (!std::filesystem::exists(kDevice, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("no ", kDevice, ": this kernel has no FUSE, or this container hides it"));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const Mount::Options& options) {
  if (options.threads == 0 || options.background_max == 0 || options.request_bytes_max < 4096 ||
      options.request_bytes_max > (1 << 20)) {
    return absl::InvalidArgumentError(
        "a mount has a thread and a request at least, and requests of 4 KiB to 1 MiB");
  }
  return absl::OkStatus();
}

// Only through /sys can it be more than the kernel's own default. statx() asks no request of us.
void SetReadAhead(const std::string& directory, unsigned bytes) {
  struct statx found = {};
  if (statx(AT_FDCWD, directory.c_str(), AT_STATX_DONT_SYNC, 0, &found) != 0) return;
  std::ofstream(absl::StrCat("/sys/class/bdi/", found.stx_dev_major, ":", found.stx_dev_minor,
                             "/read_ahead_kb"))
      << bytes / 1024;
}

}  // namespace

struct Mount::Impl {
  Impl(FileSystem& files, Options options) : adapter(files, std::move(options)) {}
  ~Impl() {
    if (session == nullptr) return;
    fuse_session_unmount(session);
    fuse_session_destroy(session);
  }

  absl::Status Begin(const std::string& directory);
  void ServeFirstRequest(const std::string& directory);
  int Loop();
  void EndLoopWhenAsked(const std::string& directory);
  void EndLoop(const std::string& directory);

  fuse::Adapter adapter;
  fuse_session* session = nullptr;  // constant after Begin()

  runtime::Mutex mutex;
  runtime::CondVar changed;
  bool stop ABSL_GUARDED_BY(mutex) = false;   // asked for
  bool ended ABSL_GUARDED_BY(mutex) = false;  // the loop
};

absl::Status Mount::Impl::Begin(const std::string& directory) {
  std::string program = "abacus", flag = "-o", text = MountOptionText(adapter.options());
  char* words[] = {program.data(), flag.data(), text.data()};
  fuse_args args = FUSE_ARGS_INIT(3, words);
  session = fuse_session_new(&args, &fuse::Operations(), sizeof(fuse_lowlevel_ops), &adapter);
  fuse_opt_free_args(&args);
  if (session == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("mount options: ", text));
  }
  adapter.SetSession(session);
  if (fuse_session_mount(session, directory.c_str()) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(directory, ": cannot be mounted; what the system said is on stderr"));
  }
  return absl::OkStatus();
}

// The kernel's first request settles how we talk, and with it how far it reads ahead: what is set
// before would be gone.
void Mount::Impl::ServeFirstRequest(const std::string& directory) {
  fuse_buf request = {};
  if (fuse_session_receive_buf(session, &request) > 0) fuse_session_process_buf(session, &request);
  std::free(request.mem);
  SetReadAhead(directory, adapter.options().read_ahead_bytes);
}

int Mount::Impl::Loop() {
  fuse_loop_config* const config = fuse_loop_cfg_create();
  fuse_loop_cfg_set_max_threads(config, adapter.options().threads);
  const int result = fuse_session_loop_mt(session, config);
  fuse_loop_cfg_destroy(config);
  return result;
}

// Runs on a thread of its own beside the loop: its system calls are answered by the loop.
void Mount::Impl::EndLoopWhenAsked(const std::string& directory) {
  {
    runtime::MutexLock lock(mutex);
    while (!stop && !ended) changed.Wait(mutex);
    if (ended) return;
  }
  EndLoop(directory);
}

void Mount::Impl::EndLoop(const std::string& directory) {
  int place = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (place >= 0) {
    syncfs(place);  // what fails is told to who has the file open
  } else {
    place = open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  }
  // While requests are still served: an answer may wait for them (LockWaits).
  adapter.lock_waits().Pause();
  // The loop looks whether it is to end after each request: here is one. Where all threads are
  // busy, the first that is done ends the loop, and then the connection and this request.
  fuse_session_exit(session);
  struct statfs unused = {};
  fstatfs(place, &unused);
  close(place);
}

absl::StatusOr<std::unique_ptr<Mount>> Mount::Make(FileSystem& files, std::string directory,
                                                   Options options) {
  ABACUS_RETURN_IF_ERROR(CheckOptions(options));
  ABACUS_RETURN_IF_ERROR(CheckDirectory(directory));
  std::error_code error;
  const auto whole = std::filesystem::canonical(directory, error);
  if (error) return absl::NotFoundError(absl::StrCat(directory, ": ", error.message()));

  auto impl = std::make_unique<Impl>(files, std::move(options));
  ABACUS_RETURN_IF_ERROR(impl->Begin(whole.string()));
  return std::unique_ptr<Mount>(new Mount(whole.string(), std::move(impl)));
}

Mount::Mount(std::string directory, std::unique_ptr<Impl> impl)
    : directory_(std::move(directory)), impl_(std::move(impl)) {}

Mount::~Mount() = default;

absl::Status Mount::Run() {
  const uint64_t keeper =
      impl_->adapter.options().exclusive
          ? 0
          : impl_->adapter.files().AddKeeper(
                [&adapter = impl_->adapter](ObjectId file, std::function<void()> done) {
                  adapter.ForgetPagesSoon(file, std::move(done));
                });
  std::thread closer([this] { impl_->EndLoopWhenAsked(directory_); });
  impl_->ServeFirstRequest(directory_);
  const int result = impl_->Loop();
  {
    runtime::MutexLock lock(impl_->mutex);
    impl_->ended = true;
    impl_->changed.SignalAll();
  }
  // Where the loop ended by itself, the kernel has failed all requests, and no answer waits for
  // one.
  fuse::LockWaits& waits = impl_->adapter.lock_waits();
  waits.Pause();
  // Ends the connection, which fails what still waits for an answer; so it precedes the join.
  fuse_session_unmount(impl_->session);
  closer.join();
  impl_->adapter.ForgetSession();
  waits.Resume();
  if (keeper != 0) impl_->adapter.files().RemoveKeeper(keeper);
  // Their answers reach nobody any more, but they must not come after the session's end.
  waits.CancelAll();
  if (fuse::IsEndOfConnection(result)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(directory_, ": the connection with the kernel ended with ", result));
}

void Mount::Stop() {
  runtime::MutexLock lock(impl_->mutex);
  impl_->stop = true;
  impl_->changed.SignalAll();
}

// -- unmounting
// ------------------------------------------------------------------------------------

namespace {

bool RunFusermount(const std::string& directory, bool lazily) {
  std::vector<std::string> words = {"fusermount3", "-u", "-q"};
  if (lazily) words.emplace_back("-z");
  words.insert(words.end(), {"--", directory});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) {
    return false;
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

absl::Status Unmount(const std::string& directory, bool lazily) {
  const int flags = UMOUNT_NOFOLLOW | (lazily ? MNT_DETACH : 0);
  const bool done =
      IsRoot() ? umount2(directory.c_str(), flags) == 0 : RunFusermount(directory, lazily);
  if (done) return absl::OkStatus();
  if (IsRoot() && fuse::LastCallFoundNothing()) {
    return absl::NotFoundError(absl::StrCat(directory, ": there is no such directory"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(directory, ": not unmounted: it is in use, or no mount is there"));
}

}  // namespace abacus::objfs
