#ifndef ABACUS_OBJFS_RAID_TESTING_COLUMN_STEPS_H_
#define ABACUS_OBJFS_RAID_TESTING_COLUMN_STEPS_H_

// A random client of a file over columns, its model in memory, and damage.

#include <algorithm>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs::testing {

inline std::string Noise(std::mt19937& random, size_t bytes) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// One step of a random client, on the file and on its model.
template <typename L>
void Step(TestColumnsOf<L>& columns, std::mt19937& random, std::string* model) {
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  const auto& top = columns.top();
  const uint64_t offset = draw(200000), bytes = draw(draw(3) == 0 ? 100000 : 9000);
  switch (random() % 9) {
    case 0:
    case 1:
    case 2: {
      // Now and then as pieces, one after the other.
      const uint64_t pieces = draw(2) == 0 ? 1 + draw(12) : 1;
      for (uint64_t i = 0, at = offset; i < pieces; ++i) {
        const std::string text = Noise(random, (pieces > 1 ? draw(9000) : bytes) + 1);
        const absl::Status written = top->Write(at, runtime::Block::CopyOf(text), columns.Now());
        ASSERT_TRUE(written.ok()) << written;
        model->resize(std::max(model->size(), at + text.size()));
        model->replace(at, text.size(), text);
        at += text.size();
      }
      break;
    }
    case 3: {
      const absl::Status cut = top->Truncate(offset, columns.Now());
      ASSERT_TRUE(cut.ok()) << cut;
      model->resize(offset);
      break;
    }
    case 4: {
      const absl::Status punched = top->Punch(Range{offset, bytes}, columns.Now());
      ASSERT_TRUE(punched.ok()) << punched;
      for (uint64_t at = offset; at < model->size() && (bytes == 0 || at < offset + bytes); ++at) {
        (*model)[at] = '\0';
      }
      break;
    }
    case 5: {
      const std::string text = Noise(random, draw(20000) + 1);
      const auto at = top->Append(runtime::Block::CopyOf(text), columns.Now());
      ASSERT_TRUE(at.ok()) << at.status();
      ASSERT_EQ(*at, model->size());
      model->append(text);
      break;
    }
    case 6: {
      const absl::Status flushed = top->Flush(columns.Now());
      ASSERT_TRUE(flushed.ok()) << flushed;
      break;
    }
    default: {
      const auto read = top->Read(offset, bytes, columns.Now());
      ASSERT_TRUE(read.ok()) << read.status();
      const std::string expected = offset < model->size() ? model->substr(offset, bytes) : "";
      ASSERT_TRUE(read->bytes.view() == expected) << "read " << offset << "+" << bytes;
    }
  }
}

template <typename L>
void ExpectIs(TestColumnsOf<L>& columns, const std::string& model) {
  const auto read = columns.top()->Read(0, model.size() + 100, columns.Now());
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->bytes.size(), model.size());
  ASSERT_TRUE(read->bytes.view() == model);
  ASSERT_EQ(columns.top()->GetAttributes(columns.Now())->size, model.size());
}

// Changes a byte of `text` wherever the column's disk has it, which is where files begin: tables of
// blocks that lie far behind, in slots, are sparse.
template <typename L>
bool Rot(TestColumnsOf<L>& columns, size_t column, std::string_view text) {
  constexpr uint64_t kSearched = 16 << 20;
  bool found = false;
  PowerCutDisk& disk = columns.disk(column);
  for (const std::string folder : {"0", "1", "2", "3"}) {
    const auto names = disk.List(folder);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      auto file = disk.Open(folder.empty() ? name : folder + "/" + name);
      if (!file.ok()) continue;
      std::string bytes(std::min<uint64_t>(*(*file)->Size(), kSearched), '\0');
      if (!(*file)->Read(0, bytes).ok()) continue;
      for (size_t at = 0; (at = bytes.find(text, at)) != std::string::npos; at += text.size()) {
        EXPECT_TRUE((*file)->Write(at, std::string(1, static_cast<char>(~text[0]))).ok());
        found = true;
      }
    }
  }
  return found;
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_COLUMN_STEPS_H_
