#include "apps/abacus/run_console.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "apps/abacus/interrupt.h"
#include "apps/abacus/output.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/node/control_client.h"
#include "runtime/node/control_types.h"

namespace abacus::apps {
namespace {

constexpr absl::Duration kExplainDeadline = absl::Seconds(2);

uint64_t LinkBytes(const runtime::Node& node) {
  uint64_t bytes = 0;
  for (const runtime::PeerTraffic& peer : node.Traffic()) {
    bytes += peer.sent_bytes + peer.received_bytes;
  }
  return bytes;
}

}  // namespace

// Moves as the node tells them, until the console's own thread has time for them.
class RunConsole::MoveQueue {
 public:
  void Add(const runtime::MoveEvent& event) {
    runtime::MutexLock lock(mutex_);
    events_.push_back(event);
  }
  std::vector<runtime::MoveEvent> TakeAll() {
    runtime::MutexLock lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  runtime::Mutex mutex_;
  std::vector<runtime::MoveEvent> events_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<RunConsole>> RunConsole::Start(const std::string& what,
                                                              const RunOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes > kBlockBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("--block: a block of ", options.block_bytes,
                                                   " bytes: it must have 1 to ", kBlockBytesMax));
  }
  EndInOrder();
  ABACUS_ASSIGN_OR_RETURN(std::unique_ptr<ClientNode> client, ClientNode::Start(options.client));
  return std::unique_ptr<RunConsole>(new RunConsole(what, options, std::move(client)));
}

RunConsole::RunConsole(const std::string& what, const RunOptions& options,
                       std::unique_ptr<ClientNode> client)
    : what_(what),
      options_(options),
      client_(std::move(client)),
      queue_(std::make_shared<MoveQueue>()),
      where_(node().name()) {
  node().SetMoveObserver([queue = queue_](const runtime::MoveEvent& event) { queue->Add(event); });
}

RunConsole::~RunConsole() {
  for (const OpenFile& file : files_) file.volume->files().Release(file.handle).IgnoreError();
}

absl::StatusOr<size_t> RunConsole::Open(const std::string& name) {
  const FileName parsed = ParseFileName(name);
  std::unique_ptr<VolumeFiles>& volume = volumes_[parsed.volume];
  if (volume == nullptr) {
    ABACUS_ASSIGN_OR_RETURN(volume, VolumeFiles::Join(*client_, parsed.volume));
  }
  ABACUS_ASSIGN_OR_RETURN(const objfs::Node found, volume->Find(parsed.path));
  const absl::StatusOr<objfs::FileHandle> handle =
      volume->files().Open(volume->caller(), found.id, O_RDONLY);
  if (!handle.ok()) {
    return absl::Status(handle.status().code(),
                        absl::StrCat("'", name, "' cannot be opened: ", handle.status().message()));
  }
  files_.push_back({.volume = volume.get(), .handle = *handle, .bytes = found.size});
  return files_.size() - 1;
}

uint64_t RunConsole::bytes() const {
  uint64_t bytes = 0;
  for (const OpenFile& file : files_) bytes += file.bytes;
  return bytes;
}

absl::Status RunConsole::With(
    size_t file, absl::FunctionRef<absl::Status(const objfs::Subgraph& subgraph)> call) {
  const OpenFile& open = files_[file];
  return open.volume->files().WithSubgraph(
      open.handle, [call](const objfs::Subgraph& subgraph) { return call(subgraph); });
}

absl::Status RunConsole::Follow(const runtime::Rid& rid) {
  followed_ = rid;
  if (options_.pin == "client") return node().Pin(rid);
  if (options_.pin != "server") return absl::OkStatus();
  const runtime::NodeId server = files_.front().volume->server();
  for (const OpenFile& file : files_) {
    if (file.volume->server() == server) continue;
    return absl::InvalidArgumentError(
        "--pin server: these files are of several servers, and one object is at one of them; name "
        "those of each server in a command of their own");
  }
  placed_by_pin_ = true;
  const absl::Status pinned = node().Pin(rid, server);
  if (pinned.ok()) return pinned;
  return absl::Status(pinned.code(),
                      absl::StrCat("--pin server cannot be had: ", pinned.message()));
}

void RunConsole::ShowProgress(const std::string& title, absl::Time start) {
  Progress::Options shown = Progress::OptionsFor(STDERR_FILENO);
  shown.title = title;
  shown.total_bytes = bytes();
  progress_ = std::make_unique<Progress>(
      shown, start, [](std::string_view text) { WriteAll(STDERR_FILENO, text).IgnoreError(); });
}

absl::Status RunConsole::Run(const std::string& title, absl::FunctionRef<absl::Status()> work) {
  // Only the work itself is the console's activity: the calls that set it up go to other objects,
  // and a graph that branches to them is not the stack that there is to place.
  const runtime::Console console(node());
  const uint64_t link_bytes = LinkBytes(node());
  const absl::Time start = absl::Now();
  if (!options_.quiet) ShowProgress(title, start);
  const absl::Status status = work();
  const absl::Time end = absl::Now();
  elapsed_s_ = absl::ToDoubleSeconds(end - start);
  link_bytes_ = LinkBytes(node()) - link_bytes;
  TakeMoves();
  if (progress_ != nullptr) progress_->Finish(end);
  if (status.ok() && !options_.json.empty()) Explain();
  return status;
}

absl::Status RunConsole::ReadThrough(size_t file, Next next) {
  const uint64_t before = bytes_read_;
  for (bool done = false; !done;) {
    RunStep step;
    ABACUS_RETURN_IF_ERROR(With(file, [&](const objfs::Subgraph& subgraph) -> absl::Status {
      if (Interrupted()) return absl::CancelledError("interrupted");
      ABACUS_ASSIGN_OR_RETURN(step, next(subgraph));
      return absl::OkStatus();
    }));
    ABACUS_RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, step.output.view()));
    TakeMoves();
    bytes_read_ = before + step.offset;
    if (progress_ != nullptr) {
      progress_->Update(absl::Now(), bytes_read_, absl::StrCat(what_, " is at ", where_));
    }
    done = step.done;
  }
  return absl::OkStatus();
}

