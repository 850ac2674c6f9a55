#ifndef ABACUS_RUNTIME_NODE_FRONT_END_CONSOLE_H_
#define ABACUS_RUNTIME_NODE_FRONT_END_CONSOLE_H_

#include <cstdint>
#include <memory>

#include "runtime/node/node.h"
#include "runtime/resource/activity_meter.h"

namespace abacus::runtime {

// A console without a thread of its own: a front end makes one for each thing that it serves (a
// mount for each open file and directory), and whichever of its threads works for it says so
// meanwhile. Each is a graph of its own to the engine. Where several threads work for it at once,
// its response time is the sum of theirs, and the engine is told how many they are: the load that
// they make is their work in the time in which they do it.
// Thread-safety: thread-safe. Blocking: no.
class FrontEndConsole {
 public:
  // REQUIRES: `node` outlives it.
  explicit FrontEndConsole(Node& node);
  // REQUIRES: no thread works for it any more.
  ~FrontEndConsole();
  FrontEndConsole(const FrontEndConsole&) = delete;
  FrontEndConsole& operator=(const FrontEndConsole&) = delete;

  Rid rid() const { return console_->rid(); }

  // From Begin() to End() what the calling thread calls is this console's activity. Begin() returns
  // what End() takes. Nothing changes where the thread is inside of an object: the activity is that
  // of whoever called it.
  uint32_t Begin() const;
  void End(uint32_t outer) const;

 private:
  Node& node_;
  const std::shared_ptr<ActivityMeter> meter_;
  std::unique_ptr<Console> console_;
  uint32_t slot_ = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_FRONT_END_CONSOLE_H_
