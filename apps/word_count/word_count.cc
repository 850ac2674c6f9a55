#include "apps/word_count/word_count.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::apps {

void WordCounter::Feed(std::string_view piece) {
  counts.bytes += piece.size();
  for (const char c : piece) {
    if (c == '\n') ++counts.lines;
    if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
      counts.words += in_word ? 1 : 0;
      in_word = false;
    } else if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      in_word = true;  // all else neither begins a word nor ends one
    }
  }
}

Counts WordCounter::Total() const {
  Counts total = counts;
  total.words += in_word ? 1 : 0;
  return total;
}

absl::Status WordCount::Init(uint64_t read_bytes) {
  if (read_bytes == 0 || read_bytes > kReadBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("read_bytes is ", read_bytes, ": it must be from 1 to ", kReadBytesMax));
  }
  read_bytes_ = read_bytes;
  return absl::OkStatus();
}

absl::StatusOr<WordCountChunk> WordCount::Next(const objfs::Subgraph& file) {
  // Nothing has changed here when this fails: whoever is asked to wait asks again.
  ABACUS_ASSIGN_OR_RETURN(const objfs::ReadResult read,
                          file.top->Read(counter_.counts.bytes, read_bytes_, file.now));
  counter_.Feed(read.bytes.view());
  return WordCountChunk{.so_far = counter_.Total(), .done = read.bytes.size() < read_bytes_};
}

absl::Status WordCount::Restart() {
  counter_ = WordCounter();
  return absl::OkStatus();
}

void WordCount::Checkpoint(runtime::CheckpointWriter& writer) const {
  writer.Write(read_bytes_);
  writer.Write(counter_);
}

absl::Status WordCount::Restore(runtime::CheckpointReader& reader) {
  reader.Read(read_bytes_);
  reader.Read(counter_);
  return reader.status();
}

}  // namespace abacus::apps
