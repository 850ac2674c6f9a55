// FileSystem: files that are spread over servers.

#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/fs/file_system_impl.h"
#include "objfs/spread/column_servers.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Ref;

namespace {

absl::Status HasNoColumns() {
  return FsStatus(FsError::kNotSupported,
                  "the file is not spread over servers: there is nothing to rebuild or to scrub");
}

}  // namespace

// The columns are not there yet: the isolation object of the file's inode stands in their places
// until the spread layer has opened them, before the first call that goes below.
absl::Status FileSystemImpl::BuildSpread(const std::string& text, const Ref<Layer>& bottom,
                                         OpenFile* file) {
  ABACUS_ASSIGN_OR_RETURN(const Stack stack, ParseStack(text));
  Ref<ColumnsLayer> columns;
  Ref<SpreadLayer> spread;
  LayerHost host = host_.layers;
  host.make = [&](const LayerKind& kind, const std::vector<Ref<Layer>>& below,
                  const std::vector<std::pair<std::string, std::string>>& options,
                  size_t place) -> absl::StatusOr<Ref<Layer>> {
    if (kind.anchored) return bottom;
    ABACUS_ASSIGN_OR_RETURN(const Ref<Layer> made, host_.layers.make(kind, below, options, place));
    if (place + 1 != stack.levels.size()) return made;
    columns = Ref<ColumnsLayer>(made.base());
    const absl::StatusOr<Ref<Layer>> over =
        host_.layers.make(SpreadLayer::kKind, {bottom}, {}, place);
    if (!over.ok()) {
      host_.layers.end(made);
      return over;
    }
    spread = Ref<SpreadLayer>(over->base());
    ABACUS_RETURN_IF_ERROR(
        spread->Bind(volume_, columns, file->id, info_.writer));  // both are here
    return *over;
  };
  host.end = [&](const Ref<Layer>& layer) {
    if (layer == bottom) return;
    host_.layers.end(layer);
    if (spread && layer.base() == spread.base()) host_.layers.end(Ref<Layer>(columns.base()));
  };
  ABACUS_ASSIGN_OR_RETURN(file->stack, BuildStack(stack, kinds_, host));
  file->spread = spread;
  // Top first: this client's layers, that over the columns among them, and the lowest.
  file->stack.layers.resize(stack.levels.size());
  file->stack.layers.push_back(Ref<Layer>(columns.base()));
  file->stack.layers.push_back(bottom);
  return absl::OkStatus();
}

std::string FileSystemImpl::ColumnsOfFile(const Node& node) const {
  std::string text;
  for (size_t i = 0; i < node.inode.columns.size(); ++i) {
    const uint32_t server = node.inode.columns[i];
    absl::StrAppend(
        &text, "column ", i, ": object ", node.id, " at ",
        server < info_.servers.size() ? info_.servers[server] : absl::StrCat("server ", server),
        "\n");
  }
  return text;
}

absl::StatusOr<RebuildProgress> FileSystemImpl::Rebuild(FileHandle handle, uint64_t from,
                                                        uint64_t stripes) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  if (!open.file->spread) return HasNoColumns();
  return Patiently(*open.file, [&] { return open.file->spread->Rebuild(from, stripes, Now()); });
}

absl::StatusOr<ScrubProgress> FileSystemImpl::Scrub(FileHandle handle, uint64_t from,
                                                    uint64_t stripes) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  if (!open.file->spread) return HasNoColumns();
  return Patiently(*open.file, [&] { return open.file->spread->Scrub(from, stripes, Now()); });
}

}  // namespace abacus::objfs
