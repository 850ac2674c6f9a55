#include "apps/grep/testing/gnu_grep.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace abacus::apps {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::abort();
}

// Reads both ends until they are closed.
void Drain(std::array<int, 2> ends, std::array<std::string*, 2> texts) {
  std::array<pollfd, 2> polled = {{{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}}};
  std::vector<char> buffer(1 << 16);
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    Require(poll(polled.data(), polled.size(), -1) >= 0, "poll");
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      const ssize_t got = read(polled[i].fd, buffer.data(), buffer.size());
      Require(got >= 0, "read");
      if (got == 0) polled[i].fd = -1;
      texts[i]->append(buffer.data(), static_cast<size_t>(got));
    }
  }
}

GnuGrep::Result RunProgram(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // Nothing else is passed on: grep reads a few variables that change what it prints.
  std::string path = absl::StrCat("PATH=", std::getenv("PATH"));
  std::string locale = "LC_ALL=C";
  std::array<char*, 3> environment = {path.data(), locale.data(), nullptr};

  std::array<int, 2> out;
  std::array<int, 2> diagnostics;
  Require(pipe2(out.data(), O_CLOEXEC) == 0 && pipe2(diagnostics.data(), O_CLOEXEC) == 0, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, diagnostics[1], STDERR_FILENO);
  pid_t child;
  errno = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environment.data());
  Require(errno == 0, "grep");
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(diagnostics[1]);

  GnuGrep::Result result;
  Drain({out[0], diagnostics[0]}, {&result.out, &result.diagnostics});
  close(out[0]);
  close(diagnostics[0]);
  int status = 0;
  Require(waitpid(child, &status, 0) == child && WIFEXITED(status), "waitpid");
  result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace

GnuGrep::GnuGrep() {
  std::string path = (std::filesystem::temp_directory_path() / "abacus_grep.XXXXXX").string();
  Require(mkdtemp(path.data()) != nullptr, "mkdtemp");
  folder_ = path;
  file_ = path + "/file";
}

GnuGrep::~GnuGrep() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string GnuGrep::Unsuitable() const {
  const Result version = RunProgram({"sh", "-c", "grep --version 2>&1"});
  if (absl::StartsWith(version.out, "grep (GNU grep) 3.8")) return "";
  return absl::StrCat("the output to compare with is that of GNU grep 3.8, and this is ",
                      version.out.substr(0, version.out.find('\n')));
}

GnuGrep::Result GnuGrep::Run(const std::string& pattern, std::string_view bytes) const {
  std::ofstream file(file_, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  Require(file.good(), "write");
  return RunProgram({"grep", "-n", "-e", pattern, file_});
}

double GnuGrep::Time(const std::string& pattern) const {
  const auto start = std::chrono::steady_clock::now();
  RunProgram({"grep", "-n", "-e", pattern, file_});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

uint32_t GnuGrep::FindLeadBytes(const std::string& pattern, std::string_view line) const {
  constexpr size_t kRead = 96 * 1024;
  constexpr size_t kPage = 4096;
  // Whether grep's second read is full when the first leaves an unfinished line of `kept` bytes.
  const auto second_read_is_full = [&](size_t kept) {
    std::string bytes(kRead - kept, '\n');
    bytes.append(kept, 'q');
    bytes += '\n';
    bytes += line;
    bytes += '\n';
    const std::string wanted = absl::StrCat("\n", kRead - kept + 2, ":");
    bytes.resize(2 * kRead - kPage + 64, '\n');
    bytes += '\0';  // in the second read only if that is full, which takes `line` back
    bytes.append(kPage, '\n');
    const std::string out = "\n" + Run(pattern, bytes).out;
    return out.find(wanted) == std::string::npos;
  };
  uint32_t low = 16;  // a multiple of 16 for which it is full with `low - 1` bytes
  uint32_t high = kPage + 16;
  while (high - low > 16) {
    const uint32_t middle = (low + high) / 32 * 16;
    (second_read_is_full(middle - 1) ? low : high) = middle;
  }
  return low;
}

}  // namespace abacus::apps
