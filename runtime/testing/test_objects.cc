#include "runtime/testing/test_objects.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime::testing {

uint64_t NextRandom(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

Block MakeBytes(size_t bytes, uint64_t seed) {
  Block block = Block::Allocate(bytes);
  char* out = block.mutable_data();
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = NextRandom(seed);
    std::memcpy(out + at, &word, std::min(sizeof word, bytes - at));
  }
  return block;
}

uint64_t HashBytes(std::string_view bytes, uint64_t hash) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return hash;
}

// -- Ledger -------------------------------------------------------------------------------------

absl::StatusOr<uint64_t> Ledger::Record(uint64_t client, uint64_t number) {
  MutexLock lock(mutex_);
  Row& row = rows_[client];
  ++row.calls;
  if (number <= row.last) {
    ++row.doubled;
  } else {
    row.skipped += number - row.last - 1;
    row.last = number;
  }
  return row.calls;
}

absl::StatusOr<uint64_t> Ledger::RecordIn(Ref<Ledger> other, uint64_t client, uint64_t number) {
  return other->Record(client, number);
}

absl::StatusOr<Ledger::Row> Ledger::Read(uint64_t client) {
  MutexLock lock(mutex_);
  return rows_[client];
}

void Ledger::Checkpoint(CheckpointWriter& writer) const {
  MutexLock lock(mutex_);
  writer.Write(rows_);
}

absl::Status Ledger::Restore(CheckpointReader& reader) {
  MutexLock lock(mutex_);
  reader.Read(rows_);
  return reader.status();
}

// -- Actor --------------------------------------------------------------------------------------

namespace {

absl::Status BadScript(const std::string& script, size_t at) {
  return absl::InvalidArgumentError(absl::StrCat("script '", script, "' at ", at));
}

// Reads "N(...)" from `at` on, and leaves `at` behind it.
absl::StatusOr<std::pair<size_t, std::string>> TakePart(const std::string& script, size_t& at,
                                                        size_t cast) {
  size_t actor = 0;
  while (at < script.size() && script[at] >= '0' && script[at] <= '9') {
    actor = actor * 10 + static_cast<size_t>(script[at++] - '0');
  }
  if (at == script.size() || script[at] != '(' || actor >= cast) return BadScript(script, at);
  const size_t begin = ++at;
  for (int open = 1; open > 0; ++at) {
    if (at == script.size()) return BadScript(script, at);
    open += (script[at] == '(') - (script[at] == ')');
  }
  return std::make_pair(actor, script.substr(begin, at - 1 - begin));
}

}  // namespace

absl::StatusOr<int64_t> Actor::Play(std::string script, Cast cast) {
  int64_t steps = 0;
  for (size_t at = 0; at < script.size();) {
    const char c = script[at];
    if (c == '+') {
      ++count_;
      ++steps;
      ++at;
    } else if (c == '?') {
      return absl::FailedPreconditionError(std::to_string(count_.load()));
    } else if (c == '@') {
      const size_t end = script.find(';', at);
      if (end == std::string::npos) return BadScript(script, at);
      runtime::Reach(points_, std::string_view(script).substr(at + 1, end - at - 1));
      ++steps;
      at = end + 1;
    } else if (c == '[') {
      std::vector<std::pair<size_t, std::string>> branches;
      ++at;
      while (at < script.size() && script[at] != ']') {
        ABACUS_ASSIGN_OR_RETURN(auto branch, TakePart(script, at, cast.size()));
        branches.push_back(std::move(branch));
      }
      const bool abandon = at + 1 < script.size() && script[at + 1] == '!';
      at += abandon ? 2 : 1;
      ABACUS_ASSIGN_OR_RETURN(const int64_t below, Fork(branches, abandon, cast));
      steps += below;
    } else {
      ABACUS_ASSIGN_OR_RETURN(auto part, TakePart(script, at, cast.size()));
      ABACUS_ASSIGN_OR_RETURN(const int64_t below, cast[part.first]->Play(part.second, cast));
      steps += below;
    }
  }
  return steps;
}

absl::StatusOr<int64_t> Actor::Fork(const std::vector<std::pair<size_t, std::string>>& branches,
                                    bool abandon, const Cast& cast) {
  std::vector<BranchOf<absl::StatusOr<int64_t>>> forked;
  for (const auto& [actor, script] : branches) {
    forked.push_back(cast[actor].Fork<&Actor::Play>(script, cast));
  }
  if (abandon) return 0;
  int64_t steps = 0;
  absl::Status failed;
  for (auto& branch : forked) {
    absl::StatusOr<int64_t> below = branch.Join();
    if (below.ok()) {
      steps += *below;
    } else if (failed.ok()) {
      failed = below.status();
    }
  }
  if (!failed.ok()) return failed;
  return steps;
}

