// The command line of `abacus`, as whoever types it sees it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/abacus/testing/command.h"

namespace abacus::apps::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Nothing listens at port 1.
constexpr char kNobodyThere[] = "--server=127.0.0.1:1";

TEST(CommandLineTest, HelpHasTheCommandsExamplesAndExitCodes) {
  const Outcome help = RunAbacus({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* part : {"serve", "put", "get", "ls", "rm", "run", "status", "explain", "move",
                           "pin", "unpin", "config", "doctor", "examples:", "exit codes:"}) {
    EXPECT_THAT(help.out, HasSubstr(part));
  }
}

TEST(CommandLineTest, EverySubCommandHasHelp) {
  for (const char* command :
       {"serve", "put", "get", "ls", "rm", "status", "explain", "move", "pin", "unpin", "doctor"}) {
    const Outcome help = RunAbacus({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("Usage: abacus " + std::string(command)));
  }
  EXPECT_THAT(RunAbacus({"run", "grep", "--help"}).out, HasSubstr("PATTERN"));
  EXPECT_THAT(RunAbacus({"run", "word-count", "--help"}).out, HasSubstr("as wc does"));
  EXPECT_THAT(RunAbacus({"run", "aggregate", "--help"}).out, HasSubstr("COLUMN=VALUE"));
}

TEST(CommandLineTest, VersionIsPrinted) {
  const Outcome version = RunAbacus({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, StartsWith("abacus 0."));
}

TEST(CommandLineTest, NoCommandIsAnError) {
  const Outcome outcome = RunAbacus({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("--help"));
}

TEST(CommandLineTest, AnUnknownCommandIsToldWithTheNearest) {
  const Outcome outcome = RunAbacus({"sttaus"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("unknown command 'sttaus', did you mean 'status'?"));
}

TEST(CommandLineTest, AnUnknownOptionIsToldWithTheNearest) {
  const Outcome outcome = RunAbacus({"run", "grep", "--blok", "4KiB", "kernel", "Bible.txt"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("unknown option '--blok', did you mean '--block'?"));
}

TEST(CommandLineTest, AnUnknownOptionWithAValueIsToldWithTheNearest) {
  const Outcome outcome = RunAbacus({"status", "--servr=127.0.0.1:1"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("unknown option '--servr', did you mean '--server'?"));
}

TEST(CommandLineTest, AnArgumentTooManyIsAnError) {
  const Outcome outcome = RunAbacus({"explain", "1.2.3", "4.5.6"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("unknown argument '4.5.6'"));
}

TEST(CommandLineTest, AMissingArgumentIsAnError) {
  const Outcome outcome = RunAbacus({"run", "grep", "kernel"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("FILE"));
  EXPECT_THAT(RunAbacus({"run", "word-count"}).err, HasSubstr("FILE"));
  EXPECT_THAT(RunAbacus({"run", "aggregate", "sales.csv"}).err, HasSubstr("--sum"));
}

TEST(CommandLineTest, AValueThatIsNotAllowedIsAnError) {
  EXPECT_EQ(RunAbacus({"run", "grep", "--pin", "moon", "kernel", "Bible.txt"}).code, 2);
  EXPECT_EQ(RunAbacus({"run", "word-count", "--pin", "moon", "Bible.txt"}).code, 2);
  EXPECT_EQ(RunAbacus({"run", "grep", "--block", "many", "kernel", "Bible.txt"}).code, 2);
  EXPECT_EQ(RunAbacus({"status", "--objects", "-3"}).code, 2);
}

// None of these needs the server, which is not there.
TEST(CommandLineTest, MistakesOfARunThatShowWithoutAServerAreTold) {
  const auto error = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"run", "aggregate", kNobodyThere});
    words.push_back("sales.csv");
    const Outcome outcome = RunAbacus(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.out, IsEmpty());
    return outcome.err;
  };
  EXPECT_EQ(error({"--sum", "units"}),
            "abacus: --sum: 'units' is no column: they are counted from 1; with --header the first "
            "line has their names\n");
  EXPECT_THAT(error({"--sum", "0"}), HasSubstr("--sum: '0' is no column"));
  EXPECT_THAT(error({"--sum", "2", "--where", "region=north"}),
              HasSubstr("--where: 'region' is no column"));
  EXPECT_EQ(error({"--sum", "2", "--where", "north"}),
            "abacus: --where: 'north' has no '=': say COLUMN=VALUE\n");
  EXPECT_THAT(error({"--sum", "2", "--block", "0"}), HasSubstr("--block: a block of 0 bytes"));
}

TEST(CommandLineTest, AServerThatIsNotThereIsNamed) {
  // At once, as each of them tries for a while.
  std::deque<std::pair<std::string, Command>> commands;
  for (const std::vector<std::string>& command : {std::vector<std::string>{"status"},
                                                  {"explain", "1.2.3"},
                                                  {"move", "1.2.3", "server"},
                                                  {"pin", "1.2.3"},
                                                  {"unpin", "1.2.3"},
                                                  {"ls"},
                                                  {"get", "f"},
                                                  {"rm", "f"},
                                                  {"put", "f", "/dev/null"},
                                                  {"run", "grep", "kernel", "Bible.txt"},
                                                  {"run", "word-count", "Bible.txt"},
                                                  {"run", "aggregate", "--sum", "1", "f"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.begin() + (command[0] == "run" ? 2 : 1), kNobodyThere);
    commands.emplace_back(std::piecewise_construct, std::forward_as_tuple(command[0]),
                          std::forward_as_tuple(arguments));
  }
  for (auto& [name, command] : commands) {
    const Outcome outcome = command.Wait();
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.err, HasSubstr("127.0.0.1:1")) << name;
    EXPECT_THAT(outcome.out, IsEmpty()) << name;
  }
}

TEST(CommandLineTest, TheServerComesFromTheEnvironmentWhereNoneIsNamed) {
  const Outcome outcome = RunAbacus({"status"}, {.environment = {"ABACUS_SERVER=127.0.0.1:2"}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("127.0.0.1:2"));
}

TEST(CommandLineTest, OfSeveralServersTheFirstIsAsked) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"status"},
                                                  {"explain", "1.2.3"},
                                                  {"move", "1.2.3", "server"},
                                                  {"pin", "1.2.3"}}) {
    const Outcome outcome =
        RunAbacus(command, {.environment = {"ABACUS_SERVER=127.0.0.1:2,127.0.0.1:3"}});
    EXPECT_EQ(outcome.code, 2) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr("127.0.0.1:2")) << command[0];
    EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("127.0.0.1:3"))) << command[0];
  }
}

