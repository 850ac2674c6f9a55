#include "objfs/map/kept_map.h"

#include <span>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "objfs/map/sealed_text.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr char kKeptBegin[] = "abacus kept map ";
constexpr int kKeptVersion = 1;
constexpr char kLastRevision[] = "revision ", kHolderBegin[] = "holder ", kRowRevision[] = "row ";
// A row of ServerList::kServersMax servers has far less.
constexpr uint64_t kFileBytesMax = uint64_t{1} << 20;

absl::Status DamagedKeptMap() {
  return absl::DataLossError("the row of a volume's map is cut off or damaged");
}

// "holder REVISION LEASE NAME"; the name has spaces. False: it is no such line.
bool ReadHolder(std::string_view line, KeptRow* kept) {
  const std::vector<std::string> words =
      absl::StrSplit(runtime::ToAbsl(line), absl::MaxSplits(' ', 3));
  if (words.size() != 4 || !absl::SimpleAtoi(words[1], &kept->reading.holder_revision) ||
      !absl::SimpleHexAtoi(words[2], &kept->lease)) {
    return false;
  }
  kept->reading.holder = words[3];
  return !kept->reading.holder.empty() && kept->reading.holder_revision > 0 &&
         kept->reading.holder_revision <= kept->revision;
}

}  // namespace

std::string KeptRow::Encode() const {
  std::string text = absl::StrCat(kKeptBegin, kKeptVersion, "\n", kLastRevision, revision, "\n");
  if (is_there && !reading.holder.empty()) {
    absl::StrAppend(&text, kHolderBegin, reading.holder_revision, " ", absl::Hex(lease), " ",
                    reading.holder, "\n");
  }
  if (is_there) {
    absl::StrAppend(&text, kRowRevision, reading.revision, "\n", reading.row.Encode());
  }
  return Sealed(text);
}

absl::StatusOr<KeptRow> KeptRow::Decode(std::string_view text) {
  std::string_view rest = text;
  int64_t version = 0;
  if (!NumberBehind(kKeptBegin, TakeLine(&rest), &version)) {
    return absl::DataLossError("it is no row of a volume's map");
  }
  if (version != kKeptVersion) {
    return absl::FailedPreconditionError(absl::StrCat("a map's row is kept in version ", version,
                                                      "; this build knows ", kKeptVersion));
  }
  const std::optional<std::string_view> sealed = Unsealed(text);
  if (!sealed.has_value()) return DamagedKeptMap();
  rest = *sealed;
  TakeLine(&rest);
  KeptRow kept;
  if (!NumberBehind(kLastRevision, TakeLine(&rest), &kept.revision) || kept.revision < 1) {
    return DamagedKeptMap();
  }
  if (rest.empty()) return kept;
  kept.is_there = true;
  std::string_view line = TakeLine(&rest);
  if (line.starts_with(kHolderBegin)) {
    if (!ReadHolder(line, &kept)) return DamagedKeptMap();
    line = TakeLine(&rest);
  }
  int64_t& row_revision = kept.reading.revision;
  if (!NumberBehind(kRowRevision, line, &row_revision) || row_revision < 1 ||
      row_revision > kept.revision) {
    return DamagedKeptMap();
  }
  ABACUS_ASSIGN_OR_RETURN(kept.reading.row, VolumeRow::Decode(rest));
  return kept;
}

KeptMap::KeptMap(std::shared_ptr<Disk> disk, std::string file, std::function<int64_t()> now_ns,
                 int64_t lease_ns)
    : disk_(std::move(disk)),
      file_(std::move(file)),
      now_ns_(std::move(now_ns)),
      lease_ns_(lease_ns) {}

// -- the file -------------------------------------------------------------------------------------

absl::Status KeptMap::OfDisk(const char* what, const absl::Status& why) const {
  return absl::UnavailableError(
      absl::StrCat("the map's file ", file_, " cannot be ", what,
                   " (is the disk full, or forbidden to write?): ", why.message()));
}

absl::StatusOr<std::optional<std::string>> KeptMap::ReadFile() {
  const absl::StatusOr<std::shared_ptr<DiskFile>> file = disk_->Open(file_);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return OfDisk("read", file.status());
  const absl::StatusOr<uint64_t> size = (*file)->Size();
  if (!size.ok()) return OfDisk("read", size.status());
  if (*size > kFileBytesMax) return DamagedKeptMap();
  std::string text(*size, '\0');
  const absl::StatusOr<uint64_t> read = (*file)->Read(0, std::span<char>(text.data(), text.size()));
  if (!read.ok()) return OfDisk("read", read.status());
  text.resize(*read);
  return std::optional<std::string>(std::move(text));
}

