#include "objfs/fs/sharded_file_system.h"

#include <algorithm>
#include <cassert>
#include <thread>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "objfs/fs/file_system_impl.h"
#include "objfs/volume/shard.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using runtime::Ref;

namespace {

constexpr uint64_t kCopyAtOnceBytes = uint64_t{1} << 20;  // from shard to shard
constexpr std::chrono::milliseconds kLookAgain{5};        // at a joining that is being made anew
constexpr uint64_t kInnerHandles = (uint64_t{1} << kIdShardShift) - 1;

// What came of joining a shard, for people who know the volume's name only.
absl::Status OfJoining(const std::string& name, const absl::Status& status) {
  if (status.ok()) return status;
  const ShardPlace place = PlaceOfShard(name);
  absl::Status of_shard(
      status.code(),
      absl::StrCat("cannot join shard ", place.shard, " of volume '", place.volume,
                   "', and nobody joins the volume without it: ", status.message(),
                   ". Which of its servers answer tells abacus volume status ", place.volume));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { of_shard.SetPayload(url, payload); });
  return of_shard;
}

absl::Status CheckShards(const VolumeInfo& info, const FileSystem::Host& host) {
  const std::string volume = PlaceOfShard(info.name).volume;
  if (info.shards < 2 || info.shards > kShardsMax) {
    return absl::FailedPreconditionError(
        absl::StrCat("the volume '", volume, "' says that it has ", info.shards, " shards, and ",
                     "this program knows 2 to ", kShardsMax, ": use the program of its servers"));
  }
  if (host.find_volume != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "volume '", volume, "' has ", info.shards, " shards, and this program looks for ",
      "no others than '", info.name,
      "': mount the volume from its servers: ", "abacus mount SERVER/", volume, " DIR"));
}

// Whether what was joined as that shard is the one that `first` is of one volume with.
absl::Status CheckShard(const VolumeInfo& first, uint32_t shard, const VolumeInfo& joined) {
  const std::string volume = PlaceOfShard(first.name).volume;
  const auto wrong = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", joined.name, "' is not shard ", shard, " of the volume '", volume, "': ", what,
        ". It is of another volume of that name, or of one that was not made to ",
        "its end. Which servers have what tells abacus volume status ", volume,
        "; what was not made to its end is removed by abacus volume delete ", volume));
  };
  if (joined.shards != first.shards) {
    return wrong(absl::StrCat("it says that there are ", joined.shards, " shards, and '",
                              first.name, "' that there are ", first.shards));
  }
  if (joined.volume != first.volume) {
    return wrong(absl::StrCat("it was not made together with '", first.name, "'"));
  }
  if (ShardOf(joined.root) != shard) {
    return wrong(absl::StrCat("its identifiers are those of shard ", ShardOf(joined.root)));
  }
  return absl::OkStatus();
}

}  // namespace

// -- what a shard's joining has of the others -----------------------------------------------------

class ShardedFileSystem::Others final : public Siblings {
 public:
  Others(ShardedFileSystem& all, uint32_t own) : all_(all), own_(own) {}

  uint32_t own() const override { return own_; }
  uint32_t count() const override { return static_cast<uint32_t>(all_.others_.size()); }
  ObjectId root() const override { return all_.root_; }
  std::shared_ptr<ClientWaits> waits() override { return all_.waits_; }

  absl::Status With(uint32_t shard,
                    const std::function<absl::Status(FileSystemImpl& there)>& call) override {
    assert(shard != own_);
    if (shard >= count()) {
      return FsStatus(FsError::kStale, absl::StrCat("the volume has ", count(),
                                                    " shards: there is no shard ", shard));
    }
    absl::Status met;
    uint64_t joining = 0;
    if (!TryWith(
            shard, [&](FileSystemImpl& there) { met = call(there); }, &joining)) {
      return OfSibling(shard, absl::OkStatus());
    }
    const bool is_trouble =
        RejoiningFileSystem::MayBeOver(met) || RejoiningFileSystem::WasSentAway(met);
    return is_trouble ? OfSibling(shard, met, joining) : met;
  }

 private:
  bool TryWith(uint32_t shard, const std::function<void(FileSystemImpl&)>& call,
               uint64_t* joining) {
    if (!all_.between_.TryEnter()) return false;
    const bool entered = all_.shards_[shard]->TryWith(call, joining);
    all_.between_.Leave();
    return entered;
  }

  ShardedFileSystem& all_;
  const uint32_t own_;
};

