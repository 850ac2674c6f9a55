// What a store reads from its disk, damaged in any way: no crash, no endless work, and where the
// store opens, each object reads or says why not. What a scan makes right it does not find again.
//
// The first byte says what the rest is: 0 a superblock, 1 a journal's record payloads (the
// checksums are made to fit, so that what is behind them is reached), 2 the raw journal file, 3 a
// table page with a fitting checksum, 4 a raw table file; 5 to 9 the same, repaired before it is
// used.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "objfs/store/format.h"
#include "objfs/store/journal.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/names.h"
#include "objfs/store/store_scan.h"

namespace {

using namespace abacus::objfs;  // NOLINT: the whole vocabulary

constexpr uint64_t kStore = 7;
constexpr ObjectId kObject = 5;

void Put(MemoryDisk& disk, const std::string& path, const std::string& bytes) {
  disk.Remove(path).IgnoreError();
  const auto file = disk.Create(path);
  if (!file.ok() || !(*file)->Write(0, bytes).ok()) abort();
}

std::string Sealed(std::string page) {
  page.resize(kTablePageBytes - 4, '\0');
  const uint32_t crc = Crc32c(page);
  for (int i = 0; i < 4; ++i) page.push_back(static_cast<char>(crc >> (8 * i)));
  return page;
}

// Payloads, each after two bytes that say how long it is.
std::string Records(std::string_view rest, const JournalHeader& journal) {
  std::string bytes = EncodeJournalHeader(journal);
  for (uint64_t sequence = 1; rest.size() >= 2; ++sequence) {
    const size_t length = static_cast<uint8_t>(rest[0]) | (static_cast<uint8_t>(rest[1]) << 8);
    rest.remove_prefix(2);
    const std::string_view payload = rest.substr(0, length);
    rest.remove_prefix(payload.size());
    bytes += EncodeRecord(journal, sequence, 0, payload);
  }
  return bytes;
}

void UseStore(Disk& disk) {
  auto store = LocalObjectStore::Open(disk, {.ids_batch = 4});
  if (!store.ok()) return;
  const auto ids = (*store)->List(0, 16);
  if (!ids.ok()) abort();
  for (const ObjectId id : *ids) {
    std::string bytes(3 * ObjectStore::kBlockBytes, '\0');
    (*store)->Read(id, 0, std::span(bytes.data(), bytes.size())).status().IgnoreError();
    (*store)->GetAttributes(id).status().IgnoreError();
    (*store)->Write(id, 100, "abc", 1).IgnoreError();
    (*store)->Truncate(id, 50, 2).IgnoreError();
  }
  const auto created = (*store)->Create("", 1);
  if (created.ok() && std::find(ids->begin(), ids->end(), *created) != ids->end()) abort();
  (*store)->FlushAll().IgnoreError();
  // Whatever it was, what the store wrote itself it must be able to read again.
  store->reset();
  if (!LocalObjectStore::Open(disk, {}).ok()) abort();
}

void Repair(Disk& disk) {
  const auto scanned = ScanStore(disk);
  if (!scanned.ok()) abort();
  bool right = true;
  for (const StoreFault& fault : scanned->faults) {
    right = right && fault.fix.has_value();
    if (fault.fix.has_value() && !ApplyFix(disk, fault).ok()) abort();
  }
  const auto again = ScanStore(disk);
  if (!again.ok() || (right && !again->faults.empty())) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const JournalHeader journal{.store = kStore, .number = 1, .ids_end = 100};
  MemoryDisk disk;
  for (uint64_t i = 0; i < kFolders; ++i) disk.MakeDirectory(FolderName(i)).IgnoreError();
  Put(disk, kSuperblockName, EncodeSuperblock({.store = kStore}));
  Put(disk, JournalName(1), EncodeJournalHeader(journal));
  Put(disk, DataPath(kObject), std::string(ObjectStore::kBlockBytes, 'x'));
  switch (data[0] % 5) {
    case 0:
      Put(disk, kSuperblockName, rest);
      break;
    case 1:
      Put(disk, JournalName(1), Records(rest, journal));
      break;
    case 2:
      Put(disk, JournalName(1), rest);
      break;
    case 3:
      Put(disk, TablePath(kObject), Sealed(rest));
      break;
    default:
      Put(disk, TablePath(kObject), rest);
      break;
  }
  if (data[0] / 5 % 2 == 1) Repair(disk);
  UseStore(disk);
  return 0;
}
