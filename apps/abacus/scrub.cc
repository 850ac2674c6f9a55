#include "apps/abacus/scrub.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "apps/abacus/volumes.h"
#include "objfs/volume/server_list.h"
#include "objfs/volume/shard.h"
#include "runtime/base/status.h"

namespace abacus::apps {

using objfs::ObjectId;
using runtime::MutexLock;

namespace {

// Of the files' names. What is being written of one has another suffix.
constexpr char kPrefix[] = ".scrub-", kSuffix[] = ".json";
constexpr uint64_t kStripesScrubbedAtOnce = 32;
constexpr uint64_t kFilesListedAtOnce = 1000;
constexpr absl::Duration kLookAtMostEvery = absl::Seconds(60);
constexpr absl::Duration kLookAtLeastEvery = absl::Milliseconds(100);
// Of a scrub under way; what was done since is done again after a crash.
constexpr absl::Duration kSaveEvery = absl::Seconds(10);

std::string PathIn(const std::string& directory, const std::string& volume) {
  return absl::StrCat(directory, "/", kPrefix, volume, kSuffix);
}

nlohmann::json TotalsJson(const ScrubTotals& totals) {
  return {{"files", totals.files},
          {"stripes", totals.stripes},
          {"failed", totals.failed},
          {"repaired", totals.repaired},
          {"mismatched", totals.mismatched},
          {"damaged", totals.damaged},
          {"partial", totals.partial},
          {"objects", totals.objects},
          {"objects_failed", totals.objects_failed},
          {"objects_repaired", totals.objects_repaired},
          {"blocks_repaired", totals.blocks_repaired},
          {"blocks_damaged", totals.blocks_damaged},
          {"copy_objects", totals.copy_objects},
          {"copy_missed", totals.copy_missed},
          {"copy_repaired", totals.copy_repaired},
          {"copy_damaged", totals.copy_damaged}};
}

// `good`: becomes false where it is no such number.
uint64_t NumberIn(const nlohmann::json& json, const char* key, bool* good) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_number_unsigned()) return found->get<uint64_t>();
  *good = false;
  return 0;
}

// The same, of what earlier versions did not write: 0 then.
uint64_t LaterNumberIn(const nlohmann::json& json, const char* key, bool* good) {
  return json.contains(key) ? NumberIn(json, key, good) : 0;
}

ScrubTotals TotalsIn(const nlohmann::json& json, const char* key, bool* good) {
  const auto found = json.find(key);
  if (found == json.end()) {
    *good = false;
    return ScrubTotals();
  }
  return {.files = NumberIn(*found, "files", good),
          .stripes = NumberIn(*found, "stripes", good),
          .failed = NumberIn(*found, "failed", good),
          .repaired = NumberIn(*found, "repaired", good),
          .mismatched = NumberIn(*found, "mismatched", good),
          .damaged = NumberIn(*found, "damaged", good),
          .partial = NumberIn(*found, "partial", good),
          .objects = LaterNumberIn(*found, "objects", good),
          .objects_failed = LaterNumberIn(*found, "objects_failed", good),
          .objects_repaired = LaterNumberIn(*found, "objects_repaired", good),
          .blocks_repaired = LaterNumberIn(*found, "blocks_repaired", good),
          .blocks_damaged = LaterNumberIn(*found, "blocks_damaged", good),
          .copy_objects = LaterNumberIn(*found, "copy_objects", good),
          .copy_missed = LaterNumberIn(*found, "copy_missed", good),
          .copy_repaired = LaterNumberIn(*found, "copy_repaired", good),
          .copy_damaged = LaterNumberIn(*found, "copy_damaged", good)};
}

nlohmann::json TimeJson(const std::optional<absl::Time>& time) {
  if (!time.has_value()) return nullptr;
  return absl::FormatTime(absl::RFC3339_full, *time, absl::UTCTimeZone());
}

// `good`: becomes false where it is neither a time nor null.
std::optional<absl::Time> TimeIn(const nlohmann::json& json, const char* key, bool* good) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_null()) return std::nullopt;
  absl::Time time;
  if (found != json.end() && found->is_string() &&
      absl::ParseTime(absl::RFC3339_full, found->get<std::string>(), &time, nullptr)) {
    return time;
  }
  *good = false;
  return std::nullopt;
}

}  // namespace

// -- a file ---------------------------------------------------------------------------------------

