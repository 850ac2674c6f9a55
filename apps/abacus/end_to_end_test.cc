// A server and clients as processes of their own, and what a user of `abacus` gets from them.

#include "apps/abacus/testing/end_to_end.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "apps/abacus/testing/command.h"

namespace abacus::apps::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

// What GNU grep prints.
std::string GrepOf(const Folder& folder, const std::string& pattern, const std::string& file) {
  const std::string command = "LC_ALL=C grep -n -e '" + pattern + "' " + folder.Path(file) + " > " +
                              folder.Path("expected");
  EXPECT_NE(std::system(command.c_str()), -1);
  return folder.Read("expected");
}

// Lines of odd lengths, with carriage returns, some longer than a block, the last without an end.
std::string Text(size_t bytes) {
  std::mt19937 random(11);
  std::string text;
  while (text.size() < bytes) {
    text += "some words of a line";
    if (random() % 40 == 0) text += " and a kernel";
    if (random() % 5000 == 0) text.append(100000, 'x');
    if (random() % 7 == 0) text += '\r';
    text += '\n';
  }
  return text + "at last a kernel";
}

// Reads until no process holds the other end, and closes this one.
std::string ReadToEnd(int fd) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  close(fd);
  return text;
}

class EndToEndTest : public ServerTest {
 protected:
  // Of what is in that directory.
  std::vector<std::string> Names(const std::string& directory) const {
    std::vector<std::string> command = {"ls", server_->option(), "--json", folder_.Path("listed")};
    if (!directory.empty()) command.push_back(directory);
    const Outcome list = RunAbacus(command);
    EXPECT_EQ(list.code, 0) << list.err;
    std::vector<std::string> names;
    const Json listed = Json::parse(folder_.Read("listed"));
    for (const Json& file : listed["files"]) names.push_back(file["name"]);
    return names;
  }
  std::vector<std::string> GrepCommand(const std::vector<std::string>& more) const {
    std::vector<std::string> command = {"run", "grep", server_->option()};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  Json Status() const {
    const Outcome outcome = RunAbacus(
        {"status", server_->option(), "--objects", "1000", "--json", folder_.Path("status")});
    EXPECT_LE(outcome.code, 1) << outcome.err;
    return Json::parse(folder_.Read("status"), nullptr, false);
  }
  // The grep object of a search that runs, once the server has heard of it.
  std::string AwaitGrep(Command& search) const {
    while (search.Running()) {
      const Json status = Status();
      for (const Json& object : status["objects"]) {
        if (object["class"] == "apps.Grep") return object["rid"];
      }
    }
    return "";
  }

  // Asks until the engine's last word on the object has the reason.
  ::testing::AssertionResult AwaitReason(Command& search, const std::string& rid,
                                         const std::string& reason) const {
    std::string last = "none";
    while (search.Running()) {
      const Outcome asked =
          RunAbacus({"explain", server_->option(), rid, "--json", folder_.Path("explained")});
      if (asked.code != 0) continue;
      const Json decisions = Json::parse(folder_.Read("explained"))["decisions"];
      if (decisions.empty()) continue;
      if (decisions[0]["reason"] == reason) return ::testing::AssertionSuccess();
      last = decisions[0]["reason"].dump() + ": " + decisions[0]["explanation"].dump();
    }
    return ::testing::AssertionFailure() << "the search has ended; the last was " << last;
  }
};

TEST_F(EndToEndTest, SearchPrintsWhatGrepPrintsWhereverItRuns) {
  StartServer();
  Store("text", Text(3000000));
  const std::string expected = GrepOf(folder_, "kernel", "text");
  for (const std::string pin : {"client", "server"}) {
    const Outcome search =
        RunAbacus(GrepCommand({"--pin", pin, "--json", folder_.Path("json"), "kernel", "text"}));
    EXPECT_EQ(search.code, 0) << search.err;
    EXPECT_EQ(search.out, expected) << pin;
    const Json json = Json::parse(folder_.Read("json"));
    EXPECT_EQ(json["placement"], pin);
    EXPECT_EQ(json["migrations"], 0);
    EXPECT_EQ(json["bytes"], folder_.Read("text").size());
    EXPECT_EQ(json["matches"], std::count(expected.begin(), expected.end(), '\n'));
    // At the client the file crosses the link, at the server only what was found does.
    if (pin == "client") {
      EXPECT_GT(json["link_bytes"], 3000000);
    } else {
      EXPECT_LT(json["link_bytes"], 1000000);
    }
  }
}

TEST_F(EndToEndTest, SearchMovesToItsDataByItselfWhereTheLinkIsSlow) {
  StartServer(kSlow);
  Store("text", Text(4000000));
  const std::string config = folder_.Write("client.toml", kSlow);
  const Outcome search = RunAbacus(
      GrepCommand({"--config", config, "--json", folder_.Path("json"), "kernel", "text"}));
  EXPECT_EQ(search.code, 0) << search.err;
  EXPECT_EQ(search.out, GrepOf(folder_, "kernel", "text"));
  const Json json = Json::parse(folder_.Read("json"));
  EXPECT_EQ(json["migrations"], 1) << search.err;
  EXPECT_LT(json["link_bytes"], 3000000) << search.err;
  EXPECT_THAT(search.err, HasSubstr("moved: grep"));
  EXPECT_THAT(search.err, HasSubstr("by the engine"));
  EXPECT_THAT(std::string(json["explanation"]), ::testing::Not(IsEmpty()));
}

TEST_F(EndToEndTest, MovedByHandWhileItSearchesItPrintsTheSame) {
  StartServer(std::string(kSlow) + "[placement]\nenabled = false\n");
  // Ends with more than a pipe holds: the search cannot be over before somebody reads it.
  std::string text = Text(4000000) + "\n";
  for (int i = 0; i < 20000; ++i) text += "one more kernel\n";
  Store("text", text);
  const std::string config =
      folder_.Write("client.toml", std::string(kSlow) + "[node]\nname = \"console\"\n");
  std::array<int, 2> printed;
  ASSERT_EQ(pipe2(printed.data(), O_CLOEXEC), 0);
  Command search(GrepCommand({"--config", config, "--json", folder_.Path("json"), "--block", "1KiB",
                              "kernel", "text"}),
                 {.out_fd = printed[1]});
  close(printed[1]);
  const std::string rid = AwaitGrep(search);
  EXPECT_NE(rid, "");
  int committed = 0;
  for (const char* node : {"server", "console", "server"}) {
    const Outcome move = RunAbacus({"move", server_->option(), rid, node});
    EXPECT_EQ(move.code, 0) << move.err << move.out;
    EXPECT_THAT(move.out, HasSubstr("by hand"));
    committed += move.code == 0 ? 1 : 0;
  }
  EXPECT_EQ(ReadToEnd(printed[0]), GrepOf(folder_, "kernel", "text"));
  const Outcome found = search.Wait();
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(Json::parse(folder_.Read("json"))["migrations"], committed) << found.err;
}

TEST_F(EndToEndTest, AMoveThatIsCancelledIsToldAndChangesNothing) {
  StartServer(std::string(kSlow) + "[placement]\nenabled = false\n");
  const std::string text = Text(4000000);
  Store("text", text);
  const std::string config =
      folder_.Write("client.toml", std::string(kSlow) + "[migration]\ndrain_deadline = \"50ms\"\n");
  // One call that reads the whole file, and so stays inside for the seconds that the link takes.
  Command search(GrepCommand({"--config", config, "--block", "16MiB", "kernel", "text"}));
  const std::string rid = AwaitGrep(search);
  ASSERT_NE(rid, "");
  for (const char* command : {"move", "pin"}) {
    const Outcome move = RunAbacus({command, server_->option(), rid, "server"});
    EXPECT_EQ(move.code, 1) << move.err;
    EXPECT_EQ(move.out.rfind("not moved: " + rid + ": ", 0), 0u) << move.out;
    EXPECT_THAT(move.out, HasSubstr("draining took too long"));
    EXPECT_THAT(move.err, IsEmpty());
  }
  const Outcome found = search.Wait();
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, GrepOf(folder_, "kernel", "text"));
}

