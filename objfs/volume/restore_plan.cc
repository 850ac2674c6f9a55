#include "objfs/volume/restore_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "objfs/volume/server_list.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

// A server that answered, and the row that it remembers.
struct Witness {
  const std::string* address;
  const MapMemory* memory;
  std::optional<VolumeRow> row;
};

std::optional<VolumeRow> RowOf(const MapMemory& memory, uint64_t key) {
  if (!memory.keeps_names || memory.row.empty()) return std::nullopt;
  absl::StatusOr<VolumeRow> row = VolumeRow::Decode(memory.row);
  if (!row.ok() || row->key != key) return std::nullopt;
  return *std::move(row);
}

bool IsNewer(const Witness& a, const Witness& b) {
  if (!a.row.has_value() || !b.row.has_value()) return a.row.has_value();
  if (a.row->epoch != b.row->epoch) return a.row->epoch > b.row->epoch;
  // Revisions go back where a map was set back; within an epoch its primary alone changes the row.
  const auto is_its = [](const Witness& witness) {
    return witness.memory->place == witness.row->primary;
  };
  if (is_its(a) != is_its(b)) return is_its(a);
  return a.memory->revision > b.memory->revision;
}

class Planner {
 public:
  Planner(const std::string& name, const std::string& url, uint64_t key,
          const std::vector<ServerMemory>& asked)
      : name_(name), url_(url), asked_(asked) {
    for (const ServerMemory& server : asked) {
      if (!server.memory.ok()) continue;
      witnesses_.push_back({&server.address, &*server.memory, RowOf(*server.memory, key)});
    }
  }

  absl::StatusOr<RestorePlan> Plan(bool forced);

 private:
  // The newest row that anybody remembers.
  absl::Status FindNewest();
  absl::Status CheckMaps() const;
  const Witness* Find(const std::string& address) const;
  // Why the server at a place of the newest row cannot serve; empty: it can.
  std::string WhyNot(uint32_t place) const;
  absl::StatusOr<uint32_t> ChoosePrimary() const;
  absl::Status CheckNobodyElseServes(const std::string& primary) const;
  std::vector<std::string> Doubts() const;
  uint64_t HighestEpoch() const;
  absl::Status Refuse(const std::string& why) const {
    return absl::FailedPreconditionError(
        absl::StrCat("the row of volume '", name_, "' is not put back: ", why));
  }

  const std::string& name_;
  const std::string& url_;
  const std::vector<ServerMemory>& asked_;
  std::vector<Witness> witnesses_;
  VolumeRow newest_;
};

absl::Status Planner::FindNewest() {
  const auto newest = std::min_element(witnesses_.begin(), witnesses_.end(), IsNewer);
  if (newest == witnesses_.end() || !newest->row.has_value()) {
    std::vector<std::string> silent = Doubts();
    return Refuse(
        absl::StrCat("no server that answers remembers it",
                     silent.empty() ? "" : absl::StrCat(": ", absl::StrJoin(silent, "; ")),
                     ". Start the servers that kept the volume's names and inodes"));
  }
  newest_ = *newest->row;
  return absl::OkStatus();
}

absl::Status Planner::CheckMaps() const {
  for (const Witness& witness : witnesses_) {
    const MapMemory& memory = *witness.memory;
    if (!memory.keeps_names || memory.url == url_) continue;
    const std::string served =
        memory.serves_epoch == 0
            ? absl::StrCat("server ", *witness.address, " has the volume's map at ", memory.url)
            : absl::StrCat("the volume is being served by ", *witness.address, " under epoch ",
                           memory.serves_epoch, " from the map at ", memory.url);
    return Refuse(absl::StrCat(served, ", and not at ", url_, ": have the files .map-", name_,
                               " of all its servers name the map that it is to be in, and start "
                               "these again"));
  }
  return absl::OkStatus();
}

const Witness* Planner::Find(const std::string& address) const {
  for (const Witness& witness : witnesses_) {
    if (*witness.address == address) return &witness;
  }
  return nullptr;
}

std::string Planner::WhyNot(uint32_t place) const {
  if (!newest_.IsCurrent(place)) {
    return absl::StrCat("is behind by the newest row that is remembered, of epoch ", newest_.epoch,
                        ": it lacks what was acknowledged since");
  }
  const Witness* witness = Find(newest_.servers[place]);
  if (witness == nullptr) return "does not answer";
  const MapMemory& memory = *witness->memory;
  if (!memory.keeps_names || memory.place != place) return "has nothing of that place any more";
  return memory.is_whole ? "" : memory.why.empty() ? "is not whole" : memory.why;
}

