// One node as a process, for tests that kill processes: a binding manager, a migrator and a socket
// transport, driven by lines on stdin. Usage: abacus_test_node NODE INCARNATION LISTEN_ADDRESS
//
// It prints "ready ADDRESS". Each further line in is "TAG VERB ARGUMENT...", and is answered by
// "TAG ok ..." or "TAG error KIND MESSAGE", in the order in which things end:
//   peer INSTANCE ADDRESS      makes another node known
//   dead INSTANCE              says that it is dead for sure
//   create                     makes a ledger; ok RID
//   record RID CLIENT NUMBER   calls it; ok CALLS
//   read RID CLIENT            ok LAST CALLS DOUBLED SKIPPED
//   stream RID CLIENT          calls it with 1, 2, 3, ... until it is gone or `halt`; ok at once
//   halt CLIENT                ok SENT ANSWERED UNKNOWN REFUSED KIND (of the error that ended it)
//   await CLIENT               the same, once it has ended by itself
//   move RID INSTANCE          ok once it has been moved
//   status                     ok RID ... of the ledgers that run here
//   die-at POINT               kills itself (SIGKILL) when it reaches the point
//   hold POINT                 threads that reach it wait; the first one prints "at POINT"
//   release                    lets them go on
//   quit
// Points are those of the runtime ("move:drained"), and of each message of a migration on its way:
// "send:commit" before it is sent, "sent:commit" after, "receive:commit" before it is looked at.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/binding/binding_manager.h"
#include "runtime/migration/migrator.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"
#include "runtime/transport/socket_transport.h"

namespace abacus::runtime::testing {
namespace {

void Print(const std::string& line) {
  static Mutex mutex;
  MutexLock lock(mutex);
  std::cout << line << std::endl;
}

NodeInstance ParseInstance(const std::string& text) {
  NodeInstance instance;
  std::sscanf(text.c_str(), "%u.%u", &instance.node, &instance.incarnation);
  return instance;
}

// Points at which the process dies or stops.
class NodePoints final : public SyncPoints {
 public:
  void Reach(std::string_view point) override {
    bool first = false;
    {
      MutexLock lock(mutex_);
      if (deadly_ == point) kill(getpid(), SIGKILL);
      if (held_ != point) return;
      first = !std::exchange(reached_, true);
    }
    if (first) Print("at " + std::string(point));
    MutexLock lock(mutex_);
    // All that come wait: a message that is sent again must not get past the one that is held.
    while (held_ == point) changed_.Wait(mutex_);
  }
  void DieAt(const std::string& point) {
    MutexLock lock(mutex_);
    deadly_ = point;
  }
  void Hold(const std::string& point) {
    MutexLock lock(mutex_);
    held_ = point;
    reached_ = false;
  }
  void Release() {
    MutexLock lock(mutex_);
    held_.clear();
    changed_.SignalAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::string deadly_ ABSL_GUARDED_BY(mutex_);
  std::string held_ ABSL_GUARDED_BY(mutex_);
  bool reached_ ABSL_GUARDED_BY(mutex_) = false;
};

// Makes points of the messages of migration.
class PointTransport final : public Transport, private FrameHandler {
 public:
  PointTransport(std::unique_ptr<Transport> inner, SyncPoints* points)
      : inner_(std::move(inner)), points_(*points) {}

  absl::Status Start(FrameHandler* handler) override {
    handler_ = handler;
    return inner_->Start(this);
  }
  void Stop() override { inner_->Stop(); }
  void AddPeer(NodeInstance peer, const std::string& address) override {
    inner_->AddPeer(peer, address);
  }
  void RemovePeer(NodeInstance peer) override { inner_->RemovePeer(peer); }
  void Send(NodeInstance to, Lane lane, Frame frame) override {
    const std::string name = NameOf(frame.type);
    Reach("send:", name);
    inner_->Send(to, lane, std::move(frame));
    Reach("sent:", name);
  }
  void Wait(NodeInstance peer, Waiter& waiter) override { inner_->Wait(peer, waiter); }
  void HandOffReading() override { inner_->HandOffReading(); }
  FrameLimits limits() const override { return inner_->limits(); }
  std::string address() const override { return inner_->address(); }
  std::vector<PeerTraffic> Traffic() const override { return inner_->Traffic(); }