TEST_F(EndToEndTest, APinnedSearchStaysAndExplainTellsSo) {
  StartServer(kSlow);
  Store("text", Text(12000000));
  const std::string config =
      folder_.Write("client.toml", std::string(kSlow) + "[node]\nname = \"console\"\n");
  Command search(GrepCommand({"--config", config, "--pin", "client", "kernel", "text"}));
  const std::string rid = AwaitGrep(search);
  ASSERT_NE(rid, "");
  Outcome explained;
  while (explained.code != 0 && search.Running()) {
    explained = RunAbacus({"explain", server_->option(), rid, "--details"});
  }
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("stay"));
  EXPECT_THAT(explained.out, HasSubstr("pinned"));
  bool seen = false;
  const Json status = Status();
  for (const Json& object : status["objects"]) {
    if (object["rid"] != rid) continue;
    seen = true;
    EXPECT_EQ(object["node_name"], "console");
    EXPECT_EQ(object["pinned"], true);
  }
  EXPECT_TRUE(seen);
  // Without its pin it goes where it pays.
  EXPECT_EQ(RunAbacus({"unpin", server_->option(), rid}).code, 0);
  const Outcome found = search.Wait();
  EXPECT_EQ(found.out, GrepOf(folder_, "kernel", "text"));
  EXPECT_THAT(found.err, HasSubstr("moved: grep"));
}

