#include "objfs/raid/column_reads.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace abacus::objfs {

ColumnReads::~ColumnReads() {
  const absl::Time now = absl::Now();
  for (const One& one : reads_) {
    if (one.answer.has_value()) continue;
    pace_->Sample(one.what.column, one.what.bytes, now - one.begun, ReadPace::Took::kAtLeast, now);
  }
}

size_t ColumnReads::Begin(const runtime::Ref<Layer>& column, const ColumnRead& read) {
  for (size_t i = 0; i < reads_.size(); ++i) {
    if (reads_[i].what == read) return i;
  }
  const absl::Time begun = absl::Now();
  reads_.push_back({read, begun, Branch(column.base(), read.offset, read.bytes, now_), {}, {}});
  return reads_.size() - 1;
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
  if (!one.answer->ok()) return;  // that tells nothing of how long a read takes
  const absl::Time now = absl::Now();
  pace_->Sample(one.what.column, one.what.bytes, one.came.value_or(now) - one.begun,
                one.came.has_value() ? ReadPace::Took::kExactly : ReadPace::Took::kAtMost, now);
}

bool ColumnReads::Wait(const std::vector<size_t>& reads, absl::Duration patience) {
  std::vector<One*> pending;
  for (const size_t read : reads) {
    One& one = reads_[read];
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

std::vector<size_t> ColumnReads::Late(const std::vector<size_t>& reads) const {
  std::vector<size_t> columns;
  for (const size_t read : reads) {
    const size_t column = reads_[read].what.column;
    if (answered(read) || std::find(columns.begin(), columns.end(), column) != columns.end()) {
      continue;
    }
    columns.push_back(column);
  }
  return columns;
}

}  // namespace abacus::objfs