// As long as the old file is there for sure nothing is in doubt when this fails.
absl::Status KeptMap::WriteFile(const std::string& text) {
  const std::string fresh = file_ + ".new";
  disk_->Remove(fresh).IgnoreError();  // of an earlier time
  const absl::StatusOr<std::shared_ptr<DiskFile>> file = disk_->Create(fresh);
  if (!file.ok()) return OfDisk("written", file.status());
  absl::Status written = (*file)->Write(0, text);
  if (written.ok()) written = (*file)->Sync();
  if (!written.ok()) return OfDisk("written", written);
  known_ = Known::kInDoubt;
  written = disk_->Rename(fresh, file_);
  if (written.ok()) written = disk_->SyncDirectory("");
  if (!written.ok()) return OfDisk("written", written);
  known_ = Known::kAll;
  return absl::OkStatus();
}

absl::Status KeptMap::Know() {
  if (known_ == Known::kAll) return absl::OkStatus();
  ABACUS_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadFile());
  KeptRow kept;
  if (text.has_value()) {
    ABACUS_ASSIGN_OR_RETURN(kept, KeptRow::Decode(*text));
  }
  // What is told must be there after a power cut too. Of a file that somebody else left its bytes
  // are durable, and its name may not be; a sync that failed is not repeated, but written anew.
  if (known_ == Known::kInDoubt && text.has_value()) {
    ABACUS_RETURN_IF_ERROR(WriteFile(*text));
  } else {
    known_ = Known::kInDoubt;
    const absl::Status synced = disk_->SyncDirectory("");
    if (!synced.ok()) return OfDisk("synced", synced);
  }
  known_ = Known::kAll;
  kept_ = std::move(kept);
  // How much of it is left nobody knows.
  if (!kept_.reading.holder.empty()) leases_.try_emplace(kept_.lease, now_ns_() + lease_ns_);
  return absl::OkStatus();
}

absl::Status KeptMap::Save(const KeptRow& next) {
  const std::string text = next.Encode();
  const absl::StatusOr<KeptRow> again = KeptRow::Decode(text);
  if (!again.ok() || *again != next) {
    return absl::InvalidArgumentError("a row that could not be read again is not kept");
  }
  ABACUS_RETURN_IF_ERROR(WriteFile(text));
  kept_ = next;
  return absl::OkStatus();
}

// -- the map --------------------------------------------------------------------------------------

void KeptMap::Expire(int64_t now) {
  std::erase_if(leases_, [&](const auto& lease) { return lease.second <= now; });
  if (leases_.contains(kept_.lease)) return;
  // In memory only. A later lease of the same number is another one.
  kept_.lease = 0;
  kept_.reading.holder.clear();
  kept_.reading.holder_revision = 0;
}

absl::StatusOr<bool> KeptMap::Grant(uint64_t lease, int64_t now) {
  if (leases_.contains(lease)) return false;
  if (leases_.size() >= kLeasesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a volume's map has ", kLeasesMax, " leases, and grants no more"));
  }
  leases_[lease] = now + lease_ns_;
  return true;
}

absl::StatusOr<bool> KeptMap::Swap(const MapCall& call) {
  const bool takes = call.kind == MapCall::Kind::kTake;
  KeptRow next = kept_;
  const bool is_as_it_was = kept_.is_there && call.revision == next.reading.revision &&
                            (!takes || (call.holder_revision == next.reading.holder_revision &&
                                        leases_.contains(call.lease)));
  if (!is_as_it_was) return false;
  next.reading.revision = ++next.revision;
  next.reading.row = call.row;
  if (takes) {
    next.reading.holder = call.holder;
    next.reading.holder_revision = next.revision;
    next.lease = call.lease;
  }
  ABACUS_RETURN_IF_ERROR(Save(next));
  return true;
}

absl::StatusOr<MapAnswer> KeptMap::Call(const MapCall& call) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Know());
  const int64_t now = now_ns_();
  Expire(now);
  absl::StatusOr<bool> done = true;
  switch (call.kind) {
    case MapCall::Kind::kRead:
      if (!kept_.is_there) return absl::NotFoundError("there is no row");
      break;
    case MapCall::Kind::kGrant:
      done = Grant(call.lease, now);
      break;
    case MapCall::Kind::kRenew:
      done = leases_.contains(call.lease);
      if (*done) leases_[call.lease] = now + lease_ns_;
      break;
    case MapCall::Kind::kTake:
    case MapCall::Kind::kSet:
      done = Swap(call);
      break;
    default:
      done = absl::InvalidArgumentError("a call of no kind");
  }
  ABACUS_RETURN_IF_ERROR(done.status());
  if (!*done) return MapAnswer{.state = MapAnswer::State::kRefused, .reading = {}};
  return MapAnswer{.state = MapAnswer::State::kDone, .reading = kept_.reading};
}

absl::Status KeptMap::Create(const VolumeRow& row) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Know());
  if (kept_.is_there) return absl::AlreadyExistsError("the map has a row of that volume");
  KeptRow next{.revision = kept_.revision + 1, .is_there = true};
  next.reading.revision = next.revision;
  next.reading.row = row;
  return Save(next);
}

absl::Status KeptMap::Remove() {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Know());
  if (!kept_.is_there) return absl::OkStatus();
  return Save(KeptRow{.revision = kept_.revision + 1});
}

}  // namespace abacus::objfs
