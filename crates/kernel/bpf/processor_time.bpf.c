// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Books each processor's time to the network namespace that it works for.
//
// Hosts of a lab share one kernel, and a packet is received in the context of whoever was running. So the time of a
// process says little about its host. These programs cut the time of each processor into slices at the moments when it
// begins to work for another namespace, and add the length of each slice to its owner's account:
//
//   sched_switch              from here on for the namespace of the next task
//   netif_receive_skb         for the namespace of the device that the packet came to
//   qdisc_dequeue             for the namespace of the device whose queue sends, which matters after a queue's timer
//   softirq_exit              for the interrupted task again
//   netif_receive_skb_exit    the same after a packet that a task handed in itself, as TUN does
//
// There are no more, because most of what booking costs is the kernel's way into a program: softirq_entry and napi_poll would
// add half of it, to book the 100 ns before a softirq's first packet to the packet's namespace.
//
// No program can interrupt another on the same processor: tasks hand packets in with softirqs off, softirqs do not nest,
// and the scheduler runs with interrupts off.

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// The parts of the kernel's types that are read here. Where they lie in the running kernel is found when the program is loaded.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
    unsigned int inum;
};
struct net {
    struct ns_common ns;
};
struct nsproxy {
    struct net *net_ns;
};
struct task_struct {
    unsigned int flags;
    int pid;
    struct nsproxy *nsproxy;
};
typedef struct {
    struct net *net;
} possible_net_t;
struct net_device {
    possible_net_t nd_net;
};
struct sk_buff {
    struct net_device *dev;
};
#pragma clang attribute pop

// include/linux/sched.h
#define PF_KTHREAD 0x00200000

// Owners that are no namespace. Inode numbers of namespaces begin at 0xF0000000 (include/linux/proc_ns.h).
enum { IDLE = 1, KERNEL = 2 };

// Accounts lie where the inode number says, because a hash table takes longer to look them up. A namespace whose place another has
// gets another one. Where none of its places is free, its time is lost, and counted as lost.
#define PLACES 4096
#define PROBES 8
// The places of a namespace are so far apart. The number is odd, so that they are not the same, and large, because the inode numbers
// of hosts are close together.
#define STEP 509
// Below are those of the owners that are no namespace.
#define FIRST_PLACE 4

// What it costs to end a slice is measured once in so many, because a second look at the clock costs as much as the rest. A
// prime number, because packets make patterns of slices.
#define SLICES_PER_SAMPLE 61

struct account {
    __u64 owner;
    __u64 task_ns;
    __u64 softirq_ns;
    __u64 slices;
};

// What a processor does: it runs a task, or it works on packets in a softirq or as if it were one.
enum { TASK = 0, SOFTIRQ = 1 };

struct slice {
    __u64 began_ns; // 0 before the first event.
    __u64 owner;    // 0 then, too.
    __u64 work;
    // Of the processor, since the begin.
    __u64 lost_ns;
    __u64 samples;
    __u64 sampled_ns;
    __u64 until_sample;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, FIRST_PLACE + PLACES);
    __type(key, __u32);
    __type(value, struct account);
} accounts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct slice);
} slices SEC(".maps");

// When booking began; 0 before it and after it. Set when all programs are attached, and set back before they are detached, so
// that none books without the others, and the accounts stand still while they are read.
volatile __u64 began_ns = 0;

static __always_inline __u32 owner_of(struct task_struct *task)
{
    if (task->pid == 0)
        return IDLE;
    if (task->flags & PF_KTHREAD)
        return KERNEL;
    // A task that ends has given its namespaces back.
    __u32 inode = task->nsproxy->net_ns->ns.inum;
    return inode ? inode : KERNEL;
}

static __always_inline __u32 owner_of_device(struct net_device *device)
{
    return device->nd_net.net->ns.inum;
}

// The slice of this processor; none while nothing is booked.
static __always_inline struct slice *current_slice(void)
{
    __u32 zero = 0;
    return began_ns ? bpf_map_lookup_elem(&slices, &zero) : NULL;
}

// The account of an owner on this processor; none if all its places are others'.
static __always_inline struct account *account_of(__u32 owner)
{
    for (__u32 probe = 0; probe < PROBES; probe++) {
        __u32 place = owner < FIRST_PLACE ? owner : FIRST_PLACE + (owner + probe * STEP) % PLACES;
        struct account *account = bpf_map_lookup_elem(&accounts, &place);
        if (!account)
            return NULL;
        if (!account->owner)
            account->owner = owner;
        if (account->owner == owner)
            return account;
    }
    return NULL;
}

// Books the slice, and begins the next one.
static __always_inline void begin(struct slice *slice, __u32 owner, __u32 work)
{
    __u64 now_ns = bpf_ktime_get_ns();
    __u64 since_ns = slice->began_ns;
    __u32 payer = slice->owner;
    if (!since_ns) {
        // Whoever runs at the first event has run since the begin.
        since_ns = began_ns;
        if (!since_ns)
            return;
        payer = owner_of(bpf_get_current_task_btf());
    }
    struct account *account = account_of(payer);
    if (!account) {
        slice->lost_ns += now_ns - since_ns;
    } else {
        account->slices++;
        if (slice->work == TASK)
            account->task_ns += now_ns - since_ns;
        else
            account->softirq_ns += now_ns - since_ns;
    }
    slice->began_ns = now_ns;
    slice->owner = owner;
    slice->work = work;
    if (slice->until_sample-- == 0) {
        slice->until_sample = SLICES_PER_SAMPLE - 1;
        slice->samples++;
        slice->sampled_ns += bpf_ktime_get_ns() - now_ns;
    }
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
    struct slice *slice = current_slice();
    if (!slice)
        return 0;
    __u32 owner = owner_of(next);
    if (slice->owner != owner || slice->work != TASK)
        begin(slice, owner, TASK);
    return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(netif_receive_skb, struct sk_buff *skb)
{
    struct slice *slice = current_slice();
    if (!slice)
        return 0;
    __u32 owner = owner_of_device(skb->dev);
    if (slice->owner != owner || slice->work != SOFTIRQ)
        begin(slice, owner, SOFTIRQ);
    return 0;
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(qdisc_dequeue, void *queue, void *device_queue, int packets, struct sk_buff *skb)
{
    struct slice *slice = current_slice();
    if (!slice || !skb)
        return 0;
    // A task sends by devices of its own namespace only. Another's is served by a softirq.
    __u32 owner = owner_of_device(skb->dev);
    if (slice->owner != owner)
        begin(slice, owner, SOFTIRQ);
    return 0;
}

// The task may have changed its namespace since it began to run.
static __always_inline void back_to_task(void)
{
    struct slice *slice = current_slice();
    if (slice && slice->work == SOFTIRQ)
        begin(slice, owner_of(bpf_get_current_task_btf()), TASK);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vector)
{
    back_to_task();
    return 0;
}

SEC("tp_btf/netif_receive_skb_exit")
int BPF_PROG(netif_receive_skb_exit, int result)
{
    back_to_task();
    return 0;
}

// Kernel types can be read only by programs that say so.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
