#ifndef ABACUS_APPS_ABACUS_VOLUMES_H_
#define ABACUS_APPS_ABACUS_VOLUMES_H_

// Ties the file system to a node: what it leaves to others by its hosts.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/cache/block_pool.h"
#include "objfs/fs/file_system.h"
#include "objfs/layer/stack.h"
#include "objfs/raid/parity_work.h"
#include "objfs/volume/volume_set.h"
#include "runtime/node/node.h"

namespace abacus::apps {

// The name under which a server publishes its VolumeSet.
inline constexpr char kVolumesName[] = "volumes";

// The kinds of layers that stacks may name in this program, and their classes.
const objfs::LayerKinds& Kinds();
// `cache`: the blocks of all cache objects; null: as the configuration's defaults say.
// `parity_work`: is told of what raid5 objects compute on this node.
void AddFileSystemClasses(runtime::ObjectTypes& types, std::shared_ptr<objfs::BlockPool> cache,
                          const objfs::ParityWork& parity_work = {});
std::shared_ptr<objfs::BlockPool> CacheOf(const runtime::Config::Cache& config);

// VolumeSet::Host::wrap_disk.
using WrapDisk = std::function<std::unique_ptr<objfs::Disk>(std::unique_ptr<objfs::Disk>)>;
// Whose volumes are to be found at a server's address, for addresses of which the cluster is not to
// be asked (nullopt: it is): those of another disk of this server, which volumes name as if it were
// a server by itself, or the error of one that has failed. Thread-safety: has to be thread-safe.
using StandIns = std::function<std::optional<absl::StatusOr<runtime::Ref<objfs::VolumeSet>>>(
    const std::string& address)>;

// What the volumes of a directory have in common.
struct VolumesOptions {
  absl::Duration lease = objfs::Volume::Options().lease;  // of their clients
  bool whole_read_sets = objfs::Volume::Options().whole_read_sets;
  WrapDisk wrap_disk = {};
  StandIns stand_ins = {};
};

// Opens the volumes under `directory`. `node`: by which volumes that are spread over servers find
// the others; null: there are none such.
absl::StatusOr<runtime::Ref<objfs::VolumeSet>> OpenVolumes(runtime::BindingManager& binding,
                                                           const std::string& directory,
                                                           VolumesOptions options = {},
                                                           runtime::Node* node = nullptr);
// And publishes them.
absl::StatusOr<runtime::Ref<objfs::VolumeSet>> PublishVolumes(runtime::Node& node,
                                                              const std::string& directory,
                                                              VolumesOptions options);

using VolumeSets = std::vector<runtime::Ref<objfs::VolumeSet>>;
// Those of the servers that `node` has joined, in that order; at least one.
absl::StatusOr<VolumeSets> VolumesOf(runtime::Node& node);
// A volume of theirs, or a shard of one, wherever it is served; where `name` is empty, the only
// volume that there is.
absl::StatusOr<runtime::Ref<objfs::Volume>> VolumeOf(runtime::Node& node, const std::string& name);
// That a server says that it has no such volume, and not that it could not be asked.
bool HasNone(const absl::Status& status);
// The set of the server that has a volume's inodes, whichever of its servers `node` has joined.
// Errors: kNotFound - all that may have it say that they have none. kUnavailable - one of them does
//         not say, and none of the others has it.
// Blocking: as long as one does not say, for 5 s.
absl::StatusOr<runtime::Ref<objfs::VolumeSet>> FirstServerOf(runtime::Node& node,
                                                             const std::string& name);
// `way_to_say`: how the user names one of several.
// Errors: kNotFound, kInvalidArgument - the message lists the volumes there are. Those of a server
//         that does not answer, where no other has the volume.
absl::StatusOr<runtime::Ref<objfs::Volume>> VolumeIn(const VolumeSets& sets,
                                                     const std::string& name,
                                                     const char* way_to_say);

// The set of the server at an address, which is joined where it was not, and given time to answer.
absl::StatusOr<runtime::Ref<objfs::VolumeSet>> VolumesAt(runtime::Node& node,
                                                         const std::string& address);

// -- volumes with several shards (objfs/volume/shard.h), which people name as one ----------------

// Errors: kInvalidArgument - it is the name of a shard, or has the '~' of one.
absl::Status CheckNoShard(const std::string& name);
// The names of a volume's shards, the first of which is its own; that one alone where it has no
// others, or is not there. Where nobody answers for the first, those that the joined servers keep
// something of.
// Errors: as CheckNoShard(). kNotFound - others are there, and the first is not; the message tells
//         the way out, as that of kFailedPrecondition - it is as IsUnfinished() says.
//         kUnavailable - nobody that was asked knows the volume, and one does not say.
absl::StatusOr<std::vector<std::string>> ShardNames(runtime::Node& node, const std::string& name);
// Shards beside the first that servers of `sets` have, or keep something of.
std::vector<std::string> OtherShardsAt(const VolumeSets& sets, const std::string& name);
// Whether a volume that `set` has, and that says that it is alone, is the first shard of one whose
// creation did not come to its end: its others are made before it.
bool IsUnfinished(const runtime::Ref<objfs::VolumeSet>& set, const std::string& name);
// That of an interrupted creation or deletion something is left, and the way out.
std::string LeftShardsText(const std::string& name);
// What people are told of a shard: "shard 1 of volume 'home'".
std::string ShardText(const std::string& name);

// That a volume over so many servers (a list of them may have vacancies) has too few for the stack
// that it was made with, and the way out; empty: it has enough, or no stack of its own.
std::string TooFewServersText(const std::string& volume, const std::string& own_stack,
                              size_t servers);
size_t CountServers(const std::vector<std::string>& servers);

struct ShardWork {
  std::function<absl::Status(const std::string& shard)> run;
  // Whether an error of `run` says no more than that this was done before, and what is wanted is
  // so: it had come so far when it failed at another shard, and is said again. Empty: no error
  // does.
  std::function<bool(const absl::Status& error)> was_done = {};
  bool goes_on = false;  // with the other shards after an error of one
};
// Does it for each shard of the volume in turn; where there are several, says which before it, and
// in its error.
// Errors: as ShardNames(). The first of `work`, after which no other shard is worked on, or, where
//         it goes on, all others were. What was done before is told, and an error only where it is
//         so of all shards.
absl::Status WithEachShard(runtime::Node& node, const std::string& name, const ShardWork& work);
// The same for these shards. REQUIRES: one at least.
absl::Status WithShards(const std::vector<std::string>& names, const ShardWork& work);

// How a file system brings its objects into `node`, which outlives it.
objfs::FileSystem::Host HostOf(runtime::Node& node);
// The same without a cluster; `end` ends an object wherever it is.
objfs::FileSystem::Host HostOf(runtime::BindingManager& binding,
                               std::function<void(const runtime::Rid&)> end);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_VOLUMES_H_
