#ifndef ABACUS_APPS_ABACUS_LOCAL_STORE_H_
#define ABACUS_APPS_ABACUS_LOCAL_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "objfs/fs/file_system.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/config.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/node/incarnation.h"

namespace abacus::apps {

// A server's data directory, opened by the process that uses it: its volumes without a server. What
// runs in them is a node that knows no other one.
//
// Refs to its objects, and file systems over them, must be gone before it is deleted; what is then
// not yet durable becomes so. Owner-thread.
class LocalStore {
 public:
  // The volume that a store without any gets.
  static constexpr char kFirstVolume[] = "home";

  // Opens `directory`, which is made where it is not there.
  // Errors: kFailedPrecondition - a server or another mount has it open, or it is something else.
  static absl::StatusOr<std::unique_ptr<LocalStore>> Open(const std::string& directory,
                                                          const runtime::Config::Cache& cache);
  ~LocalStore();

  // One of its volumes, or shards; where `name` is empty, the only volume that there is.
  // Errors: as VolumeIn(). kNotFound - of its shards there are others only; the message tells the
  //         way out.
  absl::StatusOr<runtime::Ref<objfs::Volume>> VolumeNamed(const std::string& name);
  objfs::FileSystem::Host Host();

 private:
  LocalStore(std::unique_ptr<runtime::DataDirectory> directory,
             const runtime::Config::Cache& cache);

  const std::unique_ptr<runtime::DataDirectory> directory_;
  const runtime::ObjectTypes types_;
  const std::unique_ptr<runtime::Transport> transport_;
  runtime::BindingManager binding_;
  runtime::Ref<objfs::VolumeSet> volumes_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_LOCAL_STORE_H_
