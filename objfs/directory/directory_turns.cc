#include "objfs/directory/directory_turns.h"

namespace abacus::objfs {

using runtime::MutexLock;

DirectoryTurns::Member::Member(DirectoryTurns* turns, const Directory& directory)
    : turns_(turns), directory_(directory) {
  turns_->Join(directory_);
}

DirectoryTurns::Member& DirectoryTurns::Member::operator=(Member&& other) noexcept {
  if (turns_ != nullptr) turns_->Leave(directory_);
  turns_ = std::exchange(other.turns_, nullptr);
  directory_ = other.directory_;
  return *this;
}

DirectoryTurns::Member::~Member() {
  if (turns_ != nullptr) turns_->Leave(directory_);
}

DirectoryTurns::Turn::Turn(const Member& member) : member_(member) {
  taken_ = member_.turns_ != nullptr && member_.turns_->Take(member_.directory_);
}

DirectoryTurns::Turn::~Turn() {
  if (taken_) member_.turns_->Give(member_.directory_);
}

void DirectoryTurns::Join(const Directory& directory) {
  MutexLock lock(mutex_);
  ++rows_[directory].objects;
}

// An object ends with no call inside, so that a row is not needed any more when its last one does.
void DirectoryTurns::Leave(const Directory& directory) {
  MutexLock lock(mutex_);
  const auto row = rows_.find(directory);
  if (--row->second.objects == 0) rows_.erase(row);
}

bool DirectoryTurns::Take(const Directory& directory) {
  MutexLock lock(mutex_);
  Row& row = rows_.find(directory)->second;
  if (row.objects < 2) return false;
  const uint64_t mine = row.next++;
  while (row.serving != mine) given_.Wait(mutex_);
  return true;
}

void DirectoryTurns::Give(const Directory& directory) {
  MutexLock lock(mutex_);
  ++rows_.find(directory)->second.serving;
  given_.SignalAll();
}

}  // namespace abacus::objfs
