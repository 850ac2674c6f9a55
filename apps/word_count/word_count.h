#ifndef ABACUS_APPS_WORD_COUNT_WORD_COUNT_H_
#define ABACUS_APPS_WORD_COUNT_WORD_COUNT_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/subgraph.h"
#include "runtime/object/mobile_object.h"

namespace abacus::apps {

// Lines, words and bytes, as `LC_ALL=C wc` counts them: lines are newlines, and a word is what
// stands between white space and has a printable character.
struct Counts {
  uint64_t lines = 0, words = 0, bytes = 0;
  ABACUS_FIELDS(lines, words, bytes)
  friend bool operator==(const Counts& a, const Counts& b) {
    return a.lines == b.lines && a.words == b.words && a.bytes == b.bytes;
  }
};

// Of what comes in pieces, cut wherever.
struct WordCounter {
  Counts counts;         // without the word that the last piece may have ended in
  bool in_word = false;  // that one
  ABACUS_FIELDS(counts, in_word)

  void Feed(std::string_view piece);
  Counts Total() const;
};

struct WordCountChunk {
  Counts so_far;
  bool done = false;  // that was all of the file
  ABACUS_FIELDS(so_far, done)
};

// Counts the words of files, a block at a time: of all that it reads it passes three numbers on.
// It reads from the layers of the file's stack, which its caller appends to the graph that it is in
// (objfs::FileSystem::WithSubgraph). Between two chunks it may move, and does not know where it is.
// Thread-safety: one activity at a time. Blocking: as the file's layers.
class WordCount final : public runtime::MobileObject {
 public:
  static constexpr bool kOneAtATime = true;
  static constexpr uint64_t kReadBytesMax = uint64_t{64} << 20;

  // `read_bytes`: of the file, at each call.
  // Errors: kInvalidArgument - it is 0 or more than kReadBytesMax.
  absl::Status Init(uint64_t read_bytes);

  // Counts the next bytes of `file`, the same one until Restart(), by whatever layers.
  // Errors: those of the layers, objfs::IsWouldBlock() among them: nothing was done, ask again.
  absl::StatusOr<WordCountChunk> Next(const objfs::Subgraph& file);
  // Forgets what it has counted: another file may follow, from its beginning.
  absl::Status Restart();

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_OBJECT(WordCount, "apps.WordCount", 1, Next, Restart)

 private:
  uint64_t read_bytes_ = 0;
  WordCounter counter_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_WORD_COUNT_WORD_COUNT_H_
