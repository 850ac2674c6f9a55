#ifndef ABACUS_OBJFS_STORE_TESTING_STORE_FILES_H_
#define ABACUS_OBJFS_STORE_TESTING_STORE_FILES_H_

// All files of a store, to look at, change and put on another disk.

#include <map>
#include <string>

#include "gtest/gtest.h"
#include "objfs/store/disk.h"
#include "objfs/store/journal.h"
#include "objfs/store/names.h"

namespace abacus::objfs::testing {

using StoreFiles = std::map<std::string, std::string>;  // bytes by path

inline StoreFiles FilesOn(Disk& disk) {
  StoreFiles files;
  for (uint64_t i = 0; i <= kFolders; ++i) {
    const std::string folder = i < kFolders ? FolderName(i) : "";
    const auto names = disk.List(folder);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      const std::string path = folder.empty() ? name : folder + "/" + name;
      files[path] = ReadWhole(disk, path).value();
    }
  }
  return files;
}

inline void PutFiles(const StoreFiles& files, Disk& disk) {
  for (uint64_t i = 0; i < kFolders; ++i) ASSERT_TRUE(disk.MakeDirectory(FolderName(i)).ok());
  for (const auto& [path, bytes] : files) {
    const auto file = disk.Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Write(0, bytes).ok());
  }
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_STORE_TESTING_STORE_FILES_H_