 private:
  static std::string NameOf(uint16_t type) {
    using Type = MigrationMessageType;
    static const std::map<Type, std::string> names = {
        {Type::kBegin, "begin"},       {Type::kBeginReply, "begin_reply"},
        {Type::kTransfer, "transfer"}, {Type::kRestored, "restored"},
        {Type::kCommit, "commit"},     {Type::kCommitReply, "commit_reply"},
        {Type::kActivate, "activate"}, {Type::kActivated, "activated"},
        {Type::kDiscard, "discard"},   {Type::kDiscarded, "discarded"},
        {Type::kQuery, "query"},       {Type::kQueryReply, "query_reply"},
        {Type::kClaim, "claim"},       {Type::kNotHeld, "not_held"}};
    const auto it = names.find(static_cast<Type>(type));
    return it == names.end() ? "" : it->second;
  }
  void Reach(const char* when, const std::string& name) {
    if (!name.empty()) points_.Reach(when + name);
  }
  void OnFrame(NodeInstance from, Frame frame) override {
    const std::string name = NameOf(frame.type);
    if (!name.empty()) {
      inner_->HandOffReading();  // it may be held here, and others must be read
      Reach("receive:", name);
    }
    handler_->OnFrame(from, std::move(frame));
  }
  void OnReconnected(NodeInstance peer) override { handler_->OnReconnected(peer); }
  void OnPeerReplaced(NodeInstance peer) override { handler_->OnPeerReplaced(peer); }

  const std::unique_ptr<Transport> inner_;
  SyncPoints& points_;
  FrameHandler* handler_ = nullptr;
};

std::string Error(const absl::Status& status) {
  return "error " + std::string(KindName(KindOf(status))) + " " + std::string(status.message());
}

class TestNode {
 public:
  TestNode(NodeInstance self, const std::string& listen_address)
      : self_(self), transport_(MakeTransport(self, listen_address), &points_) {
    AddTestObjects(types_, nullptr, 0, &tenants_);
    binding_ =
        std::make_unique<BindingManager>(self, QuickOptions(), types_, &transport_, &points_);
    migrator_ = std::make_unique<Migrator>(binding_.get(), CheckpointOptions());
  }

  int Run() {
    if (const absl::Status started = transport_.Start(binding_.get()); !started.ok()) {
      Print(Error(started));
      return 1;
    }
    binding_->Start();
    Print("ready " + transport_.address());
    std::vector<std::thread> threads;
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string tag, verb;
      words >> tag >> verb;
      if (verb == "quit") break;
      std::string arguments;
      std::getline(words, arguments);
      if (!MayBlock(verb)) {
        std::istringstream words(arguments);
        Print(tag + " " + Do(verb, words));
        continue;
      }
      threads.emplace_back([this, tag, verb, arguments] {
        std::istringstream words(arguments);
        Print(tag + " " + Do(verb, words));
      });
    }
    for (auto& [client, stream] : streams_) stream->stop = true;
    points_.Release();
    binding_->Stop();
    for (std::thread& thread : threads) thread.join();
    for (auto& [client, stream] : streams_) {
      if (stream->thread.joinable()) stream->thread.join();
    }
    transport_.Stop();
    return 0;
  }

 private:
  struct Stream {
    std::atomic<bool> stop{false};
    uint64_t sent = 0, answered = 0, unknown = 0, refused = 0;
    ErrorKind ended_by = ErrorKind::kNone;
    std::string disorder;  // an answer that cannot be
    std::thread thread;
  };

  static std::unique_ptr<Transport> MakeTransport(NodeInstance self, const std::string& address) {
    SocketTransportOptions options;
    options.self = self;
    options.listen_address = address;
    return std::make_unique<SocketTransport>(options);
  }

  static bool MayBlock(const std::string& verb) {
    static const std::set<std::string> kMayBlock = {"dead", "record", "read",
                                                    "halt", "await",  "move"};
    return kMayBlock.contains(verb);
  }

  Ref<Ledger> TakeLedger(std::istringstream& words) {
    std::string rid;
    words >> rid;
    return binding_->RefTo<Ledger>(Rid::Parse(rid).value_or(Rid()));
  }

