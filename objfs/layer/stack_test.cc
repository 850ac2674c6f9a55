#include "objfs/layer/stack.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/layer/template_layer.h"
#include "objfs/layer/testing/memory_layer.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryLayer;

constexpr OptionSpec kCacheOptions[] = {
    {"block", OptionType::kBytes, "8 KiB", 512, 1 << 20, "block size"},
    {"age", OptionType::kDuration, "5s", 0, 3600, "of dirty blocks"},
    {"through", OptionType::kFlag, "off", 0, 1, "write-through"},
    {"dirty", OptionType::kShare, "0.5", 0, 1, "of the budget"},
};

LayerKinds Kinds() {
  LayerKinds kinds;
  kinds.Add({"cache", "test.Cache", kCacheOptions})
      .Add({"raid5", "test.Raid5", {}, 3, 16})
      .Add<TemplateLayer>()
      .Add<ErrorLayer>()
      .Add<MemoryLayer>();
  return kinds;
}

std::string MistakeOf(std::string_view text) {
  auto stack = ParseStack(text);
  const absl::Status status = stack.ok() ? CheckStack(*stack, Kinds()) : stack.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(StackTest, ReadsLayersOptionsAndBranches) {
  const auto stack =
      ParseStack(" cache ( block = 64 KiB , through=on) / raid5/( template/memory )*5 ");
  ASSERT_TRUE(stack.ok()) << stack.status();
  ASSERT_EQ(stack->levels.size(), 2u);
  EXPECT_EQ(stack->levels[0].kind, "cache");
  ASSERT_EQ(stack->levels[0].options.size(), 2u);
  EXPECT_EQ(stack->levels[0].options[0].value, "64 KiB");
  ASSERT_NE(stack->branch, nullptr);
  EXPECT_EQ(stack->copies, 5u);
  EXPECT_EQ(stack->ToString(), "cache(block=64 KiB,through=on)/raid5/(template/memory)*5");
  EXPECT_TRUE(CheckStack(*stack, Kinds()).ok()) << CheckStack(*stack, Kinds());
}

TEST(StackTest, ShowsWhereTheMistakeIs) {
  EXPECT_EQ(MistakeOf("cache/memroy"),
            "stack text, byte 7: no layer 'memroy', did you mean 'memory'?\n"
            "  cache/memroy\n"
            "        ^");
  EXPECT_THAT(MistakeOf("cache(blok=8 KiB)/memory"),
              HasSubstr("byte 7: no option 'blok', did you mean 'block'?"));
  EXPECT_THAT(MistakeOf("cache(block=8 KB)/memory"),
              HasSubstr("byte 13: option 'block' cannot be '8 KB': 512 B to 1 MiB"));
  EXPECT_THAT(MistakeOf("cache(through=yes)/memory"), HasSubstr("cannot be 'yes': on or off"));
  EXPECT_THAT(MistakeOf("cache(dirty=1.5)/memory"), HasSubstr("cannot be '1.5': 0 to 1"));
  EXPECT_THAT(MistakeOf("cache(age=2h)/memory"), HasSubstr("cannot be '2h': 0 to 1h"));
  EXPECT_THAT(MistakeOf("cache(age=1s,age=2s)/memory"), HasSubstr("given twice"));
  EXPECT_THAT(MistakeOf("memory/memory"), HasSubstr("'memory' stands on 0 layers, here on 1"));
  EXPECT_THAT(MistakeOf("cache"), HasSubstr("'cache' stands on 1 layer, here on 0"));
  EXPECT_THAT(MistakeOf("raid5/(memory)*2"), HasSubstr("stands on 3 to 16 layers, here on 2"));
}

TEST(StackTest, RefusesWhatIsNoStack) {
  EXPECT_THAT(MistakeOf(""), HasSubstr("expected a layer's name"));
  EXPECT_THAT(MistakeOf("cache/"), HasSubstr("expected a layer's name"));
  EXPECT_THAT(MistakeOf("cache//memory"), HasSubstr("expected a layer's name"));
  EXPECT_THAT(MistakeOf("cache(block)/memory"), HasSubstr("expected '='"));
  EXPECT_THAT(MistakeOf("cache(block=)/memory"), HasSubstr("expected a value"));
  EXPECT_THAT(MistakeOf("cache(block=8 KiB/memory"), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(MistakeOf("cache memory"), HasSubstr("expected '/' or the end"));
  EXPECT_THAT(MistakeOf("(memory)*3"), HasSubstr("a branch needs a layer above it"));
  EXPECT_THAT(MistakeOf("raid5/(memory)"), HasSubstr("how many copies"));
  EXPECT_THAT(MistakeOf("raid5/(memory)*0"), HasSubstr("1 to 64"));
  EXPECT_THAT(MistakeOf("raid5/(memory)*99999999999999999999"), HasSubstr("1 to 64"));
  EXPECT_THAT(MistakeOf("raid5/(memory)*3/cache"), HasSubstr("nothing can stand under a branch"));
  EXPECT_THAT(MistakeOf(std::string(5000, 'a')), HasSubstr("at most 4096 bytes"));
  std::string deep = "cache";
  for (int i = 0; i < 40; ++i) deep += "/cache";
  EXPECT_THAT(MistakeOf(deep), HasSubstr("at most 32 layers"));
  std::string wide = "memory";
  for (int i = 0; i < 5; ++i) wide = "raid5/(" + wide + ")*16";
  EXPECT_THAT(MistakeOf(wide), HasSubstr("at most 256 layers in all"));
}

TEST(StackTest, WhatIsPrintedReadsBackWhateverTheText) {
  const uint32_t seed = static_cast<uint32_t>(runtime::testing::Seed(11));
  std::mt19937 random(seed);
  const std::vector<std::string> parts = {"cache", "raid5", "memory", "/", "(",  ")", "*3",
                                          "=",     "8 KiB", ",",      " ", "on", "*", "age"};
  int good = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (uint32_t n = random() % 12; n > 0; --n) text += parts[random() % parts.size()];
    const auto stack = ParseStack(text);
    if (!stack.ok()) continue;
    ++good;
    const auto again = ParseStack(stack->ToString());
    ASSERT_TRUE(again.ok()) << text << " -> " << stack->ToString() << ", seed " << seed;
    EXPECT_EQ(again->ToString(), stack->ToString()) << text << ", seed " << seed;
  }
  EXPECT_GT(good, 100);
}

TEST(StackTest, EveryKindsStandardValuesAreInItsRange) {
  for (const LayerKind& kind : {TemplateLayer::kKind, ErrorLayer::kKind, DelayLayer::kKind,
                                TraceLayer::kKind, StatisticsLayer::kKind}) {
    for (const OptionSpec& option : kind.options) {
      const auto values = OptionValues::Make(kind.options, {{option.name, option.standard}});
      EXPECT_TRUE(values.ok()) << kind.name << ": " << values.status();
      EXPECT_STRNE(option.help, "") << kind.name << ", " << option.name;
    }
  }
}

// -- building -------------------------------------------------------------------------------------

class BuildTest : public ::testing::Test {
 protected:
  BuildTest() {
    runtime::testing::ClusterOptions options;
    options.nodes = 1;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<TemplateLayer>().Add<ErrorLayer>().Add<MemoryLayer>();
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
    host_.make = [this](const LayerKind& kind, const std::vector<runtime::Ref<Layer>>& below,
                        const std::vector<std::pair<std::string, std::string>>& given,
                        size_t place) -> absl::StatusOr<runtime::Ref<Layer>> {
      if (place == refuse_) return absl::UnavailableError("no store there");
      made_.push_back(place);
      auto made = (*cluster_)[0].binding().CreateObject(
          kind.class_name, runtime::internal::EncodeInit<TemplateLayer>(below, given));
      if (!made.ok()) return made.status();
      return runtime::Ref<Layer>(*std::move(made));
    };
    host_.end = [this](const runtime::Ref<Layer>&) { ++ended_; };
  }

  std::unique_ptr<runtime::testing::Cluster> cluster_;
  LayerHost host_;
  std::vector<size_t> made_;
  size_t refuse_ = SIZE_MAX;
  size_t ended_ = 0;
};

TEST_F(BuildTest, BuildsFromTheBottomAndNumbersFromTheTop) {
  const auto stack = ParseStack("template/error(share=0)/template/memory");
  ASSERT_TRUE(stack.ok());
  {
    const auto built = BuildStack(*stack, Kinds(), host_);
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_THAT(made_, ElementsAre(3, 2, 1, 0));
    ASSERT_EQ(built->layers.size(), 4u);
    EXPECT_EQ(built->top()->Describe()->kind, "template");
    EXPECT_EQ(built->layers[1]->Describe()->kind, "error");
    ASSERT_TRUE(built->top()->Write(3, runtime::Block::CopyOf("abc"), Version::Of(5, 1)).ok());
    const auto read = built->layers[3]->Read(0, 100, Version::Of(6, 1));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->bytes.view(), std::string_view("\0\0\0abc", 6));
    EXPECT_EQ(read->version, Version::Of(5, 1));
  }
}

TEST_F(BuildTest, EndsWhatItMadeWhereALaterLayerCannotBe) {
  refuse_ = 0;
  const auto stack = ParseStack("template/template/memory");
  ASSERT_TRUE(stack.ok());
  const auto built = BuildStack(*stack, Kinds(), host_);
  EXPECT_EQ(built.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(built.status().message()),
              HasSubstr("layer 'template' (number 0 of the stack): no store there"));
  EXPECT_EQ(ended_, 2u);
}

TEST_F(BuildTest, NothingIsMadeOfAStackThatIsWrong) {
  const auto stack = ParseStack("template/memory/memory");
  ASSERT_TRUE(stack.ok());
  EXPECT_EQ(BuildStack(*stack, Kinds(), host_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(made_.empty());
}

}  // namespace
}  // namespace abacus::objfs
