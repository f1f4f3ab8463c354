// SPDX-License-Identifier: Apache-2.0
//
// Chooses a server for a packet that no table knows: by the ring, by turns, or in place of one that cannot be used.

#pragma once

#include "frame.h"

// Values besides the numbers of servers.
enum { DROPPED = 0, IS_NEW = 1 << 16, PASSED = 1 << 17, IS_KEPT = 1 << 18 };

// Number of turns, or of stand-ins for a server, that are tried for a flow before all servers are searched, and of servers that are
// searched together. The verifier follows each loop by itself, and has too little memory for one over all turns.
#define TRIES 64

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
}

static __always_inline __u64 hash_of(const struct flow_key *flow, bool by_source, __u64 seed)
{
    const __u32 *client = flow->client.words;
    __u64 hash = mix(mix(seed, (__u64)client[0] << 32 | client[1]), (__u64)client[2] << 32 | client[3]);
    // Ports of a VIP share its ring, so its address says nothing new.
    hash = mix(hash, by_source ? 0 : (__u64)flow->client_port << 16 | flow->vip_port);
    // One multiplication alone places consecutive ports at even distances, and not at random.
    return mix(hash, seed);
}

// Whether a packet is the first of a handshake. ICMP errors have no flags.
static __always_inline bool begins(const struct packet *packet)
{
    return (packet->tcp_flags & (SYN | ACK)) == SYN;
}

// Whether a packet shows that a handshake is over.
static __always_inline bool goes_on(const struct packet *packet)
{
    return (packet->tcp_flags & (SYN | ACK | RST)) == ACK;
}

static __always_inline void count(__u32 vip, enum reason reason)
{
    struct vip_statistics *counts = bpf_map_lookup_elem(&vip_counts, &vip);
    if (counts)
        counts->reasons[reason]++;
}

static __always_inline __u32 dropped(__u32 vip, enum reason reason)
{
    count(vip, reason);
    return DROPPED;
}

// The server of this number, if it is in use and in no refused state.
static __always_inline struct server *server_at(__u32 number, __u32 refused)
{
    struct server *server = bpf_map_lookup_elem(&servers, &number);
    return server && (server->state & (IN_USE | refused)) == IN_USE ? server : NULL;
}

// The server of this number and generation: an earlier server of this number is gone.
static __always_inline struct server *server_of(__u32 number, __u32 generation, __u32 refused)
{
    struct server *server = server_at(number, refused);
    return server && server->generation == generation ? server : NULL;
}

static __always_inline struct server *recent_server(const struct recent *recent, __u32 refused)
{
    return recent ? server_of(recent->server, recent->generation, refused) : NULL;
}

static __always_inline struct recent now_to(__u32 number, const struct server *server, __u64 now_ns)
{
    return (struct recent){ .seen_ns = now_ns, .generation = server->generation, .server = number };
}

// Whether something was seen less than a time ago. The coarse clock of another processor may be ahead by a tick.
static __always_inline bool is_within(__u64 now_ns, __u64 seen_ns, __u64 time_ns)
{
    __s64 age_ns = now_ns - seen_ns;
    return age_ns < 0 || (__u64)age_ns < time_ns;
}

// Whether a new entry may be made, or an entry moved.
static __always_inline bool take_token(const struct settings *set, __u32 kind, __u64 now_ns)
{
    struct budget *budget = bpf_map_lookup_elem(&budgets, &kind);
    if (!budget)
        return false;
    __u32 all = set->inserts_per_second, most = kind == OF_MOVES ? all : all - all / 2;
    __u64 period = now_ns >> 30, before = budget->period;
    if ((__s64)(period - before) > 0 && __sync_val_compare_and_swap(&budget->period, before, period) == before)
        *(volatile __u64 *)&budget->used = 0;
    return __sync_fetch_and_add(&budget->used, 1) < most;
}

// The server of a turn; 0 if there are no turns.
static __always_inline __u32 at_turn(const struct ring *ring, __u64 turn)
{
    __u64 at = turn % ring->turns_length;
    barrier_var(at);
    return at < TURNS ? ring->turns[at] : 0;
}

// The first server of the list, from a place on, that is in no refused state, among `TRIES` servers.
__noinline __u32 first_of_some(const struct ring *ring, __u32 from, __u32 refused)
{
    for (__u32 try = 0; ring && try < TRIES && try < ring->servers_length; try++) {
        __u64 at = (from + try) % ring->servers_length;
        barrier_var(at);
        __u32 number = at < SERVERS ? ring->servers[at] : 0;
        if (server_at(number, refused))
            return number;
    }
    return 0;
}

// The same among all servers: finds a server that can be used however few turns it has.
static __always_inline __u32 first_of_all(const struct ring *ring, __u32 first, __u32 refused)
{
    for (__u32 from = 0; from < SERVERS && from < ring->servers_length; from += TRIES) {
        __u32 number = first_of_some(ring, first % ring->servers_length + from, refused);
        if (number)
            return number;
    }
    return 0;
}

