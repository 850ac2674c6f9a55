// abacus volume status, rebuild, scrub: what volumes have of redundancy, told and made use of.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/map_health.h"
#include "apps/abacus/output.h"
#include "apps/abacus/scrub.h"
#include "apps/abacus/volumes.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "objfs/fs/file_system.h"
#include "objfs/layer/stack.h"
#include "objfs/raid/column_record.h"
#include "objfs/raid/mirror_layer.h"
#include "objfs/volume/shard.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

using objfs::ColumnRecord;
using objfs::ColumnState;
using objfs::ObjectId;
using runtime::Ref;

constexpr uint64_t kColumnsListedAtOnce = 1000;
constexpr uint64_t kStripesAtOnce = 4096;  // of a rebuild, whose steps end by themselves
constexpr int kPassesInVain = 10;          // over a file that is not damaged
constexpr absl::Duration kAskAgain = absl::Seconds(10);  // a server that did not tell
constexpr size_t kFilesShownMax = 10;

// A file, as the columns that answer tell of it.
struct FileHealth {
  enum class State : uint8_t { kWhole, kDegraded, kUnavailable };
  ObjectId id = 0;
  uint64_t size = 0;
  State state = State::kWhole;
  std::vector<size_t> lacking;  // columns that are away, or lack something
  uint64_t stripes = 0;         // of those, to be rebuilt
  uint64_t bytes = 0;           // that these have of the file
};

struct ServerHealth {
  std::string address;
  bool answers = false;
  std::string why;  // it does not
  std::map<ObjectId, ColumnState> columns;
  objfs::ColumnDamage damage;
};

struct VolumeHealth {
  std::vector<ServerHealth> servers;
  std::vector<FileHealth> files;  // all that have columns
  uint64_t others = 0;            // that have none,
  uint64_t other_bytes = 0;       // and what they take of a disk
  size_t Count(FileHealth::State state) const {
    return static_cast<size_t>(
        std::count_if(files.begin(), files.end(),
                      [state](const FileHealth& file) { return file.state == state; }));
  }
  uint64_t BytesLeft() const {
    uint64_t bytes = 0;
    for (const FileHealth& file : files) bytes += file.bytes;
    return bytes;
  }
};

absl::StatusOr<std::map<ObjectId, ColumnState>> AllColumns(const Ref<objfs::ColumnStore>& store) {
  std::map<ObjectId, ColumnState> all;
  for (ObjectId after = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(const std::vector<ColumnState> states,
                            store->States(after, kColumnsListedAtOnce));
    for (const ColumnState& state : states) all[state.id] = state;
    if (states.empty()) return all;
    after = states.back().id;
  }
}

bool IsMirrored(const objfs::Node& node) {
  const auto stack = objfs::ParseStack(node.inode.stack);
  return stack.ok() && stack->levels.back().kind == objfs::MirrorLayer::kKind.name;
}

// Who is believed is decided when the file is opened (objfs/raid/README.md); this is what that
// would find, as far as records tell.
FileHealth HealthOf(const objfs::Node& node, const VolumeHealth& volume) {
  FileHealth file{.id = node.id, .size = node.size};
  const size_t count = node.inode.columns.size();
  std::vector<std::optional<ColumnRecord>> records(count);
  std::vector<bool> there(count), damaged(count);
  const ColumnRecord* best = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t server = node.inode.columns[i];
    if (server >= volume.servers.size() || !volume.servers[server].answers) continue;
    there[i] = true;
    const auto column = volume.servers[server].columns.find(node.id);
    if (column == volume.servers[server].columns.end()) continue;
    auto record = ColumnRecord::Decode(column->second.record);
    if (record.ok() && record->columns == count) {
      record->opening = column->second.opening;
      records[i] = *std::move(record);
    } else {
      damaged[i] = !column->second.record.empty() || column->second.size > 0;
    }
  }
  // Of a mirrored file the inode says who is believed.
  const std::set<size_t> marked(node.inode.lacking.begin(), node.inode.lacking.end());
  for (size_t i = 0; i < count; ++i) {
    if (!records[i].has_value() || marked.contains(i)) continue;
    if (best == nullptr || best->Order() < records[i]->Order()) best = &*records[i];
  }
  for (size_t i = 0; i < count; ++i) {
    const uint64_t sequence = records[i].has_value() ? records[i]->sequence : 0;
    const bool old = best != nullptr && (damaged[i] || sequence < best->durable[i] ||
                                         (best->missing == i && !best->missed.empty()));
    const bool told = best != nullptr && best->missing == i;
    if (!there[i] || old || told || marked.contains(i)) file.lacking.push_back(i);
  }
  if (file.lacking.empty()) return file;
  // Of a mirrored file one copy that is whole has all of it.
  const size_t most = IsMirrored(node) ? count - 1 : 1;
  file.state =
      file.lacking.size() <= most ? FileHealth::State::kDegraded : FileHealth::State::kUnavailable;
  if (best == nullptr) return file;
  for (const size_t i : file.lacking) {
    const bool partly = best->missing == i || (marked.contains(i) && best->lacking.contains(i));
    const uint64_t stripes = partly ? best->missed.count() : best->Stripes();
    file.stripes += stripes;
    file.bytes += stripes * best->unit_bytes;
  }
  return file;
}

