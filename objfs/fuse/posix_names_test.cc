// Names and inodes through the mount, by the rules of POSIX.

#include <dirent.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <array>
#include <climits>
#include <set>

#include "absl/strings/str_cat.h"
#include "objfs/fuse/testing/real_mount.h"

namespace abacus::objfs {
namespace {

using testing::Errno;
using testing::Fd;

class PosixNamesTest : public testing::RealMountTest {};

INSTANTIATE_TEST_SUITE_P(Stacks, PosixNamesTest, ::testing::ValuesIn(testing::kMounts),
                         testing::MountName);

TEST_P(PosixNamesTest, AnExclusiveCreateRefusesWhatIsThere) {
  EXPECT_EQ(Put("file", "x"), 0);
  EXPECT_EQ(Fd(At("file"), O_WRONLY | O_CREAT | O_EXCL).error(), EEXIST);
  EXPECT_EQ(Fd(At("file"), O_WRONLY | O_CREAT).error(), 0);
  EXPECT_EQ(Fd(At("absent"), O_WRONLY).error(), ENOENT);
}

TEST_P(PosixNamesTest, APathThroughAFileIsNone) {
  EXPECT_EQ(Put("file", "x"), 0);
  EXPECT_EQ(Fd(At("file/below"), O_RDONLY).error(), ENOTDIR);
  EXPECT_EQ(Errno(rmdir(At("file").c_str())), ENOTDIR);
  EXPECT_EQ(Errno(mkdir(At("file/below").c_str(), 0755)), ENOTDIR);
}

TEST_P(PosixNamesTest, ADirectoryIsNotWritten) {
  ASSERT_EQ(mkdir(At("directory").c_str(), 0755), 0);
  EXPECT_EQ(Fd(At("directory"), O_WRONLY).error(), EISDIR);
  EXPECT_EQ(Errno(unlink(At("directory").c_str())), EISDIR);
  EXPECT_EQ(Errno(truncate(At("directory").c_str(), 0)), EISDIR);
}

TEST_P(PosixNamesTest, NamesOf255BytesAreAndOf256AreNot) {
  const std::string longest(NAME_MAX, 'n');
  EXPECT_EQ(Put(longest, "x"), 0);
  EXPECT_EQ(Get(longest), "x");
  EXPECT_EQ(Put(longest + "n", "x"), ENAMETOOLONG);
  EXPECT_EQ(Errno(mkdir(At(longest + "n").c_str(), 0755)), ENAMETOOLONG);
  EXPECT_EQ(Errno(rename(At(longest).c_str(), At(longest + "n").c_str())), ENAMETOOLONG);
}

// As long as a path may be with its NUL, of names that are not at their limit.
TEST_P(PosixNamesTest, PathsOf4095BytesAreAndOf4096AreNot) {
  std::string path = mounted_->path();
  while (PATH_MAX - 1 - path.size() > 250) {
    path += "/" + std::string(200, 'd');
    ASSERT_EQ(mkdir(path.c_str(), 0755), 0) << path.size();
  }
  const std::string longest = path + "/" + std::string(PATH_MAX - 2 - path.size(), 'f');
  ASSERT_EQ(longest.size(), 4095u);
  const std::string longer = longest + "f";
  EXPECT_EQ(Fd(longest, O_WRONLY | O_CREAT).error(), 0);
  EXPECT_EQ(Fd(longest, O_RDONLY).error(), 0);
  EXPECT_EQ(Fd(longer, O_WRONLY | O_CREAT).error(), ENAMETOOLONG);
  EXPECT_EQ(Errno(mkdir(longer.c_str(), 0755)), ENAMETOOLONG);
  EXPECT_EQ(Errno(rename(longest.c_str(), longer.c_str())), ENAMETOOLONG);
  EXPECT_EQ(Errno(link(longest.c_str(), longer.c_str())), ENAMETOOLONG);
  EXPECT_EQ(Errno(unlink(longer.c_str())), ENAMETOOLONG);
  EXPECT_EQ(Errno(unlink(longest.c_str())), 0);
  // And as long as what a symbolic link leads to.
  const std::string target(PATH_MAX - 1, 't');
  EXPECT_EQ(Errno(symlink(target.c_str(), At("link").c_str())), 0);
  std::array<char, PATH_MAX> seen = {};
  EXPECT_EQ(readlink(At("link").c_str(), seen.data(), seen.size()), PATH_MAX - 1);
  EXPECT_EQ(seen.data(), target);
  EXPECT_EQ(Errno(symlink((target + "t").c_str(), At("longer").c_str())), ENAMETOOLONG);
}

TEST_P(PosixNamesTest, EachByteButSlashAndNulIsInNamesAndIsListed) {
  std::string all;
  std::set<std::string> names;
  for (int byte = 1; byte < 256; ++byte) {
    if (byte == '/') continue;
    all += static_cast<char>(byte);
    names.insert(absl::StrCat("n", std::string(1, static_cast<char>(byte))));
  }
  names.insert(all);
  names.insert("\n");
  ASSERT_EQ(mkdir(At("directory").c_str(), 0755), 0);
  for (const std::string& name : names) {
    ASSERT_EQ(Put("directory/" + name, name), 0) << name;
    ASSERT_EQ(Get("directory/" + name), name) << name;
  }
  std::set<std::string> listed;
  DIR* const directory = opendir(At("directory").c_str());
  ASSERT_NE(directory, nullptr);
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") listed.insert(name);
  }
  closedir(directory);
  EXPECT_EQ(listed, names);
}

TEST_P(PosixNamesTest, SymlinksAreFollowedAndLoopsAreNot) {
  EXPECT_EQ(Put("file", "bytes"), 0);
  EXPECT_EQ(symlink("file", At("link").c_str()), 0);
  EXPECT_EQ(Get("link"), "bytes");
  EXPECT_TRUE(S_ISLNK(StatOf("link").st_mode));
  EXPECT_EQ(StatOf("link").st_size, 4);
  EXPECT_EQ(symlink("loop", At("loop").c_str()), 0);
  EXPECT_EQ(Fd(At("loop"), O_RDONLY).error(), ELOOP);
  EXPECT_EQ(symlink("nowhere", At("dangling").c_str()), 0);
  EXPECT_EQ(Fd(At("dangling"), O_RDONLY).error(), ENOENT);
  EXPECT_EQ(Put("dangling", "made through it"), 0);
  EXPECT_EQ(Get("nowhere"), "made through it");
}

TEST_P(PosixNamesTest, ADirectoryCountsItsChildrensLinks) {
  ASSERT_EQ(mkdir(At("a").c_str(), 0755), 0);
  ASSERT_EQ(mkdir(At("a/b").c_str(), 0755), 0);
  ASSERT_EQ(mkdir(At("a/c").c_str(), 0755), 0);
  EXPECT_EQ(StatOf("a").st_nlink, 4u);
  EXPECT_EQ(Errno(rmdir(At("a").c_str())), ENOTEMPTY);
  EXPECT_EQ(rmdir(At("a/b").c_str()), 0);
  EXPECT_EQ(rmdir(At("a/c").c_str()), 0);
  EXPECT_EQ(StatOf("a").st_nlink, 2u);
  EXPECT_EQ(rmdir(At("a").c_str()), 0);
  EXPECT_FALSE(Exists("a"));
}

TEST_P(PosixNamesTest, ALinkIsTheSameFile) {
  EXPECT_EQ(Put("file", "one"), 0);
  ASSERT_EQ(link(At("file").c_str(), At("second").c_str()), 0);
  EXPECT_EQ(StatOf("file").st_ino, StatOf("second").st_ino);
  EXPECT_EQ(StatOf("file").st_nlink, 2u);
  EXPECT_EQ(Put("second", "two"), 0);
  EXPECT_EQ(Get("file"), "two");
  EXPECT_EQ(unlink(At("file").c_str()), 0);
  EXPECT_EQ(StatOf("second").st_nlink, 1u);
  EXPECT_EQ(Errno(link(At("second").c_str(), At("second").c_str())), EEXIST);
}

// -- rename
// ----------------------------------------------------------------------------------------

TEST_P(PosixNamesTest, ARenameReplacesAFile) {
  EXPECT_EQ(Put("a", "of a"), 0);
  EXPECT_EQ(Put("b", "of b"), 0);
  EXPECT_EQ(rename(At("a").c_str(), At("b").c_str()), 0);
  EXPECT_FALSE(Exists("a"));
  EXPECT_EQ(Get("b"), "of a");
}

TEST_P(PosixNamesTest, ARenameOfLinksOfOneFileDoesNothing) {
  EXPECT_EQ(Put("a", "x"), 0);
  ASSERT_EQ(link(At("a").c_str(), At("b").c_str()), 0);
  EXPECT_EQ(rename(At("a").c_str(), At("b").c_str()), 0);
  EXPECT_TRUE(Exists("a"));
  EXPECT_TRUE(Exists("b"));
}

TEST_P(PosixNamesTest, ADirectoryMovesWithWhatIsInIt) {
  ASSERT_EQ(mkdir(At("from").c_str(), 0755), 0);
  ASSERT_EQ(mkdir(At("from/sub").c_str(), 0755), 0);
  ASSERT_EQ(mkdir(At("to").c_str(), 0755), 0);
  EXPECT_EQ(Put("from/sub/file", "deep"), 0);
  EXPECT_EQ(rename(At("from/sub").c_str(), At("to/sub").c_str()), 0);
  EXPECT_EQ(Get("to/sub/file"), "deep");
  EXPECT_EQ(StatOf("from").st_nlink, 2u);
  EXPECT_EQ(StatOf("to").st_nlink, 3u);
  EXPECT_EQ(StatOf("to/sub/..").st_ino, StatOf("to").st_ino);
}

TEST_P(PosixNamesTest, ARenameKeepsFilesAndDirectoriesApartAndNoDirectoryGoesIntoItself) {
  ASSERT_EQ(mkdir(At("directory").c_str(), 0755), 0);
  ASSERT_EQ(mkdir(At("full").c_str(), 0755), 0);
  ASSERT_EQ(mkdir(At("directory/sub").c_str(), 0755), 0);
  EXPECT_EQ(Put("full/file", "x"), 0);
  EXPECT_EQ(Put("file", "x"), 0);
  EXPECT_EQ(Errno(rename(At("file").c_str(), At("directory").c_str())), EISDIR);
  EXPECT_EQ(Errno(rename(At("directory").c_str(), At("file").c_str())), ENOTDIR);
  EXPECT_EQ(Errno(rename(At("directory").c_str(), At("full").c_str())), ENOTEMPTY);
  EXPECT_EQ(Errno(rename(At("directory").c_str(), At("directory/sub/it").c_str())), EINVAL);
  EXPECT_EQ(rename(At("full").c_str(), At("directory/sub").c_str()), 0);
  EXPECT_EQ(Get("directory/sub/file"), "x");
}

TEST_P(PosixNamesTest, NoReplaceAndExchange) {
  EXPECT_EQ(Put("a", "of a"), 0);
  EXPECT_EQ(Put("b", "of b"), 0);
  const auto rename2 = [&](const char* from, const char* to, unsigned flags) {
    return Errno(renameat2(AT_FDCWD, At(from).c_str(), AT_FDCWD, At(to).c_str(), flags));
  };
  EXPECT_EQ(rename2("a", "b", RENAME_NOREPLACE), EEXIST);
  EXPECT_EQ(rename2("a", "c", RENAME_NOREPLACE), 0);
  EXPECT_EQ(rename2("c", "b", RENAME_EXCHANGE), 0);
  EXPECT_EQ(Get("c"), "of b");
  EXPECT_EQ(Get("b"), "of a");
  EXPECT_EQ(rename2("c", "absent", RENAME_EXCHANGE), ENOENT);
}

// -- who may
// ---------------------------------------------------------------------------------------

TEST_P(PosixNamesTest, PermissionBitsAreObeyed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes others";
  EXPECT_EQ(Put("secret", "x", 0600), 0);
  EXPECT_EQ(Put("shown", "x", 0644), 0);
  EXPECT_EQ(As(1001, 1001, [&] { return Fd(At("secret"), O_RDONLY).error(); }), EACCES);
  EXPECT_EQ(As(1001, 1001, [&] { return Fd(At("shown"), O_RDONLY).error(); }), 0);
  EXPECT_EQ(As(1001, 1001, [&] { return Fd(At("shown"), O_WRONLY).error(); }), EACCES);
  EXPECT_EQ(As(1001, 1001, [&] { return Errno(chmod(At("shown").c_str(), 0777)); }), EPERM);
}

TEST_P(PosixNamesTest, AStickyDirectoryKeepsOthersFiles) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes others";
  ASSERT_EQ(mkdir(At("sticky").c_str(), 01777), 0);
  EXPECT_EQ(As(1001, 1001, [&] { return Put("sticky/file", "x"); }), 0);
  EXPECT_EQ(As(1002, 1002, [&] { return Errno(unlink(At("sticky/file").c_str())); }), EPERM);
  EXPECT_EQ(As(1002, 1002,
               [&] { return Errno(rename(At("sticky/file").c_str(), At("sticky/mine").c_str())); }),
            EPERM);
  EXPECT_EQ(As(1001, 1001, [&] { return Errno(unlink(At("sticky/file").c_str())); }), 0);
}

