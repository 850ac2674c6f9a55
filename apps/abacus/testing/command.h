#ifndef ABACUS_APPS_ABACUS_TESTING_COMMAND_H_
#define ABACUS_APPS_ABACUS_TESTING_COMMAND_H_

// The `abacus` program as a process of its own, for tests.

#include <sys/types.h>

#include <string>
#include <vector>

namespace abacus::apps::testing {

// Where the program is.
std::string ProgramPath();

// A folder for one test, removed with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // Makes a file there; its path.
  std::string Write(const std::string& name, const std::string& bytes) const;
  std::string Read(const std::string& name) const;

 private:
  std::string path_;
};

struct Outcome {
  int code = -1;  // exit code, or 128 + the signal
  std::string out;
  std::string err;
};

// A program that runs beside the test; killed with the object, at the latest.
// Owner-thread.
class Command {
 public:
  struct Options {
    std::string in_path = "/dev/null";
    int out_fd = -1;                       // takes standard output, else Outcome::out has it
    std::vector<std::string> environment;  // "NAME=value"
    bool as_nobody = false;                // drops root's rights, where there are any
    int keep_fd = -1;                      // a descriptor that it inherits
  };

  // `arguments` without the program's own name. Aborts where it cannot be started.
  Command(const std::vector<std::string>& arguments, const Options& options);
  explicit Command(const std::vector<std::string>& arguments) : Command(arguments, Options()) {}
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  void Signal(int signal) const;
  bool Running();
  // Waits for the end.
  Outcome Wait();

 private:
  const Folder folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

// Runs it to its end.
Outcome RunAbacus(const std::vector<std::string>& arguments, const Command::Options& options);
inline Outcome RunAbacus(const std::vector<std::string>& arguments) {
  return RunAbacus(arguments, Command::Options());
}

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_ABACUS_TESTING_COMMAND_H_
