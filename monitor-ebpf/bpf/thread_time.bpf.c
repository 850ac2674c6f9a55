// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// Where the registered threads' time goes, as the scheduler sees it; and the block I/O that they
// begin. Runs at context switches, never at calls: the invocation path reads what stands in the
// mmap-ed array.
//
// A thread is running, ready or blocked; time in a state is charged when it ends. A thread's record
// is written under its run queue's lock or by the processor that it is about to run on, so there
// is one writer at a time, and the thread itself reads only while it runs.

#include "monitor-ebpf/bpf/kernel_types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "monitor-ebpf/bpf/thread_time.h"

/* The kernel shows its structures to programs under a licence like its own only. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, struct abacus_thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);	/* thread id */
	__type(value, __u32);	/* index into threads */
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u64);	/* object slot */
	__type(value, struct abacus_io);
} io SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH); /* a completion that was not seen leaves one behind */
	__uint(max_entries, 1);		     /* set before loading */
	__type(key, __u64);		     /* the bio's address */
	__type(value, struct abacus_request);
} requests SEC(".maps");

/* Set before loading by a test: the programs then have what no verifier lets pass. */
const volatile bool unacceptable = false;

struct abacus_bucket filter[ABACUS_FILTER_BUCKETS];

/* I/O that could not be charged, or not its time, because a map was full or a request too long. */
__u64 lost_io;

/* Entries that were put into `requests`, counted afterwards, and those whose end was seen, counted
 * before they are taken out. What is neither in the map nor ended was pushed out of it, or its end
 * was not seen; read in the order begun, map, ended, a request on its way is never taken for one.
 */
__u64 begun_io;
__u64 ended_io;

static __always_inline struct abacus_thread *find(__u32 tid)
{
	struct abacus_bucket *bucket = &filter[tid % ABACUS_FILTER_BUCKETS];

	if (bucket->threads == 0)
		return 0;
	__u32 last = bucket->last_slot;
	struct abacus_thread *thread = bpf_map_lookup_elem(&threads, &last);

	/* A slot that was let go keeps its id until it is given to another thread. */
	if (thread && thread->tid == tid && thread->state != ABACUS_THREAD_FREE &&
	    thread->state != ABACUS_THREAD_DEAD)
		return thread;
	__u32 *slot = bpf_map_lookup_elem(&slots, &tid);
	return slot ? bpf_map_lookup_elem(&threads, slot) : 0;
}

/* The id may be given to another thread from now on. It is let go once, whoever comes first: the
 * kernel's side at the exit, or the user's side for a thread whose exit was not seen. */
static __always_inline void let_go(__u32 tid)
{
	if (bpf_map_delete_elem(&slots, &tid) == 0)
		__sync_fetch_and_add(&filter[tid % ABACUS_FILTER_BUCKETS].threads, -1);
}

static __always_inline __u32 state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return (__u32)((struct task_struct___before_5_14 *)task)->state;
}

static __always_inline void end_state(struct abacus_thread *thread, __u64 now)
{
	__u64 passed = now - thread->since_ns;

	switch (thread->state) {
	case ABACUS_THREAD_READY:
		if (thread->debt_ns <= passed) {
			thread->ready_ns += passed - thread->debt_ns;
			thread->debt_ns = 0;
		} else {
			thread->debt_ns -= passed;
		}
		break;
	case ABACUS_THREAD_DISK:
		thread->disk_ns += passed;
		thread->blocked_ns += passed;
		break;
	case ABACUS_THREAD_BLOCKED:
		thread->blocked_ns += passed;
		break;
	}
	thread->since_ns = now;
}

/* The part of the time since `since_ns` that the thread did not run. How long it ran is what the
 * kernel accounted to it, so that both never drift apart. It is not what passes between two
 * switches as seen here:
 * - the kernel leaves out what a hypervisor or an interrupt took; to us the thread was ready then;
 * - it dates a thread's time from before it chose it, microseconds before we see the switch, and
 *   more where the virtual processor is stopped in between: counted as ready time, this piece comes
 *   off the next;
 * - there are kernels where a few switches in a thousand do not reach the tracepoint: then the
 *   thread is not in the state that we believe it to be in, and was away in between.
 */