TEST_P(PosixNamesTest, ASetgidDirectoryGivesItsGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes others";
  ASSERT_EQ(mkdir(At("shared").c_str(), 0777), 0);
  ASSERT_EQ(chown(At("shared").c_str(), 0, 2000), 0);
  ASSERT_EQ(chmod(At("shared").c_str(), 02777), 0);
  EXPECT_EQ(As(1001, 1001, [&] { return Put("shared/file", "x"); }), 0);
  EXPECT_EQ(As(1001, 1001, [&] { return Errno(mkdir(At("shared/sub").c_str(), 0755)); }), 0);
  EXPECT_EQ(StatOf("shared/file").st_gid, 2000u);
  EXPECT_EQ(StatOf("shared/file").st_uid, 1001u);
  EXPECT_EQ(StatOf("shared/sub").st_gid, 2000u);
  EXPECT_EQ(StatOf("shared/sub").st_mode & 07777, 02755u);
}

TEST_P(PosixNamesTest, ChownAndAWriteTakeSetIdBitsAway) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes others";
  EXPECT_EQ(Put("program", "x"), 0);
  ASSERT_EQ(chmod(At("program").c_str(), 06777), 0);
  ASSERT_EQ(chown(At("program").c_str(), 1001, 1001), 0);
  EXPECT_EQ(StatOf("program").st_mode & 07777, 0777u);
  ASSERT_EQ(chmod(At("program").c_str(), 06777), 0);
  EXPECT_EQ(As(1002, 1002,
               [&] {
                 const Fd fd(At("program"), O_WRONLY);
                 return write(fd, "y", 1) == 1 ? 0 : 1;
               }),
            0);
  EXPECT_EQ(StatOf("program").st_mode & 07777, 0777u);
}