void RunConsole::TakeMoves() {
  for (const runtime::MoveEvent& event : queue_->TakeAll()) {
    if (std::find(event.rids.begin(), event.rids.end(), followed_) == event.rids.end()) continue;
    if (event.status.ok()) where_ = event.to_name;
    // A pin's own move is how the object was placed, and none that was made while it ran.
    if (placed_by_pin_ && !event.by_engine) {
      placed_by_pin_ = false;
      continue;
    }
    if (event.status.ok()) moves_.push_back(event);
    if (progress_ == nullptr) continue;
    progress_->Note(MoveLine(event));
    if (event.status.ok() && !event.reason.empty()) progress_->Note("  " + event.reason);
  }
}

void RunConsole::Explain() {
  std::vector<std::string> why;
  for (const runtime::MoveEvent& event : moves_) {
    if (event.by_engine) why.push_back(event.reason);
  }
  if (why.empty()) {
    runtime::ControlClient server(options_.client.servers.front());
    const auto decisions = server.Explain(followed_, 1, kExplainDeadline);
    why.push_back(decisions.ok() && !decisions->empty()
                      ? decisions->front().explanation
                      : std::string(decisions.status().message()));
  }
  explanation_ = absl::StrJoin(why, " ");
}

absl::Status RunConsole::WriteJson(const std::string& own) const {
  if (options_.json.empty()) return absl::OkStatus();
  nlohmann::json moves = nlohmann::json::array();
  for (const runtime::MoveEvent& move : moves_) {
    moves.push_back({{"from", move.from_name},
                     {"to", move.to_name},
                     {"by_engine", move.by_engine},
                     {"predicted_gain_s", absl::ToDoubleSeconds(move.predicted_gain)},
                     {"predicted_cost_s", absl::ToDoubleSeconds(move.predicted_cost)},
                     {"blackout_s", absl::ToDoubleSeconds(move.blackout)},
                     {"state_bytes", move.state_bytes},
                     {"reason", move.reason}});
  }
  nlohmann::json json = nlohmann::json::parse(own);
  json["placement"] = options_.pin.empty() ? "adaptive" : options_.pin;
  json["bytes"] = bytes_read_;
  json["elapsed_s"] = elapsed_s_;
  json["link_bytes"] = link_bytes_;
  json["migrations"] = moves_.size();
  json["moves"] = moves;
  json["explanation"] = explanation_;
  return WriteFile(options_.json,
                   json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace abacus::apps
