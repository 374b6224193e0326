// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// A record with the time of arrival for each TCP segment that reaches a watched port.
//
// Attached as cgroup_skb/ingress: it runs in the receiving softirq, before TCP queues the segment,
// so that the record is there before the bytes can be read. It only looks: every packet passes.
// Nothing of the kernel's own structures is read, so one object serves all kernels from 5.8 on
// (ring buffer, links, CAP_BPF), with or without BTF. No header file is needed to build it.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define NTOHS(x) __builtin_bswap16(x) // the object is built for little endian, as its reader is
#define NTOHL(x) __builtin_bswap32(x)

// The start of the kernel's struct __sk_buff (linux/bpf.h).
struct __sk_buff { u32 len, pkt_type, mark, queue_mapping, protocol; };

// Numbers of linux/bpf.h, which never change.
static u64 (*const ktime_get_ns)(void) = (void *)5;
static long (*const skb_load_bytes)(const void *skb, u32 offset, void *to, u32 len) = (void *)26;
static u64 (*const get_netns_cookie)(void *skb) = (void *)122;
static long (*const ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
enum { MAP_TYPE_RINGBUF = 27, RB_NO_WAKEUP = 1, PASS = 1 };

enum { ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86DD };
enum { HOP_BY_HOP = 0, TCP = 6, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60 };
enum { FIN = 1, SYN = 2, RST = 4 };
enum { EXTENSIONS = 8 }; // RFC 8200 wants each at most once, destination options twice: 5

struct ip4 {
	u8 version_words, tos;
	u16 total, id, fragment;
	u8 ttl, protocol;
	u16 check;
	u32 source, target;
};
struct ip6 { u32 flow; u16 payload; u8 next, hops; u32 source[4], target[4]; };
struct extension { u8 next, units; u16 fragment; };
struct tcp { u16 source, target; u32 seq, ack; u8 words, flags; u16 window, check, urgent; };

// What user space reads: kernel/records.py has the same layout.
struct record {
	u64 time_ns;
	u32 seq, length;
	u32 peer[4], local[4];
	u16 peer_port, local_port; // these two and the addresses as on the wire
	u8 flags, zero[3];
};

// Size set from outside before load. Nobody is woken: the reader looks when it reads its sockets.
struct {
	int (*type)[MAP_TYPE_RINGBUF];
	int (*max_entries)[4096];
} ring SECTION(".maps");

// Set from outside at any time: one bit for each port. `lost` counts what found no room.
struct {
	u64 lost;
	u8 ports[65536 / 8];
} control;

// Set from outside before load. 0: the kernel cannot tell (before 6.16), watch all namespaces.
const volatile u64 netns_cookie = 0;

// Where the TCP header starts; 0: no TCP, or a fragment. `end` is where the packet does, by its own
// account, since padding may follow; an aggregate over 64 KiB has 0 there, and never padding.
INLINE u32 parse_ip4(struct __sk_buff *skb, struct record *record, u32 *end)
{
	struct ip4 ip;
	if (skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.protocol != TCP)
		return 0;
	if (NTOHS(ip.fragment) & 0x3fff) // "more", or an offset
		return 0;
	record->peer[2] = record->local[2] = NTOHL(0xffff);
	record->peer[3] = ip.source;
	record->local[3] = ip.target;
	*end = ip.total ? NTOHS(ip.total) : skb->len;
	return (ip.version_words & 15) * 4;
}

INLINE u32 parse_ip6(struct __sk_buff *skb, struct record *record, u32 *end)
{
	struct ip6 ip;
	if (skb_load_bytes(skb, 0, &ip, sizeof(ip)))
		return 0;
	__builtin_memcpy(record->peer, ip.source, sizeof(record->peer));
	__builtin_memcpy(record->local, ip.target, sizeof(record->local));
	*end = ip.payload ? sizeof(ip) + NTOHS(ip.payload) : skb->len;
	u32 offset = sizeof(ip);
	u8 next = ip.next;
	for (int i = 0; i <= EXTENSIONS; i++) {
		struct extension header;
		if (next == TCP)
			return offset;
		if (next != HOP_BY_HOP && next != ROUTING && next != DESTINATION && next != FRAGMENT)
			return 0;
		if (skb_load_bytes(skb, offset, &header, sizeof(header)))
			return 0;
		// A fragment header may stand on a whole packet: offset and "more" are 0 then.
		if (next == FRAGMENT && NTOHS(header.fragment) & 0xfff9)
			return 0;
		offset += next == FRAGMENT ? 8 : (header.units + 1) * 8;
		next = header.next;
	}
	return 0;
}

SECTION("cgroup_skb/ingress")
int segments(struct __sk_buff *skb)
{
	struct record record = {};
	struct tcp tcp;
	u32 offset = 0, end = 0;

	if (skb->protocol == NTOHS(ETH_P_IP))
		offset = parse_ip4(skb, &record, &end);
	else if (skb->protocol == NTOHS(ETH_P_IPV6))
		offset = parse_ip6(skb, &record, &end);
	if (!offset || skb_load_bytes(skb, offset, &tcp, sizeof(tcp)))
		return PASS;
	u32 port = NTOHS(tcp.target), header = (tcp.words >> 4) * 4;
	if (!(control.ports[port >> 3] & 1 << (port & 7)))
		return PASS;
	if (header < sizeof(tcp) || end > skb->len || end < offset + header)
		return PASS; // TCP drops it too
	record.length = end - offset - header;
	if (!record.length && !(tcp.flags & (FIN | SYN | RST)))
		return PASS;
	// Two namespaces may have the same addresses and ports.
	if (netns_cookie && get_netns_cookie(skb) != netns_cookie)
		return PASS;
	record.seq = NTOHL(tcp.seq);
	record.peer_port = tcp.source;
	record.local_port = tcp.target;
	record.flags = tcp.flags;
	record.time_ns = ktime_get_ns();
	if (ringbuf_output(&ring, &record, sizeof(record), RB_NO_WAKEUP))
		__sync_fetch_and_add(&control.lost, 1);
	return PASS;
}

char _license[] SECTION("license") = "Dual MIT/GPL";
