#include "objfs/volume/shard_records.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "objfs/store/format.h"
#include "objfs/store/numbers.h"
#include "objfs/store/object_id.h"
#include "runtime/base/block.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr uint8_t kShardRecordVersion = 1;
// A version and a checksum of what follows.
constexpr size_t kShardRecordHeadBytes = sizeof(uint8_t) + sizeof(uint32_t);
// A length, and room for more.
constexpr uint64_t kSlotHeadBytes = 2 * sizeof(uint32_t);
constexpr uint8_t kMustBeLinked = 1, kMustBeEmpty = 2, kCloses = 4, kCreates = 8;

static_assert(ShardRecords::kSlotBytes % ObjectStore::kBlockBytes == 0,
              "two slots never share a block");

// What is to be written stands in the record itself, however much it is: the codec would put large
// blocks beside it.
void PutPart(runtime::Writer& writer, const Part& part) {
  writer.PutNumber(part.id);
  runtime::Encode(writer, part.reads);
  writer.PutNumber(uint64_t{part.writes.size()});
  for (const RangeWrite& write : part.writes) {
    writer.PutNumber(write.offset);
    writer.PutString(write.bytes.view());
  }
  runtime::Encode(writer, part.change);
  uint8_t flags = 0;
  if (part.must_be_linked) flags |= kMustBeLinked;
  if (part.must_be_empty) flags |= kMustBeEmpty;
  if (part.closes) flags |= kCloses;
  if (part.creation.has_value()) flags |= kCreates;
  writer.PutNumber(flags);
  if (!part.creation.has_value()) return;
  writer.PutString(part.creation->inode.Encode());  // which has a version of its own
  writer.PutString(part.creation->contents);
  runtime::Encode(writer, part.creation->opens);
}

Part TakePart(runtime::Reader& reader) {
  Part part;
  part.id = reader.TakeNumber<uint64_t>();
  runtime::Decode(reader, part.reads);
  const size_t writes = reader.TakeCount();
  for (size_t i = 0; i < writes && reader.ok(); ++i) {
    RangeWrite write;
    write.offset = reader.TakeNumber<uint64_t>();
    write.bytes = runtime::Block::CopyOf(reader.TakeView());
    part.writes.push_back(std::move(write));
  }
  runtime::Decode(reader, part.change);
  const auto flags = reader.TakeNumber<uint8_t>();
  part.must_be_linked = (flags & kMustBeLinked) != 0;
  part.must_be_empty = (flags & kMustBeEmpty) != 0;
  part.closes = (flags & kCloses) != 0;
  if ((flags & ~(kMustBeLinked | kMustBeEmpty | kCloses | kCreates)) != 0) {
    reader.Fail("a part has flags that are not known");
  }
  if ((flags & kCreates) == 0 || !reader.ok()) return part;
  Creation& creation = part.creation.emplace();
  absl::StatusOr<Inode> inode = Inode::Decode(reader.TakeView());
  if (inode.ok()) {
    creation.inode = *std::move(inode);
  } else {
    reader.Fail("the inode of what is made is damaged");
  }
  runtime::Decode(reader, creation.contents);
  runtime::Decode(reader, creation.opens);
  return part;
}

void PutTransaction(runtime::Writer& writer, const Transaction& transaction) {
  writer.PutNumber(uint64_t{transaction.parts.size()});
  for (const Part& part : transaction.parts) PutPart(writer, part);
  runtime::Encode(writer, transaction.tree);
}

Transaction TakeTransaction(runtime::Reader& reader) {
  Transaction transaction;
  const size_t parts = reader.TakeCount();
  for (size_t i = 0; i < parts && reader.ok(); ++i) transaction.parts.push_back(TakePart(reader));
  runtime::Decode(reader, transaction.tree);
  return transaction;
}

bool IsShard(uint32_t shard) { return shard < kShardsMax; }

// What no shard writes.
bool IsSound(const ShardRecord& record) {
  switch (record.kind) {
    case ShardRecord::Kind::kPrepared:
      return record.group != 0 && IsShard(record.coordinator);
    case ShardRecord::Kind::kDecided:
      return record.group != 0 && std::all_of(record.shards.begin(), record.shards.end(), IsShard);
  }
  return false;
}

absl::Status DamagedShardRecord() {
  return absl::DataLossError("a record of a transaction over several shards is damaged");
}

// As many bytes as there are, up to `bytes` of them; zeros behind the end.
absl::StatusOr<std::string> ReadOf(ObjectStore& store, ObjectId id, uint64_t offset,
                                   uint64_t bytes) {
  std::string read(bytes, '\0');
  ABACUS_ASSIGN_OR_RETURN(const uint64_t there,
                          store.Read(id, offset, std::span(read.data(), read.size())));
  std::fill(read.begin() + static_cast<std::ptrdiff_t>(there), read.end(), '\0');
  return read;
}

// An error of one slot, as it is told to who needs all of them: with the way out.
absl::Status Unreadable(ObjectId id, ShardRecords::Slot slot, const absl::Status& why) {
  // Which transactions were committed is told by these alone: without one of them the volume could
  // do half of what was promised whole.
  if (absl::IsDataLoss(why) || absl::IsNotFound(why)) {
    return absl::DataLossError(absl::StrCat(
        "what this shard knows of transactions that other shards take part in cannot be read ",
        "(object ", id, ", record ", slot, "): ", why.message(),
        ". Nothing was changed. Let a server with a copy of the shard take over; where there is ",
        "none, stop this one: abacus fsck tells what is left, and repairs it"));
  }
  return absl::Status(why.code(),
                      absl::StrCat("object ", id, ", record ", slot, ": ", why.message()));
}

}  // namespace

