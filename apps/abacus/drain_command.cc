// abacus volume drain: a server that lives leaves a volume, and another one keeps what it has kept:
// of each of its shards in turn.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
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
#include "apps/abacus/volumes.h"
#include "apps/cli/progress.h"
#include "objfs/volume/shard.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

using objfs::ColumnStore;
using objfs::ObjectId;
using runtime::Ref;

// A column that has more is copied before the file is taken from its users; smaller ones are
// copied while they wait, which takes no longer than what that would need.
constexpr uint64_t kSmallBytes = uint64_t{1} << 20;
constexpr uint64_t kBytesAtOnce = uint64_t{8} << 20;
// Until so few bytes have changed since, or it was looked so often, the file stays with its users.
constexpr uint64_t kChangedBytesFew = uint64_t{4} << 20;
constexpr int kLooksForChanges = 8;
constexpr int kCopiesBegun = 4;
constexpr uint64_t kFilesAtOnce = 1000, kColumnsAtOnce = 1000;
// Times through all files: those that are made meanwhile go elsewhere.
constexpr int kPasses = 4;
// Who keeps something of a file may take so long to bring it; a dead one's lease is shorter.
constexpr absl::Duration kUsersPatience = absl::Minutes(2);
constexpr absl::Duration kAskAgain = absl::Milliseconds(10);
constexpr absl::Duration kBeat = absl::Seconds(1);
// The copy of names and inodes comes no further.
constexpr absl::Duration kCopyPatience = absl::Minutes(1);

class Drain {
 public:
  Drain(runtime::Node& node, std::string name, const VolumeOptions& options)
      : node_(node), name_(std::move(name)), options_(options) {}
  ~Drain() { Leave(); }

  // Whether Run() could begin. Errors: those of CheckItCanGo(), or where the shard is not found.
  absl::Status CanGo();
  absl::Status Run();
  // After one of these. False: the server had left before.
  bool HasServer() const { return map_.servers.empty() || IsServer(options_.before); }

 private:
  absl::Status Find();
  bool IsServer(const std::string& address) const { return PlaceOf(address) < map_.servers.size(); }
  uint32_t PlaceOf(const std::string& address) const {
    return static_cast<uint32_t>(std::find(map_.servers.begin(), map_.servers.end(), address) -
                                 map_.servers.begin());
  }
  // Before anything is changed.
  absl::Status CheckItCanGo();
  // Where fewer servers will be left than new files need; advice, which may be left out.
  void WarnOfTheStack();
  absl::Status HandOver();
  absl::Status MoveNames();
  absl::Status Join();
  void Leave();
  void Beat();
  // Files that have a column there still.
  absl::StatusOr<std::vector<objfs::Node>> FilesThere();
  absl::Status LearnSizes();
  absl::Status MoveFiles();
  absl::Status MoveFile(const objfs::Node& file);
  absl::Status MoveOpened(const objfs::Node& file, uint32_t to);
  // The number of the copy.
  absl::StatusOr<uint64_t> CopyBefore(ObjectId id, const Ref<ColumnStore>& target);
  absl::Status MoveNow(ObjectId id, const objfs::ColumnMove& move);
  absl::StatusOr<uint32_t> TargetOf(const objfs::Node& file) const;
  void Show(uint64_t bytes_of_this);

  runtime::Node& node_;
  const std::string name_;  // of the shard; what users are told to say has that of the volume
  std::string what_;        // as they are told of it
  const VolumeOptions& options_;
  Ref<objfs::VolumeSet> set_;
  Ref<objfs::Volume> volume_;
  objfs::MapReport map_;
  uint32_t from_ = 0;
  uint16_t writer_ = 0;  // 0: has not joined
  absl::Time beat_;
  Ref<ColumnStore> source_;
  std::map<ObjectId, uint64_t> sizes_;  // bytes of its columns

  std::unique_ptr<Progress> progress_;
  uint64_t done_bytes_ = 0;
  std::string which_;
  size_t moved_ = 0, failed_ = 0;
};

absl::Status Drain::Find() {
  ABACUS_ASSIGN_OR_RETURN(set_, FirstServerOf(node_, name_));
  ABACUS_ASSIGN_OR_RETURN(volume_, set_->Open(name_));
  ABACUS_ASSIGN_OR_RETURN(const uint32_t shards, volume_->Shards());
  what_ = shards > 1 ? ShardText(name_) : absl::StrCat("volume '", name_, "'");
  ABACUS_ASSIGN_OR_RETURN(map_, set_->Map(name_));
  from_ = PlaceOf(options_.before);
  return absl::OkStatus();
}