static __always_inline __u64 away(struct task_struct *task, struct abacus_thread *thread, __u64 now)
{
	__u64 passed = now - thread->since_ns;
	__u64 exec_ns = task->se.sum_exec_runtime;
	__u64 ran = exec_ns - thread->exec_ns;

	thread->exec_ns = exec_ns;
	thread->run_ns += ran;
	thread->since_ns = now;
	if (ran <= passed)
		return passed - ran;
	thread->debt_ns += ran - passed;
	return 0;
}

static __always_inline void leave_processor(struct task_struct *task, struct abacus_thread *thread,
					    bool preempted, __u64 now)
{
	__u32 state = state_of(task);

	thread->ready_ns += away(task, thread, now);
	if (state & TASK_DEAD) {
		let_go(task->pid);
		thread->state = ABACUS_THREAD_DEAD;
	} else if (preempted || state == 0) {
		thread->involuntary++;
		thread->state = ABACUS_THREAD_READY;
	} else {
		thread->voluntary++;
		thread->state = BPF_CORE_READ_BITFIELD(task, in_iowait) ? ABACUS_THREAD_DISK
									: ABACUS_THREAD_BLOCKED;
	}
}

static __always_inline void enter_processor(struct task_struct *task, struct abacus_thread *thread,
					    __u64 now)
{
	/* RUNNING: that it left was not seen, nor that it was woken. So it was only set aside. */
	if (thread->state == ABACUS_THREAD_RUNNING)
		thread->ready_ns += away(task, thread, now);
	else
		end_state(thread, now);
	thread->state = ABACUS_THREAD_RUNNING;
	barrier();
	thread->changes++;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempted, struct task_struct *prev, struct task_struct *next)
{
	struct abacus_thread *thread = find(prev->pid);
	__u64 now = 0;

	if (thread) {
		now = bpf_ktime_get_ns();
		leave_processor(prev, thread, preempted, now);
	}
	thread = find(next->pid);
	if (thread)
		enter_processor(next, thread, now ? now : bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	struct abacus_thread *thread = find(task->pid);

	if (!thread)
		return 0;
	if (thread->state == ABACUS_THREAD_BLOCKED || thread->state == ABACUS_THREAD_DISK) {
		end_state(thread, bpf_ktime_get_ns());
		thread->state = ABACUS_THREAD_READY;
	} else if (thread->state == ABACUS_THREAD_RUNNING && !task->on_cpu) {
		/* It has slept, and that it left its processor was not seen. (A thread that is
		 * woken before it has left never was blocked.) */
		__u64 slept = away(task, thread, bpf_ktime_get_ns());

		thread->blocked_ns += slept;
		if (BPF_CORE_READ_BITFIELD(task, in_iowait))
			thread->disk_ns += slept;
		thread->voluntary++;
		thread->state = ABACUS_THREAD_READY;
	} else {
		return 0;
	}
	/* Told here and not only when it runs: where the switch to it is not seen, it would find
	 * out much later how long it slept, and take that off what it has computed since. */
	barrier();
	thread->changes++;
	return 0;
}

static __always_inline struct abacus_io *io_of(__u64 object)
{
	struct abacus_io *sums = bpf_map_lookup_elem(&io, &object), fresh = {};

	if (sums)
		return sums;
	/* Another processor may add it at the same time: then that one stays. */
	bpf_map_update_elem(&io, &object, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&io, &object);
}

/* Submission is the one step of block I/O that is always taken by the thread that wants it; what
 * follows (merging, dispatch) may be done by anyone. So bytes are counted here, and the time where
 * the completion is seen.
 */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_submit, struct bio *bio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct abacus_thread *thread = find(task->pid);
	struct abacus_request request = {};
	struct abacus_io *sums;
	__u64 key = (__u64)bio;

	/* Inside a submission: a stacked device passes on what was counted above it. */
	if (!thread || task->bio_list || (bio->bi_opf & REQ_OP_MASK) > REQ_OP_WRITE) {
		/* Whose completion was not seen had this address: it is not completed by ours. */
		if (!task->bio_list)
			bpf_map_delete_elem(&requests, &key);
		return 0;
	}
	request.object = thread->object;
	request.queued_ns = bpf_ktime_get_ns();
	sums = io_of(request.object);
	if (!sums) {
		__sync_fetch_and_add(&lost_io, 1);
		return 0;
	}
	__sync_fetch_and_add(&sums->bytes, bio->bi_iter.bi_size);
	__sync_fetch_and_add(&sums->requests, 1);
	if (bpf_map_update_elem(&requests, &key, &request, BPF_ANY))
		__sync_fetch_and_add(&lost_io, 1);
	else
		__sync_fetch_and_add(&begun_io, 1);
	return 0;
}

