#include "apps/abacus/volumes.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "apps/abacus/open_map.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/cache/cache_layer.h"
#include "objfs/check/checker.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/raid/alarm.h"
#include "objfs/raid/mirror_layer.h"
#include "objfs/raid/raid5_manager.h"
#include "objfs/spread/column_servers.h"
#include "objfs/spread/column_store.h"
#include "objfs/spread/spread_layer.h"
#include "objfs/volume/server_map.h"
#include "objfs/volume/shard.h"
#include "runtime/base/log_limit.h"
#include "runtime/base/status.h"
#include "runtime/node/front_end_console.h"

namespace abacus::apps {
namespace {

constexpr absl::Duration kFirstServerPatience = absl::Seconds(5);
constexpr uint64_t kFaultsToldMax = 1000;   // of a volume that is checked, in one message
constexpr unsigned kLogsPerSecondMax = 10;  // of damage; the rest is counted

using objfs::Directory;
using objfs::IsolationLayer;
using objfs::Layer;
using objfs::StorageLayer;
using objfs::Volume;
using objfs::VolumeSet;
using runtime::Ref;

// A file or directory of a mount, as a console of the node's.
class NodeFrontEnd final : public objfs::FrontEnd {
 public:
  explicit NodeFrontEnd(runtime::Node& node) : console_(node) {}
  uint32_t Begin() override { return console_.Begin(); }
  void End(uint32_t outer) override { console_.End(outer); }

