#ifndef ABACUS_OBJFS_STORE_TESTING_MODEL_OBJECT_H_
#define ABACUS_OBJFS_STORE_TESTING_MODEL_OBJECT_H_

// An object as a store's tests expect it to be: plain bytes, and a random change of them.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs::testing {

inline constexpr uint64_t kBlock = ObjectStore::kBlockBytes;

struct ModelObject {
  std::string bytes;
  std::string blob;
  VersionNumber version = 0;
  std::vector<VersionNumber> versions;  // by block, beyond the end 0

  void Resize(uint64_t size) {
    bytes.resize(size, '\0');
    versions.resize((size + kBlock - 1) / kBlock, 0);
  }
  void Write(uint64_t offset, const std::string& data, VersionNumber v) {
    Resize(std::max<uint64_t>(bytes.size(), offset + data.size()));
    bytes.replace(offset, data.size(), data);
    for (uint64_t b = offset / kBlock; b * kBlock < offset + data.size(); ++b) versions[b] = v;
    version = v;
  }
  void Truncate(uint64_t size, VersionNumber v) {
    const bool shrinks = size < bytes.size();
    Resize(size);
    if (shrinks && size % kBlock != 0 && versions.back() != 0) versions.back() = v;
    version = v;
  }
  void Punch(uint64_t offset, uint64_t count, VersionNumber v) {
    if (offset >= bytes.size() || count == 0) return;
    const uint64_t end = std::min<uint64_t>(bytes.size(), offset + count);
    std::fill(bytes.begin() + static_cast<int64_t>(offset),
              bytes.begin() + static_cast<int64_t>(end), '\0');
    for (uint64_t b = offset / kBlock; b * kBlock < end; ++b) {
      const bool whole = b * kBlock >= offset && (end == bytes.size() || (b + 1) * kBlock <= end);
      if (versions[b] != 0) versions[b] = whole ? 0 : v;
    }
    version = v;
  }
  uint64_t AllocatedBytes() const {
    return kBlock * static_cast<uint64_t>(std::count_if(versions.begin(), versions.end(),
                                                        [](VersionNumber v) { return v != 0; }));
  }
  friend bool operator==(const ModelObject&, const ModelObject&) = default;
};

// What the store has for the object.
inline absl::StatusOr<ModelObject> ReadObject(ObjectStore& store, ObjectId id) {
  const auto attributes = store.GetAttributes(id);
  if (!attributes.ok()) return attributes.status();
  ModelObject object{.bytes = std::string(attributes->size_bytes, '?'),
                     .blob = attributes->blob,
                     .version = attributes->version};
  const auto read = store.Read(id, 0, std::span(object.bytes.data(), object.bytes.size()));
  if (!read.ok()) return read.status();
  if (*read != object.bytes.size()) return absl::InternalError(absl::StrCat("read ", *read));
  const auto versions = store.ReadVersions(id, 0, (object.bytes.size() + kBlock - 1) / kBlock);
  if (!versions.ok()) return versions.status();
  object.versions = *versions;
  if (object.AllocatedBytes() != attributes->allocated_bytes) {
    return absl::InternalError(absl::StrCat("allocated ", attributes->allocated_bytes));
  }
  return object;
}

inline std::string RandomBytes(std::mt19937_64& random, uint64_t count) {
  std::string bytes(count, '\0');
  for (uint64_t i = 0; i < count; i += 8) {
    const uint64_t word = random();
    for (uint64_t j = i; j < std::min(count, i + 8); ++j) {
      bytes[j] = static_cast<char>(word >> (8 * (j - i)));
    }
  }
  return bytes;
}

// Makes a random change to the model at once, and to the store: what that answers is returned.
inline absl::Status ChangeBoth(std::mt19937_64& random, ObjectStore& store, ObjectId id,
                               ModelObject& model, VersionNumber version, uint64_t size_max) {
  const uint64_t offset = random() % size_max;
  uint64_t count = random() % 3 == 0 ? 1 + random() % 300 : 1 + random() % (size_max - offset);
  count = std::min(count, size_max - offset);
  const bool aligned = random() % 3 == 0;
  const uint64_t at = aligned ? offset / kBlock * kBlock : offset;
  switch (random() % 9) {
    case 3: {  // two writes and the attributes in one step
      const std::string first = RandomBytes(random, 1 + random() % kBlock);
      const std::string second = RandomBytes(random, 1 + random() % kBlock);
      const uint64_t gap = offset / kBlock * kBlock;
      model.Write(gap, first, version);
      model.Write(gap + 2 * kBlock, second, version);
      model.blob = RandomBytes(random, random() % 100);
      const ObjectUpdate update{
          id, {{gap + 2 * kBlock, second}, {gap, first}}, model.blob, random() % 3 == 0};
      return store.Update(std::span(&update, 1), version);
    }
    case 0:
      model.Truncate(at, version);
      return store.Truncate(id, at, version);
    case 1:
      model.Punch(at, count, version);
      return store.Punch(id, at, count, version);
    case 2:
      model.blob = RandomBytes(random, random() % 100);
      model.version = version;
      return store.SetAttributes(id, model.blob, version);
    default: {
      const std::string data = RandomBytes(random, count);
      model.Write(at, data, version);
      return store.Write(id, at, data, version);
    }
  }
}

// ABACUS_SEED, or `otherwise`.
inline uint64_t SeedFromEnvironment(uint64_t otherwise) {
  const char* text = std::getenv("ABACUS_SEED");
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_STORE_TESTING_MODEL_OBJECT_H_
