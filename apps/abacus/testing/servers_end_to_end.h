#ifndef ABACUS_APPS_ABACUS_TESTING_SERVERS_END_TO_END_H_
#define ABACUS_APPS_ABACUS_TESTING_SERVERS_END_TO_END_H_

// Several servers, each a process of its own, which are killed and begun again, and files on a
// mount that are to outlive that.

#include <gtest/gtest.h>
#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/abacus/testing/command.h"
#include "apps/abacus/testing/mount_end_to_end.h"

namespace abacus::apps::testing {

class ServersEndToEndTest : public MountEndToEndTest {
 protected:
  explicit ServersEndToEndTest(size_t servers) : servers_(servers), addresses_(servers) {}

  // The first of them is the one that Abacus() asks.
  void SetUp() override {
    MountEndToEndTest::SetUp();
    if (IsSkipped()) return;
    servers_[0] = std::move(server_);
    addresses_[0] = address_;
    for (size_t i = 1; i < servers_.size(); ++i) Start(i, "127.0.0.1:0");
  }
  void TearDown() override {
    MountEndToEndTest::TearDown();
    servers_.clear();
  }

  static std::string DataOf(size_t server) {
    return server == 0 ? "data" : absl::StrCat("server", server);
  }
  void Start(size_t server, const std::string& control) {
    servers_[server] = BeginServer(DataOf(server), control, {}, &addresses_[server]);
  }
  void Restart(size_t server) { Start(server, std::string(addresses_[server])); }
  void End(size_t server, int signal) {
    servers_[server]->Signal(signal);
    servers_[server]->Wait();
  }
  void Kill(size_t server) { End(server, SIGKILL); }
  // As it tells that is asked.
  Outcome At(size_t server, const std::vector<std::string>& arguments) const {
    return RunAbacus(arguments, {.environment = {"ABACUS_SERVER=" + addresses_[server]}});
  }

  // On mount_.
  void Put(const std::string& name, size_t bytes) {
    files_[name] = RandomText(++seed_, bytes);
    EXPECT_EQ(TryPut(mount_ + "/" + name, files_[name]), 0) << name;
  }
  void ExpectAll(const std::string& directory) {
    for (const auto& [name, bytes] : files_) {
      std::ifstream file(directory + "/" + name);
      const std::string found((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
      EXPECT_TRUE(found == bytes) << directory << "/" << name << " has " << found.size()
                                  << " bytes";
    }
  }

  std::vector<std::unique_ptr<Command>> servers_;
  std::vector<std::string> addresses_;
  std::string mount_;
  std::map<std::string, std::string> files_;  // what they are to have
  std::string told_;                          // by the last status
  uint32_t seed_ = 0;
};

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_ABACUS_TESTING_SERVERS_END_TO_END_H_
