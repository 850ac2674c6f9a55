#ifndef ABACUS_RUNTIME_NODE_INCARNATION_H_
#define ABACUS_RUNTIME_NODE_INCARNATION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

// Node ids of servers are below this, those of clients are not.
inline constexpr NodeId kFirstClientId = NodeId{1} << 30;

// A server's claim to its data directory, and the name that this process has by it.
//
// The file `incarnation` there holds the server's node id, which stays, and a counter that grows by
// one with every start, on disk before the process uses it: no rid of an earlier process is ever
// given again. The file `lock` is locked for as long as the object lives.
// Thread-compatible.
class DataDirectory {
 public:
  // Takes the directory, which is made where it is missing (its parent is not).
  // Errors: kFailedPrecondition - another process uses it, or `incarnation` is not such a file.
  //         kUnavailable and others of the system - it cannot be made, read or written.
  // Blocking: two syncs to disk.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(const std::string& path,
                                                             const std::string& node_name);
  ~DataDirectory();
  DataDirectory(const DataDirectory&) = delete;
  DataDirectory& operator=(const DataDirectory&) = delete;

  NodeInstance instance() const { return instance_; }

 private:
  explicit DataDirectory(int lock_fd) : lock_fd_(lock_fd) {}

  const int lock_fd_;
  NodeInstance instance_;
};

// A client's name: drawn anew for every process.
NodeInstance RandomClientInstance();

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_INCARNATION_H_
