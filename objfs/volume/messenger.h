#ifndef ABACUS_OBJFS_VOLUME_MESSENGER_H_
#define ABACUS_OBJFS_VOLUME_MESSENGER_H_

#include <atomic>
#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "objfs/volume/callback_table.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Tells one client what the table of promises says, in its order, on a thread of its own: one that
// is slow or dead keeps nobody else waiting.
//
// A break that fails is tried again until it succeeds or the messenger is stopped, which it is when
// the client's lease has run out; a wake-up is not, because who waits asks again by itself.
// Thread-safety: thread-safe. Blocking: only the destructor, for the call that is under way.
class Messenger {
 public:
  using Action = CallbackTable::Action;

  // `deliver` makes the call; `on_broken` is told of each break that has been obeyed.
  Messenger(std::function<absl::Status(const Action&)> deliver,
            std::function<void(const Action&)> on_broken);
  ~Messenger();

  void Post(const Action& action);
  // Nothing more is delivered.
  void Stop();
  // Stop() was called and its thread is through: the destructor does not wait.
  bool ended() const { return ended_; }

 private:
  void Run();
  // False where it is to be tried again.
  bool DeliverOne(const Action& action);

  const std::function<absl::Status(const Action&)> deliver_;
  const std::function<void(const Action&)> on_broken_;
  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  std::deque<Action> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> ended_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_MESSENGER_H_
