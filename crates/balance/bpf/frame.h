// SPDX-License-Identifier: Apache-2.0
//
// Reads frames up to the ports and flags of TCP. Checks what it reads against the lengths in the headers, because a short
// frame is padded.

#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>

#include "layout.h"

#ifdef XDP
typedef struct xdp_md context;
#define frame_length bpf_xdp_get_buff_len
#define load_bytes bpf_xdp_load_bytes
#else
typedef struct __sk_buff context;
#define frame_length(context) (context)->len
#define load_bytes bpf_skb_load_bytes
#endif

#define VLAN_TAGS 2
// Maximum number of IPv6 extension headers in a packet. Packets with more are passed.
#define EXTENSION_HEADERS 6

// From linux/icmp.h, which needs headers of the C library.
enum { ICMP_DEST_UNREACH = 3, ICMP_TIME_EXCEEDED = 11, ICMP_PARAMETERPROB = 12 };
enum { ICMPV6_DEST_UNREACH = 1, ICMPV6_PARAMPROB = 4 };
#define ICMP_HEADER 8

// All headers must lie within this many bytes of a frame.
#define MAX_HEADERS 512

enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

enum { WHOLE = 0, FIRST_FRAGMENT, LATER_FRAGMENT };

struct packet {
    // The sender and the receiver; of an ICMP error, those of the quoted packet, reversed.
    struct flow_key flow;
    __u32 identification;
    // The protocol that the fragment header names; if extension headers follow it, that is not `protocol`.
    __u32 fragmented;
    __u32 protocol;
    __u32 fragment;
    // Number of bytes after the IP headers; once TCP's header is read, after that.
    __u32 length;
    __u32 tcp_flags;
};

struct ethernet {
    struct mac destination;
    struct mac source;
    __be16 type;
};

struct vlan_tag {
    __be16 identifier;
    __be16 type;
};

// An extension header of IPv6. Only those of fragments have the last two fields.
struct extension {
    __u8 next;
    __u8 size;
    __be16 offset;
    __be32 identification;
};

static __always_inline struct address mapped(__be32 address)
{
    return (struct address){ { 0, 0, bpf_htonl(0xffff), address } };
}

static __always_inline bool is_same_mac(struct mac one, struct mac other)
{
    return one.begin == other.begin && one.end == other.end;
}

static __always_inline bool is_same_address(const struct address *one, const struct address *other)
{
    return one->words[0] == other->words[0] && one->words[1] == other->words[1] &&
           one->words[2] == other->words[2] && one->words[3] == other->words[3];
}

// A header at an offset, which is less than `MAX_HEADERS`. The verifier must see that, too.
static __always_inline void *header_at(const context *context, __u32 offset)
{
    barrier_var(offset);
    return (void *)(long)context->data + (offset & (MAX_HEADERS - 1));
}

static __always_inline void *end_of(const context *context)
{
    return (void *)(long)context->data_end;
}

// Reads the header of IPv4 at an offset of the frame, with `left` bytes from there, and returns the offset of its end; 0 if it is
// malformed or not all there. The quoted packet of an ICMP error is cut off, so its length says nothing.
static __always_inline __u32 read_ipv4(context *context, __u32 offset, __u32 left, bool is_quoted, struct packet *packet)
{
    struct iphdr *header = header_at(context, offset);
    if ((void *)(header + 1) > end_of(context) || header->version != 4 || header->ihl < 5)
        return 0;
    __u32 size = header->ihl * 4;
    // A packet that the kernel made of many segments may be too long for the field.
    __u32 total = is_quoted || !header->tot_len ? left : bpf_ntohs(header->tot_len);
    if (total < size || total > left)
        return 0;
    packet->flow.client = mapped(header->saddr);
    packet->flow.vip = mapped(header->daddr);
    packet->protocol = packet->fragmented = header->protocol;
    packet->length = total - size;
    __u32 fragment = bpf_ntohs(header->frag_off);
    if (fragment & 0x3fff) {
        packet->identification = header->id;
        packet->fragment = fragment & 0x1fff ? LATER_FRAGMENT : FIRST_FRAGMENT;
    }
    return offset + size;
}

