// SPDX-License-Identifier: Apache-2.0
//
// The maps of the balancer: what user space writes, what the program remembers, and what it counts. `src/layout.rs` has the
// same for user space. The program knows nothing but what is in the maps, so it can be replaced while they stay.

#pragma once

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

// Places of a ring: the prime of the Maglev paper's small table, and Katran's.
#define PLACES 65537
// Longest cycle of turns of round robin, and the servers that stand in for others.
#define TURNS 4096
// Numbers of VIPs and of servers are below these; number 0 means none.
#define VIPS 1024
#define SERVERS 8192

// Read and written in two steps, because byte by byte takes longer.
struct mac {
    __u32 begin;
    __u16 end;
} __attribute__((packed));

// IPv4 addresses are written as ::ffff:a.b.c.d.
struct address {
    __u32 words[4];
};

struct settings {
    // Frames to other MAC addresses are not ours: a bridge floods them to everybody, even those that we have sent ourselves.
    struct mac mac;
    __u16 zero;
    // In 2^30 ns, about a second: new entries of `pending`, which must not fill faster than handshakes end, and moves from it to `flows`.
    __u32 inserts_per_second;
    // Number of the sweep of `flows` that user space makes next. Flows are marked with it, because a look at the clock would take a
    // fifth of what such a packet costs.
    __u32 sweep;
    // How long a handshake may take: after a change of a ring, its SYN may have gone by the former one.
    __u64 handshake_ns;
    __u64 seed;
};

// A port of a VIP. Port 0 is all ports that have no entry of their own.
struct service_key {
    struct address address;
    __be16 port;
    __u16 zero;
};

enum {
    // Only says that the address is a VIP's: the entry of port 0, if the VIP has only some ports.
    ADDRESS_ONLY = 1,
    ROUND_ROBIN = 2,
    // A source address goes to one server: by its hash, or for `persistence_ns` after its last new connection.
    PERSISTENT = 4,
};

struct service {
    __u32 vip;
    __u32 flags;
    __u64 persistence_ns;
};

enum {
    IN_USE = 1,
    // Gets nothing.
    DEAD = 2,
    // Gets no new flow, because it has reached a threshold, or because it is being drained.
    FULL = 4,
    DRAINING = 8,
    // Dead, but its flows wait for it.
    HELD = 16,
    // Gets no new flow, because its checks fail. It answers, so its flows may go on.
    FAILING = 32,
    NO_NEW = DEAD | FULL | DRAINING | FAILING,
};

// A server of one VIP. While it is in use, only its state changes: a value is written byte by byte.
struct server {
    struct mac mac;
    __u8 state;
    __u8 zero;
    // Distinguishes its flows from those of a server that had the same number before.
    __u32 generation;
    __u32 vip;
};

// Which server a place has, and had before the last change.
struct place {
    __u16 present;
    __u16 former;
};

struct ring {
    // By the monotonic clock.
    __u64 changed_ns;
    // How many of the turns, and of the servers, are used.
    __u16 turns_length;
    __u16 servers_length;
    // Smooth weighted round robin.
    __u16 turns[TURNS];
    // The servers of the turns, each once: if the turns that are tried find no server, all of these are searched.
    __u16 servers[SERVERS];
    struct place places[PLACES];
};

struct flow_key {
    struct address client;
    struct address vip;
    __be16 client_port;
    __be16 vip_port;
};

enum {
    OPEN = 0,
    // The client, or somebody who knows its port, has sent FIN or RST.
    CLOSING = 1 << 15,
    // Data came later.
    CLOSING_LATE_DATA = 1 << 14,
    // When either happened, in units of `1 << CLOSED_SHIFT` ns.
    CLOSING_TIME = CLOSING_LATE_DATA - 1,
};

struct flow {
    __u32 generation;
    __u16 server;
    __u16 state;
    // The last sweep before which the flow sent anything.
    __u32 sweep;
};

