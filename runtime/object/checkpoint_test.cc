#include "runtime/object/checkpoint.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/object/testing/payload_bytes.h"

namespace abacus::runtime {
namespace {

constexpr char kClass[] = "test.Class";
constexpr uint32_t kVersion = 3;
constexpr size_t kMiB = size_t{1} << 20;

Payload Finished(CheckpointWriter writer, uint32_t version = kVersion) {
  absl::StatusOr<Payload> payload = std::move(writer).Finish(kClass, version);
  EXPECT_TRUE(payload.ok()) << payload.status();
  return *std::move(payload);
}

absl::StatusOr<CheckpointReader> Opened(const Payload& payload) {
  return CheckpointReader::Open(payload, kClass, kVersion, nullptr);
}

bool SaysWhy(const absl::Status& status, std::string_view why) {
  return KindOf(status) == ErrorKind::kBadCheckpoint &&
         ToStd(status.message()).find(why) != std::string_view::npos;
}

// A checkpoint with everything that one has, small enough to be damaged everywhere.
Payload SmallCheckpoint() {
  CheckpointWriter writer({});
  writer.Write(int64_t{-7});
  writer.Write(std::string("some text"));
  writer.Write(Block::FromString(std::string(kBlockInlineMax, 'a')));
  writer.Write(std::map<std::string, uint32_t>{{"one", 1}, {"two", 2}});
  writer.Write(Block::FromString(std::string(kBlockInlineMax, 'b')));
  return Finished(std::move(writer));
}

TEST(CheckpointTest, ValuesComeBackInOrder) {
  const Payload payload = SmallCheckpoint();
  absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->version(), kVersion);
  EXPECT_FALSE(reader->AtEnd());
  EXPECT_EQ(reader->Read<int64_t>(), -7);
  std::string text;
  reader->Read(text);
  EXPECT_EQ(text, "some text");
  EXPECT_EQ(reader->Read<Block>().view(), std::string(kBlockInlineMax, 'a'));
  EXPECT_EQ((reader->Read<std::map<std::string, uint32_t>>().at("two")), 2u);
  EXPECT_EQ(reader->Read<Block>().view(), std::string(kBlockInlineMax, 'b'));
  EXPECT_TRUE(reader->AtEnd());
  EXPECT_TRUE(reader->ok());
}

TEST(CheckpointTest, ObjectWithoutStateHasACheckpoint) {
  const Payload payload = Finished(CheckpointWriter({}));
  absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->AtEnd());
  EXPECT_TRUE(reader->ok());
}

TEST(CheckpointTest, LargeBlocksAreNotCopiedEvenInsideOfValues) {
  const Block block = Block::FromString(std::string(4096, 'b'));
  CheckpointWriter writer({});
  constexpr int kBlocks = 1000;  // 4 MiB, of which the inline bytes are a small part
  for (int i = 0; i < kBlocks; ++i) writer.Write(std::pair(i, block));
  const Payload payload = Finished(std::move(writer));
  EXPECT_EQ(payload.blocks.size(), kBlocks + 1u) << "sealed by the size of its blocks";
  absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (int i = 0; i < kBlocks; ++i) {
    const auto [number, read] = reader->Read<std::pair<int, Block>>();
    ASSERT_EQ(number, i);
    ASSERT_EQ(read.data(), block.data());
  }
  EXPECT_TRUE(reader->AtEnd());
}

// Writes strings of 1 KB and a block behind each hundredth, `bytes` in sum.
CheckpointWriter WriterOf(size_t bytes, CheckpointOptions options) {
  CheckpointWriter writer(std::move(options));
  for (uint64_t i = 0; writer.bytes() < bytes; ++i) {
    writer.Write(std::to_string(i) + std::string(1000, static_cast<char>('a' + i % 26)));
    if (i % 100 == 0) writer.Write(Block::FromString(std::string(5000, 'b')));
  }
  return writer;
}

