#include "objfs/fs/file_system.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/fs/file_system_impl.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

absl::StatusOr<std::unique_ptr<FileSystem>> FileSystem::Make(Ref<Volume> volume,
                                                             const LayerKinds& kinds, Host host,
                                                             Options options) {
  ABACUS_ASSIGN_OR_RETURN(VolumeInfo info, volume->Join(options.client));
  if (!options.file_stack.empty()) info.file_stack = options.file_stack;
  auto file_system = std::make_unique<FileSystemImpl>(volume, std::move(info), kinds,
                                                      std::move(host), std::move(options));
  // From here on its end leaves the volume.
  ABACUS_RETURN_IF_ERROR(file_system->CheckStacks());
  return file_system;
}

FileSystemImpl::FileSystemImpl(Ref<Volume> volume, VolumeInfo info, const LayerKinds& kinds,
                               Host host, Options options)
    : volume_(std::move(volume)),
      info_(std::move(info)),
      kinds_(kinds),
      host_(std::move(host)),
      options_(std::move(options)),
      clock_(info_.writer, host_.now_us),
      renewer_([this] { RenewNowAndThen(); }) {}

// Well within Volume::Options::lease.
void FileSystemImpl::RenewNowAndThen() {
  constexpr auto kInterval = std::chrono::seconds(10);
  renew_mutex_.Lock();
  while (!stopping_) {
    const auto due = std::chrono::steady_clock::now() + kInterval;
    while (!stopping_ && renew_changed_.WaitUntil(renew_mutex_, due)) {
    }
    if (stopping_) break;
    renew_mutex_.Unlock();
    // Where the server does not answer, every call says so.
    volume_->Renew(info_.writer).IgnoreError();
    renew_mutex_.Lock();
  }
  renew_mutex_.Unlock();
}

FileSystemImpl::~FileSystemImpl() {
  {
    MutexLock lock(renew_mutex_);
    stopping_ = true;
    renew_changed_.SignalAll();
  }
  renewer_.join();
  absl::flat_hash_map<FileHandle, Handle> handles;
  std::list<DirectoryPtr> directories;
  {
    MutexLock lock(mutex_);
    handles.swap(handles_);
    directories.swap(recent_);
    directories_.clear();
  }
  // Whoever still had a file open has no more use for what its end could tell.
  for (auto& [number, handle] : handles) {
    const ObjectId id = handle.file->id;
    handle.file.reset();
    Unuse(id).IgnoreError();
  }
  directories.clear();
  volume_->Leave(info_.writer).IgnoreError();
}

absl::Status FileSystemImpl::CheckStacks() const {
  for (const std::string& text : {info_.file_stack, info_.directory_stack}) {
    ABACUS_ASSIGN_OR_RETURN(const Stack stack, ParseStack(text));
    ABACUS_RETURN_IF_ERROR(CheckStack(stack, kinds_));
  }
  return absl::OkStatus();
}

absl::StatusOr<Node> FileSystemImpl::StatAtVolume(ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(std::vector<Node> nodes, volume_->Stat(std::vector<ObjectId>{id}));
  if (nodes.size() == 1 && nodes[0].id == id) return std::move(nodes[0]);
  return FsStatus(FsError::kStale, absl::StrCat("object ", id, " is no more"));
}

// The anchored layers are the volume's: they are there already, under `bottom`.
absl::StatusOr<BuiltStack> FileSystemImpl::BuildOver(const std::string& text,
                                                     const Ref<Layer>& bottom) {
  ABACUS_ASSIGN_OR_RETURN(const Stack stack, ParseStack(text));
  LayerHost host = host_.layers;
  host.make = [this, &bottom](const LayerKind& kind, const std::vector<Ref<Layer>>& below,
                              const std::vector<std::pair<std::string, std::string>>& options,
                              size_t place) -> absl::StatusOr<Ref<Layer>> {
    if (kind.anchored) return bottom;
    return host_.layers.make(kind, below, options, place);
  };
  host.end = [this, &bottom](const Ref<Layer>& layer) {
    if (!(layer == bottom)) host_.layers.end(layer);
  };
  ABACUS_ASSIGN_OR_RETURN(BuiltStack built, BuildStack(stack, kinds_, host));
  // What is left are the layers of this client's, top first.
  while (built.layers.size() > 1 && built.layers[built.layers.size() - 2] == bottom) {
    built.layers.pop_back();
  }
  return built;
}

void FileSystemImpl::EndStack(const BuiltStack& stack) {
  for (size_t i = 0; i + 1 < stack.layers.size(); ++i) host_.layers.end(stack.layers[i]);
}

absl::StatusOr<Node> FileSystemImpl::Stat(ObjectId file) {
  ABACUS_ASSIGN_OR_RETURN(Node node, StatAtVolume(file));
  return AsWrittenHere(std::move(node));
}

absl::StatusOr<Node> FileSystemImpl::AsWrittenHere(Node node) {
  const FilePtr open = UsedNow(node.id);
  if (open == nullptr) return node;
  const int64_t written_ns = open->written_ns;
  if (written_ns == 0) return node;
  ABACUS_ASSIGN_OR_RETURN(const Attributes attributes, open->top()->GetAttributes(Now()));
  node.size = attributes.size;
  node.inode.modified_ns = node.inode.changed_ns = written_ns;
  return node;
}

absl::StatusOr<VolumeSpace> FileSystemImpl::Space() { return volume_->Space(); }

absl::StatusOr<std::string> FileSystemImpl::StackOf(ObjectId file) {
  ABACUS_ASSIGN_OR_RETURN(const Node node, StatAtVolume(file));
  if (node.inode.IsDirectory()) return info_.directory_stack;
  return node.inode.stack.empty() ? info_.file_stack : node.inode.stack;
}

}  // namespace abacus::objfs
