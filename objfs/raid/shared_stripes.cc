#include "objfs/raid/shared_stripes.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "objfs/atomicity/commit_link.h"
#include "objfs/raid/column_reads.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/raid/parity.h"
#include "objfs/raid/prepare_round.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using runtime::Ref;

namespace {

// The first wait before a write is planned anew; it grows to so many times that.
constexpr absl::Duration kBackoff = absl::Milliseconds(1);
constexpr int kBackoffFactorMax = 32;

static_assert(SharedStripes::kBlockBytes == Striping::kStoreBlockBytes);
static_assert(Striping::kUnitBytesMost <= GroupPart::kBytesMax);
static_assert(Striping::kUnitBytesMost / SharedStripes::kBlockBytes <= GroupPart::kReadsMax);
static_assert(SharedStripes::kRunBytesMost <= GroupPart::kBytesMax);

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

GroupWriter::Options WriterOptions(uint16_t writer) {
  GroupWriter::Options options;
  options.commit = ColumnGroupOptions();
  options.give_up = SharedStripes::kGiveUp;
  options.until_applied = true;
  options.seed = writer;
  return options;
}

Block Zeros(uint64_t bytes) {
  Block zeros = Block::Allocate(bytes);
  std::memset(zeros.mutable_data(), 0, bytes);
  return zeros;
}

// Has the last server of a group asked to prepare it when all others have prepared it.
class LastWhenAllHave final : public CommitPeers {
 public:
  explicit LastWhenAllHave(std::shared_ptr<CommitPeers> peers) : peers_(std::move(peers)) {}

  void Ask(uint64_t epoch, const std::vector<CommitSend>& sends, absl::Duration wait,
           const Take& take) override {
    PrepareRound<FaithfulRoundPolicy> round(sends);
    const auto these = [&](const std::vector<size_t>& which) {
      std::vector<CommitSend> some;
      for (const size_t i : which) some.push_back(sends[i]);
      return some;
    };
    const std::vector<size_t> first = round.first(), last = round.last();
    if (!first.empty()) {
      peers_->Ask(epoch, these(first), wait,
                  [&](size_t i, const absl::StatusOr<CommitReply>& reply) {
                    const bool has = reply.ok() && reply->message.kind == CommitKind::kPrepared;
                    if (has) round.Prepared(first[i]);
                    take(first[i], reply);
                  });
    }
    if (last.empty()) return;
    if (!round.all_have()) {
      for (const size_t i : last) {
        take(i, absl::NotFoundError("it is asked when the others have prepared the group"));
      }
      return;
    }
    peers_->Ask(epoch, these(last), wait,
                [&](size_t i, const absl::StatusOr<CommitReply>& reply) { take(last[i], reply); });
  }

 private:
  const std::shared_ptr<CommitPeers> peers_;
};

// What a column has not is zeros.
void CopyFrom(const Block& block, uint64_t at, uint64_t bytes, char* to) {
  const uint64_t there = block.size() > at ? std::min<uint64_t>(block.size() - at, bytes) : 0;
  if (there > 0) std::memcpy(to, block.data() + at, there);
  std::memset(to + there, 0, bytes - there);
}

}  // namespace

SharedStripes::Host SharedStripes::HostOf(const SharedColumns& shared) {
  std::map<uint64_t, Ref<CommitLog>> logs;
  for (size_t i = 0; i < shared.servers.size() && i < shared.logs.size(); ++i) {
    logs.emplace(shared.servers[i], shared.logs[i]);
  }
  Host host;
  host.steady_ns = SteadyNs;
  host.now_us = [] { return absl::ToUnixMicros(absl::Now()); };
  host.wait = absl::SleepFor;
  host.peers =
      PeersThrough([logs = std::move(logs)](uint64_t server) -> absl::StatusOr<Ref<CommitLog>> {
        const auto found = logs.find(server);
        if (found != logs.end() && found->second) return found->second;
        return absl::UnavailableError(absl::StrCat("there is no log of server ", server));
      });
  return host;
}