// The kernel leaves it to the mount where it keeps no pages, and where open(2) truncates.
TEST_P(PosixNamesTest, AnAppendATruncatingOpenAndADirectWriteTakeSetIdBitsAway) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes others";
  EXPECT_EQ(Put("program", "x"), 0);
  const auto after = [&](uid_t uid, const std::string& path, int flags, bool writes) {
    EXPECT_EQ(chmod(At("program").c_str(), 06777), 0);
    EXPECT_EQ(As(uid, uid,
                 [&] {
                   const Fd fd(path, flags);
                   if (fd.error() != 0) return fd.error();
                   return !writes || write(fd, "y", 1) == 1 ? 0 : 255;
                 }),
              0);
    return StatOf("program").st_mode & 07777;
  };
  EXPECT_EQ(after(1002, At("program"), O_WRONLY | O_APPEND, true), 0777u);
  EXPECT_EQ(after(1002, At("program"), O_RDWR | O_APPEND, true), 0777u);
  EXPECT_EQ(after(1002, At("program"), O_WRONLY | O_TRUNC, false), 0777u);
  EXPECT_EQ(after(1002, At("program"), O_WRONLY | O_APPEND, false), 06777u);  // nothing changed
  EXPECT_EQ(after(0, At("program"), O_WRONLY | O_APPEND, true), 06777u);      // the superuser may
  if (exclusive()) return;
  const Mounted direct(*files_, Mount::Options{.direct_io = true});
  ASSERT_EQ(chmod(direct.path().c_str(), 0777), 0);
  EXPECT_EQ(after(1002, direct.path() + "/program", O_WRONLY, true), 0777u);
}

