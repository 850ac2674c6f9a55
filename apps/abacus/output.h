#ifndef ABACUS_APPS_ABACUS_OUTPUT_H_
#define ABACUS_APPS_ABACUS_OUTPUT_H_

// How the commands print: errors, JSON files, and the lines about moves.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/node/node.h"

namespace abacus::apps {

// Writes all of `bytes`. Errors: the descriptor's (a pipe that nobody reads is kUnavailable).
absl::Status WriteAll(int fd, std::string_view bytes);

// Replaces a file in one step, so that who waits for it never sees a part of it. What is there and
// is no regular file (a pipe, a device) is written in place, as is all below /dev and /proc.
absl::Status WriteFile(const std::string& path, std::string_view bytes);

// Prints "abacus: <what went wrong>" and returns kExitError.
int Fail(const absl::Status& status);

// "grep" for "apps.Grep": a class as people call it.
std::string ShortClassName(std::string_view class_name);

// Seconds with the unit that suits: "1.25 s", "3.1 ms", "80 us".
std::string HumanSeconds(double seconds);

// What a text of several sentences begins with, its full stop included.
std::string FirstSentence(std::string_view text);

// One line about a move that has ended: what, from where to where, gain, cost, blackout; or why it
// did not happen.
std::string MoveLine(const runtime::MoveEvent& event);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_OUTPUT_H_
