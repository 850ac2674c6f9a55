#include "objfs/replica/replica_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/raid/alarm.h"
#include "objfs/raid/timed_call.h"
#include "runtime/object/timed_branch.h"

namespace abacus::objfs {

namespace {

class RefLink final : public ReplicaLink {
 public:
  RefLink(runtime::Ref<ReplicaStore> copy, absl::Duration answer_max)
      : copy_(std::move(copy)), answer_max_(answer_max) {}

  absl::StatusOr<ReplicaState> State() override { return Call<&ReplicaStore::State>(); }
  absl::StatusOr<ReplicaState> Begin(uint64_t epoch, uint64_t session) override {
    return Call<&ReplicaStore::Begin>(epoch, session);
  }
  absl::Status Apply(uint64_t epoch, uint64_t session, const ReplicaBatch& batch) override {
    return Call<&ReplicaStore::Apply>(epoch, session, batch);
  }
  absl::StatusOr<std::vector<ObjectId>> List(ObjectId after, uint64_t count_max) override {
    return Call<&ReplicaStore::List>(after, count_max);
  }
  absl::StatusOr<ReplicaObject> Describe(ObjectId id, uint64_t first, uint64_t count,
                                         bool digests) override {
    return Call<&ReplicaStore::Describe>(id, first, count, digests);
  }
  absl::StatusOr<runtime::Block> ReadBlock(ObjectId id, uint64_t block) override {
    return Call<&ReplicaStore::ReadBlock>(id, block);
  }
  absl::Status PutBack(ObjectId id, uint64_t block, const runtime::Block& bytes) override {
    return Call<&ReplicaStore::PutBack>(id, block, bytes);
  }

 private:
  template <auto kMethod, typename... Args>
  typename runtime::TimedBranch<kMethod>::Result Call(const Args&... args) {
    auto answer = CallWithin<kMethod>(alarm_, answer_max_, copy_.base(), args...);
    if (answer.has_value()) return *std::move(answer);
    return absl::DeadlineExceededError(absl::StrCat("the copy of the volume has not answered for ",
                                                    absl::FormatDuration(answer_max_)));
  }

  Alarm alarm_;
  const runtime::Ref<ReplicaStore> copy_;
  const absl::Duration answer_max_;
};

}  // namespace

std::shared_ptr<ReplicaLink> LinkTo(runtime::Ref<ReplicaStore> copy, absl::Duration answer_max) {
  return std::make_shared<RefLink>(std::move(copy), answer_max);
}

}  // namespace abacus::objfs