absl::Status ScrubFile(objfs::FileSystem& files, ObjectId id, ScrubTotals* totals,
                       const std::function<bool(uint64_t, absl::Duration)>& pace) {
  objfs::Caller caller;
  caller.checked = true;
  ABACUS_ASSIGN_OR_RETURN(const objfs::FileHandle handle, files.Open(caller, id, 0));
  absl::Status status;
  for (uint64_t at = 0;;) {
    const absl::Time begin = absl::Now();
    const auto progress = files.Scrub(handle, at, kStripesScrubbedAtOnce);
    status = progress.status();
    if (!status.ok()) break;
    at = progress->next;
    totals->stripes += progress->checked;
    totals->repaired += progress->repaired;
    totals->mismatched += progress->mismatched;
    totals->damaged += progress->damaged;
    totals->partial += progress->partial;
    const bool goes_on = pace(progress->bytes, absl::Now() - begin);
    if (progress->done) break;
    if (!goes_on) {
      status = absl::CancelledError("the scrub was broken off");
      break;
    }
  }
  status.Update(files.Release(handle));
  return status;
}

// -- the volume's own store -----------------------------------------------------------------------

absl::Status ScrubStore(const runtime::Ref<objfs::Volume>& volume, objfs::StorePlace* place,
                        ScrubTotals* totals,
                        const std::function<bool(uint64_t, absl::Duration)>& pace) {
  for (;;) {
    const absl::Time begin = absl::Now();
    ABACUS_ASSIGN_OR_RETURN(const objfs::StoreScrub step, volume->ScrubStore(*place));
    *place = step.next;
    totals->objects += step.objects;
    totals->objects_failed += step.objects_failed;
    totals->objects_repaired += step.objects_repaired;
    totals->blocks_repaired += step.repaired;
    totals->blocks_damaged += step.damaged;
    totals->copy_objects += step.copy_objects;
    totals->copy_missed += step.copy_missed;
    totals->copy_repaired += step.copy_repaired;
    totals->copy_damaged += step.copy_damaged;
    const bool goes_on = pace(step.bytes, absl::Now() - begin);
    if (!goes_on) return absl::CancelledError("the scrub was broken off");
    if (step.done) return absl::OkStatus();
  }
}

std::string StoreScrubText(const ScrubTotals& totals) {
  const bool has_copy = totals.copy_objects + totals.copy_missed > 0;
  const std::string copy =
      has_copy ? absl::StrCat("; at the copy: ", totals.copy_objects, " objects checked, ",
                              totals.copy_repaired, " blocks put back from here, ",
                              totals.copy_damaged, " damaged and not put right yet, ",
                              totals.copy_missed, " objects not checked")
               : "";
  return absl::StrCat(
      "names and inodes: ", totals.objects, " objects checked, ", totals.blocks_repaired,
      " blocks put back from the copy, ", totals.blocks_damaged,
      " damaged blocks that no copy could put back now, ", totals.objects_repaired,
      " objects with damaged tables made whole from the copy, ", totals.objects_failed,
      " objects could not be read",
      totals.blocks_damaged + totals.objects_failed > 0 ? "; their server's log names them" : "",
      copy);
}

std::string ScrubTotals::Encode() const { return TotalsJson(*this).dump(); }

// -- how far it is --------------------------------------------------------------------------------

std::string ScrubState::Encode() const {
  nlohmann::json json = {{"version", 1},
                         {"born_ns", born_ns},
                         {"since", TimeJson(since)},
                         {"begun", TimeJson(begun)},
                         {"store_id", store.id},
                         {"store_offset", store.offset},
                         {"store_done", store_done},
                         {"next", next},
                         {"finished", TimeJson(finished)},
                         {"totals", TotalsJson(totals)},
                         {"last", TotalsJson(last)},
                         {"every_s", absl::ToDoubleSeconds(every)}};
  return json.dump(2) + "\n";
}

absl::StatusOr<ScrubState> ScrubState::Decode(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto every = json.find("every_s"), born = json.find("born_ns");
  bool good =
      every != json.end() && every->is_number() && born != json.end() && born->is_number_integer();
  good = NumberIn(json, "version", &good) == 1 && good;
  ScrubState state;
  const std::optional<absl::Time> since = TimeIn(json, "since", &good);
  state.begun = TimeIn(json, "begun", &good);
  state.finished = TimeIn(json, "finished", &good);
  state.next = NumberIn(json, "next", &good);
  state.store = {.id = LaterNumberIn(json, "store_id", &good),
                 .offset = LaterNumberIn(json, "store_offset", &good)};
  if (const auto done = json.find("store_done"); done != json.end()) {
    good = good && done->is_boolean();
    state.store_done = done->is_boolean() && done->get<bool>();
  }
  state.totals = TotalsIn(json, "totals", &good);
  state.last = TotalsIn(json, "last", &good);
  if (!good || !since.has_value()) {
    return absl::DataLossError("what is kept of scrubs is damaged, or of a later version");
  }
  state.born_ns = born->get<int64_t>();
  state.since = *since;
  state.every = absl::Seconds(every->get<double>());
  return state;
}

