#include "runtime/object/checkpoint.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

// Layout. Inline bytes: magic, format version, class name, state version, number of sections, and
// for each section its inline length and its number of blocks; then CRC32C of everything before it
// and of the sizes and bytes of all blocks in order. Blocks: for each section one block with its
// inline bytes, then the blocks that it carries.
constexpr uint32_t kMagic = 0x504b4341;  // "ACKP"
constexpr uint16_t kFormatVersion = 1;

uint32_t Crc(uint32_t seed, const char* bytes, size_t size) {
  // The library takes an int: large blocks go in pieces.
  constexpr size_t kPiece = size_t{1} << 30;
  for (size_t at = 0; at < size; at += kPiece) {
    seed = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(bytes + at)),
                       static_cast<int>(std::min(kPiece, size - at)), seed);
  }
  return seed;
}

uint32_t CrcOf(std::string_view head, const std::vector<Block>& blocks) {
  uint32_t crc = Crc(0xffffffff, head.data(), head.size());
  for (const Block& block : blocks) {
    // The size too: the same bytes cut into blocks at another place are not the same state.
    const uint64_t size = block.size();
    crc = Crc(crc, reinterpret_cast<const char*>(&size), sizeof size);
    crc = Crc(crc, block.data(), block.size());
  }
  return crc;
}

absl::Status Bad(std::string_view what) {
  return MakeError(ErrorKind::kBadCheckpoint, absl::StrCat("bad checkpoint: ", ToAbsl(what)));
}

}  // namespace

void CheckpointWriter::Seal() {
  Payload section = std::move(writer_).Finish();
  writer_ = Writer();
  sealed_bytes_ += section.bytes();
  const size_t inline_size = section.inline_bytes.size();
  if (sealed_in_memory_bytes_ + inline_size > options_.memory_bytes_max && inline_size > 0) {
    auto block = Block::AllocateInFile(inline_size, options_.spill_directory);
    if (block.ok()) {
      std::memcpy(block->mutable_data(), section.inline_bytes.data(), inline_size);
      section.inline_bytes.clear();
      section.blocks.insert(section.blocks.begin(), *std::move(block));
    } else if (status_.ok()) {
      status_ = block.status();
    }
  } else {
    sealed_in_memory_bytes_ += inline_size;
    Block block = Block::FromString(std::move(section.inline_bytes));
    section.blocks.insert(section.blocks.begin(), std::move(block));
  }
  sealed_.push_back(std::move(section));
}

absl::StatusOr<Payload> CheckpointWriter::Finish(std::string_view class_name,
                                                 uint32_t state_version) && {
  Seal();
  if (!status_.ok()) return status_;
  Writer head;
  head.PutNumber(kMagic);
  head.PutNumber(kFormatVersion);
  head.PutString(class_name);
  head.PutNumber(state_version);
  head.PutNumber(static_cast<uint32_t>(sealed_.size()));
  std::vector<Block> blocks;
  for (Payload& section : sealed_) {
    head.PutNumber(static_cast<uint64_t>(section.blocks.front().size()));
    head.PutNumber(static_cast<uint64_t>(section.blocks.size() - 1));
    for (Block& block : section.blocks) blocks.push_back(std::move(block));
  }
  Payload payload = std::move(head).Finish();
  const uint32_t crc = CrcOf(payload.inline_bytes, blocks);
  payload.inline_bytes.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  payload.blocks = std::move(blocks);
  return payload;
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const Payload& payload,
                                                        std::string_view class_name,
                                                        uint32_t state_version, Invoker* invoker) {
  Reader head(payload, invoker);
  if (head.TakeNumber<uint32_t>() != kMagic) return Bad("it does not begin like one");
  if (const auto version = head.TakeNumber<uint16_t>(); version != kFormatVersion) {
    return Bad(absl::StrCat("it has format version ", version, ", this build reads version ",
                            kFormatVersion));
  }
  uint32_t crc;
  if (payload.inline_bytes.size() < sizeof crc) return Bad("it is cut short");
  const std::string_view covered(payload.inline_bytes.data(),
                                 payload.inline_bytes.size() - sizeof crc);
  std::memcpy(&crc, covered.data() + covered.size(), sizeof crc);
  if (crc != CrcOf(covered, payload.blocks)) {
    return Bad("its checksum does not match: it is cut short or damaged");
  }

  const std::string_view written_by = head.TakeView();
  if (head.ok() && written_by != class_name) {
    return Bad(absl::StrCat("it is of class ", ToAbsl(written_by), ", not ", ToAbsl(class_name)));
  }
  CheckpointReader reader;
  reader.version_ = head.TakeNumber<uint32_t>();
  if (head.ok() && reader.version_ > state_version) {
    return Bad(absl::StrCat("class ", ToAbsl(class_name), " wrote it in state version ",
                            reader.version_, ", this build reads versions up to ", state_version));
  }
  const auto sections = head.TakeNumber<uint32_t>();
  size_t next = 0;
  for (uint32_t i = 0; i < sections && head.ok(); ++i) {
    const auto inline_size = head.TakeNumber<uint64_t>();
    const auto count = head.TakeNumber<uint64_t>();
    if (next >= payload.blocks.size() || count > payload.blocks.size() - next - 1 ||
        payload.blocks[next].size() != inline_size) {
      return Bad("a part of it is missing");
    }
    // Read where it lies: state that went to a file must not come back into memory as a whole.
    const std::string_view inline_bytes = payload.blocks[next].view();
    const auto first = payload.blocks.begin() + static_cast<ptrdiff_t>(next) + 1;
    auto blocks =
        std::make_unique<std::vector<Block>>(first, first + static_cast<ptrdiff_t>(count));
    next += 1 + count;
    Reader section_reader(inline_bytes, *blocks, invoker);
    reader.sections_.push_back({std::move(blocks), section_reader});
  }
  if (!head.ok() || head.remaining() != sizeof crc || next != payload.blocks.size()) {
    return Bad("its table of contents does not fit its data");
  }
  return reader;
}

CheckpointReader::Section* CheckpointReader::Current() {
  while (section_ < sections_.size() && sections_[section_].reader.ok() &&
         sections_[section_].reader.AtEnd()) {
    ++section_;
  }
  if (section_ == sections_.size()) {
    past_end_ = true;
    return nullptr;
  }
  return &sections_[section_];
}

absl::Status CheckpointReader::status() const {
  if (past_end_) return Bad("the class reads more values than were written");
  for (const Section& section : sections_) {
    if (!section.reader.ok()) return Bad(ToStd(section.reader.status().message()));
  }
  return absl::OkStatus();
}

bool CheckpointReader::AtEnd() const {
  for (const Section& section : sections_) {
    if (!section.reader.AtEnd()) return false;
  }
  return true;
}

}  // namespace abacus::runtime
