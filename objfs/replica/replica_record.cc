#include "objfs/replica/replica_record.h"

#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/store/format.h"
#include "objfs/store/numbers.h"
#include "objfs/store/object_id.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

namespace {

constexpr char kNewRecordName[] = "replica.new";
constexpr std::string_view kRecordMagic = "ABACUSRP";
constexpr uint32_t kRecordVersion = 1;
constexpr uint32_t kWholeFlag = 1, kPrimaryFlag = 2;
constexpr uint64_t kTablesAtOnce = 256;

absl::Status CheckRecord(const std::optional<ReplicaRecord>& record, uint64_t epoch) {
  // Whoever made the volume has left one, and so has every opening. An empty store in the place of
  // what is lost would be taken for the volume, and the good copies be made equal to it.
  if (!record.has_value() && epoch != 1) {
    return absl::FailedPreconditionError(
        "what this server had of the volume's names and inodes is lost: its directory has no file "
        "'replica'. If that is on a disk that is not mounted, mount it and start the server again. "
        "Else leave it: a server with a current copy takes over, and fills this one from its own");
  }
  if (record.has_value() && !record->is_whole) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this copy of the volume is not whole: it missed something, or was being brought up to ",
        "date when that ended. A server that has the volume whole must serve it, and bring this ",
        "copy up to date"));
  }
  return absl::OkStatus();
}

absl::Status ReadTables(LocalObjectStore& store, const std::function<bool()>& reads_on) {
  for (ObjectId after = 0; reads_on();) {
    ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, store.List(after, kTablesAtOnce));
    for (const ObjectId id : ids) {
      const absl::Status read = store.GetAttributes(id).status();
      // A disk that does not give the table has lost it as well as one that gives others' bytes.
      if (!read.ok()) return absl::DataLossError(read.message());
      store.Rest(id);
    }
    if (ids.size() < kTablesAtOnce) break;
    after = ids.back();
  }
  return absl::OkStatus();
}

}  // namespace

std::string ReplicaRecord::Encode() const {
  std::string bytes(kRecordMagic);
  AppendNumber(&bytes, kRecordVersion);
  AppendNumber(&bytes, (is_whole ? kWholeFlag : 0) | (was_primary ? kPrimaryFlag : 0));
  AppendNumber(&bytes, epoch);
  AppendNumber(&bytes, Crc32c(bytes));
  return bytes;
}

absl::StatusOr<ReplicaRecord> ReplicaRecord::Decode(std::string_view bytes) {
  const bool is_one = bytes.size() == kBytes && bytes.starts_with(kRecordMagic) &&
                      NumberAt<uint32_t>(bytes, kBytes - 4) == Crc32c(bytes.substr(0, kBytes - 4));
  if (!is_one) {
    return absl::DataLossError(
        "the record of what this server's part of a volume is worth is damaged. Where another "
        "server "
        "has the volume whole, move this directory away, and it is made anew from there");
  }
  if (const auto version = NumberAt<uint32_t>(bytes, 8); version != kRecordVersion) {
    return absl::FailedPreconditionError(absl::StrCat("this copy of a volume is of version ",
                                                      version, ", and this server knows ",
                                                      kRecordVersion, ": update the server"));
  }
  const auto flags = NumberAt<uint32_t>(bytes, 12);
  if ((flags & ~(kWholeFlag | kPrimaryFlag)) != 0) {
    return absl::DataLossError(absl::StrCat("a copy of a volume has flags ", flags));
  }
  return ReplicaRecord{.epoch = NumberAt<uint64_t>(bytes, 16),
                       .is_whole = (flags & kWholeFlag) != 0,
                       .was_primary = (flags & kPrimaryFlag) != 0};
}

absl::StatusOr<std::optional<ReplicaRecord>> ReplicaRecord::Load(Disk& disk) {
  const auto file = disk.Open(kFileName);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  ABACUS_RETURN_IF_ERROR(file.status());
  std::string bytes(kBytes + 1, '\0');  // one more: it is not to be longer
  const absl::StatusOr<uint64_t> read = (*file)->Read(0, std::span(bytes.data(), bytes.size()));
  if (!read.ok()) return UnlessUnread(read.status());
  bytes.resize(*read);
  ABACUS_ASSIGN_OR_RETURN(const ReplicaRecord record, Decode(bytes));
  return record;
}

absl::Status ReplicaRecord::Save(Disk& disk) const {
  const absl::Status removed = disk.Remove(kNewRecordName);  // of a crash
  if (!absl::IsNotFound(removed)) ABACUS_RETURN_IF_ERROR(removed);
  ABACUS_ASSIGN_OR_RETURN(const auto file, disk.Create(kNewRecordName));
  ABACUS_RETURN_IF_ERROR(file->Write(0, Encode()));
  ABACUS_RETURN_IF_ERROR(file->Sync());
  ABACUS_RETURN_IF_ERROR(disk.Rename(kNewRecordName, kFileName));
  return disk.SyncDirectory("");
}

absl::StatusOr<std::unique_ptr<LocalObjectStore>> OpenPrimaryStore(Disk& disk, uint64_t epoch,
                                                                   LocalObjectStoreOptions options,
                                                                   uint32_t shard) {
  if (epoch == 0 || epoch > kIdEpochMax) {
    return absl::InvalidArgumentError(absl::StrCat("there is no epoch ", epoch));
  }
  if (shard >= kShardsMax) {
    return absl::InvalidArgumentError(absl::StrCat("there is no shard ", shard));
  }
  ABACUS_ASSIGN_OR_RETURN(const std::optional<ReplicaRecord> record, ReplicaRecord::Load(disk));
  ABACUS_RETURN_IF_ERROR(CheckRecord(record, epoch));
  // Who retired as a copy has seen the epoch that it is to be opened in.
  const uint64_t seen = record.has_value() ? record->epoch : 0;
  if (epoch < seen || (epoch == seen && record->was_primary)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the volume was in epoch ", seen, " here: it is not opened in epoch ", epoch));
  }
  options.ids_begin = FirstIdOf(shard, epoch);
  ABACUS_ASSIGN_OR_RETURN(auto store, LocalObjectStore::Open(disk, std::move(options)));
  const ReplicaRecord opened{.epoch = epoch, .is_whole = true, .was_primary = true};
  ABACUS_RETURN_IF_ERROR(opened.Save(disk));
  return store;
}

absl::Status CheckPrimaryStore(Disk& disk, LocalObjectStoreOptions options,
                               const std::function<bool()>& reads_on) {
  ABACUS_ASSIGN_OR_RETURN(const std::optional<ReplicaRecord> record, ReplicaRecord::Load(disk));
  // Of some epoch that is not the first.
  ABACUS_RETURN_IF_ERROR(CheckRecord(record, kIdEpochMax));
  ABACUS_ASSIGN_OR_RETURN(const auto store, LocalObjectStore::Open(disk, std::move(options)));
  return reads_on ? ReadTables(*store, reads_on) : absl::OkStatus();
}

}  // namespace abacus::objfs
