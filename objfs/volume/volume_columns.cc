// Volume: files that are spread over servers.

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/layer/stack.h"
#include "objfs/raid/column_record.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/volume.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

// The other numbers are for clients.
constexpr size_t kGroupWritersMax = UINT16_MAX / 2;

// Has each column keep its record as one of the opening that it was opened in, durably: no earlier
// opening gets the columns any more, whatever is started again, and each record is older than what
// is written in this one.
// Errors: kUnavailable - they are not of one moment, as where a server has lost one: which of them
// is right is for who opens the file alone, by their openings, which this would make the same.
absl::Status KeepRecordsAnew(const std::vector<Ref<Layer>>& columns, Version now) {
  std::deque<runtime::BranchOf<absl::StatusOr<Attributes>>> asked;
  for (const Ref<Layer>& column : columns) asked.push_back(column.Fork<&Layer::GetAttributes>(now));
  std::vector<std::string> records;
  std::set<uint64_t> sequences;
  absl::Status worst;
  for (auto& branch : asked) {
    absl::StatusOr<Attributes> attributes = branch.Join();
    worst.Update(attributes.status());
    if (!attributes.ok()) continue;
    const auto record = ColumnRecord::Decode(attributes->inode);
    sequences.insert(record.ok() ? record->sequence : 0);
    records.push_back(std::move(attributes->inode));
  }
  ABACUS_RETURN_IF_ERROR(worst);
  if (sequences.size() > 1) {
    return absl::UnavailableError(
        "the columns' records are not of one moment: the file is opened "
        "by one client alone first");
  }
  std::deque<runtime::BranchOf<absl::Status>> kept;
  for (size_t i = 0; i < columns.size(); ++i) {
    kept.push_back(columns[i].Fork<&Layer::SaveInode>(records[i], now));
  }
  for (auto& branch : kept) worst.Update(branch.Join());
  return worst;
}

}  // namespace

void Volume::BeginServers() {
  ColumnServers::Host host;
  host.find = host_.find_columns;
  host.adopt = host_.adopt_absent;
  host.end = host_.end;
  host.exists = [this](ObjectId id) {
    // Made by a later primary, of whose files this one knows nothing, however late it finds out.
    if (options_.epoch != 0 && EpochOf(id) > options_.epoch) return true;
    const auto node = table_->Stat(id);
    return !node.ok() || node->id != 0;
  };
  servers_ = std::make_unique<ColumnServers>(options_.servers, std::move(host));
  table_->OnRemoved([this](ObjectId id, const std::vector<uint32_t>& columns) {
    servers_->Removed(id, columns);
  });
}

absl::Status Volume::KeepFileStack(const std::string& stack) {
  ABACUS_RETURN_IF_ERROR(Serves(0));
  ABACUS_RETURN_IF_ERROR(ParseStack(stack).status());
  const Turns::Turn turn(openings_, root_);
  {
    MutexLock lock(mutex_);
    // The server's own, a scrub for one, make no files.
    const std::vector<std::string> others = OthersThanOwn();
    if (!others.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "volume '", options_.name, "' has ", others.size(), " client(s), '", others.front(),
          "' among them: it can be given a stack for its files before it has any"));
    }
    becoming_ = true;
  }
  InodeChange change;
  change.xattrs.push_back({.name = kFileStackXattr, .value = stack, .rule = XattrRule::kAny});
  absl::Status kept = table_->Change(0, root_, change).status();
  if (kept.ok()) kept = table_->Flush(root_);
  if (kept.ok()) kept = Serves(0);
  MutexLock lock(mutex_);
  becoming_ = false;
  if (kept.ok()) own_file_stack_ = stack;
  return kept;
}

absl::StatusOr<std::string> Volume::OwnFileStack() {
  MutexLock lock(mutex_);
  return own_file_stack_;
}

