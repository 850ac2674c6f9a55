#ifndef ABACUS_OBJFS_SPREAD_COLUMN_SERVERS_H_
#define ABACUS_OBJFS_SPREAD_COLUMN_SERVERS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/layer/stack.h"
#include "objfs/spread/column_store.h"
#include "objfs/spread/server_addresses.h"
#include "objfs/spread/settlement.h"
#include "runtime/base/mutex.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// How many columns a file of this stack has: 0 where its bytes are where its inode is.
// Errors: kInvalidArgument - columns of a kind that volumes do not make: the message says what can
//         be said instead.
absl::StatusOr<size_t> ColumnsOf(const Stack& stack);

// The columns of a file, opened for somebody.
struct OpenedAtServers {
  std::vector<runtime::Ref<Layer>> columns;  // one that is not there is an AbsentColumn
  // Of their servers; none where the column is not there, or its server has none.
  std::vector<runtime::Ref<CommitLog>> logs;
  size_t absent = 0;  // how many are not there
  // Bytes of the columns that were written by groups of before, and that one of the columns lacks,
  // or may lack: one that is not there, where any is. In whole blocks.
  std::vector<Range> missed;
};

// A volume's servers as its first one sees them, which has the inodes: where it puts the columns of
// files, opens them, and has those removed that no file has any more.
//
// Columns are made by their first opening. A file that is removed tells so; what a server missed of
// that, or kept from before a crash, is found when it is met again, by going through all that it
// has: a file is there before its columns are, and its number never comes again.
// Thread-safety: thread-safe. Blocking: as the servers, which are asked at once.
class ColumnServers {
 public:
  struct Host {
    // The columns that a server keeps for the volume. Errors: kUnavailable and the like.
    std::function<absl::StatusOr<runtime::Ref<ColumnStore>>(size_t server)> find;
    std::function<runtime::Ref<Layer>(std::unique_ptr<AbsentColumn>)> adopt;
    std::function<void(const runtime::Ref<Layer>&)> end;
    // False where it is certain that there is no such file.
    std::function<bool(ObjectId id)> exists;
  };
  // How often servers are looked at that were away.
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  // `addresses`: null where files are not spread.
  ColumnServers(std::shared_ptr<const ServerAddresses> addresses, Host host);
  ~ColumnServers();

  // Servers for the columns of a new file, each another one, beginning elsewhere each time: the
  // others while they are enough, else the first one too.
  // Errors: kFailedPrecondition - there are too few.
  absl::StatusOr<std::vector<uint32_t>> Choose(size_t columns);
  // Lives from before Choose() until its file is there, or is not made.
  class Making {
   public:
    explicit Making(ColumnServers* servers);
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    ColumnServers* const servers_;
    size_t round_ = 0;
  };
  // From now on no file is made with a column at this server. Returns when none is being made: what
  // Choose() gave before is there, or will not be. Blocking: for those; they wait for disks only.
  void Avoid(uint32_t server);
  // The columns of a file in their order. One whose server does not answer is an AbsentColumn.
  // What groups of before have left is settled: written at all that have a part in it, or nowhere
  // (settlement.h). A server that cannot do that counts as one that does not answer, and so does
  // the one server, if it is one, that has nothing of a group which others have written. Of two
  // openings at once the earlier one does that at no server that the later one has opened.
  // Errors: kUnauthenticated - a later epoch has opened one of them.
  absl::StatusOr<OpenedAtServers> Open(ObjectId id, const std::vector<uint32_t>& columns,
                                       Version epoch);
  // Nobody has the file open any more, or it is no more; the servers are told in a while.
  void Closed(ObjectId id, const std::vector<uint32_t>& columns);
  void Removed(ObjectId id, const std::vector<uint32_t>& columns);
  // Removals that servers have not been told yet; for tests and people.
  size_t waiting();

 private:
  struct Server {
    runtime::Ref<ColumnStore> swept;  // gone through since it was met as this object
    std::vector<ObjectId> removed;
    std::vector<std::pair<ObjectId, Version>> closed;
  };
  // Settles what the servers told, and takes out of `opened` what is not there for it.
  void Settle(const GroupFence& by, const std::vector<uint32_t>& columns,
              const std::map<uint64_t, ColumnAnswer>& answers, OpenedAtServers* opened) const;
  void Work();
  void WorkOn(size_t server);
  absl::Status Sweep(const runtime::Ref<ColumnStore>& store);

  // Where columns of new files may be; rising.
  std::vector<uint32_t> Usable();
  size_t Count() const { return addresses_ == nullptr ? 0 : addresses_->size(); }

  const std::shared_ptr<const ServerAddresses> addresses_;
  const Host host_;
  std::atomic<uint64_t> next_;
  runtime::Ref<Layer> absent_;

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<size_t, Server> servers_ ABSL_GUARDED_BY(mutex_);
  std::map<ObjectId, Version> epochs_ ABSL_GUARDED_BY(mutex_);  // of what is open
  std::set<uint32_t> avoided_ ABSL_GUARDED_BY(mutex_);
  // Files that are being made: which began in an even round, and which in an odd one. A round ends
  // with Avoid(), which waits for those of it.
  size_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t making_[2] ABSL_GUARDED_BY(mutex_) = {0, 0};
  bool avoiding_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread worker_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_COLUMN_SERVERS_H_
