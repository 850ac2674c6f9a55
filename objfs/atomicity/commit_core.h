#ifndef ABACUS_OBJFS_ATOMICITY_COMMIT_CORE_H_
#define ABACUS_OBJFS_ATOMICITY_COMMIT_CORE_H_

// Writes to several participants that happen whole or not at all, as state machines without I/O:
// messages and time come in, messages and records go out. README.md says why it is right.
//
// There is no coordinator whose log decides. A transaction is committed from the moment on which
// the last of its participants has prepared it durably: whoever began it, and anyone who comes
// later, can find that out by asking all of them, and who asks a participant that has not prepared
// makes it refuse for ever. So the death of whoever began it blocks nobody for longer than a lease.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "objfs/layer/version.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

using Nanos = int64_t;

// One participant of a transaction: a part (a block, or 0 for a whole store) of a server.
struct CommitPart {
  uint64_t server = 0;
  uint64_t part = 0;
  friend auto operator<=>(const CommitPart&, const CommitPart&) = default;
  ABACUS_FIELDS(server, part)
};

// A transaction at one part of this server. Identifiers are unique: no clock gives one twice.
struct CommitKey {
  Version id;
  uint64_t part = 0;
  friend auto operator<=>(const CommitKey&, const CommitKey&) = default;
  ABACUS_FIELDS(id, part)
};

enum class CommitKind : uint8_t {
  kPrepare,  // questions
  kCommit,
  kAbort,
  kInquire,
  kForget,    // not answered
  kPrepared,  // answers
  kRefused,   // not prepared, and never will be
  kCommitted,
  kAborted,
};

struct CommitMessage {
  CommitKind kind = CommitKind::kInquire;
  Version id;
  CommitPart part;                // whom a question asks; who answers
  std::vector<CommitPart> group;  // kPrepare: all participants
  std::string payload;            // kPrepare: what to write there
  Version newest;                 // kRefused: identifiers up to this one are refused
  ABACUS_FIELDS(kind, id, part, group, payload, newest)
};

// A message that may leave once the record of that number is durable (0: at once).
struct CommitSend {
  uint64_t to = 0;  // a server, or the sender of the question
  CommitMessage message;
  uint64_t after = 0;
};

// What a participant must not forget. Records become durable in their order.
struct CommitRecord {
  enum class Kind : uint8_t { kCeiling, kPrepare, kCommit, kAbort, kForget };
  Kind kind = Kind::kCeiling;
  CommitKey key;                  // kCeiling: the ceiling's is key.id
  std::vector<CommitPart> group;  // kPrepare
  std::string payload;            // kPrepare
  ABACUS_FIELDS(kind, key, group, payload)
};
std::string EncodeCommitRecord(const CommitRecord& record);
// Errors: kDataLoss.
absl::StatusOr<CommitRecord> DecodeCommitRecord(std::string_view bytes);

// What the durable records of a participant come to; a checkpoint holds it.
struct CommitEntries {
  struct Entry {
    std::vector<CommitPart> group;
    std::string payload;
    bool committed = false;
    ABACUS_FIELDS(group, payload, committed)
  };
  // No identifier above it has been prepared, refused or (by timestamp ordering) read with.
  Version ceiling;
  std::map<CommitKey, Entry> entries;

  void Apply(const CommitRecord& record);
  std::string Encode() const;
  // Errors: kDataLoss.
  static absl::StatusOr<CommitEntries> Decode(std::string_view bytes);
};

// The rules that the simulators break one at a time, to see that their checks notice. The library
// is built with this one.
struct FaithfulCommitPolicy {
  static constexpr bool kAnswerAfterDurable = true;
  static constexpr bool kPersistPrepare = true;
  static constexpr bool kFloorAfterRestart = true;
  static constexpr bool kRaiseCeiling = true;
  static constexpr bool kSwearOff = true;
  static constexpr bool kRememberCommitted = true;
  static constexpr bool kRedoAfterRestart = true;
  static constexpr bool kAcknowledgeApplied = true;
  static constexpr bool kResolveAfterLease = true;
  static constexpr bool kForwardOnlyIfAll = true;
  static constexpr bool kWaitForAllPrepared = true;
  static constexpr bool kNoAbortInDoubt = true;
  static constexpr bool kForgetAfterAll = true;
  static constexpr bool kDoubtAfterLease = true;
  static constexpr bool kSendAgain = true;
};

struct CommitOptions {
  Nanos lease_ns = 30'000'000'000;  // then what is not decided is resolved
  Nanos resend_ns = 500'000'000;    // unanswered questions are asked again
  // Then who began it asks instead of preparing. Less than the lease, after which others do, and
  // may leave it in doubt.
  Nanos decide_ns = 10'000'000'000;
  uint64_t ceiling_step_ticks = 100'000;  // 1 s: a busy store writes one ceiling in that time
  size_t refused_max = 4096;              // remembered one by one; then by the highest
  int abort_sends_max = 3;                // who does not hear of an abort finds out by itself
};

// The side that drives one transaction to its end: who began it, or who resolves it.
//
// Invariant: it aborts only what a participant has refused for ever, and commits only what all have
// prepared; so any number of drivers of one transaction agree.
// Thread-safety: thread-compatible. Blocking: no.
template <typename Policy>
class CommitDriver {
 public:
  enum class Phase { kPreparing, kInquiring, kCommitting, kAborting, kEnded };
  enum class Start { kPrepare, kInquire, kCommit };

