// abacus run grep: the console of a search (paper, section 3). It opens a file of a volume, appends
// the file's object subgraph to its own graph, asks the grep object for chunk after chunk and
// prints them; where the objects run is not its business.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/interrupt.h"
#include "apps/abacus/output.h"
#include "apps/abacus/volume_files.h"
#include "apps/cli/progress.h"
#include "apps/grep/grep_object.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/node/control_client.h"
#include "runtime/node/control_types.h"

namespace abacus::apps {
namespace {

using runtime::MoveEvent;
using runtime::MutexLock;
using runtime::Ref;
using runtime::Rid;

constexpr absl::Duration kExplainDeadline = absl::Seconds(2);

// Moves as the node tells them, until the console's own thread has time for them.
class MoveQueue {
 public:
  void Add(const MoveEvent& event) {
    MutexLock lock(mutex_);
    events_.push_back(event);
  }
  std::vector<MoveEvent> TakeAll() {
    MutexLock lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  runtime::Mutex mutex_;
  std::vector<MoveEvent> events_ ABSL_GUARDED_BY(mutex_);
};

struct Statistics {
  double elapsed_s = 0;
  uint64_t link_bytes = 0;
  uint64_t bytes = 0;
  uint64_t matches = 0;
  std::vector<MoveEvent> moves;  // committed, while the search ran
  std::string explanation;
};

uint64_t LinkBytes(const runtime::Node& node) {
  uint64_t bytes = 0;
  for (const runtime::PeerTraffic& peer : node.Traffic()) {
    bytes += peer.sent_bytes + peer.received_bytes;
  }
  return bytes;
}

class Search {
 public:
  // `volume` and `node` outlive it.
  Search(const RunGrepOptions& options, runtime::Node& node, VolumeFiles& volume)
      : options_(options), node_(node), volume_(volume), where_(node.name()) {}
  ~Search() {
    if (file_ != 0) volume_.files().Release(file_).IgnoreError();
  }

  // Ends with the exit code that grep has.
  absl::StatusOr<int> Run(const std::string& path);
  std::string Json() const;

 private:
  absl::Status Begin(const std::string& path);
  absl::StatusOr<GrepChunk> Next();
  absl::Status AskAll(std::string* diagnostic);
  void TakeMoves();
  void Explain();

