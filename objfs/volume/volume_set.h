#ifndef ABACUS_OBJFS_VOLUME_VOLUME_SET_H_
#define ABACUS_OBJFS_VOLUME_VOLUME_SET_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/atomicity/commit_link.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/map/kept_map.h"
#include "objfs/map/map_place.h"
#include "objfs/map/map_store.h"
#include "objfs/spread/column_store.h"
#include "objfs/store/disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/volume/mapped_volume.h"
#include "objfs/volume/name_worker.h"
#include "objfs/volume/restore_plan.h"
#include "objfs/volume/server_list.h"
#include "objfs/volume/volume.h"
#include "runtime/base/mutex.h"
#include "runtime/object/mobile_object.h"

namespace abacus::objfs {

struct VolumeSummary {
  std::string name;
  VolumeSpace space;
  std::vector<std::string> clients;
  CommitCounts commits;
  uint32_t shards = 1;              // of the volume that it is one of
  std::string own_file_stack = {};  // VolumeInfo's
  ABACUS_FIELDS(name, space, clients, commits, shards, own_file_stack)
};

// A volume that is to be made, or a shard of one, by its name.
struct NewVolume {
  std::string name;
  uint64_t quota_bytes = 0;  // what its files may hold, kept beside it; 0: as much as the disk has
  // Over which its files may be spread, by the addresses by which they reach each other; the first
  // is the one that is asked. None: it stays on this one.
  std::vector<std::string> servers = {};
  std::string map_url = {};  // of a map elsewhere; empty: it is at the first server
  // With such a map: its first servers keep names and inodes. None of them keeps the map.
  uint64_t metadata_copies = 1;
  std::string own_file_stack = {};  // VolumeInfo's
  uint32_t shards = 1;              // of the volume that it is one of
  uint64_t shards_number = 0;       // ShardState::volume, where there are several
  ABACUS_FIELDS(name, quota_bytes, servers, map_url, metadata_copies, own_file_stack, shards,
                shards_number)
};

// A server's volumes, by name: each in a directory of its own with a store of its own. A quota is
// in the file ".quota-NAME" beside it: a decimal number of bytes and the end of the line.
//
// A volume may be spread over several servers: the first, which it is asked for, has its inodes,
// and each keeps columns of its files (spread/column_store.h), in the directory
// ".columns-NAME-KEY", where the key tells this volume from all others of its name; its file
// `atomicity` is the log of groups that are written to them (atomicity/log_file.h), under the
// number of the server's place in the list. Which servers these are is in
// ".servers-NAME" at the first and in ".columns-NAME-KEY.servers" at all: the line
// "abacus servers 1", the key in hexadecimal digits, and the servers' addresses, a line each; with
// a 2 there, "-" for a server that was drained. The list ".servers-NAME" is made before the columns
// and removed when no server has any: where there is no directory NAME beside it, a creation or
// deletion was cut off, or that directory is lost or away. Only Delete() removes columns then; none
// of that name is made here before.
//
// Where such a volume is to outlive each of its servers, its map is elsewhere (map/README.md): then
// several of its servers keep a copy of its inodes, each in the directory NAME, and which of them
// answers for it changes. Each of these has the file ".map-NAME" (map/map_place.h), in ".row-NAME"
// the map's row as it has seen it last (map/remembered_row.h), and no ".servers-NAME".
//
// Such a map may be kept here, be this one of the volume's servers or not: in the file
// ".kept-maps/NAME-KEY" (map/kept_map.h), which stays, and says so, when the volume is no more.
//
// A shard of a volume (shard.h) is a volume here like any other, and knows the others by the
// servers that it has.
//
// Names are 1 to 64 letters, digits, '-', '_' and '.', and do not begin with a dot. Behind such a
// one may be '~' and a number from 1 to kShardsMax - 1, as in "home~2": it is that shard of volume
// `home` then, and the identifiers that its store gives say so. Whoever takes names from people
// takes none with '~'.
//
// Errors: kInvalidArgument - a name, or a stack; the message tells the way out. kNotFound - the
//         message lists the volumes there are.
// Thread-safety: thread-safe. Blocking: disk I/O.
class VolumeSet final : public runtime::AnchoredObject {
 public:
  struct Host {
    Volume::Host volume;
    std::function<runtime::Ref<Volume>(std::unique_ptr<Volume>)> adopt;
    std::function<void(const runtime::Ref<Volume>&)> end;
    absl::Duration lease = Volume::Options().lease;  // of all volumes, as what follows
    bool whole_read_sets = Volume::Options().whole_read_sets;
    // For volumes over several servers: keeps in touch with the server at an address, and the
    // volumes that it has. Empty: there are none such.
    std::function<void(const std::string& address)> reach;
    std::function<absl::StatusOr<runtime::Ref<VolumeSet>>(const std::string& address)> find_set;
    std::function<runtime::Ref<ColumnStore>(std::unique_ptr<ColumnStore>)> adopt_columns;
    std::function<void(const runtime::Ref<ColumnStore>&)> end_columns;
    ColumnStore::Host columns;
    // For the log of groups beside columns, without which several clients never use a file's
    // columns at once; empty: there are none.
    std::function<runtime::Ref<CommitLog>(std::unique_ptr<CommitLog>)> adopt_log;
    std::function<void(const runtime::Ref<CommitLog>&)> end_log;
    // Is told of wrong bytes on a disk, whenever they are met; empty: nobody is. May not block.
    std::function<void(const std::string& volume, const absl::Status& damage)> on_damage;
    // The map of a volume at an address such as "etcd://HOST:PORT" or "abacus://HOST:PORT". Empty:
    // there are none such, nor is one kept here.
    std::function<absl::StatusOr<std::unique_ptr<MapStore>>(const std::string& url,
                                                            const std::string& name, uint64_t key)>
        open_map;
    // For copies of such a volume's inodes.
    std::function<runtime::Ref<ReplicaStore>(std::unique_ptr<ReplicaStore>)> adopt_copy;
    std::function<void(const runtime::Ref<ReplicaStore>&)> end_copy;
    // Puts another disk over the directory of each volume, and of columns, a model of one for
    // example; empty: none.
    std::function<std::unique_ptr<Disk>(std::unique_ptr<Disk>)> wrap_disk;
  };

