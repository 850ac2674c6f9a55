#ifndef ABACUS_MONITOR_EBPF_MEMORY_H_
#define ABACUS_MONITOR_EBPF_MEMORY_H_

// How many bytes each object holds, without the objects' help.
//
// A program opts in by linking the object library `abacus_memory`: its malloc, free and their
// relatives take the place of the C library's, and so reach `new`, containers and what libraries
// allocate. Each block remembers the object in which it was allocated, and counts for it until the
// block is freed, by whomever. The invocation path says where a thread is, with SetMemoryObject();
// that costs one store, linked or not.
//
// What is written here may be called from any library; without the hooks (abacus_memory_api alone)
// and under the sanitizers, which bring a malloc of their own, nothing is counted.
//
// Costs: 16 bytes per block and a few ns per malloc/free pair, see the room's README.
// Limits: memory that a program maps itself (mmap, thread stacks) is not counted, nor is what
// malloc holds without having given it out. The program must use glibc as a shared library. In a
// child forked while other threads allocate, what these had in hand may be counted wrong for good.

#include <cstdint>
#include <span>

#include "monitor-ebpf/memory_object.h"

namespace abacus::monitor {

// Whether this program counts memory: it was linked with abacus_memory, and not with a sanitizer.
// Thread-safety: thread-safe.
bool MemoryIsCounted();

// The bytes that `object` holds: allocated in it and not yet freed, as they were asked for, without
// headers and padding. 0 where nothing is counted. Slot 0 holds what was allocated outside of all
// objects, before main() too.
//
// Exact at quiet points, while nobody allocates or frees, no matter which threads did so before and
// whether they still run. Otherwise it is what the object held a moment ago, wrong by at most
// 256 KiB for each thread that is at it, and never below 0. A slot that is given to another object
// still counts the blocks that the former one left behind.
//
// Units: bytes. Thread-safety: thread-safe, lock-free. Blocking: no; reads two words per thread
// that was alive at once: 1,000 threads, a few us. Use MemoryOfAll() for many objects.
uint64_t MemoryOf(uint32_t object);

// MemoryOf() the objects 0, 1, ... as many as `bytes` has room for; costs a few ns per object and
// reads 257 words per thread. Units: bytes. Thread-safety: thread-safe, lock-free. Blocking: no.
void MemoryOfAll(std::span<uint64_t> bytes);

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_MEMORY_H_
