// ./dev demo: a search that moves to its data while it runs (paper, section 6.3).
//
// Starts a storage server and, for each run, a client as separate processes joined by a slow link,
// lets the client search a text on the server with the grep object fixed at the client, free to
// move, and fixed at the server, compares every byte of output with GNU grep, and tells what the
// placement engine decided and why.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "apps/cli/table.h"
#include "experiments/demo/link.h"
#include "experiments/testbed/process.h"
#include "runtime/base/status.h"

namespace abacus::experiments {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kWindowSeconds = 1.0;  // H, the default of placement.window
// A move has to gain 30 % of what is left afterwards: 1 + the default of placement.threshold.
constexpr double kWorthMoving = 1.3;
constexpr int kControlPort = 7070;
constexpr int kDataPort = 7071;

// Set by SIGINT and SIGTERM: what runs is stopped, and everything is taken down on the way out.
std::atomic<bool> interrupted{false};

struct Options {
  std::string file;
  std::string pattern;
  std::string json;
  std::string link = "auto";
  double link_mbit = 10;
  uint64_t repeat_bytes = 0;
  std::string cache;
  bool keep = false;
};

// One text and what is searched for in it.
struct Search {
  std::string name;  // in the volume, and in the table
  fs::path path;
  std::string pattern;
  std::string expect;  // "move" or "stay": what the best placement is; empty: the fixed runs tell
  bool has_goal = false;
};

struct Run {
  std::string placement;  // client, adaptive, server
  double elapsed_s = 0;
  uint64_t link_bytes = 0;
  int migrations = 0;
  uint64_t matches = 0;
  std::string explanation;
};

absl::Status Interrupted() { return absl::CancelledError("interrupted"); }

// -- files ----------------------------------------------------------------------------------------

fs::path CacheDirectory(const Options& options) {
  if (!options.cache.empty()) return options.cache;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0) {
    return fs::path(cache) / "abacus" / "demo";
  }
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : "/tmp") / ".cache" / "abacus" / "demo";
}

// A directory of the demo's own that goes with it.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(bool keep) : keep_(keep) {
    char path[] = "/tmp/abacus-demo-XXXXXX";
    if (mkdtemp(path) != nullptr) path_ = path;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!keep_ && !path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  const bool keep_;
  fs::path path_;
};

