#ifndef ABACUS_OBJFS_FUSE_PAGE_READS_H_
#define ABACUS_OBJFS_FUSE_PAGE_READS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace abacus::objfs::fuse {

// Which files the kernel reads, for those that write them meanwhile.
//
// The kernel puts what is written into its pages first, lets go of them, and then sends the write.
// Pages may be dropped until that is answered, and be read anew: then they have the bytes of
// before, and keep them. So a write beside which the kernel has read the file must have its pages
// forgotten, before it is answered.
//
// Files share places: one that nobody reads may be taken for one that is read.
// Thread-safety: thread-safe. Blocking: no.
class PageReads {
 public:
  using Clock = std::chrono::steady_clock;

 private:
  struct Place {
    std::atomic<uint32_t> under_way{0};
    std::atomic<Clock::rep> ended{std::numeric_limits<Clock::rep>::min()};  // the last that has
  };

 public:
  // Around the reading of a file.
  class Reading {
   public:
    Reading(PageReads& reads, uint64_t inode) : place_(reads.PlaceOf(inode)) { ++place_.under_way; }
    ~Reading() {
      place_.ended = Clock::now().time_since_epoch().count();
      --place_.under_way;
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    Place& place_;
  };

  // Whether the kernel has read the file since it sent a write that was seen first at `seen` and
  // that is done now.
  bool Beside(uint64_t inode, Clock::time_point seen) {
    const Place& place = PlaceOf(inode);
    return place.under_way > 0 || place.ended >= (seen - kOnItsWay).time_since_epoch().count();
  }

 private:
  // From the kernel's filling of the pages until the write is seen here. The two threads that it
  // takes may be kept from running.
  static constexpr Clock::duration kOnItsWay = std::chrono::milliseconds(50);
  static constexpr size_t kPlaces = 256;

  Place& PlaceOf(uint64_t inode) { return places_[inode % kPlaces]; }

  std::array<Place, kPlaces> places_;
};

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_PAGE_READS_H_