TEST_P(PosixNamesTest, TheOwnerKeepsSetgidForAGroupOfHis) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes others";
  EXPECT_EQ(Put("program", "x"), 0);
  ASSERT_EQ(chown(At("program").c_str(), 1001, 2000), 0);
  const auto set = [&](gid_t other) {
    return As(0, 0, [&] {
      if (setgroups(1, &other) != 0 || setresgid(1001, 1001, 1001) != 0 ||
          setresuid(1001, 1001, 1001) != 0) {
        return 255;
      }
      return Errno(chmod(At("program").c_str(), 02755));
    });
  };
  EXPECT_EQ(set(3000), 0);
  EXPECT_EQ(StatOf("program").st_mode & 07777, 0755u);
  EXPECT_EQ(set(2000), 0);
  EXPECT_EQ(StatOf("program").st_mode & 07777, 02755u);
}

// -- attributes
// ------------------------------------------------------------------------------------

TEST_P(PosixNamesTest, TimesAreKeptToTheNanosecond) {
  EXPECT_EQ(Put("file", "x"), 0);
  const std::array<timespec, 2> times = {{{1'000'000'000, 123'456'789}, {-5, 1}}};
  ASSERT_EQ(utimensat(AT_FDCWD, At("file").c_str(), times.data(), 0), 0);
  const struct stat seen = StatOf("file");
  EXPECT_EQ(seen.st_atim.tv_sec, 1'000'000'000);
  EXPECT_EQ(seen.st_atim.tv_nsec, 123'456'789);
  EXPECT_EQ(seen.st_mtim.tv_sec, -5);
  EXPECT_EQ(seen.st_mtim.tv_nsec, 1);
  ASSERT_EQ(utimensat(AT_FDCWD, At("file").c_str(), nullptr, 0), 0);
  EXPECT_GT(StatOf("file").st_mtim.tv_sec, 1'700'000'000);
}

TEST_P(PosixNamesTest, ATimeThatCannotBeKeptIsTheNearestThatCan) {
  EXPECT_EQ(Put("file", "x"), 0);
  const std::array<timespec, 2> times = {{{-20'000'000'000, 0}, {13'569'465'600, 5}}};
  ASSERT_EQ(utimensat(AT_FDCWD, At("file").c_str(), times.data(), 0), 0);
  // 2^63 nanoseconds after 1970, and before it.
  EXPECT_EQ(StatOf("file").st_atim.tv_sec, -9'223'372'037);
  EXPECT_EQ(StatOf("file").st_mtim.tv_sec, 9'223'372'036);
}

TEST_P(PosixNamesTest, XattrsAreKept) {
  EXPECT_EQ(Put("file", "x"), 0);
  const std::string file = At("file");
  EXPECT_EQ(Errno(setxattr(file.c_str(), "user.a", "one", 3, XATTR_REPLACE)), ENODATA);
  EXPECT_EQ(setxattr(file.c_str(), "user.a", "one", 3, XATTR_CREATE), 0);
  EXPECT_EQ(Errno(setxattr(file.c_str(), "user.a", "two", 3, XATTR_CREATE)), EEXIST);
  EXPECT_EQ(setxattr(file.c_str(), "user.empty", "", 0, 0), 0);
  std::array<char, 64> seen = {};
  EXPECT_EQ(getxattr(file.c_str(), "user.a", seen.data(), seen.size()), 3);
  EXPECT_STREQ(seen.data(), "one");
  EXPECT_EQ(getxattr(file.c_str(), "user.empty", seen.data(), seen.size()), 0);
  EXPECT_EQ(listxattr(file.c_str(), seen.data(), seen.size()), 18);
  EXPECT_EQ(removexattr(file.c_str(), "user.a"), 0);
  EXPECT_EQ(Errno(removexattr(file.c_str(), "user.a")), ENODATA);
}

TEST_P(PosixNamesTest, SpecialFilesAreMade) {
  EXPECT_EQ(mkfifo(At("pipe").c_str(), 0640), 0);
  EXPECT_EQ(StatOf("pipe").st_mode, S_IFIFO | 0640u);
  EXPECT_EQ(mknod(At("socket").c_str(), S_IFSOCK | 0600, 0), 0);
  EXPECT_EQ(StatOf("socket").st_mode, S_IFSOCK | 0600u);
}

TEST_P(PosixNamesTest, DeviceNodesKeepTheirNumbers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes device nodes";
  const dev_t numbers[] = {makedev(1, 3), makedev(0, 0), makedev(4095, 0xfffff)};
  for (const mode_t type : {S_IFCHR, S_IFBLK}) {
    for (const dev_t number : numbers) {
      const std::string name = absl::StrCat("device-", type, "-", number);
      ASSERT_EQ(Errno(mknod(At(name).c_str(), type | 0640, number)), 0);
      EXPECT_EQ(StatOf(name).st_mode, type | 0640u);
      EXPECT_EQ(StatOf(name).st_rdev, number);
      EXPECT_EQ(StatOf(name).st_size, 0);
    }
  }
  EXPECT_EQ(As(1001, 1001,
               [&] { return Errno(mknod(At("other").c_str(), S_IFCHR | 0666, makedev(1, 3))); }),
            EPERM);
  EXPECT_FALSE(Exists("other"));
}

TEST_P(PosixNamesTest, StatvfsTellsOfSpace) {
  struct statvfs seen = {};
  ASSERT_EQ(statvfs(mounted_->path().c_str(), &seen), 0);
  EXPECT_GT(seen.f_blocks, 0u);
  EXPECT_LE(seen.f_bavail, seen.f_blocks);
  EXPECT_EQ(seen.f_namemax, static_cast<unsigned long>(NAME_MAX));
}

// -- listings
// --------------------------------------------------------------------------------------

TEST_P(PosixNamesTest, AListingGivesEachNameOnceWhileHalfOfThemAreRemoved) {
  constexpr int kNames = 600;
  ASSERT_EQ(mkdir(At("directory").c_str(), 0755), 0);
  for (int i = 0; i < kNames; ++i) ASSERT_EQ(Put(absl::StrCat("directory/", i), ""), 0);
  DIR* const directory = opendir(At("directory").c_str());
  ASSERT_NE(directory, nullptr);
  std::set<std::string> seen;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    EXPECT_TRUE(seen.insert(name).second) << name;
    if (name[0] == '.') continue;
    if (std::stoi(name) % 2 == 0) unlink(At("directory/" + name).c_str());
  }
  closedir(directory);
  EXPECT_TRUE(seen.contains(".") && seen.contains(".."));
  // Names that were there all the time.
  for (int i = 1; i < kNames; i += 2) EXPECT_TRUE(seen.contains(absl::StrCat(i))) << i;
}

TEST_P(PosixNamesTest, SeekdirComesBack) {
  for (int i = 0; i < 50; ++i) ASSERT_EQ(Put(absl::StrCat("name", i), ""), 0);
  DIR* const directory = opendir(mounted_->path().c_str());
  ASSERT_NE(directory, nullptr);
  for (int i = 0; i < 20; ++i) ASSERT_NE(readdir(directory), nullptr);
  const long place = telldir(directory);
  const std::string next = readdir(directory)->d_name;
  while (readdir(directory) != nullptr) {
  }
  seekdir(directory, place);
  EXPECT_EQ(std::string(readdir(directory)->d_name), next);
  closedir(directory);
}

}  // namespace
}  // namespace abacus::objfs
