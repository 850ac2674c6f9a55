#include "experiments/lab/recorder.h"

#include "absl/time/clock.h"

namespace abacus::lab {

using runtime::MutexLock;

double Recorder::Since() const { return absl::ToDoubleSeconds(absl::Now() - begun_); }

void Recorder::Begin() {
  begun_ = absl::Now();
  MutexLock lock(mutex_);
  recording_ = true;
}

void Recorder::AddPoint() { points_.push_back({Since(), operations_, retries_ ? retries_() : 0}); }

void Recorder::Done() {
  ++operations_;
  const double now_s = Since();
  if (now_s < next_point_s_) return;
  AddPoint();
  next_point_s_ = now_s + absl::ToDoubleSeconds(kPointEvery);
}

void Recorder::End() {
  elapsed_s_ = Since();
  AddPoint();
  MutexLock lock(mutex_);
  recording_ = false;
}

bool Recorder::OnMove(const runtime::MoveEvent& event) {
  MutexLock lock(mutex_);
  if (!recording_ || !event.status.ok()) return false;
  moves_.push_back({Since(), event});
  return true;
}

std::vector<Recorder::Move> Recorder::moves() const {
  MutexLock lock(mutex_);
  return moves_;
}

}  // namespace abacus::lab
