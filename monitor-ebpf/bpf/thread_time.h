/* What the kernel's side and the user's side of the monitor share: the layout of the maps.
 * Included by thread_time.bpf.c (as C, with kernel_types.h before it) and by bpf_monitor.cc.
 */
#ifndef ABACUS_MONITOR_EBPF_BPF_THREAD_TIME_H_
#define ABACUS_MONITOR_EBPF_BPF_THREAD_TIME_H_

/* Threads are found by id in a hash map; before it, a table by the id's low bits tells for the
 * price of one load that a thread is not one of ours, and as a rule where it is. */
#define ABACUS_FILTER_BUCKETS 8192

/* Bios that are looked at in one request; the kernel's own limit of segments is 128 by default. */
#define ABACUS_MERGED_MAX 256

enum abacus_thread_state {
	ABACUS_THREAD_FREE = 0, /* the slot belongs to nobody */
	ABACUS_THREAD_RUNNING,
	ABACUS_THREAD_BLOCKED, /* waits for a message, a lock, a timer */
	ABACUS_THREAD_DISK,    /* waits for a disk */
	ABACUS_THREAD_READY,   /* waits for a processor */
	ABACUS_THREAD_DEAD,    /* has exited; the slot may be given away */
};

/* The registered threads with the same low bits in their id. */
struct abacus_bucket {
	__u32 threads; /* how many there are */
	__u32
	    last_slot; /* of the last that registered: as a rule it is the one that is looked for */
};

/* One registered thread. The kernel's side alone writes it, but for `object`, and `exec_ns` of a
 * thread that is about to register itself. Times: nanoseconds of CLOCK_MONOTONIC. The first seven
 * fields are monitor::ThreadCounters. */
struct abacus_thread {
	__u64 changes; /* written last: when it is woken, and when it runs again */
	__u64 blocked_ns;
	__u64 ready_ns;
	__u64 disk_ns;	 /* part of blocked_ns */
	__u64 object;	 /* slot of the object that the thread is in; the thread writes it */
	__u64 voluntary; /* context switches: it blocked */
	__u64 involuntary;
	__u64 since_ns; /* when `state` began */
	__u64 run_ns;	/* up to the last time that the thread left its processor */
	__u64 exec_ns;	/* the kernel's own account of its CPU time, then */
	__u64 debt_ns;	/* what run_ns has, and ready_ns has as well */
	__u64 born_ns;	/* the kernel's start time: tells threads of one id apart */
	__u32 state;
	__u32 tid;	 /* as the kernel counts, outside of all pid namespaces */
	__u64 unused[3]; /* to two cache lines: neighbours are written by other processors */
};

/* Block I/O that the threads of this process began while they were in one object. */
struct abacus_io {
	__u64 bytes;
	__u64 time_ns; /* from submission to completion, summed over requests */
	__u64 requests;
};

/* A piece of block I/O on its way. */
struct abacus_request {
	__u64 object;
	__u64 queued_ns;
};

#endif