absl::StatusOr<Inode> Volume::WithColumns(const Inode& inode) {
  Inode whole = inode;
  whole.columns.clear();
  whole.lacking.clear();
  if (!inode.IsRegular()) return whole;
  ABACUS_ASSIGN_OR_RETURN(const Stack stack,
                          ParseStack(inode.stack.empty() ? options_.file_stack : inode.stack));
  ABACUS_ASSIGN_OR_RETURN(const size_t columns, ColumnsOf(stack));
  if (columns == 0) return whole;
  // The volume's may be another one when it is opened.
  if (whole.stack.empty()) whole.stack = options_.file_stack;
  ABACUS_ASSIGN_OR_RETURN(whole.columns, servers_->Choose(columns));
  return whole;
}

// Above those of all servers that had the volume before, whatever their clocks said; of one server
// they rise. The epoch is where identifiers of objects have it (ColumnStore::SeenEpoch).
Version Volume::NextOpening() {
  if (options_.epoch == 0) return table_->NextVersion();
  return {options_.epoch << kIdEpochShift | ++column_openings_};
}

absl::Status Volume::CheckHasColumns(uint16_t writer, ObjectId id) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  ABACUS_RETURN_IF_ERROR(callbacks_->Check(writer));
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(id));
  if (node.id == 0) return absl::NotFoundError(absl::StrCat("there is no object ", id));
  if (node.inode.IsSpread() && table_->IsOpenBy(writer, id)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("object ", id, " has no columns, or client ", writer, " has not opened it"));
}

absl::StatusOr<Version> Volume::BeginOpening(uint16_t writer, ObjectId id) {
  ABACUS_RETURN_IF_ERROR(CheckHasColumns(writer, id));
  const Version epoch = NextOpening();
  // After the epoch was drawn: whoever is promised the file from here on opens it by a later one.
  if (callbacks_->WriterOf(id) == writer) return epoch;
  return WouldBlock("a promise to write that was broken meanwhile");
}

absl::StatusOr<OpenedColumns> Volume::OpenColumns(uint16_t writer, ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(const Version epoch, BeginOpening(writer, id));
  OpenedColumns opened;
  ABACUS_ASSIGN_OR_RETURN(opened.witness, MakeWitness(id, epoch));
  // After it: a column that was being moved is where it is to be, or stays.
  ABACUS_ASSIGN_OR_RETURN(const Node now, table_->Stat(id));
  opened.size = now.size;
  ABACUS_ASSIGN_OR_RETURN(OpenedAtServers there, servers_->Open(id, now.inode.columns, epoch));
  opened.columns = std::move(there.columns);
  opened.missed = std::move(there.missed);
  return opened;
}

// -- columns that several clients use at once -----------------------------------------------------

absl::StatusOr<SharedColumns> Volume::BeginShared(uint16_t writer, ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(const Version epoch, BeginOpening(writer, id));
  ABACUS_RETURN_IF_ERROR(MakeWitness(id, epoch).status());
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(id));
  ABACUS_ASSIGN_OR_RETURN(OpenedAtServers there, servers_->Open(id, node.inode.columns, epoch));
  const bool logs = std::all_of(there.logs.begin(), there.logs.end(),
                                [](const Ref<CommitLog>& log) { return static_cast<bool>(log); });
  if (there.absent > 0 || !there.missed.empty() || !logs) {
    return absl::UnavailableError(
        absl::StrCat("a column of object ", id, " does not answer, lacks something, or is at a ",
                     "server that has no log of groups: one client at a time uses the file"));
  }
  ABACUS_RETURN_IF_ERROR(KeepRecordsAnew(there.columns, table_->NextVersion()));
  absl::StatusOr<SharedColumns> shared = WouldBlock("a file that was opened anew meanwhile");
  {
    MutexLock lock(mutex_);
    const auto found = witnesses_.find(id);
    if (found == witnesses_.end() || found->second.opening != epoch) return shared;
    found->second.shared = SharedColumns{.columns = std::move(there.columns),
                                         .logs = std::move(there.logs),
                                         .servers = node.inode.columns,
                                         .id = id,
                                         .opening = epoch,
                                         .writer = 0,
                                         .size = node.size};
    shared = SharedFor(writer, &found->second);
  }
  // After it: whoever is promised the file together from here on finds it.
  if (shared.ok() && callbacks_->Share(id, writer)) return shared;
  MutexLock lock(mutex_);
  const auto found = witnesses_.find(id);
  if (found != witnesses_.end() && found->second.opening == epoch) ForgetShared(&found->second);
  return shared.ok() ? WouldBlock("a promise to write that is being broken") : shared.status();
}

