#include "objfs/check/shards_scan.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/object_id.h"

namespace abacus::objfs {
namespace {

constexpr uint8_t kDirectoryType = S_IFDIR >> 12;

bool IsBefore(const UnexplainedInode& inode, ObjectId id) { return inode.id < id; }

std::string OfShard(ObjectId id) { return absl::StrCat("object ", id, " of shard ", ShardOf(id)); }

std::string CountOfNames(uint64_t count) {
  return count == 1 ? "1 name" : absl::StrCat(count, " names");
}

// The names of all shards, by rising id, each id once.
std::vector<ForeignNames> NamesOfAll(const std::vector<ShardLook>& looks) {
  std::vector<ForeignNames> all;
  for (const ShardLook& look : looks) {
    all.insert(all.end(), look.foreign.begin(), look.foreign.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const ForeignNames& a, const ForeignNames& b) { return a.id < b.id; });
  std::vector<ForeignNames> names;
  for (const ForeignNames& one : all) {
    if (names.empty() || names.back().id != one.id) {
      names.push_back(one);
      continue;
    }
    names.back().names += one.names;
    names.back().types |= one.types;
  }
  return names;
}

class ShardComparer {
 public:
  explicit ShardComparer(const std::vector<ShardLook>& looks)
      : looks_(looks), names_(NamesOfAll(looks)) {
    for (const ShardLook& look : looks) {
      foreign_end_ = std::min(foreign_end_, look.foreign_end);
      incomplete_ = incomplete_ || look.incomplete;
    }
  }

  std::vector<ObjectId> ToAsk() const {
    std::vector<ObjectId> ids;
    for (const ForeignNames& names : names_) {
      const bool asks = IsCompared(names.id) && !IsOwn(names.id) && Find(names.id) == nullptr;
      if (asks) ids.push_back(names.id);
    }
    return ids;
  }

  ShardsComparison Run() {
    result_.followed.resize(looks_.size());
    result_.unsettled.resize(looks_.size());
    for (const ShardLook& look : looks_) {
      for (const ForeignNames& names : look.foreign) {
        if (IsCompared(names.id)) result_.followed[look.shard] += names.names;
      }
      result_.in_doubt.insert(result_.in_doubt.end(), look.in_doubt.begin(), look.in_doubt.end());
    }
    for (const ForeignNames& names : names_) {
      if (IsCompared(names.id)) LookAtNames(names);
    }
    for (const ShardLook& look : looks_) {
      for (const UnexplainedInode& inode : look.unexplained) {
        if (inode.type != 0 && IsCompared(inode.id) && !HasForeignNames(inode.id)) {
          LookAtUnnamed(inode);
        }
      }
    }
    return std::move(result_);
  }

 private:
  // Whether all is told that there is of it.
  bool IsCompared(ObjectId id) const {
    const uint32_t shard = ShardOf(id);
    return shard < looks_.size() && id < foreign_end_ && id < looks_[shard].unexplained_end;
  }
  // The shard's, and no file.
  bool IsOwn(ObjectId id) const {
    const ShardLook& look = looks_[ShardOf(id)];
    return id == look.root || id == look.records;
  }
  const UnexplainedInode* Find(ObjectId id) const {
    const std::vector<UnexplainedInode>& inodes = looks_[ShardOf(id)].unexplained;
    const auto at = std::lower_bound(inodes.begin(), inodes.end(), id, IsBefore);
    return at != inodes.end() && at->id == id ? &*at : nullptr;
  }
  bool HasForeignNames(ObjectId id) const {
    const auto at = std::lower_bound(
        names_.begin(), names_.end(), id,
        [](const ForeignNames& names, ObjectId wanted) { return names.id < wanted; });
    return at != names_.end() && at->id == id;
  }

  ShardFault& Fail(FaultKind kind, ObjectId object, const UnexplainedInode* inode,
                   std::string text) {
    Fault fault;
    fault.kind = kind;
    fault.object = object;
    fault.text = std::move(text);
    const VersionNumber version = inode == nullptr ? 0 : inode->version;
    result_.faults.push_back(
        {.fault = std::move(fault), .version = version, .repair = std::nullopt});
    return result_.faults.back();
  }

  void LookAtNames(const ForeignNames& names) {
    const UnexplainedInode* const inode = Find(names.id);
    if (IsOwn(names.id) || inode == nullptr) {
      result_.gone.push_back(names.id);
      Fail(FaultKind::kName, names.directory, nullptr,
           absl::StrCat("a name in it leads to ", OfShard(names.id),
                        ", where there is no such file (", CountOfNames(names.names), " in all)"));
      return;
    }
    if (inode->type == 0) return;
    if (names.types != uint32_t{1} << inode->type) {
      Fail(FaultKind::kName, names.directory, inode,
           absl::StrCat("a name in it calls ", OfShard(names.id), " another thing than a ",
                        NameOfType(inode->type),
                        ", which it is: move what it names to another name"));
    }
    if (inode->type == kDirectoryType) {
      LookAtDirectory(names, *inode);
    } else {
      LookAtLinks(*inode, uint64_t{inode->names} + names.names);
    }
  }

