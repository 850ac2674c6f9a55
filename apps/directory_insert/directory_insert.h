#ifndef ABACUS_APPS_DIRECTORY_INSERT_DIRECTORY_INSERT_H_
#define ABACUS_APPS_DIRECTORY_INSERT_DIRECTORY_INSERT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "objfs/fs/file_system.h"

namespace abacus::apps {

// Makes `files` empty files, PREFIX-0 to PREFIX-(files - 1), in a directory, one after the other
// (paper, section 6.5). `done` is told of each.
// Errors: those of FileSystem::Make. Blocking: as the file system.
absl::Status InsertFiles(objfs::FileSystem& file_system, const objfs::Caller& caller,
                         objfs::ObjectId directory, const std::string& prefix, uint64_t files,
                         const std::function<void()>& done);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_DIRECTORY_INSERT_DIRECTORY_INSERT_H_