std::string ShardRecord::Encode() const {
  runtime::Writer out;
  out.PutNumber(static_cast<uint8_t>(kind));
  out.PutNumber(group);
  if (kind == Kind::kPrepared) {
    out.PutNumber(coordinator);
    out.PutNumber(writer);
    PutTransaction(out, transaction);
  } else {
    runtime::Encode(out, shards);
  }
  const std::string fields = std::move(out).Finish().inline_bytes;
  std::string bytes;
  AppendNumber(&bytes, kShardRecordVersion);
  AppendNumber(&bytes, Crc32c(fields));
  return bytes + fields;
}

absl::StatusOr<ShardRecord> ShardRecord::Decode(std::string_view bytes) {
  if (bytes.size() < kShardRecordHeadBytes || bytes[0] == 0) return DamagedShardRecord();
  if (const auto version = NumberAt<uint8_t>(bytes, 0); version != kShardRecordVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("a record of a transaction over several shards has version ", version,
                     " and this build knows ", kShardRecordVersion,
                     ": use the build that wrote it, or a later one"));
  }
  const std::string_view fields = bytes.substr(kShardRecordHeadBytes);
  if (NumberAt<uint32_t>(bytes, sizeof(uint8_t)) != Crc32c(fields)) return DamagedShardRecord();
  const std::vector<runtime::Block> none;
  runtime::Reader reader(fields, none, nullptr);
  ShardRecord record;
  record.kind = static_cast<Kind>(reader.TakeNumber<uint8_t>());
  record.group = reader.TakeNumber<uint64_t>();
  if (record.kind == Kind::kPrepared) {
    record.coordinator = reader.TakeNumber<uint32_t>();
    record.writer = reader.TakeNumber<uint16_t>();
    record.transaction = TakeTransaction(reader);
  } else {
    runtime::Decode(reader, record.shards);
  }
  if (!reader.ok() || !reader.AtEnd() || !IsSound(record)) return DamagedShardRecord();
  return record;
}

ShardRecords::ShardRecords(std::shared_ptr<ObjectStore> store, ObjectId id)
    : store_(std::move(store)), id_(id) {}

absl::StatusOr<std::unique_ptr<ShardRecords>> ShardRecords::Open(std::shared_ptr<ObjectStore> store,
                                                                 ObjectId id) {
  std::unique_ptr<ShardRecords> records(new ShardRecords(std::move(store), id));
  ABACUS_RETURN_IF_ERROR(records->ReadAll());
  return records;
}

absl::StatusOr<std::optional<ShardRecord>> ShardRecords::ReadSlot(ObjectStore& store, ObjectId id,
                                                                  Slot slot) {
  const uint64_t offset = slot * kSlotBytes;
  ABACUS_ASSIGN_OR_RETURN(const std::string head, ReadOf(store, id, offset, kSlotHeadBytes));
  const auto length = NumberAt<uint32_t>(head, 0), reserved = NumberAt<uint32_t>(head, 4);
  if (length > kRecordBytesMax || reserved != 0) return DamagedShardRecord();
  if (length == 0) return std::nullopt;
  ABACUS_ASSIGN_OR_RETURN(const std::string bytes,
                          ReadOf(store, id, offset + kSlotHeadBytes, length));
  ABACUS_ASSIGN_OR_RETURN(ShardRecord record, ShardRecord::Decode(bytes));
  return std::optional<ShardRecord>(std::move(record));
}

absl::Status ShardRecords::ReadAll() {
  for (Slot slot = 0; slot < kSlots; ++slot) {
    absl::StatusOr<std::optional<ShardRecord>> record = ReadSlot(*store_, id_, slot);
    if (!record.ok()) return Unreadable(id_, slot, record.status());
    if (!record->has_value()) continue;
    MutexLock lock(mutex_);
    used_.insert(slot);
    found_.emplace_back(slot, **std::move(record));
  }
  return absl::OkStatus();
}

std::vector<std::pair<ShardRecords::Slot, ShardRecord>> ShardRecords::TakeFound() {
  MutexLock lock(mutex_);
  return std::exchange(found_, {});
}

absl::StatusOr<ShardRecords::Slot> ShardRecords::Take(const ShardRecord& record, Change* change) {
  const std::string bytes = record.Encode();
  if (bytes.size() > kRecordBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("a shard's part of a transaction takes ",
                                                     bytes.size(), " bytes; at most ",
                                                     kRecordBytesMax, " can be"));
  }
  Slot slot = 0;
  {
    MutexLock lock(mutex_);
    while (used_.contains(slot)) ++slot;
    if (slot == kSlots) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kSlots, " transactions over several shards are under way here: ask again later"));
    }
    used_.insert(slot);
  }
  change->id = id_;
  change->offset = slot * kSlotBytes;
  change->bytes.clear();
  AppendNumber(&change->bytes, static_cast<uint32_t>(bytes.size()));
  AppendNumber(&change->bytes, uint32_t{0});
  change->bytes += bytes;
  // Whole blocks: what was there before is not read, be it damaged or not.
  constexpr uint64_t kBlock = ObjectStore::kBlockBytes;
  change->bytes.resize((change->bytes.size() + kBlock - 1) / kBlock * kBlock);
  return slot;
}

ShardRecords::Change ShardRecords::Emptied(Slot slot) const {
  return {
      .id = id_, .offset = slot * kSlotBytes, .bytes = std::string(ObjectStore::kBlockBytes, '\0')};
}

void ShardRecords::GiveBack(Slot slot) {
  MutexLock lock(mutex_);
  used_.erase(slot);
}

size_t ShardRecords::used() {
  MutexLock lock(mutex_);
  return used_.size();
}

}  // namespace abacus::objfs