absl::StatusOr<VolumeHealth> LookAtFiles(const Ref<objfs::Volume>& volume,
                                         const std::vector<std::string>& servers) {
  VolumeHealth health;
  for (size_t i = 0; i < servers.size(); ++i) {
    ServerHealth server{.address = servers[i]};
    if (objfs::IsVacant(servers[i])) {
      health.servers.push_back(std::move(server));
      continue;
    }
    const auto store = volume->ColumnsAt(i);
    auto columns = store.ok() ? AllColumns(*store)
                              : absl::StatusOr<std::map<ObjectId, ColumnState>>(store.status());
    server.answers = columns.ok();
    if (columns.ok()) {
      server.columns = *std::move(columns);
      server.damage = (*store)->Damage().value_or(objfs::ColumnDamage());
    } else {
      server.why = std::string(runtime::ToStd(columns.status().message()));
    }
    health.servers.push_back(std::move(server));
  }
  for (ObjectId after = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(const objfs::SpreadFiles files,
                            volume->Spread(after, kColumnsListedAtOnce));
    for (const objfs::Node& node : files.files) health.files.push_back(HealthOf(node, health));
    health.others += files.others;
    health.other_bytes += files.other_bytes;
    if (files.next == 0) return health;
    after = files.next;
  }
}

const char* NameOfState(FileHealth::State state) {
  switch (state) {
    case FileHealth::State::kWhole:
      return "whole";
    case FileHealth::State::kDegraded:
      return "degraded";
    case FileHealth::State::kUnavailable:
      return "unavailable";
  }
  return "?";
}

// What the schedule of its first server has found, where that has looked at it; nullopt: not.
// `first`: its address; empty: it is not known.
std::optional<ScrubState> ScrubStateOf(runtime::Node& node, const std::string& name,
                                       const std::string& first) {
  std::vector<runtime::Rid> told;
  if (!first.empty()) {
    if (const auto one = node.LookupAt(first, kScrubsName); one.ok()) told.push_back(*one);
  }
  if (const auto all = node.LookupAll(kScrubsName); all.ok()) {
    told.insert(told.end(), all->begin(), all->end());
  }
  for (const runtime::Rid& rid : told) {
    const auto text = node.binding().RefTo<ScrubStates>(rid)->State(name);
    if (!text.ok()) continue;
    const auto state = ScrubState::Decode(*text);
    if (state.ok()) return *state;
  }
  return std::nullopt;
}

std::string WhenText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", time, absl::LocalTimeZone());
}