  void LookAtDirectory(const ForeignNames& names, const UnexplainedInode& inode) {
    const uint64_t all = uint64_t{inode.names} + names.names;
    if (all > 1) {
      Fail(FaultKind::kName, inode.id, &inode,
           absl::StrCat(CountOfNames(all), " of this directory, one of them in object ",
                        names.directory, ", and its parent is ", inode.parent,
                        ": move what is in it elsewhere, remove it by one of them, and check ",
                        "again with --repair"));
    } else if (inode.links == 0) {
      Fail(FaultKind::kLinks, inode.id, &inode,
           absl::StrCat("a name in object ", names.directory,
                        " leads to this directory, which counts no links and is removed soon: "
                        "copy what is in it"));
    } else {
      LookAtParent(inode, names.directory);
    }
  }

  void LookAtParent(const UnexplainedInode& inode, ObjectId directory) {
    if (inode.parent == directory) return;
    InodeChange change;
    change.parent = directory;
    Fail(FaultKind::kParent, inode.id, &inode,
         absl::StrCat("its parent is object ", inode.parent, ", and its name is in ", directory,
                      ": --repair sets the parent right"))
        .repair = change;
  }

  void LookAtLinks(const UnexplainedInode& inode, uint64_t names) {
    if (inode.links == names || (names < inode.links && incomplete_)) return;
    InodeChange change;
    change.links = static_cast<int32_t>(static_cast<int64_t>(names) - int64_t{inode.links});
    Fail(FaultKind::kLinks, inode.id, &inode,
         absl::StrCat(CountOfNames(names), " in all shards, and it counts ", inode.links,
                      ": --repair sets the count right"))
        .repair = change;
  }

  void LookAtUnnamed(const UnexplainedInode& inode) {
    if (inode.names > 0 && inode.type == kDirectoryType) {
      LookAtParent(inode, inode.named_in);  // which is in another shard, and has no name of it
    } else if (inode.names > 0) {
      LookAtLinks(inode, inode.names);
    } else if (!incomplete_) {
      Fail(FaultKind::kUnreachable, inode.id, &inode,
           absl::StrCat("a ", NameOfType(inode.type),
                        ": no name in any shard leads to it. It is kept as it is; its name can "
                        "come back with a copy of the shard that had it"));
    }
  }

  const std::vector<ShardLook>& looks_;
  const std::vector<ForeignNames> names_;
  ObjectId foreign_end_ = UINT64_MAX;
  bool incomplete_ = false;
  ShardsComparison result_;
};

}  // namespace

std::vector<ObjectId> ToAsk(const std::vector<ShardLook>& looks) {
  return ShardComparer(looks).ToAsk();
}

absl::Status TakeAsked(const std::vector<ObjectId>& ids,
                       const absl::StatusOr<std::vector<Node>>& nodes, ShardLook* look) {
  std::vector<UnexplainedInode> told;
  if (absl::IsDataLoss(nodes.status())) {
    for (const ObjectId id : ids) told.push_back({.id = id});
  } else if (!nodes.ok()) {
    return nodes.status();
  } else {
    for (const Node& node : *nodes) {
      if (node.id == 0) continue;  // it is not there
      // Names of its own shard explain it, or it would have been told before; but it may be new.
      const bool is_directory = node.inode.IsDirectory();
      told.push_back({.id = node.id,
                      .parent = node.inode.parent,
                      .named_in = node.inode.parent,
                      .version = node.version.value,
                      .links = node.inode.links,
                      .names = is_directory ? std::min(node.inode.links, 1u) : node.inode.links,
                      .type = static_cast<uint8_t>(node.inode.mode >> 12)});
    }
  }
  std::vector<UnexplainedInode>& all = look->unexplained;
  all.insert(all.end(), told.begin(), told.end());
  std::sort(all.begin(), all.end(),
            [](const UnexplainedInode& a, const UnexplainedInode& b) { return a.id < b.id; });
  return absl::OkStatus();
}

ShardsComparison CompareShards(const std::vector<ShardLook>& looks) {
  return ShardComparer(looks).Run();
}

ShardsComparison StillSo(const ShardsComparison& first, ShardsComparison second) {
  std::set<std::pair<std::string, VersionNumber>> before;
  for (const ShardFault& found : first.faults) before.emplace(found.fault.Line(), found.version);
  // What these are about is the coordinator's to say, which may have done its part of it.
  std::set<uint32_t> coordinators;
  for (const GroupInDoubt& group : second.in_doubt) {
    const auto same = std::find(first.in_doubt.begin(), first.in_doubt.end(), group);
    if (same != first.in_doubt.end()) coordinators.insert(group.coordinator);
  }
  std::vector<ShardFault> still;
  for (ShardFault& found : second.faults) {
    const uint32_t shard = ShardOf(found.fault.object);
    const bool is_same = before.contains({found.fault.Line(), found.version});
    if (is_same && !coordinators.contains(shard)) {
      still.push_back(std::move(found));
    } else if (shard < second.unsettled.size()) {
      ++second.unsettled[shard];
    }
  }
  second.faults = std::move(still);
  return second;
}

}  // namespace abacus::objfs