absl::Status SharedStripes::Check(const Striping& striping, const SharedColumns& shared) {
  const size_t count = striping.columns();
  if (shared.columns.size() != count || shared.logs.size() != count ||
      shared.servers.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shared columns of a file that has ", count, ": there are ", shared.columns.size(),
        ", logs ", shared.logs.size(), ", servers ", shared.servers.size()));
  }
  const std::set<uint32_t> servers(shared.servers.begin(), shared.servers.end());
  const bool all_there =
      std::all_of(shared.columns.begin(), shared.columns.end(),
                  [](const Ref<Layer>& column) { return static_cast<bool>(column); });
  if (servers.size() == count && all_there && shared.id != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "shared columns: one is none, or two are at one server, or they are of no file");
}

SharedStripes::SharedStripes(const Striping& striping, SharedColumns shared, ParityWork parity_work,
                             Host host)
    : striping_(striping),
      shared_(std::move(shared)),
      parity_work_(std::move(parity_work)),
      host_(std::move(host)),
      pace_(striping.columns()),
      clock_(shared_.writer, host_.now_us),
      whole_writer_(WriterOptions(shared_.writer), WriterHost(host_.peers), &clock_),
      part_writer_(WriterOptions(shared_.writer),
                   WriterHost(std::make_shared<LastWhenAllHave>(host_.peers)), &clock_),
      random_(shared_.writer) {}

// The logs of columns know no epochs of a map: who may write is said by the fences.
GroupWriter::Host SharedStripes::WriterHost(std::shared_ptr<CommitPeers> peers) const {
  GroupWriter::Host host;
  host.steady_ns = host_.steady_ns;
  host.epoch = [] { return uint64_t{0}; };
  host.wait = host_.wait;
  host.peers = std::move(peers);
  return host;
}

SharedStripes::Counts SharedStripes::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

void SharedStripes::SumOf(absl::Span<const char* const> sources, char* to, size_t bytes) const {
  XorOf(sources, to, bytes);
  if (parity_work_) parity_work_(sources.size() * bytes);
}

void SharedStripes::AddTo(const char* source, char* to, size_t bytes) const {
  XorInto(source, to, bytes);
  if (parity_work_) parity_work_(bytes);
}

// -- reads ----------------------------------------------------------------------------------------

absl::Status SharedStripes::OfColumn(size_t column, const absl::Status& status) {
  if (status.ok() || absl::IsUnauthenticated(status)) return status;
  return NeedsAlone(
      absl::StrCat("column ", column, " does not serve: ", std::string(status.message())));
}

absl::StatusOr<std::vector<ReadResult>> SharedStripes::ReadColumns(
    const std::vector<ColumnRead>& reads, Version now) {
  ColumnReads calls(nullptr, &pace_, now);
  std::vector<size_t> begun;
  std::vector<std::pair<size_t, size_t>> where;  // of each: its call, and which one there
  for (size_t first = 0, end = 0; first < reads.size(); first = end) {
    std::vector<ColumnRead> of_column;
    for (; end < reads.size() && reads[end].column == reads[first].column; ++end) {
      of_column.push_back(reads[end]);
    }
    const size_t call = calls.Begin(shared_.columns[reads[first].column], std::move(of_column));
    for (size_t i = first; i < end; ++i) where.emplace_back(call, i - first);
    begun.push_back(call);
  }
  calls.Wait(begun, absl::InfiniteDuration());
  std::vector<ReadResult> results;
  for (size_t i = 0; i < reads.size(); ++i) {
    absl::StatusOr<ReadResult> one = calls.answer(where[i].first, where[i].second);
    if (!one.ok()) return OfColumn(reads[i].column, one.status());
    results.push_back(*std::move(one));
  }
  return results;
}

