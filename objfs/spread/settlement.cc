#include "objfs/spread/settlement.h"

#include <algorithm>
#include <utility>

#include "objfs/raid/stripe_set.h"
#include "objfs/spread/settlement_inl.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {

template Settlement PlanSettlementBy<FaithfulSettlementPolicy>(
    const std::map<uint64_t, ColumnAnswer>& answers, const std::set<uint64_t>& columns);

Settlement PlanSettlement(const std::map<uint64_t, ColumnAnswer>& answers,
                          const std::set<uint64_t>& columns) {
  return PlanSettlementBy<FaithfulSettlementPolicy>(answers, columns);
}

GroupOrders OrdersOf(const Settlement& plan) {
  GroupOrders orders;
  for (const SettledGroup& group : plan.groups) {
    for (const uint64_t server : group.told) orders[server].push_back({group.id, group.fate});
    for (const uint64_t server : group.finish) {
      orders[server].push_back({group.id, GroupFate::kCommit});
    }
    for (const uint64_t server : group.done) {
      orders[server].push_back({group.id, GroupFate::kForget});
    }
  }
  return orders;
}

SettlementEnd EndSettlement(const Settlement& plan, const std::map<uint64_t, ColumnAnswer>& answers,
                            const std::set<uint64_t>& columns, std::set<uint64_t> failed) {
  // Who fails is as one that has not answered. Its record may have been the only one to tell that a
  // later opening has settled a group, and which column lacks it; nobody reads it now. Then who has
  // nothing of a group that is held lacks it.
  std::map<uint64_t, ColumnAnswer> left = answers;
  for (const uint64_t server : failed) left.erase(server);
  const Settlement without = PlanSettlement(left, columns);
  std::set<uint64_t> lacking = plan.lacking;
  lacking.insert(without.lacking.begin(), without.lacking.end());
  const bool all_there = std::all_of(columns.begin(), columns.end(),
                                     [&](uint64_t server) { return left.contains(server); });

  SettlementEnd end;
  end.gone = std::move(failed);
  // Of several nobody could make the file whole. Their stripes are told as missed nevertheless; but
  // a column that is not there cannot be computed from such ones.
  if (lacking.size() == 1 || !all_there) end.gone.insert(lacking.begin(), lacking.end());
  // Of one whose column was moved since, the column has what it had.
  const auto has_it = [&](uint64_t server) {
    if (!columns.contains(server)) return true;
    return answers.contains(server) && !end.gone.contains(server) && !lacking.contains(server);
  };
  StripeSet missed;  // of blocks
  for (const SettledGroup& group : plan.groups) {
    if (group.fate == GroupFate::kAbort && !group.is_stale) continue;
    if (!group.is_stale && std::all_of(group.members.begin(), group.members.end(), has_it)) {
      for (const uint64_t server : group.told) {
        end.forgets[server].push_back({group.id, GroupFate::kForget});
      }
      continue;
    }
    for (const Range& range : group.ranges) {
      missed.Add({range.offset / ObjectStore::kBlockBytes,
                  (range.offset + range.bytes) / ObjectStore::kBlockBytes});
    }
  }
  for (const auto& [begin, last] : missed.runs()) {
    end.missed.push_back(
        {begin * ObjectStore::kBlockBytes, (last - begin) * ObjectStore::kBlockBytes});
  }
  return end;
}

}  // namespace abacus::objfs