  // `payloads`: one for each of `group`, where it starts with kPrepare.
  // REQUIRES: for kInquire, that the lease of an entry of it is over; for kCommit, that one was
  // told of its commit.
  CommitDriver(const CommitOptions& options, Version id, std::vector<CommitPart> group,
               std::vector<std::string> payloads, Start start, Nanos now);

  // Takes an answer; late, repeated and foreign ones change nothing.
  void OnAnswer(const CommitMessage& answer, Nanos now, std::vector<CommitSend>* out);
  // Sends what is due. To be called once at the start, and at or after NextAt().
  void Tick(Nanos now, std::vector<CommitSend>* out);
  Nanos NextAt() const { return phase_ == Phase::kEnded ? INT64_MAX : next_at_; }

  Phase phase() const { return phase_; }
  // All have prepared: what was to be written is written, whoever dies.
  bool committed() const { return committed_; }
  // It has not happened and will not.
  bool aborted() const { return aborted_; }
  // A lease has gone by since it began, and one refuses: either it never prepared, or others have
  // carried the transaction through and all have forgotten it. Nobody can tell any more.
  bool in_doubt() const { return in_doubt_; }
  // Where it was refused, the newest identifier that a refusal told of.
  Version newest() const { return newest_; }

 private:
  void Enter(Phase phase, Nanos now, std::vector<CommitSend>* out);
  void SendAll(std::vector<CommitSend>* out);
  CommitKind Question() const;

  CommitOptions options_;
  Version id_;
  std::vector<CommitPart> group_;
  std::vector<std::string> payloads_;
  std::vector<bool> answered_;  // in this phase
  Phase phase_;
  Nanos next_at_;
  Nanos decide_at_;
  Nanos doubt_at_;
  int sends_ = 0;
  bool committed_ = false;
  bool aborted_ = false;
  bool in_doubt_ = false;
  Version newest_;
};

struct CommitActions {
  std::vector<CommitRecord> persist;
  std::vector<CommitSend> sends;
  // Committed: to be written where it belongs, ONLY OVER OLDER VERSIONS (a version being the
  // transaction's identifier), as often as it is told; then Applied() is to be called. The write
  // must be durable by then, because the log forgets it.
  std::vector<CommitKey> apply;
  std::vector<CommitKey> undone;  // prepared, and dropped
};

// The participants of one server.
//
// Invariants:
// 1. What was answered with kPrepared is durable, until it was applied or another participant had
//    refused.
// 2. What was answered with kRefused is never prepared: not after a restart either, as from then on
//    no identifier up to the durable ceiling is admitted.
// 3. What is committed is remembered until all participants have applied it: nobody who asks takes
//    it for never prepared.
// 4. Nothing stays prepared for longer than a lease once all participants can be reached.
// Thread-safety: thread-compatible. Blocking: no.
template <typename Policy>
class CommitParticipant {
 public:
  using Driver = CommitDriver<Policy>;

  // After a restart, `durable` is what the records that were found come to. Start() is due then.
  CommitParticipant(const CommitOptions& options, uint64_t server, CommitEntries durable,
                    Nanos now);
  // What was committed is applied again.
  void Start(CommitActions* out);

  // A message of `from`. `vote`: whether the owner agrees to a kPrepare that is new here.
  void Handle(uint64_t from, const CommitMessage& message, bool vote, Nanos now,
              CommitActions* out);
  void Applied(const CommitKey& key, CommitActions* out);
  // Resolves what is left over from the dead.
  void Tick(Nanos now, CommitActions* out);

  // Whether a kPrepare of it would be looked at: it is neither refused nor under the floor.
  bool Admits(const CommitKey& key) const;
  // Returns the record that must be durable before anyone is told of `seen`.
  uint64_t RaiseCeiling(Version seen, CommitActions* out);
  Version floor() const { return floor_; }

  struct Entry {
    std::vector<CommitPart> group;
    std::string payload;
    bool committed = false;
    bool applied = false;
    uint64_t record = 0;  // of its preparation, then of its commit
    Nanos expires = 0;
    std::set<uint64_t> waiting;  // for kCommitted, until it is applied
  };
  const Entry* Find(const CommitKey& key) const;
  const std::map<CommitKey, Entry>& entries() const { return entries_; }
  const std::map<Version, Driver>& resolutions() const { return resolutions_; }

 private:
  uint64_t Persist(CommitRecord record, CommitActions* out);
  void Answer(uint64_t to, CommitKind kind, const CommitKey& key, uint64_t after,
              CommitActions* out);
  void OnPrepare(uint64_t from, const CommitMessage& message, bool vote, Nanos now,
                 CommitActions* out);
  void OnCommit(uint64_t from, const CommitKey& key, CommitActions* out);
  void OnAbort(uint64_t from, const CommitKey& key, CommitActions* out);
  void OnInquire(uint64_t from, const CommitKey& key, CommitActions* out);
  void Refuse(uint64_t from, const CommitKey& key, CommitActions* out);
  void Remember(const CommitKey& key);

  const CommitOptions options_;
  const uint64_t server_;
  Version ceiling_;
  Version floor_;
  uint64_t records_ = 0;
  uint64_t ceiling_record_ = 0;
  std::map<CommitKey, Entry> entries_;
  std::set<CommitKey> refused_;
  std::map<Version, Driver> resolutions_;
};

extern template class CommitDriver<FaithfulCommitPolicy>;
extern template class CommitParticipant<FaithfulCommitPolicy>;

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_COMMIT_CORE_H_