absl::StatusOr<ReadResult> SharedStripes::Read(uint64_t offset, uint64_t bytes, Version now) {
  Observe(now);
  if (bytes == 0 || offset >= shared_.size) return ReadResult();
  bytes = std::min(bytes, shared_.size - offset);
  const std::vector<Striping::Piece> pieces = striping_.Pieces(offset, bytes);
  std::vector<std::vector<ColumnRead>> wanted;
  for (const Striping::Piece& piece : pieces) {
    wanted.push_back({ColumnRead{striping_.ColumnOf(piece.stripe, piece.unit),
                                 striping_.ColumnOffsetOf(piece.stripe) + piece.at, piece.bytes}});
  }
  const ReadPlan plan = ReadPlan::Of(wanted);
  ABACUS_ASSIGN_OR_RETURN(const std::vector<ReadResult> found, ReadColumns(plan.reads, now));
  if (pieces.size() == 1 && found[0].bytes.size() == bytes) return found[0];
  ReadResult result;
  result.bytes = Block::Allocate(bytes);
  char* to = result.bytes.mutable_data();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ReadPlan::Source& source = plan.sources[i].front();
    CopyFrom(found[source.read].bytes, source.at, pieces[i].bytes, to);
    result.version = std::max(result.version, found[source.read].version);
    to += pieces[i].bytes;
  }
  return result;
}

// -- writes: what is read and written -------------------------------------------------------------

// Either way the parity is that of blocks which the servers find unchanged at one moment, when all
// of the group is prepared. A block that is read and not written counts twice: its server would not
// have to take part otherwise.
SharedStripes::Row SharedStripes::RowOf(uint64_t stripe, uint64_t row, uint64_t begin,
                                        uint64_t end) const {
  const uint64_t at = row * kBlockBytes;
  const uint64_t number = striping_.ColumnOffsetOf(stripe) / kBlockBytes + row;
  Row result;
  size_t changed = 0, in_part = 0;
  for (size_t unit = 0; unit < striping_.data_units(); ++unit) {
    Cell cell;
    cell.column = striping_.ColumnOf(stripe, unit);
    cell.number = number;
    cell.file = striping_.FileOffset({stripe, unit, at, kBlockBytes});
    if (cell.file >= shared_.size) break;
    cell.is_written = begin < cell.file + kBlockBytes && cell.file < end;
    // Behind the end of the file there are zeros.
    const bool whole = begin <= cell.file && std::min(cell.file + kBlockBytes, shared_.size) <= end;
    cell.is_read = cell.is_written && !whole;
    changed += cell.is_written;
    in_part += cell.is_read;
    result.data.push_back(std::move(cell));
  }
  if (changed == 0) return result;
  const bool by_change = changed + 1 <= 2 * (result.data.size() - changed) + in_part;
  for (Cell& cell : result.data) {
    cell.is_read = by_change ? cell.is_written : cell.is_read || !cell.is_written;
  }
  result.parity.column = striping_.ParityColumn(stripe);
  result.parity.number = number;
  result.parity.is_read = by_change;
  result.parity.is_written = true;
  return result;
}

std::vector<SharedStripes::Row> SharedStripes::RowsOf(uint64_t stripe, uint64_t begin,
                                                      uint64_t end) const {
  std::vector<Row> rows;
  for (uint64_t row = 0; row < striping_.unit_bytes() / kBlockBytes; ++row) {
    Row one = RowOf(stripe, row, begin, end);
    if (one.changes()) rows.push_back(std::move(one));
  }
  return rows;
}

absl::Status SharedStripes::ReadOld(std::vector<Row>& rows, Version now) {
  std::vector<Cell*> cells;
  for (Row& row : rows) {
    for (Cell& cell : row.data) {
      if (cell.is_read) cells.push_back(&cell);
    }
    if (row.parity.is_read) cells.push_back(&row.parity);
  }
  std::sort(cells.begin(), cells.end(), [](const Cell* a, const Cell* b) {
    return std::pair(a->column, a->number) < std::pair(b->column, b->number);
  });
  // Each for itself: the version of a read is the newest of its blocks.
  std::vector<ColumnRead> reads;
  for (const Cell* const cell : cells) {
    reads.push_back({cell->column, cell->number * kBlockBytes, kBlockBytes});
  }
  ABACUS_ASSIGN_OR_RETURN(std::vector<ReadResult> found, ReadColumns(reads, now));
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i]->version = found[i].version;
    if (found[i].bytes.size() == kBlockBytes) {
      cells[i]->old = std::move(found[i].bytes);
      continue;
    }
    cells[i]->old = Block::Allocate(kBlockBytes);
    CopyFrom(found[i].bytes, 0, kBlockBytes, cells[i]->old.mutable_data());
  }
  MutexLock lock(mutex_);
  counts_.read += cells.size();
  return absl::OkStatus();
}