// Reads the extension headers of IPv6 at an offset of the frame, and returns the offset of their end; 0 if they are malformed or
// not all there. Not inlined, because the verifier would then follow all the rest of the program for every sequence of headers.
__noinline __u32 read_extensions(context *context, __u32 offset, struct packet *packet)
{
    if (!packet)
        return 0;
    __u32 next = packet->protocol, length = packet->length;
    for (int i = 0; i < EXTENSION_HEADERS; i++) {
        __u32 size = 0;
        struct extension extension;
        if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS && next != IPPROTO_AH &&
            next != IPPROTO_FRAGMENT)
            break;
        if (load_bytes(context, offset, &extension, sizeof(extension)))
            return 0;
        if (next == IPPROTO_FRAGMENT) {
            size = sizeof(extension);
            __u32 at = bpf_ntohs(extension.offset);
            packet->fragmented = extension.next;
            packet->identification = extension.identification;
            // A packet of one fragment is whole.
            packet->fragment = at & 0xfff8 ? LATER_FRAGMENT : at & 1 ? FIRST_FRAGMENT : WHOLE;
        } else {
            size = next == IPPROTO_AH ? (extension.size + 2) * 4 : (extension.size + 1) * 8;
        }
        if (size > length)
            return 0;
        length -= size;
        offset += size;
        next = extension.next;
        if (packet->fragment == LATER_FRAGMENT)
            break;
    }
    packet->protocol = next;
    packet->length = length;
    return offset < MAX_HEADERS ? offset : 0;
}

// The same as `read_ipv4` of IPv6, with its extension headers.
static __always_inline __u32 read_ipv6(context *context, __u32 offset, __u32 left, bool is_quoted, struct packet *packet)
{
    struct ipv6hdr *header = header_at(context, offset);
    if ((void *)(header + 1) > end_of(context) || header->version != 6 || left < sizeof(*header))
        return 0;
    __u32 length = bpf_ntohs(header->payload_len);
    left -= sizeof(*header);
    // A jumbogram, which the kernel makes of many segments, has its length in an option.
    if (is_quoted || (!length && header->nexthdr == IPPROTO_HOPOPTS))
        length = left;
    if (length > left)
        return 0;
    __builtin_memcpy(&packet->flow.client, &header->saddr, sizeof(struct address));
    __builtin_memcpy(&packet->flow.vip, &header->daddr, sizeof(struct address));
    packet->protocol = header->nexthdr;
    packet->length = length;
    offset += sizeof(*header);
    if (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_ICMPV6)
        return offset;
    return read_extensions(context, offset, packet);
}

static __always_inline __u32 read_ip(context *context, __u32 offset, __u32 left, __be16 type, bool is_quoted, struct packet *packet)
{
    if (type == bpf_htons(ETH_P_IP))
        return read_ipv4(context, offset, left, is_quoted, packet);
    return read_ipv6(context, offset, left, is_quoted, packet);
}

// Reads ports, and flags unless only ports are quoted.
static __always_inline bool read_tcp(context *context, __u32 offset, bool is_quoted, struct packet *packet)
{
    // At least eight bytes are quoted.
    __u32 size = is_quoted ? 8 : sizeof(struct tcphdr);
    struct tcphdr *header = header_at(context, offset);
    if ((void *)header + size > end_of(context) || packet->length < size)
        return false;
    if (!is_quoted) {
        if (header->doff < 5 || header->doff * 4 > packet->length)
            return false;
        packet->tcp_flags = ((__u8 *)header)[13];
        packet->length -= header->doff * 4;
        // No connection begins like this.
        if (packet->tcp_flags & SYN && packet->tcp_flags & (FIN | RST))
            return false;
    }
    packet->flow.client_port = header->source;
    packet->flow.vip_port = header->dest;
    return true;
}

// Reads the packet that an ICMP error quotes, and reverses its direction, because the VIP sent it to a client. False if there is no
// such error or no such packet.
__noinline bool read_error(context *context, __u32 offset, __u32 type, struct packet *packet)
{
    __u8 *message = header_at(context, offset);
    if (!packet || message + 1 > (__u8 *)end_of(context) || packet->length < ICMP_HEADER)
        return false;
    if (type == bpf_htons(ETH_P_IP)) {
        if (packet->protocol != IPPROTO_ICMP || (*message != ICMP_DEST_UNREACH && *message != ICMP_TIME_EXCEEDED &&
                                                 *message != ICMP_PARAMETERPROB))
            return false;
    } else if (packet->protocol != IPPROTO_ICMPV6 || *message < ICMPV6_DEST_UNREACH || *message > ICMPV6_PARAMPROB) {
        return false;
    }
    // What quoted headers say about fragments does not concern the packet that came.
    struct packet quoted = {};
    offset = read_ip(context, offset + ICMP_HEADER, packet->length - ICMP_HEADER, type, true, &quoted);
    if (!offset || quoted.protocol != IPPROTO_TCP || quoted.fragment == LATER_FRAGMENT ||
        !is_same_address(&quoted.flow.client, &packet->flow.vip) || !read_tcp(context, offset, true, &quoted))
        return false;
    packet->flow.client = quoted.flow.vip;
    packet->flow.client_port = quoted.flow.vip_port;
    packet->flow.vip_port = quoted.flow.client_port;
    return true;
}
