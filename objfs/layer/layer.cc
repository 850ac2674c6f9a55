#include "objfs/layer/layer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

absl::Status WouldBlock(std::string_view for_what) {
  return absl::AbortedError(absl::StrCat("would block: ", runtime::ToAbsl(for_what)));
}

// The runtime's own aborted calls have a kind.
bool IsWouldBlock(const absl::Status& status) {
  return status.code() == absl::StatusCode::kAborted &&
         runtime::KindOf(status) == runtime::ErrorKind::kNone;
}

absl::Status Layer::Init(const std::vector<Ref<Layer>>& below,
                         const std::vector<std::pair<std::string, std::string>>& options) {
  below_ = below;
  given_ = options;
  return Take();
}

absl::Status Layer::Take() {
  const LayerKind& kind = Kind();
  if (below_.size() < kind.below_least || below_.size() > kind.below_most) {
    return absl::InvalidArgumentError(absl::StrCat("layer '", kind.name, "' stands on ",
                                                   kind.below_least, " to ", kind.below_most,
                                                   " layers, not on ", below_.size()));
  }
  if (std::any_of(below_.begin(), below_.end(), [](const Ref<Layer>& ref) { return !ref; })) {
    return absl::InvalidArgumentError(absl::StrCat("a layer under '", kind.name, "' is none"));
  }
  std::vector<OptionText> texts;
  for (const auto& [name, value] : given_) texts.push_back({name, value});
  ABACUS_ASSIGN_OR_RETURN(options_, OptionValues::Make(kind.options, texts));
  return Begin();
}

absl::Status Layer::ReplaceBelow(const std::vector<Ref<Layer>>& below) {
  if (below.size() != below_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("layer '", Kind().name, "' stands on ",
                                                   below_.size(), " layers here, not on ",
                                                   below.size()));
  }
  std::copy(below.begin(), below.end(), below_.begin());
  return absl::OkStatus();
}

void Layer::Checkpoint(runtime::CheckpointWriter& writer) const {
  writer.Write(below_);
  writer.Write(given_);
  writer.Write(AllAbove());
}

absl::Status Layer::Restore(runtime::CheckpointReader& reader) {
  reader.Read(below_);
  reader.Read(given_);
  auto above = reader.Read<std::vector<Above>>();
  ABACUS_RETURN_IF_ERROR(reader.status());
  {
    MutexLock lock(mutex_);
    above_ = std::move(above);
  }
  return Take();
}

// -- downward: to the only layer below ------------------------------------------------------------

absl::StatusOr<ReadResult> Layer::Read(uint64_t offset, uint64_t bytes, Version now) {
  return below()->Read(offset, bytes, now);
}
absl::StatusOr<std::vector<ReadResult>> Layer::ReadRanges(const std::vector<Range>& ranges,
                                                          Version now) {
  std::vector<ReadResult> results;
  for (const Range& range : ranges) {
    ABACUS_ASSIGN_OR_RETURN(ReadResult one, Read(range.offset, range.bytes, now));
    results.push_back(std::move(one));
  }
  return results;
}
absl::Status Layer::Write(uint64_t offset, const runtime::Block& bytes, Version now) {
  return below()->Write(offset, bytes, now);
}
absl::StatusOr<uint64_t> Layer::Append(const runtime::Block& bytes, Version now) {
  return below()->Append(bytes, now);
}
absl::Status Layer::Truncate(uint64_t size, Version now) { return below()->Truncate(size, now); }
absl::Status Layer::Punch(Range range, Version now) { return below()->Punch(range, now); }
absl::StatusOr<uint64_t> Layer::Seek(uint64_t offset, bool data, Version now) {
  return below()->Seek(offset, data, now);
}
absl::Status Layer::Push(Version now) { return below()->Push(now); }
absl::Status Layer::Flush(Version now) { return below()->Flush(now); }
absl::StatusOr<Attributes> Layer::GetAttributes(Version now) { return below()->GetAttributes(now); }
absl::Status Layer::SetInode(const std::string& inode, Version now) {
  return below()->SetInode(inode, now);
}

absl::Status Layer::SaveInode(const std::string& inode, Version now) {
  ABACUS_RETURN_IF_ERROR(SetInode(inode, now));
  return Flush(now);
}
absl::StatusOr<CommitResult> Layer::Commit(const std::vector<RangeVersion>& reads,
                                           const std::vector<RangeWrite>& writes, Version now) {
  return below()->Commit(reads, writes, now);
}

absl::StatusOr<Promise> Layer::Claim(PromiseKind kind, Version now) {
  if (below_.empty()) return Promise{kind, kForGood};
  return below()->Claim(kind, now);
}

// -- upward: to all layers above ------------------------------------------------------------------

// A layer that is told by those below has to be known to them.
absl::Status Layer::Attach(uint16_t writer, const Ref<Layer>& above) {
  {
    MutexLock lock(mutex_);
    const auto it = std::find_if(above_.begin(), above_.end(),
                                 [&](const Above& other) { return other.writer == writer; });
    if (it != above_.end()) {
      it->layer = above;
    } else {
      above_.push_back({writer, above});
    }
  }
  // To all, whether or not one of them answers: a layer on several may do without.
  absl::Status status;
  for (const Ref<Layer>& layer : below_) status.Update(layer->Attach(writer, SelfRef<Layer>()));
  return status;
}

absl::Status Layer::Detach(uint16_t writer) {
  {
    MutexLock lock(mutex_);
    std::erase_if(above_, [&](const Above& other) { return other.writer == writer; });
  }
  absl::Status status;
  for (const Ref<Layer>& layer : below_) status.Update(layer->Detach(writer));
  return status;
}

std::vector<Layer::Above> Layer::AllAbove() const {
  MutexLock lock(mutex_);
  return above_;
}

std::vector<Ref<Layer>> Layer::LayersAbove() const {
  std::vector<Ref<Layer>> layers;
  for (const Above& above : AllAbove()) {
    if (std::find(layers.begin(), layers.end(), above.layer) == layers.end()) {
      layers.push_back(above.layer);
    }
  }
  return layers;
}

absl::Status Layer::Invalidate(Range range, Version version) {
  absl::Status status;
  for (const Ref<Layer>& layer : LayersAbove()) status.Update(layer->Invalidate(range, version));
  return status;
}
absl::Status Layer::Recall(Range range, Version version) {
  absl::Status status;
  for (const Ref<Layer>& layer : LayersAbove()) status.Update(layer->Recall(range, version));
  return status;
}

absl::StatusOr<LayerState> Layer::Describe() {
  LayerState state;
  state.kind = Kind().name;
  for (const auto& option : given_) state.facts.push_back(option);
  AddFacts(&state.facts);
  return state;
}

}  // namespace abacus::objfs