TEST_F(EndToEndTest, ExitCodesAreGreps) {
  StartServer();
  Store("text", "a\nb\n");
  EXPECT_EQ(RunAbacus(GrepCommand({"-q", "a", "text"})).code, 0);
  EXPECT_EQ(RunAbacus(GrepCommand({"-q", "c", "text"})).code, 1);
  const Outcome missing = RunAbacus(GrepCommand({"-q", "a", "absent"}));
  EXPECT_EQ(missing.code, 2);
  EXPECT_EQ(missing.err, "abacus: there is no 'absent'\n");
  const Outcome pattern = RunAbacus(GrepCommand({"-q", "\\(a", "text"}));
  EXPECT_EQ(pattern.code, 2);
  EXPECT_THAT(pattern.out, IsEmpty());
}

TEST_F(EndToEndTest, QuietPrintsNothingBesideTheLines) {
  StartServer();
  Store("text", Text(1000000));
  EXPECT_THAT(RunAbacus(GrepCommand({"-q", "kernel", "text"})).err, IsEmpty());
}

TEST_F(EndToEndTest, APatternThatBeginsWithADashIsTaken) {
  StartServer();
  Store("text", "a-b\n--c\n");
  EXPECT_EQ(RunAbacus(GrepCommand({"-q", "--", "--c", "text"})).out, "2:--c\n");
}

TEST_F(EndToEndTest, ABinaryFileIsToldOnStandardError) {
  StartServer();
  Store("text", std::string("a\n\0a\n", 5));
  const Outcome search = RunAbacus(GrepCommand({"-q", "a", "text"}));
  EXPECT_EQ(search.code, 0);
  EXPECT_THAT(search.out, IsEmpty());
  EXPECT_EQ(search.err, "grep: text: binary file matches\n");
}

TEST_F(EndToEndTest, AnInterruptedPutLeavesWhatWasThereAndNothingElse) {
  StartServer();
  Store("text", "kept\n");
  // The put waits for more of its input.
  std::array<int, 2> input;
  ASSERT_EQ(pipe2(input.data(), O_CLOEXEC), 0);
  Command put({"put", server_->option(), "text"},
              {.in_path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(input[0])});
  while (put.Running() && Names("").size() < 2) std::this_thread::yield();
  EXPECT_THAT(Names(""), ::testing::ElementsAre(HasSubstr(".abacus-put-"), "text"));
  put.Signal(SIGTERM);
  const Outcome ended = put.Wait();
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.err, "abacus: interrupted\n");
  EXPECT_THAT(Names(""), ::testing::ElementsAre("text"));
  EXPECT_EQ(RunAbacus(GrepCommand({"-q", "kept", "text"})).out, "1:kept\n");
  close(input[0]);
  close(input[1]);
}

TEST_F(EndToEndTest, PutReplacesAndListTellsSizes) {
  StartServer();
  Store("text", "old");
  const std::string fresh = folder_.Write("fresh", "a new text\n");
  const Outcome put = RunAbacus({"put", server_->option(), "text"}, {.in_path = fresh});
  EXPECT_EQ(put.code, 0) << put.err;
  Store("other", "");
  const Outcome list = RunAbacus({"ls", server_->option(), "--json", folder_.Path("json")});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("text"));
  const Json files = Json::parse(folder_.Read("json"))["files"];
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0]["name"], "other");
  EXPECT_EQ(files[0]["bytes"], 0);
  EXPECT_EQ(files[1]["name"], "text");
  EXPECT_EQ(files[1]["bytes"], 11);
  EXPECT_EQ(files[1]["directory"], false);
  EXPECT_EQ(RunAbacus(GrepCommand({"-q", "new", "text"})).out, "1:a new text\n");
}