absl::Status Drain::CheckItCanGo() {
  if (options_.now == options_.before) {
    return absl::InvalidArgumentError("--to takes another server than the one that is drained");
  }
  const bool other_copy = std::any_of(map_.current.begin(), map_.current.end(),
                                      [&](uint32_t place) { return place != map_.primary; });
  if (map_.primary == from_ && !other_copy) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", options_.before, " answers for ", what_, ", and ",
        map_.copies.size() > 1
            ? "the other copy of its names and inodes is not current: see abacus volume status"
            : "alone has its names and inodes: it cannot be drained (a volume made with --map and "
              "--metadata-copies 2 outlives each of its servers)"));
  }
  const auto source = volume_->ColumnsAt(from_);
  const absl::Status answer = source.ok() ? (*source)->List(0, 1).status() : source.status();
  if (answer.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("server ", options_.before, " does not answer (", answer.message(),
                   "). One that is lost is replaced and not drained: abacus volume replace-server ",
                   options_.name, " ", options_.before, " ",
                   IsServer(options_.now) ? "HOST:PORT (none of its servers)" : options_.now,
                   ", then abacus rebuild ", options_.name));
}

absl::Status Drain::CanGo() {
  ABACUS_RETURN_IF_ERROR(Find());
  return IsServer(options_.before) ? CheckItCanGo() : absl::OkStatus();
}

absl::Status Drain::Run() {
  ABACUS_RETURN_IF_ERROR(Find());
  if (!IsServer(options_.before)) {
    ABACUS_RETURN_IF_ERROR(set_->RemoveServer(name_, options_.before));
    printf("%s had left %s before; now its other servers know\n", options_.before.c_str(),
           what_.c_str());
    return absl::OkStatus();
  }
  ABACUS_RETURN_IF_ERROR(CheckItCanGo());
  WarnOfTheStack();
  if (!IsServer(options_.now)) {
    ABACUS_RETURN_IF_ERROR(set_->ChangeServer(name_, std::string(), options_.now, false));
    ABACUS_RETURN_IF_ERROR(Find());
  }
  ABACUS_RETURN_IF_ERROR(HandOver());
  ABACUS_RETURN_IF_ERROR(volume_->AvoidServer(from_));
  ABACUS_RETURN_IF_ERROR(MoveNames());
  ABACUS_RETURN_IF_ERROR(Join());
  absl::Status moved = MoveFiles();
  Leave();
  ABACUS_RETURN_IF_ERROR(moved);
  ABACUS_RETURN_IF_ERROR(set_->RemoveServer(name_, options_.before));
  printf("%zu files moved; %s is no server of %s any more\n", moved_, options_.before.c_str(),
         what_.c_str());
  return absl::OkStatus();
}

void Drain::WarnOfTheStack() {
  if (objfs::PlaceOfShard(name_).shard > 0) return;  // all have the same
  const absl::StatusOr<std::string> stack = volume_->OwnFileStack();
  if (!stack.ok()) return;
  const size_t left = CountServers(map_.servers) - (IsServer(options_.now) ? 1 : 0);
  const std::string text = TooFewServersText(options_.name, *stack, left);
  if (!text.empty()) fprintf(stderr, "%s\n", text.c_str());
}

absl::Status Drain::HandOver() {
  if (map_.primary != from_) return absl::OkStatus();
  printf("%s answers for %s: another server takes over\n", options_.before.c_str(), what_.c_str());
  ABACUS_RETURN_IF_ERROR(set_->HandOver(name_));
  ABACUS_RETURN_IF_ERROR(Find());
  if (map_.primary != from_) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("server ", options_.before, " answers for ", what_, " again; try again"));
}

// Until all that keep names and inodes are current again.
absl::Status Drain::MoveNames() {
  ABACUS_RETURN_IF_ERROR(set_->MoveCopy(name_, options_.before, options_.now));
  Progress::Options shown = Progress::OptionsFor(STDERR_FILENO);
  shown.title = "names and inodes";
  Progress progress(shown, absl::Now(),
                    [](std::string_view text) { WriteAll(STDERR_FILENO, text).IgnoreError(); });
  absl::Time last = absl::Now();
  for (uint64_t seen = 0;; absl::SleepFor(absl::Milliseconds(100))) {
    const auto map = set_->Map(name_);
    if (map.ok()) map_ = *map;
    if (map.ok() && map_.current.size() == map_.copies.size()) return absl::OkStatus();
    if (map_.objects_done != seen) last = absl::Now();
    seen = map_.objects_done;
    progress.Update(absl::Now(), 0,
                    absl::StrCat(map_.objects_done, " of ", map_.objects_all, " objects"));
    if (absl::Now() - last < kCopyPatience) continue;
    return absl::UnavailableError(
        absl::StrCat("the copy of the volume's names and inodes does not become current: ",
                     map.ok() ? map_.copy_why : std::string(runtime::ToStd(map.status().message())),
                     "; see abacus volume status ", options_.name, ", and say this again"));
  }
}

