// The gRPC side of the benchmarks, in a file of its own: its headers take seconds to compile.
#include <grpcpp/grpcpp.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "echo.grpc.pb.h"
#include "runtime/testing/benchmark/bench_node.h"

namespace abacus::runtime {
namespace {

class EchoService final : public bench::Echo::Service {
  grpc::Status Null(grpc::ServerContext*, const bench::Empty*, bench::Empty*) override {
    return grpc::Status::OK;
  }
};

}  // namespace

int ServeBench(const std::vector<std::string>& arguments) {
  PinTo(std::stoi(arguments[0]));
  BenchNode node(ServerProcess::kInstance, arguments[1]);
  auto subject = node.binding->Create<Subject>();
  const Ref<Sender> sender = node.binding->Adopt(std::make_unique<Sender>(&node));
  EchoService service;
  std::unique_ptr<grpc::Server> server;
  std::string grpc_address = "-";
  if (arguments[2] != "-") {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(arguments[2], grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    const bool tcp = arguments[2].rfind("unix:", 0) != 0;
    grpc_address = tcp ? "127.0.0.1:" + std::to_string(port) : arguments[2];
  }
  std::cout << node.transport->address() << " " << grpc_address << " " << subject->rid().ToString()
            << " " << sender.rid().ToString() << std::endl;
  // Peers make themselves known by connecting; the end of the input ends the server.
  for (std::string line; std::getline(std::cin, line);) {
  }
  if (server != nullptr) server->Shutdown();
  return 0;
}

double GrpcNullMicroseconds(const std::string& address, int calls) {
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  const auto stub = bench::Echo::NewStub(channel);
  const auto call = [&stub] {
    grpc::ClientContext context;
    bench::Empty reply;
    if (!stub->Null(&context, bench::Empty(), &reply).ok()) {
      std::cerr << "the gRPC baseline does not answer\n";
      std::exit(2);
    }
  };
  for (int i = 0; i < calls / 10; ++i) call();
  const absl::Time begin = absl::Now();
  for (int i = 0; i < calls; ++i) call();
  return absl::ToDoubleMicroseconds(absl::Now() - begin) / calls;
}

}  // namespace abacus::runtime
