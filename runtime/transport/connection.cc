#include "runtime/transport/connection.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Takes the small frames of many callers in one read; of a large frame, only this much is copied on
// its way to its block.
constexpr size_t kStageBytes = 8 * 1024;
// Blocks that one read fills.
constexpr size_t kTargetsMax = 16;
static_assert(kTargetsMax < Socket::kPartsMax && kHelloBytesMax < kStageBytes);

constexpr absl::Duration kWelcomeTimeout = absl::Seconds(1);
constexpr absl::Duration kBlindPoll = absl::Milliseconds(10);
// Reading may rest that long without being handed off.
constexpr absl::Duration kShortBlock = absl::Milliseconds(2);
constexpr std::chrono::milliseconds kRateSlice{20};
// Who waits less than this goes on reading itself after: a hand-off takes as long.
constexpr std::chrono::microseconds kHandOffAfter{200};
constexpr std::chrono::microseconds kQuietCheck{100};
// A look at an empty socket takes well under 1 us.
constexpr std::chrono::microseconds kPreempted{4};

FrameDecoder::BlockSource SourceFor(const Lane& lane, const FrameDecoder::BlockSource& bulk) {
  if (!bulk) return {};
  return [&lane, bulk](size_t bytes, uint64_t frame_block_bytes) {
    return lane == Lane::kBulk ? bulk(bytes, frame_block_bytes) : Block::Allocate(bytes);
  };
}

}  // namespace

