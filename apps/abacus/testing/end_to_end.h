#ifndef ABACUS_APPS_ABACUS_TESTING_END_TO_END_H_
#define ABACUS_APPS_ABACUS_TESTING_END_TO_END_H_

// A server as a process of its own, for what its clients get from it.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "apps/abacus/testing/command.h"

namespace abacus::apps::testing {

// Of a server or a client. Slow enough that reading megabytes lasts seconds: what a link of 8
// Mbit/s lets through.
inline constexpr char kSlow[] = "[transport]\nrate_limit_mbit = 8.0\n";

// A server with a directory of its own, for as long as the object lives.
class Server {
 public:
  // `config` is put into a file for it.
  explicit Server(const std::string& data_dir, const std::string& config = "") {
    std::array<int, 2> ready;
    if (pipe2(ready.data(), O_CLOEXEC) != 0) std::abort();
    command_ = std::make_unique<Command>(
        std::vector<std::string>{"serve", "--config", folder_.Write("server.toml", config),
                                 "--data", data_dir, "--listen", "127.0.0.1:0", "--name", "server",
                                 "--ready-fd", std::to_string(ready[1])},
        Command::Options{.keep_fd = ready[1]});
    close(ready[1]);
    // Ends where the server closes its end: when it is ready, or has failed.
    for (char c = 0; read(ready[0], &c, 1) == 1 && c != '\n';) address_ += c;
    close(ready[0]);
  }

  // Puts another text into its configuration file and tells it so.
  void Reconfigure(const std::string& config) const {
    folder_.Write("server.toml", config);
    command_->Signal(SIGHUP);
  }

  const std::string& address() const { return address_; }
  std::string option() const { return "--server=" + address_; }
  Command& command() { return *command_; }

 private:
  const Folder folder_;
  std::string address_;
  std::unique_ptr<Command> command_;
};

class ServerTest : public ::testing::Test {
 protected:
  void StartServer(const std::string& config = "") {
    server_ = std::make_unique<Server>(folder_.Path("data"), config);
    ASSERT_NE(server_->address(), "") << server_->command().Wait().err;
  }
  void Store(const std::string& name, const std::string& bytes) {
    const Outcome put = RunAbacus({"put", server_->option(), name, folder_.Write(name, bytes)});
    ASSERT_EQ(put.code, 0) << put.err;
  }

  const Folder folder_;
  std::unique_ptr<Server> server_;
};

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_ABACUS_TESTING_END_TO_END_H_
