#include "runtime/object/ref.h"

#include "absl/strings/str_cat.h"

namespace abacus::runtime::internal {

absl::Status NullRef(const std::string& method) {
  return absl::FailedPreconditionError(
      absl::StrCat("call of ", method, "() through a reference that refers to nothing"));
}

absl::Status TooDeep() {
  return MakeError(ErrorKind::kNestingTooDeep,
                   absl::StrCat("calls are nested ", kNestingMax,
                                " deep, the limit: do objects call each other in a circle?"));
}

MethodId HashMethod(std::string_view name, std::string_view signature) {
  // FNV-1a: the id must be the same in every build, which absl::Hash is not.
  uint32_t hash = 2166136261u;
  for (const std::string_view part : {name, signature}) {
    for (const char c : part) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  }
  return hash;
}

BranchScope::BranchScope(ThreadContext& thread, const ActivityId& branch, const Lineage& lineage,
                         uint64_t* sequence)
    : thread_(thread),
      parent_(thread.activity),
      parent_sequence_(thread.sequence),
      parent_lineage_(std::exchange(thread.lineage, lineage)),
      sequence_(sequence) {
  thread_.activity = branch;
  thread_.sequence = *sequence_;
}

BranchScope::~BranchScope() {
  *sequence_ = thread_.sequence;
  thread_.activity = parent_;
  thread_.lineage = std::move(parent_lineage_);
  thread_.sequence = parent_sequence_;
}

}  // namespace abacus::runtime::internal
