#ifndef ABACUS_APPS_ABACUS_RUN_CONSOLE_H_
#define ABACUS_APPS_ABACUS_RUN_CONSOLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/volume_files.h"
#include "apps/cli/progress.h"
#include "objfs/fs/file_system.h"
#include "objfs/layer/subgraph.h"
#include "runtime/base/block.h"
#include "runtime/base/ids.h"
#include "runtime/node/node.h"

namespace abacus::apps {

// What one call of an application's object did.
struct RunStep {
  runtime::Block output;  // to be printed
  uint64_t offset = 0;    // bytes of the file that have been read
  bool done = false;      // nothing follows
};

// The console of an application that reads files of volumes (paper, section 3): what all commands
// `abacus run` have in common. It opens files, appends their object subgraphs to its own graph,
// asks the application's object for one step after the other, and tells how far that is and what
// moved. Where the objects run is not its business, unless --pin says so.
//
//   Start() - Open() each file - make the object - Follow() it - Run(), and in it ReadThrough()
//   each file - WriteJson()
//
// References to the object must be gone before the console is. Owner-thread.
class RunConsole {
 public:
  static constexpr uint64_t kBlockBytesMax = uint64_t{64} << 20;  // as storage layers read at once

  // Joins the cluster. `what`: the application, as its users call it. From then on the first signal
  // ends a run in order (interrupt.h).
  // Errors: kInvalidArgument - --block is 0 or more than kBlockBytesMax. Those of
  //         ClientNode::Start.
  static absl::StatusOr<std::unique_ptr<RunConsole>> Start(const std::string& what,
                                                           const RunOptions& options);
  ~RunConsole();
  RunConsole(const RunConsole&) = delete;
  RunConsole& operator=(const RunConsole&) = delete;

  runtime::Node& node() const { return client_->node(); }

  // Opens a file, "[VOLUME:]PATH", until the console ends; its number, from 0 on.
  // Errors: those of VolumeFiles::Join, VolumeFiles::Find and FileSystem::Open; the message names
  // the file.
  absl::StatusOr<size_t> Open(const std::string& name);
  // The size that all open files had together when they were opened. Units: bytes.
  uint64_t bytes() const;

  // Makes one call with the object subgraph of an open file; see FileSystem::WithSubgraph.
  absl::Status With(size_t file,
                    absl::FunctionRef<absl::Status(const objfs::Subgraph& subgraph)> call);

  // `rid`: the application's object. Its moves are told, and it is held where --pin says.
  // REQUIRES: a file is open.
  // Errors: kInvalidArgument - it is to be at the server of files that are on several. Those of
  //         Node::Pin.
  absl::Status Follow(const runtime::Rid& rid);

  // Does `work` as this console's activity, shows how far it is, and takes the time of it.
  // `title`: of the progress. Errors: those of `work`.
  absl::Status Run(const std::string& title, absl::FunctionRef<absl::Status()> work);

  // One step of the object, by one call. It is made again where it would have to wait for another
  // client, and must have done nothing then.
  using Next = absl::FunctionRef<absl::StatusOr<RunStep>(const objfs::Subgraph& subgraph)>;
  // Calls `next` until it is done, and prints what comes. REQUIRES: inside of Run().
  // Errors: those of `next`; kCancelled - a signal came; the output cannot be written.
  absl::Status ReadThrough(size_t file, Next next);

  // Writes the run's figures where --json says, if it does. `own`: a JSON object of what the
  // application tells beside them.
  absl::Status WriteJson(const std::string& own) const;

 private:
  class MoveQueue;
  struct OpenFile {
    VolumeFiles* volume = nullptr;  // of volumes_
    objfs::FileHandle handle = 0;
    uint64_t bytes = 0;
  };

  RunConsole(const std::string& what, const RunOptions& options,
             std::unique_ptr<ClientNode> client);
  void ShowProgress(const std::string& title, absl::Time start);
  void TakeMoves();
  void Explain();

  const std::string what_;
  const RunOptions options_;
  const std::unique_ptr<ClientNode> client_;
  std::map<std::string, std::unique_ptr<VolumeFiles>> volumes_;  // by the name that was given
  std::vector<OpenFile> files_;
  const std::shared_ptr<MoveQueue> queue_;
  runtime::Rid followed_;
  std::string where_;           // the node that it is at
  bool placed_by_pin_ = false;  // until the move that a pin at the server begins with is told
  std::unique_ptr<Progress> progress_;

  // What became of the run.
  double elapsed_s_ = 0;
  uint64_t link_bytes_ = 0;
  uint64_t bytes_read_ = 0;
  std::vector<runtime::MoveEvent> moves_;  // committed, while it ran
  std::string explanation_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_RUN_CONSOLE_H_
