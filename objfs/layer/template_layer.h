#ifndef ABACUS_OBJFS_LAYER_TEMPLATE_LAYER_H_
#define ABACUS_OBJFS_LAYER_TEMPLATE_LAYER_H_

// A layer to copy. It counts the bytes that are read through it, and lets everything pass.
//
// To make one of your own: copy this file, give the class and its kind names of their own, override
// the calls that it changes, write and read its state, and add it where the others are added:
// `kinds.Add<MyLayer>()` and `types.Add<MyLayer>()` in your main(). Then it can stand in a stack:
//   filesystem/mine(unit=4 KiB)/cache/storage

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/layer/layer.h"

namespace abacus::objfs {

class TemplateLayer final : public Layer {
 public:
  // name, type, the value where none is given, from, to, help
  static constexpr OptionSpec kOptions[] = {
      {"unit", OptionType::kBytes, "1 KiB", 1, 1 << 20, "bytes that are counted as one"},
  };
  static constexpr LayerKind kKind = {"template", "objfs.TemplateLayer", kOptions};

  // Called by many threads at once. `now` travels on with the call.
  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override {
    bytes_ += bytes;
    return Layer::Read(offset, bytes, now);
  }

  void Checkpoint(runtime::CheckpointWriter& writer) const override {
    Layer::Checkpoint(writer);
    writer.Write(bytes_.load());
  }
  absl::Status Restore(runtime::CheckpointReader& reader) override {
    const absl::Status status = Layer::Restore(reader);
    bytes_ = reader.Read<uint64_t>();
    return status.ok() ? reader.status() : status;
  }
  ABACUS_LAYER(TemplateLayer, 1)

 private:
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override {
    facts->emplace_back("read", absl::StrCat(bytes_.load() / options().Bytes("unit"), " units"));
  }
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_LAYER_TEMPLATE_LAYER_H_
