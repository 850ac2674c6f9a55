#include "objfs/raid/range_turns.h"

#include <iterator>

namespace abacus::objfs {

RangeTurns::Turn::Turn(RangeTurns& turns, StripeRun run, Kind kind) : turns_(turns) {
  runtime::MutexLock lock(turns_.mutex_);
  turns_.entries_.push_back({run, kind == Kind::kExclusive});
  entry_ = std::prev(turns_.entries_.end());
  while (!turns_.First(entry_)) turns_.changed_.Wait(turns_.mutex_);
}

RangeTurns::Turn::~Turn() {
  runtime::MutexLock lock(turns_.mutex_);
  turns_.entries_.erase(entry_);
  turns_.changed_.SignalAll();
}

bool RangeTurns::First(std::list<Entry>::const_iterator entry) const {
  for (auto it = entries_.begin(); it != entry; ++it) {
    const bool overlap = it->run.begin < entry->run.end && entry->run.begin < it->run.end;
    if (overlap && (it->exclusive || entry->exclusive)) return false;
  }
  return true;
}

}  // namespace abacus::objfs
