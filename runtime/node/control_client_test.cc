#include "runtime/node/control_client.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/node/control_service.h"

namespace abacus::runtime {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// Takes connections and says nothing.
class MuteListener {
 public:
  MuteListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~MuteListener() {
    for (int connection : connections_) close(connection);
    close(fd_);
  }

  const std::string& address() const { return address_; }
  // Waits for one more connection.
  bool Accept() {
    pollfd wanted{fd_, POLLIN, 0};
    if (poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) != 1) return false;
    connections_.push_back(accept(fd_, nullptr, nullptr));
    return connections_.back() >= 0;
  }

 private:
  const int fd_;
  std::string address_;
  std::vector<int> connections_;
};

// Refuses every command with an error of its own; a move not before LetGo().
class RefusingHandler final : public ControlHandler {
 public:
  void AwaitMove() {
    MutexLock lock(mutex_);
    while (!inside_) changed_.Wait(mutex_);
  }
  void LetGo() {
    MutexLock lock(mutex_);
    let_go_ = true;
    changed_.SignalAll();
  }

  absl::StatusOr<JoinAnswer> OnJoin(const MemberInfo&) override { return error_; }
  absl::StatusOr<HeartbeatAnswer> OnHeartbeat(const HeartbeatAsk&) override { return error_; }
  absl::Status OnLeave(NodeInstance) override { return error_; }
  absl::Status OnDigest(Digest) override { return error_; }
  absl::StatusOr<MoveRecord> OnMove(const MoveCommand&) override {
    MutexLock lock(mutex_);
    inside_ = true;
    changed_.SignalAll();
    while (!let_go_) changed_.Wait(mutex_);
    return error_;
  }
  void OnMoved(const MoveRecord&) override {}
  absl::Status OnPin(const PinCommand&) override { return error_; }
  absl::StatusOr<EngineState> OnSetEngine(const EngineCommand&) override { return error_; }
  std::vector<PinRecord> OnGetPins(const std::vector<Rid>&) override { return {}; }
  absl::StatusOr<std::vector<DecisionText>> OnExplain(const Rid&, size_t, uint32_t) override {
    return error_;
  }
  NodeReport OnGetStatus(size_t) override { return {}; }

 private:
  const absl::Status error_ = MakeError(ErrorKind::kMoveCancelled, "not now");
  Mutex mutex_;
  CondVar changed_;
  bool inside_ ABSL_GUARDED_BY(mutex_) = false;
  bool let_go_ ABSL_GUARDED_BY(mutex_) = false;
};

const Rid kMoved{{7, 1}, 3};

TEST(ControlClientTest, CallToNobodyNamesTheAddress) {
  ControlClient client("127.0.0.1:1");
  const auto report = client.GetStatus(1, kPatience);
  EXPECT_EQ(KindOf(report.status()), ErrorKind::kNodeUnreachable) << report.status();
  EXPECT_NE(report.status().message().find("127.0.0.1:1"), absl::string_view::npos);
}

TEST(ControlClientTest, CallToAMuteNodeEndsAtItsDeadline) {
  MuteListener listener;
  ControlClient client(listener.address());
  const absl::Time begin = absl::Now();
  const auto report = client.GetStatus(1, absl::Milliseconds(200));
  EXPECT_EQ(KindOf(report.status()), ErrorKind::kNodeUnreachable) << report.status();
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(200));
}

TEST(ControlClientTest, HeartbeatWithoutAnAnswerMakesTheNextOneGoOverANewConnection) {
  MuteListener listener;
  ControlClient client(listener.address());
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(client.Heartbeat(HeartbeatAsk(), absl::Seconds(2)).ok());
    EXPECT_TRUE(listener.Accept()) << "connection " << i;
  }
}

TEST(ControlClientTest, RefusalKeepsItsKindOnEveryCall) {
  RefusingHandler handler;
  handler.LetGo();
  auto server = ControlServer::Listen("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  ControlClient client((*server)->address());
  const MemberInfo joiner{.instance = {1, 1}, .data_address = "a:1", .control_address = "b:2"};
  MoveCommand move;
  move.rids = {kMoved};
  for (const absl::Status& status :
       {client.Join(joiner, kPatience).status(),
        client.Heartbeat(HeartbeatAsk(), kPatience).status(), client.Leave({1, 1}, kPatience),
        client.Move(move, kPatience).status(), client.Pin({.rid = kMoved}, kPatience),
        client.Explain(kMoved, 1, kPatience).status()}) {
    EXPECT_EQ(KindOf(status), ErrorKind::kMoveCancelled) << status;
    EXPECT_NE(status.message().find("not now"), absl::string_view::npos) << status;
  }
  EXPECT_FALSE(client.SendDigest(Digest(), kPatience).ok());
}

TEST(ControlClientTest, CancelEndsACallThatIsUnderWayAndAllLaterOnes) {
  RefusingHandler handler;
  auto server = ControlServer::Listen("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  ControlClients clients;
  const std::string address = (*server)->address();
  MoveCommand move;
  move.rids = {kMoved};
  absl::Status status;
  std::thread caller([&] { status = clients.To(address)->Move(move, kPatience).status(); });
  handler.AwaitMove();
  clients.CancelAll();
  caller.join();
  EXPECT_EQ(KindOf(status), ErrorKind::kNodeUnreachable) << status;
  EXPECT_FALSE(clients.To(address)->GetStatus(1, kPatience).ok());
  EXPECT_FALSE(clients.To("127.0.0.1:1")->GetStatus(1, kPatience).ok());  // made afterwards
  handler.LetGo();
}

}  // namespace
}  // namespace abacus::runtime