absl::Status ScrubState::Save(const std::string& path) const {
  return objfs::SaveDurably(path, Encode());
}

absl::StatusOr<std::optional<ScrubState>> ScrubState::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  absl::StatusOr<ScrubState> state = Decode(text);
  if (state.ok()) return std::optional<ScrubState>(*std::move(state));
  return absl::DataLossError(absl::StrCat(path, ": ", state.status().message()));
}

absl::StatusOr<std::string> ScrubStates::State(const std::string& volume) {
  // It becomes a path: no name of a volume has one of these in it.
  if (volume.empty() || volume[0] == '.' || volume.find('/') != std::string::npos) {
    return absl::NotFoundError("no such volume");
  }
  ABACUS_ASSIGN_OR_RETURN(std::optional<ScrubState> state,
                          ScrubState::Load(PathIn(directory_, volume)));
  if (!state.has_value()) return absl::NotFoundError("no schedule has looked at it yet");
  state->every = every_;
  return state->Encode();
}

// -- the schedule ---------------------------------------------------------------------------------

ScrubSchedule::ScrubSchedule(runtime::Node& node, const runtime::Ref<objfs::VolumeSet>& volumes,
                             std::string directory, const runtime::Config::Scrub& config)
    : node_(node), volumes_(volumes), directory_(std::move(directory)), config_(config) {
  if (config_.every > absl::ZeroDuration()) worker_ = std::thread([this] { Work(); });
}

ScrubSchedule::~ScrubSchedule() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (worker_.joinable()) worker_.join();
}

std::string ScrubSchedule::PathOf(const std::string& volume) const {
  return PathIn(directory_, volume);
}

bool ScrubSchedule::IsStopping() {
  MutexLock lock(mutex_);
  return stopping_;
}

bool ScrubSchedule::Rest(absl::Duration rest) {
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(rest);
  MutexLock lock(mutex_);
  while (!stopping_ && std::chrono::steady_clock::now() < end) changed_.WaitUntil(mutex_, end);
  return !stopping_;
}

void ScrubSchedule::Work() {
  const absl::Duration look = std::clamp(config_.every / 100, kLookAtLeastEvery, kLookAtMostEvery);
  while (Rest(look)) {
    ForgetOthers();
    const auto all = volumes_->List();
    if (!all.ok()) continue;
    for (const objfs::VolumeSummary& volume : *all) {
      if (volumes_->Servers(volume.name).ok()) LookAt(volume.name);
    }
  }
}