  ~VolumeSet() override;

  // Opens all volumes under `directory`, which is made where it is not there.
  // Errors: those of the first volume that cannot be opened.
  static absl::StatusOr<std::unique_ptr<VolumeSet>> Make(const std::string& directory, Host host);

  // Whoever finds the volume finds all of it that `volume` says, also where this server is killed
  // meanwhile. Whether clients can build its stack, and it has servers enough for it, is for who
  // asks to know (CheckFileStack in fs/stack_rules.h).
  // Errors: kAlreadyExists - it is there, or the list of servers of one whose names and inodes are
  //         not. kInvalidArgument - fewer than two servers, or one twice; no address of
  //         a map, or more copies than servers; one of those that are to keep copies keeps the map,
  //         or too few are left besides; it is no stack; it can be no such shard.
  //         kUnavailable - a server or the map does not answer. Nothing is left of it after an
  //         error, or the message says what is, and how it is removed.
  absl::Status Create(const NewVolume& volume);
  static constexpr uint64_t kMetadataCopiesMax = 2;
  // What this server knows of the map of a volume whose inodes it keeps. Errors: kNotFound.
  absl::StatusOr<MapReport> Map(const std::string& name);
  // The map of a volume whose inodes are here has lost its row: puts it back from what the volume's
  // servers remember (restore_plan.h), in a later epoch, where no row is there. The volume is not
  // opened yet when it returns. Said again, or by two at once: one row is made.
  // Errors: kAlreadyExists - the map has a row; nothing was changed. kFailedPrecondition - it is
  //         not safe, or not without `forced`; the message says why, what is lost with it, and the
  //         way out. kUnavailable - the map does not answer; the row may be there or not.
  //         kNotFound - no volume with a map elsewhere has its inodes here.
  // Blocking: some seconds, and 10 s more where servers do not answer or another one serves.
  absl::StatusOr<RestoredMap> RestoreMap(const std::string& name, bool forced);
  // Of a volume whose inodes are here: the server at address `now` comes into the place of
  // `before`, with nothing of what that one keeps, which is to be rebuilt; or is one more, where
  // `before` is empty, in a place that is vacant if there is one. Where that was done already, and
  // some server's list does not say so, does the rest. Files name servers by their places, so none
  // of them changes. Where `before` kept a copy of the inodes too, the first of the volume's
  // servers that never did comes to keep one. Errors: kFailedPrecondition - the volume is over no
  // several servers; `before` answers for it, or
  //         alone has its inodes; it answers, and this is not `forced`; it keeps a copy of the
  //         inodes and is current, or answers, or no server is left to keep that.
  //         kInvalidArgument - `before` is none of the volume's, or `now` is one already, or no
  //         address. kUnavailable - `now`, who is to keep the copy, or the map does not answer; the
  //         row may be changed yet. kAborted - it was changed by somebody else.
  absl::Status ChangeServer(const std::string& name, const std::string& before,
                            const std::string& now, bool forced);

