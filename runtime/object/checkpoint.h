#ifndef ABACUS_RUNTIME_OBJECT_CHECKPOINT_H_
#define ABACUS_RUNTIME_OBJECT_CHECKPOINT_H_

// A checkpoint: an object's private state on its way to another node (paper, section 4.1).
//
// Writing and reading are twins: an object writes its members in one order and reads them in the
// same order. Every checkpoint names the class and the version of its state, and ends in a CRC32C,
// so that state of another build, cut short or damaged is refused and never restored.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/codec.h"

namespace abacus::runtime {

// Where a checkpoint is kept until it has been sent.
struct CheckpointOptions {
  size_t memory_bytes_max = size_t{16} << 20;  // beyond it, state goes to a file
  std::string spill_directory = "/tmp";
};

// Takes an object's state. Write-only. Owner-thread: the thread that runs Checkpoint().
class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointOptions options) : options_(std::move(options)) {}

  // Blocks (also inside of `value`) of kBlockInlineMax bytes and more are kept by reference: no
  // byte of them is copied, so the object must not change them later.
  template <typename T>
  void Write(const T& value) {
    Encode(writer_, value);
    if (writer_.inline_bytes() >= kChunkBytes) Seal();
  }

  size_t bytes() const { return sealed_bytes_ + writer_.bytes(); }

  // For the runtime: closes the checkpoint of an object of that class and state version.
  // Errors: kResourceExhausted or kNotFound where state had to go to a file and could not.
  absl::StatusOr<Payload> Finish(std::string_view class_name, uint32_t state_version) &&;

 private:
  // Inline bytes are sealed into a block of their own when there are that many, so that large
  // state made of many small values is not copied again and again by a growing string.
  static constexpr size_t kChunkBytes = size_t{1} << 20;
  void Seal();

  CheckpointOptions options_;
  Writer writer_;
  std::vector<Payload> sealed_;
  size_t sealed_bytes_ = 0;
  size_t sealed_in_memory_bytes_ = 0;
  absl::Status status_;
};

// Gives an object's state back. Read-only. Owner-thread: the thread that runs Restore().
class CheckpointReader {
 public:
  // Checks the whole checkpoint before the first value is read, for a class of that name and state
  // version (ClassInfo's). `invoker` is what restored Refs call through. Keeps a pointer to
  // `payload`, which must outlive the reader.
  // Errors: kBadCheckpoint where it is cut short, damaged, of another class, or of a newer state
  // version than the class can read; the message says which.
  static absl::StatusOr<CheckpointReader> Open(const Payload& payload, std::string_view class_name,
                                               uint32_t state_version, Invoker* invoker);

  // Version of the state, as the writing class declared it: at most the class's own.
  uint32_t version() const { return version_; }

  template <typename T>
  T Read() {
    T value{};
    Read(value);
    return value;
  }
  template <typename T>
  void Read(T& value) {
    if (Section* section = Current()) Decode(section->reader, value);
  }

  bool ok() const { return status().ok(); }
  absl::Status status() const;
  bool AtEnd() const;

 private:
  struct Section {
    std::unique_ptr<std::vector<Block>> blocks;
    Reader reader;
  };
  CheckpointReader() = default;
  // The section from which the next value comes; null once reading has failed.
  Section* Current();

  std::vector<Section> sections_;
  size_t section_ = 0;
  uint32_t version_ = 0;
  bool past_end_ = false;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_CHECKPOINT_H_
