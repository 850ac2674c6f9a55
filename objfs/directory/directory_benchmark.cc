// ./dev bench directory: one directory object next to its volume, over a disk in memory, with 1,000
// and with 1,000,000 names.

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/directory/testing/directory_world.h"
#include "objfs/store/memory_disk.h"
#include "runtime/testing/bench_report.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;

constexpr uint64_t kSmall = 1000;
constexpr uint64_t kLarge = 1'000'000;
constexpr uint64_t kLookups = 100'000;

template <typename T>
T Must(absl::StatusOr<T> value) {
  return testing::DirectoryWorld::Must(std::move(value));
}

std::string Name(uint64_t i) { return absl::StrCat("file-", i); }

// Nanoseconds of each of `count`.
double NsEach(uint64_t count, const std::function<void(uint64_t)>& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count; ++i) work(i);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin)
             .count() /
         static_cast<double>(count);
}

void Check(bool holds, const char* what) {
  if (holds) return;
  std::cerr << what << "\n";
  std::exit(1);
}

double Insert(const Ref<Directory>& directory, uint64_t from, uint64_t to) {
  InodeChange own;
  own.entries = 1;
  own.touch_modified = own.touch_changed = true;
  return NsEach(to - from, [&](uint64_t i) {
    const std::vector<EntryChange> change{{Name(from + i), {}, Entry{from + i + 1, 0100000}}};
    const Outcome outcome =
        Must(directory->Commit(change, own, std::vector<Part>(), std::optional<uint64_t>()));
    Check(outcome.state == CommitState::kCommitted, "an insertion was refused");
  });
}

double Lookup(const Ref<Directory>& directory, uint64_t names) {
  return NsEach(kLookups, [&](uint64_t i) {
    const uint64_t which = i * 7919 % names;
    const auto found = Must(directory->Lookup(Name(which)));
    Check(found.has_value() && found->id == which + 1, "a name was not found");
  });
}

double List(const Ref<Directory>& directory, uint64_t names) {
  uint64_t listed = 0;
  const double all = NsEach(1, [&](uint64_t) {
    for (uint64_t cookie = 0;;) {
      const auto some = Must(directory->List(cookie, 1000));
      if (some.empty()) break;
      listed += some.size();
      cookie = some.back().cookie;
    }
  });
  Check(listed == names, "not all names were listed");
  return all / static_cast<double>(names);
}

void Add(runtime::BenchReport& report, const std::string& what, double large, double small) {
  report.Add({.name = absl::StrCat(what, ", of 1,000,000"),
              .value = large,
              .unit = "ns",
              .baseline_name = "of 1,000",
              .baseline = small,
              .ratio = large / small,
              .goal = "<= 2 x of 1,000",
              .met = large <= 2 * small});
}

void Measure(runtime::BenchReport& report) {
  report.Note("one thread, in process, disk in memory, each insertion a transaction of the volume");
  MemoryDisk disk;
  testing::DirectoryWorld world(disk, 1);
  const auto client = world.Join();
  const Ref<Directory> directory = world.Root(0, client);
  Insert(directory, 0, kSmall / 2);  // warm
  const double small_insert = Insert(directory, kSmall / 2, kSmall);
  Lookup(directory, kSmall);
  const double small_lookup = Lookup(directory, kSmall);
  const double small_list = List(directory, kSmall);

  Insert(directory, kSmall, kLarge - kLookups);
  const double large_insert = Insert(directory, kLarge - kLookups, kLarge);
  Lookup(directory, kLarge);
  const double large_lookup = Lookup(directory, kLarge);
  Add(report, "insert a name", large_insert, small_insert);
  Add(report, "look up a name, tables remembered", large_lookup, small_lookup);
  Add(report, "list, each name", List(directory, kLarge), small_list);
  const double cold = NsEach(1000, [&](uint64_t i) {
    const Ref<Directory> fresh = world.Root(0, client);
    Check(Must(fresh->Lookup(Name(i * 997))).has_value(), "a name was not found");
  });
  report.Add({.name = "make a directory object and look up its first name, of 1,000,000",
              .value = cold,
              .unit = "ns"});
}

}  // namespace
}  // namespace abacus::objfs

int main(int argc, char** argv) {
  return abacus::runtime::BenchMain(argc, argv, "directory", abacus::objfs::Measure);
}