absl::StatusOr<uint32_t> Planner::ChoosePrimary() const {
  std::vector<uint32_t> places = {newest_.primary};
  for (const VolumeRow::Copy& copy : newest_.copies) {
    if (copy.place != newest_.primary) places.push_back(copy.place);
  }
  std::vector<std::string> why;
  for (const uint32_t place : places) {
    const std::string not_this = WhyNot(place);
    if (not_this.empty()) return place;
    why.push_back(absl::StrCat("server ", newest_.servers[place], " ", not_this));
  }
  return Refuse(absl::StrCat("no server has the volume's names and inodes whole: ",
                             absl::StrJoin(why, "; "), ". Start the one that does"));
}

absl::Status Planner::CheckNobodyElseServes(const std::string& primary) const {
  for (const Witness& witness : witnesses_) {
    if (witness.memory->serves_epoch == 0 || *witness.address == primary) continue;
    return Refuse(absl::StrCat("the volume is being served by ", *witness.address, " under epoch ",
                               witness.memory->serves_epoch, ", and by the newest row ", primary,
                               " is to answer for it: stop ", *witness.address, " first"));
  }
  return absl::OkStatus();
}

std::vector<std::string> Planner::Doubts() const {
  std::vector<std::string> doubts;
  const auto doubt = [&](const std::string& server, auto... what) {
    doubts.push_back(absl::StrCat("server ", server, " ", what...));
  };
  for (const ServerMemory& server : asked_) {
    if (!server.memory.ok()) {
      doubt(server.address, "does not answer (", server.memory.status().message(), ")");
    }
  }
  for (const Witness& witness : witnesses_) {
    const MapMemory& memory = *witness.memory;
    const auto place = static_cast<uint32_t>(
        std::find(newest_.servers.begin(), newest_.servers.end(), *witness.address) -
        newest_.servers.begin());
    if (!memory.doubt.empty()) doubt(*witness.address, "cannot tell all: ", memory.doubt);
    if (memory.keeps_names && !witness.row.has_value()) {
      doubt(*witness.address, "remembers no row of the volume");
    } else if (!memory.keeps_names && newest_.IsCopy(place)) {
      doubt(*witness.address, "has lost what it kept of names and inodes");
    }
    const uint64_t seen = std::max(memory.seen_epoch, memory.serves_epoch);
    if (seen > newest_.epoch && !newest_.servers.empty()) {
      doubt(*witness.address, "has seen epoch ", seen,
            " of the volume, and the newest row that anybody remembers is of epoch ",
            newest_.epoch);
    }
  }
  return doubts;
}

uint64_t Planner::HighestEpoch() const {
  uint64_t highest = newest_.epoch;
  for (const Witness& witness : witnesses_) {
    highest = std::max({highest, witness.memory->seen_epoch, witness.memory->serves_epoch});
  }
  return highest;
}

absl::StatusOr<RestorePlan> Planner::Plan(bool forced) {
  ABACUS_RETURN_IF_ERROR(CheckMaps());
  ABACUS_RETURN_IF_ERROR(FindNewest());
  ABACUS_ASSIGN_OR_RETURN(const uint32_t primary, ChoosePrimary());
  const std::string& address = newest_.servers[primary];
  ABACUS_RETURN_IF_ERROR(CheckNobodyElseServes(address));
  RestorePlan plan{.row = newest_, .waits = false, .doubts = Doubts()};
  if (!plan.doubts.empty() && !forced) {
    return Refuse(absl::StrCat(
        absl::StrJoin(plan.doubts, "; "), ". Start what is down, and say this again. With --force ",
        address, " answers for the volume, by the row of epoch ", newest_.epoch,
        ": what another server has acknowledged since, and ", address,
        " lacks, is lost for good; a server that does not answer must not be serving, and is "
        "filled again from ",
        address, " when it comes back"));
  }
  plan.row.epoch = HighestEpoch() + 1 + (plan.doubts.empty() ? 0 : kEpochsSkipped);
  plan.row.primary = primary;
  for (VolumeRow::Copy& copy : plan.row.copies) copy.current = copy.place == primary;
  const MapMemory& memory = *Find(address)->memory;
  plan.waits = memory.serves_epoch == 0 && memory.has_promised;
  return plan;
}

}  // namespace

std::vector<std::string> ServersNamedIn(const MapMemory& memory) {
  std::vector<std::string> named = memory.servers;
  if (const absl::StatusOr<VolumeRow> row = VolumeRow::Decode(memory.row); row.ok()) {
    named.insert(named.end(), row->servers.begin(), row->servers.end());
  }
  std::erase_if(named, [](const std::string& server) { return IsVacant(server); });
  return named;
}

absl::StatusOr<RestorePlan> PlanRestore(const std::string& name, const std::string& url,
                                        uint64_t key, const std::vector<ServerMemory>& asked,
                                        bool forced) {
  return Planner(name, url, key, asked).Plan(forced);
}

}  // namespace abacus::objfs
