#ifndef ABACUS_OBJFS_DIRECTORY_TESTING_DIRECTORY_WORLD_H_
#define ABACUS_OBJFS_DIRECTORY_TESTING_DIRECTORY_WORLD_H_

// A volume on the first node of a test cluster, and directory objects of its clients.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "objfs/directory/directory.h"
#include "objfs/store/local_object_store.h"
#include "objfs/volume/volume.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs::testing {

class DirectoryWorld {
 public:
  using AddTypes = void (*)(runtime::ObjectTypes& types);

  // `managed`: directory objects of one node know of each other. `whole_read_sets`:
  // Volume::Options.
  // REQUIRES: the disk outlives it. Aborts the program where the volume cannot be made.
  DirectoryWorld(Disk& disk, size_t nodes, AddTypes more = nullptr, bool managed = false,
                 bool whole_read_sets = false) {
    store_ = Must(LocalObjectStore::Open(disk, {}));
    runtime::testing::ClusterOptions options;
    options.nodes = nodes;
    options.types = [more, managed](size_t, runtime::testing::TestPoints&,
                                    runtime::ObjectTypes& types) {
      types.Add<Volume>().Add<IsolationLayer>().Add<StorageLayer>();
      if (managed) {
        types.Add<Directory>([] { return std::make_unique<DirectoryManager>(); });
      } else {
        types.Add<Directory>();
      }
      if (more != nullptr) more(types);
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
    runtime::BindingManager& binding = (*cluster_)[0].binding();
    Volume::Host host;
    host.adopt_storage = [&binding](std::unique_ptr<StorageLayer> layer) {
      return runtime::Ref<Layer>(binding.Adopt(std::move(layer)).base());
    };
    host.adopt_isolation = [&binding](std::unique_ptr<IsolationLayer> layer) {
      return runtime::Ref<Layer>(binding.Adopt(std::move(layer)).base());
    };
    host.end = [&binding](const runtime::Ref<Layer>& layer) {
      binding.Destroy(layer.rid()).IgnoreError();
    };
    host.now_ns = [] {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::system_clock::now().time_since_epoch())
          .count();
    };
    // Nobody here says that a client lives.
    const Volume::Options volume{
        .name = "test", .lease = absl::Hours(24), .whole_read_sets = whole_read_sets};
    volume_ = binding.Adopt(Must(Volume::Make(store_, volume, host)));
  }
  ~DirectoryWorld() {
    volume_ = runtime::Ref<Volume>();
    cluster_.reset();
  }

  // A client that has joined, and opened the root.
  struct Client {
    uint16_t writer = 0;
    ObjectId root = 0;
    runtime::Ref<Layer> below;
  };
  Client Join() {
    const VolumeInfo info = Must(volume_->Join("a client", runtime::Ref<ClientEnd>()));
    return {info.writer, info.root, Must(volume_->Open(info.writer, info.root))};
  }
  // The client's directory object of the root, on a node.
  runtime::Ref<Directory> Root(size_t node, const Client& client) {
    return cluster_->Create<Directory>(node, (*cluster_)[node].RefTo<Volume>(volume_.rid()),
                                       (*cluster_)[node].RefTo<Layer>(client.below.rid()),
                                       client.root, client.writer);
  }

  runtime::testing::Cluster& cluster() { return *cluster_; }
  const runtime::Ref<Volume>& volume() { return volume_; }

  template <typename T>
  static T Must(absl::StatusOr<T> value) {
    if (!value.ok()) {
      std::cerr << value.status() << "\n";
      std::abort();
    }
    return *std::move(value);
  }

 private:
  std::shared_ptr<ObjectStore> store_;
  std::unique_ptr<runtime::testing::Cluster> cluster_;
  runtime::Ref<Volume> volume_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_DIRECTORY_TESTING_DIRECTORY_WORLD_H_
