// What a server reads of its log's file, and what it is asked, damaged in any way: no crash, no
// endless work; and what it has taken is there when it is opened again.
//
// The first byte says what the rest is: 0 the header of a log's file; 1 a group's part; 2 a log's
// snapshot; 3 a log's record; 4 questions, one after the other.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "objfs/atomicity/commit_log.h"
#include "objfs/atomicity/commit_log_state.h"
#include "objfs/atomicity/group_part.h"
#include "objfs/atomicity/log_file.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "runtime/base/codec.h"

namespace {

using namespace abacus::objfs;  // NOLINT: the whole vocabulary

constexpr size_t kQuestionsMax = 16;

void ExpectThat(bool holds) {
  if (!holds) abort();
}

std::unique_ptr<CommitLog> OpenFuzzedLog(const std::shared_ptr<Disk>& disk,
                                         const std::shared_ptr<ObjectStore>& store) {
  CommitLog::Options options;
  options.server = 1;
  options.half_bytes = LogFile::kHalfBytesMin;
  options.resolve_every = absl::ZeroDuration();
  options.commit.lease_ns = 0;
  CommitLog::Host host;
  host.steady_ns = [] { return int64_t{1}; };
  host.now_us = [] { return int64_t{1'700'000'000'000'000}; };
  auto log = CommitLog::Open(disk, store, options, std::move(host));
  ExpectThat(log.ok());
  return *std::move(log);
}

void AskAll(std::string_view bytes) {
  const auto disk = std::make_shared<MemoryDisk>();
  const std::shared_ptr<ObjectStore> store = *LocalObjectStore::Open(*disk, {});
  ExpectThat(store->CreateAs(1, "", 1).ok());
  auto log = OpenFuzzedLog(disk, store);
  const std::vector<abacus::runtime::Block> no_blocks;
  abacus::runtime::Reader reader(bytes, no_blocks, nullptr);
  for (size_t i = 0; i < kQuestionsMax && reader.ok() && reader.remaining() > 0; ++i) {
    uint64_t epoch = 0;
    CommitMessage question;
    abacus::runtime::Decode(reader, epoch);
    abacus::runtime::Decode(reader, question);
    if (!reader.ok()) break;
    const auto reply = log->Ask(epoch % 4, question);
    if (!reply.ok()) ExpectThat(!absl::IsUnavailable(reply.status()));
  }
  log->Resolve();
  const uint64_t pending = log->Counts()->pending;
  log.reset();
  log = OpenFuzzedLog(disk, store);
  ExpectThat(log->Counts()->pending == pending);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      if (const auto header = LogFile::DecodeHeader(rest); header.ok()) {
        ExpectThat(LogFile::EncodeHeader(*header).substr(0, 44) == rest.substr(0, 44));
      }
      break;
    case 1:
      if (const auto part = GroupPart::Decode(rest); part.ok()) ExpectThat(part->Encode() == rest);
      break;
    case 2:
      if (const auto state = CommitLogState::Decode(rest); state.ok()) {
        ExpectThat(CommitLogState::Decode(state->Encode()).ok());
      }
      break;
    case 3: {
      CommitLogState state;
      if (state.Apply(rest).ok()) ExpectThat(CommitLogState::Decode(state.Encode()).ok());
      break;
    }
    default:
      AskAll(rest);
      break;
  }
  return 0;
}