  // -- a server that lives is to leave a volume. Its columns are moved one by one
  // (Volume::MoveColumn); each of these does nothing where it was done -------------------------

  // Of a volume with a map elsewhere that this server answers for: another one does, which has a
  // current copy of its inodes, and this one keeps a copy. Until then, for the time of a lease,
  // clients wait.
  // Errors: kFailedPrecondition - no other server could. kUnavailable - it did not happen in time;
  //         this server may go on as it was. Blocking: 30 s at most.
  absl::Status HandOver(const std::string& name);
  // Of a volume whose inodes are here: another server keeps the copy of them that `before` keeps,
  // `preferred` if it can. Until that one is filled this server alone has what is acknowledged.
  // Errors: kFailedPrecondition - `before` answers for the volume, or no server is left to keep it.
  //         As ChangeServer().
  absl::Status MoveCopy(const std::string& name, const std::string& before,
                        const std::string& preferred);
  // And `before` is none of the volume's servers any more; it keeps nothing of it.
  // Errors: kFailedPrecondition - it still keeps something. kInvalidArgument - it is none of the
  //         volume's. kUnavailable - as ChangeServer(); or it is none any more, and has not removed
  //         what it has. kAborted.
  absl::Status RemoveServer(const std::string& name, const std::string& before);

  absl::StatusOr<runtime::Ref<Volume>> Open(const std::string& name);
  // Over which servers a volume is spread that this one has, or keeps columns of; none: it is not.
  absl::StatusOr<std::vector<std::string>> Servers(const std::string& name);
  absl::StatusOr<std::vector<VolumeSummary>> List();
  // Removes the volume with all that is in it, or what its creation or deletion has left that was
  // cut off. Errors: kFailedPrecondition - clients are using it. kUnavailable - it is gone, but
  //         another server has not removed its columns: said again when that runs, this does it, or
  //         the message says what to remove where. kDataLoss - its list of servers is damaged:
  //         nothing was removed. kAborted - a volume of that name was made meanwhile.
  // Blocking: 5 s where servers do not answer.
  absl::Status Delete(const std::string& name);
  // Which files, in the folder of the volumes, are columns of a volume of that name that Delete()
  // does not find by this server, as "FILE*": neither its names and inodes nor its list is here.
  absl::StatusOr<std::vector<std::string>> LeftColumns(const std::string& name);

  // For the server itself, before it stops: volumes with a map are closed here, with all that they
  // have written at their copies too, so that another server can answer for them. They are served
  // here no more until the server is started again. Blocking: for what is under way.
  absl::Status LetGo();

  // -- asked by the first server of a volume -----------------------------------------------------

  // From now on this server keeps columns of that volume, as the one at `place` of `servers`. A
  // second time it does nothing.
  absl::Status KeepColumns(const std::string& name, uint64_t key,
                           const std::vector<std::string>& servers, uint32_t place);
  // And no more, with all that is in them.
  absl::Status DropColumns(const std::string& name, uint64_t key);
  // `place`: of this server, by who asks; its log of groups has that number. Errors, beside those
  // of the disk: kFailedPrecondition - it is at another place. kDataLoss - the log is damaged.
  absl::StatusOr<runtime::Ref<ColumnStore>> Columns(const std::string& name, uint64_t key,
                                                    uint32_t place);
  static constexpr uint32_t kPlaceUnknown = UINT32_MAX;  // its log says so, where there is one
  // From now on this server keeps a copy of that volume's inodes, and may come to answer for it.
  // A second time it does nothing. Errors: kAlreadyExists - it has another volume of that name, or
  //         the list of servers of one.
  absl::Status KeepCopy(const std::string& name, uint64_t quota_bytes, const std::string& map_url,
                        uint64_t key, uint32_t place);
  // And no more, with all that is in it. Where it does not, does nothing.
  absl::Status DropCopy(const std::string& name, uint64_t key);
  // The primary of `epoch` asks this server not to take its place for a while.
  absl::StatusOr<PromiseAnswer> Promise(const std::string& name, uint64_t key, uint64_t epoch);

