#include "apps/cli/table.h"

#include <algorithm>
#include <cassert>
#include <string_view>
#include <utility>

namespace abacus::apps {
namespace {

constexpr char kGap[] = "  ";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNumber(std::string_view cell) {
  if (!cell.empty() && (cell.front() == '-' || cell.front() == '+')) cell.remove_prefix(1);
  if (!cell.empty() && (cell.back() == '%' || cell.back() == 'x')) cell.remove_suffix(1);
  if (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  return !cell.empty() && IsDigit(cell.front()) && IsDigit(cell.back()) &&
         std::all_of(cell.begin(), cell.end(),
                     [](char c) { return IsDigit(c) || c == '.' || c == ','; });
}

bool FitsAmongNumbers(const std::string& cell) {
  return cell.empty() || cell == "-" || IsNumber(cell);
}

void AppendLine(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                const std::vector<bool>& to_the_right, std::string* text) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i != 0) line += kGap;
    const std::string blanks(widths[i] - cells[i].size(), ' ');
    line += to_the_right[i] ? blanks + cells[i] : cells[i] + blanks;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  *text += line + '\n';
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() <= headers_.size());
  cells.resize(headers_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  std::vector<bool> to_the_right;
  std::vector<std::string> rule;
  for (size_t i = 0; i < headers_.size(); ++i) {
    size_t width = headers_[i].size();
    bool all_fit = true;
    bool has_number = false;
    for (const std::vector<std::string>& row : rows_) {
      width = std::max(width, row[i].size());
      all_fit = all_fit && FitsAmongNumbers(row[i]);
      has_number = has_number || IsNumber(row[i]);
    }
    widths.push_back(width);
    to_the_right.push_back(all_fit && has_number);
    rule.push_back(std::string(width, '-'));
  }
  std::string text;
  AppendLine(headers_, widths, to_the_right, &text);
  AppendLine(rule, widths, to_the_right, &text);
  for (const std::vector<std::string>& row : rows_) AppendLine(row, widths, to_the_right, &text);
  return text;
}

}  // namespace abacus::apps
