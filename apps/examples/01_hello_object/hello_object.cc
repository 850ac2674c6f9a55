// A mobile object: it counts words, and moves to another node without its caller noticing.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "monitor-ebpf/plain_monitor.h"
#include "runtime/node/node.h"

using namespace abacus::runtime;  // NOLINT: an example

class WordCount : public MobileObject {
 public:
  absl::StatusOr<int64_t> Add(const std::string& text) {
    return words_ += 1 + std::count(text.begin(), text.end(), ' ');
  }
  // What travels when the object moves, written and read in the same order.
  void Checkpoint(CheckpointWriter& writer) const override { writer.Write(words_); }
  absl::Status Restore(CheckpointReader& reader) override {
    reader.Read(words_);
    return reader.status();
  }
  ABACUS_OBJECT(WordCount, "hello.WordCount", 1, Add)

 private:
  int64_t words_ = 0;
};

int main() {
  spdlog::set_level(spdlog::level::warn);  // what nodes log goes to standard output by default
  // The classes that a program is built with. All of its nodes know the same ones.
  ObjectTypes types;
  types.Add<WordCount>();

  // A server and a client; they would usually be two programs on two machines.
  char data_dir[] = "/tmp/abacus-hello-XXXXXX";
  NodeOptions server_options{.server = true};
  server_options.config.node = {.name = "server",
                                .data_dir = mkdtemp(data_dir),
                                .control_address = "127.0.0.1:0",
                                .data_address = "127.0.0.1:0"};
  auto server = Node::Start(server_options, types, abacus::monitor::NewPlainMonitor()).value();
  NodeOptions client_options{.servers = {server->control_address()}};
  client_options.config.node.name = "client";
  auto client = Node::Start(client_options, types, abacus::monitor::NewPlainMonitor()).value();
  bool counted = false;
  {
    // An object is called through a reference, and the call looks the same wherever it is.
    const Ref<WordCount> words = client->Create<WordCount>().value();
    const int64_t before = words->Add("the quick brown fox").value();
    const MoveEvent move = client->Move({words.rid()}, server->instance().node).value();
    const int64_t after = words->Add("jumps over the lazy dog").value();
    printf("%ld words at %s, %ld words at %s\n", before, move.from_name.c_str(), after,
           move.to_name.c_str());
    counted = before == 4 && after == 9;
  }
  client.reset();
  server.reset();
  std::filesystem::remove_all(data_dir);
  return counted ? 0 : 1;
}
