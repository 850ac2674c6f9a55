#include "apps/grep/line_matcher.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace abacus::apps {
namespace {

// Counts '\n' 16 bytes at a time: each lane counts its own, and lanes are added up before one of
// them can overflow. (The vector type is the compiler's, for any machine.)
uint64_t CountLineEnds(std::string_view text) {
  typedef uint8_t Lanes __attribute__((vector_size(16)));
  constexpr size_t kLaneCountMax = 255;
  uint64_t count = 0;
  while (text.size() >= sizeof(Lanes)) {
    const size_t vectors = std::min(text.size() / sizeof(Lanes), kLaneCountMax);
    Lanes counts = {};
    for (size_t i = 0; i < vectors; ++i) {
      Lanes bytes;
      std::memcpy(&bytes, text.data() + i * sizeof(Lanes), sizeof(Lanes));
      counts -= static_cast<Lanes>(bytes == '\n');  // true is -1
    }
    for (size_t lane = 0; lane < sizeof(Lanes); ++lane) count += counts[lane];
    text.remove_prefix(vectors * sizeof(Lanes));
  }
  return count + static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

absl::StatusOr<LineMatcher> LineMatcher::Create(std::string pattern, std::string name,
                                                const Options& options) {
  absl::StatusOr<LineFinder> finder = LineFinder::Compile(pattern);
  if (!finder.ok()) return finder.status();
  State state;
  state.pattern = std::move(pattern);
  state.name = std::move(name);
  state.line_bytes_max = std::min(options.line_bytes_max, kLineBytesMax);
  state.reads = GrepReads(options.reads).state();
  LineMatcher matcher(std::move(state), *std::move(finder));
  matcher.state_.read_left_bytes = matcher.reads_.Next(0);
  return matcher;
}

absl::StatusOr<LineMatcher> LineMatcher::FromState(State state) {
  if (!GrepReads::IsValid(state.reads) || state.read_left_bytes == 0 ||
      state.read_left_bytes > state.reads.read_bytes || state.line_bytes_max > kLineBytesMax ||
      state.partial_line.size() > state.line_bytes_max ||
      state.partial_line.find_first_of(std::string_view("\n\0", 2)) != std::string::npos ||
      state.held_output.empty() != (state.held_matches == 0)) {
    return absl::InvalidArgumentError("the state of a search contradicts itself");
  }
  absl::StatusOr<LineFinder> finder = LineFinder::Compile(state.pattern);
  if (!finder.ok()) return finder.status();
  return LineMatcher(std::move(state), *std::move(finder));
}

LineMatcher::State LineMatcher::ToState() const {
  State state = state_;
  state.reads = reads_.state();
  return state;
}

absl::Status LineMatcher::Feed(std::string_view block, std::string* out) {
  if (state_.is_finished) return absl::FailedPreconditionError("the search has ended");
  while (!block.empty() && !done()) {
    const size_t bytes = std::min<uint64_t>(block.size(), state_.read_left_bytes);
    if (absl::Status status = FeedPiece(block.substr(0, bytes)); !status.ok()) {
      state_.is_finished = true;
      return status;
    }
    block.remove_prefix(bytes);
    state_.read_left_bytes -= bytes;
    if (state_.read_left_bytes == 0) EndRead(out);
  }
  return absl::OkStatus();
}

absl::Status LineMatcher::Finish(std::string* out) {
  if (state_.is_finished) return absl::FailedPreconditionError("the search has ended");
  state_.is_finished = true;
  if (state_.binary_matches) return absl::OkStatus();
  Release(out);  // the last read, cut short by the end of the file, had no NUL
  if (state_.partial_line.empty()) return absl::OkStatus();
  if (absl::Status status = SearchPartialLine(); !status.ok()) return status;
  Release(out);
  return absl::OkStatus();
}

std::string LineMatcher::diagnostic() const {
  if (!state_.binary_matches) return "";
  return absl::StrCat("grep: ", state_.name, ": binary file matches\n");
}

// `piece` lies within one read.
absl::Status LineMatcher::FeedPiece(std::string_view piece) {
  if (state_.is_binary) return FeedBinary(piece);
  const size_t nul = piece.find('\0');
  if (nul == std::string_view::npos) return FeedText(piece);
  if (absl::Status status = FeedText(piece.substr(0, nul)); !status.ok()) return status;
  BecomeBinary();
  return state_.binary_matches ? absl::OkStatus() : FeedBinary(piece.substr(nul));
}

void LineMatcher::BecomeBinary() {
  state_.is_binary = true;
  state_.binary_matches = state_.held_matches != 0;
  state_.held_output.clear();
  state_.held_matches = 0;
}

absl::Status LineMatcher::FeedBinary(std::string_view piece) {
  if (state_.read_may_vanish) {
    if (piece.find_first_not_of('\0') == std::string_view::npos) return absl::OkStatus();
    state_.read_may_vanish = false;
    const bool read_began_with_nul = state_.read_left_bytes != reads_.state().read_bytes;
    if (read_began_with_nul && !state_.partial_line.empty()) {
      if (absl::Status status = SearchPartialLine(); !status.ok()) return status;
      if (state_.binary_matches) return absl::OkStatus();
    }
  }
  std::string text(piece);
  std::replace(text.begin(), text.end(), '\0', '\n');
  return FeedText(text);
}

absl::Status LineMatcher::FeedText(std::string_view text) {
  if (!state_.partial_line.empty()) {
    const size_t line_end = text.find('\n');
    if (line_end == std::string_view::npos) return AppendToPartialLine(text);
    absl::Status status = AppendToPartialLine(text.substr(0, line_end));
    if (status.ok()) status = SearchPartialLine();
    if (!status.ok() || state_.binary_matches) return status;
    text.remove_prefix(line_end + 1);
  }
  const size_t last_line = text.rfind('\n') + 1;  // 0 if there is no line end
  if (absl::Status status = SearchLines(text.substr(0, last_line)); !status.ok()) return status;
  return AppendToPartialLine(text.substr(last_line));
}

absl::Status LineMatcher::AppendToPartialLine(std::string_view text) {
  if (text.size() > state_.line_bytes_max - state_.partial_line.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("line ", state_.lines + 1, " is longer than ",
                                                     state_.line_bytes_max, " bytes"));
  }
  state_.partial_line += text;
  return absl::OkStatus();
}

absl::Status LineMatcher::SearchPartialLine() {
  std::string line = std::exchange(state_.partial_line, std::string());
  line += '\n';
  return SearchLines(line);
}

absl::Status LineMatcher::SearchLines(std::string_view lines) {
  size_t at = 0;
  while (at != lines.size()) {
    const auto line = finder_.Find(lines, at);
    if (!line.ok()) return line.status();
    if (!line->has_value()) break;
    if (state_.is_binary) {
      state_.binary_matches = true;
      return absl::OkStatus();
    }
    const auto [begin, end] = **line;
    state_.lines += CountLineEnds(lines.substr(at, begin - at)) + 1;
    HoldLine(lines.substr(begin, end - begin));
    at = end;
  }
  if (!state_.is_binary) state_.lines += CountLineEnds(lines.substr(at));
  return absl::OkStatus();
}

void LineMatcher::HoldLine(std::string_view line) {
  std::array<char, 24> prefix;
  char* const colon = std::to_chars(prefix.data(), prefix.data() + prefix.size(), state_.lines).ptr;
  *colon = ':';
  state_.held_output.append(prefix.data(), colon + 1);
  state_.held_output += line;
  ++state_.held_matches;
}

void LineMatcher::EndRead(std::string* out) {
  Release(out);
  state_.read_left_bytes = reads_.Next(state_.partial_line.size());
  // grep throws away what it reads if that is nothing but NULs, to jump over holes; only where an
  // empty line is not what it looks for.
  state_.read_may_vanish = state_.is_binary && !finder_.matches_empty_line();
}

void LineMatcher::Release(std::string* out) {
  out->append(state_.held_output);
  state_.matches += state_.held_matches;
  state_.held_output.clear();
  state_.held_matches = 0;
}

absl::StatusOr<std::string> GrepWhole(std::string pattern, std::string name,
                                      std::string_view bytes) {
  LineMatcher::Options options;
  options.reads.file_bytes = bytes.size();
  absl::StatusOr<LineMatcher> matcher =
      LineMatcher::Create(std::move(pattern), std::move(name), options);
  if (!matcher.ok()) return matcher.status();
  std::string out;
  absl::Status status = matcher->Feed(bytes, &out);
  if (status.ok()) status = matcher->Finish(&out);
  if (!status.ok()) return status;
  return out;
}

}  // namespace abacus::apps
