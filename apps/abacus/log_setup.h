#ifndef ABACUS_APPS_ABACUS_LOG_SETUP_H_
#define ABACUS_APPS_ABACUS_LOG_SETUP_H_

#include "absl/status/status.h"
#include "runtime/base/config.h"

namespace abacus::apps {

// Sends this program's log where the configuration says: to a file, else to standard error, never
// to standard output, which belongs to results. Call it before the first node is made.
// Errors: kUnavailable - the file cannot be opened.
absl::Status SetUpLog(const runtime::Config::Log& log);
// Sends what went to standard error to syslog(3) from now on, as a daemon whose standard error is
// nobody's does. What goes to a file goes there still. REQUIRES: SetUpLog() was called.
// Thread-safety: others may log meanwhile.
void LeaveStandardError();

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_LOG_SETUP_H_
