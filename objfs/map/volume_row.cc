#include "objfs/map/volume_row.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "objfs/volume/server_list.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kRowBegin[] = "abacus volume map ";
constexpr int kRowVersion = 1, kRowVersionWithVacancies = 2;

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrCat("a volume's row is damaged: ", runtime::ToAbsl(what)));
}

// One line of a row. False: it is none.
bool ReadLine(const std::string& line, VolumeRow* row) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() == 2 && words[0] == "key") {
    return words[1].size() == 16 && absl::SimpleHexAtoi(words[1], &row->key);
  }
  if (words.size() == 2 && words[0] == "epoch") return absl::SimpleAtoi(words[1], &row->epoch);
  if (words.size() == 2 && words[0] == "primary") return absl::SimpleAtoi(words[1], &row->primary);
  if (words.size() == 2 && words[0] == "server") {
    row->servers.push_back(words[1]);
    return true;
  }
  if (words.size() == 2 && words[0] == "former") {
    return absl::SimpleAtoi(words[1], &row->former.emplace_back());
  }
  VolumeRow::Copy copy;
  if (words.size() != 3 || words[0] != "copy" || !absl::SimpleAtoi(words[1], &copy.place)) {
    return false;
  }
  copy.current = words[2] == "current";
  row->copies.push_back(copy);
  return copy.current || words[2] == "behind";
}

absl::Status CheckRow(const VolumeRow& row, bool vacancies) {
  if (const absl::Status good = CheckServers(row.servers, vacancies); !good.ok()) {
    return Damaged(runtime::ToStd(good.message()));
  }
  std::set<uint32_t> places;
  for (const VolumeRow::Copy& copy : row.copies) {
    if (copy.place >= row.servers.size() || IsVacant(row.servers[copy.place]) ||
        !places.insert(copy.place).second) {
      return Damaged("its copies");
    }
  }
  for (const uint32_t place : row.former) {
    if (place >= row.servers.size() || !places.insert(place).second) {
      return Damaged("its former copies");
    }
  }
  if (row.epoch == 0 || !row.IsCurrent(row.primary)) return Damaged("its primary");
  return absl::OkStatus();
}

}  // namespace

bool VolumeRow::IsCurrent(uint32_t place) const {
  return std::any_of(copies.begin(), copies.end(),
                     [&](const Copy& copy) { return copy.place == place && copy.current; });
}

bool VolumeRow::IsCopy(uint32_t place) const {
  return std::any_of(copies.begin(), copies.end(),
                     [&](const Copy& copy) { return copy.place == place; });
}

void VolumeRow::SetCurrent(uint32_t place, bool current) {
  for (Copy& copy : copies) {
    if (copy.place == place) copy.current = current;
  }
}

std::vector<uint32_t> VolumeRow::FreshPlaces() const {
  std::vector<uint32_t> fresh;
  for (uint32_t place = 0; place < servers.size(); ++place) {
    const bool was = std::count(former.begin(), former.end(), place) > 0;
    if (!was && !IsCopy(place) && !IsVacant(servers[place])) fresh.push_back(place);
  }
  return fresh;
}

bool VolumeRow::IsPlacedAs(const VolumeRow& planned) const {
  return servers == planned.servers && epoch == planned.epoch &&
         std::equal(copies.begin(), copies.end(), planned.copies.begin(), planned.copies.end(),
                    [](const Copy& a, const Copy& b) { return a.place == b.place; });
}

void VolumeRow::MoveCopy(uint32_t from, uint32_t to) {
  for (Copy& copy : copies) {
    if (copy.place == from) copy = {.place = to, .current = false};
  }
  former.push_back(from);
}

std::string VolumeRow::Encode() const {
  const int version = HasVacancy(servers) ? kRowVersionWithVacancies : kRowVersion;
  std::string text = absl::StrCat(kRowBegin, version, "\nkey ", absl::Hex(key, absl::kZeroPad16),
                                  "\nepoch ", epoch, "\nprimary ", primary);
  for (const Copy& copy : copies) {
    absl::StrAppend(&text, "\ncopy ", copy.place, copy.current ? " current" : " behind");
  }
  for (const uint32_t place : former) absl::StrAppend(&text, "\nformer ", place);
  for (const std::string& server : servers) absl::StrAppend(&text, "\nserver ", server);
  return text + "\nend\n";
}

absl::StatusOr<VolumeRow> VolumeRow::Decode(std::string_view text) {
  const std::vector<std::string> lines = absl::StrSplit(runtime::ToAbsl(text), '\n');
  const std::string& first = lines.front();
  int version = 0;
  if (first.rfind(kRowBegin, 0) != 0 ||
      !absl::SimpleAtoi(first.substr(sizeof(kRowBegin) - 1), &version)) {
    return absl::DataLossError("it is no row of a volume's map");
  }
  if (version != kRowVersion && version != kRowVersionWithVacancies) {
    return absl::FailedPreconditionError(absl::StrCat("a row of a volume's map, of version ",
                                                      version, "; this build knows ", kRowVersion,
                                                      " and ", kRowVersionWithVacancies));
  }
  const size_t count = lines.size();
  if (count < 3 || !lines.back().empty() || lines[count - 2] != "end") return Damaged("cut off");
  VolumeRow row;
  row.epoch = 0;
  for (size_t i = 1; i + 2 < count; ++i) {
    if (!ReadLine(lines[i], &row)) return Damaged(lines[i]);
  }
  ABACUS_RETURN_IF_ERROR(CheckRow(row, version == kRowVersionWithVacancies));
  return row;
}

}  // namespace abacus::objfs

namespace abacus::runtime {

namespace {
std::string TextOf(const objfs::VolumeRow& row) {
  return row.servers.empty() ? std::string() : row.Encode();
}
}  // namespace

void Codec<objfs::VolumeRow>::Encode(Writer& w, const objfs::VolumeRow& v) {
  w.PutString(TextOf(v));
}

void Codec<objfs::VolumeRow>::Decode(Reader& r, objfs::VolumeRow& v) {
  v = objfs::VolumeRow();
  const std::string_view text = r.TakeView();
  if (text.empty()) return;
  absl::StatusOr<objfs::VolumeRow> row = objfs::VolumeRow::Decode(text);
  if (!row.ok()) return r.Fail("a volume's row does not parse");
  v = *std::move(row);
}

size_t Codec<objfs::VolumeRow>::Bytes(const objfs::VolumeRow& v) { return TextOf(v).size(); }

}  // namespace abacus::runtime
