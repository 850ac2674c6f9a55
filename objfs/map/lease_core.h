#ifndef ABACUS_OBJFS_MAP_LEASE_CORE_H_
#define ABACUS_OBJFS_MAP_LEASE_CORE_H_

// Which of the servers that keep a volume's metadata may answer for it now, as a state machine
// without I/O: answers and time come in, calls go out. README.md says why it is right.
//
// Two things let a primary serve, and either is enough. The map holds a lease of its own, for as
// long as which nobody takes its place; or all who could take it, the other current copies, have
// promised it not to try for a while. So it goes on where the map is away and its copy is not, and
// where its copy is away and the map is not.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "objfs/map/volume_row.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// A volume's row as the map has it, and whose lease on the place of the primary is in force.
struct MapReading {
  int64_t revision = 0;  // another one with each change of the row
  VolumeRow row;
  std::string holder;           // of the lease; empty: there is none
  int64_t holder_revision = 0;  // of that; 0: there is none
  ABACUS_FIELDS(revision, row, holder, holder_revision)

  friend bool operator==(const MapReading&, const MapReading&) = default;
};

// What to ask the map for; one at a time.
struct MapCall {
  enum class Kind : uint8_t {
    kRead,
    kGrant,  // a lease, which is in force from then on
    kRenew,
    kTake,  // the row becomes `row`, and the lease this server's, if both are as they were
    kSet,   // the row becomes `row`, if it is as it was
  };
  Kind kind = Kind::kRead;
  int64_t revision = 0;         // kTake, kSet: that the row has
  int64_t holder_revision = 0;  // kTake: that the lease's holder has; 0: there is none
  uint64_t lease = 0;           // kGrant, kRenew, kTake
  std::string holder;           // kTake
  VolumeRow row;                // kTake, kSet
  ABACUS_FIELDS(kind, revision, holder_revision, lease, holder, row)
};

struct MapAnswer {
  enum class State : uint8_t {
    kDone,
    kRefused,  // it was not as expected; the lease is over
    kUnknown,  // no answer: it may have been done, or be done yet
  };
  State state = State::kUnknown;
  MapReading reading;  // kRead: of that; kTake, kSet: its revisions, those of now
  ABACUS_FIELDS(state, reading)
};

// A copy's answer to whether it promises not to become the primary.
struct PromiseAnswer {
  bool given = false;
  uint64_t epoch = 0;  // the newest that it knows
  // What it may have sent to the map before it was this life, it does not know any more.
  uint64_t life = 0;
  ABACUS_FIELDS(given, epoch, life)
};

// The rules that the simulation breaks one at a time, to see that its checks notice.
struct FaithfulLeasePolicy {
  static constexpr bool kCountFromSending = true;
  static constexpr bool kLeaveMargin = true;
  static constexpr bool kHonourPromise = true;
  static constexpr bool kOnlyCurrentStand = true;
  static constexpr bool kWaitForTheLease = true;
  static constexpr bool kNoPromiseWhileTaking = true;
  static constexpr bool kNewLifeAfterDoubt = true;
  static constexpr bool kFenceNewLives = true;
  static constexpr bool kCountPending = true;
  static constexpr bool kPromiseOutlivesRestart = true;
  static constexpr bool kTellOnlyWhatHolds = true;
  static constexpr bool kRenewForMoreCandidates = true;
};

struct LeaseOptions {
  int64_t lease_ns = 5'000'000'000;    // of the primary, by the map's clock
  int64_t promise_ns = 5'000'000'000;  // no longer than lease_ns
  int64_t renew_ns = 1'000'000'000;    // both are renewed so often
  int64_t look_ns = 500'000'000;       // a copy looks at the map so often
  // Two clocks, each counting the same time, may differ by so much of it.
  int64_t drift_percent = 5;
};

// One server of a volume that keeps its metadata, or may come to.
//
// Invariants:
// 1. Of all servers of a volume, one at most has MayServe() at any time, as long as their clocks
//    and the map's drift apart no faster than the options say.
// 2. Who comes to serve in a new epoch was current in the row when it did, and stays the only one
//    that is, until it says of another that it has everything.
// 3. No other server has MayServe() before the time is over that ServesFor() has told.
// Thread-safety: thread-compatible. Blocking: no. All times are of one monotonic clock of this
// server's.
template <typename Policy>
class BasicLeaseCore {
 public:
  enum class Role : uint8_t { kUnknown, kCopy, kPrimary };

  // `process`: of this start of this server and no other.
  BasicLeaseCore(const LeaseOptions& options, uint32_t place, uint64_t process, int64_t now);

  // -- the map ------------------------------------------------------------------------------------

  // What to ask the map for now; none: nothing, or a call is under way.
  std::optional<MapCall> NextCall(int64_t now);
  // Of the call that NextCall() gave last.
  void OnAnswer(int64_t now, const MapAnswer& answer);
  // The row shall become `row`, which is row() with a change. What came of it: row().
  // REQUIRES: role() is kPrimary, and no change is under way.
  void Change(VolumeRow row);
  bool changing() const { return wanted_.has_value(); }