// -- files ----------------------------------------------------------------------------------------

absl::Status Drain::Join() {
  ABACUS_ASSIGN_OR_RETURN(const objfs::VolumeInfo info,
                          volume_->Join(node_.name(), Ref<objfs::ClientEnd>()));
  writer_ = info.writer;
  beat_ = absl::Now();
  ABACUS_ASSIGN_OR_RETURN(source_, volume_->ColumnsAt(from_));
  return LearnSizes();
}

void Drain::Leave() {
  if (writer_ != 0) volume_->Leave(writer_).IgnoreError();
  writer_ = 0;
}

void Drain::Beat() {
  if (absl::Now() - beat_ < kBeat) return;
  beat_ = absl::Now();
  volume_->Renew(writer_).status().IgnoreError();  // what is wrong is told by the next call
}

absl::Status Drain::LearnSizes() {
  for (ObjectId after = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(const auto states, source_->States(after, kColumnsAtOnce));
    for (const objfs::ColumnState& state : states) sizes_[state.id] = state.allocated;
    if (states.empty()) return absl::OkStatus();
    after = states.back().id;
  }
}

absl::StatusOr<std::vector<objfs::Node>> Drain::FilesThere() {
  std::vector<objfs::Node> there;
  for (ObjectId after = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(const objfs::SpreadFiles files, volume_->Spread(after, kFilesAtOnce));
    for (const objfs::Node& file : files.files) {
      const auto& columns = file.inode.columns;
      if (std::count(columns.begin(), columns.end(), from_) > 0) there.push_back(file);
    }
    if (files.next == 0) return there;
    after = files.next;
    Beat();
  }
}

absl::Status Drain::MoveFiles() {
  std::vector<objfs::Node> files;
  for (int pass = 0; pass < kPasses; ++pass) {
    ABACUS_ASSIGN_OR_RETURN(files, FilesThere());
    if (files.empty()) return absl::OkStatus();
    Progress::Options shown = Progress::OptionsFor(STDERR_FILENO);
    shown.title = "drain";
    for (const objfs::Node& file : files) shown.total_bytes += sizes_[file.id];
    progress_ = std::make_unique<Progress>(shown, absl::Now(), [](std::string_view text) {
      WriteAll(STDERR_FILENO, text).IgnoreError();
    });
    done_bytes_ = 0;
    failed_ = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      which_ = absl::StrCat("file ", i + 1, " of ", files.size());
      const absl::Status status = MoveFile(files[i]);
      done_bytes_ += sizes_[files[i].id];
      Show(0);
      if (status.ok()) continue;
      ++failed_;
      progress_->Note(absl::StrCat("object ", files[i].id, ": ", status.message()));
    }
    progress_->Finish(absl::Now());
    if (failed_ == files.size()) break;  // another time helps none of them
  }
  ABACUS_ASSIGN_OR_RETURN(files, FilesThere());
  if (files.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(files.size(), " files have a column at server ", options_.before, " still, ",
                   moved_, " were moved; it stays one of ", what_, ". abacus scrub ", options_.name,
                   " repairs what is damaged; then say this again"));
}

void Drain::Show(uint64_t bytes_of_this) {
  progress_->Update(absl::Now(), done_bytes_ + bytes_of_this, which_);
}

// The one that is asked for, or, where the file has a column there already, any other.
absl::StatusOr<uint32_t> Drain::TargetOf(const objfs::Node& file) const {
  const auto& columns = file.inode.columns;
  const auto free = [&](uint32_t place) {
    return place != from_ && !objfs::IsVacant(map_.servers[place]) &&
           std::count(columns.begin(), columns.end(), place) == 0;
  };
  const uint32_t asked = PlaceOf(options_.now);
  if (asked < map_.servers.size() && free(asked)) return asked;
  for (uint32_t place = static_cast<uint32_t>(map_.servers.size()); place-- > 0;) {
    if (free(place)) return place;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "all other servers have a column of the file: add one first, abacus volume add-server ",
      options_.name, " HOST:PORT"));
}

