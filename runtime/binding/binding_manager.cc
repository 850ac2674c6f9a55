#include "runtime/binding/binding_manager.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/object/timed_branch.h"

namespace abacus::runtime {
namespace {

// How often the core looks at its own deadlines.
constexpr std::chrono::milliseconds kTick{10};

// A call whose thread began to wait this soon after sending it had nothing else to do. Sending a
// large request takes its time on a slow link, so this is generous.
constexpr uint64_t kWaitedAtOnceNs = 1'000'000;

// Set while a thread of a program waits for an answer: what it reads meanwhile it must not run.
thread_local bool waiting_for_answer = false;

// Makes every thread of this process see what this thread has stored, and this thread see what they
// have. Registered in Start().
void BarrierOnAllThreads() { syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

// Charges an object for its method alone. Decoding and encoding are the way's: they count for the
// network in what the caller takes from its wait, and go away where caller and callee meet.
class MethodAccounts final : public MethodScope {
 public:
  explicit MethodAccounts(ThreadContext& thread) : thread_(thread) {}

  // From the arrival, or from the wait for a turn, which was charged.
  void Begin() override { coding_ticks_ += thread_.clock.EndWait(monitor::WaitKind::kSpun); }
  void End() override {
    thread_.AccountHere();
    ended_ = true;
  }
  void Encoded() {
    if (ended_) coding_ticks_ += thread_.clock.EndWait(monitor::WaitKind::kSpun);
  }
  uint64_t coding_ticks() const { return coding_ticks_; }

 private:
  ThreadContext& thread_;
  uint64_t coding_ticks_ = 0;
  bool ended_ = false;
};

}  // namespace

// One call of a thread, from Start() to Finish().
class BindingManager::Call final : public OutgoingCall, public TimedCall {
 public:
  explicit Call(BindingManager* manager) : manager_(manager) { pending.host = this; }
  ~Call() override {
    if (!finished)
      manager_->WithCore([this](Core& core, Nanos, Actions&) { core.Abandon(pending); });
  }

  // A new thing to wait on. Under the core's lock, or before the core knows the call.
  void Arm() { waiter = std::make_shared<Waiter>(); }

  bool Answered() override {
    MutexLock lock(manager_->core_mutex_);
    return IsOver();
  }
  bool Wait(ThreadContext& thread) override {
    const bool accounting = manager_->accounting();
    if (accounting) thread.BeginWait();
    TurnTo();
    const bool was_waiting = std::exchange(waiting_for_answer, true);
    manager_->transport_->Wait(reader_of, *waiter);
    waiting_for_answer = was_waiting;
    bool over = false;
    {
      MutexLock lock(manager_->core_mutex_);
      over = IsOver();
      if (!over) {
        Arm();
        reader_of = pending.destination;
      }
    }
    if (accounting) waited_ticks += thread.EndWait();
    turned_ticks = monitor::ThreadClock::Ticks();
    return over;
  }
  // The thread begins to wait for it, or goes on.
  void TurnTo() { elsewhere_ticks += monitor::ThreadClock::Ticks() - turned_ticks; }
  void Interrupt() override {
    std::shared_ptr<Waiter> wait;
    {
      MutexLock lock(manager_->core_mutex_);
      wait = waiter;
    }
    // A wait that is over without an answer is begun again, here as in Finish().
    wait->Complete();
  }

  PendingCall pending;
  std::shared_ptr<Waiter> waiter;
  NodeInstance reader_of;  // whose answer the thread waits for; read under the core's lock
  uint64_t request_bytes = 0;
  uint64_t reply_bytes = 0;
  uint64_t begun_ticks = 0;  // when the caller turned from its own work to this call
  // When its thread turned to something else: first when the transport had taken it, as a sending
  // may block. And for how long it was elsewhere in all.
  uint64_t turned_ticks = 0, elsewhere_ticks = 0;
  // What the call took of its thread: waits, and work for it. It is part of the way, as the link is
  // measured, and not of what the caller computes: an object that comes to its data does not take
  // it along.
  uint64_t waited_ticks = 0;
  bool waited_at_once = false;
  bool finished = false;

