#ifndef ABACUS_OBJFS_MAP_MAP_PLACE_H_
#define ABACUS_OBJFS_MAP_MAP_PLACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/map/volume_row.h"

namespace abacus::objfs {

// The address of the server that keeps a map at "abacus://HOST:PORT" (map/kept_map.h). Empty: it is
// no server's.
std::string MapServerOf(std::string_view url);

// Of a volume whose metadata a server keeps: where its map is, and which of the volume's servers
// this one is. In a file of the server's: the line "abacus map 1", the map's address, the volume's
// key in hexadecimal digits, the place, and "end", a line each.
struct MapPlace {
  std::string url;  // "etcd://HOST:PORT,..." or "abacus://HOST:PORT"
  uint64_t key = 0;
  uint32_t place = 0;

  // Those of row.FreshPlaces() that may come to keep metadata: not the server that keeps the map,
  // as with both at one server nobody could take over when it dies.
  std::vector<uint32_t> PlacesForNames(const VolumeRow& row) const;

  std::string Encode() const;
  // Errors: kDataLoss - it is none, or cut off; kFailedPrecondition - of a later version.
  static absl::StatusOr<MapPlace> Decode(std::string_view text);
  // nullopt: there is no such file. Errors: as Decode(), with the path.
  static absl::StatusOr<std::optional<MapPlace>> Load(const std::string& path);

  friend bool operator==(const MapPlace&, const MapPlace&) = default;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_MAP_PLACE_H_
