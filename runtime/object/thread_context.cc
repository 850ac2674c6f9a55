#include "runtime/object/thread_context.h"

#include <algorithm>
#include <utility>

#include "runtime/object/invoker.h"

namespace abacus::runtime {

void Turn::Enter(const Caller& caller, const Lineage& lineage) {
  MutexLock lock(mutex_);
  while (!MayEnter(caller, lineage)) left_.Wait(mutex_);
  holders_.push_back(caller);
}

void Turn::Leave() {
  MutexLock lock(mutex_);
  holders_.pop_back();
  // Those that wait differ in whom they may follow.
  left_.SignalAll();
}

bool Turn::MayEnter(const Caller& caller, const Lineage& lineage) const {
  if (holders_.empty()) return true;
  const Caller& holder = holders_.back();
  if (caller.activity == holder.activity) return caller.level > holder.level;
  return std::any_of(lineage.begin(), lineage.end(), [&](const ForkPoint& fork) {
    return fork.parent == holder.activity && fork.level >= holder.level;
  });
}

namespace {

// The contexts of one thread, one per node that it called objects of.
struct ContextsOfThread {
  std::vector<std::shared_ptr<ThreadContext>> contexts;
  std::vector<std::atomic<bool>*> ended;
  ~ContextsOfThread() {
    for (std::atomic<bool>* flag : ended) flag->store(true, std::memory_order_release);
  }
};

thread_local ContextsOfThread contexts_of_thread;

}  // namespace

ThreadContext& ThreadContext::Find(Invoker& invoker) {
  auto& contexts = contexts_of_thread.contexts;
  auto& ended = contexts_of_thread.ended;
  // A context that only this thread still holds belongs to a node that has ended.
  for (size_t i = 0; i < contexts.size();) {
    if (contexts[i].use_count() == 1) {
      contexts.erase(contexts.begin() + static_cast<ptrdiff_t>(i));
      ended.erase(ended.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  for (const auto& context : contexts) {
    if (context->invoker_.load(std::memory_order_relaxed) == &invoker) {
      return *(current_ = context.get());
    }
  }
  contexts.push_back(invoker.threads().Register(invoker));
  ended.push_back(&contexts.back()->ended_);
  current_ = contexts.back().get();
  const ActivityId activity = invoker.NewActivity();
  current_->SetActivity(activity, activity, 0, 0);
  return *current_;
}

ThreadRegistry::~ThreadRegistry() {
  MutexLock lock(mutex_);
  for (const auto& context : contexts_) {
    context->invoker_.store(nullptr, std::memory_order_relaxed);
  }
}

std::shared_ptr<ThreadContext> ThreadRegistry::Register(Invoker& invoker) {
  std::shared_ptr<ThreadContext> context(new ThreadContext(invoker, accounts_));
  if (monitor::Monitor* monitor = monitor_.load(); monitor != nullptr) {
    monitor->AttachThread(context->clock);
  }
  MutexLock lock(mutex_);
  DropEnded();
  contexts_.push_back(context);
  return context;
}

void ThreadRegistry::DropEnded() {
  for (size_t i = 0; i < contexts_.size();) {
    if (!contexts_[i]->ended_.load(std::memory_order_acquire)) {
      ++i;
      continue;
    }
    std::swap(contexts_[i], contexts_.back());
    contexts_.pop_back();
  }
}

EdgeSumsByKey ThreadRegistry::CollectAccounts() {
  {
    MutexLock lock(mutex_);
    DropEnded();
  }
  return accounts_->Collect();
}

void ThreadRegistry::PruneAccounts(absl::FunctionRef<bool(EdgeKey)> known) {
  {
    MutexLock lock(mutex_);
    DropEnded();
  }
  accounts_->Prune(known);
}

}  // namespace abacus::runtime
