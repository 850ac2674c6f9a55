#ifndef ABACUS_APPS_ABACUS_TESTING_LONG_LINK_H_
#define ABACUS_APPS_ABACUS_TESTING_LONG_LINK_H_

#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace abacus::apps::testing {

// A link with a delay: what is sent to its port arrives at a unix socket so much later, and the
// answers as late again, in order and with no limit on the rate. Whoever connects may do so before
// the socket is there only if nothing is sent.
// Thread-safety: owner-thread; it has one thread of its own.
class LongLink {
 public:
  // Aborts where it cannot listen.
  LongLink(std::string socket_path, std::chrono::nanoseconds delay);
  ~LongLink();
  LongLink(const LongLink&) = delete;
  LongLink& operator=(const LongLink&) = delete;

  // "127.0.0.1:PORT"
  std::string address() const { return address_; }

 private:
  class Relay;
  void Run();

  const std::string socket_path_;
  const std::chrono::nanoseconds delay_;
  std::string address_;
  int listening_ = -1;
  int stop_ = -1;  // an eventfd
  std::thread thread_;
};

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_ABACUS_TESTING_LONG_LINK_H_