TEST_F(EndToEndTest, GetPrintsOrCopiesWhatPutStored) {
  StartServer();
  const std::string text = Text(3000000);
  Store("text", text);
  EXPECT_EQ(RunAbacus({"get", server_->option(), "text"}).out, text);
  const Outcome got = RunAbacus({"get", server_->option(), "text", folder_.Path("copy")});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(folder_.Read("copy"), text);
  const Outcome absent = RunAbacus({"get", server_->option(), "absent", folder_.Path("copy")});
  EXPECT_EQ(absent.code, 2);
  EXPECT_EQ(folder_.Read("copy"), text) << "nothing takes its place";
  EXPECT_EQ(absent.err, "abacus: there is no 'absent'\n");
}

TEST_F(EndToEndTest, FilesAreInDirectoriesAndInTheVolumeThatIsNamed) {
  StartServer();
  const std::string file = folder_.Write("file", "a\n");
  const auto abacus = [&](std::vector<std::string> words) {
    words.insert(words.begin() + 1, server_->option());
    return RunAbacus(words);
  };
  ASSERT_EQ(abacus({"put", "d/e/text", file}).code, 0);
  ASSERT_EQ(RunAbacus({"volume", "create", server_->option(), "work"}).code, 0);
  ASSERT_EQ(abacus({"put", "work:/text", file}).code, 0);
  ASSERT_EQ(abacus({"put", "work:a:b", file}).code, 0);
  EXPECT_THAT(Names("home:"), ::testing::ElementsAre("d"));
  EXPECT_THAT(Names("home:d/e"), ::testing::ElementsAre("text"));
  EXPECT_THAT(Names("work:"), ::testing::ElementsAre("a:b", "text"));
  EXPECT_EQ(RunAbacus(GrepCommand({"-q", "a", "home:d/../d/e/text"})).out, "1:a\n");
  const Outcome which = abacus({"ls"});
  EXPECT_EQ(which.code, 2);
  EXPECT_THAT(which.err, HasSubstr("There are: home, work. Say VOLUME:PATH"));
  // Removed are files, and directories without any.
  EXPECT_EQ(abacus({"rm", "home:d"}).code, 2);
  EXPECT_EQ(abacus({"rm", "home:d/e/text"}).code, 0);
  EXPECT_EQ(abacus({"rm", "home:d/e"}).code, 0);
  EXPECT_THAT(Names("home:d"), IsEmpty());
  EXPECT_EQ(abacus({"rm", "work:a:b"}).code, 0);
  EXPECT_THAT(Names("work:"), ::testing::ElementsAre("text"));
  EXPECT_EQ(abacus({"rm", "work:"}).code, 2);
  EXPECT_EQ(abacus({"get", "nowhere:text"}).code, 2);
}

TEST_F(EndToEndTest, AServerKeepsItsFilesOverARestart) {
  StartServer();
  Store("text", "kept\n");
  server_->command().Signal(SIGTERM);
  const Outcome first = server_->command().Wait();
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("is ready at " + server_->address()));
  StartServer();
  EXPECT_EQ(RunAbacus(GrepCommand({"-q", "kept", "text"})).out, "1:kept\n");
}

TEST_F(EndToEndTest, Invariant7AFileThatWasPutSurvivesAKillOfItsServer) {
  StartServer();
  const std::string text = Text(1000000);
  Store("text", text);
  server_->command().Signal(SIGKILL);
  server_->command().Wait();
  StartServer();
  EXPECT_EQ(RunAbacus(GrepCommand({"-q", "kernel", "text"})).out,
            GrepOf(folder_, "kernel", "text"));
}

TEST_F(EndToEndTest, ASecondServerIsRefusedTheAddressAndTheDirectory) {
  StartServer();
  // Its data plane may not be in the way: the port beside the first one's may be used already.
  const std::string second =
      folder_.Write("second.toml", "[node]\ncontrol_address = \"" + server_->address() +
                                       "\"\ndata_address = \"127.0.0.1:0\"\n");
  const Outcome same_address =
      RunAbacus({"serve", "--config", second, "--data", folder_.Path("other")});
  EXPECT_EQ(same_address.code, 2);
  EXPECT_THAT(same_address.err, HasSubstr(server_->address()));
  const Outcome same_directory =
      RunAbacus({"serve", "--data", folder_.Path("data"), "--listen", "127.0.0.1:0"});
  EXPECT_EQ(same_directory.code, 2);
  EXPECT_THAT(same_directory.err, HasSubstr(folder_.Path("data")));
}

