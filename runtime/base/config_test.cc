#include "runtime/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/config_schema.h"

namespace abacus::runtime {
namespace {

using config_internal::FormatDouble;
using config_internal::NearestKey;
using config_internal::Overloaded;
using config_internal::Row;
using config_internal::Rows;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The lines of the error that parsing `text` gives; none where it parses.
std::vector<std::string> ErrorsOf(const std::string& text) {
  const auto config = ParseConfig(text, "f.toml");
  if (config.ok()) return {};
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return absl::StrSplit(std::string(config.status().message()), '\n');
}

Config MustParse(const std::string& text) {
  const auto config = ParseConfig(text, "f.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(Config());
}

// A file with one key of the schema, whose value stands at line 2.
std::string OneKey(const Row& row, const std::string& value) {
  return absl::StrCat("[", row.section, "]\n", row.key, " = ", value, "\n");
}

// -- what a good file gives -----------------------------------------------------------------------

TEST(ConfigTest, EmptyTextIsTheDefaults) {
  EXPECT_EQ(MustParse(""), Config());
  EXPECT_EQ(MustParse("# nothing\n\n[node]\n"), Config());
}

TEST(ConfigTest, ValuesOfEveryTypeAreRead) {
  const Config config = MustParse(R"(
[node]
name = "store-1"
data_address = "unix:/run/abacus/data"
[transport]
workers_max = 7
rate_limit_mbit = 10
frame_bytes_max = "2MiB"
[placement]
enabled = false
window = "1m30s"
threshold = 0.5
)");
  EXPECT_EQ(config.node.name, "store-1");
  EXPECT_EQ(config.node.data_address, "unix:/run/abacus/data");
  EXPECT_EQ(config.transport.workers_max, 7);
  EXPECT_EQ(config.transport.rate_limit_mbit, 10.0);
  EXPECT_EQ(config.transport.frame_bytes_max, uint64_t{2} << 20);
  EXPECT_FALSE(config.placement.enabled);
  EXPECT_EQ(config.placement.window, absl::Seconds(90));
  EXPECT_EQ(config.placement.threshold, 0.5);
  EXPECT_EQ(config.membership, Config().membership);
}

TEST(ConfigTest, DottedKeysAndInlineTablesAreSectionsToo) {
  EXPECT_EQ(MustParse("placement.threshold = 0.5\nnode = { name = \"n\" }\n").node.name, "n");
  EXPECT_EQ(MustParse("placement.threshold = 0.5\n").placement.threshold, 0.5);
}

// -- errors, each with its place ------------------------------------------------------------------

TEST(ConfigTest, UnknownKeyNamesTheNearestOneAndItsPlace) {
  EXPECT_THAT(ErrorsOf("[node]\nname = \"a\"\n  nmae = \"b\"\n"),
              ElementsAre("f.toml:3:3: unknown key 'node.nmae' (nearest valid key: 'node.name')"));
}

TEST(ConfigTest, MisspeltSectionNamesTheNearestKey) {
  EXPECT_THAT(ErrorsOf("[placment]\nwindow = \"1s\"\n"),
              ElementsAre("f.toml:2:1: unknown key 'placment.window' (nearest valid key: "
                          "'placement.window')"));
  EXPECT_THAT(ErrorsOf("[placment]\n"), ElementsAre("f.toml:1:2: unknown section 'placment'"));
}

TEST(ConfigTest, KeyOutsideOfItsSectionNamesTheRightOne) {
  EXPECT_THAT(ErrorsOf("threshold = 0.3\n"),
              ElementsAre(HasSubstr("1:1: unknown key 'threshold' (nearest valid key: "
                                    "'placement.threshold')")));
  EXPECT_EQ(NearestKey("transport.checkpoint_memory_bytes_max"),
            "migration.checkpoint_memory_bytes_max");
}

TEST(ConfigTest, SectionThatIsNoTableIsAnError) {
  EXPECT_THAT(ErrorsOf("node = 3\n"),
              ElementsAre("f.toml:1:8: 'node' is a section, [node], and not an integer"));
  EXPECT_THAT(ErrorsOf("[[node]]\nname = \"a\"\n"), ElementsAre(HasSubstr("not an array")));
}

TEST(ConfigTest, KeyThatIsATableOrArrayIsAnError) {
  EXPECT_THAT(ErrorsOf("[placement.window]\na = 1\n"),
              ElementsAre(StartsWith("f.toml:1:1: placement.window: expected a duration")));
  EXPECT_THAT(ErrorsOf("[node]\nname = [\"a\"]\n"),
              ElementsAre("f.toml:2:8: node.name: expected a string, got an array"));
  EXPECT_THAT(ErrorsOf("[node]\nname = 2026-01-02\n"),
              ElementsAre(HasSubstr("expected a string, got a date or time")));
}

// Profiles that are kept with their results have them so.
TEST(ConfigTest, ACountMayBeWrittenAsBytesAsItOnceWas) {
  EXPECT_EQ(MustParse("[planner]\nsamples_max = 7\n").planner.samples_max, 7);
  EXPECT_EQ(MustParse("[planner]\nsamples_max = \"7 B\"\n").planner.samples_max, 7);
  for (const char* const text : {"7 KiB", "7", " B", "seven B", "7.5 B"}) {
    EXPECT_THAT(ErrorsOf(absl::StrCat("[planner]\nsamples_max = \"", text, "\"\n")),
                ElementsAre(HasSubstr("planner.samples_max: expected an integer")))
        << text;
  }
}

TEST(ConfigTest, AllErrorsOfAFileAreReportedInItsOrder) {
  EXPECT_THAT(ErrorsOf("[transport]\nworkers_max = 0\nnonsense = 1\n"
                       "[log]\nlevel = \"loud\"\n[dedup]\nentries_per_object_max = \"x\"\n"),
              ElementsAre(StartsWith("f.toml:2:15: transport.workers_max: 0 is outside 1 to 4096"),
                          StartsWith("f.toml:3:1: unknown key 'transport.nonsense'"),
                          StartsWith("f.toml:5:9: log.level: expected one of debug, info, "
                                     "warning, error, got \"loud\""),
                          StartsWith("f.toml:7:26: dedup.entries_per_object_max: expected an "
                                     "integer, got \"x\"")));
}

TEST(ConfigTest, TextThatIsNotTomlHasThePlaceWhereItEnds) {
  EXPECT_THAT(ErrorsOf("[node]\nname = \n"), ElementsAre(StartsWith("f.toml:2:")));
  EXPECT_THAT(ErrorsOf("[node\n"), ElementsAre(StartsWith("f.toml:1:")));
  EXPECT_THAT(ErrorsOf("a = 1\na = 2\n"), ElementsAre(StartsWith("f.toml:2:")));
  EXPECT_THAT(ErrorsOf("\xff\xfe"), ElementsAre(StartsWith("f.toml:1:")));
}

TEST(ConfigTest, DurationsNeedAUnitAndARange) {
  for (const char* value : {"1", "1.5", "\"1\"", "\"\"", "\"1 s\"", "\"x\"", "true"}) {
    EXPECT_THAT(ErrorsOf(absl::StrCat("[placement]\nwindow = ", value, "\n")),
                ElementsAre(StartsWith("f.toml:2:10: placement.window: expected a duration such "
                                       "as \"250ms\"")))
        << value;
  }
  for (const char* value : {"\"inf\"", "\"-1s\"", "\"0\"", "\"2h\"", "\"-inf\""}) {
    EXPECT_THAT(ErrorsOf(absl::StrCat("[placement]\nwindow = ", value, "\n")),
                ElementsAre(HasSubstr("is outside 50ms to 1h")))
        << value;
  }
}

TEST(ConfigTest, NumbersThatAreNoneAreOutsideEveryRange) {
  for (const char* value : {"nan", "inf", "-inf", "-0.1", "101"}) {
    EXPECT_THAT(ErrorsOf(absl::StrCat("[placement]\nthreshold = ", value, "\n")),
                ElementsAre(HasSubstr("is outside 0 to 100")))
        << value;
  }
}

TEST(ConfigTest, AddressesAreChecked) {
  auto errors = [](const char* key, const std::string& value) {
    return ErrorsOf(absl::StrCat("[node]\n", key, " = \"", value, "\"\n"));
  };
  for (const char* good : {"127.0.0.1:0", "host-1.example:65535", "[::1]:7070", "0.0.0.0:1"}) {
    EXPECT_THAT(errors("control_address", good), IsEmpty()) << good;
    EXPECT_THAT(errors("data_address", good), IsEmpty()) << good;
  }
  for (const char* bad : {"", "host", "host:", ":7070", "host:65536", "host:-1", "host:7x",
                          "::1:70", "a/b:1", "unix:", "unix:relative", "[]:1"}) {
    EXPECT_THAT(errors("control_address", bad), ElementsAre(HasSubstr("expected host:port")))
        << bad;
    EXPECT_THAT(errors("data_address", bad), ElementsAre(HasSubstr("expected host:port"))) << bad;
  }
  EXPECT_THAT(errors("control_address", "unix:/a"), ElementsAre(HasSubstr("host:port")));
  EXPECT_THAT(errors("data_address", "unix:/a"), IsEmpty());
  EXPECT_THAT(errors("data_address", "unix:/" + std::string(107, 'a')),
              ElementsAre(HasSubstr("at most 107 bytes")));
  EXPECT_THAT(errors("advertised_control_address", ""), IsEmpty());
  EXPECT_THAT(errors("advertised_control_address", "host:1"), IsEmpty());
  EXPECT_THAT(errors("advertised_control_address", "host:0"), ElementsAre(HasSubstr("port 1 to")));
  EXPECT_THAT(errors("advertised_data_address", "unix:/a"), IsEmpty());
  EXPECT_THAT(errors("advertised_data_address", "host:0"), ElementsAre(HasSubstr("port 1 to")));
}

TEST(ConfigTest, NamesAndControlCharactersAreChecked) {
  EXPECT_THAT(ErrorsOf("[node]\nname = \"a b\"\n"), ElementsAre(HasSubstr("letters, digits")));
  EXPECT_THAT(ErrorsOf(absl::StrCat("[node]\nname = \"", std::string(65, 'a'), "\"\n")),
              ElementsAre(HasSubstr("at most 64 letters")));
  EXPECT_THAT(ErrorsOf("[node]\ndata_dir = \"/a\\u0000b\"\n"),
              ElementsAre(HasSubstr("text without control characters, got \"/a?b\"")));
}

TEST(ConfigTest, MessagesStayOneShortLineWhateverTheFileHolds) {
  const std::string longest(5'000, 'k');
  for (const std::string& text :
       {absl::StrCat(longest, " = 1\n"), absl::StrCat("[", longest, "]\n"),
        absl::StrCat("[node]\nname = \"", longest, "\"\n"),
        std::string("\"a\\nb\\u001b\" = 1\n")}) {
    const auto errors = ErrorsOf(text);
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_LT(errors[0].size(), 300u);
    EXPECT_EQ(errors[0].find('\x1b'), std::string::npos);
  }
}

// -- rules across keys ----------------------------------------------------------------------------

TEST(ConfigTest, LeaseMustOutlastTwoHeartbeats) {
  EXPECT_THAT(ErrorsOf("[membership]\nheartbeat_interval = \"1500ms\"\n"),
              ElementsAre("f.toml:2:22: membership.lease (3s) must be longer than 2 x "
                          "membership.heartbeat_interval (1.5s)"));
  EXPECT_THAT(ErrorsOf("[membership]\nheartbeat_interval = \"1499ms\"\n"), IsEmpty());
}

TEST(ConfigTest, DeathMustComeAfterTheLease) {
  EXPECT_THAT(ErrorsOf("[membership]\ndead_after = \"3s\"\n"),
              ElementsAre("f.toml:2:14: membership.dead_after (3s) must be longer than "
                          "membership.lease (3s)"));
}

TEST(ConfigTest, AWindowIsLongerThanTheTimeBetweenDigests) {
  EXPECT_THAT(ErrorsOf("[placement]\ndigest_interval = \"1s\"\n"),
              ElementsAre("f.toml:2:19: placement.window (1s) must be longer than "
                          "placement.digest_interval (1s)"));
  EXPECT_THAT(ErrorsOf("[placement]\ndigest_interval = \"1s\"\nwindow = \"1001ms\"\n"), IsEmpty());
}

TEST(ConfigTest, RuleAcrossKeysStandsAtTheLaterOfThem) {
  EXPECT_THAT(ErrorsOf("[membership]\ndead_after = \"4s\"\n\nlease = \"6s\"\n"),
              ElementsAre(StartsWith("f.toml:4:9: membership.dead_after (4s)")));
}

TEST(ConfigTest, RuleAcrossKeysIsNotAppliedToAValueThatIsWrongItself) {
  EXPECT_THAT(ErrorsOf("[membership]\ndead_after = \"1s\"\nlease = \"soon\"\n"),
              ElementsAre(HasSubstr("membership.lease: expected a duration")));
}

TEST(ConfigTest, OneAddressForBothPlanesIsAnErrorUnlessAnyPortWillDo) {
  EXPECT_THAT(ErrorsOf("[node]\ndata_address = \"127.0.0.1:7070\"\n"),
              ElementsAre("f.toml:2:16: node.control_address and node.data_address are both "
                          "\"127.0.0.1:7070\""));
  EXPECT_THAT(ErrorsOf("[node]\ndata_address = \"h:0\"\ncontrol_address = \"h:0\"\n"), IsEmpty());
}

// -- every row of the schema ----------------------------------------------------------------------

TEST(ConfigSchemaTest, NamesAreUniqueAndSectionsStandTogether) {
  std::set<std::string> names;
  std::set<std::string> sections;
  std::string section;
  for (const Row& row : Rows()) {
    EXPECT_TRUE(names.insert(row.name()).second) << row.name();
    if (row.section == section) continue;
    section = row.section;
    EXPECT_TRUE(sections.insert(section).second) << section << " stands in two places";
  }
}

TEST(ConfigSchemaTest, EachRowHasAFieldOfItsOwn) {
  Config config;
  std::set<const void*> fields;
  for (const Row& row : Rows()) {
    const void* field =
        std::visit([](auto* value) -> const void* { return value; }, row.field(config));
    EXPECT_TRUE(fields.insert(field).second) << row.name();
  }
}

TEST(ConfigSchemaTest, EachDefaultIsAcceptedAndEachKeyIsItsOwnNearest) {
  for (const ConfigKey& key : ConfigKeys()) {
    const size_t dot = key.name.find('.');
    EXPECT_EQ(MustParse(absl::StrCat("[", key.name.substr(0, dot), "]\n", key.name.substr(dot + 1),
                                     " = ", key.default_value, "\n")),
              Config())
        << key.name;
    EXPECT_EQ(NearestKey(key.name), key.name);
    EXPECT_FALSE(key.help.empty());
    EXPECT_FALSE(key.type.empty());
  }
}

// Values just outside the range of a row, as they stand in a file.
std::vector<std::string> Outside(const Row& row) {
  Config config;
  auto duration = [](double ns) { return absl::StrCat("\"", static_cast<int64_t>(ns), "ns\""); };
  return std::visit(
      Overloaded{
          [](bool*) {
            return std::vector<std::string>{"1", "\"true\""};
          },
          [](std::string*) {
            return std::vector<std::string>{"1", "\"\\u0001\""};
          },
          [&](int64_t*) {
            return std::vector<std::string>{absl::StrCat(static_cast<int64_t>(row.min) - 1),
                                            absl::StrCat(static_cast<int64_t>(row.max) + 1), "1.0"};
          },
          [&](double*) {
            return std::vector<std::string>{FormatDouble(row.min - 1), FormatDouble(row.max + 1),
                                            "\"1\""};
          },
          [&](absl::Duration*) {
            return std::vector<std::string>{duration(row.min - 1), duration(row.max + 1), "1"};
          },
          [&](uint64_t*) {
            std::vector<std::string> values = {
                absl::StrCat("\"", static_cast<uint64_t>(row.max) + 1, " B\""), "1"};
            if (row.min > 0) {
              values.push_back(absl::StrCat("\"", static_cast<uint64_t>(row.min) - 1, " B\""));
            }
            return values;
          },
      },
      row.field(config));
}

TEST(ConfigSchemaTest, EachRowRefusesWhatIsOutsideItsRangeOrOfAnotherType) {
  for (const Row& row : Rows()) {
    for (const std::string& value : Outside(row)) {
      const auto errors = ErrorsOf(OneKey(row, value));
      ASSERT_FALSE(errors.empty()) << row.name() << " = " << value;
      EXPECT_THAT(errors[0], StartsWith(absl::StrCat("f.toml:2:", strlen(row.key) + 4, ": ",
                                                     row.name(), ": ")))
          << value;
    }
  }
}

// Sets a row's field to the smallest or largest value that it may have.
void SetToBound(const Row& row, Config& config, bool largest) {
  const double bound = largest ? row.max : row.min;
  std::visit(
      Overloaded{
          [&](bool* value) { *value = largest; },
          [&](int64_t* value) { *value = static_cast<int64_t>(bound); },
          [&](double* value) { *value = largest ? bound : std::nextafter(bound, row.max); },
          [&](absl::Duration* value) { *value = absl::Nanoseconds(static_cast<int64_t>(bound)); },
          [&](uint64_t* value) { *value = static_cast<uint64_t>(bound); },
          [&](std::string* value) {
            using config_internal::Form;
            if (row.form == Form::kAny) *value = "/a \"quoted\\path\" caf\xc3\xa9 # =";
            if (row.form == Form::kName) *value = "Node_1.x-y";
            if (row.form == Form::kMonitorSource) *value = largest ? "thread-clock" : "auto";
            if (row.form == Form::kLogLevel) *value = largest ? "error" : "debug";
            if (row.form == Form::kListenAddress || row.form == Form::kAdvertised) {
              *value = "[::1]:1";
            }
            if (row.form == Form::kListenAnyAddress || row.form == Form::kAdvertisedAny) {
              *value = "unix:/x y";
            }
          },
      },
      row.field(config));
}

TEST(ConfigSchemaTest, EachRowTakesItsBoundsAndShowConfigBringsThemBack) {
  for (const Row& row : Rows()) {
    for (const bool largest : {false, true}) {
      Config config;
      SetToBound(row, config, largest);
      // Keep the rules across keys, which are not what is tested here.
      if (std::string(row.section) == "membership") {
        config.membership.heartbeat_interval =
            std::min(config.membership.heartbeat_interval, absl::Milliseconds(20));
        config.membership.dead_after =
            std::max(config.membership.dead_after, config.membership.lease + absl::Seconds(1));
      }
      if (row.name() == "placement.window") {
        config.placement.digest_interval =
            std::min(config.placement.digest_interval, config.placement.window / 2);
      } else {
        config.placement.window =
            std::max(config.placement.window, 2 * config.placement.digest_interval);
      }
      const auto again = ParseConfig(ShowConfig(config), "shown.toml");
      ASSERT_TRUE(again.ok()) << row.name() << ": " << again.status();
      EXPECT_EQ(*again, config) << row.name();
    }
  }
}

TEST(ConfigSchemaTest, ShowConfigOfTheDefaultsNamesEachKeyUnderItsHelp) {
  const std::string shown = ShowConfig(Config());
  EXPECT_EQ(MustParse(shown), Config());
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string leaf = key.name.substr(key.name.find('.') + 1);
    EXPECT_THAT(shown, HasSubstr(absl::StrCat("\n", leaf, " = ", key.default_value, "\n")));
    EXPECT_THAT(shown, HasSubstr(absl::StrCat("# ", key.help, "\n")));
  }
}

TEST(ConfigSchemaTest, ReferenceHasARowForEachKeyAndNoBrokenTable) {
  const std::string reference = ConfigReference();
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_THAT(reference, HasSubstr(absl::StrCat("| ", key.name.substr(key.name.find('.') + 1),
                                                  " | ", key.type, " |")));
  }
  const std::vector<std::string> lines = absl::StrSplit(reference, '\n');
  for (const std::string& line : lines) {
    if (line.empty() || line[0] != '|') continue;
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 6) << line;
  }
}

TEST(ConfigSchemaTest, DefaultsAreTheOnesThatTheDesignStates) {
  const Config config;
  EXPECT_EQ(config.placement.window, absl::Seconds(1));
  EXPECT_EQ(config.placement.threshold, 0.30);
  EXPECT_EQ(config.node.control_address, "127.0.0.1:7070");
  EXPECT_EQ(config.transport.nesting_depth_max, 64);
}

// -- files ----------------------------------------------------------------------------------------

class ConfigFileTest : public ::testing::Test {
 protected:
  ~ConfigFileTest() override { unlink(path_.c_str()); }
  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/abacus_config_", getpid(), ".toml");
};

TEST_F(ConfigFileTest, LoadConfigNamesTheFileInItsErrors) {
  std::ofstream(path_) << "[node]\nnam = 1\n";
  const auto config = LoadConfig(path_);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), StartsWith(path_ + ":2:1: unknown key"));
}

