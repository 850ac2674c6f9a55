// Volume: a column of a file goes to another server, while the one that it is at serves.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/volume/volume.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Ref;

namespace {

bool HasColumnAt(const Node& node, uint32_t server) {
  const std::vector<uint32_t>& columns = node.inode.columns;
  return std::find(columns.begin(), columns.end(), server) != columns.end();
}

}  // namespace

absl::Status Volume::AvoidServer(uint64_t server) {
  ABACUS_RETURN_IF_ERROR(Serves(0));
  servers_->Avoid(static_cast<uint32_t>(server));
  return absl::OkStatus();
}

absl::Status Volume::MoveColumn(uint16_t writer, ObjectId id, const ColumnMove& move) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  ABACUS_RETURN_IF_ERROR(callbacks_->Check(writer));
  if (!table_->IsOpenBy(writer, id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("client ", writer, " has not opened object ", id));
  }
  // Of whoever has the columns open, after he made them whole; and nobody is promised the file
  // before this is over.
  ABACUS_ASSIGN_OR_RETURN(const Callbacks::Change change, callbacks_->BeginChange(id, writer));
  ABACUS_ASSIGN_OR_RETURN(const Callbacks::Alteration lasting,
                          callbacks_->BeginAlter({id}, writer));
  const Turns::Turn turn(moves_, id);
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(id));
  if (!HasColumnAt(node, move.from)) {
    if (!HasColumnAt(node, move.to)) {
      return absl::NotFoundError(
          absl::StrCat("object ", id, " has no column at server ", move.from));
    }
    return table_->Flush(id);  // moved before; that may not have been acknowledged
  }
  if (HasColumnAt(node, move.to)) {
    return absl::AlreadyExistsError(
        absl::StrCat("object ", id, " has a column at server ", move.to, " already"));
  }
  return MoveColumnNow(id, move);
}

absl::Status Volume::MoveColumnNow(ObjectId id, const ColumnMove& move) {
  ABACUS_ASSIGN_OR_RETURN(const Ref<ColumnStore> source, ColumnsAt(move.from));
  ABACUS_ASSIGN_OR_RETURN(const Ref<ColumnStore> target, ColumnsAt(move.to));
  // Shuts out whoever still has the columns open, a client that is given up among them: of all of
  // them, so that he does not write to some.
  const Version epoch = NextOpening();
  ABACUS_RETURN_IF_ERROR(MakeWitness(id, epoch).status());
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(id));
  ABACUS_ASSIGN_OR_RETURN(const OpenedAtServers opened,
                          servers_->Open(id, node.inode.columns, epoch));
  // That is known by the logs of the columns' servers only, until the file's layer writes it down.
  if (!opened.missed.empty()) {
    return absl::UnavailableError(
        absl::StrCat("a column of object ", id, " has missed what was written to the others: the ",
                     "file has to be opened for writing before it can be moved"));
  }
  ABACUS_RETURN_IF_ERROR(target->FinishFrom(source, id, move.copy));
  {
    // Who opens the columns later waits for this, and finds the one or the other.
    const std::shared_ptr<ColumnFence> fence = FenceOf(id);
    ABACUS_ASSIGN_OR_RETURN(const ColumnFence::Pass pass, fence->Enter(epoch));
    ABACUS_RETURN_IF_ERROR(table_->MoveColumn(id, move.from, move.to));
    ABACUS_RETURN_IF_ERROR(table_->Flush(id));
  }
  ABACUS_RETURN_IF_ERROR(Serves(0));
  // What is left there is used by nobody; the server drops all that it has in the end.
  source->Remove(std::vector<ObjectId>{id}).IgnoreError();
  return absl::OkStatus();
}

}  // namespace abacus::objfs
