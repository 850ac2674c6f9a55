#include "objfs/fuse/listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/fuse/testing/mock_mount.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

using testing::_;
using testing::Return;

using OpenedDirectory = std::unique_ptr<DIR, int (*)(DIR*)>;

// Names with cookies as a hashed tree has them: rising, far apart, and large.
class ListingTest : public MockMountTest {
 protected:
  static constexpr uint64_t kCookieStep = (uint64_t{1} << 62) / 100'000;

  void Fill(int count) {
    for (int i = 0; i < count; ++i) {
      entries_.push_back({.name = i == 0   ? "."
                                  : i == 1 ? ".."
                                           : absl::StrCat("name-", i),
                          .cookie = kCookieStep * static_cast<uint64_t>(i + 1),
                          .node = i < 2 ? MakeNode(i == 0 ? kDirectory : kRoot, S_IFDIR | 0755)
                                        : MakeNode(10'000 + i, S_IFREG | 0644, 5)});
    }
    ON_CALL(files_, List(_, kDirectory, _, _, _))
        .WillByDefault([this](const Caller&, ObjectId, uint64_t cookie, uint32_t max, bool full) {
          return ListFrom(cookie, max, full);
        });
  }

  std::vector<FileSystem::Listed> ListFrom(uint64_t cookie, uint32_t max, bool full) {
    ++lists_;
    runtime::MutexLock lock(mutex_);
    std::vector<FileSystem::Listed> found;
    for (const FileSystem::Listed& entry : entries_) {
      if (entry.cookie <= cookie || found.size() == max) continue;
      found.push_back(entry);
      if (!full) found.back().node = MakeNode(entry.node.id, entry.node.inode.mode & S_IFMT);
    }
    listed_ += found.size();
    return found;
  }

  OpenedDirectory OpenDirectory() const { return {opendir(Path("directory").c_str()), closedir}; }

  static std::vector<std::string> NamesOf(DIR* directory) {
    std::vector<std::string> names;
    while (const dirent* entry = readdir(directory)) names.emplace_back(entry->d_name);
    return names;
  }

  std::vector<std::string> Expected() const {
    std::vector<std::string> names;
    for (const FileSystem::Listed& entry : entries_) names.push_back(entry.name);
    return names;
  }

  runtime::Mutex mutex_;
  std::vector<FileSystem::Listed> entries_;
  std::atomic<int> lists_ = 0;
  std::atomic<size_t> listed_ = 0;
};

TEST_F(ListingTest, AListingHasEachNameOnceInTheOrderOfTheCookies) {
  Fill(5'000);
  Begin();
  const OpenedDirectory directory = OpenDirectory();
  ASSERT_NE(directory, nullptr);
  EXPECT_EQ(NamesOf(directory.get()), Expected());
}

TEST_F(ListingTest, AnEntryTellsNumberAndType) {
  Fill(3);
  Begin();
  const OpenedDirectory directory = OpenDirectory();
  std::vector<std::pair<ino_t, int>> seen;
  while (const dirent* entry = readdir(directory.get())) {
    seen.emplace_back(entry->d_ino, entry->d_type);
  }
  EXPECT_EQ(seen, (std::vector<std::pair<ino_t, int>>{
                      {kDirectory, DT_DIR}, {1, DT_DIR}, {10'002, DT_REG}}));
}

TEST_F(ListingTest, AListingWithAttributesSparesTheLookUps) {
  Fill(2'000);
  for (const auto& entry : entries_) {
    ON_CALL(files_, Lookup(_, kDirectory, entry.name)).WillByDefault(Return(entry.node));
    ON_CALL(files_, Stat(entry.node.id)).WillByDefault(Return(entry.node));
  }
  // Those of the beginning: the kernel learns from them that attributes are wanted.
  EXPECT_CALL(files_, Lookup(_, kRoot, "directory")).Times(testing::AtLeast(1));
  EXPECT_CALL(files_, Lookup(_, kDirectory, _)).Times(testing::AtMost(1'000));
  Begin({.attributes_for = absl::Minutes(5), .names_for = absl::Minutes(5)});
  const OpenedDirectory directory = OpenDirectory();
  size_t count = 0;
  while (const dirent* entry = readdir(directory.get())) {
    struct stat seen = {};
    ASSERT_EQ(fstatat(dirfd(directory.get()), entry->d_name, &seen, 0), 0) << entry->d_name;
    count += S_ISREG(seen.st_mode) && seen.st_size == 5;
  }
  EXPECT_EQ(count, entries_.size() - 2);
  // What is fetched beyond the buffer is thrown away: not more than it is worth.
  EXPECT_LT(listed_, 2 * entries_.size());
}

TEST_F(ListingTest, NamesAreReadAhead) {
  Fill(8 * fuse::Listing::kBatch);
  Begin();
  const OpenedDirectory directory = OpenDirectory();
  EXPECT_EQ(NamesOf(directory.get()).size(), entries_.size());
  // The kernel takes attributes with its first buffer; as nobody wants them, names from then on.
  EXPECT_LT(lists_, 8 + 8);
}

TEST_F(ListingTest, APlaceIsFoundAgainInBothDirections) {
  Fill(3'000);
  Begin();
  const OpenedDirectory directory = OpenDirectory();
  std::vector<std::pair<long, std::string>> places;
  while (true) {
    const long place = telldir(directory.get());
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    places.emplace_back(place, entry->d_name);
  }
  ASSERT_EQ(places.size(), entries_.size());
  for (const size_t i : {size_t{2'999}, size_t{0}, size_t{1'500}, size_t{1'499}, size_t{2}}) {
    seekdir(directory.get(), places[i].first);
    const dirent* entry = readdir(directory.get());
    ASSERT_NE(entry, nullptr) << i;
    EXPECT_EQ(std::string(entry->d_name), places[i].second);
  }
}

TEST_F(ListingTest, RewindSeesWhatCameMeanwhile) {
  Fill(10);
  Begin();
  const OpenedDirectory directory = OpenDirectory();
  EXPECT_EQ(NamesOf(directory.get()).size(), 10u);
  {
    runtime::MutexLock lock(mutex_);
    entries_.push_back(
        {.name = "new", .cookie = kCookieStep * 50'000, .node = MakeNode(9, S_IFREG | 0644)});
  }
  rewinddir(directory.get());
  EXPECT_EQ(NamesOf(directory.get()), Expected());
}

TEST_F(ListingTest, AnErrorIsToldAfterTheEntriesBeforeIt) {
  Fill(2'000);
  ON_CALL(files_, List(_, kDirectory, testing::Gt(kCookieStep * 1'000), _, _))
      .WillByDefault(Return(absl::DataLossError("block 7")));
  Begin({.log = [](std::string_view) {}});
  const OpenedDirectory directory = OpenDirectory();
  errno = 0;
  const size_t names = NamesOf(directory.get()).size();
  EXPECT_EQ(errno, EIO);
  EXPECT_GE(names, 1'000u);
  EXPECT_LT(names, 2'000u);
}

TEST_F(ListingTest, ANameOfTheFullLengthFits) {
  Fill(2);
  entries_.push_back({.name = std::string(255, 'n'),
                      .cookie = kCookieStep * 70'000,
                      .node = MakeNode(9, S_IFREG | 0644)});
  Begin();
  EXPECT_EQ(NamesOf(OpenDirectory().get()), Expected());
}

}  // namespace
}  // namespace abacus::objfs