void PrintScrubs(const std::optional<ScrubState>& state) {
  if (!state.has_value()) return;
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  if (state->begun.has_value()) {
    printf("a scrub is under way since %s: %llu objects of names and inodes, %llu files so far\n",
           WhenText(*state->begun).c_str(), number(state->totals.objects),
           number(state->totals.files));
  }
  if (state->finished.has_value()) {
    const ScrubTotals& last = state->last;
    printf(
        "last scrubbed %s: %llu files, %llu stripes checked, %llu units repaired, %llu parities or "
        "copies made right, %llu stripes damaged beyond repair, %llu files could not be read\n",
        WhenText(*state->finished).c_str(), number(last.files), number(last.stripes),
        number(last.repaired), number(last.mismatched), number(last.damaged), number(last.failed));
    if (last.partial > 0) {
      printf("%llu stripes were not, or not wholly, looked at: a column of them was away\n",
             number(last.partial));
    }
    if (last.objects > 0) printf("%s\n", StoreScrubText(last).c_str());
  }
  if (state->every == absl::ZeroDuration()) {
    printf("no scrub is scheduled ([scrub] every of the first server's configuration)\n");
  } else if (!state->begun.has_value()) {
    printf("the next scrub is due %s\n", WhenText(state->Due()).c_str());
  }
}

// How many servers have all of the names and inodes, and of what is kept with them.
size_t CopiesOfNames(const objfs::MapReport& map) {
  return std::max<size_t>(map.current.size(), 1);
}

nlohmann::json HealthJson(const std::string& name, const VolumeHealth& health,
                          const objfs::MapReport& map, const std::optional<ScrubState>& scrub) {
  nlohmann::json servers = nlohmann::json::array(), files = nlohmann::json::array();
  for (const ServerHealth& server : health.servers) {
    if (objfs::IsVacant(server.address)) continue;
    servers.push_back({{"address", server.address},
                       {"answers", server.answers},
                       {"why", server.why},
                       {"columns", server.columns.size()},
                       {"damaged_blocks", server.damage.blocks},
                       {"damaged_tables", server.damage.tables}});
  }
  for (const FileHealth& file : health.files) {
    if (file.state == FileHealth::State::kWhole) continue;
    files.push_back({{"object", file.id},
                     {"size", file.size},
                     {"state", NameOfState(file.state)},
                     {"lacking_columns", file.lacking},
                     {"stripes_left", file.stripes}});
  }
  return {
      {"volume", name},
      {"map", nlohmann::json::parse(MapJson(map))},
      {"servers", servers},
      {"files", health.files.size()},
      {"whole", health.Count(FileHealth::State::kWhole)},
      {"degraded", health.Count(FileHealth::State::kDegraded)},
      {"unavailable", health.Count(FileHealth::State::kUnavailable)},
      {"bytes_left", health.BytesLeft()},
      {"not_whole", files},
      {"without_columns",
       {{"files", health.others}, {"bytes", health.other_bytes}, {"copies", CopiesOfNames(map)}}},
      {"scrub", scrub.has_value() ? nlohmann::json::parse(scrub->Encode(), nullptr, false)
                                  : nlohmann::json(nullptr)}};
}