void ExpectReadsBack(const Payload& payload) {
  absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (uint64_t i = 0; !reader->AtEnd(); ++i) {
    ASSERT_EQ(reader->Read<std::string>(),
              std::to_string(i) + std::string(1000, static_cast<char>('a' + i % 26)));
    if (i % 100 == 0) {
      ASSERT_EQ(reader->Read<Block>().size(), 5000u);
    }
    ASSERT_TRUE(reader->ok()) << reader->status();
  }
}

TEST(CheckpointTest, StateLargerThanASectionComesBack) {
  CheckpointWriter writer = WriterOf(5 * kMiB, {});
  const size_t bytes = writer.bytes();
  EXPECT_GE(bytes, 5 * kMiB);
  const Payload payload = Finished(std::move(writer));
  EXPECT_GE(payload.bytes(), bytes);
  EXPECT_LE(payload.bytes(), bytes + 1000);
  ExpectReadsBack(payload);
}

TEST(CheckpointTest, OneValueLargerThanASectionComesBack) {
  CheckpointWriter writer({});
  const std::string text(3 * kMiB + 1, 'x');
  writer.Write(text);
  writer.Write(text);
  writer.Write(uint8_t{9});
  const Payload payload = Finished(std::move(writer));
  absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->Read<std::string>(), text);
  EXPECT_EQ(reader->Read<std::string>(), text);
  EXPECT_EQ(reader->Read<uint8_t>(), 9);
  EXPECT_TRUE(reader->AtEnd());
}

class CheckpointSpillTest : public ::testing::Test {
 protected:
  CheckpointSpillTest() {
    std::string path = ::testing::TempDir() + "/abacus-spill-XXXXXX";
    directory_ = mkdtemp(path.data());
    options_.spill_directory = directory_;
    options_.memory_bytes_max = 2 * kMiB;
  }
  ~CheckpointSpillTest() override { std::filesystem::remove_all(directory_); }

  // Bytes of this process's memory that are files in the spill directory.
  size_t MappedBytes() const {
    std::ifstream maps("/proc/self/maps");
    const std::string name = std::filesystem::path(directory_).filename();
    size_t bytes = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find(name) == std::string::npos) continue;
      char* end = nullptr;
      const uint64_t from = std::strtoull(line.c_str(), &end, 16);
      bytes += std::strtoull(end + 1, nullptr, 16) - from;
    }
    return bytes;
  }

  std::string directory_;  // is removed again
  CheckpointOptions options_;
};

TEST_F(CheckpointSpillTest, StateBeyondTheLimitGoesToFilesAndComesBack) {
  {
    const Payload payload = Finished(WriterOf(8 * kMiB, options_));
    EXPECT_GE(MappedBytes(), 5 * kMiB);
    EXPECT_LE(MappedBytes(), 7 * kMiB) << "what fits into memory went to a file too";
    EXPECT_TRUE(std::filesystem::is_empty(options_.spill_directory)) << "a file has a name";
    ExpectReadsBack(payload);
  }
  EXPECT_EQ(MappedBytes(), 0u);
}

TEST_F(CheckpointSpillTest, StateBelowTheLimitStaysInMemory) {
  const Payload payload = Finished(WriterOf(kMiB, options_));
  EXPECT_EQ(MappedBytes(), 0u);
  ExpectReadsBack(payload);
}

