#include "apps/grep/grep_object.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

// The members of the matcher's state, to be written and read in this order. A member that is added
// there makes these lines fail to compile: it needs a place here and a new state version.
template <typename State>
auto MembersOf(State& state) {
  auto& [pattern, name, line_bytes_max, reads, read_left, partial_line, held_output, held_matches,
         lines, matches, is_binary, read_may_vanish, binary_matches, is_finished] = state;
  auto& [file_bytes, page_bytes, lead_bytes, buffer_bytes, fill_bytes, read_bytes, file_offset] =
      reads;
  return std::tie(pattern, name, line_bytes_max, file_bytes, page_bytes, lead_bytes, buffer_bytes,
                  fill_bytes, read_bytes, file_offset, read_left, partial_line, held_output,
                  held_matches, lines, matches, is_binary, read_may_vanish, binary_matches,
                  is_finished);
}

}  // namespace

absl::Status Grep::Init(const objfs::Subgraph& file, const std::string& pattern,
                        const std::string& name, uint64_t block_bytes) {
  if (block_bytes == 0 || block_bytes > kBlockBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block of ", block_bytes, " bytes: it must have 1 to ", kBlockBytesMax));
  }
  ABACUS_ASSIGN_OR_RETURN(const objfs::Attributes attributes, file.top->GetAttributes(file.now));
  LineMatcher::Options options;
  options.reads.file_bytes = attributes.size;
  ABACUS_ASSIGN_OR_RETURN(matcher_, LineMatcher::Create(pattern, name, options));
  block_bytes_ = block_bytes;
  return absl::OkStatus();
}

absl::StatusOr<GrepChunk> Grep::Next(const objfs::Subgraph& file) {
  std::string output;
  if (!matcher_->done()) {
    // Nothing has changed here when this fails: whoever is asked to wait asks again.
    ABACUS_ASSIGN_OR_RETURN(const objfs::ReadResult read,
                            file.top->Read(offset_, block_bytes_, file.now));
    const runtime::Block& block = read.bytes;
    offset_ += block.size();
    ABACUS_RETURN_IF_ERROR(matcher_->Feed(block.view(), &output));
    const bool at_end = block.size() < block_bytes_;
    if (at_end && !matcher_->done()) ABACUS_RETURN_IF_ERROR(matcher_->Finish(&output));
  }
  return GrepChunk{.output = runtime::Block::FromString(std::move(output)),
                   .offset = offset_,
                   .matches = matcher_->matches(),
                   .done = matcher_->done(),
                   .diagnostic = matcher_->done() ? matcher_->diagnostic() : std::string()};
}

void Grep::Checkpoint(runtime::CheckpointWriter& writer) const {
  writer.Write(block_bytes_);
  writer.Write(offset_);
  const LineMatcher::State state = matcher_->ToState();
  writer.Write(MembersOf(state));
}

absl::Status Grep::Restore(runtime::CheckpointReader& reader) {
  reader.Read(block_bytes_);
  reader.Read(offset_);
  LineMatcher::State state;
  auto members = MembersOf(state);
  reader.Read(members);
  ABACUS_RETURN_IF_ERROR(reader.status());
  ABACUS_ASSIGN_OR_RETURN(matcher_, LineMatcher::FromState(std::move(state)));
  return absl::OkStatus();
}

}  // namespace abacus::apps
