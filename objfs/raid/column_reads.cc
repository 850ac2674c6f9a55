#include "objfs/raid/column_reads.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace abacus::objfs {

ColumnReads::~ColumnReads() {
  const absl::Time now = absl::Now();
  for (size_t call = 0; call < calls_.size(); ++call) {
    if (answered(call)) continue;
    const One& one = calls_[call];
    pace_->Sample(column(call), one.bytes, now - one.begun, ReadPace::Took::kAtLeast, now);
  }
}

size_t ColumnReads::Begin(const runtime::Ref<Layer>& column, std::vector<ColumnRead> reads) {
  for (size_t call = 0; call < calls_.size(); ++call) {
    if (calls_[call].what == reads) return call;
  }
  std::vector<Range> ranges;
  uint64_t bytes = 0;
  for (const ColumnRead& read : reads) {
    ranges.push_back({read.offset, read.bytes});
    bytes += read.bytes;
  }
  const absl::Time begun = absl::Now();
  calls_.push_back({std::move(reads), bytes, begun, Branch(column.base(), ranges, now_), {}, {}});
  return calls_.size() - 1;
}

absl::StatusOr<ReadResult> ColumnReads::answer(size_t call, size_t read) const {
  const absl::StatusOr<std::vector<ReadResult>>& all = *calls_[call].answer;
  if (!all.ok()) return all.status();
  return (*all)[read];
}

bool ColumnReads::WaitFor(One& one, const std::atomic<bool>& rang) {
  if (one.branch.Answered()) return true;
  while (!rang) {
    if (!one.branch.Wait()) continue;
    one.came = absl::Now();
    return true;
  }
  return one.branch.Answered();
}

void ColumnReads::Take(One& one) {
  one.answer = one.branch.Join();
  if (one.answer->ok() && (*one.answer)->size() != one.what.size()) {
    one.answer = absl::InternalError(
        absl::StrCat("a column answered ", (*one.answer)->size(), " reads of ", one.what.size()));
  }
  if (!one.answer->ok()) return;  // that tells nothing of how long a read takes
  const absl::Time now = absl::Now();
  pace_->Sample(one.what.front().column, one.bytes, one.came.value_or(now) - one.begun,
                one.came.has_value() ? ReadPace::Took::kExactly : ReadPace::Took::kAtMost, now);
}

bool ColumnReads::Wait(const std::vector<size_t>& calls, absl::Duration patience) {
  std::vector<One*> pending;
  for (const size_t call : calls) {
    One& one = calls_[call];
    if (one.answer.has_value()) continue;
    if (one.branch.Answered()) {
      Take(one);
    } else {
      pending.push_back(&one);
    }
  }
  std::atomic<bool> rang{false};
  if (alarm_ == nullptr || patience == absl::InfiniteDuration()) {
    for (One* const one : pending) WaitFor(*one, rang);
  } else if (!pending.empty()) {
    const Alarm::Set set(*alarm_, patience, [&rang, &pending] {
      rang = true;
      // Also those that nobody waits for at that time: their next wait ends at once.
      for (One* const one : pending) one->branch.Interrupt();
    });
    for (One* const one : pending) WaitFor(*one, rang);
  }
  // No alarm looks at them any more: they may be joined.
  bool all = true;
  for (One* const one : pending) {
    if (one->branch.Answered()) {
      Take(*one);
    } else {
      all = false;
    }
  }
  return all;
}

std::vector<size_t> ColumnReads::Late(const std::vector<size_t>& calls) const {
  std::vector<size_t> columns;
  for (const size_t call : calls) {
    if (!answered(call)) columns.push_back(column(call));
  }
  return columns;
}

}  // namespace abacus::objfs
