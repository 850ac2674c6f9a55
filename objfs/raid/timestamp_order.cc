#include "objfs/raid/timestamp_order.h"

#include "objfs/raid/small_write_inl.h"
#include "objfs/raid/timestamp_order_inl.h"

namespace abacus::objfs {

void OrderState::Apply(const CommitRecord& record) {
  if (record.kind == CommitRecord::Kind::kCommit) {
    const auto found = commit.entries.find(record.key);
    Content& block = blocks[record.key.part];
    if (found != commit.entries.end() && record.key.id > block.written) {
      block = {record.key.id, found->second.payload};
    }
  }
  commit.Apply(record);
}

template class CommitDriver<FaithfulOrderPolicy>;
template class CommitParticipant<FaithfulOrderPolicy>;
template class TimestampOrder<FaithfulOrderPolicy>;
template class SmallWrite<FaithfulOrderPolicy>;

}  // namespace abacus::objfs
