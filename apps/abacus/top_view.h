#ifndef ABACUS_APPS_ABACUS_TOP_VIEW_H_
#define ABACUS_APPS_ABACUS_TOP_VIEW_H_

// What `abacus top` shows, without a terminal: a report and what the user has pressed in, text out.
//
// Thread-safety: thread-compatible. Blocking: no.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/node/control_types.h"

namespace abacus::apps {

enum class TopSort { kCpu, kStall, kBytesIn, kBytesOut, kMemory, kNode };

// By its word on the command line ("cpu", "stall", "in", "out", "memory", "node"); nothing for
// another.
std::optional<TopSort> ParseTopSort(std::string_view word);
std::vector<std::string> TopSortWords();

// Sorted: the largest first; by node, the nodes in order and the busiest of each first.
void SortForTop(TopSort sort, std::vector<runtime::NodeReport::ObjectLine>& objects);

class TopView {
 public:
  explicit TopView(TopSort sort) : sort_(sort) {}

  // What a key does: c s i o m n choose the order, up and down (or k and j) the object, Enter shows
  // or hides its edges, q ends. Unknown keys do nothing. Returns false where the view is to end.
  bool Key(std::string_view key);
  void SetReport(runtime::NodeReport report);

  // At most `rows` lines of at most `columns` bytes, the chosen object marked; each ends with '\n'.
  std::string Text(size_t rows, size_t columns) const;

 private:
  std::vector<std::string> EdgesOf(const runtime::NodeReport::ObjectLine& object) const;

  TopSort sort_;
  runtime::NodeReport report_;
  runtime::Rid chosen_;  // follows the object through the order
  bool edges_ = false;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_TOP_VIEW_H_