// -- beginning and end ----------------------------------------------------------------------------

ShardedFileSystem::ShardedFileSystem(uint32_t shards) {
  between_.Close();
  for (uint32_t shard = 0; shard < shards; ++shard) {
    others_.push_back(std::make_unique<Others>(*this, shard));
  }
}

absl::StatusOr<std::unique_ptr<FileSystem>> ShardedFileSystem::Make(
    std::unique_ptr<FileSystemImpl> first, Ref<Volume> volume, const LayerKinds& kinds, Host host,
    Options options) {
  const VolumeInfo info = first->info();
  ABACUS_RETURN_IF_ERROR(CheckShards(info, host));
  first.reset();  // which knows of no siblings
  const ShardPlace place = PlaceOfShard(info.name);
  std::unique_ptr<ShardedFileSystem> all(new ShardedFileSystem(info.shards));
  for (uint32_t shard = 0; shard < info.shards; ++shard) {
    const std::string name = ShardName(place.volume, shard);
    absl::StatusOr<Ref<Volume>> found = shard == place.shard ? volume : host.find_volume(name);
    if (!found.ok()) return OfJoining(name, found.status());
    auto joined = FileSystemImpl::JoinWhole(*found, kinds, host, options, all->others_[shard].get(),
                                            FileSystemImpl::SleepFor);
    if (!joined.ok()) return OfJoining(name, joined.status());
    ABACUS_RETURN_IF_ERROR(CheckShard(info, shard, (*joined)->info()));
    if (shard == 0) all->root_ = (*joined)->root();  // before anybody else is there to ask
    all->shards_.push_back(std::make_unique<RejoiningFileSystem>(
        *std::move(found), kinds, host, options, *std::move(joined), all->others_[shard].get()));
  }
  all->between_.Open();
  all->is_whole_ = true;
  return std::unique_ptr<FileSystem>(std::move(all));
}

// A shard's threads may be working while another one ends.
ShardedFileSystem::~ShardedFileSystem() {
  if (is_whole_) between_.Close();
}

absl::Status ShardedFileSystem::Renew() {
  absl::Status status;
  for (const auto& shard : shards_) status.Update(shard->Renew());
  return status;
}

// -- trouble with joinings ------------------------------------------------------------------------

absl::Status ShardedFileSystem::SeesTo(const absl::Status& met, Repeat repeat, Trials* trials) {
  const std::optional<SiblingTrouble> trouble = SiblingTroubleOf(met);
  // What is met at its own joining a shard has seen to.
  if (!trouble.has_value()) return met;
  const absl::Status& why = trouble->why;
  if (why.ok()) {
    const auto now = std::chrono::steady_clock::now();
    if (!trials->until.has_value()) trials->until = now + kPatience;
    if (now >= *trials->until) {
      return absl::UnavailableError(absl::StrCat("shard ", trouble->shard,
                                                 " was being joined again for ", kPatience.count(),
                                                 " s, again and again: try later"));
    }
    std::this_thread::sleep_for(kLookAgain);
  } else if (++trials->repeats > kRepeatsMax) {
    return why;
  }
  absl::Status looked = shards_[trouble->shard]->Look(trouble->joining, why);
  if (!looked.ok()) return why.ok() ? looked : why;
  if (repeat == Repeat::kWhereItDidNot && runtime::IsOutcomeUnknown(why)) return why;
  return absl::OkStatus();
}

absl::Status ShardedFileSystem::NoSuchObject(ObjectId id) const {
  return FsStatus(FsError::kStale, absl::StrCat("object ", id, " is of shard ", ShardOf(id),
                                                ", and the volume has ", shards_.size()));
}

FileHandle ShardedFileSystem::Outer(uint32_t shard, FileHandle inner) {
  assert(inner <= kInnerHandles);  // they are counted from 1 on
  return (FileHandle{shard} << kIdShardShift) | inner;
}

absl::StatusOr<ShardedFileSystem::Inner> ShardedFileSystem::HandleOf(FileHandle outer) {
  if (HasShardOf(outer)) return Inner{shards_[ShardOf(outer)].get(), outer & kInnerHandles};
  return FsStatus(FsError::kBadHandle, absl::StrCat("no file is open as ", outer));
}

// -- names ----------------------------------------------------------------------------------------

