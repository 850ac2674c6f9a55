#ifndef ABACUS_RUNTIME_TRANSPORT_NO_TRANSPORT_H_
#define ABACUS_RUNTIME_TRANSPORT_NO_TRANSPORT_H_

#include <string>
#include <vector>

#include "runtime/transport/transport.h"

namespace abacus::runtime {

// A transport without peers, for a program that is one node by itself. What is sent goes nowhere.
// Thread-safety: thread-safe.
class NoTransport : public Transport {
 public:
  absl::Status Start(FrameHandler*) override { return absl::OkStatus(); }
  void Stop() override {}
  void AddPeer(NodeInstance, const std::string&) override {}
  void RemovePeer(NodeInstance) override {}
  void Send(NodeInstance, Lane, Frame) override {}
  void Wait(NodeInstance, Waiter& waiter) override {
    while (!waiter.done()) waiter.Sleep(absl::InfiniteDuration());
  }
  void HandOffReading() override {}
  std::string address() const override { return "none"; }
  std::vector<PeerTraffic> Traffic() const override { return {}; }
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_NO_TRANSPORT_H_