absl::Status RepeatTo(const fs::path& from, const fs::path& to, uint64_t bytes) {
  std::ifstream in(from, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  const std::string once = text.str();
  std::ofstream out(to, std::ios::binary);
  for (uint64_t written = 0; written < bytes && !once.empty(); written += once.size()) out << once;
  out.close();
  if (!in || !out) return absl::UnavailableError("cannot write " + to.string());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Search>> Texts(const Options& options, const fs::path& scratch) {
  if (!options.file.empty()) {
    if (!fs::is_regular_file(options.file)) {
      return absl::NotFoundError("no such file: " + options.file);
    }
    return std::vector<Search>{{fs::path(options.file).filename().string(), options.file,
                                options.pattern.empty() ? "kernel" : options.pattern, "", false}};
  }
  const fs::path cache = CacheDirectory(options);
  std::error_code error;
  fs::create_directories(cache, error);
  absl::StatusOr<Process> texts =
      Process::Start({"bash", ABACUS_SOURCE_DIR "/experiments/demo/texts.sh", cache.string()});
  if (!texts.ok()) return texts.status();
  if (texts->Wait() != 0) {
    return absl::UnavailableError("the texts could not be made in " + cache.string() +
                                  " (see above); --file searches a file of your own");
  }
  fs::path linux_text = cache / "LinuxBible.txt";
  if (options.repeat_bytes > 0) {
    const fs::path repeated = scratch / "LinuxBible.txt";
    if (absl::Status status = RepeatTo(linux_text, repeated, options.repeat_bytes); !status.ok()) {
      return status;
    }
    linux_text = repeated;
  }
  const std::string word = options.pattern.empty() ? "kernel" : options.pattern;
  return std::vector<Search>{
      {"Bible.txt", cache / "Bible.txt", word, "move", false},
      {"LinuxBible.txt", linux_text, word, "move", true},
      {"LinuxBible.txt", linux_text, "[[:alnum:]]", "stay", false},
  };
}

// -- running --------------------------------------------------------------------------------------

std::string AbacusProgram() {
  // Built beside this program: .../experiments/abacus_demo and .../apps/abacus/abacus.
  const fs::path self = fs::read_symlink("/proc/self/exe");
  return (self.parent_path().parent_path() / ABACUS_PROGRAM_SUBPATH).string();
}

// The server and client differ from the defaults in what the link needs and in nothing else.
// `limit_mbit`: of the data plane; 0: none.
absl::Status WriteConfig(const fs::path& path, double limit_mbit, const std::string& name,
                         const std::string& host, int control_port, int data_port,
                         const fs::path& data_dir) {
  std::ofstream file(path);
  file << "[node]\nname = \"" << name << "\"\n"
       << "control_address = \"" << host << ":" << control_port << "\"\n"
       << "data_address = \"" << host << ":" << data_port << "\"\n";
  if (!data_dir.empty()) file << "data_dir = \"" << data_dir.string() << "\"\n";
  file << "[log]\nlevel = \"warning\"\n";
  if (limit_mbit > 0) {
    file << "[transport]\nrate_limit_mbit = " << absl::StrFormat("%.3f", limit_mbit) << "\n";
  }
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError("cannot write " + path.string());
}

// As `abacus` names the file; what is before a colon would be a volume.
std::string FileName(const Search& search) {
  return search.name.find(':') == std::string::npos ? search.name : "/" + search.name;
}

class Demo {
 public:
  Demo(const Options& options, const Link& link, const fs::path& scratch)
      : options_(options), link_(link), scratch_(scratch) {}

  absl::Status StartServer();
  // Puts the texts into the server's volume.
  absl::Status Store(const std::vector<Search>& searches);
  // The three runs of one search, checked against GNU grep.
  absl::StatusOr<std::vector<Run>> Runs(const Search& search);

 private:
  absl::StatusOr<Run> One(const Search& search, const std::string& placement);
  absl::Status Compare(const Search& search, const std::string& placement, const fs::path& output);

  const Options& options_;
  const Link& link_;
  const fs::path scratch_;
  std::string server_address_;
  std::unique_ptr<Process> server_;
};

absl::Status Demo::StartServer() {
  const fs::path config = scratch_ / "server.toml";
  // Over loopback other servers may run on this machine: the system chooses the ports.
  const bool own_network = link_.kind() == Link::Kind::kNamespaces;
  if (absl::Status status = WriteConfig(config, link_.transport_limit_mbit(), "server",
                                        link_.server_host(), own_network ? kControlPort : 0,
                                        own_network ? kDataPort : 0, scratch_ / "server");
      !status.ok()) {
    return status;
  }
  const fs::path ready = scratch_ / "server.ready";
  absl::StatusOr<Process> server =
      Process::Start(link_.AtServer({AbacusProgram(), "serve", "--config", config.string(),
                                     "--ready-file", ready.string()}),
                     {.stdout_path = (scratch_ / "server.log").string()});
  if (!server.ok()) return server.status();
  server_ = std::make_unique<Process>(*std::move(server));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!fs::exists(ready)) {
    if (interrupted) return Interrupted();
    if (!server_->Running() || absl::Now() > deadline) {
      return absl::UnavailableError("the server did not start; it said above why");
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  std::ifstream(ready) >> server_address_;
  return absl::OkStatus();
}

absl::Status Demo::Store(const std::vector<Search>& searches) {
  // At the server's end and without a limit: the link is not used for it.
  const fs::path config = scratch_ / "put.toml";
  if (absl::Status status = WriteConfig(config, 0, "put", link_.server_host(), 0, 0, {});
      !status.ok()) {
    return status;
  }
  std::set<std::string> stored;
  for (const Search& search : searches) {
    if (!stored.insert(search.name).second) continue;
    absl::StatusOr<Process> put = Process::Start(
        link_.AtServer({AbacusProgram(), "put", "--config", config.string(), "--server",
                        server_address_, FileName(search), search.path.string()}));
    if (!put.ok()) return put.status();
    while (put->Running()) {
      if (interrupted) return Interrupted();
      absl::SleepFor(absl::Milliseconds(5));
    }
    if (const int code = put->Wait(); code != 0) {
      return absl::InternalError(absl::StrCat("cannot store ", search.path.string(),
                                              ": put exited with ", code, "; see above"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Run> Demo::One(const Search& search, const std::string& placement) {
  const fs::path config = scratch_ / "client.toml";
  if (absl::Status status = WriteConfig(config, link_.transport_limit_mbit(), "client",
                                        link_.client_host(), 0, 0, {});
      !status.ok()) {
    return status;
  }
  const fs::path output = scratch_ / ("output-" + placement);
  const fs::path numbers = scratch_ / ("numbers-" + placement + ".json");
  std::vector<std::string> command = {AbacusProgram(), "run",           "grep",
                                      "--config",      config.string(), "--server",
                                      server_address_, "--json",        numbers.string()};
  // The one difference between the three runs.
  if (placement != "adaptive") command.insert(command.end(), {"--pin", placement});
  command.insert(command.end(), {"--", search.pattern, FileName(search)});
  absl::StatusOr<Process> client =
      Process::Start(link_.AtClient(command), {.stdout_path = output.string()});
  if (!client.ok()) return client.status();
  while (client->Running()) {
    if (interrupted) return Interrupted();
    absl::SleepFor(absl::Milliseconds(5));
  }
  if (const int code = client->Wait(); code > 1) {
    return absl::InternalError(absl::StrCat("the client exited with ", code, "; see above"));
  }
  if (absl::Status status = Compare(search, placement, output); !status.ok()) return status;

  std::ifstream file(numbers);
  const Json json = Json::parse(file, nullptr, false);
  if (json.is_discarded()) return absl::InternalError("the client wrote no numbers");
  Run run{.placement = placement,
          .elapsed_s = json.value("elapsed_s", 0.0),
          .link_bytes = json.value("link_bytes", uint64_t{0}),
          .migrations = json.value("migrations", 0),
          .matches = json.value("matches", uint64_t{0}),
          .explanation = json.value("explanation", "")};
  return run;
}

absl::Status Demo::Compare(const Search& search, const std::string& placement,
                           const fs::path& output) {
  const fs::path expected = scratch_ / "expected";
  absl::StatusOr<Process> grep =
      Process::Start({"grep", "-n", "-e", search.pattern, search.path.string()},
                     {.stdout_path = expected.string(), .environment = {"LC_ALL=C"}});
  if (!grep.ok()) return grep.status();
  if (grep->Wait() > 1) return absl::InternalError("GNU grep failed on the same search");
  std::ifstream ours(output, std::ios::binary);
  std::ifstream theirs(expected, std::ios::binary);
  std::string our_line;
  std::string their_line;
  for (uint64_t line = 1;; ++line) {
    const bool have_ours = static_cast<bool>(std::getline(ours, our_line));
    const bool have_theirs = static_cast<bool>(std::getline(theirs, their_line));
    if (!have_ours && !have_theirs) break;
    if (have_ours != have_theirs || our_line != their_line) {
      return absl::DataLossError(
          absl::StrCat("OUTPUT DIFFERS from GNU grep with grep at ", placement, ", at output line ",
                       line, ":\n  grep: ", have_theirs ? their_line.substr(0, 200) : "(end)",
                       "\n  here: ", have_ours ? our_line.substr(0, 200) : "(end)"));
    }
  }
  // Lines are equal; so are the bytes, unless one of the two ends without a line end.
  if (fs::file_size(output) != fs::file_size(expected)) {
    return absl::DataLossError("OUTPUT DIFFERS from GNU grep in its last line end");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Run>> Demo::Runs(const Search& search) {
  std::vector<Run> runs;
  std::cerr << "\n"
            << search.name << ", " << fs::file_size(search.path) << " bytes, grep -n '"
            << search.pattern << "'\n";
  for (const char* placement : {"client", "adaptive", "server"}) {
    const bool adaptive = std::string(placement) == "adaptive";
    std::cerr << (adaptive ? "grep adaptive (starts at the client)"
                           : absl::StrCat("grep fixed at the ", placement))
              << "\n";
    absl::StatusOr<Run> run = One(search, placement);
    if (!run.ok()) return run.status();
    runs.push_back(*std::move(run));
  }
  return runs;
}

// -- the report -----------------------------------------------------------------------------------

const Run& Of(const std::vector<Run>& runs, const std::string& placement) {
  return *std::find_if(runs.begin(), runs.end(),
                       [&](const Run& run) { return run.placement == placement; });
}

std::string Expect(const Search& search, const std::vector<Run>& runs) {
  if (!search.expect.empty()) return search.expect;
  const bool pays = Of(runs, "client").elapsed_s > kWorthMoving * Of(runs, "server").elapsed_s;
  return pays ? "move" : "stay";
}

std::string Seconds(double seconds) { return absl::StrFormat("%.2f", seconds); }

// Says whether it was met, and returns it.
bool PrintGoal(const char* what, bool met) {
  std::cout << "  " << what << ": " << (met ? "met" : "MISSED") << "\n";
  return met;
}

// False where a goal was missed.
bool PrintResult(const Search& search, const std::vector<Run>& runs) {
  const double client = Of(runs, "client").elapsed_s;
  const double adaptive = Of(runs, "adaptive").elapsed_s;
  const double server = Of(runs, "server").elapsed_s;
  apps::Table table({"placement", "elapsed s", "link bytes", "migrations", "matches"});
  for (const Run& run : runs) {
    table.AddRow({run.placement, Seconds(run.elapsed_s), absl::StrCat(run.link_bytes),
                  absl::StrCat(run.migrations), absl::StrCat(run.matches)});
  }
  std::cout << "\n" << search.name << ": grep -n '" << search.pattern << "'\n" << table.ToString();
  std::cout << "  all three printed what GNU grep prints, byte for byte\n";
  const double behind = adaptive - server;
  std::cout << "  adaptive is " << absl::StrFormat("%.1f", client / adaptive)
            << " times as fast as grep fixed at the client, and " << Seconds(std::abs(behind))
            << (behind >= 0 ? " s slower" : " s faster") << " than grep fixed at the server\n";
  bool met = true;
  if (search.has_goal) {
    if (server >= 15) {
      met &= PrintGoal("adaptive within 15 % of the server placement", adaptive <= 1.15 * server);
    } else {
      met &=
          PrintGoal("adaptive - server <= 1.5 windows", adaptive - server <= 1.5 * kWindowSeconds);
      met &= PrintGoal("adaptive <= client / 5", adaptive <= client / 5);
    }
  }
  if (Expect(search, runs) == "stay") {
    met &= PrintGoal("stay", Of(runs, "adaptive").migrations == 0);
  }
  std::cout << "  why: " << Of(runs, "adaptive").explanation << "\n";
  return met;
}

Json ToJson(const Search& search, const std::vector<Run>& runs) {
  Json placements = Json::array();
  for (const Run& run : runs) {
    placements.push_back({{"placement", run.placement},
                          {"elapsed_s", run.elapsed_s},
                          {"link_bytes", run.link_bytes},
                          {"migrations", run.migrations},
                          {"matches", run.matches}});
  }
  return {{"file", search.name},
          {"pattern", search.pattern},
          {"bytes", fs::file_size(search.path)},
          {"expect", Expect(search, runs)},
          {"output_identical", true},  // a difference ends the demo
          {"placements", placements},
          {"explanation", Of(runs, "adaptive").explanation}};
}

absl::StatusOr<std::unique_ptr<Link>> MakeLink(const Options& options) {
  if (options.link == "namespaces") return Link::Make(Link::Kind::kNamespaces, options.link_mbit);
  if (options.link == "loopback") return Link::Make(Link::Kind::kLoopback, options.link_mbit);
  std::string why_not;
  absl::StatusOr<std::unique_ptr<Link>> link = Link::MakeBest(options.link_mbit, &why_not);
  if (!why_not.empty()) std::cerr << "no network namespaces: " << why_not << "\n";
  return link;
}

absl::Status RunDemo(const Options& options) {
  const ScratchDirectory scratch(options.keep);
  absl::StatusOr<std::vector<Search>> searches = Texts(options, scratch.path());
  if (!searches.ok()) return searches.status();
  absl::StatusOr<std::unique_ptr<Link>> link = MakeLink(options);
  if (!link.ok()) return link.status();
  std::cerr << "link: " << (*link)->Describe() << "\n";
  Demo demo(options, **link, scratch.path());
  if (absl::Status status = demo.StartServer(); !status.ok()) return status;
  if (absl::Status status = demo.Store(*searches); !status.ok()) return status;

  Json files = Json::array();
  std::vector<std::pair<Search, std::vector<Run>>> results;
  for (const Search& search : *searches) {
    absl::StatusOr<std::vector<Run>> runs = demo.Runs(search);
    if (!runs.ok()) return runs.status();
    files.push_back(ToJson(search, *runs));
    results.emplace_back(search, *std::move(runs));
  }
  std::cout << "\nlink: " << (*link)->Describe() << "\n";
  bool met = true;
  for (const auto& [search, runs] : results) met &= PrintResult(search, runs);
  if (options.keep) std::cout << "\nkept: " << scratch.path().string() << "\n";
  const absl::Status done = met ? absl::OkStatus()
                                : absl::FailedPreconditionError(
                                      "a goal was MISSED, see above; if the machine was busy, try "
                                      "again when it is not");
  if (options.json.empty()) return done;
  const bool namespaces = (*link)->kind() == Link::Kind::kNamespaces;
  std::ofstream file(options.json);
  file << Json{{"link",
                {{"kind", namespaces ? "namespaces" : "loopback"}, {"mbit_s", options.link_mbit}}},
               {"files", files}}
              .dump(2)
       << "\n";
  file.close();
  return file ? done : absl::UnavailableError("cannot write " + options.json);
}

}  // namespace
}  // namespace abacus::experiments

int main(int argc, char** argv) {
  abacus::experiments::Options options;
  CLI::App app{"A search that moves to its data while it runs, over an emulated slow link.",
               "dev demo"};
  app.add_option("--file", options.file, "search a file of your own");
  app.add_option("--pattern", options.pattern, "what to search for (default: kernel)");
  app.add_option("--json", options.json, "write the numbers to this file as well");
  app.add_option("--link", options.link, "auto, namespaces or loopback")
      ->check(CLI::IsMember({"auto", "namespaces", "loopback"}));
  app.add_option("--link-mbit", options.link_mbit, "speed of the link in Mbit/s (default: 10)")
      ->check(CLI::Range(0.1, 10000.0));
  app.add_option("--repeat-bytes", options.repeat_bytes,
                 "repeat the 16 MiB text to at least this many bytes, for long runs");
  app.add_option("--cache", options.cache, "where the texts are kept");
  app.add_flag("--keep", options.keep, "keep the scratch directory with all outputs");
  CLI11_PARSE(app, argc, argv);

  struct sigaction action {};
  action.sa_handler = [](int) { abacus::experiments::interrupted = true; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const absl::Status status = abacus::experiments::RunDemo(options);
  if (status.ok()) return 0;
  std::cerr << "demo: " << status.message() << "\n";
  return 1;
}
