#include "apps/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace abacus::apps {
namespace {

// Long enough that a rate does not jump with each block, short enough to see a move's effect.
constexpr absl::Duration kRateWindow = absl::Seconds(2);
constexpr size_t kSamplesMax = 32;
constexpr double kLineShareOfElapsed = 0.05;
constexpr size_t kBarCellsMax = 24;
constexpr size_t kBarCellsMin = 6;
constexpr size_t kBarFrameColumns = 4;  // brackets and the gap behind them
constexpr char kClearLine[] = "\r\x1b[K";

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

// A control character in a name must not move the cursor.
std::string Printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return clean;
}

}  // namespace

std::string HumanBytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  // 1023.95 would be shown as 1024.0.
  for (; bytes >= 1023.95 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return unit == 0 ? absl::StrFormat("%.0f B", bytes)
                   : absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

Progress::Options Progress::OptionsFor(int fd) {
  Options options;
  options.is_terminal = isatty(fd) == 1;
  winsize size = {};
  if (options.is_terminal && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = size.ws_col;
  }
  return options;
}

Progress::Progress(Options options, absl::Time start, Writer write)
    : options_(std::move(options)), write_(std::move(write)), start_(start), drawn_(start) {
  samples_.push_back({start, 0});
}

void Progress::Update(absl::Time now, uint64_t bytes, std::string_view where) {
  bytes_ = bytes;
  if (where_ != where) where_ = where;
  AddSample(now);
  const bool is_time = options_.is_terminal
                           ? !bar_is_shown_ || now - drawn_ >= options_.redraw_interval
                           : IsTimeForLine(now);
  if (is_time) Draw(now);
}

bool Progress::IsTimeForLine(absl::Time now) const {
  if (options_.total_bytes != 0 && Percent() - drawn_percent_ >= options_.line_percent) return true;
  return now - drawn_ >= std::max(options_.line_interval, (now - start_) * kLineShareOfElapsed);
}

// Keeps few samples however often Update is called: one that follows the last too closely takes
// that one's place.
void Progress::AddSample(absl::Time now) {
  if (samples_.size() > 1 &&
      now - samples_[samples_.size() - 2].time < kRateWindow / static_cast<int>(kSamplesMax)) {
    samples_.pop_back();
  }
  samples_.push_back({now, bytes_});
  while (samples_.size() > 2 && now - samples_[1].time >= kRateWindow) samples_.pop_front();
}

double Progress::BytesPerSecond() const {
  const double seconds = absl::ToDoubleSeconds(samples_.back().time - samples_.front().time);
  const double bytes =
      static_cast<double>(samples_.back().bytes) - static_cast<double>(samples_.front().bytes);
  return seconds > 0 && bytes > 0 ? bytes / seconds : 0;
}

int Progress::Percent() const {
  if (options_.total_bytes == 0) return 0;
  const double part = static_cast<double>(bytes_) / static_cast<double>(options_.total_bytes);
  return static_cast<int>(std::min(part, 1.0) * 100);
}

std::string Progress::Amounts() const {
  const std::string rate = absl::StrCat(HumanBytes(BytesPerSecond()), "/s");
  if (options_.total_bytes == 0) return absl::StrCat(HumanBytes(bytes_), "  ", rate);
  return absl::StrFormat("%3d %%  %s of %s  %s", Percent(), HumanBytes(bytes_),
                         HumanBytes(options_.total_bytes), rate);
}

std::string Progress::Bar(size_t cells) const {
  const size_t filled = cells * static_cast<size_t>(Percent()) / 100;
  std::string bar(filled, '=');
  if (filled < cells) bar += '>';
  bar.resize(cells, ' ');
  return absl::StrCat("[", bar, "]  ");
}

// The bar takes the columns that the text leaves, and goes where they are too few for a bar.
std::string Progress::BarLine() const {
  std::string before = options_.title;
  if (!before.empty()) before += "  ";
  std::string behind = Amounts();
  if (!where_.empty()) absl::StrAppend(&behind, "  ", where_);
  // The last column stays free: some terminals go on to the next line when it is written.
  const size_t width = static_cast<size_t>(std::max(options_.columns, 2)) - 1;
  const size_t taken = before.size() + behind.size() + kBarFrameColumns;
  const size_t cells = taken < width ? std::min(width - taken, kBarCellsMax) : 0;
  const bool has_bar = options_.total_bytes != 0 && cells >= kBarCellsMin;
  std::string line = Printable(absl::StrCat(before, has_bar ? Bar(cells) : "", behind));
  if (line.size() > width) line.resize(width);
  return line;
}

std::string Progress::PlainLine() const {
  std::string line = options_.title;
  if (!line.empty()) line += "  ";
  absl::StrAppend(&line, Amounts());
  if (!where_.empty()) absl::StrAppend(&line, "  ", where_);
  return Printable(line);
}

void Progress::Draw(absl::Time now) {
  if (options_.is_terminal) {
    write_(absl::StrCat(kClearLine, BarLine()));
    bar_is_shown_ = true;
  } else {
    write_(PlainLine() + "\n");
  }
  drawn_ = now;
  drawn_percent_ = Percent();
}

void Progress::Note(std::string_view line) {
  if (!bar_is_shown_) {
    write_(absl::StrCat(ToAbsl(line), "\n"));
    return;
  }
  write_(absl::StrCat(kClearLine, ToAbsl(line), "\n", BarLine()));
}

void Progress::Finish(absl::Time now) {
  Draw(now);
  if (bar_is_shown_) write_("\n");
  bar_is_shown_ = false;
}

}  // namespace abacus::apps
