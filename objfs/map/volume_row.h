#ifndef ABACUS_OBJFS_MAP_VOLUME_ROW_H_
#define ABACUS_OBJFS_MAP_VOLUME_ROW_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// What a volume's map says of it: which servers it has, by place, and which of them answers for its
// names and inodes. Files name servers by their places, so a place stays, and what is at it may
// become another server.
struct VolumeRow {
  // A place that keeps the volume's metadata.
  struct Copy {
    uint32_t place = 0;
    // It has all that was ever acknowledged: it may become the primary. The primary always is.
    bool current = false;
    friend bool operator==(const Copy&, const Copy&) = default;
  };

  uint64_t key = 0;  // of this volume and no other
  // One more with each primary that begins, be it the same server again.
  uint64_t epoch = 1;
  uint32_t primary = 0;              // a place
  std::vector<std::string> servers;  // kVacant (volume/server_list.h): nobody is there any more
  std::vector<Copy> copies;
  // Places that kept metadata once. What is there may come back and is old, so none of them keeps
  // any again, whatever server is there.
  std::vector<uint32_t> former;

  bool IsCurrent(uint32_t place) const;
  bool IsCopy(uint32_t place) const;
  void SetCurrent(uint32_t place, bool current);  // REQUIRES: IsCopy(place)
  // Those that could come to keep metadata: a server is there, and none ever kept any.
  std::vector<uint32_t> FreshPlaces() const;
  // The servers, who keeps metadata and the epoch are those of `planned`: a change that was planned
  // by that row may be made of this one. Whether a copy is current changes by itself meanwhile.
  bool IsPlacedAs(const VolumeRow& planned) const;
  // `to` is to keep what `from` does, and has nothing of it yet.
  // REQUIRES: IsCopy(from), which is not the primary; `to` is one of FreshPlaces().
  void MoveCopy(uint32_t from, uint32_t to);

  // As version 1; as version 2, where a place is vacant.
  std::string Encode() const;
  // Errors: kDataLoss - it is none, or makes no sense; kFailedPrecondition - of a later version.
  static absl::StatusOr<VolumeRow> Decode(std::string_view text);

  friend bool operator==(const VolumeRow&, const VolumeRow&) = default;
};

}  // namespace abacus::objfs

namespace abacus::runtime {

// As its text, so that no row comes from another server that makes no sense. One without servers is
// none, and comes as one that was just made.
template <>
struct Codec<objfs::VolumeRow> {
  static void Encode(Writer& w, const objfs::VolumeRow& v);
  static void Decode(Reader& r, objfs::VolumeRow& v);
  static size_t Bytes(const objfs::VolumeRow& v);
  static std::string Name() { return "s"; }
};

}  // namespace abacus::runtime

#endif  // ABACUS_OBJFS_MAP_VOLUME_ROW_H_