TEST_F(ConfigFileTest, LoadConfigReadsAFile) {
  std::ofstream(path_) << "[node]\nname = \"n\"\n";
  const auto config = LoadConfig(path_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.name, "n");
}

TEST_F(ConfigFileTest, MissingFileIsNotFoundAndNamed) {
  const auto config = LoadConfig(path_);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(path_));
}

TEST_F(ConfigFileTest, DirectoryAndHugeFileAreErrors) {
  EXPECT_FALSE(LoadConfig(::testing::TempDir()).ok());
  std::ofstream(path_) << std::string((1 << 20) + 1, '#');
  const auto config = LoadConfig(path_);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("larger than 1 MiB"));
}

// Whatever bytes a file holds, it parses or gives errors with a place; the sanitizers see to the
// rest.
TEST(ConfigDamageTest, DamagedFilesNeverCrash) {
  const std::string good = ShowConfig(Config());
  std::mt19937_64 random(20260402);
  int refused = 0;
  for (int round = 0; round < 1'000; ++round) {
    std::string text = good.substr(0, random() % good.size());
    for (int i = 0; i < 3 && !text.empty(); ++i) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const auto config = ParseConfig(text, "f.toml");
    if (config.ok()) continue;
    ++refused;
    EXPECT_THAT(std::string(config.status().message()), StartsWith("f.toml:"));
  }
  EXPECT_GT(refused, 100);
}

TEST(ConfigDamageTest, DeeplyNestedValuesAreAnErrorAndNotAStackOverflow) {
  EXPECT_THAT(ErrorsOf("a = " + std::string(200'000, '[')), ElementsAre(StartsWith("f.toml:1:")));
}

}  // namespace
}  // namespace abacus::runtime
