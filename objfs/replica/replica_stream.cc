#include "objfs/replica/replica_stream.h"

#include <algorithm>
#include <utility>

namespace abacus::objfs {

using runtime::MutexLock;
using Clock = std::chrono::steady_clock;

void ReplicaStream::Open() {
  MutexLock lock(mutex_);
  closed_ = absl::OkStatus();
  put_ = taken_ = answered_ = bytes_ = 0;
  oldest_.reset();
}

void ReplicaStream::Close(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (!closed_.ok()) return;
  closed_ = why;
  operations_.clear();
  for (const FlushPtr& flush : flushes_) Fail(flush);
  flushes_.clear();
  due_.SignalAll();
  done_.SignalAll();
}

void ReplicaStream::Fail(const FlushPtr& flush) {
  flush->status = closed_;
  flush->is_done = true;
}

bool ReplicaStream::IsOpen() {
  MutexLock lock(mutex_);
  return closed_.ok();
}

void ReplicaStream::Room() {
  MutexLock lock(mutex_);
  while (closed_.ok() && bytes_ >= options_.bytes_max) done_.Wait(mutex_);
}

void ReplicaStream::Put(ReplicaOperation operation) {
  MutexLock lock(mutex_);
  if (!closed_.ok()) return;
  bytes_ += operation.Cost();
  operations_.push_back(std::move(operation));
  ++put_;
  if (!oldest_.has_value()) {
    oldest_ = Clock::now();
    due_.Signal();  // it sleeps until this one is old enough
  } else if (bytes_ >= options_.batch_bytes_min) {
    due_.Signal();
  }
}

ReplicaStream::FlushPtr ReplicaStream::Ask(ReplicaFlush kind, std::span<const ObjectId> ids) {
  MutexLock lock(mutex_);
  // What is put later is not waited for: else who changes without pause would hold up all flushes.
  const bool joins = !flushes_.empty() && flushes_.back()->covers == put_;
  FlushPtr flush = joins ? flushes_.back() : std::make_shared<Flush>();
  flush->covers = put_;
  flush->kind = std::max(flush->kind, kind);
  flush->ids.insert(flush->ids.end(), ids.begin(), ids.end());
  if (!closed_.ok()) {
    Fail(flush);
  } else if (!joins) {
    flushes_.push_back(flush);
    due_.Signal();
  }
  return flush;
}

absl::Status ReplicaStream::Await(const FlushPtr& flush) {
  MutexLock lock(mutex_);
  while (!flush->is_done) done_.Wait(mutex_);
  return flush->status;
}

bool ReplicaStream::IsDue() {
  if (!flushes_.empty()) return true;
  if (operations_.empty()) return false;
  return bytes_ >= options_.batch_bytes_min ||
         Clock::now() >= *oldest_ + absl::ToChronoNanoseconds(options_.linger);
}

std::optional<ReplicaStream::Taken> ReplicaStream::Take() {
  MutexLock lock(mutex_);
  while (closed_.ok() && !IsDue()) {
    if (operations_.empty()) {
      due_.Wait(mutex_);
    } else {
      due_.WaitUntil(mutex_, *oldest_ + absl::ToChronoNanoseconds(options_.linger));
    }
  }
  if (!closed_.ok()) return std::nullopt;
  Taken taken;
  taken.batch.first = taken_ + 1;
  while (!operations_.empty() && taken.cost < options_.batch_bytes_max) {
    taken.cost += operations_.front().Cost();
    taken.batch.operations.push_back(std::move(operations_.front()));
    operations_.pop_front();
    ++taken_;
  }
  oldest_.reset();
  if (!operations_.empty()) oldest_ = Clock::now();
  while (!flushes_.empty() && flushes_.front()->covers <= taken_) {
    const FlushPtr& flush = flushes_.front();
    taken.batch.flush = std::max(taken.batch.flush, flush->kind);
    taken.batch.ids.insert(taken.batch.ids.end(), flush->ids.begin(), flush->ids.end());
    taken.flushes.push_back(flush);
    flushes_.pop_front();
  }
  return taken;
}

void ReplicaStream::Answered(const Taken& taken, const absl::Status& status) {
  MutexLock lock(mutex_);
  if (status.ok()) answered_ += taken.batch.operations.size();
  // What was taken before it was closed counts no more.
  if (closed_.ok()) bytes_ -= std::min(bytes_, taken.cost);
  for (const FlushPtr& flush : taken.flushes) {
    flush->status = status;
    flush->is_done = true;
  }
  done_.SignalAll();
}

uint64_t ReplicaStream::put() {
  MutexLock lock(mutex_);
  return put_;
}

uint64_t ReplicaStream::answered() {
  MutexLock lock(mutex_);
  return answered_;
}

}  // namespace abacus::objfs