absl::StatusOr<Node> ShardedFileSystem::Lookup(const Caller& caller, ObjectId directory,
                                               const std::string& name) {
  absl::StatusOr<Node> found = Across(Repeat::kAlways, directory, [&](RejoiningFileSystem& shard) {
    return shard.Lookup(caller, directory, name);
  });
  if (!found.ok() || ShardOf(found->id) == ShardOf(directory)) return found;
  // Inside a joining nobody may wait for what other clients hold back in another one. What the
  // inode is, its shard knows by now, and asks nobody again.
  absl::StatusOr<Node> now = Stat(found->id);
  if (FsErrorOf(now.status()) != FsError::kStale) return now;
  return FsStatus(FsError::kNoEntry, absl::StrCat("'", name, "' was removed meanwhile"));
}

absl::StatusOr<FileSystem::Created> ShardedFileSystem::Create(const Caller& caller,
                                                              ObjectId directory,
                                                              const std::string& name,
                                                              uint32_t mode, int flags,
                                                              const std::string& stack) {
  absl::StatusOr<Created> created =
      Across(Repeat::kWhereItDidNot, directory, [&](RejoiningFileSystem& shard) {
        return shard.Create(caller, directory, name, mode, flags, stack);
      });
  // Files are made in their directory's shard.
  if (created.ok()) created->handle = Outer(ShardOf(directory), created->handle);
  return created;
}

absl::StatusOr<Node> ShardedFileSystem::Make(const Caller& caller, ObjectId directory,
                                             const std::string& name, uint32_t mode,
                                             uint64_t device, const std::string& contents) {
  return Across(Repeat::kWhereItDidNot, directory, [&](RejoiningFileSystem& shard) {
    return shard.Make(caller, directory, name, mode, device, contents);
  });
}

absl::StatusOr<Node> ShardedFileSystem::Link(const Caller& caller, ObjectId file,
                                             ObjectId directory, const std::string& name) {
  absl::StatusOr<Node> linked =
      Across(Repeat::kWhereItDidNot, directory,
             [&](RejoiningFileSystem& shard) { return shard.Link(caller, file, directory, name); });
  if (!linked.ok() || ShardOf(file) == ShardOf(directory)) return linked;
  // It has the name, whatever its shard answers now.
  absl::StatusOr<Node> now = Stat(file);
  return now.ok() ? now : linked;
}

absl::Status ShardedFileSystem::Unlink(const Caller& caller, ObjectId directory,
                                       const std::string& name) {
  return Across(Repeat::kWhereItDidNot, directory,
                [&](RejoiningFileSystem& shard) { return shard.Unlink(caller, directory, name); });
}

absl::Status ShardedFileSystem::RemoveDirectory(const Caller& caller, ObjectId directory,
                                                const std::string& name) {
  return Across(Repeat::kWhereItDidNot, directory, [&](RejoiningFileSystem& shard) {
    return shard.RemoveDirectory(caller, directory, name);
  });
}

absl::Status ShardedFileSystem::Rename(const Caller& caller, ObjectId from_directory,
                                       const std::string& from, ObjectId to_directory,
                                       const std::string& to, RenameRule rule) {
  return Across(Repeat::kWhereItDidNot, from_directory, [&](RejoiningFileSystem& shard) {
    return shard.Rename(caller, from_directory, from, to_directory, to, rule);
  });
}

absl::StatusOr<std::vector<FileSystem::Listed>> ShardedFileSystem::List(
    const Caller& caller, ObjectId directory, uint64_t cookie, uint32_t max, bool with_attributes) {
  return Across(Repeat::kAlways, directory, [&](RejoiningFileSystem& shard) {
    return shard.List(caller, directory, cookie, max, with_attributes);
  });
}

absl::StatusOr<std::string> ShardedFileSystem::ReadLink(const Caller& caller, ObjectId link) {
  return At(link, [&](RejoiningFileSystem& shard) { return shard.ReadLink(caller, link); });
}

absl::Status ShardedFileSystem::SyncDirectory(ObjectId directory) {
  return At(directory, [&](RejoiningFileSystem& shard) { return shard.SyncDirectory(directory); });
}

// -- inodes ---------------------------------------------------------------------------------------

absl::StatusOr<Node> ShardedFileSystem::Stat(ObjectId file) {
  return At(file, [&](RejoiningFileSystem& shard) { return shard.Stat(file); });
}

absl::StatusOr<Node> ShardedFileSystem::Set(const Caller& caller, ObjectId file,
                                            const SetAttributes& set) {
  return At(file, [&](RejoiningFileSystem& shard) { return shard.Set(caller, file, set); });
}

absl::Status ShardedFileSystem::Access(const Caller& caller, ObjectId file, int want) {
  return At(file, [&](RejoiningFileSystem& shard) { return shard.Access(caller, file, want); });
}

