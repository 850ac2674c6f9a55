#ifndef ABACUS_RUNTIME_OBJECT_TESTING_COUNT_ALLOCATIONS_H_
#define ABACUS_RUNTIME_OBJECT_TESTING_COUNT_ALLOCATIONS_H_

#include <cstdint>

namespace abacus::runtime::testing {

// Heap allocations that the calling thread has made. A program that is built with
// count_allocations.cc has its operators new and delete replaced by ones that count.
uint64_t ThreadAllocations();

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_OBJECT_TESTING_COUNT_ALLOCATIONS_H_
