#include "objfs/atomicity/log_file.h"

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/format.h"
#include "objfs/store/numbers.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kLogName[] = "atomicity";
constexpr char kNewLogName[] = "atomicity.new";
constexpr std::string_view kLogFileMagic = "ABACUSAL";
constexpr uint32_t kLogFileVersion = 1;
constexpr size_t kVersionAt = 8, kNumberAt = 16, kHalfAt = 24, kServerAt = 32, kCrcOfAt = 40;

absl::StatusOr<std::string> ReadAll(DiskFile& file, uint64_t bytes_max) {
  ABACUS_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
  std::string bytes(std::min(size, bytes_max), '\0');
  const absl::StatusOr<uint64_t> read = file.Read(0, std::span(bytes.data(), bytes.size()));
  if (!read.ok()) return UnlessUnread(read.status());
  bytes.resize(*read);
  return bytes;
}

// Under another name first: a log without a whole checkpoint is taken for a damaged one.
absl::Status MakeLog(Disk& disk, const LogFile::Header& header, std::string_view first) {
  const LogOptions& options = header.log;
  const std::string checkpoint = EncodeLogRecord(
      options.log, {.kind = LogKind::kCheckpoint, .sequence = 1, .durable = 0, .payload = first});
  if (options.half_bytes < LogFile::kHalfBytesMin || options.half_bytes > LogFile::kHalfBytesMax ||
      checkpoint.size() > options.half_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("halves of a log of ", options.half_bytes, " bytes"));
  }
  const absl::Status removed = disk.Remove(kNewLogName);  // of a crash
  if (!absl::IsNotFound(removed)) ABACUS_RETURN_IF_ERROR(removed);
  ABACUS_ASSIGN_OR_RETURN(const auto file, disk.Create(kNewLogName));
  ABACUS_RETURN_IF_ERROR(file->Write(0, LogFile::EncodeHeader(header) + checkpoint));
  ABACUS_RETURN_IF_ERROR(file->Sync());
  ABACUS_RETURN_IF_ERROR(disk.Rename(kNewLogName, kLogName));
  return disk.SyncDirectory("");
}

}  // namespace

const char* LogFile::Name() { return kLogName; }

std::string LogFile::EncodeHeader(const Header& header) {
  std::string bytes(kLogFileMagic);
  AppendNumber(&bytes, kLogFileVersion);
  AppendNumber(&bytes, uint32_t{0});
  AppendNumber(&bytes, header.log.log);
  AppendNumber(&bytes, header.log.half_bytes);
  AppendNumber(&bytes, header.server);
  AppendNumber(&bytes, Crc32c(bytes));
  bytes.resize(kHeaderBytes);
  return bytes;
}

absl::StatusOr<LogFile::Header> LogFile::DecodeHeader(std::string_view bytes) {
  const bool is_one = bytes.size() >= kHeaderBytes && bytes.starts_with(kLogFileMagic) &&
                      NumberAt<uint32_t>(bytes, kCrcOfAt) == Crc32c(bytes.substr(0, kCrcOfAt));
  if (!is_one) return absl::DataLossError("the header of the log of groups is damaged");
  if (const auto version = NumberAt<uint32_t>(bytes, kVersionAt); version != kLogFileVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the log of groups is of version ", version,
                                                      ", and this server knows ", kLogFileVersion,
                                                      ": update the server"));
  }
  const LogOptions options{.log = NumberAt<uint64_t>(bytes, kNumberAt),
                           .half_bytes = NumberAt<uint64_t>(bytes, kHalfAt)};
  if (options.half_bytes < kHalfBytesMin || options.half_bytes > kHalfBytesMax) {
    return absl::DataLossError(
        absl::StrCat("the log of groups has halves of ", options.half_bytes, " bytes"));
  }
  return Header{options, NumberAt<uint64_t>(bytes, kServerAt)};
}

absl::StatusOr<std::optional<uint64_t>> LogFile::ServerOf(Disk& disk) {
  const auto file = disk.Open(kLogName);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  ABACUS_RETURN_IF_ERROR(file.status());
  ABACUS_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(**file, kHeaderBytes));
  ABACUS_ASSIGN_OR_RETURN(const Header header, DecodeHeader(bytes));
  return header.server;
}

absl::Status LogFile::Check(Disk& disk) {
  const auto file = disk.Open(kLogName);
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(file.status());
  ABACUS_ASSIGN_OR_RETURN(const std::string bytes,
                          ReadAll(**file, kHeaderBytes + 2 * kHalfBytesMax));
  ABACUS_ASSIGN_OR_RETURN(const Header header, DecodeHeader(bytes));
  return RecoverLog(header.log, std::string_view(bytes).substr(kHeaderBytes)).status();
}

absl::StatusOr<std::unique_ptr<LogFile>> LogFile::Open(Disk& disk, uint64_t server,
                                                       uint64_t half_bytes,
                                                       std::string_view first) {
  auto file = disk.Open(kLogName);
  if (absl::IsNotFound(file.status())) {
    std::random_device random;
    const Header made{{.log = (uint64_t{random()} << 32) | random(), .half_bytes = half_bytes},
                      server};
    ABACUS_RETURN_IF_ERROR(MakeLog(disk, made, first));
    file = disk.Open(kLogName);
  }
  ABACUS_RETURN_IF_ERROR(file.status());
  // What is found may be in the page cache only, left there by a server that was killed; nothing is
  // said that rests on that.
  ABACUS_RETURN_IF_ERROR((*file)->Sync());
  ABACUS_RETURN_IF_ERROR(disk.SyncDirectory(""));
  ABACUS_ASSIGN_OR_RETURN(const std::string bytes,
                          ReadAll(**file, kHeaderBytes + 2 * kHalfBytesMax));
  ABACUS_ASSIGN_OR_RETURN(const Header header, DecodeHeader(bytes));
  if (header.server != server) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the log of groups is that of server ", header.server, ", and this is server ", server));
  }
  auto log = std::unique_ptr<LogFile>(new LogFile(header.log, *std::move(file)));
  ABACUS_ASSIGN_OR_RETURN(log->recovered_,
                          RecoverLog(header.log, std::string_view(bytes).substr(kHeaderBytes)));
  return log;
}

absl::Status LogFile::Write(const LogWrite& write) {
  return file_->Write(kHeaderBytes + write.offset, write.bytes);
}

}  // namespace abacus::objfs