 private:
  const runtime::FrontEndConsole console_;
};

// Ends an object of this node's, wherever it is now.
void End(runtime::Node& node, const runtime::Rid& rid) {
  if (node.binding().Destroy(rid).ok()) return;
  // An object is ended where it is. One whose node is gone is gone as well.
  const auto moved = node.Move({rid}, node.instance().node);
  if (moved.ok()) node.binding().Destroy(rid).IgnoreError();
}

// Of the volume, as all that know some say. `silent`: of one that does not say.
std::vector<std::string> ServersOf(const VolumeSets& sets, const std::string& name,
                                   absl::Status* silent) {
  std::vector<std::string> servers;
  for (const Ref<VolumeSet>& set : sets) {
    const absl::StatusOr<std::vector<std::string>> its = set->Servers(name);
    if (!its.ok()) {
      if (!HasNone(its.status())) silent->Update(its.status());
      continue;
    }
    for (const std::string& server : *its) {
      const bool is_new = std::find(servers.begin(), servers.end(), server) == servers.end();
      if (is_new && !objfs::IsVacant(server)) servers.push_back(server);
    }
  }
  return servers;
}

bool IsKnown(const VolumeSets& sets, const std::string& name) {
  absl::Status ignored;
  return !ServersOf(sets, name, &ignored).empty();
}

// All shards of a volume have the same servers, but where a change of them was broken off: then
// there are some that know of another shard only.
std::vector<std::string> ServersThatMayHave(const VolumeSets& sets, const std::string& name,
                                            absl::Status* silent) {
  const std::string volume = objfs::PlaceOfShard(name).volume;
  std::vector<std::string> servers = ServersOf(sets, name, silent);
  for (uint32_t shard = 0; servers.empty() && shard < objfs::kShardsMax; ++shard) {
    servers = ServersOf(sets, objfs::ShardName(volume, shard), silent);
  }
  return servers;
}

// That all servers that live tell of their volumes. One that has just been started does not yet, or
// is not joined yet.
absl::Status AllPublish(const runtime::Node& node, const VolumeSets& sets) {
  for (const runtime::Node::Member& member : node.Members()) {
    const bool does =
        !member.server || std::any_of(sets.begin(), sets.end(), [&](const Ref<VolumeSet>& set) {
          return set.rid().home == member.instance;
        });
    if (does) continue;
    return absl::UnavailableError(
        absl::StrCat("server ", member.name, " does not tell of its volumes yet"));
  }
  return absl::OkStatus();
}

// As FirstServerOf(), without patience.
absl::StatusOr<Ref<VolumeSet>> LookForFirstServer(runtime::Node& node, const std::string& name) {
  const absl::StatusOr<VolumeSets> sets = VolumesOf(node);
  if (!sets.ok()) return absl::UnavailableError(sets.status().message());
  std::map<runtime::Rid, absl::Status> said;  // OK: that it has none
  for (const Ref<VolumeSet>& set : *sets) {
    const absl::Status opened = set->Open(name).status();
    if (opened.ok()) return set;
    said[set.rid()] = HasNone(opened) ? absl::OkStatus() : opened;
  }
  // Of those that may have it and did not say; the first in the volume's list, which mostly has it.
  absl::Status silent, of_lists;
  for (const std::string& server : ServersThatMayHave(*sets, name, &of_lists)) {
    node.Reach(server);
    const absl::StatusOr<runtime::Rid> found = node.LookupAt(server, kVolumesName);
    if (!found.ok()) {
      silent.Update(found.status());
    } else if (const auto its = said.find(*found); its != said.end()) {
      silent.Update(its->second);
    } else {
      silent.Update(absl::UnavailableError(absl::StrCat("server ", server, " is not asked yet")));
    }
  }
  for (const auto& [rid, answer] : said) silent.Update(answer);
  silent.Update(of_lists);
  silent.Update(AllPublish(node, *sets));
  if (silent.ok()) return absl::NotFoundError(absl::StrCat("there is no volume '", name, "'"));
  return absl::IsUnavailable(silent) ? silent : absl::UnavailableError(silent.message());
}

// How many the volume has. Errors: as VolumeSet::Open().
absl::StatusOr<uint32_t> ShardsOf(const Ref<VolumeSet>& set, const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(const Ref<Volume> volume, set->Open(name));
  return volume->Shards();
}

// `set` has the first one, by which there are so many.
absl::StatusOr<std::vector<std::string>> NamesOfShards(const Ref<VolumeSet>& set,
                                                       const std::string& name, uint32_t shards) {
  if (shards == 1 && IsUnfinished(set, name)) {
    return absl::FailedPreconditionError(
        absl::StrCat("volume '", name, "' was not made to its end: ", LeftShardsText(name)));
  }
  std::vector<std::string> names;
  for (uint32_t shard = 0; shard < shards; ++shard) names.push_back(objfs::ShardName(name, shard));
  return names;
}

// What volumes over several servers need.
void AddColumnHost(runtime::Node& node, const StandIns& stand_ins, VolumeSet::Host* host) {
  host->reach = [&node, stand_ins](const std::string& address) {
    if (!stand_ins || !stand_ins(address).has_value()) node.Reach(address);
  };
  host->find_set = [&node,
                    stand_ins](const std::string& address) -> absl::StatusOr<Ref<VolumeSet>> {
    auto instead = stand_ins ? stand_ins(address) : std::nullopt;
    if (instead.has_value()) return *std::move(instead);
    ABACUS_ASSIGN_OR_RETURN(const runtime::Rid rid, node.LookupAt(address, kVolumesName));
    return node.binding().RefTo<VolumeSet>(rid);
  };
  const objfs::ServerMap::Host of_server{
      .reach = host->reach, .find_set = host->find_set, .alarm = std::make_shared<objfs::Alarm>()};
  host->open_map = [of_server](const std::string& url, const std::string& name, uint64_t key) {
    return OpenMap(url, name, key, of_server);
  };
  runtime::BindingManager& binding = node.binding();
  host->adopt_copy = [&binding](std::unique_ptr<objfs::ReplicaStore> copy) {
    return binding.Adopt(std::move(copy));
  };
  host->end_copy = [&binding](const Ref<objfs::ReplicaStore>& copy) {
    binding.Destroy(copy.rid()).IgnoreError();
  };
  host->adopt_columns = [&binding](std::unique_ptr<objfs::ColumnStore> columns) {
    return binding.Adopt(std::move(columns));
  };
  host->end_columns = [&binding](const Ref<objfs::ColumnStore>& columns) {
    binding.Destroy(columns.rid()).IgnoreError();
  };
  host->adopt_log = [&binding](std::unique_ptr<objfs::CommitLog> log) {
    return binding.Adopt(std::move(log));
  };
  host->end_log = [&binding](const Ref<objfs::CommitLog>& log) {
    binding.Destroy(log.rid()).IgnoreError();
  };
  host->columns.adopt = [&binding](std::unique_ptr<objfs::ColumnLayer> layer) {
    return Ref<Layer>(binding.Adopt(std::move(layer)).base());
  };
  host->columns.end = [&binding](const Ref<Layer>& layer) {
    binding.Destroy(layer.rid()).IgnoreError();
  };
}

}  // namespace

const objfs::LayerKinds& Kinds() {
  static const objfs::LayerKinds kinds = [] {
    objfs::LayerKinds all;
    all.Add<objfs::CacheLayer>()
        .Add<objfs::ErrorLayer>()
        .Add<objfs::DelayLayer>()
        .Add<objfs::TraceLayer>()
        .Add<objfs::StatisticsLayer>()
        .Add<objfs::Raid5Layer>()
        .Add<objfs::MirrorLayer>()
        .Add<IsolationLayer>()
        .Add<StorageLayer>();
    return all;
  }();
  return kinds;
}

std::shared_ptr<objfs::BlockPool> CacheOf(const runtime::Config::Cache& config) {
  return std::make_shared<objfs::BlockPool>(config.memory, config.dirty_share);
}

void AddFileSystemClasses(runtime::ObjectTypes& types, std::shared_ptr<objfs::BlockPool> cache,
                          const objfs::ParityWork& parity_work) {
  if (cache == nullptr) cache = CacheOf({});
  types.Add<objfs::LockClient>();
  types.Add<VolumeSet>().Add<Volume>().Add<IsolationLayer>().Add<StorageLayer>();
  types.Add<Directory>([] { return std::make_unique<objfs::DirectoryManager>(); });
  types.Add<objfs::ClientEnd>();
  types.Add<objfs::ErrorLayer>().Add<objfs::DelayLayer>().Add<objfs::TraceLayer>();
  types.Add<objfs::StatisticsLayer>().Add<objfs::SpreadLayer>();
  types.Add<objfs::Raid5Layer>(
      [parity_work] { return std::make_unique<objfs::Raid5Manager>(parity_work); });
  types.Add<objfs::WitnessLayer>();
  types.Add<objfs::ReplicaStore>();
  types.Add<objfs::MirrorLayer>([] { return std::make_unique<objfs::MirrorManager>(); });
  types.Add<objfs::ColumnStore>().Add<objfs::ColumnLayer>().Add<objfs::AbsentColumn>();
  types.Add<objfs::CommitLog>();
  types.Add<objfs::CacheLayer>([cache] { return std::make_unique<objfs::CacheManager>(cache); });
}

absl::StatusOr<Ref<VolumeSet>> OpenVolumes(runtime::BindingManager& binding,
                                           const std::string& directory, VolumesOptions options,
                                           runtime::Node* node) {
  const auto end = [&binding](const runtime::Rid& rid) {
    binding.Destroy(rid).IgnoreError();  // not there any more is what is wanted
  };
  VolumeSet::Host host;
  host.volume.adopt_storage = [&binding](std::unique_ptr<StorageLayer> layer) {
    return Ref<Layer>(binding.Adopt(std::move(layer)).base());
  };
  host.volume.adopt_isolation = [&binding](std::unique_ptr<IsolationLayer> layer) {
    return Ref<Layer>(binding.Adopt(std::move(layer)).base());
  };
  host.volume.check = [](objfs::ObjectTable& table, const objfs::CheckRequest& request) {
    objfs::CheckOptions check;
    check.repair = request.repair;
    check.data = request.data;
    check.servers = request.servers;
    check.gone = request.gone;
    check.faults_max = kFaultsToldMax;
    return objfs::CheckOnline(table, check);
  };
  host.volume.end = [end](const Ref<Layer>& layer) { end(layer.rid()); };
  host.volume.now_ns = [] { return absl::GetCurrentTimeNanos(); };
  host.adopt = [&binding](std::unique_ptr<Volume> volume) {
    return binding.Adopt(std::move(volume));
  };
  host.end = [end](const Ref<Volume>& volume) { end(volume.rid()); };
  host.lease = options.lease;
  host.whole_read_sets = options.whole_read_sets;
  host.wrap_disk = std::move(options.wrap_disk);
  host.volume.adopt_absent = [&binding](std::unique_ptr<objfs::AbsentColumn> column) {
    return Ref<Layer>(binding.Adopt(std::move(column)).base());
  };
  host.volume.adopt_witness = [&binding](std::unique_ptr<objfs::WitnessLayer> witness) {
    return Ref<Layer>(binding.Adopt(std::move(witness)).base());
  };
  if (node != nullptr) AddColumnHost(*node, options.stand_ins, &host);
  host.on_damage = [limit = std::make_shared<runtime::LogLimit>(kLogsPerSecondMax)](
                       const std::string& volume, const absl::Status& damage) {
    const std::optional<uint64_t> untold = limit->Pass(absl::Now());
    if (!untold.has_value()) return;
    spdlog::error("volume {}: {}{}", volume, damage.ToString(),
                  *untold > 0 ? absl::StrCat(" (before it, ", *untold, " more)") : "");
  };
  ABACUS_ASSIGN_OR_RETURN(auto set, VolumeSet::Make(directory, std::move(host)));
  return binding.Adopt(std::move(set));
}

absl::StatusOr<Ref<VolumeSet>> PublishVolumes(runtime::Node& node, const std::string& directory,
                                              VolumesOptions options) {
  ABACUS_ASSIGN_OR_RETURN(Ref<VolumeSet> volumes,
                          OpenVolumes(node.binding(), directory, std::move(options), &node));
  node.Publish(kVolumesName, volumes.rid());
  return volumes;
}

absl::StatusOr<VolumeSets> VolumesOf(runtime::Node& node) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<runtime::Rid> rids, node.LookupAll(kVolumesName));
  VolumeSets sets;
  for (const runtime::Rid& rid : rids) sets.push_back(node.binding().RefTo<VolumeSet>(rid));
  return sets;
}