Block SharedStripes::NewOf(const Cell& cell, uint64_t begin, const Block& bytes) const {
  const uint64_t end = begin + bytes.size();
  if (begin <= cell.file && cell.file + kBlockBytes <= end) {
    return bytes.Slice(cell.file - begin, kBlockBytes);
  }
  Block content = Block::Allocate(kBlockBytes);
  CopyFrom(cell.old, 0, kBlockBytes, content.mutable_data());
  const uint64_t from = std::max(begin, cell.file), to = std::min(end, cell.file + kBlockBytes);
  std::memcpy(content.mutable_data() + (from - cell.file), bytes.data() + (from - begin),
              to - from);
  return content;
}

GroupPart SharedStripes::NewPart() const {
  GroupPart part;
  part.fences.push_back({shared_.id, shared_.opening});
  return part;
}

SharedStripes::Group SharedStripes::GroupOf(const std::vector<Row>& rows, uint64_t begin,
                                            const Block& bytes) const {
  std::map<size_t, GroupPart> parts;  // by column
  const auto put = [&](const Cell& cell, const Block& content) {
    GroupPart& part = parts.try_emplace(cell.column, NewPart()).first->second;
    if (cell.is_read) part.reads.push_back({shared_.id, cell.number, cell.version});
    if (!cell.is_written) return;
    // Rows come in their order: what lies together is one write.
    if (part.writes.empty() ||
        part.writes.back().block + part.writes.back().blocks() != cell.number) {
      part.writes.push_back({shared_.id, cell.number, std::string()});
    }
    part.writes.back().bytes.append(content.data(), kBlockBytes);
  };
  for (const Row& row : rows) {
    const bool by_change = row.parity.is_read;
    Block parity = by_change ? Block::CopyOf(row.parity.old.view()) : Zeros(kBlockBytes);
    for (const Cell& cell : row.data) {
      if (!cell.is_read && !cell.is_written) continue;
      if (by_change) AddTo(cell.old.data(), parity.mutable_data(), kBlockBytes);
      const Block content = cell.is_written ? NewOf(cell, begin, bytes) : cell.old;
      AddTo(content.data(), parity.mutable_data(), kBlockBytes);
      put(cell, content);
    }
    put(row.parity, parity);
  }
  // The parity's comes last (LastWhenAllHave).
  const size_t parity = rows.front().parity.column;
  Group group;
  for (auto& [column, part] : parts) {
    if (column != parity) group.push_back({shared_.servers[column], std::move(part)});
  }
  group.push_back({shared_.servers[parity], std::move(parts[parity])});
  return group;
}

SharedStripes::Group SharedStripes::GroupOfWhole(StripeRun run, const char* bytes) const {
  const uint64_t unit = striping_.unit_bytes();
  std::vector<std::string> contents(striping_.columns());
  for (std::string& content : contents) content.reserve((run.end - run.begin) * unit);
  Block parity = Block::Allocate(unit);
  std::vector<const char*> sources(striping_.data_units());
  for (uint64_t stripe = run.begin; stripe < run.end; ++stripe) {
    for (size_t i = 0; i < sources.size(); ++i, bytes += unit) {
      sources[i] = bytes;
      contents[striping_.ColumnOf(stripe, i)].append(bytes, unit);
    }
    SumOf(sources, parity.mutable_data(), unit);
    contents[striping_.ParityColumn(stripe)].append(parity.data(), unit);
  }
  const uint64_t first = striping_.ColumnOffsetOf(run.begin) / kBlockBytes;
  Group group;
  for (size_t column = 0; column < contents.size(); ++column) {
    GroupPart part = NewPart();
    part.writes.push_back({shared_.id, first, std::move(contents[column])});
    group.push_back({shared_.servers[column], std::move(part)});
  }
  return group;
}

