#ifndef ABACUS_APPS_ABACUS_TESTING_ETCD_H_
#define ABACUS_APPS_ABACUS_TESTING_ETCD_H_

#include <sys/types.h>

#include <string>

#include "apps/abacus/testing/command.h"

namespace abacus::apps::testing {

// A real etcd of one member on loopback, with its data in a folder of its own; killed with the
// object. Owner-thread.
class Etcd {
 public:
  // Whether there is one to be started.
  static bool IsInstalled();

  // Returns once it answers. Aborts where it cannot be started.
  Etcd();
  ~Etcd();
  Etcd(const Etcd&) = delete;
  Etcd& operator=(const Etcd&) = delete;

  std::string url() const;  // "etcd://127.0.0.1:PORT"
  void Signal(int signal) const;
  // And what it had acknowledged is there when it begins again, at the same address.
  void Kill();
  void Begin();
  // As where its disk died: it begins again at the same address, and has nothing.
  void BeginAnew();

 private:
  const Folder folder_;
  int client_port_ = 0, peer_port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_ABACUS_TESTING_ETCD_H_