static __always_inline void finish(struct bio *bio)
{
	__u64 key = (__u64)bio;
	struct abacus_request *request = bpf_map_lookup_elem(&requests, &key);
	struct abacus_io *sums;
	__u64 object;

	if (!request)
		return;
	object = request->object;
	/* The entry of an object that was forgotten meanwhile does not come back. */
	sums = bpf_map_lookup_elem(&io, &object);
	if (sums)
		__sync_fetch_and_add(&sums->time_ns, bpf_ktime_get_ns() - request->queued_ns);
	__sync_fetch_and_add(&ended_io, 1);
	bpf_map_delete_elem(&requests, &key);
}

/* A device with a queue completes requests, into which bios were merged; a part of one at a time.
 */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_request_complete, struct request *rq, int error, unsigned int bytes)
{
	struct bio *bio = rq->bio;

	for (int i = 0; bio && i < ABACUS_MERGED_MAX; i++) {
		unsigned int size = bio->bi_iter.bi_size;

		if (size > bytes)
			return 0;
		bytes -= size;
		finish(bio);
		bio = bio->bi_next;
	}
	if (bio && bytes > 0)
		__sync_fetch_and_add(&lost_io, 1);
	return 0;
}

/* One without, a stacked one, completes the bios themselves. */
SEC("tp_btf/block_bio_complete")
int BPF_PROG(on_bio_complete, struct request_queue *queue, struct bio *bio)
{
	finish(bio);
	return 0;
}

// The calling thread registers itself by running this program (BPF_PROG_RUN runs it in the caller's
// context): so its id is the kernel's, whatever pid namespace the process lives in. Its CPU time up
// to now it has written into the slot: the kernel's account is up to date where the thread asks for
// it, and here as of the last tick.
SEC("raw_tp")
int register_thread(__u64 *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u32 slot = (__u32)ctx[0];
	__u64 born_ns = bpf_get_current_task_btf()->start_time;
	struct abacus_thread *thread = bpf_map_lookup_elem(&threads, &slot);
	struct abacus_thread *same_id = find(tid);

	if (unacceptable)
		return *(volatile int *)born_ns;
	if (!thread || thread->state != ABACUS_THREAD_FREE)
		return -1;
	if (same_id) {
		if (same_id->born_ns == born_ns)
			return -1;
		/* Another thread had this id, and its exit was not seen. */
		same_id->state = ABACUS_THREAD_DEAD;
		let_go(tid);
	}
	thread->tid = tid;
	thread->born_ns = born_ns;
	thread->since_ns = bpf_ktime_get_ns();
	thread->state = ABACUS_THREAD_RUNNING;
	if (bpf_map_update_elem(&slots, &tid, &slot, BPF_ANY)) {
		thread->state = ABACUS_THREAD_FREE;
		return -2;
	}
	filter[tid % ABACUS_FILTER_BUCKETS].last_slot = slot;
	__sync_fetch_and_add(&filter[tid % ABACUS_FILTER_BUCKETS].threads, 1);
	return 0;
}

SEC("raw_tp")
int unregister_thread(__u64 *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct abacus_thread *thread = find(tid);

	if (!thread)
		return -1;
	let_go(tid);
	thread->state = ABACUS_THREAD_DEAD;
	return 0;
}