void PrintHealth(const std::string& name, const VolumeHealth& health, uint64_t primary) {
  Table table({"server", "answers", "columns", "bytes"});
  for (size_t i = 0; i < health.servers.size(); ++i) {
    const ServerHealth& server = health.servers[i];
    if (objfs::IsVacant(server.address)) continue;
    uint64_t bytes = 0;
    for (const auto& [id, column] : server.columns) bytes += column.allocated;
    table.AddRow({server.address + (i == primary ? " (inodes)" : ""), server.answers ? "yes" : "no",
                  server.answers ? absl::StrCat(server.columns.size()) : "?",
                  server.answers ? runtime::FormatBytes(bytes) : "?"});
  }
  printf("%s\n", table.ToString().c_str());
  for (const ServerHealth& server : health.servers) {
    if (!server.why.empty()) printf("%s: %s\n", server.address.c_str(), server.why.c_str());
    const auto& [blocks, tables] = server.damage;
    if (blocks + tables == 0) continue;
    printf(
        "%s: since it was started %llu damaged blocks were read and %llu damaged tables found, "
        "which its log names; abacus scrub %s repairs what can be\n",
        server.address.c_str(), static_cast<unsigned long long>(blocks),
        static_cast<unsigned long long>(tables), objfs::PlaceOfShard(name).volume.c_str());
  }
  const size_t degraded = health.Count(FileHealth::State::kDegraded);
  const size_t unavailable = health.Count(FileHealth::State::kUnavailable);
  printf("%s: %zu files over several servers, %zu of them whole\n", name.c_str(),
         health.files.size(), health.Count(FileHealth::State::kWhole));
  if (degraded > 0) {
    printf(
        "%zu degraded: all that they have is there, and the next server that dies may take it "
        "along\n",
        degraded);
  }
  if (unavailable > 0) {
    printf("%zu unavailable: more is away than their layers can do without\n", unavailable);
  }
  size_t shown = 0;
  for (const FileHealth& file : health.files) {
    if (file.state == FileHealth::State::kWhole || ++shown > kFilesShownMax) continue;
    std::string lacking;
    for (const size_t column : file.lacking) absl::StrAppend(&lacking, " ", column);
    printf("  object %llu, %s, %s: column%s, %llu stripes\n",
           static_cast<unsigned long long>(file.id), runtime::FormatBytes(file.size).c_str(),
           NameOfState(file.state), lacking.c_str(), static_cast<unsigned long long>(file.stripes));
  }
  if (shown > kFilesShownMax) printf("  and %zu more\n", shown - kFilesShownMax);
  if (degraded + unavailable > 0) {
    printf("%s to be written anew; once the servers answer: abacus rebuild %s\n",
           runtime::FormatBytes(health.BytesLeft()).c_str(),
           objfs::PlaceOfShard(name).volume.c_str());
  }
}

void PrintWithoutColumns(const VolumeHealth& health, const objfs::MapReport& map) {
  if (health.others == 0) return;
  const size_t copies = CopiesOfNames(map);
  printf("files without columns, kept with the names and inodes at %zu server%s: %llu, of %s\n",
         copies, copies == 1 ? " alone, and lost with its disk" : "s",
         static_cast<unsigned long long>(health.others),
         runtime::FormatBytes(health.other_bytes).c_str());
}

// A volume, or a shard of one, found.
struct FoundVolume {
  std::string name;
  Ref<objfs::Volume> volume;
  std::vector<std::string> servers;  // that files may be spread over; none: it is at one server
};

absl::StatusOr<FoundVolume> FindVolume(runtime::Node& node, const std::string& name) {
  FoundVolume found{.name = name, .volume = {}, .servers = {}};
  ABACUS_ASSIGN_OR_RETURN(found.volume, VolumeOf(node, name));
  ABACUS_ASSIGN_OR_RETURN(const VolumeSets sets, VolumesOf(node));
  bool is_on_one = false;
  absl::Status silent;  // of servers that do not say
  for (const auto& set : sets) {
    const auto servers = set->Servers(name);
    if (servers.ok() && !servers->empty()) found.servers = *servers;
    is_on_one = is_on_one || (servers.ok() && servers->empty());
    if (!servers.ok() && !HasNone(servers.status())) silent.Update(servers.status());
  }
  if (!found.servers.empty() || is_on_one) return found;
  ABACUS_RETURN_IF_ERROR(silent);
  return absl::UnavailableError(
      absl::StrCat("none of the servers that are known here keeps the list of volume '", name,
                   "': name one of the volume's, --server HOST:PORT"));
}

using RepairTotals = ScrubTotals;  // a rebuild's `stripes` are those that it rebuilt

// Leaves a volume's servers to others, where there are any, as long as a step had them. Others are
// those who change names of the volume, use columns of other files of it, or open the same one;
// other volumes are not seen, nor bytes of files that are kept once.
class Courtesy {
 public:
  Courtesy(runtime::Node& node, const std::string& volume, const VolumeHealth& health) {
    std::set<std::string> answering;
    for (const ServerHealth& server : health.servers) {
      if (server.answers) answering.insert(server.address);
    }
    const auto shards = ShardNames(node, volume);
    if (!shards.ok()) return;
    for (const std::string& name : *shards) {
      const auto found = FindVolume(node, name);
      if (!found.ok()) continue;
      volumes_.push_back(found->volume);
      for (size_t i = 0; i < found->servers.size(); ++i) {
        if (!answering.contains(found->servers[i])) continue;
        const auto columns = found->volume->ColumnsAt(i);
        if (columns.ok()) columns_.push_back({*columns, absl::InfinitePast()});
      }
    }
  }