// What is remembered for a time that the program itself checks, by the coarse monotonic clock.
struct recent {
    __u64 seen_ns;
    __u32 generation;
    __u32 server;
};

struct fragment_key {
    struct address source;
    struct address destination;
    __u32 identification;
    __u32 protocol;
};

struct source_key {
    struct address client;
    __u32 vip;
};

struct server_statistics {
    __u64 packets;
    __u64 bytes;
    // SYNs that were given to the server, except those that were recognised as repetitions.
    __u64 flows;
    // Flows that went on after the handshake.
    __u64 established;
    // Those of `flows` whose port had another flow a moment before, and that went to the server of that flow.
    __u64 kept;
};

// Why frames were not sent, and what was done without memory.
enum reason {
    // Dropped: a header is cut off, too short or too long. Of VIP 0: passed, because no VIP could be read.
    MALFORMED,
    // Dropped: the VIP has no server that is alive or, for a SYN, none whose checks succeed.
    NO_SERVER,
    // Dropped: all servers whose checks succeed have reached their thresholds, or are drained.
    ALL_FULL,
    // Dropped: the flow waits for a dead server.
    WAITS,
    // Dropped: a later fragment of TCP came without the first one, or before it.
    NO_FIRST_FRAGMENT,
    // Dropped: a SYN, because the budget of new entries was used up, and its ACK would go by the ring to a server that gets no new flow.
    OVER_BUDGET,
    // Sent by the ring alone, because the budget of new entries was used up.
    SYN_NOT_REMEMBERED,
    // The same; or sent by an entry that stays where it is, because the budget of moves was used up.
    ACK_NOT_REMEMBERED,
    REASONS,
};

struct vip_statistics {
    __u64 reasons[REASONS];
};

// What has a budget of its own, so that a flood of one kind leaves the others theirs.
enum {
    // Entries that a SYN began: half of the new ones.
    OF_SYNS,
    // Entries that an ACK began: the other half.
    OF_ACKS,
    // Moves to `flows`.
    OF_MOVES,
    BUDGETS,
};

struct budget {
    __u64 period;
    __u64 used;
};

#define MAP(name, kind, entries, key_type, value_type) \
    struct {                                           \
        __uint(type, BPF_MAP_TYPE_##kind);             \
        __uint(max_entries, entries);                  \
        __type(key, key_type);                         \
        __type(value, value_type);                     \
    } name SEC(".maps")

MAP(settings, ARRAY, 1, __u32, struct settings);
MAP(services, HASH, 16384, struct service_key, struct service);
MAP(servers, ARRAY, SERVERS, __u32, struct server);
MAP(server_counts, PERCPU_ARRAY, SERVERS, __u32, struct server_statistics);
MAP(vip_counts, PERCPU_ARRAY, VIPS, __u32, struct vip_statistics);
MAP(next_turns, ARRAY, VIPS, __u32, __u64);
MAP(budgets, ARRAY, BUDGETS, __u32, struct budget);

// One ring for each VIP. A change puts another map in its place, so that all of it changes at once.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, VIPS);
    __type(key, __u32);
    __array(values, struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        // Of types that are named only here, the object file would have nothing but the name.
        __uint(key_size, sizeof(__u32));
        __uint(value_size, sizeof(struct ring));
    });
} rings SEC(".maps");

// Tables that all processors share, because devices such as veth move flows between processors. User space sets their sizes.
// A flood of SYNs fills `pending` at most. ACKs that are sent twice cannot be told from connections, so a flood of them reaches `flows`,
// too, where it replaces the flows that were quiet for longest. No flood is faster than the budgets allow.
MAP(flows, LRU_HASH, 262144, struct flow_key, struct flow);
MAP(pending, LRU_HASH, 65536, struct flow_key, struct recent);
MAP(sources, LRU_HASH, 65536, struct source_key, struct recent);
MAP(fragments, LRU_HASH, 16384, struct fragment_key, struct recent);