  // What this server remembers of the volume, for RestoreMap().
  absl::StatusOr<MapMemory> Remembered(const std::string& name, uint64_t key);

  // The copy of its inodes that this server keeps. Errors: kNotFound; kUnavailable - it is the
  // primary, or has not opened it yet.
  absl::StatusOr<runtime::Ref<ReplicaStore>> Copy(const std::string& name, uint64_t key);

  // -- asked by the servers of a volume whose map is kept here; `key` is the volume's ------------

  // Errors: as KeptMap::Call(); kNotFound - this server keeps no map of that volume.
  absl::StatusOr<MapAnswer> AskMap(const std::string& name, uint64_t key, const MapCall& call);
  // Errors: as KeptMap::Create(). kInvalidArgument - a name, or another volume's row.
  //         kFailedPrecondition - there is no server here.
  absl::Status CreateMap(const std::string& name, uint64_t key, const VolumeRow& row);
  // Errors: as KeptMap::Remove(). None is no error.
  absl::Status RemoveMap(const std::string& name, uint64_t key);

  ABACUS_OBJECT(VolumeSet, "objfs.VolumeSet", 1, Create, Open, List, Delete, Servers, KeepColumns,
                DropColumns, Columns, ChangeServer, Map, KeepCopy, DropCopy, Promise, Copy, LetGo,
                HandOver, MoveCopy, RemoveServer, RestoreMap, Remembered, AskMap, CreateMap,
                RemoveMap, LeftColumns)

 private:
  // Volumes look for columns here while they end, which may be after their set has.
  struct Here {
    class Use {
     public:
      explicit Use(Here& here);
      ~Use();
      Use(const Use&) = delete;
      Use& operator=(const Use&) = delete;
      VolumeSet* set() const { return set_; }  // null: it has ended

