#include "runtime/base/codec.h"

#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

// A block is announced by one byte: it stands here, or it is the next one beside the inline bytes.
constexpr uint8_t kInline = 0;
constexpr uint8_t kBeside = 1;

}  // namespace

void Writer::PutBlock(const Block& block) {
  if (block.size() < kBlockInlineMax) {
    PutNumber(kInline);
    PutString(block.view());
    return;
  }
  PutNumber(kBeside);
  payload_.blocks.push_back(block);
}

void Codec<ForkPoint>::Encode(Writer& w, const ForkPoint& v) {
  runtime::Encode(w, v.parent);
  w.PutNumber(v.level);
}

void Codec<ForkPoint>::Decode(Reader& r, ForkPoint& v) {
  runtime::Decode(r, v.parent);
  v.level = r.TakeNumber<uint32_t>();
}

void Codec<CallId>::Encode(Writer& w, const CallId& v) {
  runtime::Encode(w, v.activity);
  w.PutNumber(v.level);
  w.PutNumber(v.sequence);
}

void Codec<CallId>::Decode(Reader& r, CallId& v) {
  runtime::Decode(r, v.activity);
  v.level = r.TakeNumber<uint32_t>();
  v.sequence = r.TakeNumber<uint64_t>();
}

absl::Status Reader::status() const {
  if (ok()) return absl::OkStatus();
  return MakeError(ErrorKind::kBadArguments, error_ + " (at byte " + std::to_string(position_) +
                                                 " of " + std::to_string(inline_.size()) + ")");
}

std::string_view Reader::TakeView() {
  const auto size = TakeNumber<uint64_t>();
  if (!ok() || size > remaining()) {
    Fail("a string is longer than its data");
    return {};
  }
  const std::string_view view = inline_.substr(position_, size);
  position_ += size;
  return view;
}

Block Reader::TakeBlock() {
  const auto where = TakeNumber<uint8_t>();
  if (!ok()) return {};
  if (where == kInline) return Block::CopyOf(TakeView());
  if (where != kBeside || next_block_ == blocks_->size()) {
    Fail("a data block is announced that did not come");
    return {};
  }
  return (*blocks_)[next_block_++];
}

size_t Reader::TakeCount() {
  const auto count = TakeNumber<uint64_t>();
  // A block beside the inline bytes still takes its announcing byte inside them.
  if (count > remaining()) {
    Fail("a sequence is longer than its data");
    return 0;
  }
  return count;
}

}  // namespace abacus::runtime