absl::StatusOr<Ref<Volume>> VolumeOf(runtime::Node& node, const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(const VolumeSets sets, VolumesOf(node));
  absl::StatusOr<Ref<Volume>> found = VolumeIn(sets, name, "SERVER/VOLUME");
  if (found.ok() || name.empty()) return found;
  const absl::StatusOr<Ref<VolumeSet>> first = FirstServerOf(node, name);
  if (absl::IsNotFound(first.status())) return found;
  if (!first.ok()) return first.status();
  return (*first)->Open(name);
}

bool HasNone(const absl::Status& status) {
  return absl::IsNotFound(status) && runtime::KindOf(status) == runtime::ErrorKind::kNone;
}

absl::StatusOr<Ref<VolumeSet>> FirstServerOf(runtime::Node& node, const std::string& name) {
  for (const absl::Time end = absl::Now() + kFirstServerPatience;;) {
    absl::StatusOr<Ref<VolumeSet>> found = LookForFirstServer(node, name);
    if (found.ok() || absl::IsNotFound(found.status()) || absl::Now() >= end) return found;
    absl::SleepFor(absl::Milliseconds(50));
  }
}

absl::StatusOr<Ref<VolumeSet>> VolumesAt(runtime::Node& node, const std::string& address) {
  node.Reach(address);
  for (const absl::Time end = absl::Now() + kFirstServerPatience;;) {
    const absl::StatusOr<runtime::Rid> found = node.LookupAt(address, kVolumesName);
    if (found.ok()) return node.binding().RefTo<VolumeSet>(*found);
    if (absl::Now() >= end) return found.status();
    absl::SleepFor(absl::Milliseconds(50));
  }
}

