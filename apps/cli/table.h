#ifndef ABACUS_APPS_CLI_TABLE_H_
#define ABACUS_APPS_CLI_TABLE_H_

// Lays out rows of cells in columns: text to the left, numbers to the right.
//
//   placement  elapsed s  migrations
//   ---------  ---------  ----------
//   client         14.62           0
//
// A column is one of numbers if each of its cells is a number (perhaps with % or x behind it), or
// empty, or "-". Widths count bytes: cells are ASCII.
//
// Thread-safety: thread-compatible. Blocking: no.

#include <string>
#include <utility>
#include <vector>

namespace abacus::apps {

class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}

  // Cells that are missing at the end are empty. REQUIRES: not more cells than there are headers.
  void AddRow(std::vector<std::string> cells);

  // The whole table; each line ends with '\n' and has no blanks before it.
  std::string ToString() const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;  // each as long as headers_
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_CLI_TABLE_H_
