#include "objfs/raid/read_plan.h"

#include <algorithm>
#include <tuple>

namespace abacus::objfs {
namespace {

bool ComesBefore(const ColumnRead& a, const ColumnRead& b) {
  return std::tie(a.column, a.offset) < std::tie(b.column, b.offset);
}

}  // namespace

ReadPlan ReadPlan::Of(const std::vector<std::vector<ColumnRead>>& pieces) {
  ReadPlan plan;
  std::vector<ColumnRead> all;
  for (const std::vector<ColumnRead>& piece : pieces)
    all.insert(all.end(), piece.begin(), piece.end());
  std::sort(all.begin(), all.end(), ComesBefore);
  for (const ColumnRead& one : all) {
    ColumnRead* const last = plan.reads.empty() ? nullptr : &plan.reads.back();
    if (last == nullptr || last->column != one.column || last->offset + last->bytes < one.offset) {
      plan.reads.push_back(one);
      continue;
    }
    last->bytes = std::max(last->bytes, one.offset + one.bytes - last->offset);
  }
  for (const std::vector<ColumnRead>& piece : pieces) {
    std::vector<Source>& sources = plan.sources.emplace_back();
    for (const ColumnRead& one : piece) {
      // The last one that does not begin behind it has it.
      const auto behind = std::upper_bound(plan.reads.begin(), plan.reads.end(), one, ComesBefore);
      const size_t read = static_cast<size_t>(behind - plan.reads.begin()) - 1;
      sources.push_back({read, one.offset - plan.reads[read].offset});
    }
  }
  return plan;
}

std::vector<std::vector<ColumnRead>> ReadPlan::ByColumn() const {
  std::vector<std::vector<ColumnRead>> columns;
  for (const ColumnRead& read : reads) {
    if (columns.empty() || columns.back().front().column != read.column) columns.emplace_back();
    columns.back().push_back(read);
  }
  return columns;
}

}  // namespace abacus::objfs