  std::string Do(const std::string& verb, std::istringstream& words) {
    std::string text, address;
    uint64_t client = 0, number = 0;
    if (verb == "peer") {
      words >> text >> address;
      transport_.AddPeer(ParseInstance(text), address);
      return "ok";
    }
    if (verb == "dead") {
      words >> text;
      transport_.RemovePeer(ParseInstance(text));
      binding_->OnPeerDead(ParseInstance(text));
      return "ok";
    }
    if (verb == "create") {
      const absl::StatusOr<Ref<Ledger>> ledger = binding_->Create<Ledger>();
      return ledger.ok() ? "ok " + ledger->rid().ToString() : Error(ledger.status());
    }
    if (verb == "record") {
      const Ref<Ledger> ledger = TakeLedger(words);
      words >> client >> number;
      const absl::StatusOr<uint64_t> calls = ledger->Record(client, number);
      return calls.ok() ? "ok " + std::to_string(*calls) : Error(calls.status());
    }
    if (verb == "read") {
      const Ref<Ledger> ledger = TakeLedger(words);
      words >> client;
      const absl::StatusOr<Ledger::Row> row = ledger->Read(client);
      if (!row.ok()) return Error(row.status());
      std::ostringstream out;
      out << "ok " << row->last << " " << row->calls << " " << row->doubled << " " << row->skipped;
      return out.str();
    }
    if (verb == "stream") {
      const Ref<Ledger> ledger = TakeLedger(words);
      words >> client;
      StartStream(ledger, client);
      return "ok";
    }
    if (verb == "halt" || verb == "await") {
      words >> client;
      return EndOf(client, verb == "halt");
    }
    if (verb == "move") {
      const Ref<Ledger> ledger = TakeLedger(words);
      words >> text;
      const absl::Status moved = migrator_->Move({ledger.rid()}, ParseInstance(text)).status();
      return moved.ok() ? "ok" : Error(moved);
    }
    if (verb == "status") {
      std::string out = "ok";
      for (const auto& object : binding_->Objects(1000)) {
        if (object.hosted) out += " " + object.rid.ToString();
      }
      return out;
    }
    words >> text;
    if (verb == "die-at") points_.DieAt(text);
    if (verb == "hold") points_.Hold(text);
    if (verb == "release") points_.Release();
    return "ok";
  }

  void StartStream(const Ref<Ledger>& ledger, uint64_t client) {
    MutexLock lock(streams_mutex_);
    auto& stream = streams_[client];
    stream = std::make_unique<Stream>();
    stream->thread = std::thread([ledger, client, &stream = *stream] {
      uint64_t calls_before = 0;
      while (!stream.stop) {
        const absl::StatusOr<uint64_t> calls = ledger->Record(client, ++stream.sent);
        if (calls.ok()) {
          ++stream.answered;
          if (*calls <= calls_before || *calls > stream.sent) {
            stream.disorder = std::to_string(*calls) + " after " + std::to_string(calls_before);
          }
          calls_before = *calls;
          continue;
        }
        // Whoever waits for an unknown outcome may go on; the object is there or it is not.
        const bool unknown = IsOutcomeUnknown(calls.status());
        ++(unknown ? stream.unknown : stream.refused);
        if (!unknown) {
          stream.ended_by = KindOf(calls.status());
          return;
        }
      }
    });
  }
  std::string EndOf(uint64_t client, bool halt) {
    Stream* stream = nullptr;
    {
      MutexLock lock(streams_mutex_);
      stream = streams_.at(client).get();
    }
    if (halt) stream->stop = true;
    if (stream->thread.joinable()) stream->thread.join();
    if (!stream->disorder.empty()) return "error disorder " + stream->disorder;
    std::ostringstream out;
    out << "ok " << stream->sent << " " << stream->answered << " " << stream->unknown << " "
        << stream->refused << " " << KindName(stream->ended_by);
    return out.str();
  }

  const NodeInstance self_;
  NodePoints points_;
  PointTransport transport_;
  TenantManager::Counts tenants_;
  ObjectTypes types_;
  std::unique_ptr<BindingManager> binding_;
  std::unique_ptr<Migrator> migrator_;
  Mutex streams_mutex_;
  std::map<uint64_t, std::unique_ptr<Stream>> streams_;  // each is ended once
};

}  // namespace
}  // namespace abacus::runtime::testing

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s NODE INCARNATION LISTEN_ADDRESS\n", argv[0]);
    return 2;
  }
  const abacus::runtime::NodeInstance self{
      static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 10)),
      static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10))};
  return abacus::runtime::testing::TestNode(self, argv[3]).Run();
}
