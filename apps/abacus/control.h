#ifndef ABACUS_APPS_ABACUS_CONTROL_H_
#define ABACUS_APPS_ABACUS_CONTROL_H_

// What the commands that talk to a server's control plane share.

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "apps/abacus/commands.h"
#include "runtime/base/ids.h"
#include "runtime/node/control_types.h"

namespace abacus::apps {

// How long a command waits for a question's answer. A move may wait for the object to drain and for
// its state to travel.
inline constexpr absl::Duration kAskDeadline = absl::Seconds(5);
inline constexpr absl::Duration kMoveDeadline = absl::Seconds(90);

// Errors: kInvalidArgument - `text` is no rid; the message says what one looks like.
absl::StatusOr<runtime::Rid> ParseRid(const std::string& text);

// The node of that id or name.
// Errors: kNotFound - the message lists the nodes there are; kInvalidArgument - several have that
//         name, and the message lists their ids.
absl::StatusOr<runtime::NodeId> FindNode(const runtime::NodeReport& report,
                                         const std::string& node);

// What `abacus status` prints.
std::string StatusText(const runtime::NodeReport& report, const StatusOptions& options);

// The name of a node, or its id where it has none or is gone.
std::string NodeName(const runtime::NodeReport& report, runtime::NodeId node);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_CONTROL_H_
