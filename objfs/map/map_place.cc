#include "objfs/map/map_place.h"

#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kPlaceBegin[] = "abacus map ";
constexpr int kPlaceVersion = 1;
constexpr char kServerScheme[] = "abacus://";

}  // namespace

std::string MapServerOf(std::string_view url) {
  if (!url.starts_with(kServerScheme)) return "";
  return std::string(url.substr(sizeof(kServerScheme) - 1));
}

std::vector<uint32_t> MapPlace::PlacesForNames(const VolumeRow& row) const {
  std::vector<uint32_t> places = row.FreshPlaces();
  const std::string keeper = MapServerOf(url);
  std::erase_if(places, [&](uint32_t place) { return row.servers[place] == keeper; });
  return places;
}

std::string MapPlace::Encode() const {
  return absl::StrCat(kPlaceBegin, kPlaceVersion, "\n", url, "\n", absl::Hex(key, absl::kZeroPad16),
                      "\n", place, "\nend\n");
}

absl::StatusOr<MapPlace> MapPlace::Decode(std::string_view text) {
  const std::vector<std::string> lines = absl::StrSplit(runtime::ToAbsl(text), '\n');
  int version = 0;
  if (lines[0].rfind(kPlaceBegin, 0) != 0 ||
      !absl::SimpleAtoi(lines[0].substr(sizeof(kPlaceBegin) - 1), &version)) {
    return absl::DataLossError("it does not say where a volume's map is");
  }
  if (version != kPlaceVersion) {
    return absl::FailedPreconditionError(absl::StrCat("it says where a map is in version ", version,
                                                      "; this build knows ", kPlaceVersion));
  }
  MapPlace place;
  if (lines.size() != 6 || lines[4] != "end" || !lines[5].empty() || lines[1].empty() ||
      lines[2].size() != 16 || !absl::SimpleHexAtoi(lines[2], &place.key) ||
      !absl::SimpleAtoi(lines[3], &place.place)) {
    return absl::DataLossError("where the volume's map is, is cut off or damaged");
  }
  place.url = lines[1];
  return place;
}

absl::StatusOr<std::optional<MapPlace>> MapPlace::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  absl::StatusOr<MapPlace> place = Decode(text);
  if (place.ok()) return std::optional<MapPlace>(*std::move(place));
  return absl::Status(place.status().code(), absl::StrCat(path, ": ", place.status().message()));
}

}  // namespace abacus::objfs
