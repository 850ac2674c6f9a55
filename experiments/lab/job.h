#ifndef ABACUS_EXPERIMENTS_LAB_JOB_H_
#define ABACUS_EXPERIMENTS_LAB_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "apps/filter/filter.h"
#include "apps/multiphase/multiphase.h"
#include "apps/table/record_table.h"

namespace abacus::lab {

// Where the objects of a job that can move are. All that a client of an experiment differs by from
// run to run.
enum class Placement : uint8_t { kClient, kAdaptive, kServer };

// What a client does.
struct Job {
  enum class Kind : uint8_t {
    kNull,
    kFilter,
    kTable,
    kDirectory,
    kStream,
    kGrep,
    kWordCount,
    kAggregate
  };
  Kind kind = Kind::kNull;
  Placement placement = Placement::kAdaptive;
  // With kServer: the class of the objects that are at the server, and all others are at the
  // client. Empty: all are at the server.
  std::string only;
  uint64_t seed = 1;

  // kNull
  uint64_t calls = 1000, call_bytes = 0;
  // Of all that read or write a file: one in the volume's root, and the stack that it gets. The
  // file is made where it is not there; one that is has its own stack.
  std::string file, stack;
  apps::FilterOptions filter;
  // kTable. With `warm` all of it is read once before, at the placement's place.
  apps::TableShape table;
  std::vector<apps::Phase> phases;
  bool warm = true;
  // kStream: `file`, which is there, is read or written from its begin to its end, `call_bytes` a
  // call. What is read has to be what was prepared.
  bool writes = false;
  // kGrep, kWordCount and kAggregate read `file`, which is there, filter.read_bytes a call. The
  // first searches for this, the last adds up the numbers that lines begin with, up to a space.
  std::string pattern;
  // kDirectory: a directory in the volume's root; empty: the root itself.
  std::string directory, prefix;
  uint64_t files = 0;
};

// From JSON, a key a member: {"kind": "table", "placement": "server", "phases": [{"name": "insert",
// "operations": 1500}], ...}.
// Errors: kInvalidArgument - the message names the key.
absl::StatusOr<Job> ParseJob(const std::string& text);

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_JOB_H_
