#include "experiments/testbed/testbed.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace abacus::experiments {
namespace {

using Json = nlohmann::json;

// Exit codes of testbed_main.py.
constexpr int kRefused = 1;  // by the machine; of check: values are off
constexpr int kBadInput = 2;

std::vector<std::string> Joined(std::vector<std::string> words,
                                const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// What the command prints to stdout.
absl::StatusOr<std::string> Run(const std::vector<std::string>& command,
                                const std::vector<std::string>& words) {
  const std::vector<std::string> arguments = Joined(command, words);
  absl::StatusOr<Output> ended = RunForOutput(arguments);
  if (!ended.ok()) return ended.status();
  if (ended->code == 0) return std::move(ended->out);
  std::string said = absl::StrCat(ended->out, ended->err);
  absl::StripTrailingAsciiWhitespace(&said);
  if (ended->code == kBadInput) return absl::InvalidArgumentError(said);
  if (ended->code == kRefused) return absl::FailedPreconditionError(said);
  return absl::InternalError(
      absl::StrCat("`", absl::StrJoin(arguments, " "), "` exited with ", ended->code, ": ", said));
}

// The nodes of a testbed in what `list --json` printed.
absl::StatusOr<std::vector<TestbedNode>> NodesOf(const std::string& name,
                                                 const std::string& listed) {
  try {
    for (const Json& testbed : Json::parse(listed)) {
      if (testbed.at("name") != name) continue;
      std::vector<TestbedNode> nodes;
      for (const Json& node : testbed.at("nodes")) {
        nodes.push_back({node.at("name").get<std::string>(), node.at("address").get<std::string>(),
                         node.at("network").get<std::string>()});
      }
      return nodes;
    }
  } catch (const Json::exception& error) {
    return absl::InternalError(absl::StrCat("the list of testbeds: ", error.what()));
  }
  return absl::InternalError(absl::StrCat("testbed ", name, " was built and is not listed"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Testbed>> Testbed::Up(const TestbedOptions& options) {
  std::vector<std::string> command = options.command;
  if (command.empty()) {
    command = {"python3", "-B", ABACUS_SOURCE_DIR "/experiments/testbed/testbed_main.py"};
  }
  std::vector<std::string> words = {"up", options.topology};
  if (!options.name.empty()) words.insert(words.end(), {"--as", options.name});
  for (const auto& [node, share] : options.cpu) {
    words.insert(words.end(), {"--cpu", absl::StrCat(node, "=", share)});
  }
  absl::StatusOr<std::string> built = Run(command, words);
  if (!built.ok()) return built.status();

  // A topology's name is that of its file.
  const std::string name =
      options.name.empty() ? std::filesystem::path(options.topology).stem().string() : options.name;
  // From here on it is taken down whatever goes wrong.
  std::unique_ptr<Testbed> testbed(new Testbed(command, name, *std::move(built)));
  absl::StatusOr<std::string> listed = Run(command, {"list", "--json"});
  if (!listed.ok()) return listed.status();
  absl::StatusOr<std::vector<TestbedNode>> nodes = NodesOf(name, *listed);
  if (!nodes.ok()) return nodes.status();
  testbed->nodes_ = *std::move(nodes);
  return testbed;
}

Testbed::Testbed(std::vector<std::string> command, std::string name, std::string description)
    : command_(std::move(command)), name_(std::move(name)), description_(std::move(description)) {}

Testbed::~Testbed() {
  absl::StatusOr<Process> down =
      Process::Start(Joined(command_, {"down", name_}), {.stdout_path = "/dev/null"});
  // As long as it takes: Process would stop it after its patience, and leave the rest.
  if (down.ok()) down->Wait();
}

const TestbedNode* Testbed::FindNode(const std::string& name) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(),
                                  [&](const TestbedNode& node) { return node.name == name; });
  return found == nodes_.end() ? nullptr : &*found;
}

absl::StatusOr<Process> Testbed::Start(const std::string& node,
                                       const std::vector<std::string>& arguments,
                                       const ProcessOptions& options) const {
  if (arguments.empty()) return absl::InvalidArgumentError("no program to start on a node");
  if (FindNode(node) == nullptr) {
    const auto append_name = [](std::string* out, const TestbedNode& known) {
      out->append(known.name);
    };
    return absl::NotFoundError(
        absl::StrCat("testbed ", name_, " has no node '", node,
                     "'; there are: ", absl::StrJoin(nodes_, ", ", append_name)));
  }
  return Process::Start(
      Joined(Joined(command_, {"exec", "--testbed", name_, node, "--"}), arguments), options);
}

absl::Status Testbed::Check() { return Run(command_, {"check", name_}).status(); }

}  // namespace abacus::experiments