  // A step begins. `file`: which it repairs; 0: none.
  void Begin(ObjectId file) { uses_ = UsesBut(file); }
  // It ended, and took so long. Who does not tell may have others.
  void End(ObjectId file, absl::Duration took) {
    const std::optional<uint64_t> uses = UsesBut(file);
    if (!uses.has_value() || uses != uses_) absl::SleepFor(took);
  }

 private:
  struct Columns {
    Ref<objfs::ColumnStore> store;
    absl::Time ask;  // not before; it would be waited for
  };

  std::optional<uint64_t> UsesBut(ObjectId file) {
    uint64_t sum = 0;
    bool tell = true;
    for (const Ref<objfs::Volume>& volume : volumes_) {
      const auto commits = volume->Commits();
      tell = tell && commits.ok();
      if (commits.ok()) sum += commits->committed;
    }
    for (Columns& columns : columns_) {
      if (absl::Now() < columns.ask) continue;
      const auto uses = columns.store->UsesBut(file);
      tell = tell && uses.ok();
      if (uses.ok()) {
        sum += *uses;
      } else {
        columns.ask = absl::Now() + kAskAgain;
      }
    }
    return tell ? std::optional<uint64_t>(sum) : std::nullopt;
  }

  std::vector<Ref<objfs::Volume>> volumes_;  // its shards
  std::vector<Columns> columns_;             // of servers that answered
  std::optional<uint64_t> uses_;
};

// Goes over what is missing again and again, until there is nothing, or until once more changes
// nothing, as what is left is damaged elsewhere or only the missing column knows it. What others
// write while a copy comes and goes for them is to be brought back too.
absl::Status RebuildFile(objfs::FileSystem& files, const FileHealth& file, Courtesy* courtesy,
                         RepairTotals* totals, const std::function<void(uint64_t)>& on_left) {
  objfs::Caller caller;
  caller.checked = true;
  ABACUS_ASSIGN_OR_RETURN(const objfs::FileHandle handle, files.Open(caller, file.id, 0));
  absl::Status status;
  uint64_t from = 0, damaged = 0;
  std::optional<uint64_t> left;  // when all had been gone over
  int passes_in_vain = 0;
  for (;;) {
    courtesy->Begin(file.id);
    const absl::Time begin = absl::Now();
    const auto progress = files.Rebuild(handle, from, kStripesAtOnce);
    const absl::Duration took = absl::Now() - begin;
    status = progress.status();
    if (!progress.ok()) break;
    totals->stripes += progress->rebuilt;
    damaged += progress->damaged;
    on_left(progress->left);
    courtesy->End(file.id, took);
    if (progress->left == 0) break;
    from = progress->next;
    if (from != 0) continue;
    const bool in_vain = left.has_value() && progress->left >= *left;
    if (in_vain && damaged + progress->doubtful > 0) {
      totals->damaged += damaged;
      status = absl::DataLossError(absl::StrCat(
          progress->left, " stripes cannot be rebuilt: ", damaged, " are damaged elsewhere, and ",
          progress->doubtful, " only the missing column knows"));
      break;
    }
    if (in_vain && ++passes_in_vain == kPassesInVain) {
      status = absl::UnavailableError(
          absl::StrCat(progress->left, " stripes are missing after each of ", kPassesInVain,
                       " passes: others write to the file faster than it is rebuilt, or a server "
                       "comes and goes"));
      break;
    }
    left = progress->left;
    damaged = 0;
  }
  status.Update(files.Release(handle));
  return status;
}