absl::Status Drain::MoveFile(const objfs::Node& file) {
  Beat();
  ABACUS_ASSIGN_OR_RETURN(const uint32_t to, TargetOf(file));
  const absl::Status opened = volume_->Open(writer_, file.id).status();
  if (absl::IsNotFound(opened)) return absl::OkStatus();  // it was removed meanwhile
  ABACUS_RETURN_IF_ERROR(opened);
  const absl::Status status = MoveOpened(file, to);
  volume_->Close(writer_, file.id).IgnoreError();
  if (status.ok()) ++moved_;
  return status;
}

absl::Status Drain::MoveOpened(const objfs::Node& file, uint32_t to) {
  ABACUS_ASSIGN_OR_RETURN(const Ref<ColumnStore> target, volume_->ColumnsAt(to));
  absl::Status status;
  for (int begun = 0; begun < kCopiesBegun; ++begun) {
    objfs::ColumnMove move{.from = from_, .to = to, .copy = 0};
    if (sizes_[file.id] > kSmallBytes) {
      const absl::StatusOr<uint64_t> copy = CopyBefore(file.id, target);
      // What is there, of an earlier try, goes when nobody uses the file.
      if (!copy.ok() && !absl::IsAlreadyExists(copy.status())) {
        status = copy.status();
        if (absl::IsCancelled(status)) continue;
        return status;
      }
      move.copy = copy.ok() ? *copy : 0;
    }
    status = MoveNow(file.id, move);
    if (!absl::IsCancelled(status)) return status;
  }
  return status;
}

// Others have the disks as long as a step had them.
absl::StatusOr<uint64_t> Drain::CopyBefore(ObjectId id, const Ref<ColumnStore>& target) {
  objfs::CopyProgress progress;
  for (uint64_t copied = 0; !progress.whole;) {
    const absl::Time begin = absl::Now();
    ABACUS_ASSIGN_OR_RETURN(
        progress, target->CopyFrom(source_, id, progress.copy, progress.next, kBytesAtOnce));
    copied += progress.copied;
    Show(std::min(copied, sizes_[id]));
    Beat();
    if (!progress.whole) absl::SleepFor(absl::Now() - begin);
  }
  for (int look = 0; look < kLooksForChanges; ++look) {
    ABACUS_ASSIGN_OR_RETURN(const uint64_t changed, target->FollowFrom(source_, id, progress.copy));
    Beat();
    if (changed <= kChangedBytesFew) break;
  }
  return progress.copy;
}

absl::Status Drain::MoveNow(ObjectId id, const objfs::ColumnMove& move) {
  for (const absl::Time end = absl::Now() + kUsersPatience;;) {
    const absl::Status status = volume_->MoveColumn(writer_, id, move);
    if (!objfs::IsWouldBlock(status) || absl::Now() >= end) return status;
    absl::SleepFor(kAskAgain);
    Beat();
  }
}

// A shard that the server cannot leave keeps it in the volume: nothing is moved of the others then.
absl::Status CheckAllCanGo(runtime::Node& node, const VolumeOptions& options) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> shards, ShardNames(node, options.name));
  if (shards.size() == 1) return absl::OkStatus();
  for (const std::string& shard : shards) {
    const absl::Status can = Drain(node, shard, options).CanGo();
    if (can.ok()) continue;
    return absl::Status(can.code(), absl::StrCat(ShardText(shard), ": ", can.message()));
  }
  return absl::OkStatus();
}

absl::Status DrainAll(runtime::Node& node, const VolumeOptions& options) {
  ABACUS_RETURN_IF_ERROR(CheckAllCanGo(node, options));
  bool has_server = true;  // the shard that was worked on last
  ShardWork work;
  work.run = [&](const std::string& shard) {
    Drain drain(node, shard, options);
    const absl::Status status = drain.Run();
    has_server = drain.HasServer();
    return status;
  };
  // And no other error: what is not moved is there alone.
  work.was_done = [&](const absl::Status& status) {
    return !has_server && absl::IsInvalidArgument(status);
  };
  return WithEachShard(node, options.name, work);
}

}  // namespace

int DrainCommand(const VolumeOptions& options) {
  const auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const absl::Status status = DrainAll((*client)->node(), options);
  if (!status.ok()) return Fail(status);
  if (KeepsTheMap((*client)->node(), options.name, options.before)) {
    printf(
        "%s keeps nothing of volume '%s' any more but its map, which stays there: while it is down "
        "the map cannot change, and nobody takes over\n",
        options.before.c_str(), options.name.c_str());
    return kExitOk;
  }
  printf(
      "%s keeps nothing of volume '%s' any more; once that is so of all volumes, it can be "
      "switched off\n",
      options.before.c_str(), options.name.c_str());
  return kExitOk;
}

}  // namespace abacus::apps
