#include "experiments/lab/client.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "apps/abacus/volumes.h"
#include "apps/column_aggregate/column_aggregate.h"
#include "apps/directory_insert/directory_insert.h"
#include "apps/grep/grep_object.h"
#include "apps/word_count/word_count.h"
#include "experiments/lab/recorder.h"
#include "objfs/directory/directory.h"
#include "objfs/fs/error.h"
#include "objfs/fs/file_system.h"
#include "runtime/base/status.h"
#include "runtime/node/control_client.h"

namespace abacus::lab {
namespace {

using nlohmann::json;
using runtime::Ref;
using runtime::Rid;

constexpr absl::Duration kExplainDeadline = absl::Seconds(10);
constexpr size_t kObjectsMax = 10'000;
// What was called before a job that is placed freely has left the engine's window by then.
constexpr int kRestWindows = 2;
const objfs::Caller kRoot{.checked = true};

// A line to whoever started this process; of several threads' none is torn.
void Tell(const std::string& line) {
  printf("%s\n", line.c_str());
  fflush(stdout);
}

class Client {
 public:
  // `lab` outlives it.
  Client(LabNode& lab, const std::vector<std::string>& servers, const Job& job)
      : lab_(lab), servers_(servers), job_(job) {}
  ~Client() {
    lab_.node().SetMoveObserver({});
    if (file_ != 0) files_->Release(file_).IgnoreError();
  }

  absl::Status SetUp();
  absl::Status Run();
  json Result();

 private:
  // An object that the job is about, and that may move.
  void Follow(const Rid& rid, const std::string& class_name) { followed_[rid] = class_name; }
  // Puts what is followed where the job's placement says.
  absl::Status Place(Placement placement);
  absl::Status JoinVolume();
  absl::Status OpenFile(int flags);
  absl::Status SetUpFilter();
  absl::Status SetUpTable();
  absl::Status SetUpDirectory();
  absl::Status SetUpStream();
  absl::Status SetUpGrep();
  absl::Status SetUpWordCount();
  absl::Status SetUpAggregate();
  absl::Status RunNull();
  absl::Status RunFilter();
  absl::Status RunTable();
  absl::Status RunDirectory();
  absl::Status RunStream();
  absl::Status RunGrep();
  absl::Status RunWordCount();
  absl::Status RunAggregate();
  // Reads the file through. `next` has an object take the next chunk, and tells whether it was the
  // last one.
  absl::Status ReadThrough(
      absl::FunctionRef<absl::StatusOr<bool>(const objfs::Subgraph& file)> next);
  std::string NameOf(const std::string& node) const {
    return node == lab_.node().name() ? "client" : "server";
  }
  json Moves();
  json Explanations();