TEST_F(CheckpointSpillTest, MissingDirectoryIsAnErrorOfFinish) {
  options_.spill_directory += "/missing";
  CheckpointWriter writer = WriterOf(8 * kMiB, options_);
  const absl::Status status = std::move(writer).Finish(kClass, kVersion).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

TEST(CheckpointTest, OtherClassIsRefusedByName) {
  const Payload payload = SmallCheckpoint();
  const absl::Status status =
      CheckpointReader::Open(payload, "other.Class", kVersion, nullptr).status();
  EXPECT_TRUE(SaysWhy(status, "class test.Class, not other.Class")) << status;
}

TEST(CheckpointTest, NewerStateVersionIsRefusedWithBothVersions) {
  const Payload payload = Finished(CheckpointWriter({}), kVersion + 1);
  const absl::Status status = Opened(payload).status();
  EXPECT_TRUE(SaysWhy(status, "state version 4, this build reads versions up to 3")) << status;
}

TEST(CheckpointTest, OlderStateVersionIsReadAndTold) {
  const Payload payload = Finished(CheckpointWriter({}), kVersion - 1);
  const absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->version(), kVersion - 1);
}

TEST(CheckpointTest, OtherFormatVersionIsRefusedWithBothVersions) {
  Payload payload = SmallCheckpoint();
  payload.inline_bytes[4] = 9;
  testing::SetCheckpointChecksum(payload);
  const absl::Status status = Opened(payload).status();
  EXPECT_TRUE(SaysWhy(status, "format version 9, this build reads version 1")) << status;
}

TEST(CheckpointTest, ReadingMoreThanWasWrittenFails) {
  const Payload payload = SmallCheckpoint();
  absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  reader->Read<int64_t>();
  reader->Read<std::string>();
  reader->Read<Block>();
  reader->Read<std::map<std::string, uint32_t>>();
  reader->Read<Block>();
  ASSERT_TRUE(reader->ok());
  EXPECT_EQ(reader->Read<int64_t>(), 0);
  EXPECT_TRUE(SaysWhy(reader->status(), "more values than were written")) << reader->status();
  EXPECT_EQ(reader->Read<std::string>(), "");
  EXPECT_FALSE(reader->ok());
}

TEST(CheckpointTest, ReadingAnotherTypeThanWasWrittenFails) {
  CheckpointWriter writer({});
  writer.Write(int64_t{1} << 40);
  const Payload payload = Finished(std::move(writer));
  absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->Read<std::string>(), "");
  EXPECT_EQ(KindOf(reader->status()), ErrorKind::kBadCheckpoint);
  EXPECT_EQ(reader->Read<uint8_t>(), 0) << "read on behind a mistake";
}

TEST(CheckpointTest, ReadingLessThanWasWrittenIsSeen) {
  const Payload payload = SmallCheckpoint();
  absl::StatusOr<CheckpointReader> reader = Opened(payload);
  ASSERT_TRUE(reader.ok()) << reader.status();
  reader->Read<int64_t>();
  EXPECT_TRUE(reader->ok());
  EXPECT_FALSE(reader->AtEnd());
}

TEST(CheckpointTest, EveryCutIsRefused) {
  const Payload whole = SmallCheckpoint();
  for (size_t size = 0; size < whole.inline_bytes.size(); ++size) {
    const Payload cut{whole.inline_bytes.substr(0, size), whole.blocks};
    ASSERT_EQ(KindOf(Opened(cut).status()), ErrorKind::kBadCheckpoint) << size;
  }
  for (size_t block = 0; block < whole.blocks.size(); ++block) {
    for (size_t size = 0; size < whole.blocks[block].size(); ++size) {
      Payload cut = whole;
      cut.blocks[block] = whole.blocks[block].Slice(0, size);
      ASSERT_EQ(KindOf(Opened(cut).status()), ErrorKind::kBadCheckpoint) << block << ' ' << size;
    }
    Payload cut = whole;
    cut.blocks.resize(block);
    ASSERT_EQ(KindOf(Opened(cut).status()), ErrorKind::kBadCheckpoint) << block;
    cut = whole;
    cut.blocks.erase(cut.blocks.begin() + static_cast<ptrdiff_t>(block));
    ASSERT_EQ(KindOf(Opened(cut).status()), ErrorKind::kBadCheckpoint) << block;
  }
}

