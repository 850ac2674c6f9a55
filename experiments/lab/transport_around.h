#ifndef ABACUS_EXPERIMENTS_LAB_TRANSPORT_AROUND_H_
#define ABACUS_EXPERIMENTS_LAB_TRANSPORT_AROUND_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/transport/transport.h"

namespace abacus::lab {

// A transport that hands everything on to another, for those that change a part of it.
// Thread-safety and blocking: as the transport inside.
class TransportAround : public runtime::Transport {
 public:
  explicit TransportAround(std::unique_ptr<runtime::Transport> inner) : inner_(std::move(inner)) {}

  absl::Status Start(runtime::FrameHandler* handler) override { return inner_->Start(handler); }
  void Stop() override { inner_->Stop(); }
  void AddPeer(runtime::NodeInstance peer, const std::string& address) override {
    inner_->AddPeer(peer, address);
  }
  void RemovePeer(runtime::NodeInstance peer) override { inner_->RemovePeer(peer); }
  void Send(runtime::NodeInstance to, runtime::Lane lane, runtime::Frame frame) override {
    inner_->Send(to, lane, std::move(frame));
  }
  void Wait(runtime::NodeInstance peer, runtime::Waiter& waiter) override {
    inner_->Wait(peer, waiter);
  }
  void HandOffReading() override { inner_->HandOffReading(); }
  runtime::FrameLimits limits() const override { return inner_->limits(); }
  std::string address() const override { return inner_->address(); }
  std::vector<runtime::PeerTraffic> Traffic() const override { return inner_->Traffic(); }

 protected:
  runtime::Transport& inner() { return *inner_; }

 private:
  const std::unique_ptr<runtime::Transport> inner_;
};

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_TRANSPORT_AROUND_H_