  // Whether this server would take over where the row lets it, or go on as the primary after a
  // restart: what it has is whole, and can be opened. At first it would.
  void SetMayStand(bool may_stand) { may_stand_ = may_stand; }
  // This primary cannot serve, others may be able to: the row shall call current again whom its
  // taking over has left behind; then it is a primary no more, and its lease runs out. False: none
  // of them was current, and nothing is done.
  // REQUIRES: in this epoch nothing was acknowledged, nor brought to another copy.
  bool Yield();
  bool yields() const { return yields_; }

  // -- the other copies ---------------------------------------------------------------------------

  // Whom to ask for a promise now; each is asked for once until it has answered.
  std::vector<uint32_t> NextAsks(int64_t now);
  // nullopt: it did not answer. `sent`: when it was asked.
  void OnPromise(int64_t now, uint32_t place, int64_t sent, std::optional<PromiseAnswer> answer);
  // This server is asked by the primary of `epoch`.
  PromiseAnswer OnAsk(int64_t now, uint64_t epoch);

  // -- what it comes to ---------------------------------------------------------------------------

  Role role() const { return role_; }
  // Whether what is answered now is the volume's answer.
  bool MayServe(int64_t now) const;
  bool HasLease(int64_t now) const;
  // Another one may be serving by what this server has promised it.
  bool HasPromised(int64_t now) const { return now < promised_until_; }
  // How long from now no other server will have MayServe(), be it that this one dies at once; so
  // long it may promise things to others. 0: it has not itself. Of its lease where it has one:
  // promises of copies may be told of for as long as no change makes more of them necessary.
  int64_t ServesFor(int64_t now);
  // As it was read last; epoch 0: never yet.
  const VolumeRow& row() const { return row_; }
  int64_t revision() const { return revision_; }
  // When the map has answered last; 0: never.
  int64_t heard_at() const { return heard_at_; }
  // The other places that may become the primary, as far as this one knows: nothing may be
  // acknowledged that one of them does not have.
  std::vector<uint32_t> Candidates() const;

 private:
  struct Other {
    int64_t promised_until = INT64_MIN;
    int64_t ask_at = INT64_MIN;
    bool asked = false;
    uint64_t life = 0;    // that it told of last
    uint64_t fenced = 0;  // the row has changed since that life began
  };
  int64_t Margin(int64_t ns) const;
  bool Holds(int64_t now) const;
  // When the first of the promises is over that it Holds() by.
  int64_t HeldUntil(int64_t now) const;
  bool Stands(int64_t now) const;
  // A lease's holder: the place, the process, and the lease.
  std::string HolderPrefix() const;
  bool IsOfThisPlace(const std::string& holder) const;
  bool IsOfThisProcess(const std::string& holder) const;
  void OnRead(int64_t now, const MapAnswer& answer);
  void Moved(int64_t revision, VolumeRow row);
  void BecomePrimary();
  void StepDown();
  void Fence();
  void OnGrant(int64_t now, const MapAnswer& answer);
  void OnRenew(int64_t now, const MapAnswer& answer);
  void OnTake(const MapAnswer& answer);
  void OnSet(const MapAnswer& answer);
  MapCall Send(int64_t now, MapCall call);
  std::optional<MapCall> CallOfPrimary(int64_t now);
  std::optional<MapCall> CallOfCopy(int64_t now);
  MapCall TakeCall() const;
  bool WantsFence() const;

  const LeaseOptions options_;
  const uint32_t place_;
  const uint64_t process_;

  Role role_ = Role::kUnknown;
  uint64_t epoch_ = 0;  // that this one is the primary of
  VolumeRow row_;
  int64_t revision_ = 0;
  std::string holder_;
  int64_t holder_revision_ = 0;
  int64_t heard_at_ = 0;
  int64_t read_at_ = INT64_MIN;      // the last answer to kRead
  bool stale_ = true;                // the row is to be read before anything is decided by it
  int64_t quiet_until_ = INT64_MIN;  // the map has just not answered

  // The call under way.
  std::optional<MapCall> call_;
  int64_t call_at_ = 0;
  std::map<uint32_t, uint64_t> lives_at_call_;

  // The lease in the map.
  uint64_t last_lease_ = 0;
  uint64_t lease_ = 0;     // 0: none
  bool attached_ = false;  // and it is the primary's
  int64_t lease_sent_ = 0;
  int64_t renew_at_ = 0;
  int64_t told_until_;  // by ServesFor() or an earlier process, the latest

  // Rows that may have come to be in the place of row_, and are not known to.
  std::vector<VolumeRow> pending_;
  std::optional<VolumeRow> wanted_;
  VolumeRow before_;     // the row that this one last took over from; epoch 0: not known
  bool yields_ = false;  // as soon as there is no wanted_

  bool may_stand_ = true;
  std::map<uint32_t, Other> others_;
  int64_t promised_until_;
  uint64_t life_;
};

using LeaseCore = BasicLeaseCore<FaithfulLeasePolicy>;
extern template class BasicLeaseCore<FaithfulLeasePolicy>;

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_LEASE_CORE_H_
