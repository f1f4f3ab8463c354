// SPDX-License-Identifier: Apache-2.0
//
// Balances TCP over servers of the same Ethernet segment: a frame to a VIP gets a server's MAC address, and leaves by the device
// that it came by. The server has the VIP, too, and answers the client directly (direct server return), so only what clients
// send passes here.
//
// One core, compiled twice: for cls_bpf, and with -DXDP for XDP.
//
// Where a frame goes
//   not TCP, no VIP, or another port of a VIP      passed to the balancer's own stack, with ICMP echo, UDP and ARP
//   a flow of `flows`                              to its server, also if that one is drained or full
//   a flow of `pending`                            the same; its first ACK moves it to `flows`
//   any other SYN                                  by the VIP's schedule: the ring, or the next turn
//   anything else                                  by the ring
//   a later fragment                               to the server of the first one, if that one came before
//   an ICMP error that quotes a VIP's packet       to the server of the quoted flow
//
// What is remembered
//   The ring (weighted Maglev) needs no memory as long as it does not change, so a SYN leaves no trace where only the ring decided,
//   and a flood of SYNs costs nothing. An ACK of an unknown flow leaves an entry in `pending`, the next one moves it to `flows`.
//   A SYN is remembered in `pending` if its ACK would go elsewhere, or may: under round robin, if the ring's server is full or dead, and
//   while the ring changes. For the time of a handshake after a change, ACKs of unknown flows go by the former ring, because their SYNs
//   went before the change.
//   A SYN that comes soon after its flow's end goes to the same server, also under round robin: the end may be forged.
//   New entries, except those, have a budget, and so have moves to `flows`. Beyond it, SYNs go where the ring sends their ACKs.
//
// No helper that is called here requires a licence compatible with the GPL.

#include "choose.h"

enum verdict {
    PASS,
    DROP,
    SEND,
    // Headers lie outside of the part of the frame that can be read.
    UNREADABLE,
};

// The service that a packet is for; NULL if it is for none.
static __always_inline struct service *service_of(const struct packet *packet)
{
    struct service_key key = { .address = packet->flow.vip, .port = packet->flow.vip_port };
    struct service *service = bpf_map_lookup_elem(&services, &key);
    if (!service) {
        key.port = 0;
        service = bpf_map_lookup_elem(&services, &key);
    }
    return service && !(service->flags & ADDRESS_ONLY) ? service : NULL;
}

// Drops a packet to a VIP that cannot be sent, and passes it to other addresses.
static __always_inline __u32 refuse(const struct packet *packet, enum reason reason)
{
    struct service_key key = { .address = packet->flow.vip };
    struct service *service = bpf_map_lookup_elem(&services, &key);
    return service ? dropped(service->vip, reason) : PASSED;
}

#define CLOSED_SHIFT 27
// For 1.07 s after FIN or RST, earlier data may still come, and a SYN goes to the same server.
#define CLOSED_RECENTLY 8

static __always_inline __u16 closing_at(__u64 now_ns)
{
    return CLOSING | (now_ns >> CLOSED_SHIFT & CLOSING_TIME);
}

// Whether a closing flow began to close a short time ago. The coarse clock of another processor may be ahead by a tick.
static __always_inline bool has_just_closed(const struct flow *flow, __u64 now_ns)
{
    return ((closing_at(now_ns) - flow->state + 1) & CLOSING_TIME) <= CLOSED_RECENTLY;
}

// Notes what a packet says about the end of its flow. A side that has ended a connection sends no data later, except what was lost: if
// data comes a second time, somebody else has forged the end.
static __always_inline void note_end(struct flow *flow, const struct packet *packet)
{
    if (packet->tcp_flags & (FIN | RST)) {
        if (flow->state == OPEN)
            flow->state = closing_at(bpf_ktime_get_coarse_ns());
    } else if (flow->state != OPEN && packet->length) {
        __u64 now_ns = bpf_ktime_get_coarse_ns();
        if (!has_just_closed(flow, now_ns))
            flow->state = flow->state & CLOSING_LATE_DATA ? OPEN : closing_at(now_ns) | CLOSING_LATE_DATA;
    }
}

