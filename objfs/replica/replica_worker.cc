// ReplicatedStore: finding the copy, and what becomes of it.

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/replica/replicated_store.h"
#include "objfs/replica/resync.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using Clock = std::chrono::steady_clock;

namespace {

// A resync that fails is tried again after a growing time: it may have read all of the volume.
constexpr int kRetriesFactorMax = 32;

}  // namespace

void ReplicatedStore::Work() {
  for (int factor = 1;;) {
    TryDrop();
    absl::StatusOr<std::shared_ptr<ReplicaLink>> link = absl::UnavailableError("there is no copy");
    bool is_fenced;
    {
      MutexLock lock(mutex_);
      is_fenced = !fenced_.ok();
    }
    if (host_.find_copy && !is_fenced) link = host_.find_copy();
    if (link.ok() && *link != nullptr) {
      uint64_t before, after;
      {
        MutexLock lock(mutex_);
        before = report_.resyncs;
      }
      Note(Serve(*link));
      {
        MutexLock lock(mutex_);
        after = report_.resyncs;
      }
      factor = after > before ? 1 : std::min(2 * factor, kRetriesFactorMax);
      TryDrop();  // flushes wait for it
    } else {
      Note(link.status());
      factor = 1;
    }
    if (Sleep(factor * options_.retry)) return;
  }
}

absl::Status ReplicatedStore::Serve(const std::shared_ptr<ReplicaLink>& link) {
  ABACUS_RETURN_IF_ERROR(BeginSession(*link));
  BeginStream(link);
  std::thread sender([this, &link] { Send(*link); });
  absl::Status status = Resync(*this, *link).Run();
  if (status.ok()) status = BecomeCurrent();
  if (status.ok()) status = StayCurrent();
  EndStream(status);
  sender.join();
  return status;
}

absl::Status ReplicatedStore::BeginSession(ReplicaLink& link) {
  const absl::StatusOr<ReplicaState> state = link.State();
  ABACUS_RETURN_IF_ERROR(Heard(state.status()));
  if (state->epoch == options_.epoch) session_ = std::max(session_, state->session);
  return Heard(link.Begin(options_.epoch, ++session_).status());
}

void ReplicatedStore::BeginStream(const std::shared_ptr<ReplicaLink>& link) {
  MutexLock lock(mutex_);
  if (is_ending_) return;  // it stays closed
  stream_.Open();
  streams_ = true;
  cursor_ = 0;
  born_.clear();
  link_ = link;
  report_.link = ReplicationReport::Link::kResyncing;
  report_.objects_done = report_.objects_all = report_.objects_sent = 0;
}

void ReplicatedStore::EndStream(const absl::Status& why) {
  stream_.Close(why.ok() ? absl::CancelledError("the store is closed") : why);
  MutexLock lock(mutex_);
  streams_ = flushes_go_ = false;
  born_.clear();
  link_.reset();
  report_.link = ReplicationReport::Link::kAbsent;
  changed_.SignalAll();
}

void ReplicatedStore::Send(ReplicaLink& link) {
  while (const std::optional<ReplicaStream::Taken> taken = stream_.Take()) {
    const absl::Status applied = Heard(link.Apply(options_.epoch, session_, taken->batch));
    stream_.Answered(*taken, applied);
    if (applied.ok()) continue;
    Note(applied);
    stream_.Close(applied);
    MutexLock lock(mutex_);
    changed_.SignalAll();
    return;
  }
}

absl::Status ReplicatedStore::BecomeCurrent() {
  ReplicaStream::FlushPtr flush;
  uint64_t finish;
  bool counted;
  {
    // Flushes that begin from here on wait for the copy, and it is asked behind all that earlier
    // ones covered: when the map may name it, it has all that was ever acknowledged. It counts from
    // here on, and not from its answer on: a flush that it loses between the two needs a relief.
    MutexLock lock(mutex_);
    cursor_ = UINT64_MAX;
    flushes_go_ = true;
    counted = std::exchange(counts_, true);
    finish = ++finishes_;
    flush = stream_.Ask(ReplicaFlush::kFinish, {});
  }
  const absl::Status asked = stream_.Await(flush);
  Reach(options_.points, "replica:finished");
  MutexLock lock(mutex_);
  if (!asked.ok()) {
    // The map was not told of it, and need not be asked to let it go.
    flushes_go_ = false;
    counts_ = counted;
    changed_.SignalAll();
    return asked;
  }
  finished_ = finish;
  born_.clear();
  ++report_.resyncs;
  report_.link = ReplicationReport::Link::kCurrent;
  report_.why.clear();
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status ReplicatedStore::StayCurrent() {
  for (bool is_told = false;;) {
    // Lost since its last answer: flushes wait for its drop, and the map need not hear of it.
    if (!is_told && stream_.IsOpen()) {
      const absl::Status told = host_.copy_is_current ? host_.copy_is_current() : absl::OkStatus();
      if (absl::IsAborted(told)) return told;
      is_told = told.ok();
      if (!is_told) Note(told);
    }
    MutexLock lock(mutex_);
    const auto until = Clock::now() + absl::ToChronoNanoseconds(options_.retry);
    while (!is_ending_ && stream_.IsOpen()) {
      if (is_told) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, until)) {
        break;
      }
    }
    if (is_ending_) return absl::OkStatus();
    if (!stream_.IsOpen()) return absl::UnavailableError(report_.why);
  }
}

void ReplicatedStore::TryDrop() {
  {
    MutexLock lock(mutex_);
    if (!counts_ || !fenced_.ok() || is_ending_) return;
  }
  const absl::Status dropped =
      host_.drop_copy ? host_.drop_copy() : absl::UnimplementedError("nobody can drop it");
  MutexLock lock(mutex_);
  if (dropped.ok()) {
    counts_ = false;
    changed_.SignalAll();
  } else {
    report_.why = std::string(dropped.message());
  }
}

bool ReplicatedStore::Sleep(absl::Duration limit) {
  const auto until = Clock::now() + absl::ToChronoNanoseconds(limit);
  MutexLock lock(mutex_);
  while (!is_ending_ && !is_poked_) {
    if (!changed_.WaitUntil(mutex_, until)) break;
  }
  is_poked_ = false;
  return is_ending_;
}

bool ReplicatedStore::Pause(absl::Duration limit) {
  const auto until = Clock::now() + absl::ToChronoNanoseconds(limit);
  MutexLock lock(mutex_);
  while (!is_ending_ && stream_.IsOpen()) {
    if (!changed_.WaitUntil(mutex_, until)) return false;
  }
  return true;
}

void ReplicatedStore::Note(const absl::Status& why) {
  if (why.ok()) return;
  MutexLock lock(mutex_);
  report_.why = std::string(why.message());
}

absl::Status ReplicatedStore::Heard(absl::Status status) {
  if (!absl::IsPermissionDenied(status)) return status;
  MutexLock lock(mutex_);
  fenced_ = absl::UnavailableError(absl::StrCat(
      "this server is the volume's primary no more, and acknowledges nothing: ", status.message()));
  changed_.SignalAll();
  return status;
}

}  // namespace abacus::objfs
