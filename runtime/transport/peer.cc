#include "runtime/transport/peer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

constexpr std::array kDialledLanes = {Lane::kRequest, Lane::kBulk};

std::chrono::milliseconds Backoff(int failures) {
  if (failures <= 0) return std::chrono::milliseconds(0);
  constexpr int kDoublingsMax = 10;
  return std::min(Peer::kBackoffMin * (1 << std::min(failures - 1, kDoublingsMax)),
                  Peer::kBackoffMax);
}

}  // namespace

Peer::Peer(std::shared_ptr<PeerMeter> meter, PeerOwner* owner)
    : meter_(std::move(meter)), owner_(owner) {}

void Peer::SetAddress(const std::string& address, bool replace) {
  MutexLock lock(mutex_);
  if (!replace && !address_.empty()) return;
  if (address_ != address) {
    for (Link& link : links_) {
      link.next_dial = {};
      link.failures = 0;
    }
  }
  address_ = address;
  if (replace && fenced_) {
    fenced_ = false;
    status_ = absl::OkStatus();
  }
}

void Peer::Fence(const absl::Status& why) {
  MutexLock lock(mutex_);
  fenced_ = true;
  status_ = why;
}

bool Peer::fenced() const {
  MutexLock lock(mutex_);
  return fenced_;
}

absl::Status Peer::status() const {
  MutexLock lock(mutex_);
  return status_;
}

std::shared_ptr<Connection> Peer::Outgoing(Lane lane) {
  MutexLock lock(mutex_);
  Link& link = LinkOf(lane);
  // After a failure nobody waits here: a peer behind a broken network would block every sender for
  // as long as a dial may take.
  while (!fenced_ && link.failures == 0 && link.state != Link::State::kUp) {
    if (link.state == Link::State::kDialling) {
      changed_.Wait(mutex_);
    } else if (!address_.empty() && Clock::now() >= link.next_dial) {
      Dial(lane);
    } else {
      break;
    }
  }
  if (fenced_) return nullptr;
  if (link.state == Link::State::kUp) return link.connection;
  link.was_cut = true;
  link.lost = true;
  return nullptr;
}

std::shared_ptr<Connection> Peer::Current(Lane lane) const {
  MutexLock lock(mutex_);
  return links_[lane == Lane::kBulk].connection;
}

std::shared_ptr<Connection> Peer::Incoming() const {
  MutexLock lock(mutex_);
  return incoming_;
}

bool Peer::SetIncoming(std::shared_ptr<Connection> connection) {
  MutexLock lock(mutex_);
  if (fenced_) return false;
  incoming_ = std::move(connection);
  return true;
}

void Peer::OnLost(const Connection& connection) {
  Clock::time_point redial{};
  bool repaired = false;
  {
    MutexLock lock(mutex_);
    Link& link = LinkOf(connection.lane());
    // Another thread may have made the connection again, and said so, before this frame was known
    // to be lost.
    repaired = link.state == Link::State::kUp && link.connection.get() != &connection;
    link.was_cut = link.lost = !repaired;
    redial = link.next_dial;
  }
  if (repaired) {
    owner_->OnReconnected(instance());
  } else {
    owner_->TickAt(redial);
  }
}

void Peer::OnCut(const Connection& connection) {
  Clock::time_point redial{};
  {
    MutexLock lock(mutex_);
    if (incoming_.get() == &connection) incoming_ = nullptr;
    Link& link = LinkOf(connection.lane());
    if (link.connection.get() != &connection) return;
    link.connection = nullptr;
    link.state = Link::State::kDown;
    link.was_cut = true;
    // The first cut is repaired at once; one that follows close on a repair is not.
    const auto now = Clock::now();
    if (now - connection.made_at() >= kGoodLife) link.quick_cuts = 0;
    redial = link.next_dial = now + Backoff(link.quick_cuts++);
  }
  owner_->TickAt(redial);
}

bool Peer::Wanted(const Link& link, Clock::time_point now) const {
  return !fenced_ && !address_.empty() && link.state == Link::State::kDown &&
         now >= link.next_dial &&
         (link.lost || (link.was_cut && waiting_.load(std::memory_order_relaxed) > 0));
}

bool Peer::Tick(Clock::time_point now) {
  MutexLock lock(mutex_);
  return Wanted(links_[0], now) || Wanted(links_[1], now);
}

void Peer::DialWanted() {
  MutexLock lock(mutex_);
  for (const Lane lane : kDialledLanes) {
    if (Wanted(LinkOf(lane), Clock::now())) Dial(lane);
  }
}

std::vector<std::shared_ptr<Connection>> Peer::Dialled() const {
  std::vector<std::shared_ptr<Connection>> connections;
  MutexLock lock(mutex_);
  for (const Link& link : links_) {
    if (link.connection != nullptr) connections.push_back(link.connection);
  }
  return connections;
}

void Peer::Dial(Lane lane) {
  Link& link = LinkOf(lane);
  link.state = Link::State::kDialling;
  const std::string address = address_;
  mutex_.Unlock();
  absl::StatusOr<std::shared_ptr<Connection>> dialled = owner_->Dial(meter_, address, lane);
  mutex_.Lock();
  if (fenced_ && dialled.ok()) {
    mutex_.Unlock();
    (*dialled)->Cut(absl::UnavailableError("the peer was removed"));
    (*dialled)->PassOn();
    mutex_.Lock();
    dialled = status_;
  }
  bool was_cut = false;
  if (dialled.ok()) {
    link.state = Link::State::kUp;
    link.connection = *dialled;
    link.failures = 0;
    was_cut = std::exchange(link.was_cut, false);
    link.lost = false;
    status_ = absl::OkStatus();
  } else {
    link.state = Link::State::kDown;
    ++link.failures;
    link.next_dial = Clock::now() + Backoff(link.failures);
    if (!fenced_) status_ = dialled.status();
  }
  changed_.SignalAll();
  const Clock::time_point next_dial = link.next_dial;
  mutex_.Unlock();
  if (dialled.ok()) {
    (*dialled)->PassOn();
    if ((*dialled)->closed()) OnCut(**dialled);  // before the link knew of it
    if (was_cut) owner_->OnReconnected(instance());
  } else {
    owner_->TickAt(next_dial);
  }
  mutex_.Lock();
}

}  // namespace abacus::runtime