absl::StatusOr<RepairTotals> Repair(runtime::Node& node, const RepairOptions& options,
                                    const FoundVolume& found) {
  ABACUS_ASSIGN_OR_RETURN(const VolumeHealth health, LookAtFiles(found.volume, found.servers));
  // Files are used by way of the whole volume, which is found by its first shard.
  ABACUS_ASSIGN_OR_RETURN(const Ref<objfs::Volume> whole, VolumeOf(node, options.name));
  ABACUS_ASSIGN_OR_RETURN(const auto files, objfs::FileSystem::Make(whole, Kinds(), HostOf(node),
                                                                    {.client = node.name()}));
  const bool rebuilds = options.what == RepairOptions::What::kRebuild;
  std::vector<FileHealth> todo;
  uint64_t total = 0;
  for (const FileHealth& file : health.files) {
    if (rebuilds && file.state == FileHealth::State::kWhole) continue;
    todo.push_back(file);
    total += rebuilds ? file.bytes : file.size;
  }
  Progress::Options shown = Progress::OptionsFor(STDERR_FILENO);
  shown.total_bytes = total;
  shown.title = rebuilds ? "rebuild" : "scrub";
  Progress progress(shown, absl::Now(),
                    [](std::string_view text) { WriteAll(STDERR_FILENO, text).IgnoreError(); });
  RepairTotals totals;
  objfs::StorePlace place;
  Courtesy courtesy(node, options.name, health);
  const auto rest = [&](uint64_t, absl::Duration took) {
    progress.Update(absl::Now(), 0, absl::StrCat(totals.objects, " objects of names and inodes"));
    courtesy.End(0, took);
    courtesy.Begin(0);
    return true;
  };
  courtesy.Begin(0);
  if (!rebuilds) ABACUS_RETURN_IF_ERROR(ScrubStore(found.volume, &place, &totals, rest));
  uint64_t done = 0;
  for (const FileHealth& file : todo) {
    const std::string which = absl::StrCat("file ", ++totals.files, " of ", todo.size());
    const uint64_t each = file.stripes == 0 ? 0 : file.bytes / file.stripes;
    if (!rebuilds) courtesy.Begin(file.id);  // else before each step
    const absl::Status status =
        rebuilds ? RebuildFile(*files, file, &courtesy, &totals,
                               [&](uint64_t left) {
                                 const uint64_t rest = std::min(left * each, file.bytes);
                                 progress.Update(absl::Now(), done + file.bytes - rest, which);
                               })
                 : ScrubFile(*files, file.id, &totals, [&](uint64_t, absl::Duration took) {
                     courtesy.End(file.id, took);
                     courtesy.Begin(file.id);
                     return true;
                   });
    done += rebuilds ? file.bytes : file.size;
    progress.Update(absl::Now(), done, which);
    // Who removed it meanwhile has no use for it.
    if (status.ok() || objfs::FsErrorOf(status) == objfs::FsError::kStale) continue;
    ++totals.failed;
    progress.Note(absl::StrCat("object ", file.id, ": ", status.message()));
  }
  progress.Finish(absl::Now());
  return totals;
}

void PrintStack(const std::string& stack) {
  if (!stack.empty()) printf("where nobody says another, new files have %s\n", stack.c_str());
}

int TellOnOne(runtime::Node& node, const FoundVolume& found, const std::string& what,
              nlohmann::json* told) {
  const auto health = LookAtFiles(found.volume, {});
  if (!health.ok()) return Fail(health.status());
  const auto stack = found.volume->OwnFileStack();
  if (!stack.ok()) return Fail(stack.status());
  const auto scrub = ScrubStateOf(node, found.name, "");
  told->update(HealthJson(found.name, *health, objfs::MapReport(), scrub));
  told->erase("map");
  (*told)["stack"] = *stack;
  printf("%s is at one server, as it was made without --servers\n", what.c_str());
  PrintWithoutColumns(*health, objfs::MapReport());
  PrintStack(*stack);
  PrintScrubs(scrub);
  return kExitOk;
}