absl::StatusOr<int64_t> Actor::Count() { return count_.load(); }

absl::StatusOr<int64_t> Actor::Bounce(Ref<Actor> other, int64_t depth) {
  ++count_;
  if (depth <= 1) return 1;
  ABACUS_ASSIGN_OR_RETURN(const int64_t below, other->Bounce(SelfRef<Actor>(), depth - 1));
  return below + 1;
}

void Actor::Checkpoint(CheckpointWriter& writer) const { writer.Write(count_.load()); }

absl::Status Actor::Restore(CheckpointReader& reader) {
  count_ = reader.Read<int64_t>();
  return reader.status();
}

// -- the others ---------------------------------------------------------------------------------

absl::StatusOr<bool> Rendezvous::Meet(uint32_t callers) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  MutexLock lock(mutex_);
  const uint64_t met = met_;
  if (++inside_ >= callers) {
    inside_ = 0;
    ++met_;
    changed_.SignalAll();
    return true;
  }
  while (met_ == met) {
    if (std::chrono::steady_clock::now() >= deadline) {
      --inside_;
      return false;
    }
    changed_.WaitUntil(mutex_, deadline);
  }
  return true;
}

absl::StatusOr<int64_t> Solo::Add() {
  const int64_t before = sum_;
  std::this_thread::yield();  // another thread inside would now read the same
  sum_ = before + 1;
  return sum_;
}

absl::StatusOr<int64_t> Solo::AddThrough(Ref<Solo> via, uint32_t hops) {
  if (hops == 0) return Add();
  return via->AddThrough(SelfRef<Solo>(), hops - 1);
}

absl::StatusOr<int64_t> Solo::PlayInside(Ref<Actor> actor, std::string script, Actor::Cast cast) {
  ++sum_;
  return actor->Play(std::move(script), std::move(cast));
}

absl::Status Store::Fill(uint64_t bytes, uint64_t seed, uint32_t blocks) {
  MutexLock lock(mutex_);
  numbers_.clear();
  blocks_.clear();
  for (uint32_t i = 0; i < blocks; ++i) blocks_.push_back(MakeBytes(bytes / blocks, seed + i));
  if (blocks > 0) return absl::OkStatus();
  numbers_.resize(bytes / sizeof(uint64_t));
  for (uint64_t& number : numbers_) number = NextRandom(seed);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Store::Digest() {
  MutexLock lock(mutex_);
  uint64_t hash = HashBytes(
      {reinterpret_cast<const char*>(numbers_.data()), numbers_.size() * sizeof(uint64_t)});
  for (const Block& block : blocks_) hash = HashBytes(block.view(), hash);
  return hash;
}

void Store::Checkpoint(CheckpointWriter& writer) const {
  MutexLock lock(mutex_);
  // In parts, so that the writer can put what it has into a file.
  constexpr size_t kPart = size_t{1} << 17;
  writer.Write(static_cast<uint64_t>(numbers_.size()));
  for (size_t at = 0; at < numbers_.size(); at += kPart) {
    const auto first = numbers_.begin() + static_cast<ptrdiff_t>(at);
    const size_t count = std::min(kPart, numbers_.size() - at);
    writer.Write(std::vector<uint64_t>(first, first + static_cast<ptrdiff_t>(count)));
  }
  writer.Write(blocks_);
}

absl::Status Store::Restore(CheckpointReader& reader) {
  MutexLock lock(mutex_);
  const auto count = reader.Read<uint64_t>();
  while (numbers_.size() < count && reader.ok()) {
    const auto part = reader.Read<std::vector<uint64_t>>();
    if (part.empty()) break;
    numbers_.insert(numbers_.end(), part.begin(), part.end());
  }
  reader.Read(blocks_);
  return reader.status();
}

absl::StatusOr<std::unique_ptr<MobileObject>> TenantManager::CreateObj(const ClassInfo& info,
                                                                       size_t state_bytes) {
  if (++here_ > max_) {
    --here_;
    return absl::ResourceExhaustedError(absl::StrCat("this node takes ", max_, " tenants"));
  }
  ++counts_.tenants;
  counts_.state_bytes_seen = state_bytes;
  return info.construct();
}

void AddTestObjects(ObjectTypes& types, SyncPoints* points, int max_tenants,
                    TenantManager::Counts* tenants) {
  types.Add<Ledger>();
  types.Add<Actor>([points] { return std::make_unique<ActorManager>(points); });
  types.Add<Rendezvous>();
  types.Add<Solo>();
  types.Add<Store>();
  types.Add<Tenant>(
      [max_tenants, tenants] { return std::make_unique<TenantManager>(max_tenants, tenants); });
}

}  // namespace abacus::runtime::testing