TEST_F(EndToEndTest, ASearchWhoseServerIsKilledEndsWithAnError) {
  StartServer(kSlow);
  Store("text", Text(4000000));
  const std::string config = folder_.Write("client.toml", kSlow);
  Command search(GrepCommand({"--config", config, "--pin", "client", "kernel", "text"}));
  ASSERT_NE(AwaitGrep(search), "");
  server_->command().Signal(SIGKILL);
  const Outcome found = search.Wait();
  EXPECT_EQ(found.code, 2);
  EXPECT_THAT(found.err, HasSubstr("abacus: "));
  // What was printed until then is right.
  const std::string expected = GrepOf(folder_, "kernel", "text");
  EXPECT_EQ(found.out, expected.substr(0, found.out.size()));
}

TEST_F(EndToEndTest, AnInterruptedSearchEndsInOrder) {
  StartServer(kSlow);
  Store("text", Text(4000000));
  const std::string config = folder_.Write("client.toml", kSlow);
  Command search(GrepCommand({"--config", config, "--pin", "client", "kernel", "text"}));
  ASSERT_NE(AwaitGrep(search), "");
  search.Signal(SIGINT);
  const Outcome found = search.Wait();
  EXPECT_EQ(found.code, 2);
  EXPECT_THAT(found.err, HasSubstr("interrupted"));
}

TEST_F(EndToEndTest, CommandsOnWhatIsNotThereAreRefusedWithReasons) {
  StartServer();
  const Outcome node = RunAbacus({"move", server_->option(), "7.41.3", "moon"});
  EXPECT_EQ(node.code, 2);
  EXPECT_THAT(node.err, HasSubstr("there is no node 'moon'; there are server ("));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"move", server_->option(), "7.41.3", "server"},
        {"pin", server_->option(), "7.41.3"},
        {"unpin", server_->option(), "7.41.3"}}) {
    const Outcome outcome = RunAbacus(command);
    EXPECT_EQ(outcome.code, 2) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr("7.41")) << command[0];
  }
  const Outcome explain = RunAbacus({"explain", server_->option(), "7.41.3"});
  EXPECT_EQ(explain.code, 1);
  EXPECT_THAT(explain.err, HasSubstr("7.41.3"));
}

TEST_F(EndToEndTest, AVolumeAtOneServerIsScrubbedAndToldOfAndNotRebuilt) {
  StartServer();
  Store("text", Text(1'000'000));
  const std::string json = folder_.Path("told.json");
  const Outcome scrubbed = RunAbacus({"scrub", server_->option(), "home", "--json", json});
  EXPECT_EQ(scrubbed.code, 0) << scrubbed.err;
  EXPECT_GT(Json::parse(folder_.Read("told.json"))["objects"], 1);
  const Outcome told = RunAbacus({"volume", "status", server_->option(), "home", "--json", json});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("is at one server, as it was made without --servers"));
  EXPECT_THAT(told.out, HasSubstr("at 1 server alone, and lost with its disk: 1, of "));
  EXPECT_EQ(Json::parse(folder_.Read("told.json"))["without_columns"]["files"], 1);
  EXPECT_EQ(Json::parse(folder_.Read("told.json")).value("stack", "none told"), "");
  const Outcome rebuilt = RunAbacus({"rebuild", server_->option(), "home"});
  EXPECT_EQ(rebuilt.code, 2);
  EXPECT_THAT(rebuilt.err, HasSubstr("volume 'home' was made without --servers"));
  EXPECT_THAT(rebuilt.err, HasSubstr("abacus scrub home"));
}