  LabNode& lab_;
  const std::vector<std::string>& servers_;
  const Job& job_;
  Recorder recorder_;
  runtime::NodeId server_node_ = 0;
  std::unique_ptr<objfs::FileSystem> files_;
  objfs::FileHandle file_ = 0;
  objfs::ObjectId directory_ = 0;
  Ref<objfs::Directory> directory_object_;
  Ref<apps::Filter> filter_;
  Ref<apps::Grep> grep_;
  Ref<apps::WordCount> word_count_;
  Ref<apps::ColumnAggregate> aggregate_;
  std::map<Rid, std::string> followed_;
  Rid console_;  // of a job that has one of its own
  std::vector<apps::PhaseResult> phases_;
  uint64_t begin_retries_ = 0;
  json extra_ = json::object();
};

absl::Status Client::JoinVolume() {
  runtime::Node& node = lab_.node();
  ABACUS_ASSIGN_OR_RETURN(const auto volume, apps::VolumeOf(node, kVolume));
  server_node_ = volume.rid().home.node;
  objfs::FileSystem::Host host = apps::HostOf(node);
  host.layers.make = [this, make = host.layers.make](const objfs::LayerKind& kind,
                                                     const auto& below, const auto& options,
                                                     size_t place) {
    auto made = make(kind, below, options, place);
    if (made.ok()) Follow(made->rid(), kind.class_name);
    return made;
  };
  host.make_directory = [this, make = host.make_directory](const auto&... arguments) {
    auto made = make(arguments...);
    if (made.ok()) directory_object_ = *made;
    return made;
  };
  ABACUS_ASSIGN_OR_RETURN(files_, objfs::FileSystem::Make(volume, apps::Kinds(), std::move(host),
                                                          {.client = node.name()}));
  return absl::OkStatus();
}

absl::Status Client::Place(Placement placement) {
  if (placement == Placement::kAdaptive) return absl::OkStatus();
  for (const auto& [rid, class_name] : followed_) {
    const bool there =
        placement == Placement::kServer && (job_.only.empty() || job_.only == class_name);
    ABACUS_RETURN_IF_ERROR(lab_.node().Pin(rid, there ? server_node_ : 0));
  }
  return absl::OkStatus();
}

absl::Status Client::SetUp() {
  lab_.node().SetMoveObserver([this](const runtime::MoveEvent& event) {
    if (recorder_.OnMove(event)) Tell("moved");
  });
  if (job_.kind == Job::Kind::kNull) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(JoinVolume());
  switch (job_.kind) {
    case Job::Kind::kNull:
      break;
    case Job::Kind::kFilter:
      return SetUpFilter();
    case Job::Kind::kTable:
      return SetUpTable();
    case Job::Kind::kDirectory:
      return SetUpDirectory();
    case Job::Kind::kStream:
      return SetUpStream();
    case Job::Kind::kGrep:
      return SetUpGrep();
    case Job::Kind::kWordCount:
      return SetUpWordCount();
    case Job::Kind::kAggregate:
      return SetUpAggregate();
  }
  return absl::OkStatus();
}

absl::Status Client::OpenFile(int flags) {
  const auto created =
      files_->Create(kRoot, files_->root(), job_.file, S_IFREG | 0644, O_RDWR, job_.stack);
  if (created.ok()) {
    file_ = created->handle;
    return absl::OkStatus();
  }
  if (objfs::FsErrorOf(created.status()) != objfs::FsError::kExists) return created.status();
  // The server's, or another client's.
  ABACUS_ASSIGN_OR_RETURN(const objfs::Node found,
                          files_->Lookup(kRoot, files_->root(), job_.file));
  ABACUS_ASSIGN_OR_RETURN(file_, files_->Open(kRoot, found.id, flags));
  return absl::OkStatus();
}

absl::Status Client::SetUpFilter() {
  ABACUS_RETURN_IF_ERROR(OpenFile(O_RDONLY));
  ABACUS_ASSIGN_OR_RETURN(filter_, lab_.node().Create<apps::Filter>(job_.filter));
  Follow(filter_.rid(), std::string(apps::Filter::kAbacusName));
  return Place(job_.placement);
}

absl::Status Client::SetUpTable() {
  ABACUS_RETURN_IF_ERROR(OpenFile(O_RDWR));
  ABACUS_ASSIGN_OR_RETURN(const auto table, apps::RecordTable::Over(*files_, file_, job_.table));
  // An adaptive run begins at the client, with a warm cache there.
  const bool adaptive = job_.placement == Placement::kAdaptive;
  ABACUS_RETURN_IF_ERROR(Place(adaptive ? Placement::kClient : job_.placement));
  ABACUS_ASSIGN_OR_RETURN(const runtime::Block there, files_->Read(file_, 0, table.bytes()));
  if (there.size() < table.bytes()) {
    const std::string rest(table.bytes() - there.size(), '.');
    ABACUS_RETURN_IF_ERROR(files_->Write(file_, there.size(), runtime::Block::FromString(rest)));
    ABACUS_RETURN_IF_ERROR(files_->Push(file_));
  }
  if (job_.warm) ABACUS_RETURN_IF_ERROR(files_->Read(file_, 0, table.bytes()).status());
  if (!adaptive) return absl::OkStatus();
  absl::SleepFor(kRestWindows * lab_.config().placement.window);
  for (const auto& [rid, class_name] : followed_) {
    ABACUS_RETURN_IF_ERROR(lab_.node().Unpin(rid));
  }
  return absl::OkStatus();
}

absl::Status Client::SetUpDirectory() {
  directory_ = files_->root();
  if (!job_.directory.empty()) {
    ABACUS_ASSIGN_OR_RETURN(const objfs::Node found,
                            files_->Lookup(kRoot, files_->root(), job_.directory));
    directory_ = found.id;
  }
  // Whoever looks for a name makes the directory's object.
  const auto none = files_->Lookup(kRoot, directory_, absl::StrCat(job_.prefix, "-none"));
  if (objfs::FsErrorOf(none.status()) != objfs::FsError::kNoEntry) return none.status();
  if (!directory_object_) return absl::InternalError("no directory object was made");
  Follow(directory_object_.rid(), std::string(objfs::Directory::kAbacusName));
  recorder_.set_retries(
      [this] { return directory_object_->Retries().value_or(begin_retries_) - begin_retries_; });
  return Place(job_.placement);
}

absl::Status Client::SetUpStream() {
  if (job_.call_bytes == 0) return absl::InvalidArgumentError("a stream has calls of some bytes");
  ABACUS_RETURN_IF_ERROR(OpenFile(O_RDWR));
  return Place(job_.placement);
}

absl::Status Client::SetUpGrep() {
  ABACUS_RETURN_IF_ERROR(OpenFile(O_RDONLY));
  ABACUS_RETURN_IF_ERROR(
      files_->WithSubgraph(file_, [this](const objfs::Subgraph& file) -> absl::Status {
        ABACUS_ASSIGN_OR_RETURN(grep_, lab_.node().Create<apps::Grep>(file, job_.pattern, job_.file,
                                                                      job_.filter.read_bytes));
        return absl::OkStatus();
      }));
  Follow(grep_.rid(), std::string(apps::Grep::kAbacusName));
  return Place(job_.placement);
}

absl::Status Client::SetUpWordCount() {
  ABACUS_RETURN_IF_ERROR(OpenFile(O_RDONLY));
  ABACUS_ASSIGN_OR_RETURN(word_count_, lab_.node().Create<apps::WordCount>(job_.filter.read_bytes));
  Follow(word_count_.rid(), std::string(apps::WordCount::kAbacusName));
  return Place(job_.placement);
}

absl::Status Client::SetUpAggregate() {
  ABACUS_RETURN_IF_ERROR(OpenFile(O_RDONLY));
  ABACUS_ASSIGN_OR_RETURN(aggregate_,
                          lab_.node().Create<apps::ColumnAggregate>(apps::AggregateOptions{
                              .read_bytes = job_.filter.read_bytes,
                              .separator = " ",
                          }));
  Follow(aggregate_.rid(), std::string(apps::ColumnAggregate::kAbacusName));
  return Place(job_.placement);
}

absl::Status Client::Run() {
  switch (job_.kind) {
    case Job::Kind::kNull:
      return RunNull();
    case Job::Kind::kFilter:
      return RunFilter();
    case Job::Kind::kTable:
      return RunTable();
    case Job::Kind::kDirectory:
      return RunDirectory();
    case Job::Kind::kStream:
      return RunStream();
    case Job::Kind::kGrep:
      return RunGrep();
    case Job::Kind::kWordCount:
      return RunWordCount();
    case Job::Kind::kAggregate:
      return RunAggregate();
  }
  return absl::InternalError("a job of no kind");
}

absl::Status Client::RunNull() {
  ABACUS_ASSIGN_OR_RETURN(const Rid rid, lab_.node().Lookup(kEcho));
  const auto echo = lab_.node().binding().RefTo<Echo>(rid);
  const auto bytes = runtime::Block::FromString(std::string(job_.call_bytes, 'n'));
  ABACUS_ASSIGN_OR_RETURN(const int64_t server_begin, echo->Call(bytes));
  const int64_t client_begin = ProcessCpuNs();
  int64_t server_end = server_begin;
  recorder_.Begin();
  for (uint64_t i = 0; i < job_.calls; ++i) {
    ABACUS_ASSIGN_OR_RETURN(server_end, echo->Call(bytes));
    recorder_.Done();
  }
  recorder_.End();
  const auto calls = static_cast<double>(job_.calls);
  extra_["client_cpu_us"] = static_cast<double>(ProcessCpuNs() - client_begin) / 1e3 / calls;
  extra_["server_cpu_us"] = static_cast<double>(server_end - server_begin) / 1e3 / calls;
  return absl::OkStatus();
}

absl::Status Client::ReadThrough(
    absl::FunctionRef<absl::StatusOr<bool>(const objfs::Subgraph& file)> next) {
  const runtime::Console console(lab_.node());
  console_ = console.rid();
  recorder_.Begin();
  for (bool done = false; !done;) {
    ABACUS_RETURN_IF_ERROR(
        files_->WithSubgraph(file_, [&](const objfs::Subgraph& file) -> absl::Status {
          ABACUS_ASSIGN_OR_RETURN(done, next(file));
          return absl::OkStatus();
        }));
    recorder_.Done();
  }
  recorder_.End();
  return absl::OkStatus();
}

absl::Status Client::RunFilter() {
  return ReadThrough([this](const objfs::Subgraph& file) -> absl::StatusOr<bool> {
    ABACUS_ASSIGN_OR_RETURN(const apps::FilterChunk chunk, filter_->Next(file));
    return chunk.done;
  });
}

absl::Status Client::RunTable() {
  ABACUS_ASSIGN_OR_RETURN(auto table, apps::RecordTable::Over(*files_, file_, job_.table));
  recorder_.Begin();
  ABACUS_ASSIGN_OR_RETURN(
      phases_, apps::RunPhases(table, job_.phases, job_.seed, [this] { recorder_.Done(); }));
  recorder_.End();
  return absl::OkStatus();
}

absl::Status Client::RunDirectory() {
  ABACUS_ASSIGN_OR_RETURN(begin_retries_, directory_object_->Retries());
  recorder_.Begin();
  ABACUS_RETURN_IF_ERROR(apps::InsertFiles(*files_, kRoot, directory_, job_.prefix, job_.files,
                                           [this] { recorder_.Done(); }));
  recorder_.End();
  return absl::OkStatus();
}

absl::Status Client::RunStream() {
  ABACUS_ASSIGN_OR_RETURN(const objfs::Node file, files_->Lookup(kRoot, files_->root(), job_.file));
  const std::string prepared(job_.call_bytes, kPrepared);
  std::mt19937_64 random(job_.seed);
  recorder_.Begin();
  for (uint64_t at = 0; at < file.size; at += job_.call_bytes) {
    const uint64_t bytes = std::min(job_.call_bytes, file.size - at);
    if (job_.writes) {
      const std::string text(bytes, static_cast<char>(random()));
      ABACUS_RETURN_IF_ERROR(files_->Write(file_, at, runtime::Block::FromString(text)));
    } else {
      ABACUS_ASSIGN_OR_RETURN(const runtime::Block read, files_->Read(file_, at, bytes));
      if (runtime::ToAbsl(read.view()) != absl::string_view(prepared).substr(0, bytes)) {
        return absl::DataLossError(absl::StrCat("byte ", at, " is not what was prepared"));
      }
    }
    recorder_.Done();
  }
  recorder_.End();
  return absl::OkStatus();
}

absl::Status Client::RunGrep() {
  return ReadThrough([this](const objfs::Subgraph& file) -> absl::StatusOr<bool> {
    ABACUS_ASSIGN_OR_RETURN(const apps::GrepChunk chunk, grep_->Next(file));
    extra_["matches"] = chunk.matches;
    return chunk.done;
  });
}

absl::Status Client::RunWordCount() {
  return ReadThrough([this](const objfs::Subgraph& file) -> absl::StatusOr<bool> {
    ABACUS_ASSIGN_OR_RETURN(const apps::WordCountChunk chunk, word_count_->Next(file));
    extra_["words"] = chunk.so_far.words;
    return chunk.done;
  });
}

absl::Status Client::RunAggregate() {
  return ReadThrough([this](const objfs::Subgraph& file) -> absl::StatusOr<bool> {
    ABACUS_ASSIGN_OR_RETURN(const apps::AggregateChunk chunk, aggregate_->Next(file));
    extra_["rows"] = chunk.so_far.rows;
    extra_["sum"] = chunk.so_far.sum;
    return chunk.done;
  });
}

// -- what became of it ----------------------------------------------------------------------------

json Client::Moves() {
  json moves = json::array();
  for (const Recorder::Move& move : recorder_.moves()) {
    for (size_t i = 0; i < move.event.rids.size(); ++i) {
      if (!followed_.contains(move.event.rids[i])) continue;
      moves.push_back({{"t_s", move.t_s},
                       {"object", followed_[move.event.rids[i]]},
                       {"from", NameOf(move.event.from_name)},
                       {"to", NameOf(move.event.to_name)},
                       {"to_node", move.event.to_name},
                       {"by_engine", move.event.by_engine},
                       {"blackout_s", absl::ToDoubleSeconds(move.event.blackout)},
                       {"state_bytes", move.event.state_bytes},
                       {"explanation", move.event.reason}});
    }
  }
  return moves;
}

json Client::Explanations() {
  json explanations = json::object();
  for (const auto& [rid, class_name] : followed_) explanations[class_name] = "";
  if (job_.placement != Placement::kAdaptive) return explanations;
  for (const std::string& address : servers_) {
    runtime::ControlClient server(address);
    for (const auto& [rid, class_name] : followed_) {
      auto decisions = server.Explain(rid, 1, kExplainDeadline);
      // Of a graph that was refused, only the console is known.
      if (!decisions.ok() && console_ != Rid()) {
        decisions = server.Explain(console_, 1, kExplainDeadline);
      }
      std::string words;
      if (!decisions.ok()) words = std::string(decisions.status().message());
      if (decisions.ok() && !decisions->empty()) words = decisions->front().explanation;
      if (words.empty()) continue;  // another server's engine decides about it
      std::string& all = explanations[class_name].get_ref<std::string&>();
      if (all.find(words) != std::string::npos) continue;  // it passed the question on
      all += all.empty() ? words : " | " + words;
    }
  }
  return explanations;
}

json Client::Result() {
  json result = extra_;
  result["node"] = lab_.node().name();
  result["elapsed_s"] = recorder_.elapsed_s();
  result["operations"] = recorder_.operations();
  json progress = json::array(), retry_progress = json::array();
  for (const Recorder::Point& point : recorder_.points()) {
    progress.push_back({point.t_s, point.operations});
    retry_progress.push_back({point.t_s, point.retries});
  }
  result["retries"] = recorder_.points().empty() ? 0 : recorder_.points().back().retries;
  result["progress"] = progress;
  result["retry_progress"] = retry_progress;
  json phases = json::array();
  for (const apps::PhaseResult& phase : phases_) {
    phases.push_back({{"name", phase.phase.kind == apps::Phase::Kind::kInsert ? "insert" : "scan"},
                      {"operations", phase.phase.operations},
                      {"elapsed_s", absl::ToDoubleSeconds(phase.elapsed)}});
  }
  result["phases"] = phases;
  result["migrations"] = Moves();
  json placement = json::object(), nodes = json::object();
  for (const auto& [rid, class_name] : followed_) placement[class_name] = "server";
  for (const json& move : result["migrations"]) {
    nodes[move["object"].get<std::string>()] = move["to_node"];
  }
  for (const auto& object : lab_.node().binding().Objects(kObjectsMax)) {
    if (object.hosted && followed_.contains(object.rid)) {
      placement[followed_[object.rid]] = "client";
    }
  }
  result["final_placement"] = placement;
  result["final_nodes"] = nodes;
  result["explanations"] = Explanations();
  result["source"] = lab_.source();
  result["degraded"] = json::array();
  if (!lab_.missing().empty()) result["degraded"].push_back(lab_.missing());
  return result;
}

// False: the other end has gone.
bool AwaitLine() {
  std::string line;
  return static_cast<bool>(std::getline(std::cin, line));
}

}  // namespace

absl::Status RunClient(const LabNodeOptions& options, const Job& job) {
  ABACUS_ASSIGN_OR_RETURN(const auto lab, LabNode::Start(options));
  Client client(*lab, options.servers, job);
  ABACUS_RETURN_IF_ERROR(client.SetUp());
  Tell("ready");
  if (!AwaitLine()) return absl::CancelledError("nobody said go");
  ABACUS_RETURN_IF_ERROR(client.Run());
  Tell(client.Result().dump(-1, ' ', false, json::error_handler_t::replace));
  while (AwaitLine()) {
  }
  return absl::OkStatus();
}

}  // namespace abacus::lab