// A server in place of one that cannot be used: always the same one for a flow, as long as no state changes.
static __always_inline __u32 stand_in(const struct ring *ring, __u64 hash, __u32 refused)
{
    for (__u32 try = 1; try <= TRIES; try++) {
        __u32 number = at_turn(ring, mix(hash, try) >> 32);
        if (server_at(number, refused))
            return number;
    }
    return first_of_all(ring, hash >> 32, refused);
}

// The server whose turn it is.
static __always_inline __u32 next_turn(const struct ring *ring, __u32 vip)
{
    __u64 *next = bpf_map_lookup_elem(&next_turns, &vip), turn = 0;
    for (__u32 try = 0; next && try < TRIES; try++) {
        turn = __sync_fetch_and_add(next, 1);
        __u32 number = at_turn(ring, turn);
        if (server_at(number, NO_NEW))
            return number;
    }
    return first_of_all(ring, turn, NO_NEW);
}

// The server that the schedule gives a new flow to.
static __always_inline __u32 scheduled(const struct packet *packet, const struct service *service, const struct ring *ring,
                                       __u32 present, __u64 hash, __u64 now_ns)
{
    if (!(service->flags & ROUND_ROBIN)) {
        if (server_at(present, NO_NEW))
            return present;
        return stand_in(ring, hash, NO_NEW);
    }
    if (!(service->flags & PERSISTENT))
        return next_turn(ring, service->vip);
    struct source_key key = { .client = packet->flow.client, .vip = service->vip };
    struct recent *last = bpf_map_lookup_elem(&sources, &key);
    if (last && is_within(now_ns, last->seen_ns, service->persistence_ns) && recent_server(last, NO_NEW))
        return last->server;
    return next_turn(ring, service->vip);
}

// Chooses a server for a packet that no table knows, and remembers the choice where that is needed. Remembers nothing of an ICMP
// error. Returns 0 when the packet must be dropped.
static __always_inline __u32 choose(const struct packet *packet, const struct flow_key *key, const struct service *service,
                                    const struct settings *set, __u64 now_ns)
{
    __u32 zero = 0, vip = service->vip;
    void *map = bpf_map_lookup_elem(&rings, &vip);
    struct ring *ring = map ? bpf_map_lookup_elem(map, &zero) : NULL;
    if (!ring)
        return dropped(vip, NO_SERVER);
    __u64 hash = hash_of(&packet->flow, service->flags & PERSISTENT, set->seed);
    __u32 at = (hash >> 32) * PLACES >> 32;
    // The compiler knows that it is less, the verifier does not.
    barrier_var(at);
    if (at >= PLACES)
        return 0;
    __u32 present = ring->places[at].present, former = ring->places[at].former;
    bool is_changing = former != present && is_within(now_ns, ring->changed_ns, set->handshake_ns);
    __u32 by_ring = is_changing && server_at(former, DEAD) ? former : present;
    bool is_stand_in = !server_at(by_ring, DEAD);
    if (is_stand_in)
        by_ring = stand_in(ring, hash, DEAD);

    bool is_new = begins(packet);
    __u32 number = by_ring;
    if (is_new) {
        // If no server is alive, there is no need to search again.
        number = by_ring ? scheduled(packet, service, ring, present, hash, now_ns) : 0;
        if (!number)
            return dropped(vip, by_ring && stand_in(ring, hash, DEAD | FAILING) ? ALL_FULL : NO_SERVER);
    }
    struct server *server = server_at(number, 0);
    if (!server)
        return dropped(vip, NO_SERVER);
    // A flow that is ending is not worth an entry.
    bool is_going_on = goes_on(packet) && !(packet->tcp_flags & FIN);
    // The dead server may be back before the handshake is over.
    bool must_remember = is_new && (is_stand_in || number != by_ring || service->flags & ROUND_ROBIN);
    if (!must_remember && !is_going_on)
        return number;
    if (take_token(set, is_new ? OF_SYNS : OF_ACKS, now_ns)) {
        struct recent entry = now_to(number, server, now_ns);
        bpf_map_update_elem(&pending, key, &entry, BPF_ANY);
        if (is_new && service->flags & ROUND_ROBIN && service->flags & PERSISTENT) {
            struct source_key source = { .client = packet->flow.client, .vip = vip };
            bpf_map_update_elem(&sources, &source, &entry, BPF_ANY);
        }
        return number;
    }
    if (is_new && !server_at(by_ring, NO_NEW))
        return dropped(vip, OVER_BUDGET);
    count(vip, is_new ? SYN_NOT_REMEMBERED : ACK_NOT_REMEMBERED);
    return by_ring;
}
