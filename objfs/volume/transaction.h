#ifndef ABACUS_OBJFS_VOLUME_TRANSACTION_H_
#define ABACUS_OBJFS_VOLUME_TRANSACTION_H_

// What a client asks a volume to do in one step: the paper's CommitAction(readSet, writeSet)
// (section 4.3.1) over one object or several.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "objfs/layer/layer.h"
#include "objfs/volume/inode.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// An inode as a client sees it.
struct Node {
  ObjectId id = 0;
  Inode inode;
  uint64_t size = 0;       // bytes
  uint64_t allocated = 0;  // bytes
  Version version;         // of the last change of any kind
  uint16_t kept_by = 0;    // the client that may have changes of its bytes that are not in here yet
  ABACUS_FIELDS(id, inode, size, allocated, version, kept_by)
};

// A promise for what is known of an inode, and of a directory its names (callback_table.h).
struct KnownInode {
  ObjectId id = 0;
  Version given;
  ABACUS_FIELDS(id, given)
};

// Inodes, and whether they may be kept: `given` is 0 where not, and else the promise's version.
struct KnownNodes {
  std::vector<Node> nodes;
  std::vector<Version> given;
  ABACUS_FIELDS(nodes, given)
};

// An object that a transaction makes: it is there when its first name is, and else is not. Its
// links are those of the part's change.
struct Creation {
  Inode inode;
  std::string contents;  // of a symbolic link
  bool opens = false;    // it is open for the client then, as by Volume::Open()
  ABACUS_FIELDS(inode, contents, opens)
};

// The part of a transaction that one object takes.
struct Part {
  ObjectId id = 0;
  // What was read, with the version that the read returned: committed only where it is the newest.
  std::vector<RangeVersion> reads;
  std::vector<RangeWrite> writes;
  InodeChange change;
  bool must_be_linked = false;  // refused where no name leads to the object any more
  bool must_be_empty = false;   // refused where the directory has entries
  // The object is made; `id` is one that the client has reserved, and there is nothing to read,
  // write or require.
  std::optional<Creation> creation = {};
  // Where it is committed, the client has closed the object, once.
  bool closes = false;
  ABACUS_FIELDS(id, reads, writes, change, must_be_linked, must_be_empty, creation, closes)
};

struct Transaction {
  std::vector<Part> parts;  // each object once
  // A directory changes its parent: committed only where no other did since this value of
  // Volume::TreeVersion(), or two clients could build a cycle. Of a volume with several shards each
  // has its own: a transaction names those of all shards whose directories it has looked at.
  std::optional<uint64_t> tree;
  ABACUS_FIELDS(parts, tree)
};

enum class CommitState : uint8_t {
  kCommitted = 0,
  kStale,     // `id` was changed since it was read: read it again, and try again
  kGone,      // `id` is no more, or no name leads to it
  kNotEmpty,  // `id` has entries
  kTree,      // another directory was moved meanwhile
};

// What a client has of an object that its transaction made.
struct MadeObject {
  Version given;              // the promise for what is known of it (Volume::Know); 0: none
  runtime::Ref<Layer> layer;  // where it is open: its lowest one
  ABACUS_FIELDS(given, layer)
};

struct Outcome {
  CommitState state = CommitState::kCommitted;
  ObjectId id = 0;
  std::vector<Node> nodes;  // where committed: of the parts, as they are now
  Version version;          // where committed: of what was written
  std::optional<MadeObject> made = {};
  // Where committed: a directory's blocks count as one that was read (Volume::Options), so that all
  // are as they were in the version that this rests on.
  bool whole_read_sets = false;
  ABACUS_FIELDS(state, id, nodes, version, made, whole_read_sets)
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_TRANSACTION_H_
