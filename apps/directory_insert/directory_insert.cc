#include "apps/directory_insert/directory_insert.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::apps {

absl::Status InsertFiles(objfs::FileSystem& file_system, const objfs::Caller& caller,
                         objfs::ObjectId directory, const std::string& prefix, uint64_t files,
                         const std::function<void()>& done) {
  for (uint64_t i = 0; i < files; ++i) {
    const std::string name = absl::StrCat(prefix, "-", i);
    ABACUS_RETURN_IF_ERROR(
        file_system.Make(caller, directory, name, S_IFREG | 0644, /*device=*/0, /*contents=*/"")
            .status());
    done();
  }
  return absl::OkStatus();
}

}  // namespace abacus::apps
