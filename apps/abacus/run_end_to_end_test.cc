// What the applications of `abacus run` beside the search print, where they go by themselves, and
// what they say of mistakes. What they share with the search is in end_to_end_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "apps/abacus/testing/command.h"
#include "apps/abacus/testing/end_to_end.h"
#include "apps/testing/any_bytes.h"

namespace abacus::apps::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A table, and what `abacus run aggregate` is to print of its units in the north.
struct Sales {
  std::string text = "day,region,units\n";
  std::string expected;
};
Sales SalesOf(size_t bytes) {
  const char* const kRegions[] = {"north", "south", "east", "west"};
  std::mt19937 random(3);
  Sales sales;
  uint64_t rows = 0, sum = 0, least = 1000, most = 0;
  for (uint64_t day = 0; sales.text.size() < bytes; ++day) {
    const uint64_t region = random() % 4, units = random() % 1000;
    sales.text += std::to_string(day) + "," + kRegions[region] + "," + std::to_string(units) + "\n";
    if (region != 0) continue;
    ++rows;
    sum += units;
    least = std::min(least, units);
    most = std::max(most, units);
  }
  sales.expected = "rows   " + std::to_string(rows) + "\nsum    " + std::to_string(sum) +
                   "\nleast  " + std::to_string(least) + "\nmost   " + std::to_string(most) + "\n";
  return sales;
}

class RunEndToEndTest : public ServerTest {
 protected:
  // `words`: the application and what follows it.
  Outcome Run(std::vector<std::string> words) const {
    words.insert(words.begin() + 1, server_->option());
    words.insert(words.begin(), "run");
    return RunAbacus(words);
  }
  // What wc(1) prints of the files that were stored by these names.
  std::string WcOf(const std::string& names) const {
    const std::string command =
        "cd " + folder_.path() + " && LC_ALL=C wc " + names + " > expected 2> /dev/null";
    EXPECT_NE(std::system(command.c_str()), -1);
    return folder_.Read("expected");
  }
  nlohmann::json Json() const {
    return nlohmann::json::parse(folder_.Read("json"), nullptr, false);
  }
};

