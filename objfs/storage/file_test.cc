#include "objfs/storage/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace abacus::objfs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string pattern = ::testing::TempDir() + "abacus-file-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~FileTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Make(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name)) << bytes;
    return Path(name);
  }

  std::string directory_;
};

TEST_F(FileTest, ReadReturnsTheRangeAskedFor) {
  const auto file = File::Open(Make("f", "0123456789"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->ReadAt(2, 3)->view(), "234");
}

TEST_F(FileTest, ReadIsShortWhereTheFileEnds) {
  const auto file = File::Open(Make("f", "0123456789"));
  EXPECT_EQ(file->ReadAt(8, 100)->view(), "89");
  EXPECT_EQ(file->ReadAt(10, 100)->view(), "");
  EXPECT_EQ(file->ReadAt(1000, 100)->view(), "");
}

TEST_F(FileTest, ReadOfNoBytesReturnsNone) {
  const auto file = File::Open(Make("f", "0123456789"));
  EXPECT_EQ(file->ReadAt(3, 0)->view(), "");
}

TEST_F(FileTest, ReadBeyondEveryFileIsRefused) {
  const auto file = File::Open(Make("f", "0123456789"));
  EXPECT_TRUE(absl::IsInvalidArgument(file->ReadAt(UINT64_MAX, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(file->ReadAt(1, UINT64_MAX).status()));
}

TEST_F(FileTest, WriteBehindTheEndLeavesZerosBetween) {
  auto file = File::Create(Path("f"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->WriteAt(3, "ab").ok());
  EXPECT_EQ(file->Size().value(), 5u);
  EXPECT_EQ(file->ReadAt(0, 5)->view(), std::string_view("\0\0\0ab", 5));
  EXPECT_TRUE(file->Sync().ok());
}

TEST_F(FileTest, WriteBeyondEveryFileIsRefused) {
  auto file = File::Create(Path("f"));
  EXPECT_TRUE(absl::IsInvalidArgument(file->WriteAt(INT64_MAX, "ab")));
}

TEST_F(FileTest, CreateRefusesAFileThatIsThere) {
  EXPECT_TRUE(absl::IsAlreadyExists(File::Create(Make("f", "x")).status()));
}

TEST_F(FileTest, OpenOfAMissingFileNamesIt) {
  const auto file = File::Open(Path("absent"));
  EXPECT_TRUE(absl::IsNotFound(file.status()));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("absent"));
}

TEST_F(FileTest, OpenRefusesWhatIsNoRegularFile) {
  ASSERT_EQ(mkdir(Path("directory").c_str(), 0755), 0);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0644), 0);
  ASSERT_EQ(symlink("/etc/passwd", Path("link").c_str()), 0);
  for (const char* name : {"directory", "pipe", "link"}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(File::Open(Path(name)).status())) << name;
    EXPECT_TRUE(absl::IsFailedPrecondition(StatFile(Path(name)).status())) << name;
  }
}

TEST_F(FileTest, AMovedFromFileClosesNothing) {
  auto first = File::Open(Make("f", "first"));
  File second = *std::move(first);
  { const File gone = *std::move(first); }
  EXPECT_EQ(second.ReadAt(0, 5)->view(), "first");
}

TEST_F(FileTest, ListNamesRegularFilesInOrder) {
  Make("b", "1");
  Make("a", "22");
  ASSERT_EQ(mkdir(Path("directory").c_str(), 0755), 0);
  EXPECT_THAT(ListFiles(directory_).value(), ElementsAre("a", "b"));
}

TEST_F(FileTest, ListOfAMissingDirectoryNamesIt) {
  const auto names = ListFiles(Path("absent"));
  EXPECT_TRUE(absl::IsNotFound(names.status()));
  EXPECT_THAT(std::string(names.status().message()), HasSubstr("absent"));
}

TEST_F(FileTest, MakeDirectoryMakesThoseAboveToo) {
  EXPECT_TRUE(MakeDirectory(Path("x/y/z")).ok());
  EXPECT_TRUE(MakeDirectory(Path("x/y/z")).ok());
  EXPECT_TRUE(std::filesystem::is_directory(Path("x/y/z")));
}

TEST_F(FileTest, MakeDirectoryRefusesAFileInItsPlace) {
  Make("f", "x");
  EXPECT_TRUE(absl::IsFailedPrecondition(MakeDirectory(Path("f"))));
  EXPECT_FALSE(MakeDirectory(Path("f/below")).ok());
}

TEST_F(FileTest, RenameReplacesTheTarget) {
  Make("from", "new");
  Make("to", "old");
  ASSERT_TRUE(RenameFile(Path("from"), Path("to")).ok());
  EXPECT_TRUE(SyncDirectory(directory_).ok());
  EXPECT_EQ(File::Open(Path("to"))->ReadAt(0, 9)->view(), "new");
  EXPECT_TRUE(absl::IsNotFound(StatFile(Path("from")).status()));
}

}  // namespace
}  // namespace abacus::objfs