TEST(CheckpointTest, EveryBitFlipIsRefused) {
  const Payload whole = SmallCheckpoint();
  size_t flips = 0;
  for (size_t bit = 0; bit < 8 * whole.inline_bytes.size(); ++bit, ++flips) {
    Payload damaged = whole;
    damaged.inline_bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ASSERT_EQ(KindOf(Opened(damaged).status()), ErrorKind::kBadCheckpoint) << bit;
  }
  for (size_t block = 0; block < whole.blocks.size(); ++block) {
    for (size_t bit = 0; bit < 8 * whole.blocks[block].size(); ++bit, ++flips) {
      std::string bytes(whole.blocks[block].view());
      bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
      Payload damaged = whole;
      damaged.blocks[block] = Block::FromString(std::move(bytes));
      ASSERT_EQ(KindOf(Opened(damaged).status()), ErrorKind::kBadCheckpoint) << bit;
    }
  }
  EXPECT_GT(flips, 8 * 2 * kBlockInlineMax);
}

TEST(CheckpointTest, BlocksInAnotherOrderOrCutElsewhereAreRefused) {
  const Payload whole = SmallCheckpoint();
  ASSERT_EQ(whole.blocks.size(), 3u);
  Payload swapped = whole;
  std::swap(swapped.blocks[1], swapped.blocks[2]);
  EXPECT_EQ(KindOf(Opened(swapped).status()), ErrorKind::kBadCheckpoint);

  const std::string both =
      std::string(whole.blocks[1].view()) + std::string(whole.blocks[2].view());
  Payload shifted = whole;
  shifted.blocks[1] = Block::CopyOf(both.substr(0, 1100));
  shifted.blocks[2] = Block::CopyOf(both.substr(1100));
  EXPECT_EQ(KindOf(Opened(shifted).status()), ErrorKind::kBadCheckpoint);

  Payload longer = whole;
  longer.blocks.push_back(Block());
  EXPECT_EQ(KindOf(Opened(longer).status()), ErrorKind::kBadCheckpoint);
  longer = whole;
  longer.inline_bytes.append(4, '\0');
  EXPECT_EQ(KindOf(Opened(longer).status()), ErrorKind::kBadCheckpoint);
}

// A table of contents that lies, under a checksum that is right.
Payload Forged(uint32_t sections, uint64_t inline_bytes, uint64_t blocks, std::string_view tail) {
  Writer head;
  head.PutNumber(uint32_t{0x504b4341});
  head.PutNumber(uint16_t{1});
  head.PutString(kClass);
  head.PutNumber(kVersion);
  head.PutNumber(sections);
  head.PutNumber(inline_bytes);
  head.PutNumber(blocks);
  head.PutRaw(tail.data(), tail.size());
  head.PutNumber(uint32_t{0});
  Payload payload = std::move(head).Finish();
  payload.blocks = {Block::CopyOf("0123456789"), Block::CopyOf("beside")};
  testing::SetCheckpointChecksum(payload);
  return payload;
}

TEST(CheckpointTest, ForgedTablesOfContentsAreRefused) {
  ASSERT_TRUE(Opened(Forged(1, 10, 1, "")).ok()) << "the forger has lost touch with the format";
  constexpr uint64_t kHuge = ~uint64_t{0};
  for (const Payload& forged :
       {Forged(0, 10, 1, ""), Forged(2, 10, 1, ""), Forged(2, 10, 0, ""), Forged(~0u, 10, 0, ""),
        Forged(1, 9, 1, ""), Forged(1, 11, 1, ""), Forged(1, kHuge, 1, ""), Forged(1, 10, 0, ""),
        Forged(1, 10, 2, ""), Forged(1, 10, kHuge, ""), Forged(1, 10, kHuge - 1, ""),
        Forged(1, 10, 1, "more")}) {
    const absl::Status status = Opened(forged).status();
    EXPECT_EQ(KindOf(status), ErrorKind::kBadCheckpoint) << status;
  }
}