TEST(CommandLineTest, WhatIsNoObjectIsToldWithWhatOneLooksLike) {
  const Outcome outcome = RunAbacus({"explain", "grep"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("'grep' is no object"));
  EXPECT_THAT(outcome.err, HasSubstr("7.41.3"));
}

TEST(CommandLineTest, ServeWithoutADirectorySaysHowToNameOne) {
  const Outcome outcome = RunAbacus({"serve"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--data"));
}

TEST(CommandLineTest, ServeRefusesAnAddressWithoutAPort) {
  const Folder folder;
  for (const char* address :
       {"localhost", ":7070", "localhost:", "localhost:x", "localhost:65535"}) {
    const Outcome outcome = RunAbacus({"serve", "--data", folder.path(), "--listen", address});
    EXPECT_EQ(outcome.code, 2) << address;
    EXPECT_THAT(outcome.err, HasSubstr(address));
  }
}

TEST(CommandLineTest, PutOfAMissingFileNamesIt) {
  const Outcome outcome = RunAbacus({"put", kNobodyThere, "f", "/nowhere/at all"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere/at all"));
}

TEST(CommandLineTest, ConfigCheckAcceptsWhatConfigShowPrints) {
  const Folder folder;
  const Outcome shown = RunAbacus({"config", "show"});
  EXPECT_EQ(shown.code, 0);
  const std::string file = folder.Write("abacus.toml", shown.out);
  const Outcome checked = RunAbacus({"config", "check", file});
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_EQ(checked.out, file + ": OK\n");
  EXPECT_EQ(RunAbacus({"config", "show", file}).out, shown.out);
}

TEST(CommandLineTest, ConfigCheckTellsFileLineColumnAndTheNearestKey) {
  const Folder folder;
  const std::string file = folder.Write(
      "abacus.toml", "[placement]\nthreshold = 0.5\nwindwo = \"1s\"\n[log]\nlevel = 7\n");
  const Outcome outcome = RunAbacus({"config", "check", file});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr(file + ":3:1: "));
  EXPECT_THAT(outcome.err, HasSubstr("'placement.window'"));
  EXPECT_THAT(outcome.err, HasSubstr(file + ":5:"));
}

TEST(CommandLineTest, AMissingConfigurationIsAnErrorOfEveryCommandThatTakesOne) {
  EXPECT_EQ(RunAbacus({"config", "check", "/nowhere.toml"}).code, 2);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"config", "show", "/nowhere.toml"},
        {"serve", "--config", "/nowhere.toml"},
        {"ls", "--config", "/nowhere.toml"},
        {"run", "grep", "--config", "/nowhere.toml", "kernel", "Bible.txt"},
        {"run", "word-count", "--config", "/nowhere.toml", "Bible.txt"}}) {
    const Outcome outcome = RunAbacus(command);
    EXPECT_EQ(outcome.code, 2) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr("/nowhere.toml")) << command[0];
  }
}

void ExpectFindings(const Outcome& doctor) {
  EXPECT_TRUE(doctor.code == 0 || doctor.code == 1) << doctor.err;
  std::istringstream lines(doctor.out);
  int findings = 0;
  bool failed = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  ", 0) == 0) continue;  // an effect, or what mends it
    EXPECT_TRUE(line.rfind("OK  ", 0) == 0 || line.rfind("DEGRADED  ", 0) == 0 ||
                line.rfind("FAIL  ", 0) == 0)
        << line;
    failed = failed || line.rfind("FAIL", 0) == 0;
    ++findings;
  }
  EXPECT_GE(findings, 9);
  EXPECT_EQ(doctor.code, failed ? 1 : 0);
  EXPECT_THAT(doctor.err, IsEmpty());
}

TEST(CommandLineTest, DoctorTellsALineForEachSubject) { ExpectFindings(RunAbacus({"doctor"})); }

TEST(CommandLineTest, DoctorNeedsNoRights) {
  ExpectFindings(RunAbacus({"doctor"}, {.as_nobody = true}));
}

TEST(CommandLineTest, DoctorWritesItsFindingsAsJson) {
  const Folder folder;
  EXPECT_LE(RunAbacus({"doctor", "--json", folder.Path("doctor.json")}).code, 1);
  EXPECT_THAT(folder.Read("doctor.json"), HasSubstr("\"subject\": \"membarrier\""));
}

}  // namespace
}  // namespace abacus::apps::testing
