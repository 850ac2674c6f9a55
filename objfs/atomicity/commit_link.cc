#include "objfs/atomicity/commit_link.h"

#include <atomic>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/raid/alarm.h"
#include "runtime/base/status.h"
#include "runtime/object/timed_branch.h"

namespace abacus::objfs {
namespace {

absl::Status NotSent(const absl::Status& why) { return absl::NotFoundError(why.message()); }

class RefPeers final : public CommitPeers {
 public:
  explicit RefPeers(FindCommitLog find) : find_(std::move(find)) {}

  void Ask(uint64_t epoch, const std::vector<CommitSend>& sends, absl::Duration wait,
           const Take& take) override {
    std::deque<Asked> asked;
    for (size_t i = 0; i < sends.size(); ++i) {
      const auto log = find_(sends[i].to);
      if (!log.ok()) {
        take(i, NotSent(log.status()));
        continue;
      }
      asked.push_back({i, Branch(log->base(), epoch, sends[i].message)});
    }
    WaitFor(sends, asked, wait);
    for (Asked& one : asked) {
      // One that is not answered is given up with its branch, and its late answer dropped.
      if (one.branch.Answered()) {
        absl::StatusOr<CommitReply> reply = one.branch.Join();
        const bool is_sent =
            runtime::KindOf(reply.status()) != runtime::ErrorKind::kNodeUnreachable;
        take(one.send, is_sent ? std::move(reply) : NotSent(reply.status()));
      } else if (sends[one.send].message.kind == CommitKind::kForget) {
        take(one.send, CommitReply{.message = {.kind = CommitKind::kForget}});
      } else {
        take(one.send, absl::DeadlineExceededError(absl::StrCat("server ", sends[one.send].to,
                                                                " has not answered for ",
                                                                absl::FormatDuration(wait))));
      }
    }
  }

 private:
  using Branch = runtime::TimedBranch<&CommitLog::Ask>;
  struct Asked {
    size_t send;
    Branch branch;
  };

  void WaitFor(const std::vector<CommitSend>& sends, std::deque<Asked>& asked,
               absl::Duration wait) {
    std::atomic<bool> is_late{false};
    const Alarm::Set alarm(alarm_, wait, [&] {
      is_late = true;
      // Also those that nobody waits for at that time: their next wait ends at once.
      for (Asked& one : asked) one.branch.Interrupt();
    });
    for (Asked& one : asked) {
      if (sends[one.send].message.kind == CommitKind::kForget) continue;
      while (!one.branch.Answered() && !is_late) one.branch.Wait();
    }
  }

  const FindCommitLog find_;
  Alarm alarm_;
};

}  // namespace

std::shared_ptr<CommitPeers> PeersThrough(FindCommitLog find) {
  return std::make_shared<RefPeers>(std::move(find));
}

}  // namespace abacus::objfs