// What another server answers for now, or nobody: should it come back it begins anew.
void ScrubSchedule::ForgetOthers() {
  std::error_code error;
  std::vector<std::string> volumes;
  for (auto it = std::filesystem::directory_iterator(directory_, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string file = it->path().filename().string();
    absl::string_view volume = file;
    if (absl::ConsumePrefix(&volume, kPrefix) && absl::ConsumeSuffix(&volume, kSuffix)) {
      volumes.emplace_back(volume);
    }
  }
  for (const std::string& volume : volumes) {
    const auto map = volumes_->Map(volume);
    const bool moved = map.ok() && map->epoch > 0 && !map->is_primary;
    const bool deleted = absl::IsNotFound(volumes_->Servers(volume).status());
    if (moved || deleted) std::filesystem::remove(PathOf(volume), error);
  }
}

void ScrubSchedule::LookAt(const std::string& volume) {
  auto found = ScrubState::Load(PathOf(volume));
  if (!found.ok()) {  // it is no more than when to scrub: from now on
    spdlog::warn("{}", found.status().ToString());
    found = std::optional<ScrubState>();
  }
  const absl::Time now = absl::Now();
  ScrubState state;
  if (found->has_value()) {
    state = **found;
  } else {
    state.since = now;
  }
  state.every = config_.every;
  absl::Status status;
  if (!found->has_value()) status = state.Save(PathOf(volume));
  const bool due = state.begun.has_value() || state.Due() <= now;
  if (status.ok() && due) status = Scrub(volume, &state);
  // One that is deleted meanwhile is not worth a word.
  if (!status.ok() && !IsStopping() && !absl::IsNotFound(volumes_->Servers(volume).status())) {
    spdlog::warn("volume {}: it could not be scrubbed: {}", volume, status.ToString());
  }
}

absl::Status ScrubSchedule::Scrub(const std::string& volume, ScrubState* state) {
  ABACUS_ASSIGN_OR_RETURN(const runtime::Ref<objfs::Volume> its, volumes_->Open(volume));
  const std::string client = absl::StrCat(objfs::Volume::kOwnClients, "scrub of ", node_.name());
  // Files are used by way of the whole volume, which is found by its first shard.
  const objfs::ShardPlace place = objfs::PlaceOfShard(volume);
  runtime::Ref<objfs::Volume> whole = its;
  if (place.shard != 0) {
    ABACUS_ASSIGN_OR_RETURN(whole, VolumeOf(node_, place.volume));
  }
  ABACUS_ASSIGN_OR_RETURN(
      const auto files, objfs::FileSystem::Make(whole, Kinds(), HostOf(node_), {.client = client}));
  ABACUS_ASSIGN_OR_RETURN(const objfs::Node root, files->Stat(files->root()));
  const bool is_another = state->born_ns != 0 && state->born_ns != root.inode.born_ns;
  if (is_another) {
    ScrubState anew;
    anew.since = absl::Now();
    anew.every = state->every;
    *state = anew;
  }
  state->born_ns = root.inode.born_ns;
  if (is_another) return state->Save(PathOf(volume));
  if (!state->begun.has_value()) {
    state->begun = absl::Now();
    state->store = objfs::StorePlace();
    state->store_done = false;
    state->next = 0;
    state->totals = ScrubTotals();
    ABACUS_RETURN_IF_ERROR(state->Save(PathOf(volume)));
  }
  // Another server may have come to answer for the volume, and this client gone there with it.
  const auto is_ours = [&] {
    const auto now = volumes_->Open(volume);
    return now.ok() && now->rid() == its.rid();
  };
  // First those: the files go by them.
  if (!state->store_done) ABACUS_RETURN_IF_ERROR(ScrubNames(volume, its, is_ours, state));
  const auto pace = [this](uint64_t bytes, absl::Duration took) { return RestAfter(bytes, took); };
  absl::Time saved = absl::Now();
  for (;;) {
    ABACUS_ASSIGN_OR_RETURN(const objfs::SpreadFiles some,
                            its->Spread(state->next, kFilesListedAtOnce));
    for (const objfs::Node& file : some.files) {
      if (!is_ours()) return absl::UnavailableError("this server does not answer for it any more");
      ScrubTotals totals = state->totals;
      const absl::Status status = ScrubFile(*files, file.id, &totals, pace);
      if (IsStopping()) return absl::CancelledError("the server ends");
      ++totals.files;
      // Who removed it meanwhile has no use for it.
      if (!status.ok() && objfs::FsErrorOf(status) != objfs::FsError::kStale) ++totals.failed;
      state->totals = totals;
      state->next = file.id;
      if (absl::Now() - saved < kSaveEvery) continue;
      saved = absl::Now();
      ABACUS_RETURN_IF_ERROR(state->Save(PathOf(volume)));
    }
    if (some.next == 0) break;
    state->next = some.next;
  }
  return Finish(volume, state);
}

bool ScrubSchedule::RestAfter(uint64_t bytes, absl::Duration took) {
  const absl::Duration share =
      absl::Seconds(static_cast<double>(bytes) / static_cast<double>(config_.rate));
  return Rest(std::max(took, share - took));
}

absl::Status ScrubSchedule::ScrubNames(const std::string& volume,
                                       const runtime::Ref<objfs::Volume>& its,
                                       const std::function<bool()>& is_ours, ScrubState* state) {
  absl::Time saved = absl::Now();
  const auto pace = [&](uint64_t bytes, absl::Duration took) {
    if (!RestAfter(bytes, took) || !is_ours()) return false;
    if (absl::Now() - saved >= kSaveEvery) {
      saved = absl::Now();
      // Where it fails, the next saving does, and says so.
      state->Save(PathOf(volume)).IgnoreError();
    }
    return true;
  };
  ABACUS_RETURN_IF_ERROR(ScrubStore(its, &state->store, &state->totals, pace));
  state->store_done = true;
  return state->Save(PathOf(volume));
}

absl::Status ScrubSchedule::Finish(const std::string& volume, ScrubState* state) {
  state->last = state->totals;
  state->finished = absl::Now();
  state->begun.reset();
  state->totals = ScrubTotals();
  state->store = objfs::StorePlace();
  state->store_done = false;
  state->next = 0;
  const ScrubTotals& last = state->last;
  if (last.repaired + last.mismatched + last.damaged + last.failed > 0) {
    spdlog::warn(
        "volume {}: scrubbed {} files: {} units repaired, {} parities or copies made right, {} "
        "stripes damaged beyond repair, {} files could not be read",
        volume, last.files, last.repaired, last.mismatched, last.damaged, last.failed);
  }
  const uint64_t of_names = last.blocks_repaired + last.blocks_damaged + last.objects_repaired +
                            last.objects_failed + last.copy_repaired + last.copy_damaged;
  if (of_names > 0) {
    spdlog::warn("volume {}: {}", volume, StoreScrubText(last));
  }
  return state->Save(PathOf(volume));
}

}  // namespace abacus::apps