// The map is told even where nobody answers for it. `what`: as people are told of it. `told`: is
// added to.
int TellShard(runtime::Node& node, const std::string& name, const std::string& what,
              nlohmann::json* told) {
  const absl::StatusOr<FoundVolume> found = FindVolume(node, name);
  if (found.ok() && found->servers.empty()) return TellOnOne(node, *found, what, told);
  const auto map = MapOfVolume(node, name);
  if (map.ok()) {
    printf("%s", MapText(what, *map).c_str());
    (*told)["map"] = nlohmann::json::parse(MapJson(*map));
  }
  if (!found.ok() || !map.ok()) return Fail(found.ok() ? map.status() : found.status());
  const auto health = LookAtFiles(found->volume, found->servers);
  if (!health.ok()) return Fail(health.status());
  const auto stack = found->volume->OwnFileStack();
  if (!stack.ok()) return Fail(stack.status());
  const size_t primary = map->primary < found->servers.size() ? map->primary : 0;
  const auto scrub = ScrubStateOf(node, name, found->servers[primary]);
  told->update(HealthJson(name, *health, *map, scrub));
  (*told)["stack"] = *stack;
  PrintHealth(name, *health, map->primary);
  PrintWithoutColumns(*health, *map);
  PrintStack(*stack);
  PrintScrubs(scrub);
  const bool files = health->Count(FileHealth::State::kWhole) == health->files.size();
  return files && IsMapWhole(*map) ? kExitOk : kExitNo;
}

// What was told of each shard that was come to; where the volume has one only, that is all.
absl::Status SaveTold(const RepairOptions& options, bool has_several, const nlohmann::json& told) {
  if (options.json.empty() || told.empty()) return absl::OkStatus();
  nlohmann::json all = {{"volume", options.name}, {"shards", told}};
  if (!has_several) {
    all = told[0];
    all.erase("shard");
  }
  if (all.empty()) return absl::OkStatus();
  return WriteFile(options.json, all.dump(2) + "\n");
}

// Of all shards, whatever is the matter with some of them.
int TellStatus(runtime::Node& node, const RepairOptions& options) {
  const auto names = ShardNames(node, options.name);
  if (!names.ok()) return Fail(names.status());
  const bool has_several = names->size() > 1;
  int code = kExitOk;
  nlohmann::json shards = nlohmann::json::array();
  ShardWork work;
  work.run = [&](const std::string& shard) {
    nlohmann::json told = {{"shard", objfs::PlaceOfShard(shard).shard}};
    const std::string what = has_several ? ShardText(shard) : objfs::VolumeText(shard);
    code = std::max(code, TellShard(node, shard, what, &told));
    shards.push_back(std::move(told));
    return absl::OkStatus();
  };
  absl::Status status = WithShards(*names, work);
  status.Update(SaveTold(options, has_several, shards));
  return status.ok() ? code : Fail(status);
}

absl::Status IsOneAlready(const RepairOptions& options) {
  return absl::InvalidArgumentError(absl::StrCat("server ", options.to, " is one of volume '",
                                                 options.name,
                                                 "' already; without --to it is rebuilt as it is"));
}

// Before anything is rebuilt: it can be put into no place. Where it is one of some shards only, it
// is said again, after it had failed at the others.
absl::Status CheckIsNew(runtime::Node& node, const RepairOptions& options) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> shards, ShardNames(node, options.name));
  for (const std::string& shard : shards) {
    ABACUS_ASSIGN_OR_RETURN(const FoundVolume found, FindVolume(node, shard));
    const auto& servers = found.servers;
    if (std::find(servers.begin(), servers.end(), options.to) == servers.end()) {
      return absl::OkStatus();
    }
  }
  return IsOneAlready(options);
}

// The server that does not answer is lost: another one comes into its place, to be rebuilt.
absl::Status ReplaceLost(runtime::Node& node, const RepairOptions& options, FoundVolume* found) {
  ABACUS_ASSIGN_OR_RETURN(const VolumeHealth health, LookAtFiles(found->volume, found->servers));
  bool is_known = false;
  std::vector<std::string> lost;
  for (const ServerHealth& server : health.servers) {
    is_known = is_known || server.address == options.to;
    if (!server.answers && !objfs::IsVacant(server.address)) lost.push_back(server.address);
  }
  if (is_known && !lost.empty()) return IsOneAlready(options);
  if (is_known) return absl::OkStatus();  // of this shard, and not of all
  if (lost.size() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        lost.empty()
            ? "all servers answer"
            : absl::StrCat(lost.size(), " servers do not answer: ", absl::StrJoin(lost, ", ")),
        "; which one is lost for good? Say: abacus volume replace-server ", options.name, " LOST ",
        options.to, ", then abacus rebuild ", options.name));
  }
  ABACUS_ASSIGN_OR_RETURN(const auto set, FirstServerOf(node, found->name));
  ABACUS_RETURN_IF_ERROR(set->ChangeServer(found->name, lost[0], options.to, /*forced=*/false));
  printf("%s is in the place of %s\n", options.to.c_str(), lost[0].c_str());
  ABACUS_ASSIGN_OR_RETURN(found->servers, set->Servers(found->name));
  return absl::OkStatus();
}

