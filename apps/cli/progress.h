#ifndef ABACUS_APPS_CLI_PROGRESS_H_
#define ABACUS_APPS_CLI_PROGRESS_H_

// Shows how far a long job is: on a terminal a bar in one line that is drawn over, elsewhere (a
// file, a pipe, a CI log) a plain line now and then.
//
//   kernel  [=====>       ]   42 %  6.7 MiB of 16.0 MiB  1.2 MiB/s  grep is at server-1
//
// The caller says what time it is, so that tests need not wait, and writes what it is given.
//
// Thread-safety: thread-compatible. Blocking: as the writer.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace abacus::apps {

class Progress {
 public:
  // Takes what is to be shown, control sequences included, to be written at once and unbuffered.
  using Writer = std::function<void(std::string_view)>;

  struct Options {
    bool is_terminal = false;
    int columns = 80;          // of the terminal
    uint64_t total_bytes = 0;  // 0: unknown, then there is neither bar nor percentage
    std::string title;
    absl::Duration redraw_interval = absl::Milliseconds(100);  // at least that long between draws
    // Where there is no terminal: a line when that much time or that part of the bytes has passed
    // since the last. On long jobs lines become rarer: 5 % of the elapsed time.
    absl::Duration line_interval = absl::Seconds(2);
    int line_percent = 25;
  };

  // What is known about a file descriptor: whether it is a terminal, and its width.
  static Options OptionsFor(int fd);

  Progress(Options options, absl::Time start, Writer write);

  // `bytes` of the total are done; `where` is any text, for example where an object is now. Draws
  // only if it is time to, so it may be called as often as one likes.
  void Update(absl::Time now, uint64_t bytes, std::string_view where);

  // Prints a line of its own, above the bar. `line` has no '\n'.
  void Note(std::string_view line);

  // Draws what was last known once more, and leaves the cursor below it. Nothing follows.
  void Finish(absl::Time now);

 private:
  struct Sample {
    absl::Time time;
    uint64_t bytes;
  };

  void AddSample(absl::Time now);
  double BytesPerSecond() const;
  int Percent() const;
  bool IsTimeForLine(absl::Time now) const;
  std::string Amounts() const;
  std::string Bar(size_t cells) const;
  std::string BarLine() const;
  std::string PlainLine() const;
  void Draw(absl::Time now);

  const Options options_;
  const Writer write_;
  const absl::Time start_;
  absl::Time drawn_;
  int drawn_percent_ = 0;
  bool bar_is_shown_ = false;
  uint64_t bytes_ = 0;
  std::string where_;
  std::deque<Sample> samples_;  // of the last seconds, oldest first
};

// "16.0 MiB", "999 B": three digits or more, units of 1024.
std::string HumanBytes(double bytes);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_CLI_PROGRESS_H_
