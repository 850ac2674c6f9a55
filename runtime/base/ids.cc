#include "runtime/base/ids.h"

#include <charconv>

namespace abacus::runtime {
namespace {

// Reads one decimal number and the separator behind it (0: the end of the text must follow).
template <typename Number>
bool Take(std::string_view& text, char separator, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return false;
  // ToString() writes no zeros in front: two texts must not name one object.
  if (text.front() == '0' && end != text.data() + 1) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (separator == 0) return text.empty();
  if (text.empty() || text.front() != separator) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string NodeInstance::ToString() const {
  return std::to_string(node) + "." + std::to_string(incarnation);
}

std::string Rid::ToString() const { return home.ToString() + "." + std::to_string(local); }

std::optional<Rid> Rid::Parse(std::string_view text) {
  Rid rid;
  if (!Take(text, '.', rid.home.node) || !Take(text, '.', rid.home.incarnation) ||
      !Take(text, 0, rid.local) || !rid.valid()) {
    return std::nullopt;
  }
  return rid;
}

std::string ActivityId::ToString() const { return origin.ToString() + "." + std::to_string(local); }

std::string CallId::ToString() const {
  return activity.ToString() + "/" + std::to_string(level) + "#" + std::to_string(sequence);
}

}  // namespace abacus::runtime
