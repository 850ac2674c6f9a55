#ifndef ABACUS_RUNTIME_TESTING_BENCHMARK_BENCH_NODE_H_
#define ABACUS_RUNTIME_TESTING_BENCHMARK_BENCH_NODE_H_

// The parts of a node that the benchmarks need: binding manager, migrator and transport, and a
// second process that serves.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/binding/binding_manager.h"
#include "runtime/migration/migrator.h"
#include "runtime/transport/socket_transport.h"

namespace abacus::runtime {

// What the benchmarks call: an object with state of any size.
class Subject : public MobileObject {
 public:
  absl::Status Null() { return absl::OkStatus(); }
  absl::StatusOr<Block> Get() { return state_; }
  absl::Status Fill(uint64_t bytes);
  void Checkpoint(CheckpointWriter& writer) const override { writer.Write(state_); }
  absl::Status Restore(CheckpointReader& reader) override {
    reader.Read(state_);
    return reader.status();
  }
  ABACUS_OBJECT(Subject, "bench.Subject", 1, Null, Get, Fill)

 private:
  Block state_;
};

class BenchNode;

// Lets the other process send an object back.
class Sender : public AnchoredObject {
 public:
  explicit Sender(BenchNode* node) : node_(node) {}
  absl::Status Send(const Rid& rid, const NodeInstance& target);
  ABACUS_OBJECT(Sender, "bench.Sender", 1, Send)

 private:
  BenchNode* const node_;
};

class BenchNode {
 public:
  BenchNode(NodeInstance self, const std::string& listen_address);
  ~BenchNode();

  NodeInstance self;
  ObjectTypes types;
  std::unique_ptr<SocketTransport> transport;
  std::unique_ptr<BindingManager> binding;
  std::unique_ptr<Migrator> migrator;
};

// Runs the calling thread, and those it starts from now on, on one processor.
void PinTo(int processor);

// This program again, as a server on `processor`, with a data plane at `address` and, where
// `grpc_address` is not empty, a gRPC echo service beside it.
class ServerProcess {
 public:
  ServerProcess(int processor, const std::string& address, const std::string& grpc_address);
  ~ServerProcess();

  static constexpr NodeInstance kInstance{2, 1};
  std::string address;  // as the server listens
  std::string grpc_address;
  Rid subject;
  Rid sender;

 private:
  pid_t pid_ = -1;
  int to_child_ = -1;
};

// The server's main(): `arguments` as ServerProcess gives them.
int ServeBench(const std::vector<std::string>& arguments);

// A gRPC unary call of nothing, again and again; the mean in microseconds of `calls` of them.
double GrpcNullMicroseconds(const std::string& address, int calls);

// Megabytes per second of a plain socket loop: one request byte, `bytes` back.
double RawCopyMegabytesPerSecond(bool tcp, size_t bytes, int rounds, int server_processor);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TESTING_BENCHMARK_BENCH_NODE_H_