absl::Status CheckNoShard(const std::string& name) {
  if (!absl::StrContains(name, '~')) return absl::OkStatus();
  const objfs::ShardPlace place = objfs::PlaceOfShard(name);
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is no name of a volume: '~' is not for names. ",
      place.shard == 0 ? "It tells the shards of one apart"
                       : absl::StrCat("A shard of volume '", place.volume,
                                      "' is called so, and used with the others: ", place.volume)));
}

std::vector<std::string> OtherShardsAt(const VolumeSets& sets, const std::string& name) {
  std::vector<std::string> names;
  for (uint32_t shard = 1; shard < objfs::kShardsMax; ++shard) {
    const std::string other = objfs::ShardName(name, shard);
    if (IsKnown(sets, other)) names.push_back(other);
  }
  return names;
}

bool IsUnfinished(const Ref<VolumeSet>& set, const std::string& name) {
  return IsKnown({set}, objfs::ShardName(name, 1));
}

std::string ShardText(const std::string& name) {
  const objfs::ShardPlace place = objfs::PlaceOfShard(name);
  return absl::StrCat("shard ", place.shard, " of volume '", place.volume, "'");
}

std::string TooFewServersText(const std::string& volume, const std::string& own_stack,
                              size_t servers) {
  const auto stack = objfs::ParseStack(own_stack);
  if (own_stack.empty() || !stack.ok()) return "";
  const auto columns = objfs::ColumnsOf(*stack);
  if (!columns.ok() || *columns <= servers) return "";
  return absl::StrCat("volume '", volume, "' is to have ", servers, " servers, and the stack of ",
                      "its files, ", own_stack, ", takes ", *columns, ": files that have it are ",
                      "read and written as before, and none is made with it until there are ",
                      "more: abacus volume add-server ", volume, " HOST:PORT");
}