// -- writes: groups -------------------------------------------------------------------------------

uint64_t SharedStripes::WholeStripes(uint64_t at, uint64_t end) const {
  if (at % striping_.stripe_bytes() != 0) return 0;
  const uint64_t most = std::max<uint64_t>(1, kRunBytesMost / striping_.unit_bytes());
  return std::min(most, (end - at) / striping_.stripe_bytes());
}

absl::Status SharedStripes::Write(uint64_t offset, const Block& bytes, Version now) {
  if (bytes.empty()) return absl::OkStatus();
  if (offset > shared_.size || bytes.size() > shared_.size - offset) {
    return NeedsAlone("a write beyond the end of the file");
  }
  Observe(now);
  const uint64_t end = offset + bytes.size();
  const RangeTurns::Turn turn(turns_, {striping_.StripeOf(offset), striping_.Stripes(end)},
                              RangeTurns::Kind::kExclusive);
  for (uint64_t at = offset, next = 0; at < end; at = next) {
    const uint64_t stripe = striping_.StripeOf(at), whole = WholeStripes(at, end);
    next = std::min(end, striping_.OffsetOf(stripe + std::max<uint64_t>(whole, 1)));
    const Block part = bytes.Slice(at - offset, next - at);
    GroupWriter& writer = whole > 0 ? whole_writer_ : part_writer_;
    ABACUS_RETURN_IF_ERROR(WriteGroup(writer, [&]() -> absl::StatusOr<Group> {
      if (whole > 0) return GroupOfWhole({stripe, stripe + whole}, part.data());
      std::vector<Row> rows = RowsOf(stripe, at, next);
      ABACUS_RETURN_IF_ERROR(ReadOld(rows, now));
      return GroupOf(rows, at, part);
    }));
  }
  return absl::OkStatus();
}

absl::Status SharedStripes::WriteGroup(GroupWriter& writer,
                                       absl::FunctionRef<absl::StatusOr<Group>()> plan) {
  const int64_t begun = host_.steady_ns();
  for (int tries = 1;; ++tries) {
    ABACUS_ASSIGN_OR_RETURN(const Group group, plan());
    const int64_t asked = host_.steady_ns();
    const GroupOutcome outcome = writer.Write(group);
    const int64_t now = host_.steady_ns();
    const std::string why(outcome.why.message());
    if (outcome.kind == GroupOutcome::Kind::kCommitted) {
      // Who gives up has not heard of all servers that they have it in their stores. One of them
      // may come back and show what was there before, until it has asked the others.
      if (now - asked >= absl::ToInt64Nanoseconds(kGiveUp)) {
        return NeedsAlone("a server has not put in its place yet what all have promised");
      }
      uint64_t written = 0;
      for (const ServerPart& part : group) written += part.part.bytes() / kBlockBytes;
      MutexLock lock(mutex_);
      ++counts_.groups;
      counts_.written += written;
      return absl::OkStatus();
    }
    if (absl::IsUnauthenticated(outcome.why)) return outcome.why;
    if (outcome.kind == GroupOutcome::Kind::kInDoubt) {
      return NeedsAlone(absl::StrCat("what became of a write is not known: ", why));
    }
    if (!absl::IsAborted(outcome.why)) {
      return NeedsAlone(absl::StrCat("a write was refused: ", why));
    }
    if (tries >= kTriesMost || now - begun >= absl::ToInt64Nanoseconds(kPatience)) {
      return NeedsAlone(
          absl::StrCat("others wrote to the same stripe before each of ", tries, " tries: ", why));
    }
    {
      MutexLock lock(mutex_);
      ++counts_.again;
    }
    host_.wait(Backoff(tries));
  }
}

absl::Duration SharedStripes::Backoff(int tries) {
  const double factor = std::min(1 << std::min(tries - 1, 16), kBackoffFactorMax);
  MutexLock lock(mutex_);
  return kBackoff * factor * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
}

}  // namespace abacus::objfs