// Damage that nobody read is found.
TEST_F(EndToEndTest, AScrubFindsWhatRottedOfAVolumeAtOneServer) {
  StartServer();
  Store("text", Text(1'000'000));
  ASSERT_EQ(RunAbacus({"scrub", server_->option(), "home"}).code, 0);
  std::filesystem::path largest;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.Path("data"))) {
    if (entry.path().extension() != ".d") continue;
    if (largest.empty() || entry.file_size() > std::filesystem::file_size(largest)) {
      largest = entry.path();
    }
  }
  ASSERT_GT(std::filesystem::file_size(largest), 900'000u);
  std::fstream data(largest, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(data.seekp(500'000).write("rot", 3).flush());
  const Outcome scrubbed = RunAbacus({"scrub", server_->option(), "home"});
  EXPECT_EQ(scrubbed.code, 1) << scrubbed.out << scrubbed.err;
}

TEST_F(EndToEndTest, TopTellsWhatASearchCostsWhileItRuns) {
  StartServer(kSlow);
  Store("text", Text(12000000));
  const std::string config = folder_.Write("client.toml", kSlow);
  Command search(GrepCommand({"--config", config, "--pin", "client", "kernel", "text"}));
  ASSERT_NE(AwaitGrep(search), "");
  // Digests come a few times a second; the search lasts seconds.
  Json grep;
  while (search.Running() && grep.is_null()) {
    const Outcome top = RunAbacus({"top", server_->option(), "--batch", "-n", "2", "--interval",
                                   "0.1", "--json", folder_.Path("top")});
    ASSERT_EQ(top.code, 0) << top.err;
    EXPECT_THAT(top.out, HasSubstr("blocked %"));
    const Json samples = Json::parse(folder_.Read("top"))["samples"];
    ASSERT_EQ(samples.size(), 2u);
    for (const Json& object : samples[1]["objects"]) {
      if (object["class"] == "apps.Grep" && object["bytes_in_s"] > 0) grep = object;
    }
    for (const Json& node : samples[1]["nodes"]) {
      EXPECT_TRUE(!node.contains("source") || node["source"] != "") << node;
    }
  }
  ASSERT_FALSE(grep.is_null()) << "the search has ended before top saw it";
  EXPECT_GT(grep["stall_share"], 0.3) << "it waits for the link: " << grep;
  EXPECT_GT(grep["bytes_in_s"], grep["bytes_out_s"]);
  // The kernel of the server knows its connections, that to the command among them.
  const Json links = Json::parse(folder_.Read("top"))["samples"][1]["links"];
  bool to_client = false;
  for (const Json& link : links) {
    EXPECT_GT(link["round_trip_s"], 0) << link;
    if (link["node"] != grep["node"]) continue;
    EXPECT_FALSE(to_client) << "a node has one link: " << links;
    to_client = true;
    EXPECT_GT(link["bytes_sent"], 0) << link;
  }
  EXPECT_TRUE(to_client) << links;
}

// A server without eBPF and a client with whatever there is: all three tables say so.
TEST_F(EndToEndTest, StatusTopAndExplainNameTheSourceOfEachNodesFigures) {
  StartServer(std::string(kSlow) + "[monitor]\nsource = \"thread-clock\"\n");
  Store("text", Text(12000000));
  const std::string config =
      folder_.Write("client.toml", std::string(kSlow) + "[node]\nname = \"console\"\n");
  Command search(GrepCommand({"--config", config, "--pin", "client", "kernel", "text"}));
  const std::string rid = AwaitGrep(search);
  ASSERT_NE(rid, "");
  Outcome explained;
  while (explained.code != 0 && search.Running()) {
    explained = RunAbacus({"explain", server_->option(), rid, "--json", folder_.Path("explained")});
  }
  ASSERT_EQ(explained.code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("figures of server from thread-clock; load: "));
  EXPECT_THAT(explained.out, HasSubstr("figures of console from "));
  const auto expect_named = [](const Json& nodes) {
    bool seen = false;
    for (const Json& node : nodes) {
      if (node["name"] != "server") continue;
      seen = true;
      EXPECT_EQ(std::string(node["source"]).rfind("thread-clock; load: ", 0), 0u) << node;
      EXPECT_THAT(std::string(node["source_missing"]), HasSubstr("'auto' takes the best")) << node;
      EXPECT_EQ(node["lost"]["threads"], 0) << node;
    }
    EXPECT_TRUE(seen) << nodes;
  };
  const Json decisions = Json::parse(folder_.Read("explained"))["decisions"];
  ASSERT_FALSE(decisions.empty());
  expect_named(decisions[0]["nodes"]);
  const Outcome top =
      RunAbacus({"top", server_->option(), "--batch", "-n", "1", "--json", folder_.Path("top")});
  EXPECT_THAT(top.out, HasSubstr("figures from thread-clock; load: ")) << top.err;
  expect_named(Json::parse(folder_.Read("top"))["samples"][0]["nodes"]);
  expect_named(Status()["nodes"]);
  const Outcome status = RunAbacus({"status", server_->option()});
  for (const std::string& text : {explained.out, top.out, status.out}) {
    EXPECT_THAT(text,
                ::testing::ContainsRegex("figures of [a-z, ]*server[a-z, ]* could be better:"));
  }
  search.Signal(SIGINT);
  search.Wait();
}

// Half a minute at the client, of which it does what it takes to be let go.
TEST_F(EndToEndTest, WhatTheEngineIsToldHoldsFromThenOn) {
  StartServer(kSlow);
  Store("text", Text(30000000));
  const Outcome suspended = RunAbacus({"engine", server_->option(), "--suspend"});
  EXPECT_THAT(suspended.out, HasSubstr("suspended: it decides and explains"));
  const std::string config =
      folder_.Write("client.toml", std::string(kSlow) + "[node]\nname = \"console\"\n");
  Command search(
      GrepCommand({"--config", config, "--json", folder_.Path("json"), "no such line", "text"}));
  const std::string rid = AwaitGrep(search);
  ASSERT_NE(rid, "");
  EXPECT_TRUE(AwaitReason(search, rid, "suspended"));
  EXPECT_EQ(RunAbacus({"engine", server_->option(), "--dry-run", "--resume"}).code, 0);
  EXPECT_TRUE(AwaitReason(search, rid, "dry_run"));
  const Outcome allowed = RunAbacus({"allow", server_->option(), rid, "console"});
  EXPECT_EQ(allowed.code, 0) << allowed.err;
  const Outcome on = RunAbacus({"engine", server_->option(), "--no-dry-run"});
  EXPECT_THAT(on.out, HasSubstr(": on\n"));
  EXPECT_TRUE(AwaitReason(search, rid, "nothing_mobile"));
  EXPECT_EQ(RunAbacus({"allow", server_->option(), rid}).code, 0);
  search.Wait();
  EXPECT_EQ(Json::parse(folder_.Read("json"))["migrations"], 1);
}

TEST_F(EndToEndTest, AServerTakesItsConstantsOverAtAHangUpSignal) {
  const std::string medium = "[transport]\nrate_limit_mbit = 40.0\n";
  StartServer(medium + "[placement]\nthreshold = 100.0\n[planner]\nsettled_thresh = 100.0\n");
  Store("text", Text(30000000));
  const std::string config = folder_.Write("client.toml", medium);
  // One line of 40 comes back: a move gains less than 100 times, and more than the default asks.
  Command search(
      GrepCommand({"--config", config, "--json", folder_.Path("json"), "kernel", "text"}));
  const std::string rid = AwaitGrep(search);
  ASSERT_NE(rid, "");
  EXPECT_TRUE(AwaitReason(search, rid, "below_threshold"));
  server_->Reconfigure(medium);
  search.Wait();
  EXPECT_EQ(Json::parse(folder_.Read("json"))["migrations"], 1);
  server_->command().Signal(SIGTERM);
  EXPECT_THAT(server_->command().Wait().err,
              HasSubstr("[placement], [planner] and [cache] are taken over"));
}

TEST_F(EndToEndTest, AMistakeInTheFileLeavesAServerAsItWas) {
  StartServer();
  server_->Reconfigure("[placement]\nthreshold = -1.0\n");
  server_->command().Signal(SIGTERM);
  const Outcome ended = server_->command().Wait();
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("the configuration stays as it was: "));
  EXPECT_THAT(ended.err, HasSubstr("threshold"));
}

TEST_F(EndToEndTest, StatusPutsHealthFirst) {
  StartServer();
  const Outcome status = RunAbacus({"status", server_->option()});
  const std::string health = status.out.substr(0, status.out.find('\n'));
  // A machine that does not tell how long tasks wait is never all well.
  if (health == "HEALTH  OK") {
    EXPECT_EQ(status.code, 0);
  } else {
    EXPECT_EQ(status.code, 1);
    EXPECT_EQ(health.rfind("HEALTH  the monitor is degraded: ", 0), 0u) << health;
  }
  EXPECT_THAT(status.out, HasSubstr("server"));
  EXPECT_THAT(status.out, HasSubstr("objfs.VolumeSet"));
}

}  // namespace
}  // namespace abacus::apps::testing