absl::StatusOr<std::string> ShardedFileSystem::GetXattr(const Caller& caller, ObjectId file,
                                                        const std::string& name) {
  return At(file, [&](RejoiningFileSystem& shard) { return shard.GetXattr(caller, file, name); });
}

absl::Status ShardedFileSystem::SetXattr(const Caller& caller, ObjectId file,
                                         const std::string& name, const std::string& value,
                                         XattrRule rule) {
  return At(file, [&](RejoiningFileSystem& shard) {
    return shard.SetXattr(caller, file, name, value, rule);
  });
}

absl::Status ShardedFileSystem::RemoveXattr(const Caller& caller, ObjectId file,
                                            const std::string& name) {
  return At(file,
            [&](RejoiningFileSystem& shard) { return shard.RemoveXattr(caller, file, name); });
}

absl::StatusOr<std::vector<std::string>> ShardedFileSystem::ListXattrs(const Caller& caller,
                                                                       ObjectId file) {
  return At(file, [&](RejoiningFileSystem& shard) { return shard.ListXattrs(caller, file); });
}

absl::StatusOr<std::string> ShardedFileSystem::StackOf(ObjectId file) {
  return At(file, [&](RejoiningFileSystem& shard) { return shard.StackOf(file); });
}

// -- open files -----------------------------------------------------------------------------------

absl::StatusOr<FileHandle> ShardedFileSystem::Open(const Caller& caller, ObjectId file, int flags) {
  ABACUS_ASSIGN_OR_RETURN(const FileHandle inner, At(file, [&](RejoiningFileSystem& shard) {
                            return shard.Open(caller, file, flags);
                          }));
  return Outer(ShardOf(file), inner);
}

absl::Status ShardedFileSystem::Release(FileHandle handle) {
  return With(handle,
              [](RejoiningFileSystem& shard, FileHandle inner) { return shard.Release(inner); });
}

absl::StatusOr<Block> ShardedFileSystem::Read(FileHandle handle, uint64_t offset, uint64_t bytes) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.Read(inner, offset, bytes);
  });
}

absl::Status ShardedFileSystem::Write(FileHandle handle, uint64_t offset, const Block& bytes) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.Write(inner, offset, bytes);
  });
}

absl::StatusOr<uint64_t> ShardedFileSystem::Append(FileHandle handle, const Block& bytes) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.Append(inner, bytes);
  });
}

absl::Status ShardedFileSystem::Push(FileHandle handle) {
  return With(handle,
              [](RejoiningFileSystem& shard, FileHandle inner) { return shard.Push(inner); });
}

absl::Status ShardedFileSystem::Sync(FileHandle handle) {
  return With(handle,
              [](RejoiningFileSystem& shard, FileHandle inner) { return shard.Sync(inner); });
}

absl::Status ShardedFileSystem::SyncData(FileHandle handle) {
  return With(handle,
              [](RejoiningFileSystem& shard, FileHandle inner) { return shard.SyncData(inner); });
}

absl::Status ShardedFileSystem::Allocate(FileHandle handle, int mode, uint64_t offset,
                                         uint64_t bytes) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.Allocate(inner, mode, offset, bytes);
  });
}

absl::StatusOr<uint64_t> ShardedFileSystem::SeekData(FileHandle handle, uint64_t offset) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.SeekData(inner, offset);
  });
}

absl::StatusOr<uint64_t> ShardedFileSystem::SeekHole(FileHandle handle, uint64_t offset) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.SeekHole(inner, offset);
  });
}

absl::StatusOr<uint64_t> ShardedFileSystem::CopyRange(FileHandle from, uint64_t from_offset,
                                                      FileHandle to, uint64_t to_offset,
                                                      uint64_t bytes) {
  ABACUS_ASSIGN_OR_RETURN(const Inner source, HandleOf(from));
  ABACUS_ASSIGN_OR_RETURN(const Inner target, HandleOf(to));
  if (source.shard == target.shard) {
    return source.shard->CopyRange(source.handle, from_offset, target.handle, to_offset, bytes);
  }
  uint64_t copied = 0;
  while (copied < bytes) {
    const absl::StatusOr<Block> block = source.shard->Read(
        source.handle, from_offset + copied, std::min(kCopyAtOnceBytes, bytes - copied));
    if (!block.ok()) return copied > 0 ? absl::StatusOr<uint64_t>(copied) : block.status();
    if (block->empty()) break;
    const absl::Status written = target.shard->Write(target.handle, to_offset + copied, *block);
    if (!written.ok()) return copied > 0 ? absl::StatusOr<uint64_t>(copied) : written;
    copied += block->size();
  }
  return copied;
}