     private:
      Here& here_;
      VolumeSet* set_ = nullptr;
    };
    runtime::Mutex mutex;
    runtime::CondVar changed;
    VolumeSet* set ABSL_GUARDED_BY(mutex) = nullptr;
    int inside ABSL_GUARDED_BY(mutex) = 0;
  };
  VolumeSet(std::string directory, Host host);
  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }
  std::string QuotaOf(const std::string& name) const { return directory_ + "/.quota-" + name; }
  std::string ServersOf(const std::string& name) const { return directory_ + "/.servers-" + name; }
  std::string ColumnsOf(const std::string& name, uint64_t key) const;
  // What people are to remove at another server, which could not: its columns, and its copy of
  // names and inodes, where it may have one.
  static std::string LeftText(const std::string& name, uint64_t key, bool has_copy);
  // The columns that are open here, with the log of groups on their disk.
  struct KeptColumns {
    std::shared_ptr<Disk> disk;  // these two as long as there is no log
    std::shared_ptr<ObjectStore> store;
    ColumnStore* here = nullptr;  // as long as `columns` are not ended
    runtime::Ref<ColumnStore> columns;
    runtime::Ref<CommitLog> log;  // none: as long as nobody has told this server's place
    uint64_t place = kPlaceUnknown;
    std::shared_ptr<ServerAddresses> servers;
  };
  // As Columns(). `is_told`: by who changes the list of servers, so that a log of another place is
  // of a time that is over.
  absl::StatusOr<runtime::Ref<ColumnStore>> OpenColumns(const std::string& name, uint64_t key,
                                                        uint32_t place, bool is_told);
  absl::Status OpenColumnsDisk(const std::string& name, const std::string& path, KeptColumns* kept);
  absl::Status OpenLog(const std::string& name, uint64_t key, uint32_t place, bool is_told,
                       KeptColumns* kept);
  // What comes of a log that could not be opened: the way out, where it is damaged, told here too.
  absl::Status TellDamagedLog(const std::string& name, uint64_t key, const absl::Status& why);
  // Those of columns that are kept here; by file name.
  std::vector<std::string> KeptServers(const std::string& name) const;
  std::string MapOf(const std::string& name) const;
  std::string RowOf(const std::string& name) const { return directory_ + "/.row-" + name; }
  static absl::Status CheckName(const std::string& name);
  static uint64_t NewVolumeKey();
  absl::Status SetQuota(const std::string& name, uint64_t bytes) const;
  absl::StatusOr<std::unique_ptr<Disk>> OpenDisk(const std::string& path);
  absl::StatusOr<LocalObjectStoreOptions> StoreOptions(const std::string& name);
  // The volume's store, in the directory `path`.
  absl::StatusOr<std::shared_ptr<ObjectStore>> OpenStore(const std::string& name,
                                                         const std::string& path);
  // Of a volume with a map; in an epoch that is new.
  absl::StatusOr<std::shared_ptr<LocalObjectStore>> OpenPrimary(const std::string& name,
                                                                const std::string& path,
                                                                uint64_t epoch);
  absl::Status CheckPrimary(const std::string& name, const std::function<bool()>& reads_on);
  absl::Status CreateSpread(const NewVolume& made);
  // The list ".servers-NAME", where there is one. Errors: those of the list, with the way out.
  absl::StatusOr<std::optional<ServerList>> LoadList(const std::string& name);
  // That there is none of a volume whose names and inodes are not here. REQUIRES: these are not.
  absl::Status CheckNoListIsLeft(const std::string& name);
  // The columns of the volume, at all servers of its list, and where all of these are gone, that
  // list; none: nothing. Errors: kUnavailable - as Delete(). Those of LoadList().
  absl::Status DropSpread(const std::string& name);
  absl::Status CreateMapped(const NewVolume& made);
  // The volume's directory, in one step with all that it begins with. `open`: the store in `path`,
  // which is another directory as long as it is being made. After an error either may be there:
  // RemoveStore().
  absl::Status MakeStore(
      const NewVolume& made,
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<ObjectStore>>(const std::string& path)>
          open);
  absl::Status FillStore(const NewVolume& made, std::shared_ptr<ObjectStore> store);
  // As the first primary of a volume with a map.
  absl::Status KeepPrimary(const NewVolume& volume, uint64_t key);
  // KeepCopy(); `make` makes what it begins with, before anybody finds it.
  absl::Status KeepMade(const std::string& name, uint64_t quota_bytes, const MapPlace& here,
                        absl::FunctionRef<absl::Status()> make);
  // All servers that any of them names are asked what they remember.
  absl::StatusOr<std::vector<ServerMemory>> AskAllWhatTheyRemember(const std::string& name,
                                                                   const MapPlace& place);
  // The volume's directory, or where it was being made, and what is beside it.
  absl::Status RemoveStore(const std::string& name);
  absl::Status OpenVolume(const std::string& name);
  absl::Status BeginAllMapped();
  absl::Status BeginMapped(const std::string& name);
  std::shared_ptr<MappedVolume> FindMapped(const std::string& name);
  absl::Status OpenKeptMaps();
  absl::Status OpenKeptMapsDisk();
  // REQUIRES: their disk is open.
  std::shared_ptr<KeptMap> OpenKeptMap(const std::string& file);
  // null: none is kept here.
  std::shared_ptr<KeptMap> FindKeptMap(const std::string& name, uint64_t key);
  // With the way out, where the file is damaged.
  absl::Status OfKeptMap(const std::string& file, const absl::Status& answer) const;
  // Names and inodes are to be where the map of the volume is not. `all`: its servers.
  absl::Status CheckKeeper(const NewVolume& volume,
                           const std::vector<runtime::Ref<VolumeSet>>& all);
  absl::Status DeleteMapped(MappedVolume& mapped, const std::string& name);
  // What is known here of a volume's servers.
  struct KnownServers {
    std::shared_ptr<MappedVolume> mapped;  // null: the map is a file of this server
    runtime::Ref<Volume> volume;
    MapReading reading;
    std::shared_ptr<ServerAddresses> addresses;
    const VolumeRow& row() const { return reading.row; }
  };
  // Of a volume whose inodes are here.
  absl::StatusOr<KnownServers> Know(const std::string& name);
  // The volume's servers are `next` from now on; `before` is the one that goes, "" where none does.
  absl::Status SetServers(const KnownServers& known, const std::string& name,
                          const std::string& before, const std::vector<std::string>& next);
  // All of them are told; who does not answer is so later, or by hand.
  absl::Status TellServers(const KnownServers& known, const std::string& name,
                           const std::vector<std::string>& servers);
  // Whether `before` was at `place` by what this server, or one that answers, was told last: the
  // row has changed, and not all know.
  bool IsListedStill(const KnownServers& known, const std::string& name, const std::string& before,
                     size_t place);
  absl::StatusOr<uint64_t> CountColumnsAt(const runtime::Ref<Volume>& volume, uint32_t server);
  // A server that is none of the volume's any more removes what it has of it.
  absl::Status DropAt(const KnownServers& known, const std::string& name,
                      const std::string& server);
  void Reach(const std::string& server);
  // The servers of a volume when the server at `before` is replaced, or one comes to them.
  absl::StatusOr<std::vector<std::string>> PlanServers(const std::string& name,
                                                       const VolumeRow& row,
                                                       const std::string& before,
                                                       const std::string& now, bool forced);
  // No server can come to keep names and inodes; with the way out.
  static absl::Status NobodyLeftForNames(const std::string& name);
  absl::Status CheckCopyCanGo(const std::string& name, const VolumeRow& row, uint32_t place);
  // In the row: the server at `before` is another one in `next`, and what it keeps of the metadata
  // is another's to keep.
  absl::Status ChangeMapped(MappedVolume& mapped, const std::string& name, const VolumeRow& known,
                            const std::string& before, const std::vector<std::string>& next);
  // The first of `servers` at these places that takes it keeps a copy from now on; its place.
  absl::StatusOr<uint32_t> KeepCopyAnywhere(MappedVolume& mapped, const std::string& name,
                                            const std::vector<uint32_t>& places,
                                            const std::vector<std::string>& servers);
  // HandOver(), as soon as that can be: the store here fails. Does not block.
  void LeaveFailing(const std::string& name, const absl::Status& why);
  // On the leaver's thread.
  void Leave(const std::string& name);
  // How a volume finds the columns that its servers keep for it.
  // `own`: which of them is this one.
  std::function<absl::StatusOr<runtime::Ref<ColumnStore>>(size_t)> FinderOf(
      const std::string& name, uint64_t key, size_t own,
      std::shared_ptr<const ServerAddresses> servers);
  // And the other shards of the volume that it is one of.
  std::function<absl::StatusOr<runtime::Ref<Volume>>(uint32_t)> ShardFinderOf(
      const std::string& name, size_t own, std::shared_ptr<const ServerAddresses> servers);
  // And a log of groups those of the others.
  FindCommitLog LogFinderOf(const std::string& name, uint64_t key, size_t own,
                            std::shared_ptr<const ServerAddresses> servers);
  // The set of a server that may just have been named, which is given time to answer.
  absl::StatusOr<runtime::Ref<VolumeSet>> MeetAny(const std::string& address);
  absl::StatusOr<runtime::Ref<VolumeSet>> MeetUntil(const std::string& address,
                                                    std::chrono::steady_clock::time_point end);
  // The same, of another server than this one.
  absl::StatusOr<runtime::Ref<VolumeSet>> Meet(const std::string& address);
  // Those of a volume's servers, of which this one is the first.
  absl::StatusOr<std::vector<runtime::Ref<VolumeSet>>> MeetAll(
      const std::vector<std::string>& servers);
  absl::Status CreateLocked(const NewVolume& made, absl::FunctionRef<absl::Status()> before);
  absl::Status NoSuch(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const Host host_;
  const std::shared_ptr<Here> here_ = std::make_shared<Here>();
  Turns names_;                             // one call about a volume's existence at a time
  static constexpr ObjectId kRowsTurn = 2;  // of names_: one call about a map's row at a time
  static constexpr ObjectId kTheColumnsTurn = 1;
  Turns columns_turns_;  // likewise, of columns

  runtime::Mutex mutex_;
  std::map<std::string, runtime::Ref<Volume>> volumes_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, KeptColumns> columns_ ABSL_GUARDED_BY(mutex_);  // by path
  // Of the volumes that have several.
  std::map<std::string, std::shared_ptr<ServerAddresses>> servers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<MappedVolume>> mapped_ ABSL_GUARDED_BY(mutex_);
  // Where maps are kept; null: none ever was. And they, by file.
  std::shared_ptr<Disk> kept_maps_disk_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<KeptMap>> kept_maps_ ABSL_GUARDED_BY(mutex_);

  // The leaver's: when nobody had taken over.
  std::map<std::string, std::chrono::steady_clock::time_point> left_in_vain_;
  NameWorker leaver_{[this](const std::string& name) { Leave(name); }};
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_VOLUME_SET_H_