size_t CountServers(const std::vector<std::string>& servers) {
  const auto vacant = std::count_if(servers.begin(), servers.end(), objfs::IsVacant);
  return servers.size() - static_cast<size_t>(vacant);
}

std::string LeftShardsText(const std::string& name) {
  return absl::StrCat("shards of a volume '", name,
                      "' are left of a creation or deletion that was interrupted. If nobody is ",
                      "creating it now, remove them: abacus volume delete ", name);
}

absl::StatusOr<std::vector<std::string>> ShardNames(runtime::Node& node, const std::string& name) {
  ABACUS_RETURN_IF_ERROR(CheckNoShard(name));
  ABACUS_ASSIGN_OR_RETURN(VolumeSets sets, VolumesOf(node));
  for (const Ref<VolumeSet>& set : sets) {
    const absl::StatusOr<uint32_t> shards = ShardsOf(set, name);
    if (shards.ok()) return NamesOfShards(set, name, *shards);
  }
  std::vector<std::string> names = {name};
  // All servers of a volume keep something of each of its shards.
  const bool is_alone = IsKnown(sets, name) && !IsKnown(sets, objfs::ShardName(name, 1));
  if (is_alone && AllPublish(node, sets).ok()) return names;
  const absl::StatusOr<Ref<VolumeSet>> first = FirstServerOf(node, name);
  absl::Status why = first.status();
  if (first.ok()) {
    const absl::StatusOr<uint32_t> shards = ShardsOf(*first, name);
    if (shards.ok()) return NamesOfShards(*first, name, *shards);
    why = shards.status();
  }
  ABACUS_ASSIGN_OR_RETURN(sets, VolumesOf(node));  // more may have been met meanwhile
  const std::vector<std::string> others = OtherShardsAt(sets, name);
  if (HasNone(first.status())) {
    if (others.empty()) return names;
    return absl::NotFoundError(
        absl::StrCat("there is no volume '", name, "', but ", LeftShardsText(name)));
  }
  // It may have others, of which nobody knows who answers.
  if (others.empty() && !IsKnown(sets, name)) return why;
  names.insert(names.end(), others.begin(), others.end());
  return names;
}

absl::Status WithEachShard(runtime::Node& node, const std::string& name, const ShardWork& work) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ShardNames(node, name));
  return WithShards(names, work);
}

absl::Status WithShards(const std::vector<std::string>& names, const ShardWork& work) {
  if (names.size() == 1) return work.run(names[0]);
  absl::Status failed;
  std::vector<absl::Status> done_before;
  for (const std::string& shard : names) {
    const std::string which = ShardText(shard);
    printf("%s\n", which.c_str());
    const absl::Status status = work.run(shard);
    if (status.ok()) continue;
    const absl::Status told(status.code(), absl::StrCat(which, ": ", status.message()));
    // Not where that is an error of the call, and not the shard's answer.
    if (work.was_done && runtime::KindOf(status) == runtime::ErrorKind::kNone &&
        work.was_done(status)) {
      done_before.push_back(told);
      continue;
    }
    if (!work.goes_on) return told;
    if (!failed.ok()) fprintf(stderr, "%s\n", std::string(told.message()).c_str());
    failed.Update(told);
  }
  ABACUS_RETURN_IF_ERROR(failed);
  if (done_before.size() == names.size()) return done_before.front();
  for (const absl::Status& status : done_before) {
    fprintf(stderr, "done before: %s\n", std::string(status.message()).c_str());
  }
  return absl::OkStatus();
}