absl::Status ShardedFileSystem::WithSubgraph(
    FileHandle handle, const std::function<absl::Status(const Subgraph&)>& call) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.WithSubgraph(inner, call);
  });
}

absl::StatusOr<RebuildProgress> ShardedFileSystem::Rebuild(FileHandle handle, uint64_t from,
                                                           uint64_t stripes) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.Rebuild(inner, from, stripes);
  });
}

absl::StatusOr<ScrubProgress> ShardedFileSystem::Scrub(FileHandle handle, uint64_t from,
                                                       uint64_t stripes) {
  return With(handle, [&](RejoiningFileSystem& shard, FileHandle inner) {
    return shard.Scrub(inner, from, stripes);
  });
}

// Shards on one disk each tell of all of it.
absl::StatusOr<VolumeSpace> ShardedFileSystem::Space() {
  VolumeSpace all;
  for (const auto& shard : shards_) {
    ABACUS_ASSIGN_OR_RETURN(const VolumeSpace space, shard->Space());
    all.block_bytes = space.block_bytes;
    all.capacity_bytes += space.capacity_bytes;
    all.available_bytes += space.available_bytes;
    all.objects += space.objects;
    all.damaged += space.damaged;
    all.refused += space.refused;
  }
  return all;
}

// -- locks ----------------------------------------------------------------------------------------

uint64_t ShardedFileSystem::NewLockTicket() { return tickets_.New(); }

void ShardedFileSystem::Lock(const LockRequest& request, const LockDone& done) {
  const uint64_t ticket = request.ticket;
  if (!HasShardOf(request.file)) {
    tickets_.End(ticket);
    return done(NoSuchObject(request.file));
  }
  const uint32_t at = ShardOf(request.file);
  RejoiningFileSystem& shard = *shards_[at];
  if (ticket == 0) return shard.Lock(request, done);
  LockRequest asked = request;
  asked.ticket = shard.NewLockTicket();
  tickets_.Begin(ticket, {at, asked.ticket});
  shard.Lock(asked, [this, ticket, done](const absl::Status& status) {
    tickets_.End(ticket);
    done(status);
  });
  // Before Begin(), or while the shard was joined again.
  if (tickets_.IsCancelled(ticket)) shard.CancelLock(asked.ticket);
}

void ShardedFileSystem::CancelLock(uint64_t ticket) {
  const std::optional<LockTickets::AtShard> at = tickets_.Cancel(ticket);
  if (at.has_value()) shards_[at->shard]->CancelLock(at->ticket);
}

absl::Status ShardedFileSystem::Unlock(const LockRequest& request) {
  return At(request.file, [&](RejoiningFileSystem& shard) { return shard.Unlock(request); });
}

absl::Status ShardedFileSystem::UnlockAll(ObjectId file, LockKind kind, uint64_t owner) {
  return At(file, [&](RejoiningFileSystem& shard) { return shard.UnlockAll(file, kind, owner); });
}

absl::StatusOr<std::optional<HeldLock>> ShardedFileSystem::GetLock(const LockRequest& request) {
  return At(request.file, [&](RejoiningFileSystem& shard) { return shard.GetLock(request); });
}

// -- keepers --------------------------------------------------------------------------------------

uint64_t ShardedFileSystem::AddKeeper(Forget forget) {
  std::vector<uint64_t> in_shards;
  in_shards.reserve(shards_.size());
  for (const auto& shard : shards_) in_shards.push_back(shard->AddKeeper(forget));
  MutexLock lock(mutex_);
  keepers_[++last_keeper_] = std::move(in_shards);
  return last_keeper_;
}

void ShardedFileSystem::RemoveKeeper(uint64_t keeper) {
  std::vector<uint64_t> in_shards;
  {
    MutexLock lock(mutex_);
    const auto found = keepers_.find(keeper);
    if (found == keepers_.end()) return;
    in_shards = std::move(found->second);
    keepers_.erase(found);
  }
  for (size_t i = 0; i < in_shards.size(); ++i) shards_[i]->RemoveKeeper(in_shards[i]);
}

bool ShardedFileSystem::IsTold(ObjectId file) {
  return HasShardOf(file) && shards_[ShardOf(file)]->IsTold(file);
}

}  // namespace abacus::objfs