TEST_F(RunEndToEndTest, WordCountPrintsWhatWcPrintsWhereverItRuns) {
  StartServer();
  Store("text", AnyBytes(3'000'000, 1));
  Store("other", AnyBytes(70'000, 2) + " a word without an end");
  Store("empty", "");
  const std::string expected = WcOf("text other empty");
  for (const std::string pin : {"client", "server"}) {
    const Outcome counted =
        Run({"word-count", "--pin", pin, "--json", folder_.Path("json"), "text", "other", "empty"});
    EXPECT_EQ(counted.code, 0) << counted.err;
    EXPECT_EQ(counted.out, expected) << pin;
    const nlohmann::json json = Json();
    EXPECT_EQ(json["placement"], pin);
    EXPECT_EQ(json["migrations"], 0);
    EXPECT_EQ(json["bytes"], folder_.Read("text").size() + folder_.Read("other").size());
    ASSERT_EQ(json["files"].size(), 3u) << json;
    EXPECT_EQ(json["files"][1]["file"], "other");
    EXPECT_EQ(json["files"][1]["bytes"], folder_.Read("other").size());
    // At the client the files cross the link, at the server only three numbers a block do.
    if (pin == "client") {
      EXPECT_GT(json["link_bytes"], 3'000'000);
    } else {
      EXPECT_LT(json["link_bytes"], 1'000'000);
    }
  }
  const Outcome alone = Run({"word-count", "-q", "other"});
  EXPECT_EQ(alone.out, WcOf("other"));
  EXPECT_THAT(alone.err, IsEmpty());
  EXPECT_EQ(Run({"word-count", "-q", "empty"}).out, WcOf("empty"));
}

TEST_F(RunEndToEndTest, WordCountMovesToItsDataByItselfAndStaysThereForTheNextFile) {
  StartServer(kSlow);
  Store("text", AnyBytes(4'000'000, 1));
  Store("other", AnyBytes(2'000'000, 2));
  const std::string config = folder_.Write("client.toml", kSlow);
  const Outcome counted =
      Run({"word-count", "--config", config, "--json", folder_.Path("json"), "text", "other"});
  EXPECT_EQ(counted.code, 0) << counted.err;
  EXPECT_EQ(counted.out, WcOf("text other"));
  const nlohmann::json json = Json();
  EXPECT_EQ(json["migrations"], 1) << counted.err;
  EXPECT_LT(json["link_bytes"], 3'000'000) << counted.err;
  EXPECT_THAT(counted.err, AllOf(HasSubstr("moved: wordcount"), HasSubstr("by the engine")));
}

TEST_F(RunEndToEndTest, AggregateAddsTheSameUpWhereverItRunsAndMovesByItself) {
  StartServer(kSlow);
  const Sales sales = SalesOf(4'000'000);
  Store("sales", sales.text);
  const std::string config = folder_.Write("client.toml", kSlow);
  for (const std::string pin : {"client", "server", ""}) {
    std::vector<std::string> words = {
        "aggregate", "--config", config,  "--json",  folder_.Path("json"),
        "--header",  "--sum",    "units", "--where", "region=north",
        "sales"};
    if (!pin.empty()) words.insert(words.begin() + 1, {"--pin", pin});
    const Outcome added = Run(words);
    EXPECT_EQ(added.code, 0) << added.err;
    EXPECT_EQ(added.out, sales.expected) << pin;
    const nlohmann::json json = Json();
    EXPECT_EQ(json["bytes"], sales.text.size());
    EXPECT_EQ(json["migrations"], pin.empty() ? 1 : 0) << added.err;
    if (pin == "client") {
      EXPECT_GT(json["link_bytes"], 4'000'000);
    } else {
      EXPECT_LT(json["link_bytes"], 3'000'000) << added.err;
    }
    if (pin.empty()) {
      EXPECT_THAT(added.err, HasSubstr("moved: columnaggregate"));
    }
  }
}

TEST_F(RunEndToEndTest, AggregateTakesColumnsByNameOrNumberAndToldSeparators) {
  StartServer();
  Store("sales", "region;units;price\r\nnorth;3;0.1\r\nsouth;5;7\nnorth;4;0.2");
  const auto aggregate = [this](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"aggregate", "-q", "--separator", ";", "--header"};
    words.insert(words.end(), more.begin(), more.end());
    words.push_back("sales");
    return Run(words);
  };
  const Outcome by_name = aggregate({"--sum", "price", "--where", "region=north"});
  EXPECT_EQ(by_name.code, 0);
  EXPECT_EQ(by_name.out, "rows   2\nsum    0.3\nleast  0.1\nmost   0.2\n");
  EXPECT_THAT(by_name.err, IsEmpty());
  EXPECT_EQ(aggregate({"--sum", "3", "--where", "1=north"}).out, by_name.out);
  EXPECT_EQ(aggregate({"--sum", "2"}).out, "rows   3\nsum    12\nleast  3\nmost   5\n");
  const Outcome none = aggregate({"--sum", "2", "--where", "region=moon"});
  EXPECT_EQ(none.code, 1) << none.err;
  EXPECT_EQ(none.out, "rows   0\nsum    0\n");
}

TEST_F(RunEndToEndTest, AFileThatCannotBeOpenedIsToldAndTheOthersAreCounted) {
  StartServer();
  Store("text", "a b\nc\n");
  const Outcome counted = Run({"word-count", "-q", "absent", "text"});
  EXPECT_EQ(counted.code, 2);
  EXPECT_EQ(counted.err, "abacus: there is no 'absent'\n");
  EXPECT_EQ(counted.out, WcOf("absent text"));
  const Outcome missing = Run({"aggregate", "-q", "--sum", "1", "absent"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_EQ(missing.err, "abacus: there is no 'absent'\n");
  EXPECT_THAT(missing.out, IsEmpty());

  ASSERT_EQ(RunAbacus({"put", server_->option(), "d/text", folder_.Path("text")}).code, 0);
  const Outcome directory = Run({"word-count", "-q", "d"});
  EXPECT_EQ(directory.code, 2);
  EXPECT_EQ(directory.err, "abacus: 'd' cannot be opened: it is a directory\n");
  EXPECT_THAT(directory.out, IsEmpty());
  EXPECT_EQ(Run({"word-count", "-q", "d/text"}).out, "2 3 6 d/text\n");
}

TEST_F(RunEndToEndTest, MistakesAboutATableAreNamedWithTheWayOut) {
  StartServer();
  Store("sales", "region,units,price\nnorth,3,0.1\n");
  const auto error = [this](std::vector<std::string> words) {
    words.insert(words.begin(), {"aggregate", "-q"});
    words.push_back("sales");
    const Outcome outcome = Run(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.out, IsEmpty());
    return outcome.err;
  };
  EXPECT_EQ(error({"--header", "--sum", "unit"}),
            "abacus: --sum: there is no column 'unit', did you mean 'units'? The first line has 3: "
            "region, units, price\n");
  EXPECT_THAT(error({"--header", "--sum", "units", "--where", "4=north"}),
              HasSubstr("--where: there is no column '4'. The first line has 3: region, units"));
  EXPECT_THAT(error({"--sum", "9"}), AllOf(HasSubstr("sales: line 1: it has no column 9"),
                                           HasSubstr("end at each ',' (--separator)")));
  EXPECT_THAT(
      error({"--sum", "2"}),
      AllOf(HasSubstr("sales: line 1: column 2 is 'units' and no number"), HasSubstr("--header")));
  EXPECT_THAT(error({"--header", "--sum", "region"}),
              HasSubstr("sales: line 2: column 1 is 'north' and no number"));
  EXPECT_THAT(error({"--separator", "; ", "--sum", "1"}),
              HasSubstr("the separator is '; ': it must be one character"));
}

TEST_F(RunEndToEndTest, APinThatCannotBeHadIsToldWithTheWayOut) {
  StartServer();
  Store("sales", "north,1\n");
  // What it looks for is a part of its state, and larger than a message of this client may be.
  const std::string where = "1=" + std::string(60'000, 'x');
  const std::string config =
      folder_.Write("client.toml", "[transport]\nframe_bytes_max = \"64KiB\"\n");
  const auto pinned = [&](const std::string& place) {
    return Run({"aggregate", "-q", "--config", config, "--pin", place, "--sum", "2", "--where",
                where, "sales"});
  };
  const Outcome refused = pinned("server");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.out, IsEmpty());
  EXPECT_THAT(refused.err, AllOf(HasSubstr("abacus: --pin server cannot be had: a checkpoint of "),
                                 HasSubstr("raise transport.frame_bytes_max")));
  EXPECT_EQ(pinned("client").out, "rows   0\nsum    0\n");
}

}  // namespace
}  // namespace abacus::apps::testing