// A thread's stay in the handlers of one connection. They nest where a handler waits.
struct Connection::Scope {
  explicit Scope(Connection* reading) : connection(reading), outer(innermost) { innermost = this; }
  ~Scope() { innermost = outer; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  Connection* const connection;
  Scope* const outer;
  bool handed_off = false;
  // At the hand-off, spinning for the next frame seemed to pay.
  bool spinning_pays = false;

  static thread_local Scope* innermost;
};
thread_local Connection::Scope* Connection::Scope::innermost = nullptr;

Connection::Connection(Side side, std::unique_ptr<Socket> socket, ReaderPool* pool,
                       ConnectionOwner* owner, const ConnectionOptions& options)
    : side_(side),
      socket_(std::move(socket)),
      pool_(pool),
      owner_(owner),
      wake_fd_(side == Side::kDialled ? eventfd(0, EFD_CLOEXEC) : -1),
      decoder_(options.limits, SourceFor(lane_, options.bulk_source)),
      spin_(options.spin_ns_max),
      stage_(new char[kStageBytes]) {}

Connection::~Connection() {
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::Status Connection::Register() {
  return pool_->Add(socket_->fd(), shared_from_this(), &watch_id_);
}

void Connection::Bind(std::shared_ptr<PeerMeter> meter, Lane lane) {
  meter_ = std::move(meter);
  lane_ = lane;
  greeted_.store(true, std::memory_order_release);
}

// ---- Hello ----

bool Connection::WriteAll(std::string_view bytes, absl::Duration timeout) {
  while (!bytes.empty()) {
    const IoResult io = socket_->Write({&bytes, 1});
    if (io.kind == IoResult::Kind::kEnd) return false;
    if (io.kind == IoResult::Kind::kDone) {
      bytes.remove_prefix(io.bytes);
    } else if (!PollFor(socket_->fd(), POLLOUT, pool_->stop_fd(), timeout)) {
      return false;
    }
  }
  return true;
}

absl::Status Connection::Greet(const Hello& hello, absl::Duration timeout, Hello* answer) {
  if (!WriteAll(EncodeHello(hello), timeout)) {
    return absl::UnavailableError("the peer hung up before it was greeted");
  }
  while (true) {
    ABACUS_ASSIGN_OR_RETURN(const size_t taken, ParseHello(staged(), answer));
    stage_begin_ += taken;
    if (taken > 0) return absl::OkStatus();
    if (!PollFor(socket_->fd(), POLLIN, pool_->stop_fd(), timeout)) {
      return absl::UnavailableError("the peer did not answer the hello in time");
    }
    const IoResult io = ReadSome();
    if (io.kind == IoResult::Kind::kEnd) {
      return absl::UnavailableError(absl::StrCat("the peer did not answer the hello: ", io.why));
    }
  }
}

// False where the greeting is not all there yet, or the connection has been refused and cut.
bool Connection::TakeGreeting() {
  Hello hello;
  const absl::StatusOr<size_t> taken = ParseHello(staged(), &hello);
  if (taken.ok() && *taken == 0) return false;
  absl::StatusOr<Hello> greeting = std::move(hello);
  if (taken.ok()) {
    stage_begin_ += *taken;
  } else {
    greeting = taken.status();
  }
  const Hello answer = owner_->OnGreeting(*this, greeting);
  const bool said =
      answer.verdict == HelloVerdict::kGreeting || WriteAll(EncodeHello(answer), kWelcomeTimeout);
  if (answer.verdict == HelloVerdict::kWelcome && said) {
    owner_->OnWelcomed(*this);
    return true;
  }
  Cut(taken.ok() ? absl::UnavailableError("the greeting was refused") : taken.status());
  return false;
}

// ---- The token ----

Connection::Token Connection::TakeToken() {
  uint8_t now = token_.load(std::memory_order_relaxed);
  while (now == kFree || now == kArmed) {
    if (token_.compare_exchange_weak(now, kHeld, std::memory_order_acq_rel)) break;
  }
  return static_cast<Token>(now);
}

bool Connection::NudgeOne() {
  for (size_t i = parked_.size(); i-- > 0;) {
    if (parked_[i]->done()) continue;  // is on its way out, and nudges another then
    parked_[i]->Nudge();
    return true;
  }
  return false;
}

void Connection::LeaveToken() {
  token_.store(kFree, std::memory_order_release);
  // A thread that parks now looks at the token once more after it is in the list.
  MutexLock lock(park_mutex_);
  NudgeOne();
}

void Connection::PassOn() {
  const bool frames_staged = !staged().empty();
  {
    MutexLock lock(park_mutex_);
    // A nudged thread tries for the token after it has had this lock.
    if (closed() || NudgeOne()) {
      token_.store(kFree, std::memory_order_release);
      return;
    }
  }
  // Before it is armed: the event may come at once.
  token_.store(kArmed, std::memory_order_release);
  if (frames_staged) {
    pool_->Submit([self = shared_from_this()] { self->OnReadable(); });
  } else {
    pool_->Arm(socket_->fd(), watch_id_);
  }
}

void Connection::ReadIfLeftAlone() {
  if (closed() || active_.exchange(false, std::memory_order_relaxed)) return;
  uint8_t free = kFree;
  if (token_.compare_exchange_strong(free, kHeld, std::memory_order_acq_rel)) PassOn();
}

void Connection::HandOff(ReaderPool* pool) {
  bool any = false;
  for (Scope* scope = Scope::innermost; scope != nullptr; scope = scope->outer) {
    if (scope->handed_off || scope->connection->pool_ != pool) continue;
    scope->handed_off = true;
    scope->spinning_pays = scope->connection->spin_.BudgetNs() > 0;
    scope->connection->PassOn();
    any = true;
  }
  if (any) pool->EnsureReader();
}

void Connection::Cut(const absl::Status& reason) {
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  socket_->Shutdown();
  pool_->Remove(socket_->fd(), watch_id_);
  {
    MutexLock lock(park_mutex_);
    for (Waiter* waiter : parked_) waiter->Nudge();
  }
  owner_->OnCut(*this, reason);
}

void Connection::AwaitQuiet() {
  while (true) {
    uint8_t now = token_.load(std::memory_order_acquire);
    if (now == kGone) return;
    if (now == kHeld) {
      std::this_thread::sleep_for(kQuietCheck);
    } else if (token_.compare_exchange_weak(now, kGone, std::memory_order_acq_rel)) {
      return;
    }
  }
}

// ---- Reading ----

void Connection::OnReadable() {
  const Token token = TakeToken();
  if (token != kFree && token != kArmed) return;
  maybe_more_ = true;
  switch (ReadUntil(nullptr)) {
    case Reading::kStarved:
      PassOn();
      break;
    case Reading::kHandedOff:
      break;
    case Reading::kCut:
      LeaveToken();
      break;
  }
}

// Takes the token back after a handler that handed it off, if nobody has taken it meanwhile: the
// peer often has the next frame on its way, and a thread that spins has it without a wake-up.
bool Connection::Reclaim() {
  uint8_t armed = kArmed;
  if (closed() || !token_.compare_exchange_strong(armed, kHeld, std::memory_order_acq_rel)) {
    return false;
  }
  pool_->Disarm(socket_->fd(), watch_id_);
  maybe_more_ = false;
  return true;
}

void Connection::WaitFor(Waiter& waiter) {
  while (!waiter.done() && !closed()) {
    const Token token = TakeToken();
    if (token != kFree && token != kArmed) {
      Park(waiter);
      continue;
    }
    // Else the answer would wake a pool thread as well.
    if (token == kArmed) pool_->Disarm(socket_->fd(), watch_id_);
    if (ReadUntil(&waiter) != Reading::kHandedOff) LeaveToken();
  }
}

void Connection::Park(Waiter& waiter) {
  {
    MutexLock lock(park_mutex_);
    if (closed()) return;
    parked_.push_back(&waiter);
  }
  // The reader may have left before this thread was in the list.
  if (token_.load(std::memory_order_acquire) == kHeld) waiter.Sleep(absl::InfiniteDuration());
  MutexLock lock(park_mutex_);
  std::erase(parked_, &waiter);
  // A nudge to this thread, that leaves, is one to the next.
  if (waiter.done() && token_.load(std::memory_order_acquire) == kFree) NudgeOne();
}

// Reads and delivers frames until `waiter` is done; without one, as long as there are any.
Connection::Reading Connection::ReadUntil(Waiter* waiter) {
  Scope scope(this);
  active_.store(true, std::memory_order_relaxed);
  while (true) {
    const Reading reading = Dispatch(scope);
    if (reading == Reading::kHandedOff && waiter == nullptr && scope.spinning_pays && Reclaim()) {
      scope.handed_off = false;
      continue;
    }
    if (reading != Reading::kStarved) return reading;
    if (waiter != nullptr && waiter->done()) return Reading::kStarved;
    const bool look = maybe_more_;
    const IoResult io = look ? ReadSome() : SpinRead(waiter);
    if (io.kind == IoResult::Kind::kEnd) {
      Cut(EndReason(io));
      return Reading::kCut;
    }
    if (io.kind == IoResult::Kind::kDone || look) continue;
    if (waiter == nullptr) return Reading::kStarved;
    PollForData(*waiter);
    maybe_more_ = true;
  }
}

// Delivers the complete frames among what has been read.
Connection::Reading Connection::Dispatch(Scope& scope) {
  while (!staged().empty() || decoder_.complete()) {
    if (closed()) return Reading::kCut;
    if (!greeted()) {
      if (TakeGreeting()) continue;
      return closed() ? Reading::kCut : Reading::kStarved;
    }
    if (!decoder_.complete()) {
      const absl::StatusOr<size_t> taken = decoder_.Feed(staged());
      if (!taken.ok()) {
        Cut(taken.status());
        return Reading::kCut;
      }
      stage_begin_ += *taken;
      meter_->received_bytes.fetch_add(*taken, std::memory_order_relaxed);
      if (!decoder_.complete()) break;
    }
    meter_->received_frames.fetch_add(1, std::memory_order_relaxed);
    owner_->OnFrame(*this, decoder_.Take());
    // Another thread reads by now: nothing of this connection may be touched.
    if (scope.handed_off) return Reading::kHandedOff;
  }
  return Reading::kStarved;
}

IoResult Connection::ReadSome() {
  std::array<std::span<char>, kTargetsMax + 1> parts;
  size_t count = decoder_.Targets(std::span(parts).first(kTargetsMax));
  size_t direct = 0;
  for (size_t i = 0; i < count; ++i) direct += parts[i].size();
  if (staged().empty()) stage_begin_ = stage_end_ = 0;
  parts[count++] = {stage_.get() + stage_end_, kStageBytes - stage_end_};
  const size_t room = direct + kStageBytes - stage_end_;

  const IoResult io = socket_->Read(std::span(parts).first(count));
  // A short read has emptied the socket: looking again would cost a system call for nothing.
  maybe_more_ = io.kind == IoResult::Kind::kDone && io.bytes == room;
  if (io.kind != IoResult::Kind::kDone) return io;
  direct = std::min(direct, io.bytes);
  if (direct > 0) {
    decoder_.Advance(direct);
    meter_->received_bytes.fetch_add(direct, std::memory_order_relaxed);
  }
  stage_end_ += io.bytes - direct;
  return io;
}

IoResult Connection::SpinRead(Waiter* waiter) {
  const int64_t budget_ns = spin_.BudgetNs();
  if (budget_ns == 0) return {.kind = IoResult::Kind::kWouldBlock};
  auto now = Clock::now();
  const auto deadline = now + std::chrono::nanoseconds(budget_ns);
  // Bytes that are there at the first look say nothing. Where a later look at an empty socket takes
  // long, the thread was off its core meanwhile: most likely because the peer runs on the same one,
  // and then spinning only keeps it from its work.
  bool first = true;
  bool shared_core = false;
  do {
    const IoResult io = ReadSome();
    if (io.kind != IoResult::Kind::kWouldBlock) {
      if (!first) shared_core ? spin_.Lost() : spin_.Won();
      return io;
    }
    const auto before = std::exchange(now, Clock::now());
    shared_core |= now - before > kPreempted;
    first = false;
    if (waiter != nullptr && waiter->done()) break;
  } while (now < deadline);
  spin_.Lost();
  return {.kind = IoResult::Kind::kWouldBlock};
}

void Connection::PollForData(Waiter& waiter) {
  if (wake_fd_ < 0) {  // none was left when the connection was made
    PollFor(socket_->fd(), POLLIN, -1, kBlindPoll);
    return;
  }
  if (!waiter.BeginPoll(wake_fd_)) return;
  PollFor(socket_->fd(), POLLIN, wake_fd_, absl::InfiniteDuration());
  waiter.EndPoll(wake_fd_);
}

absl::Status Connection::EndReason(const IoResult& io) const {
  if (!decoder_.between_frames()) {
    return MakeError(ErrorKind::kBadFrame,
                     absl::StrCat("the connection ended in the middle of a frame: ", io.why));
  }
  return absl::UnavailableError(io.why);
}

// ---- Sending ----

bool Connection::Send(const Frame& frame) {
  if (!send_mutex_.TryLock()) {
    HandOff(pool_);  // whoever has it may be blocked
    send_mutex_.Lock();
  }
  const bool sent = SendParts(frame);
  send_mutex_.Unlock();
  if (!sent) Cut(absl::UnavailableError("a frame could not be written"));
  return sent;
}

bool Connection::SendParts(const Frame& frame) {
  FrameGather gather(frame);
  RateLimiter* const limiter = meter_->limiter.get();
  uint64_t allowed = limiter == nullptr ? UINT64_MAX : 0;
  while (gather.left_bytes() > 0) {
    if (closed()) return false;
    if (allowed == 0) {
      Clock::time_point when;
      allowed = limiter->Reserve(gather.left_bytes(), Clock::now(), &when);
      if (!AwaitRate(*limiter, when)) return false;
    }
    const size_t count = gather.Next(send_parts_, allowed);
    const IoResult io = socket_->Write(std::span(send_parts_).first(count));
    if (io.kind == IoResult::Kind::kEnd) return false;
    if (io.kind == IoResult::Kind::kWouldBlock) {
      AwaitRoom();
      continue;
    }
    gather.Advance(io.bytes);
    if (limiter != nullptr) allowed -= io.bytes;
    meter_->sent_bytes.fetch_add(io.bytes, std::memory_order_relaxed);
  }
  meter_->sent_frames.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Connection::AwaitRoom() {
  // A hand-off costs more than the time in which a peer that is awake makes room.
  if (PollFor(socket_->fd(), POLLOUT, -1, kShortBlock)) return;
  HandOff(pool_);
  PollFor(socket_->fd(), POLLOUT, -1, absl::InfiniteDuration());  // ended by Cut()
}

bool Connection::AwaitRate(RateLimiter& limiter, Clock::time_point when) {
  auto now = Clock::now();
  if (now >= when) return true;
  while (now < when) {
    if (closed()) return false;
    if (when - now > kHandOffAfter) HandOff(pool_);
    std::this_thread::sleep_until(std::min(when, now + kRateSlice));
    now = Clock::now();
  }
  limiter.SentLate(now - when);
  return true;
}

}  // namespace abacus::runtime
