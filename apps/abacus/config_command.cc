// abacus config check and abacus config show.

#include <unistd.h>

#include <cstdio>

#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/output.h"
#include "runtime/base/config.h"

namespace abacus::apps {

int ConfigCheck(const std::string& file) {
  const auto config = runtime::LoadConfig(file);
  if (config.ok()) {
    printf("%s: OK\n", file.c_str());
    return kExitOk;
  }
  // A line for each thing that is wrong, each with its place: compilers' form, for editors.
  fprintf(stderr, "%s\n", std::string(config.status().message()).c_str());
  return absl::IsInvalidArgument(config.status()) ? kExitNo : kExitError;
}

int ConfigShow(const std::string& file) {
  const auto config = ConfigOf(file);
  if (!config.ok()) return Fail(config.status());
  const absl::Status status = WriteAll(STDOUT_FILENO, runtime::ShowConfig(*config));
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace abacus::apps