// Finds the server of a packet of an established flow, as nearly all packets are. Returns 0 if it is another packet, or needs `find`.
static __always_inline __u32 find_established(const struct packet *packet, const struct settings *set)
{
    if (packet->tcp_flags & SYN)
        return 0;
    struct flow *flow = bpf_map_lookup_elem(&flows, &packet->flow);
    if (!flow || !server_of(flow->server, flow->generation, DEAD))
        return 0;
    note_end(flow, packet);
    // Without a write, the entry stays in the caches of other processors.
    if (flow->sweep != set->sweep)
        flow->sweep = set->sweep;
    return flow->server;
}

// Moves a flow whose handshake is over, to be remembered for as long as it goes on.
static __always_inline void establish(const struct packet *packet, const struct flow_key *key, const struct recent *begun, __u32 vip,
                                      const struct settings *set, __u64 now_ns)
{
    // The flow stays in `pending`, and a later ACK may move it.
    if (!take_token(set, OF_MOVES, now_ns))
        return count(vip, ACK_NOT_REMEMBERED);
    __u32 number = begun->server;
    struct flow entry = {
        .generation = begun->generation,
        .server = number,
        .state = packet->tcp_flags & FIN ? closing_at(now_ns) : OPEN,
        .sweep = set->sweep,
    };
    bpf_map_update_elem(&flows, key, &entry, BPF_ANY);
    bpf_map_delete_elem(&pending, key);
    struct server_statistics *counts = bpf_map_lookup_elem(&server_counts, &number);
    if (counts)
        counts->established++;
}

// Finds the server of any TCP packet, or of one that an error quotes. Returns the server's number, with IS_NEW if a flow begins, and with
// IS_KEPT if no schedule chose the server; or DROPPED or PASSED.
// A function that is not static is verified once, whatever was read before.
__noinline __u32 find(const struct packet *packet)
{
    __u32 zero = 0;
    struct settings *set = bpf_map_lookup_elem(&settings, &zero);
    if (!packet || !set)
        return PASSED;
    bool is_new = begins(packet);
    // Linux 6.1 accepts a key on this function's own stack, but not behind a pointer from another function.
    struct flow_key key = packet->flow;
    __u64 now_ns = bpf_ktime_get_coarse_ns();
    __u32 again = 0;
    struct flow *flow = bpf_map_lookup_elem(&flows, &key);
    if (flow) {
        __u32 number = flow->server;
        struct server *server = server_of(number, flow->generation, 0);
        bool lives = server && !(server->state & DEAD);
        // A SYN within a connection goes to its server, which knows what to say. After its end, the SYN begins a new one.
        if (lives && !(is_new && flow->state != OPEN))
            return number;
        // Both the end and the SYN may be forged: if the connection goes on, its server still has it.
        if (is_new && lives && has_just_closed(flow, now_ns))
            again = number;
        if (is_new)
            bpf_map_delete_elem(&flows, &key);
        else if (server && server->state & HELD)
            return dropped(server->vip, WAITS);
    }

    struct recent *begun = bpf_map_lookup_elem(&pending, &key);
    bool is_late = begun && is_new && !is_within(now_ns, begun->seen_ns, set->handshake_ns);
    struct server *server = recent_server(begun, 0);
    if (server && server->state & HELD && !is_new)
        return dropped(server->vip, WAITS);
    if (server && !(server->state & DEAD) && begun && !is_late) {
        __u32 number = begun->server;
        if (goes_on(packet))
            establish(packet, &key, begun, server->vip, set, now_ns);
        else if (is_new)
            begun->seen_ns = now_ns;
        return number;
    }
    if (begun && is_new)
        bpf_map_delete_elem(&pending, &key);

    struct service *service = service_of(packet);
    if (!service)
        return PASSED;
    // Persistence chooses the same server anyway.
    server = again && !(service->flags & PERSISTENT) ? server_at(again, NO_NEW) : NULL;
    if (server) {
        struct recent entry = now_to(again, server, now_ns);
        bpf_map_update_elem(&pending, &key, &entry, BPF_ANY);
        return again | IS_NEW | IS_KEPT;
    }
    __u32 number = choose(packet, &key, service, set, now_ns);
    if (number && is_new)
        return number | IS_NEW;
    // The flow has another server now, and must not count as a connection of its former one if that comes back.
    flow = number ? bpf_map_lookup_elem(&flows, &key) : NULL;
    if (flow && flow->server != number)
        flow->state = closing_at(now_ns);
    return number;
}

