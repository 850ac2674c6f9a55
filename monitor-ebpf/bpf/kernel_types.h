/* The few fields of the kernel's structures that the programs here read. Offsets come from the BTF
 * of the kernel that runs, when the programs are loaded (CO-RE), so that a build needs no kernel
 * headers and a program built here loads elsewhere. What differs between kernel versions is here.
 */
#ifndef ABACUS_MONITOR_EBPF_BPF_KERNEL_TYPES_H_
#define ABACUS_MONITOR_EBPF_BPF_KERNEL_TYPES_H_

typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };

enum bpf_map_type { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_LRU_HASH = 9 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_F_MMAPABLE = 1u << 10 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_entity {
	__u64 sum_exec_runtime; /* CPU time; up to date whenever the task is off its processor */
};

struct task_struct {
	int pid;
	unsigned int __state;
	unsigned in_iowait : 1;
	int on_cpu; /* it is on a processor, or still on its way off one */
	__u64 start_time;
	struct sched_entity se;
	struct bio_list *bio_list; /* not null inside a submission of block I/O */
};

/* Before Linux 5.14. */
struct task_struct___before_5_14 {
	long state;
};

struct request_queue;

struct bvec_iter {
	unsigned int bi_size;
};

struct bio {
	struct bio *bi_next;
	unsigned int bi_opf;
	struct bvec_iter bi_iter;
};

struct request {
	struct bio *bio;
};

#pragma clang attribute pop

#define TASK_DEAD 0x80u

/* Of bio.bi_opf. */
#define REQ_OP_MASK 0xffu
#define REQ_OP_WRITE 1u

#endif
