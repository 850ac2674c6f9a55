#ifndef ABACUS_OBJFS_VOLUME_SHARD_FINDER_H_
#define ABACUS_OBJFS_VOLUME_SHARD_FINDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "objfs/spread/server_addresses.h"
#include "objfs/volume/volume.h"
#include "runtime/base/mutex.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// Where the other shards of a volume are served now, for one of them. All have the same servers,
// each another one first, so each of these is asked; and where none of them has the shard, those
// that they name for it: it may have a server already that this one is yet to be given.
//
// What was found is believed for a second. After that its server is asked again before the others,
// so that a shard that has come to another server, or was opened anew, is found there. Who was
// given an old one is refused by it, or meets nobody, and asks once more a second later.
// Thread-safety: thread-safe. Blocking: for messages to the servers.
class ShardFinder {
 public:
  static constexpr int64_t kBelievedNs = 1'000'000'000;

  struct Host {
    // The volume of that name, where the server at that address answers for it now.
    std::function<absl::StatusOr<runtime::Ref<Volume>>(const std::string& address,
                                                       const std::string& name)>
        open;
    // Where this server does.
    std::function<absl::StatusOr<runtime::Ref<Volume>>(const std::string& name)> open_here;
    // Which servers that volume has, by the one at that address.
    std::function<absl::StatusOr<std::vector<std::string>>(const std::string& address,
                                                           const std::string& name)>
        servers;
    std::function<int64_t()> steady_ns;  // monotonic; empty: this machine's
  };

  // `name`: of the shard that looks for the others; `own`: the place of its server.
  ShardFinder(std::string_view name, size_t own, std::shared_ptr<const ServerAddresses> servers,
              Host host);

  // Errors: kUnavailable - no server has it now; the message tells what the first one said.
  absl::StatusOr<runtime::Ref<Volume>> Find(uint32_t shard);

 private:
  struct Found {
    runtime::Ref<Volume> volume;
    std::string address;
    int64_t at_ns = 0;
  };
  absl::StatusOr<runtime::Ref<Volume>> OpenAt(const std::string& address, const std::string& name);
  // Servers that those at `addresses` name for the volume beside them.
  std::vector<std::string> OthersFor(const std::string& name,
                                     const std::vector<std::string>& addresses);

  const std::string volume_;  // without the shard
  const size_t own_;
  const std::shared_ptr<const ServerAddresses> servers_;
  const Host host_;
  runtime::Mutex mutex_;
  std::map<uint32_t, Found> found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_SHARD_FINDER_H_
