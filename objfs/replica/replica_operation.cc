#include "objfs/replica/replica_operation.h"

#include "absl/strings/str_cat.h"

namespace abacus::objfs {

namespace {

constexpr uint64_t kCostOfOne = 128;  // of an operation or part beside its bytes

absl::Status UpdateStore(ObjectStore& store, const ReplicaOperation& operation) {
  std::vector<ObjectUpdate> updates;
  for (const ReplicaPart& part : operation.parts) {
    ObjectUpdate update{.id = part.id,
                        .writes = {},
                        .blob = part.blob,
                        .may_lose_contents = part.may_lose_contents,
                        .gives_room_back = part.gives_room_back};
    for (const ReplicaWrite& write : part.writes) {
      update.writes.push_back({write.offset, write.bytes.view()});
    }
    updates.push_back(std::move(update));
  }
  return store.Update(updates, operation.version);
}

absl::Status Lacking(const ReplicaOperation& operation) {
  return absl::InvalidArgumentError(absl::StrCat("an operation of kind ",
                                                 static_cast<int>(operation.kind), " with ",
                                                 operation.parts.size(), " parts is none"));
}

}  // namespace

uint64_t ReplicaOperation::Cost() const {
  uint64_t cost = kCostOfOne;
  for (const ReplicaPart& part : parts) {
    cost += kCostOfOne;
    if (part.blob.has_value()) cost += part.blob->size();
    for (const ReplicaWrite& write : part.writes) cost += write.bytes.size();
  }
  return cost;
}

absl::Status ReplicaOperation::ApplyTo(ObjectStore& store) const {
  if (kind == Kind::kUpdate) return UpdateStore(store, *this);
  if (parts.size() != 1) return Lacking(*this);
  const ReplicaPart& part = parts.front();
  switch (kind) {
    case Kind::kCreate:
    case Kind::kMakeAnew:
      if (!part.blob.has_value()) break;
      return store.CreateAs(part.id, *part.blob, version);
    case Kind::kRemove:
      return store.Remove(part.id);
    case Kind::kForget: {
      const absl::Status removed = store.Remove(part.id);
      return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
    }
    case Kind::kWrite:
      if (part.writes.size() != 1) break;
      return store.Write(part.id, part.writes[0].offset, part.writes[0].bytes.view(), version);
    case Kind::kTruncate:
      return store.Truncate(part.id, offset, version);
    case Kind::kPunch:
      return store.Punch(part.id, offset, bytes, version);
    case Kind::kSetAttributes:
      if (!part.blob.has_value()) break;
      return store.SetAttributes(part.id, *part.blob, version);
    case Kind::kUpdate:
      break;
  }
  return Lacking(*this);
}

}  // namespace abacus::objfs
