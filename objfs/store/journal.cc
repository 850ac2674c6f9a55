#include "objfs/store/journal.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {
// Room is taken by so much at a time, when there is less than that ahead.
constexpr uint64_t kRoomTaken = uint64_t{1} << 20, kRoomAhead = kRoomTaken / 2;
// For removals, of which each takes some 50 bytes; what is ahead beside it is for what has to be
// changed before something can be removed.
constexpr uint64_t kRoomKept = kRoomAhead / 2;
// Of that, for nothing but their records.
constexpr uint64_t kRoomLast = kRoomKept / 4;
constexpr uint64_t kRoomLeast = 4096;
}  // namespace

std::string JournalName(uint64_t number) { return absl::StrFormat("journal.%016x", number); }

absl::StatusOr<std::unique_ptr<Journal>> Journal::Create(Disk& disk, const JournalHeader& header) {
  const std::string name = JournalName(header.number);
  if (const absl::Status removed = disk.Remove(name); !removed.ok() && !absl::IsNotFound(removed)) {
    return removed;
  }
  auto file = disk.Create(name);
  if (!file.ok()) return file.status();
  if (auto status = (*file)->Write(0, EncodeJournalHeader(header)); !status.ok()) return status;
  if (auto status = (*file)->Sync(); !status.ok()) return status;
  if (auto status = disk.SyncDirectory(""); !status.ok()) return status;
  return std::unique_ptr<Journal>(new Journal(*std::move(file), header));
}

absl::Status Journal::TakeRoomFor(uint64_t bytes, uint64_t kept) {
  uint64_t from, end;
  {
    MutexLock lock(mutex_);
    end = written_bytes_ + writing_bytes_ + buffer_.size() + bytes;
    if (!takes_room_ || end + kRoomAhead <= room_end_) return absl::OkStatus();
    from = room_end_;
  }
  uint64_t piece = (end + kRoomAhead - from + kRoomTaken - 1) / kRoomTaken * kRoomTaken;
  absl::Status taken = file_->Allocate(from, piece);
  uint64_t room_end = taken.ok() ? from + piece : from;
  if (absl::IsResourceExhausted(taken)) {
    // Of a disk that is nearly full all there is, and no more than is to be ahead.
    const uint64_t most = end - bytes + kRoomAhead;
    piece = kRoomKept;
    while (room_end < most && piece >= kRoomLeast) {
      if (file_->Allocate(room_end, piece).ok()) {
        room_end += piece;
      } else {
        piece /= 2;
      }
    }
  }
  MutexLock lock(mutex_);
  if (absl::IsUnimplemented(taken)) takes_room_ = false;
  lacks_room_ = absl::IsResourceExhausted(taken);
  room_end_ = std::max(room_end_, room_end);
  // After another error a write will tell.
  if (!absl::IsResourceExhausted(taken) || end + kept <= room_end_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "the disk is full, and what room the store's journal has left is for removals: remove "
      "something, or make room there");
}

void Journal::TakeRoom() { TakeRoomFor(0, kRoomKept).IgnoreError(); }  // whoever needs it is told

bool Journal::lacks_room() {
  MutexLock lock(mutex_);
  return lacks_room_;
}

void Journal::GiveBackRoom() {
  uint64_t bytes;
  {
    MutexLock lock(mutex_);
    takes_room_ = false;
    if (room_end_ == 0) return;
    bytes = written_bytes_;
  }
  file_->Truncate(bytes).IgnoreError();
}

uint64_t Journal::Append(std::string_view payload) {
  MutexLock lock(mutex_);
  buffer_ += EncodeRecord(header_, ++appended_, durable_, payload);
  return appended_;
}

uint64_t Journal::Append(std::span<const std::string> payloads) {
  MutexLock lock(mutex_);
  for (const std::string& payload : payloads) {
    buffer_ += EncodeRecord(header_, ++appended_, durable_, payload);
  }
  return appended_;
}

absl::Status Journal::broken() {
  MutexLock lock(mutex_);
  return broken_;
}

absl::Status Journal::Ready(std::span<const std::string> payloads, For what) {
  uint64_t bytes = 0;
  for (const std::string& payload : payloads) bytes += kRecordHeaderBytes + payload.size();
  const uint64_t kept = what == For::kGivingBack ? kRoomLast : kRoomKept;
  if (auto status = TakeRoomFor(bytes, kept); !status.ok()) return status;
  uint64_t last;
  {
    MutexLock lock(mutex_);
    if (!write_failed_) return broken_;
    last = appended_;
  }
  return Sync(last);
}

absl::Status Journal::Sync(uint64_t sequence) {
  mutex_.Lock();
  for (;;) {
    if (durable_ >= sequence || !broken_.ok()) break;
    if (syncing_) {
      changed_.Wait(mutex_);
      continue;
    }
    // This thread writes for all that wait: records that come meanwhile go with the next one.
    syncing_ = true;
    std::string bytes = std::exchange(buffer_, "");
    const uint64_t last = appended_;
    const uint64_t at = written_bytes_;
    writing_bytes_ = bytes.size();
    mutex_.Unlock();
    const absl::Status written = file_->Write(at, bytes);
    const absl::Status synced = written.ok() ? file_->Sync() : absl::OkStatus();
    mutex_.Lock();
    syncing_ = false;
    writing_bytes_ = 0;
    changed_.SignalAll();
    write_failed_ = !written.ok();
    if (!written.ok()) {
      buffer_.insert(0, bytes);
      mutex_.Unlock();
      return written;
    }
    written_bytes_ += bytes.size();
    if (synced.ok()) {
      durable_ = last;
    } else {
      broken_ = absl::UnavailableError(absl::StrCat(
          "the store's journal could not be synced; reopen the store: ", synced.message()));
    }
  }
  const absl::Status result = durable_ >= sequence ? absl::OkStatus() : broken_;
  mutex_.Unlock();
  return result;
}