// Fragments have functions of their own, so that frames of whole packets need less of the stack, of which Linux 6.1 has little.
static __noinline __u32 find_of_fragment(const struct packet *packet)
{
    struct fragment_key key = { packet->flow.client, packet->flow.vip, packet->identification, packet->fragmented };
    struct recent *first = bpf_map_lookup_elem(&fragments, &key);
    if (first && recent_server(first, DEAD))
        return first->server;
    // The balancer's own network stack waits for the rest of an ICMP echo.
    return packet->protocol == IPPROTO_TCP ? refuse(packet, NO_FIRST_FRAGMENT) : PASSED;
}

static __noinline void remember_fragment(const struct packet *packet, __u32 number, const struct server *server)
{
    struct fragment_key key = { packet->flow.client, packet->flow.vip, packet->identification, packet->fragmented };
    struct recent entry = now_to(number, server, bpf_ktime_get_coarse_ns());
    bpf_map_update_elem(&fragments, &key, &entry, BPF_ANY);
}

// Decides what is done with a frame. A frame that is sent has its new addresses.
static __always_inline enum verdict balance(context *context, bool is_pulled)
{
    __u32 zero = 0, whole = frame_length(context), offset = sizeof(struct ethernet);
    struct ethernet *ethernet = header_at(context, 0);
    struct settings *set = bpf_map_lookup_elem(&settings, &zero);
    if (!set || (void *)(ethernet + 1) > end_of(context) || !is_same_mac(ethernet->destination, set->mac))
        return PASS;
    bool is_all = is_pulled || end_of(context) - (void *)ethernet >= whole;

    __be16 type = ethernet->type;
    for (int i = 0; i < VLAN_TAGS && (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)); i++) {
        struct vlan_tag *tag = header_at(context, offset);
        if ((void *)(tag + 1) > end_of(context))
            return is_all ? count(0, MALFORMED), PASS : UNREADABLE;
        type = tag->type;
        offset += sizeof(*tag);
    }
    if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6))
        return PASS;

    struct packet packet = {};
    offset = read_ip(context, offset, whole - offset, type, false, &packet);
    if (!offset)
        return is_all ? count(0, MALFORMED), PASS : UNREADABLE;

    __u32 found;
    if (packet.fragment == LATER_FRAGMENT) {
        found = find_of_fragment(&packet);
    } else if (packet.protocol == IPPROTO_TCP) {
        if (read_tcp(context, offset, false, &packet))
            found = find_established(&packet, set) ?: find(&packet);
        else if (is_all)
            found = refuse(&packet, MALFORMED);
        else
            return UNREADABLE;
    } else if (read_error(context, offset, type, &packet)) {
        found = find(&packet);
    } else {
        return is_all ? PASS : UNREADABLE;
    }
    if (found == DROPPED)
        return DROP;

    __u32 number = found & 0xffff;
    struct server *server = server_at(number, 0);
    struct server_statistics *counts = bpf_map_lookup_elem(&server_counts, &number);
    // Number 0, which comes with PASSED, is no server's.
    if (!server || !counts)
        return PASS;
    counts->packets++;
    counts->bytes += whole;
    if (found & IS_NEW) {
        counts->flows++;
        if (found & IS_KEPT)
            counts->kept++;
    }
    if (packet.fragment == FIRST_FRAGMENT)
        remember_fragment(&packet, number, server);
    ethernet->destination = server->mac;
    ethernet->source = set->mac;
    return SEND;
}

#ifdef XDP
SEC("xdp.frags")
int l2dsr(struct xdp_md *context)
{
    switch (balance(context, true)) {
    case SEND:
        return XDP_TX;
    case DROP:
        return XDP_DROP;
    default:
        return XDP_PASS;
    }
}
#else
#include <linux/pkt_cls.h>

// The same again, with all headers in reach. Not part of the usual path.
static __noinline enum verdict balance_pulled(struct __sk_buff *context)
{
    bpf_skb_pull_data(context, context->len < MAX_HEADERS ? context->len : MAX_HEADERS);
    return balance(context, true);
}

SEC("classifier")
int l2dsr(struct __sk_buff *context)
{
    enum verdict verdict = balance(context, false);
    if (verdict == UNREADABLE)
        verdict = balance_pulled(context);
    switch (verdict) {
    case SEND:
        return bpf_redirect(context->ifindex, 0);
    case DROP:
        return TC_ACT_SHOT;
    default:
        // Other programs of the device may want the frame.
        return TC_ACT_UNSPEC;
    }
}
#endif

char LICENSE[] SEC("license") = "Apache-2.0";