  const RunGrepOptions& options_;
  runtime::Node& node_;
  VolumeFiles& volume_;
  objfs::FileHandle file_ = 0;
  std::shared_ptr<MoveQueue> queue_ = std::make_shared<MoveQueue>();
  Ref<Grep> grep_;
  uint64_t file_bytes_ = 0;
  bool placed_by_pin_ = false;  // until the move that a pin at the server begins with is told
  std::string where_;
  std::unique_ptr<Progress> progress_;
  Statistics statistics_;
};

absl::StatusOr<int> Search::Run(const std::string& path) {
  ABACUS_RETURN_IF_ERROR(Begin(path));
  // Only the search itself is the console's activity: the calls that set it up go to other objects,
  // and a graph that branches to them is not the stack that there is to place.
  const runtime::Console console(node_);
  const uint64_t link_bytes = LinkBytes(node_);
  const absl::Time start = absl::Now();
  if (!options_.quiet) {
    Progress::Options shown = Progress::OptionsFor(STDERR_FILENO);
    shown.title = absl::StrCat("grep ", options_.pattern.substr(0, 16), " ", options_.name);
    shown.total_bytes = file_bytes_;
    progress_ = std::make_unique<Progress>(
        shown, start, [](std::string_view text) { WriteAll(STDERR_FILENO, text).IgnoreError(); });
  }
  std::string diagnostic;
  const absl::Status status = AskAll(&diagnostic);
  const absl::Time end = absl::Now();
  statistics_.elapsed_s = absl::ToDoubleSeconds(end - start);
  statistics_.link_bytes = LinkBytes(node_) - link_bytes;
  TakeMoves();
  if (progress_ != nullptr) progress_->Finish(end);
  ABACUS_RETURN_IF_ERROR(status);
  WriteAll(STDERR_FILENO, diagnostic).IgnoreError();
  if (!options_.json.empty()) Explain();
  const bool found = statistics_.matches > 0 || !diagnostic.empty();
  return found ? kExitOk : kExitNo;
}

absl::Status Search::Begin(const std::string& path) {
  ABACUS_ASSIGN_OR_RETURN(const objfs::Node found, volume_.Find(path));
  file_bytes_ = found.size;
  ABACUS_ASSIGN_OR_RETURN(file_, volume_.files().Open(volume_.caller(), found.id, O_RDONLY));
  node_.SetMoveObserver([queue = queue_](const MoveEvent& event) { queue->Add(event); });
  ABACUS_RETURN_IF_ERROR(
      volume_.files().WithSubgraph(file_, [this](const objfs::Subgraph& file) -> absl::Status {
        ABACUS_ASSIGN_OR_RETURN(
            grep_, node_.Create<Grep>(file, options_.pattern, options_.name, options_.block_bytes));
        return absl::OkStatus();
      }));
  if (options_.pin == "client") return node_.Pin(grep_.rid());
  if (options_.pin == "server") {
    placed_by_pin_ = true;
    return node_.Pin(grep_.rid(), volume_.server());
  }
  return absl::OkStatus();
}

absl::StatusOr<GrepChunk> Search::Next() {
  GrepChunk chunk;
  ABACUS_RETURN_IF_ERROR(
      volume_.files().WithSubgraph(file_, [&](const objfs::Subgraph& file) -> absl::Status {
        if (Interrupted()) return absl::CancelledError("interrupted");
        ABACUS_ASSIGN_OR_RETURN(chunk, grep_->Next(file));
        return absl::OkStatus();
      }));
  return chunk;
}

absl::Status Search::AskAll(std::string* diagnostic) {
  for (bool done = false; !done;) {
    ABACUS_ASSIGN_OR_RETURN(GrepChunk chunk, Next());
    ABACUS_RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, chunk.output.view()));
    TakeMoves();
    if (progress_ != nullptr) {
      progress_->Update(absl::Now(), chunk.offset, absl::StrCat("grep is at ", where_));
    }
    statistics_.bytes = chunk.offset;
    statistics_.matches = chunk.matches;
    *diagnostic = std::move(chunk.diagnostic);
    done = chunk.done;
  }
  return absl::OkStatus();
}

void Search::TakeMoves() {
  for (const MoveEvent& event : queue_->TakeAll()) {
    if (std::find(event.rids.begin(), event.rids.end(), grep_.rid()) == event.rids.end()) continue;
    if (event.status.ok()) where_ = event.to_name;
    // A pin's own move is how the search was placed, and none that was made while it ran.
    if (placed_by_pin_ && !event.by_engine) {
      placed_by_pin_ = false;
      continue;
    }
    if (event.status.ok()) statistics_.moves.push_back(event);
    if (progress_ == nullptr) continue;
    progress_->Note(MoveLine(event));
    if (event.status.ok() && !event.reason.empty()) progress_->Note("  " + event.reason);
  }
}

void Search::Explain() {
  std::vector<std::string> why;
  for (const MoveEvent& event : statistics_.moves) {
    if (event.by_engine) why.push_back(event.reason);
  }
  if (why.empty()) {
    runtime::ControlClient server(options_.client.servers.front());
    const auto decisions = server.Explain(grep_.rid(), 1, kExplainDeadline);
    why.push_back(decisions.ok() && !decisions->empty()
                      ? decisions->front().explanation
                      : std::string(decisions.status().message()));
  }
  statistics_.explanation = absl::StrJoin(why, " ");
}

std::string Search::Json() const {
  nlohmann::json moves = nlohmann::json::array();
  for (const MoveEvent& move : statistics_.moves) {
    moves.push_back({{"from", move.from_name},
                     {"to", move.to_name},
                     {"by_engine", move.by_engine},
                     {"predicted_gain_s", absl::ToDoubleSeconds(move.predicted_gain)},
                     {"predicted_cost_s", absl::ToDoubleSeconds(move.predicted_cost)},
                     {"blackout_s", absl::ToDoubleSeconds(move.blackout)},
                     {"state_bytes", move.state_bytes},
                     {"reason", move.reason}});
  }
  const nlohmann::json json{{"file", options_.name},
                            {"pattern", options_.pattern},
                            {"placement", options_.pin.empty() ? "adaptive" : options_.pin},
                            {"bytes", statistics_.bytes},
                            {"elapsed_s", statistics_.elapsed_s},
                            {"link_bytes", statistics_.link_bytes},
                            {"migrations", statistics_.moves.size()},
                            {"matches", statistics_.matches},
                            {"moves", moves},
                            {"explanation", statistics_.explanation}};
  // Patterns are any bytes; JSON takes only text.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

int RunGrep(const RunGrepOptions& options) {
  EndInOrder();
  auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const FileName name = ParseFileName(options.name);
  auto volume = VolumeFiles::Join(**client, name.volume);
  if (!volume.ok()) return Fail(volume.status());
  Search search(options, (*client)->node(), **volume);
  const auto code = search.Run(name.path);
  if (!code.ok()) return Fail(code.status());
  if (options.json.empty()) return *code;
  if (auto status = WriteFile(options.json, search.Json()); !status.ok()) return Fail(status);
  return *code;
}

}  // namespace abacus::apps
