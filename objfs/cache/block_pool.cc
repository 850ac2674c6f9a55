#include "objfs/cache/block_pool.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;

namespace {

// The same bytes with `part` at `offset`. Others may hold the old ones and go on reading them.
Block With(const Block& old, uint64_t bytes, uint64_t offset, std::string_view part) {
  Block merged = Block::Allocate(bytes);
  char* to = merged.mutable_data();
  if (part.size() < bytes) {
    if (old.empty()) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, old.data(), bytes);
    }
  }
  std::memcpy(to + offset, part.data(), part.size());
  return merged;
}

}  // namespace

BlockPool::File& BlockPool::Of(FileId file) {
  const auto it = files_.find(file);
  assert(it != files_.end());
  return it->second;
}
const BlockPool::File& BlockPool::Of(FileId file) const {
  const auto it = files_.find(file);
  assert(it != files_.end());
  return it->second;
}

BlockPool::FileId BlockPool::Open(uint64_t block_bytes) {
  MutexLock lock(mutex_);
  files_[++last_file_].block_bytes = block_bytes;
  return last_file_;
}

void BlockPool::Close(FileId file) {
  MutexLock lock(mutex_);
  File& of = Of(file);
  for (const uint64_t index : In(of, 0, UINT64_MAX)) Remove(of, index);
  files_.erase(file);
}

std::vector<std::optional<BlockPool::Found>> BlockPool::Find(FileId file, uint64_t first,
                                                             uint64_t count) {
  std::vector<std::optional<Found>> found(count);
  MutexLock lock(mutex_);
  File& of = Of(file);
  for (uint64_t i = 0; i < count; ++i) {
    const auto it = of.blocks.find(first + i);
    if (it == of.blocks.end()) continue;
    found[i] = {it->second.bytes, it->second.version};
    if (!it->second.dirty) recent_.splice(recent_.begin(), recent_, it->second.recent);
  }
  return found;
}

uint64_t BlockPool::BeginFetch(FileId file, uint64_t first, uint64_t count) {
  MutexLock lock(mutex_);
  Of(file).fetches[++last_fetch_] = {first, first + count - 1, {}, false};
  return last_fetch_;
}

void BlockPool::EndFetch(FileId file, uint64_t fetch, const std::vector<Found>& blocks) {
  MutexLock lock(mutex_);
  File& of = Of(file);
  const Fetch fetched = std::move(of.fetches[fetch]);
  of.fetches.erase(fetch);
  if (fetched.all_stale) return;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const uint64_t index = fetched.first + i;
    // What is there is as new or newer: it was written, or another fetch began later.
    if (!fetched.stale.contains(index) && !of.blocks.contains(index)) {
      Put(of, file, index, blocks[i]);
    }
  }
  MakeRoom();
}

void BlockPool::Put(File& of, FileId file, uint64_t index, const Found& block) {
  Entry& entry = of.blocks[index];
  entry.bytes = block.bytes;
  entry.version = block.version;
  entry.recent = recent_.insert(recent_.begin(), {file, index});
  of.used_bytes += of.block_bytes;
  used_bytes_ += of.block_bytes;
}

void BlockPool::Remove(File& of, uint64_t index) {
  const auto it = of.blocks.find(index);
  if (it == of.blocks.end()) return;
  if (it->second.dirty) {
    of.dirty.erase(index);
    dirty_bytes_ -= of.block_bytes;
  } else {
    recent_.erase(it->second.recent);
  }
  of.blocks.erase(it);
  of.used_bytes -= of.block_bytes;
  used_bytes_ -= of.block_bytes;
}

void BlockPool::MakeRoom() {
  while (used_bytes_ > budget_bytes_ && !recent_.empty()) {
    const Slot oldest = recent_.back();
    Remove(Of(oldest.file), oldest.index);
  }
}

bool BlockPool::Write(FileId file, uint64_t index, uint64_t offset, std::string_view bytes,
                      Version version, bool or_zeros) {
  MutexLock lock(mutex_);
  File& of = Of(file);
  if (!of.blocks.contains(index)) {
    if (bytes.size() < of.block_bytes && !or_zeros) return false;
    Put(of, file, index, {});
  }
  WriteInto(of, index, offset, bytes, version);
  MakeRoom();
  return true;
}

