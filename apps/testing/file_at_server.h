#ifndef ABACUS_APPS_TESTING_FILE_AT_SERVER_H_
#define ABACUS_APPS_TESTING_FILE_AT_SERVER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "objfs/layer/subgraph.h"
#include "objfs/layer/testing/memory_layer.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {

// A client and a server of which the second has a file, for an object of class `Reader` that has
// Next(file) until it is done.
template <typename Reader>
class FileAtServer : public ::testing::Test {
 protected:
  static constexpr size_t kClient = 0, kServer = 1;

  FileAtServer() {
    runtime::testing::ClusterOptions options;
    options.nodes = 2;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<objfs::testing::MemoryLayer>().template Add<Reader>();
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
  }

  // A file at the server, seen from the client.
  objfs::Subgraph Store(std::string_view bytes) {
    const std::vector<runtime::Ref<objfs::Layer>> nothing;
    const std::vector<std::pair<std::string, std::string>> no_options;
    const auto made = cluster_->Create<objfs::testing::MemoryLayer>(kServer, nothing, no_options);
    const runtime::Ref<objfs::Layer> file(
        (*cluster_)[kClient].RefTo<objfs::testing::MemoryLayer>(made.rid()).base());
    EXPECT_TRUE(file->Write(0, runtime::Block::CopyOf(bytes), objfs::Version::Of(1, 1)).ok());
    return {file, objfs::Version::Of(2, 1)};
  }
  template <typename... Arguments>
  runtime::Ref<Reader> Make(const Arguments&... arguments) {
    return cluster_->Create<Reader>(kClient, arguments...);
  }
  template <typename... Arguments>
  absl::Status Refused(const Arguments&... arguments) {
    return (*cluster_)[kClient].binding().Create<Reader>(arguments...).status();
  }
  // Has it read on to the end, and moves it after each chunk if `moving`; the last chunk.
  auto ReadAll(const runtime::Ref<Reader>& reader, const objfs::Subgraph& file, bool moving)
      -> decltype(reader->Next(file)) {
    for (size_t at = kClient;; at = moving ? 1 - at : at) {
      auto chunk = reader->Next(file);
      if (!chunk.ok() || chunk->done) return chunk;
      if (moving && !cluster_->Move(reader.rid(), at, 1 - at).ok()) {
        return absl::InternalError("it did not move");
      }
    }
  }

  std::unique_ptr<runtime::testing::Cluster> cluster_;
};

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_TESTING_FILE_AT_SERVER_H_
