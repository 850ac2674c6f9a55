#ifndef ABACUS_OBJFS_FS_TESTING_FILE_WORK_H_
#define ABACUS_OBJFS_FS_TESTING_FILE_WORK_H_

// Work on the bytes of a few files, and what each block of them may be after whatever failed.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/file_system.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs::testing {

// Writes, truncations and syncs of a few files by one client. Each block of a file is what one of
// the calls left of it: the last one before a sync that was acknowledged, or a later one; a call
// that failed may have happened or not, block by block. What a sync acknowledged after which no
// call of the file failed is what the last call left.
class FileWork {
 public:
  static constexpr size_t kFiles = 2;
  static constexpr uint64_t kBlockBytes = ObjectStore::kBlockBytes;
  static constexpr uint64_t kSizeMax = 12 * kBlockBytes;

  explicit FileWork(uint64_t seed) : random_(seed), files_(kFiles) {}

  // Called between any two calls of the file system.
  std::function<void()> between;

  // Makes the files, durably.
  void Make(FileSystem& at) {
    for (size_t i = 0; i < kFiles; ++i) {
      const auto made =
          at.Create(whoever_, at.root(), absl::StrCat("file", i), S_IFREG | 0644, O_RDWR, "");
      ASSERT_TRUE(made.ok()) << made.status();
      files_[i].id = made->node.id;
      files_[i].handle = made->handle;
      ASSERT_TRUE(at.Sync(made->handle).ok());
    }
  }
  // By another client, or anew: what the old handles had is gone.
  absl::Status Open(FileSystem& at) {
    for (File& file : files_) {
      const auto handle = at.Open(whoever_, file.id, O_RDWR);
      if (!handle.ok()) return handle.status();
      file.handle = *handle;
    }
    return absl::OkStatus();
  }
  void Release(FileSystem& at) {
    for (File& file : files_) {
      if (!at.Release(file.handle).ok()) Fail(file);
    }
  }