void PrintRepaired(const RepairOptions& options, const RepairTotals& totals) {
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  if (options.what == RepairOptions::What::kRebuild) {
    printf("%llu files looked at, %llu stripes rebuilt, %llu files not whole yet\n",
           number(totals.files), number(totals.stripes), number(totals.failed));
    return;
  }
  printf(
      "%llu files, %llu stripes checked: %llu units repaired, %llu parities or copies made right, "
      "%llu stripes damaged beyond repair, %llu files could not be read\n",
      number(totals.files), number(totals.stripes), number(totals.repaired),
      number(totals.mismatched), number(totals.damaged), number(totals.failed));
  if (totals.partial > 0) {
    printf("%llu stripes not, or not wholly, looked at: a column of them is away\n",
           number(totals.partial));
  }
  printf("%s\n", StoreScrubText(totals).c_str());
}

nlohmann::json RepairedJson(const RepairOptions& options, const std::string& shard,
                            const RepairTotals& totals) {
  nlohmann::json json = nlohmann::json::parse(totals.Encode());
  if (options.what == RepairOptions::What::kRebuild) {
    json = {{"files", totals.files},
            {"stripes_rebuilt", totals.stripes},
            {"damaged", totals.damaged},
            {"failed", totals.failed}};
  }
  json["volume"] = shard;
  json["shard"] = objfs::PlaceOfShard(shard).shard;
  return json;
}

// `code`: the worst of all shards. `told`: is added to.
absl::Status RepairShard(runtime::Node& node, const std::string& shard,
                         const RepairOptions& options, int* code, nlohmann::json* told) {
  ABACUS_ASSIGN_OR_RETURN(FoundVolume found, FindVolume(node, shard));
  if (found.servers.empty() && options.what == RepairOptions::What::kRebuild) {
    return absl::FailedPreconditionError(absl::StrCat(
        "volume '", options.name, "' was made without --servers: nothing of it is at several ",
        "servers, to be rebuilt from. To check it: abacus scrub ", options.name));
  }
  if (!options.to.empty()) ABACUS_RETURN_IF_ERROR(ReplaceLost(node, options, &found));
  ABACUS_ASSIGN_OR_RETURN(const RepairTotals totals, Repair(node, options, found));
  PrintRepaired(options, totals);
  told->push_back(RepairedJson(options, shard, totals));
  if (totals.HasLoss()) *code = kExitNo;
  return absl::OkStatus();
}

// Where a shard fails, what was done of those before it is saved too.
absl::Status RepairAll(runtime::Node& node, const RepairOptions& options, int* code) {
  if (!options.to.empty()) ABACUS_RETURN_IF_ERROR(CheckIsNew(node, options));
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ShardNames(node, options.name));
  nlohmann::json told = nlohmann::json::array();
  ShardWork work;
  work.run = [&](const std::string& shard) {
    return RepairShard(node, shard, options, code, &told);
  };
  absl::Status status = WithShards(names, work);
  status.Update(SaveTold(options, names.size() > 1, told));
  return status;
}

}  // namespace

int RepairCommand(const RepairOptions& options) {
  const auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  runtime::Node& node = (*client)->node();
  if (options.what == RepairOptions::What::kStatus) return TellStatus(node, options);
  int code = kExitOk;
  const absl::Status status = RepairAll(node, options, &code);
  return status.ok() ? code : Fail(status);
}

}  // namespace abacus::apps