TEST(CheckpointTest, ReaderMayBeMovedBeforeAndBetweenReads) {
  const Payload payload = SmallCheckpoint();
  absl::StatusOr<CheckpointReader> opened = Opened(payload);
  ASSERT_TRUE(opened.ok()) << opened.status();
  CheckpointReader first = *std::move(opened);
  EXPECT_EQ(first.Read<int64_t>(), -7);
  CheckpointReader second = std::move(first);
  EXPECT_EQ(second.Read<std::string>(), "some text");
  EXPECT_EQ(second.Read<Block>().size(), kBlockInlineMax);
}

// -- the fuzz target's corpus ---------------------------------------------------------------------

// Inputs of object/checkpoint_fuzz.cc, below 1 KiB each; see there for the class and its values.
std::map<std::string, Payload> Corpus() {
  constexpr char kFuzzClass[] = "fuzz.Class";
  std::map<std::string, Payload> corpus;
  const auto add = [&](const std::string& name, CheckpointWriter writer, std::string_view of,
                       uint32_t version) { corpus[name] = *std::move(writer).Finish(of, version); };
  const auto writer = [] {
    CheckpointWriter w({});
    w.Write(uint64_t{7});
    w.Write(std::string("text"));
    w.Write(Block::CopyOf("inside"));
    w.Write(std::vector<std::string>{"a", "", "bc"});
    w.Write(std::map<uint32_t, std::optional<double>>{{1, 0.5}, {2, std::nullopt}});
    w.Write(std::vector<uint64_t>{1, 2, 3});
    return w;
  };
  add("empty", CheckpointWriter({}), kFuzzClass, 1);
  add("values", writer(), kFuzzClass, 2);
  add("other_class", writer(), "fuzz.Other", 1);
  add("newer_version", writer(), kFuzzClass, 3);
  Payload cut = corpus["values"];
  cut.inline_bytes.resize(cut.inline_bytes.size() / 2);
  corpus["cut_short"] = cut;
  // Two sections with blocks beside: the writer makes such only from 1 MiB on.
  Writer head;
  head.PutNumber(uint32_t{0x504b4341});
  head.PutNumber(uint16_t{1});
  head.PutString(kFuzzClass);
  head.PutNumber(uint32_t{1});
  head.PutNumber(uint32_t{2});
  for (const uint64_t number : {8, 0, 9, 2}) head.PutNumber(number);
  head.PutNumber(uint32_t{0});
  Payload sections = std::move(head).Finish();
  sections.blocks = {Block::CopyOf("\1\2\3\4\5\6\7\10"),
                     Block::CopyOf(std::string_view("\0\0\0\0\0\0\0\0\1", 9)),
                     Block::CopyOf("beside"), Block::CopyOf("never read")};
  testing::SetCheckpointChecksum(sections);
  corpus["two_sections"] = sections;
  return corpus;
}

TEST(CheckpointCorpusTest, HoldsWhatThisBuildWrites) {
  const std::filesystem::path folder =
      std::filesystem::path(ABACUS_SOURCE_DIR) / "runtime/object/corpus/checkpoint";
  const bool write = std::getenv("ABACUS_WRITE_CORPUS") != nullptr;
  for (const auto& [name, payload] : Corpus()) {
    const std::string bytes = testing::BytesFromPayload(payload);
    EXPECT_LT(bytes.size(), 1024u) << name;
    if (write) {
      std::filesystem::create_directories(folder);
      std::ofstream(folder / name, std::ios::binary) << bytes;
    }
    std::ifstream file(folder / name, std::ios::binary);
    const std::string read((std::istreambuf_iterator<char>(file)), {});
    EXPECT_TRUE(read == bytes) << name << ": ABACUS_WRITE_CORPUS=1 in the environment of this test "
                               << "writes the corpus anew";
  }
}

}  // namespace
}  // namespace abacus::runtime