  // Until a call fails, or so many steps.
  absl::Status Work(FileSystem& at, int steps) {
    for (int i = 0; i < steps; ++i) {
      const absl::Status status = Step(at);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::Status Step(FileSystem& at) {
    File& file = files_[random_() % kFiles];
    const uint64_t kind = random_() % 10;
    const uint64_t offset = random_() % (kSizeMax / 2);
    const uint64_t bytes = 1 + random_() % (random_() % 2 == 0 ? kSizeMax / 2 : kBlockBytes);
    if (between) between();
    if (kind < 6) return Write(at, file, offset, bytes);
    if (kind < 7) return Truncate(at, file, offset);
    if (kind < 8) return Reopen(at, file);
    return Sync(at, file);
  }
  absl::Status SyncAll(FileSystem& at) {
    absl::Status status;
    for (File& file : files_) status.Update(Sync(at, file));
    return status;
  }
  // A node died that may have had what was acknowledged and not synced: that is told by the next
  // sync, and until then what is read may be older.
  void NodeDied() {
    absl::StrAppend(&log_, "\n  a node died");
    for (File& file : files_) file.may_lag = true;
  }
  // What was not synced may be lost and nobody is there who is told of it.
  void Crashed() {
    absl::StrAppend(&log_, "\n  all power was gone");
    for (File& file : files_) Fail(file);
    Doubt();
  }
  // More servers died at once than files can do without.
  void Doubt() {
    for (File& file : files_) {
      for (auto& [number, block] : file.blocks) block.doubtful |= block.unsynced;
    }
  }
  uint64_t syncs() const { return syncs_; }

  // What may not be readable.
  enum class Away {
    kNothing = 0,
    kDoubtful,  // stripes that were changed since the last sync when a crash came
    kAnything,
  };
  // Each block is one that it may be. What is found is there from now on, where `stays`.
  void Check(FileSystem& at, Away away = Away::kNothing, bool stays = true) {
    for (File& file : files_) {
      SCOPED_TRACE(absl::StrCat("file ", file.id, log_));
      const auto handle = at.Open(whoever_, file.id, O_RDONLY);
      if (!handle.ok() && away == Away::kAnything) continue;
      ASSERT_TRUE(handle.ok()) << handle.status();
      CheckFile(at, *handle, file, away, stays);
      // A client whose servers are away has nothing to write back.
      const absl::Status released = at.Release(*handle);
      EXPECT_TRUE(released.ok() || away != Away::kNothing) << released;
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  // Asks for all of it, and does not mind what is answered.
  void Look(FileSystem& at) {
    for (File& file : files_) {
      at.Read(file.handle, 0, kBlocks * kBlockBytes).status().IgnoreError();
      at.Sync(file.handle).IgnoreError();
    }
  }
  absl::Status RebuildAll(FileSystem& at) {
    for (File& file : files_) {
      const auto handle = at.Open(whoever_, file.id, O_RDWR);
      if (!handle.ok()) return handle.status();
      absl::Status status;
      for (bool done = false; status.ok() && !done;) {
        if (between) between();
        const auto progress = at.Rebuild(*handle, 0, 1);
        status = progress.status();
        done = status.ok() && progress->left == 0;
      }
      const absl::Status released = at.Release(*handle);
      status.Update(released);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  using Contents = std::set<std::string>;  // of a block, with zeros behind the end of the file
  static constexpr uint64_t kBlocks = 2 * kSizeMax / kBlockBytes;
  static constexpr uint64_t kStripeBlocks = 2;  // more than a stripe has need not be told apart
  struct Block {
    Contents now = {Zeros()};  // what the calls left of it
    Contents all = now;        // and what it may be after a crash
    bool unsynced = false;     // changed since the last sync
    bool doubtful = false;     // it was when a crash came, and not all servers were there since
  };
  struct File {
    ObjectId id = 0;
    FileHandle handle = 0;
    std::set<uint64_t> size_now = {0}, size_all = {0};
    std::map<uint64_t, Block> blocks;
    bool may_lag = false;
  };
  static std::string Zeros() { return std::string(kBlockBytes, '\0'); }

  // A call may have failed in the middle, or what others left be lost.
  static void Fail(File& file) {
    file.size_now = file.size_all;
    for (auto& [number, block] : file.blocks) block.now = block.all;
    file.may_lag = false;
  }
  static void Change(File& file, uint64_t number, const std::function<void(std::string&)>& change) {
    Block& block = file.blocks[number];
    const auto changed = [&](const Contents& before) {
      Contents after;
      for (std::string content : before) {
        change(content);
        after.insert(std::move(content));
      }
      return after;
    };
    // It may have been an older one that was changed.
    block.all.merge(changed(file.may_lag ? block.all : block.now));
    block.now = changed(block.now);
    block.unsynced = true;
  }

  // A change of a file's size is one of the stripes where it ended and ends, whoever wrote there.
  static void ChangeEnd(File& file, uint64_t size) {
    file.blocks[size / kBlockBytes].unsynced = true;
    for (const uint64_t before : file.size_now) file.blocks[before / kBlockBytes].unsynced = true;
  }

  absl::Status Write(FileSystem& at, File& file, uint64_t offset, uint64_t bytes) {
    std::string text(bytes, '\0');
    std::mt19937 noise(static_cast<uint32_t>(random_()));
    for (char& c : text) c = static_cast<char>(noise());
    for (uint64_t number = offset / kBlockBytes; number * kBlockBytes < offset + bytes; ++number) {
      const uint64_t begin = std::max(offset, number * kBlockBytes);
      const uint64_t end = std::min(offset + bytes, (number + 1) * kBlockBytes);
      Change(file, number, [&](std::string& content) {
        content.replace(begin % kBlockBytes, end - begin, text, begin - offset, end - begin);
      });
    }
    ChangeEnd(file, offset + bytes);
    std::set<uint64_t> sizes;
    for (const uint64_t size : file.size_now) sizes.insert(std::max(size, offset + bytes));
    file.size_all.insert(sizes.begin(), sizes.end());
    file.size_now = sizes;
    absl::StrAppend(&log_, "\n  file ", file.id, ": write ", offset, "+", bytes);
    return Told(file, at.Write(file.handle, offset, runtime::Block::CopyOf(text)));
  }
  absl::Status Truncate(FileSystem& at, File& file, uint64_t size) {
    for (uint64_t number = size / kBlockBytes; number < kBlocks; ++number) {
      if (!file.blocks.contains(number)) continue;
      const uint64_t begin = number == size / kBlockBytes ? size % kBlockBytes : 0;
      Change(file, number, [&](std::string& content) {
        content.replace(begin, std::string::npos, kBlockBytes - begin, '\0');
      });
    }
    ChangeEnd(file, size);
    file.size_now = {size};
    file.size_all.insert(size);
    absl::StrAppend(&log_, "\n  file ", file.id, ": truncate ", size);
    return Told(file, at.Set(whoever_, file.id, {.size = size}).status());
  }
  absl::Status Sync(FileSystem& at, File& file) {
    const bool data_only = syncs_ % 2 == 1;
    absl::StrAppend(&log_, "\n  file ", file.id, data_only ? ": sync of data" : ": sync");
    const absl::Status status =
        Told(file, data_only ? at.SyncData(file.handle) : at.Sync(file.handle));
    if (!status.ok()) return status;
    ++syncs_;
    file.size_all = file.size_now;
    for (auto& [number, block] : file.blocks) {
      block.all = block.now;
      block.unsynced = false;
    }
    file.may_lag = false;
    return status;
  }
  absl::Status Reopen(FileSystem& at, File& file) {
    absl::StrAppend(&log_, "\n  file ", file.id, ": close and open");
    // There is no handle after it, whatever it tells.
    const absl::Status released = Told(file, at.Release(file.handle));
    if (between) between();
    const auto handle = at.Open(whoever_, file.id, O_RDWR);
    if (!handle.ok()) return handle.status();
    file.handle = *handle;
    return released;
  }
  absl::Status Told(File& file, absl::Status status) {
    if (!status.ok()) Fail(file);
    if (!status.ok()) absl::StrAppend(&log_, " -> ", status.ToString());
    return status;
  }

  void CheckFile(FileSystem& at, FileHandle handle, File& file, Away away, bool stays) {
    // Whoever reads from columns finds the size there, which a client that died has not told.
    for (uint64_t number = 0; number < kBlocks; ++number) {
      if (at.Read(handle, number * kBlockBytes, 1).ok()) break;
    }
    const auto node = at.Stat(file.id);
    if (!node.ok() && away == Away::kAnything) return;
    ASSERT_TRUE(node.ok()) << node.status();
    const bool may_be_old = file.may_lag || away == Away::kAnything;
    const auto& sizes = may_be_old ? file.size_all : file.size_now;
    ASSERT_GE(node->size, *sizes.begin());
    ASSERT_LE(node->size, *sizes.rbegin());
    if (stays && !may_be_old) file.size_now = file.size_all = {node->size};
    for (uint64_t number = 0; number < kBlocks; ++number) {
      const uint64_t begin = number * kBlockBytes;
      const auto read = at.Read(handle, begin, kBlockBytes);
      if (!read.ok() && MayBeAway(file, number, away)) {
        EXPECT_EQ(FsErrorOf(read.status()), FsError::kInputOutput) << read.status();
        continue;
      }
      ASSERT_TRUE(read.ok()) << "block " << number << ": " << read.status();
      const uint64_t bytes = std::min(kBlockBytes, std::max(node->size, begin) - begin);
      ASSERT_EQ(read->size(), bytes) << "block " << number;
      if (bytes == 0) break;
      CheckBlock(file, number, std::string(read->view()), stays);
      if (::testing::Test::HasFatalFailure()) return;
      if (away == Away::kNothing) file.blocks[number].doubtful = false;
    }
  }
  void CheckBlock(File& file, uint64_t number, const std::string& found, bool stays) {
    Block& block = file.blocks[number];
    Contents& may_be = file.may_lag ? block.all : block.now;
    Contents is;
    for (const std::string& content : may_be) {
      if (content.starts_with(found)) is.insert(content);
    }
    const bool was = std::any_of(block.all.begin(), block.all.end(),
                                 [&](const std::string& text) { return text.starts_with(found); });
    ASSERT_FALSE(is.empty()) << "block " << number << " is none of the " << may_be.size()
                             << " that it may be" << (was ? ", but an older one" : "");
    if (!stays || file.may_lag) return;
    // What was cut off behind the end is not to be found again.
    std::string whole = found;
    whole.resize(kBlockBytes);
    block.now = block.all = {whole};
  }
  static bool MayBeAway(File& file, uint64_t number, Away away) {
    if (away != Away::kDoubtful) return away == Away::kAnything;
    const uint64_t first = number / kStripeBlocks * kStripeBlocks;
    for (uint64_t i = first; i < first + kStripeBlocks; ++i) {
      if (file.blocks[i].doubtful) return true;
    }
    return false;
  }

  const Caller whoever_{};
  std::mt19937_64 random_;
  std::vector<File> files_;
  uint64_t syncs_ = 0;
  std::string log_;  // what was done, for people
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_FILE_WORK_H_
