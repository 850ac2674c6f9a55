#include "objfs/volume/witness_layer.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "objfs/raid/columns_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

absl::StatusOr<Attributes> WitnessLayer::GetAttributes(Version) {
  ABACUS_ASSIGN_OR_RETURN(const ColumnFence::Pass pass, fence_->Enter(epoch_));
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(id_));
  if (node.id == 0) return absl::NotFoundError(absl::StrCat("there is no object ", id_));
  const std::vector<uint32_t>& lacking = node.inode.lacking;
  return Attributes{.size = node.size,
                    .allocated = 0,
                    .version = node.version,
                    .inode = LackingText(std::set<size_t>(lacking.begin(), lacking.end()))};
}

absl::Status WitnessLayer::SetInode(const std::string& lacking, Version) {
  ABACUS_ASSIGN_OR_RETURN(const ColumnFence::Pass pass, fence_->Enter(epoch_));
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(id_));
  ABACUS_ASSIGN_OR_RETURN(const std::set<size_t> columns,
                          LackingOf(lacking, node.inode.columns.size()));
  ABACUS_RETURN_IF_ERROR(
      table_->SetLacking(id_, std::vector<uint32_t>(columns.begin(), columns.end())));
  return table_->Flush(id_);
}

}  // namespace abacus::objfs