bool BlockPool::WriteFetched(FileId file, uint64_t fetch, const Found& block, uint64_t offset,
                             std::string_view bytes, Version version) {
  MutexLock lock(mutex_);
  File& of = Of(file);
  const Fetch fetched = std::move(of.fetches[fetch]);
  of.fetches.erase(fetch);
  const uint64_t index = fetched.first;
  if (!of.blocks.contains(index)) {
    if (fetched.all_stale || fetched.stale.contains(index)) return false;
    Put(of, file, index, block);
  }
  WriteInto(of, index, offset, bytes, version);
  MakeRoom();
  return true;
}

void BlockPool::WriteInto(File& of, uint64_t index, uint64_t offset, std::string_view bytes,
                          Version version) {
  assert(offset + bytes.size() <= of.block_bytes);
  SpoilFetchesOf(of, index);
  Entry& entry = of.blocks[index];
  entry.bytes = With(entry.bytes, of.block_bytes, offset, bytes);
  entry.version = std::max(entry.version, version);
  entry.written = ++writes_;
  // A writer that goes on where it stopped writes nothing over.
  entry.again = entry.again || offset < entry.last_end;
  entry.last_end = offset + bytes.size();
  if (entry.dirty) return;
  recent_.erase(entry.recent);
  entry.dirty = true;
  of.dirty.insert(index);
  dirty_bytes_ += of.block_bytes;
}

std::vector<BlockPool::Dirty> BlockPool::TakeDirty(FileId file, uint64_t first, uint64_t last,
                                                   uint64_t bytes_max) {
  std::vector<Dirty> taken;
  MutexLock lock(mutex_);
  for (;;) {
    File& of = Of(file);
    const auto begin = of.dirty.lower_bound(first);
    if (begin == of.dirty.end() || *begin > last) return taken;
    if (of.blocks[*begin].writing) {
      written_back_.Wait(mutex_);
      continue;
    }
    for (auto it = begin; it != of.dirty.end() && *it <= last; ++it) {
      Entry& entry = of.blocks[*it];
      const bool follows = taken.empty() || (*it == taken.back().index + 1 && !entry.writing &&
                                             (taken.size() + 1) * of.block_bytes <= bytes_max);
      if (!follows) break;
      entry.writing = true;
      taken.push_back({*it, entry.bytes, entry.version, entry.written});
    }
    return taken;
  }
}

void BlockPool::EndWriteBack(FileId file, const std::vector<Dirty>& blocks, bool written_back) {
  MutexLock lock(mutex_);
  File& of = Of(file);
  for (const Dirty& block : blocks) {
    Entry& entry = of.blocks[block.index];
    entry.writing = false;
    if (!written_back || entry.written != block.written) continue;
    // One that began before this ended may have read what was there before.
    SpoilFetchesOf(of, block.index);
    entry.dirty = false;
    of.dirty.erase(block.index);
    dirty_bytes_ -= of.block_bytes;
    entry.recent = recent_.insert(recent_.begin(), {file, block.index});
  }
  MakeRoom();
  written_back_.SignalAll();
}

bool BlockPool::IsWriting(const File& of, uint64_t first, uint64_t last) {
  for (auto it = of.dirty.lower_bound(first); it != of.dirty.end() && *it <= last; ++it) {
    if (of.blocks.find(*it)->second.writing) return true;
  }
  return false;
}

std::vector<uint64_t> BlockPool::In(const File& of, uint64_t first, uint64_t last) {
  std::vector<uint64_t> in;
  if (last - first < of.blocks.size()) {
    for (uint64_t index = first; index <= last; ++index) {
      if (of.blocks.contains(index)) in.push_back(index);
    }
    return in;
  }
  for (const auto& [index, entry] : of.blocks) {
    if (index >= first && index <= last) in.push_back(index);
  }
  return in;
}