absl::StatusOr<Ref<Volume>> VolumeIn(const VolumeSets& sets, const std::string& name,
                                     const char* way_to_say) {
  absl::Status silent;  // of servers that do not answer
  std::vector<std::string> names;
  std::set<std::string> of_shards;
  Ref<VolumeSet> of_the_last;
  for (const Ref<VolumeSet>& set : sets) {
    const auto all = set->List();
    silent.Update(all.status());
    if (!all.ok()) continue;
    for (const auto& volume : *all) {
      if (volume.name == name) return set->Open(name);
      const objfs::ShardPlace place = objfs::PlaceOfShard(volume.name);
      if (place.shard > 0) {
        of_shards.insert(place.volume);
        continue;
      }
      names.push_back(volume.name);
      of_the_last = set;
    }
  }
  // Shards are the volume's own affair; but where this is only one of it, it is there.
  for (const std::string& volume : of_shards) {
    if (std::find(names.begin(), names.end(), volume) == names.end()) names.push_back(volume);
  }
  const bool is_clear = name.empty() && names.size() == 1 && silent.ok() && of_the_last;
  if (is_clear) return of_the_last->Open(names[0]);
  ABACUS_RETURN_IF_ERROR(silent);
  const std::string listed = absl::StrJoin(names, ", ");
  if (of_shards.contains(name)) {
    return absl::NotFoundError(absl::StrCat(
        "of volume '", name, "' there are other shards only: its first one is at another server, ",
        "or these are left of a creation or deletion that was interrupted. In that case, and with ",
        "all servers of the volume running, remove them: abacus volume delete ", name));
  }
  if (names.empty()) {
    return absl::NotFoundError(absl::StrCat(
        name.empty() ? "there is no volume" : absl::StrCat("there is no volume '", name, "'"),
        "; make one: abacus volume create NAME"));
  }
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("which volume? There are: ", listed, ". Say ", way_to_say));
  }
  return absl::NotFoundError(absl::StrCat("there is no volume '", name, "'. There are: ", listed));
}

objfs::FileSystem::Host HostOf(runtime::Node& node) {
  objfs::FileSystem::Host host =
      HostOf(node.binding(), [&node](const runtime::Rid& rid) { End(node, rid); });
  host.make_front_end = [&node] { return std::make_unique<NodeFrontEnd>(node); };
  host.find_volume = [&node](const std::string& name) { return VolumeOf(node, name); };
  return host;
}

objfs::FileSystem::Host HostOf(runtime::BindingManager& binding,
                               std::function<void(const runtime::Rid&)> end) {
  objfs::FileSystem::Host host;
  host.layers.make = [&binding](const objfs::LayerKind& kind, const std::vector<Ref<Layer>>& below,
                                const std::vector<std::pair<std::string, std::string>>& options,
                                size_t) -> absl::StatusOr<Ref<Layer>> {
    auto made =
        binding.CreateObject(kind.class_name, runtime::internal::EncodeInit<Layer>(below, options));
    if (!made.ok()) return made.status();
    return Ref<Layer>(*std::move(made));
  };
  host.layers.end = [end](const Ref<Layer>& layer) { end(layer.rid()); };
  host.make_directory = [&binding](const Ref<Volume>& volume, const Ref<Layer>& below,
                                   objfs::ObjectId id, uint16_t writer) {
    return binding.Create<Directory>(volume, below, id, writer);
  };
  host.end_directory = [end](const Ref<Directory>& directory) { end(directory.rid()); };
  host.locks.adopt = [&binding](std::unique_ptr<objfs::LockClient> client) {
    return binding.Adopt(std::move(client));
  };
  host.locks.end = [&binding](const Ref<objfs::LockClient>& client) {
    binding.Destroy(client.rid()).IgnoreError();
  };
  host.adopt_end = [&binding](std::unique_ptr<objfs::ClientEnd> client) {
    return binding.Adopt(std::move(client));
  };
  host.remove_end = [end](const Ref<objfs::ClientEnd>& client) { end(client.rid()); };
  host.now_us = [] { return absl::GetCurrentTimeNanos() / 1000; };
  return host;
}

}  // namespace abacus::apps
