#ifndef ABACUS_OBJFS_FUSE_REQUEST_H_
#define ABACUS_OBJFS_FUSE_REQUEST_H_

#include <sys/stat.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/fs/file_system.h"
#include "objfs/fuse/adapter.h"
#include "objfs/volume/transaction.h"

struct fuse_entry_param;
struct fuse_file_info;
struct fuse_req;

namespace abacus::objfs::fuse {

// A request of the kernel's, which is answered exactly once: by the first of the calls below, or
// with an input/output error where none came.
// Thread-safety: one thread at a time.
class Request {
 public:
  // `operation`: for the log.
  Request(fuse_req* request, const char* operation);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  Adapter& adapter() const { return adapter_; }
  FileSystem& files() const { return adapter_.files(); }
  ObjectId Id(uint64_t inode) const { return adapter_.Swap(inode); }

  // Whom the kernel has checked.
  Caller caller() const;
  // The same with all its groups, which costs a look into /proc.
  Caller CallerWithGroups() const;

  // -- answers -----------------------------------------------------------------------------------

  void Fail(const absl::Status& error);  // not OK
  void Fail(FsError error) { Fail(FsStatus(error, "")); }
  void FailSmallBuffer();
  void Answer(const absl::Status& status);  // for operations that return nothing
  void AnswerEntry(const absl::StatusOr<Node>& node);
  void AnswerNoEntry();  // which the kernel may remember
  void AnswerAttributes(const absl::StatusOr<Node>& node);
  void AnswerBytes(std::string_view bytes);
  void AnswerLink(const std::string& target);
  void AnswerWritten(uint64_t bytes);
  void AnswerOffset(uint64_t offset);
  void AnswerXattrBytes(size_t bytes);
  void AnswerSpace(const VolumeSpace& space);
  void AnswerLock(const std::optional<HeldLock>& excluding);
  // False where nobody waits any more (open(2) was interrupted): the caller takes the open back.
  bool AnswerOpen(const fuse_file_info& file);
  bool AnswerCreate(const Node& node, const fuse_file_info& file);

  // The answer comes later, by another Request of what this returns.
  fuse_req* Defer();

  // -- for answers that are put together elsewhere -----------------------------------------------

  fuse_req* raw() const { return request_; }
  struct stat Attributes(const Node& node) const;
  fuse_entry_param Entry(const Node& node) const;

 private:
  // Whether the answer is still owed; from now on it is not.
  bool Claim();

  fuse_req* const request_;
  const char* const operation_;
  Adapter& adapter_;
  bool answered_ = false;
};

// Runs `body(Request&)`. No exception gets into libfuse's frames, which are C.
template <typename Body>
void Serve(fuse_req* raw, const char* operation, Body body) noexcept {
  Request request(raw, operation);
  try {
    body(request);
  } catch (const std::exception& thrown) {
    request.Fail(FsStatus(FsError::kInputOutput, thrown.what()));
  } catch (...) {
    request.Fail(FsStatus(FsError::kInputOutput, "an exception of no known type"));
  }
}

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_REQUEST_H_