void BlockPool::SpoilFetchesOf(File& of, uint64_t index) {
  for (auto& [id, fetch] : of.fetches) {
    if (index >= fetch.first && index <= fetch.last) fetch.stale.insert(index);
  }
}

void BlockPool::SpoilFetches(File& of, uint64_t first, uint64_t last) {
  for (auto& [id, fetch] : of.fetches) {
    if (first <= fetch.last && last >= fetch.first) fetch.all_stale = true;
  }
}

void BlockPool::Invalidate(FileId file, uint64_t first, uint64_t last, Version version) {
  MutexLock lock(mutex_);
  File& of = Of(file);
  SpoilFetches(of, first, last);
  for (const uint64_t index : In(of, first, last)) {
    const Entry& entry = of.blocks[index];
    if (!entry.dirty && entry.version < version) Remove(of, index);
  }
}

void BlockPool::Drop(FileId file, uint64_t first, uint64_t last) {
  MutexLock lock(mutex_);
  while (IsWriting(Of(file), first, last)) written_back_.Wait(mutex_);
  File& of = Of(file);
  SpoilFetches(of, first, last);
  for (const uint64_t index : In(of, first, last)) Remove(of, index);
}

void BlockPool::Cut(FileId file, uint64_t size) {
  MutexLock lock(mutex_);
  const uint64_t block_bytes = Of(file).block_bytes;
  const uint64_t boundary = size / block_bytes, offset = size % block_bytes;
  while (IsWriting(Of(file), boundary, UINT64_MAX)) written_back_.Wait(mutex_);
  File& of = Of(file);
  SpoilFetches(of, boundary, UINT64_MAX);
  for (const uint64_t index : In(of, boundary, UINT64_MAX)) {
    if (index > boundary || offset == 0) {
      Remove(of, index);
      continue;
    }
    Entry& entry = of.blocks[index];
    entry.bytes = With(entry.bytes, block_bytes, offset, std::string(block_bytes - offset, '\0'));
    entry.written = ++writes_;
  }
}

std::vector<BlockPool::Dirty> BlockPool::AllDirty(FileId file) const {
  MutexLock lock(mutex_);
  const File& of = Of(file);
  std::vector<Dirty> dirty;
  for (const uint64_t index : of.dirty) {
    const Entry& entry = of.blocks.find(index)->second;
    dirty.push_back({index, entry.bytes, entry.version, entry.written});
  }
  return dirty;
}

DirtySet BlockPool::Dirtiness(FileId file) const {
  MutexLock lock(mutex_);
  const File& of = Of(file);
  if (of.dirty.empty()) return {};
  uint64_t again = 0;
  for (const uint64_t index : of.dirty) again += of.blocks.find(index)->second.again ? 1 : 0;
  return {of.dirty.size() * of.block_bytes,
          static_cast<double>(again) / static_cast<double>(of.dirty.size())};
}

std::optional<uint64_t> BlockPool::LastDirty(FileId file) const {
  MutexLock lock(mutex_);
  const File& of = Of(file);
  if (of.dirty.empty()) return std::nullopt;
  return *of.dirty.rbegin();
}

uint64_t BlockPool::dirty_bytes(FileId file) const {
  MutexLock lock(mutex_);
  const File& of = Of(file);
  return of.dirty.size() * of.block_bytes;
}
uint64_t BlockPool::used_bytes(FileId file) const {
  MutexLock lock(mutex_);
  return Of(file).used_bytes;
}
uint64_t BlockPool::used_bytes() const {
  MutexLock lock(mutex_);
  return used_bytes_;
}
bool BlockPool::FitsDirty(uint64_t bytes) const {
  MutexLock lock(mutex_);
  return dirty_bytes_ + bytes <= dirty_bytes_max_;
}

void BlockPool::SetBudget(uint64_t budget_bytes, double dirty_share) {
  budget_bytes_ = budget_bytes;
  dirty_bytes_max_ = static_cast<uint64_t>(static_cast<double>(budget_bytes) * dirty_share);
  MutexLock lock(mutex_);
  MakeRoom();
}

}  // namespace abacus::objfs
