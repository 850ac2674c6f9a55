#include "experiments/demo/link.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "experiments/testbed/process.h"

namespace abacus::experiments {
namespace {

constexpr char kServerHost[] = "10.231.77.1";
constexpr char kClientHost[] = "10.231.77.2";

std::vector<std::string> Inside(const std::string& space, std::vector<std::string> command) {
  command.insert(command.begin(), {"ip", "netns", "exec", space});
  return command;
}

}  // namespace

Link::Link(Kind kind, double mbit_s)
    : kind_(kind),
      mbit_s_(mbit_s),
      server_namespace_(absl::StrCat("abacus-demo-", getpid(), "-server")),
      client_namespace_(absl::StrCat("abacus-demo-", getpid(), "-client")) {}

absl::StatusOr<std::unique_ptr<Link>> Link::Make(Kind kind, double mbit_s) {
  std::unique_ptr<Link> link(new Link(kind, mbit_s));
  if (kind == Kind::kNamespaces) {
    if (absl::Status status = link->SetUpNamespaces(); !status.ok()) return status;
  }
  return link;
}

absl::StatusOr<std::unique_ptr<Link>> Link::MakeBest(double mbit_s, std::string* why) {
  absl::StatusOr<std::unique_ptr<Link>> link = Make(Kind::kNamespaces, mbit_s);
  if (link.ok()) return link;
  *why = std::string(link.status().message());
  return Make(Kind::kLoopback, mbit_s);
}

absl::Status Link::SetUpNamespaces() {
  if (geteuid() != 0) {
    return absl::PermissionDeniedError(
        "network namespaces are root's to make (run the demo with sudo for them)");
  }
  const std::string server_end = absl::StrCat("ab", getpid(), "s");
  const std::string client_end = absl::StrCat("ab", getpid(), "c");
  const std::string rate = absl::StrCat(std::llround(mbit_s_ * 1000), "kbit");
  // A burst of 2 ms of the link, but no less than a few packets: the shaper works by the timer.
  const std::string burst =
      absl::StrCat(std::max<int64_t>(16 * 1024, std::llround(mbit_s_ * 1e6 / 8 * 0.002)));
  std::vector<std::vector<std::string>> commands = {
      {"ip", "netns", "add", server_namespace_},
      {"ip", "netns", "add", client_namespace_},
      // More than to make one is needed to run in it: `exec` mounts a /sys of the namespace's own,
      // which containers may refuse.
      Inside(server_namespace_, {"true"}),
      {"ip", "link", "add", server_end, "netns", server_namespace_, "type", "veth", "peer", "name",
       client_end, "netns", client_namespace_},
  };
  for (const bool server : {true, false}) {
    const std::string& space = server ? server_namespace_ : client_namespace_;
    const std::string& end = server ? server_end : client_end;
    commands.push_back({"ip", "-n", space, "addr", "add",
                        absl::StrCat(server ? kServerHost : kClientHost, "/30"), "dev", end});
    commands.push_back({"ip", "-n", space, "link", "set", end, "up"});
    commands.push_back({"ip", "-n", space, "link", "set", "lo", "up"});
    commands.push_back({"tc", "-n", space, "qdisc", "add", "dev", end, "root", "tbf", "rate", rate,
                        "burst", burst, "limit", "262144"});
  }
  for (const auto& command : commands) {
    if (absl::Status status = RunCommand(command); !status.ok()) return status;
  }
  return absl::OkStatus();
}

Link::~Link() {
  if (kind_ != Kind::kNamespaces || geteuid() != 0) return;
  // With a namespace go its end of the pair, and with one end the other.
  RunCommand({"ip", "netns", "delete", client_namespace_}).IgnoreError();
  RunCommand({"ip", "netns", "delete", server_namespace_}).IgnoreError();
}

std::string Link::Describe() const {
  if (kind_ == Kind::kNamespaces) {
    return absl::StrCat("two network namespaces joined by a veth pair, ", mbit_s_,
                        " Mbit/s each way (token bucket in the kernel)");
  }
  return absl::StrCat("loopback, ", mbit_s_, " Mbit/s each way (limited by the data plane itself)");
}

std::vector<std::string> Link::AtServer(std::vector<std::string> command) const {
  return kind_ == Kind::kLoopback ? command : Inside(server_namespace_, std::move(command));
}

std::vector<std::string> Link::AtClient(std::vector<std::string> command) const {
  return kind_ == Kind::kLoopback ? command : Inside(client_namespace_, std::move(command));
}

std::string Link::server_host() const {
  return kind_ == Kind::kLoopback ? "127.0.0.1" : kServerHost;
}

std::string Link::client_host() const {
  return kind_ == Kind::kLoopback ? "127.0.0.1" : kClientHost;
}

}  // namespace abacus::experiments
