#ifndef ABACUS_EXPERIMENTS_DEMO_LINK_H_
#define ABACUS_EXPERIMENTS_DEMO_LINK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::experiments {

// The link between the demo's server and its client.
//
// Two network namespaces joined by a veth pair, each end shaped by a token bucket, where the user
// may make them and run in them; else the loopback interface, and the data plane limits its own
// rate.
class Link {
 public:
  enum class Kind { kNamespaces, kLoopback };

  // Errors: kPermissionDenied or kInternal with the command that failed and the way out.
  static absl::StatusOr<std::unique_ptr<Link>> Make(Kind kind, double mbit_s);
  // The namespaces where they can be made, else loopback; `why` tells what stood against them.
  static absl::StatusOr<std::unique_ptr<Link>> MakeBest(double mbit_s, std::string* why);
  // Takes everything down again.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Kind kind() const { return kind_; }
  double mbit_s() const { return mbit_s_; }
  std::string Describe() const;

  // A command as it has to be given to run at that end.
  std::vector<std::string> AtServer(std::vector<std::string> command) const;
  std::vector<std::string> AtClient(std::vector<std::string> command) const;
  std::string server_host() const;
  std::string client_host() const;
  // For the data plane's configuration; 0 where the kernel shapes.
  double transport_limit_mbit() const { return kind_ == Kind::kLoopback ? mbit_s_ : 0; }

 private:
  Link(Kind kind, double mbit_s);
  absl::Status SetUpNamespaces();

  const Kind kind_;
  const double mbit_s_;
  std::string server_namespace_;
  std::string client_namespace_;
};

}  // namespace abacus::experiments

#endif  // ABACUS_EXPERIMENTS_DEMO_LINK_H_