 private:
  // Under the core's lock.
  bool IsOver() const {
    return pending.state == PendingCall::State::kAnswered ||
           pending.state == PendingCall::State::kRetry;
  }
  BindingManager* const manager_;
};

BindingManager::BindingManager(NodeInstance self, const BindingOptions& options,
                               const ObjectTypes& types, Transport* transport, SyncPoints* points)
    : self_(self),
      options_(options),
      types_(types),
      transport_(transport),
      points_(points),
      core_(self, options.core, this) {
  MutexLock lock(entries_mutex_);
  gone_slots_[kOutsideSlot] = {};
}

BindingManager::~BindingManager() {
  Stop();
  EndObjects();
  // Objects held references to others, whose entries had to outlive them.
  MutexLock lock(entries_mutex_);
  for (const auto& [rid, entry] : entries_) {
    delete entry->turn;
    delete entry;
  }
}

void BindingManager::Start() {
  syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
  {
    MutexLock lock(ticker_mutex_);
    ticking_ = true;
  }
  ticker_ = std::thread([this] { Tick(); });
}

void BindingManager::Stop() {
  if (stopped_.exchange(true)) return;
  {
    MutexLock lock(ticker_mutex_);
    ticking_ = false;
    ticker_changed_.SignalAll();
  }
  if (ticker_.joinable()) ticker_.join();
  WithCore([](Core& core, Nanos, Actions& out) {
    core.FailAll(MakeError(ErrorKind::kNodeUnreachable, "this node is being stopped"), out);
  });
  if (hook_ != nullptr) hook_->OnStop();
  pool_.Stop();
}

void BindingManager::Fence(const absl::Status& why, bool for_good) {
  WithCore([&](Core& core, Nanos, Actions& out) {
    if (fenced_for_good_) return;
    fence_ = why;
    fenced_for_good_ = for_good;
    fenced_.store(true, std::memory_order_relaxed);
    core.ForEachObject([this](const ObjectState& object) {
      const bool open = object.phase == ObjectPhase::kActive && !object.destroying;
      if (open) SetGate(object, Gate::kAbsent);
    });
    if (for_good) core.FailAll(why, out);
  });
}

void BindingManager::Unfence() {
  WithCore([&](Core& core, Nanos, Actions&) {
    if (fenced_for_good_) return;
    fenced_.store(false, std::memory_order_relaxed);
    core.ForEachObject([this](const ObjectState& object) {
      const auto* entry = static_cast<const Entry*>(object.host);
      const bool open = object.phase == ObjectPhase::kActive && !object.destroying &&
                        entry != nullptr && entry->info != nullptr;
      if (open) SetGate(object, Gate::kOpen);
    });
  });
}

void BindingManager::Tick() {
  ticker_mutex_.Lock();
  while (ticking_) {
    ticker_changed_.WaitUntil(ticker_mutex_, std::chrono::steady_clock::now() + kTick);
    if (!ticking_) break;
    ticker_mutex_.Unlock();
    Actions actions;
    Captured captured;
    {
      MutexLock lock(core_mutex_);
      const Nanos now = Now();
      core_.Tick(now, actions);
      if (hook_ != nullptr) hook_->Tick(now, actions);
      captured = Capture(actions);
    }
    // Deadlines of all others hang on this thread.
    Perform(actions, captured, /*inline_execution=*/false, /*may_block=*/false);
    ticker_mutex_.Lock();
  }
  ticker_mutex_.Unlock();
}

Nanos BindingManager::Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// -- what the core asks -------------------------------------------------------------------------

void BindingManager::SetGate(const ObjectState& object, Gate gate) {
  if (object.host == nullptr) return;
  auto* entry = static_cast<Entry*>(object.host);
  // Behind a fence the core goes on as ever, and nobody gets in: every call asks Start().
  if (gate == Gate::kOpen && fenced_.load(std::memory_order_relaxed)) gate = Gate::kAbsent;
  entry->gate.store(gate, std::memory_order_seq_cst);
}

bool BindingManager::LocalInside(absl::Span<ObjectState* const> objects, const ActivityId& root) {
  bool inside = false;
  threads().ForEach([&](const ThreadContext& thread) {
    if (inside || thread.PublishedRoot() != root) return;
    for (const ObjectState* object : objects) {
      inside = inside || thread.IsInside(static_cast<Entry*>(object->host));
    }
  });
  return inside;
}

bool BindingManager::NobodyInside(const std::vector<Entry*>& entries, bool first) {
  // After this every thread that published a frame before it saw the closed gate is seen here.
  if (first) BarrierOnAllThreads();
  bool inside = false;
  threads().ForEach([&](const ThreadContext& thread) {
    for (const Entry* entry : entries) inside = inside || thread.IsInside(entry);
  });
  return !inside;
}

// -- actions ------------------------------------------------------------------------------------

BindingManager::Captured BindingManager::Capture(const Actions& actions) {
  Captured captured;
  for (const PendingCall* call : actions.wakes) {
    captured.waiters.push_back(static_cast<Call*>(call->host)->waiter);
  }
  for (const PendingCall* pending : actions.rerouted) {
    // The thread may be reading the old host's connection: it is to listen to the new one.
    auto* call = static_cast<Call*>(pending->host);
    if (call->reader_of != pending->destination) captured.waiters.push_back(call->waiter);
  }
  for (const Actions::Destroy& destroy : actions.destroys) {
    auto* entry = static_cast<Entry*>(destroy.host);
    captured.departed.emplace_back(entry, std::exchange(entry->object, nullptr));
  }
  return captured;
}

void BindingManager::Perform(Actions& actions, const Captured& captured, bool inline_execution,
                             bool may_block) {
  for (const auto& waiter : captured.waiters) waiter->Complete();
  for (Actions::Send& send : actions.sends) {
    if (send.to == self_) {
      Dispatch(self_, std::move(send.frame), false, may_block);
    } else if (may_block) {
      SendOut(send);
    } else {
      auto shared = std::make_shared<Actions::Send>(std::move(send));
      pool_.Run([this, shared] { SendOut(*shared); });
    }
  }
  for (const Rid& rid : actions.check_idle) {
    pool_.Run([this, rid] { CheckIdle(rid, true); });
  }
  if (hook_ != nullptr) hook_->Perform(actions);
  for (const auto& [entry, object] : captured.departed) Delete(entry, object);
  // The one that runs here comes last: the others must not wait until it has returned.
  for (size_t i = 0; i < actions.executes.size(); ++i) {
    const bool last = i + 1 == actions.executes.size();
    Admit(std::make_shared<Actions::Execute>(std::move(actions.executes[i])),
          inline_execution && last);
  }
}

void BindingManager::SendOut(Actions::Send& send) {
  if (send.long_send != 0) {
    MutexLock lock(long_sends_mutex_);
    if (!long_sends_.insert(send.long_send).second) return;
  }
  transport_->Send(send.to, send.lane, std::move(send.frame));
  if (send.long_send != 0) {
    MutexLock lock(long_sends_mutex_);
    long_sends_.erase(send.long_send);
  }
}

void BindingManager::Dispatch(NodeInstance from, Frame frame, bool inline_execution,
                              bool may_block) {
  Actions actions;
  Captured captured;
  {
    MutexLock lock(core_mutex_);
    if (frame.type < static_cast<uint16_t>(MessageType::kFirstOfMigration)) {
      core_.OnFrame(from, std::move(frame), Now(), actions);
    } else if (hook_ != nullptr) {
      hook_->OnFrame(from, frame, Now(), actions);
    }
    captured = Capture(actions);
  }
  Perform(actions, captured, inline_execution, may_block);
}

void BindingManager::OnFrame(NodeInstance from, Frame frame) {
  // Lost, as far as the sender can tell: it will be sent again.
  if (fenced_.load(std::memory_order_relaxed)) return;
  Dispatch(from, std::move(frame), !waiting_for_answer);
}

void BindingManager::OnReconnected(NodeInstance peer) {
  WithCore([&](Core& core, Nanos now, Actions& out) { core.OnReconnected(peer, now, out); });
}

void BindingManager::OnPeerDead(NodeInstance peer) {
  WithCore([&](Core& core, Nanos now, Actions& out) {
    core.OnPeerDead(peer, now, out);
    if (hook_ != nullptr) hook_->OnPeerDead(peer, now, out);
  });
}

// An object that is to be destroyed goes when nobody is inside.
void BindingManager::CheckIdle(const Rid& rid, bool first) {
  Entry* entry = Intern(rid);
  const bool idle = NobodyInside({entry}, first);
  RefBase keep(entry);
  WithCore([&](Core& core, Nanos, Actions& out) { core.MaybeDestroy(rid, idle, out); });
}

// -- running the calls of other nodes -----------------------------------------------------------

// The limit counts activities at level 0: a nested call of one that was admitted always gets a
// thread, or two nodes that call each other could each fill up and wait for the other.
BindingManager::Admission BindingManager::TryAdmit(
    const std::shared_ptr<Actions::Execute>& execution) {
  if (execution->message.id.level > 0) return Admission::kRun;
  MutexLock lock(admission_mutex_);
  if (working_ < options_.workers_max) {
    ++working_;
    return Admission::kRun;
  }
  if (admission_queue_.size() >= options_.admission_queue_max) return Admission::kRefused;
  admission_queue_.push_back(execution);
  return Admission::kQueued;
}

void BindingManager::Admit(std::shared_ptr<Actions::Execute> execution, bool inline_execution) {
  switch (TryAdmit(execution)) {
    case Admission::kQueued:
      return;
    case Admission::kRefused:
      return Refuse(*execution);
    case Admission::kRun:
      if (!inline_execution) return pool_.Run([this, execution] { Execute(*execution); });
      transport_->HandOffReading();
      return Execute(*execution);
  }
}

void BindingManager::Refuse(const Actions::Execute& execution) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  ReplyMessage reply;
  reply.next_sequence = execution.message.id.sequence;
  reply.SetStatus(MakeError(
      ErrorKind::kBackPressure,
      absl::StrCat("node ", self_.ToString(), " runs ", options_.workers_max, " activities and ",
                   options_.admission_queue_max, " wait: slow down and try again")));
  WithCore([&](Core& core, Nanos, Actions& out) {
    core.FinishExecution(execution.from, execution.message, reply, Payload(), out);
  });
}

// An activity has left: the next one that waits takes its place, on a thread of its own, because
// this one's may be a transport's.
void BindingManager::ReleaseWorker() {
  std::shared_ptr<Actions::Execute> next;
  {
    MutexLock lock(admission_mutex_);
    if (admission_queue_.empty()) {
      --working_;
    } else {
      next = std::move(admission_queue_.front());
      admission_queue_.pop_front();
    }
  }
  if (next != nullptr) pool_.Run([this, next] { Execute(*next); });
}

void BindingManager::Execute(Actions::Execute& execution) {
  Reach(points_, "call:before");
  const CallMessage& message = execution.message;
  auto& entry = *static_cast<Entry*>(execution.host);
  ThreadContext& thread = ThreadContext::Of(*this);
  assert(thread.depth() == 0);
  // The pushed frame is what makes its calls one level deeper.
  thread.SetActivity(message.id.activity, message.root, message.id.level, message.id.sequence);
  thread.lineage = message.lineage;
  const uint64_t begin_ticks = monitor::ThreadClock::Ticks();
  const bool accounting = this->accounting();
  thread.Push(&entry);  // the core has admitted it, whatever the gate says
  if (accounting) thread.AccountArrival();
  const ThreadContext::Totals before = thread.totals;
  MethodAccounts method_accounts(thread);

  Writer result;
  absl::Status status;
  const uint64_t request_bytes = execution.frame.payload.bytes() - execution.tail;
  const MethodInfo* method =
      entry.info == nullptr ? nullptr : entry.info->FindMethod(message.method);
  if (method == nullptr) {
    status = MakeError(ErrorKind::kNoSuchMethod,
                       absl::StrCat("object ", message.rid.ToString(), " of class ",
                                    entry.info == nullptr ? "console" : entry.info->name,
                                    " has no method ", absl::Hex(message.method),
                                    ": caller and callee were built from different sources"));
  } else {
    Reader arguments(execution.frame.payload, this, execution.tail);
    if (entry.turn != nullptr) {
      entry.turn->Enter({thread.activity, thread.level()}, thread.lineage);
      if (accounting) thread.AccountHere();
    }
    status =
        method->invoke(*entry.object, arguments, result, accounting ? &method_accounts : nullptr);
    if (entry.turn != nullptr) entry.turn->Leave();
  }
  if (accounting) {
    method_accounts.Encoded();
    thread.AccountLeave(request_bytes, result.bytes());
  }
  thread.Pop(&entry);

  ReplyMessage reply;
  reply.next_sequence = thread.sequence;
  reply.SetStatus(status);
  const double ns_per_tick = thread.ns_per_tick;
  const auto ns = [ns_per_tick](uint64_t ticks) {
    return static_cast<uint64_t>(static_cast<double>(ticks) * ns_per_tick);
  };
  const uint64_t coding_ticks = method_accounts.coding_ticks();
  const uint64_t here_ticks = monitor::ThreadClock::Ticks() - begin_ticks;
  reply.residence = {.total_ns = ns(here_ticks - std::min(coding_ticks, here_ticks)),
                     .busy_ns = ns(thread.totals.busy_ticks - before.busy_ticks),
                     .ready_ns = ns(thread.totals.ready_ticks - before.ready_ticks),
                     .below_ns = ns(thread.totals.waited_ticks - before.waited_ticks)};
  Reach(points_, "call:executed");
  Payload payload = status.ok() ? std::move(result).Finish() : Payload();
  if (absl::Status fits = CheckFits(payload.bytes(), payload.blocks.size(), "a result");
      !fits.ok()) {
    reply.SetStatus(fits);
    payload = Payload();
  }
  WithCore([&](Core& core, Nanos, Actions& out) {
    core.FinishExecution(execution.from, message, reply, payload, out);
  });
  if (message.id.level == 0) ReleaseWorker();
}

// -- Invoker ------------------------------------------------------------------------------------

absl::Status BindingManager::CheckFits(uint64_t bytes, size_t blocks, std::string_view what) const {
  // Beside the payload a message has its names and acknowledgements.
  constexpr uint64_t kMessageBytes = 16 * 1024;
  const FrameLimits limits = transport_->limits();
  const uint64_t bytes_max =
      limits.frame_bytes_max - std::min(limits.frame_bytes_max, kMessageBytes);
  if (bytes <= bytes_max && blocks <= limits.block_count_max) return absl::OkStatus();
  return MakeError(
      ErrorKind::kTooLarge,
      absl::StrCat(ToAbsl(what), " of ", bytes, " bytes in ", blocks, " blocks: a message takes ",
                   bytes_max, " bytes and ", limits.block_count_max,
                   " blocks; send less at a time, or raise transport.frame_bytes_max"));
}

ActivityId BindingManager::NewActivity() {
  return {self_, last_activity_.fetch_add(1, std::memory_order_relaxed) + 1};
}

Invoker::Route BindingManager::Start(ThreadContext& thread, Entry& entry, MethodId method,
                                     absl::FunctionRef<Payload()> encode,
                                     std::unique_ptr<OutgoingCall>* call, absl::Status* status) {
  assert(HeldLocks() == 0 && "a lock is held across a call to another object");
  // Whatever is done here for the call, encoding too, is part of the way and not the caller's work.
  const bool accounting = this->accounting();
  if (accounting) thread.BeginWait();
  auto started = std::make_unique<Call>(this);
  started->begun_ticks = monitor::ThreadClock::Ticks();
  const auto end_wait = [&thread, &started, accounting](monitor::WaitKind kind) {
    if (accounting) started->waited_ticks += thread.EndWait(kind);
  };
  PendingCall& pending = started->pending;
  pending.rid = entry.rid;
  pending.root = thread.root;
  pending.lineage = thread.lineage;
  pending.method = method;
  pending.id = {thread.activity, thread.level(), thread.sequence + 1};
  bool has_arguments = false;
  for (;;) {
    started->Arm();
    bool parked = false;
    end_wait(monitor::WaitKind::kSpun);
    const Core::Started outcome = WithCore([&](Core& core, Nanos now, Actions& out) {
      if (stopped_.load(std::memory_order_relaxed)) {
        pending.reply.SetStatus(MakeError(ErrorKind::kNodeUnreachable, "this node is stopped"));
        return Core::Started::kFailed;
      }
      if (fenced_.load(std::memory_order_relaxed)) {
        pending.reply.SetStatus(fence_);
        return Core::Started::kFailed;
      }
      const Core::Started begun = core.Start(pending, has_arguments, now, out);
      parked = pending.state == PendingCall::State::kParkedHere;
      started->reader_of = pending.destination;
      return begun;
    });
    // A sending may block: as long as the link takes, of which it tells as a reply does.
    started->turned_ticks = monitor::ThreadClock::Ticks();
    end_wait(has_arguments ? monitor::WaitKind::kParked : monitor::WaitKind::kSpun);
    switch (outcome) {
      case Core::Started::kRunLocal:
        started->finished = true;
        if (entry.info == nullptr) {  // no gate of a console ever opens
          *status = MakeError(
              ErrorKind::kNoSuchMethod,
              absl::StrCat("object ", entry.rid.ToString(), " is a console: it has no methods"));
          return Route::kFailed;
        }
        return Route::kRunLocal;
      case Core::Started::kRunInside:
        started->finished = true;
        thread.Push(&entry);
        return Route::kRunInside;
      case Core::Started::kFailed:
        started->finished = true;
        *status = pending.reply.status();
        return Route::kFailed;
      case Core::Started::kNeedArguments:
        pending.arguments = encode();
        end_wait(monitor::WaitKind::kSpun);
        if (absl::Status fits =
                CheckFits(pending.arguments.bytes(), pending.arguments.blocks.size(), "arguments");
            !fits.ok()) {
          started->finished = true;
          *status = std::move(fits);
          return Route::kFailed;
        }
        started->request_bytes = pending.arguments.bytes();
        has_arguments = true;
        continue;
      case Core::Started::kWaiting:
        break;
    }
    if (!parked) {
      thread.sequence = pending.id.sequence;
      *call = std::move(started);
      return Route::kRemote;
    }
    while (!started->waiter->done()) started->waiter->Sleep(absl::InfiniteDuration());
    if (accounting) thread.EndWait();
    started->begun_ticks = monitor::ThreadClock::Ticks();
    started->waited_ticks = 0;
    if (pending.state == PendingCall::State::kAnswered) {
      started->finished = true;
      *status = pending.reply.status();
      return Route::kFailed;
    }
  }
}

Invoker::Route BindingManager::Finish(ThreadContext& thread, OutgoingCall& outgoing,
                                      Payload* result, absl::Status* status) {
  auto& call = static_cast<Call&>(outgoing);
  PendingCall& pending = call.pending;
  const bool accounting = this->accounting();
  if (accounting) thread.BeginWait();
  call.TurnTo();
  const bool was_waiting = std::exchange(waiting_for_answer, true);
  for (bool over = false; !over;) {
    transport_->Wait(call.reader_of, *call.waiter);
    MutexLock lock(core_mutex_);
    over = pending.state == PendingCall::State::kAnswered ||
           pending.state == PendingCall::State::kRetry;
    if (!over) {
      call.Arm();
      call.reader_of = pending.destination;
    }
  }
  waiting_for_answer = was_waiting;
  if (accounting) call.waited_ticks += thread.EndWait();
  call.finished = true;
  if (pending.state == PendingCall::State::kRetry) return Route::kRunLocal;

  *status = Answer(thread, call, result);
  call.reply_bytes = result->bytes();
  // Only a thread that did nothing else in between says something of the link. Where the wait began
  // before the join, and was ended by its answer or by somebody else, it counts as well
  // (TimedCall). Of a fork that is the branch which is waited for first, whose time has its
  // siblings' bytes in it: a link that only forks cross looks slower than it is.
  call.waited_at_once =
      static_cast<double>(call.elsewhere_ticks) * thread.ns_per_tick <= kWaitedAtOnceNs;
  // The object has forgotten this activity, and this call was sent once: it has not run. Under
  // another name it can.
  if (KindOf(*status) == ErrorKind::kDuplicateEvicted && pending.transmissions == 1) {
    ActivityId fresh = NewActivity();
    fresh.local |= thread.activity.local & ActivityId::kBackgroundMark;
    const bool is_root = thread.level() == 0;
    // What it leads to is still led to by the calls that this thread is inside of.
    if (is_root) {
      thread.lineage.clear();
    } else {
      thread.lineage.push_back({thread.activity, thread.level()});
    }
    thread.SetActivity(fresh, is_root ? fresh : thread.root, thread.base_level, thread.sequence);
    AccountRemote(thread, call);
    return Route::kRunLocal;
  }
  return Route::kRemote;
}

void BindingManager::Decoded(ThreadContext& thread, std::unique_ptr<OutgoingCall> outgoing) {
  AccountRemote(thread, static_cast<Call&>(*outgoing));
}

void BindingManager::AccountRemote(ThreadContext& thread, Call& call) {
  if (!accounting()) return;
  const PendingCall& pending = call.pending;
  const auto ns = [&thread](uint64_t ticks) {
    return static_cast<uint64_t>(static_cast<double>(ticks) * thread.ns_per_tick);
  };
  Entry* entry = Intern(pending.rid);
  call.waited_ticks += thread.EndWait(monitor::WaitKind::kSpun);
  // The answer may have come before the wait began: the network's share counts from the sending.
  const uint64_t now_ticks = monitor::ThreadClock::Ticks();
  const uint64_t pause_ns =
      ns(call.begun_ticks - std::min(thread.answered_ticks, call.begun_ticks));
  thread.answered_ticks = now_ticks;
  const uint64_t away_ns = ns(now_ticks - call.begun_ticks);
  const uint64_t residence_ns = std::min(pending.reply.residence.total_ns, away_ns);
  const uint64_t network_ns = away_ns - residence_ns;
  thread.AccountRemote(entry->slot, call.request_bytes, call.reply_bytes, ns(call.waited_ticks),
                       network_ns);
  RefBase(entry).Reset();
  if (observer_ != nullptr && pending.transmissions == 1 && pending.reply.epoch != 0 &&
      call.waited_at_once) {
    observer_->OnRemoteCall(pending.destination, call.request_bytes, call.reply_bytes, network_ns,
                            std::max(pause_ns, residence_ns));
  }
}

absl::Status BindingManager::Answer(ThreadContext& thread, Call& call, Payload* result) {
  PendingCall& pending = call.pending;
  thread.sequence = std::max(thread.sequence, pending.reply.next_sequence);
  *result = std::move(pending.result);
  return pending.reply.status();
}

void BindingManager::LeftInside(ThreadContext& thread, Entry& entry) {
  thread.Pop(&entry);
  WithCore([&](Core& core, Nanos, Actions& out) { core.LeaveInside(entry.rid, thread.root, out); });
}

void BindingManager::Left(Entry& entry) {
  WithCore([&](Core& core, Nanos, Actions& out) {
    const ObjectState* object = core.Find(entry.rid);
    if (object == nullptr) return;
    if (object->moving != nullptr) out.check_drained.push_back(object->moving->id);
    if (object->destroying) out.check_idle.push_back(entry.rid);
  });
}

}  // namespace abacus::runtime