absl::StatusOr<SharedColumns> Volume::OpenShared(uint16_t writer, ObjectId id) {
  ABACUS_RETURN_IF_ERROR(CheckHasColumns(writer, id));
  if (callbacks_->IsShared(id, writer)) {
    MutexLock lock(mutex_);
    const auto found = witnesses_.find(id);
    if (found != witnesses_.end() && found->second.shared.has_value()) {
      return SharedFor(writer, &found->second);
    }
  }
  return WouldBlock("a file that is not shared any more");
}

// A number that comes again would have two holders' groups take each other's identifiers: one that
// opens them once more has another one, too, as its clock begins anew.
absl::StatusOr<SharedColumns> Volume::SharedFor(uint16_t writer, Witness* witness) {
  if (AllWritersUsed() || group_writers_.size() >= kGroupWritersMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("volume '", options_.name, "' has no number left for one who writes groups"));
  }
  const uint16_t number = NextWriter(&last_group_writer_);
  uint16_t& its = witness->group_writers[writer];
  group_writers_.erase(its);  // 0 is none's
  group_writers_.insert(number);
  its = number;
  SharedColumns shared = *witness->shared;
  shared.writer = number;
  return shared;
}

void Volume::ForgetShared(Witness* witness) {
  witness->shared.reset();
  for (const auto& [client, number] : witness->group_writers) group_writers_.erase(number);
  witness->group_writers.clear();
}

std::shared_ptr<ColumnFence> Volume::FenceOf(ObjectId id) {
  MutexLock lock(mutex_);
  return witnesses_[id].fence;
}

// From now on that of an opening before takes nothing more.
absl::StatusOr<Ref<Layer>> Volume::MakeWitness(ObjectId id, Version epoch) {
  const std::shared_ptr<ColumnFence> fence = FenceOf(id);
  ABACUS_RETURN_IF_ERROR(fence->Raise(epoch));
  auto layer = std::make_unique<WitnessLayer>(table_, id, fence, epoch);
  ABACUS_RETURN_IF_ERROR(layer->Init({}, {}));
  const Ref<Layer> adopted = host_.adopt_witness(std::move(layer));
  Ref<Layer> before = adopted;
  {
    MutexLock lock(mutex_);
    Witness& witness = witnesses_[id];
    if (witness.opening <= epoch) {  // else a later one has come between, which shuts this one out
      before = std::exchange(witness.layer, adopted);
      witness.opening = epoch;
      ForgetShared(&witness);
    }
  }
  if (before) host_.end(before);
  return adopted;
}

absl::StatusOr<SpreadFiles> Volume::Spread(ObjectId after, uint64_t count_max) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, table_->store().List(after, count_max));
  SpreadFiles spread;
  if (ids.size() == count_max && !ids.empty()) spread.next = ids.back();
  for (const ObjectId id : ids) {
    auto node = table_->Stat(id);
    if (!node.ok()) continue;
    if (node->inode.IsSpread()) {
      spread.files.push_back(*std::move(node));
    } else if (node->inode.IsRegular() && node->allocated > 0) {
      ++spread.others;
      spread.other_bytes += node->allocated;
    }
  }
  return spread;
}

absl::StatusOr<Ref<ColumnStore>> Volume::ColumnsAt(uint64_t server) {
  const size_t servers = CountServers();
  if (server >= servers) {
    return absl::NotFoundError(
        absl::StrCat("volume '", options_.name, "' has ", servers, " servers"));
  }
  return host_.find_columns(server);
}

}  // namespace abacus::objfs
