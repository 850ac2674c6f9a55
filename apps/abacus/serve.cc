// abacus serve: a storage server.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/log_setup.h"
#include "apps/abacus/monitor_of.h"
#include "apps/abacus/output.h"
#include "apps/abacus/scrub.h"
#include "apps/abacus/volumes.h"
#include "runtime/base/status.h"
#include "runtime/node/node.h"

namespace abacus::apps {
namespace {

// The data plane's address beside a control address: the next port, or any where that is any.
absl::StatusOr<std::string> DataAddressBeside(const std::string& control) {
  const size_t colon = control.rfind(':');
  int port = 0;
  const char* end = control.data() + control.size();
  if (colon == std::string::npos || colon == 0 || colon + 1 == control.size() ||
      std::from_chars(control.data() + colon + 1, end, port).ptr != end || port < 0 ||
      port > 65534) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen takes HOST:PORT (the data plane listens at the next port), not '", control, "'"));
  }
  return absl::StrCat(control.substr(0, colon + 1), port == 0 ? 0 : port + 1);
}

absl::StatusOr<runtime::NodeOptions> OptionsOf(const ServeOptions& options) {
  runtime::NodeOptions node;
  node.server = true;
  ABACUS_ASSIGN_OR_RETURN(node.config, ConfigOf(options.config));
  runtime::Config::Node& config = node.config.node;
  if (!options.data.empty()) config.data_dir = options.data;
  if (!options.name.empty()) config.name = options.name;
  if (!options.listen.empty()) {
    config.control_address = options.listen;
    ABACUS_ASSIGN_OR_RETURN(config.data_address, DataAddressBeside(options.listen));
  }
  if (config.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "a server keeps its files in a directory: name one with --data DIR, or as node.data_dir in "
        "the configuration");
  }
  ABACUS_RETURN_IF_ERROR(SetUpLog(node.config.log));
  return node;
}

absl::Status TellReady(const ServeOptions& options, const std::string& address) {
  const std::string line = address + "\n";
  if (options.ready_fd >= 0) {
    ABACUS_RETURN_IF_ERROR(WriteAll(options.ready_fd, line));
    close(options.ready_fd);
  }
  return options.ready_file.empty() ? absl::OkStatus() : WriteFile(options.ready_file, line);
}

// The engine's constants and the cache's can be changed while they work; a file with a mistake
// changes nothing.
void Reconfigure(const ServeOptions& options, runtime::Node& node, objfs::BlockPool& cache) {
  absl::StatusOr<runtime::Config> config = ConfigOf(options.config);
  const absl::Status status = config.ok() ? node.Reconfigure(*config) : config.status();
  if (status.ok()) {
    cache.SetBudget(config->cache.memory, config->cache.dirty_share);
    fprintf(stderr, "abacus: [placement], [planner] and [cache] are taken over\n");
  } else {
    fprintf(stderr, "abacus: the configuration stays as it was: %s\n",
            std::string(status.message()).c_str());
  }
}

}  // namespace

int Serve(const ServeOptions& options) {
  // Before the first thread: all of them leave these signals to this one.
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGINT);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &stops, nullptr);

  const auto node_options = OptionsOf(options);
  if (!node_options.ok()) return Fail(node_options.status());
  const std::string& data_dir = node_options->config.node.data_dir;
  const std::shared_ptr<objfs::BlockPool> cache = CacheOf(node_options->config.cache);
  const runtime::ObjectTypes types = Classes(cache);
  auto monitor = MonitorOf(node_options->config);
  if (!monitor.ok()) return Fail(monitor.status());
  auto node = runtime::Node::Start(*node_options, types, *std::move(monitor));
  if (!node.ok()) return Fail(node.status());
  {
    const auto volumes =
        PublishVolumes(**node, data_dir + "/volumes", {.lease = absl::Seconds(options.lease_s)});
    if (!volumes.ok()) return Fail(volumes.status());
    const runtime::Config::Scrub& scrub = node_options->config.scrub;
    (*node)->Publish(kScrubsName,
                     (*node)
                         ->binding()
                         .Adopt(std::make_unique<ScrubStates>(data_dir + "/volumes", scrub.every))
                         .rid());
    std::optional<ScrubSchedule> schedule(std::in_place, **node, *volumes, data_dir + "/volumes",
                                          scrub);
    printf("abacus server %s is ready at %s, its files are in %s\n", (*node)->name().c_str(),
           (*node)->control_address().c_str(), data_dir.c_str());
    fflush(stdout);
    if (auto status = TellReady(options, (*node)->control_address()); !status.ok()) {
      return Fail(status);
    }
    for (int signal = SIGHUP; signal == SIGHUP;) {
      sigwait(&stops, &signal);
      if (signal == SIGHUP) Reconfigure(options, **node, *cache);
    }
    // A second signal ends the process at once, should the first not succeed.
    pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
    fprintf(stderr, "abacus: stopping\n");
    schedule.reset();
    // While its copies can be reached: to a node that stops they look as if they were away.
    (*volumes)->LetGo().IgnoreError();
    (*node)->Stop();
  }
  return kExitOk;
}

}  // namespace abacus::apps
