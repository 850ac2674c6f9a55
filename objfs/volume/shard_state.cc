#include <charconv>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "objfs/volume/shard.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

// A decimal number that is all of the text, as Format() writes it.
template <typename Number>
bool TakeDecimal(std::string_view text, Number* number) {
  const bool is_canonical = !text.empty() && text.front() != '0' && text.front() != '-';
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *number);
  return is_canonical && error == std::errc() && at == end;
}

}  // namespace

std::string ShardState::Format() const { return absl::StrCat(count, " ", records, " ", volume); }

absl::StatusOr<ShardState> ShardState::Parse(std::string_view text) {
  ShardState state;
  const size_t first = text.find(' '), last = text.rfind(' ');
  const bool is_one = first < last && TakeDecimal(text.substr(0, first), &state.count) &&
                      TakeDecimal(text.substr(first + 1, last - first - 1), &state.records) &&
                      TakeDecimal(text.substr(last + 1), &state.volume);
  if (!is_one || state.count < 2 || state.count > kShardsMax) {
    return absl::DataLossError(
        absl::StrCat("'", runtime::ToAbsl(text), "' does not say how many shards a volume has"));
  }
  return state;
}

}  // namespace abacus::objfs
