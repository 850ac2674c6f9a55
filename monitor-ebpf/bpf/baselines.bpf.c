// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// What the benchmark measures the monitor against: a probe at each call and each return, which is
// how a function is usually timed from outside; and a program at context switches that does
// nothing, which shows what the kernel's own timing of a program costs.

#include "monitor-ebpf/bpf/kernel_types.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 entered_ns;
__u64 inside_ns;

SEC("tp_btf/sched_switch")
int do_nothing(void *context)
{
	return 0;
}

SEC("uprobe")
int on_call(void *registers)
{
	entered_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("uretprobe")
int on_return(void *registers)
{
	inside_ns += bpf_ktime_get_ns() - entered_ns;
	return 0;
}