void Journal::End() {
  MutexLock lock(mutex_);
  const bool is_done = durable_ == appended_ && buffer_.empty() && !syncing_ && broken_.ok();
  if (!is_done || appended_ == 0) return;
  const std::string payload = EncodePayload(IdsRecord{.ids_end = header_.ids_end});
  file_->Write(written_bytes_, EncodeRecord(header_, appended_ + 1, durable_, payload))
      .IgnoreError();
}

uint64_t Journal::appended() {
  MutexLock lock(mutex_);
  return appended_;
}

uint64_t Journal::bytes() {
  MutexLock lock(mutex_);
  return written_bytes_ + buffer_.size();
}

absl::StatusOr<std::optional<uint64_t>> Journal::FindDamage(Disk& disk) {
  uint64_t durable;
  {
    MutexLock lock(mutex_);
    durable = durable_;
  }
  const auto bytes = ReadWhole(disk, JournalName(header_.number));
  if (!bytes.ok()) return bytes.status();
  const auto header = DecodeJournalHeader(*bytes);
  if (!header.ok() || *header != header_) return std::optional<uint64_t>(0);
  std::string_view rest = std::string_view(*bytes).substr(kJournalHeaderBytes);
  for (uint64_t sequence = 1; sequence <= durable; ++sequence) {
    const auto view = DecodeRecord(header_, rest);
    if (!view.has_value() || view->sequence != sequence) return std::optional<uint64_t>(sequence);
    rest.remove_prefix(kRecordHeaderBytes + view->payload.size());
  }
  return std::optional<uint64_t>();
}

absl::StatusOr<std::string> ReadWhole(Disk& disk, const std::string& name) {
  const auto file = disk.Open(name);
  if (!file.ok()) return file.status();
  const absl::StatusOr<uint64_t> size = (*file)->Size();
  if (!size.ok()) return size.status();
  std::string bytes(*size, '\0');
  const absl::StatusOr<uint64_t> read = (*file)->Read(0, std::span(bytes.data(), bytes.size()));
  if (!read.ok()) return UnlessUnread(read.status());
  bytes.resize(*read);
  return bytes;
}

// Records are sought at every byte, as the damaged one's length may be wrong. Of users' contents,
// which are sought through as well, any bytes seem to be a header: a checksum of what would follow
// it is computed where its numbers can be those of such a record.
bool RecordWasDurable(const JournalHeader& header, std::string_view rest, uint64_t sequence) {
  const uint64_t sequence_max = sequence + rest.size() / kRecordHeaderBytes;
  for (size_t at = 1; at + kRecordHeaderBytes <= rest.size(); ++at) {
    const std::optional<RecordView> seems = PeekRecord(rest.substr(at));
    // Those that reached the disk together with the damaged one do not tell.
    const bool may_tell = seems.has_value() && seems->durable >= sequence &&
                          seems->durable < seems->sequence && seems->sequence <= sequence_max;
    if (may_tell && DecodeRecord(header, rest.substr(at)).has_value()) return true;
  }
  return false;
}

absl::StatusOr<JournalEnd> ReadJournal(
    Disk& disk, const std::string& name,
    const std::function<absl::Status(const JournalRecord&)>& take) {
  const absl::StatusOr<std::string> bytes = ReadWhole(disk, name);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<JournalHeader> header = DecodeJournalHeader(*bytes);
  if (!header.ok()) return JournalEnd{.header = std::nullopt, .bytes = bytes->size()};
  JournalEnd end{.header = *header, .bytes = bytes->size(), .whole = kJournalHeaderBytes};
  std::string_view rest = std::string_view(*bytes).substr(kJournalHeaderBytes);
  std::vector<JournalRecord> step;  // as far as it was read
  for (uint64_t sequence = 1; !rest.empty(); ++sequence) {
    const std::optional<RecordView> view = DecodeRecord(*header, rest);
    if (!view.has_value() || view->sequence != sequence) {
      end.cut_off = true;
      if (!RecordWasDurable(*header, rest, sequence)) break;
      return absl::DataLossError(absl::StrCat(name, ": record ", sequence, " is damaged"));
    }
    absl::StatusOr<Payload> payload = DecodePayload(view->payload);
    if (!payload.ok()) return payload.status();
    rest.remove_prefix(kRecordHeaderBytes + view->payload.size());
    step.push_back(std::move(payload->record));
    if (payload->more) continue;
    for (const JournalRecord& record : step) {
      if (auto status = take(record); !status.ok()) return status;
    }
    step.clear();
    end.whole = bytes->size() - rest.size();
  }
  end.cut_off = end.cut_off || !step.empty();
  return end;
}

}  // namespace abacus::objfs
