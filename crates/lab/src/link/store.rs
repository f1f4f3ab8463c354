//! Where packets lie while they are under way: in chunks of memory that are filled from the start and
//! used again, the warmest first, when nothing in them is under way any more.

use super::packet::{Layout, MOST_BYTES};

/// Bytes of a chunk: several of the largest packets, so that little is left unused at its end.
const CHUNK_BYTES: usize = 1 << 20;

/// A packet in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(u32);

/// Packets under way, each kept for as long as somebody has a share in it.
#[derive(Debug)]
pub struct Store {
    chunks: Vec<Chunk>,
    spare_chunks: Vec<u32>,
    filling: u32,
    packets: Vec<Packet>,
    spare_packets: Vec<u32>,
    most_chunks: usize,
}

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    filled: usize,
    packets: u32,
}

#[derive(Debug)]
struct Packet {
    chunk: u32,
    start: u32,
    end: u32,
    shares: u32,
    layout: Layout,
}

impl Store {
    /// Takes memory as it is needed, never more than `most_bytes` (rounded up to a chunk).
    pub fn new(most_bytes: usize) -> Self {
        let mut store = Self {
            chunks: Vec::new(),
            spare_chunks: Vec::new(),
            filling: 0,
            packets: Vec::new(),
            spare_packets: Vec::new(),
            most_chunks: most_bytes.div_ceil(CHUNK_BYTES).max(1),
        };
        store.grow();
        store.filling = store.spare_chunks.pop().unwrap_or_default();
        store
    }

    /// Room for the next packet; none when all memory is in use.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        let chunk = &self.chunks[self.filling as usize];
        if chunk.bytes.len() - chunk.filled < MOST_BYTES {
            if chunk.packets == 0 {
                self.chunks[self.filling as usize].filled = 0;
            } else {
                if self.spare_chunks.is_empty() {
                    self.grow();
                }
                self.filling = self.spare_chunks.pop()?;
            }
        }
        let chunk = &mut self.chunks[self.filling as usize];
        Some(&mut chunk.bytes[chunk.filled..chunk.filled + MOST_BYTES])
    }

    /// Keeps the packet of `bytes` bytes that was written to [`Store::room`], with one share.
    pub fn keep(&mut self, bytes: usize, layout: Layout) -> PacketId {
        let chunk = &mut self.chunks[self.filling as usize];
        let start = chunk.filled;
        // The kernel reads and writes headers faster when they are aligned.
        chunk.filled += bytes.next_multiple_of(64).min(MOST_BYTES);
        chunk.packets += 1;
        let packet = Packet {
            chunk: self.filling,
            start: start as u32,
            end: (start + bytes) as u32,
            shares: 1,
            layout,
        };
        let index = match self.spare_packets.pop() {
            Some(index) => {
                self.packets[index as usize] = packet;
                index
            }
            None => {
                self.packets.push(packet);
                (self.packets.len() - 1) as u32
            }
        };
        PacketId(index)
    }

    /// What a packet consists of.
    pub fn layout(&self, id: PacketId) -> Layout {
        self.packets[id.0 as usize].layout
    }

    /// A packet's bytes.
    pub fn bytes(&self, id: PacketId) -> &[u8] {
        let packet = &self.packets[id.0 as usize];
        &self.chunks[packet.chunk as usize].bytes[packet.start as usize..packet.end as usize]
    }

    /// One share more.
    pub fn share(&mut self, id: PacketId) {
        self.packets[id.0 as usize].shares += 1;
    }

    /// One share less; the packet is gone with the last.
    pub fn release(&mut self, id: PacketId) {
        let packet = &mut self.packets[id.0 as usize];
        packet.shares -= 1;
        if packet.shares > 0 {
            return;
        }
        let index = packet.chunk;
        self.spare_packets.push(id.0);
        let chunk = &mut self.chunks[index as usize];
        chunk.packets -= 1;
        if chunk.packets == 0 {
            chunk.filled = 0;
            if index != self.filling {
                self.spare_chunks.push(index);
            }
        }
    }

    /// Packets under way.
    pub fn packets(&self) -> usize {
        self.packets.len() - self.spare_packets.len()
    }

    fn grow(&mut self) {
        if self.chunks.len() < self.most_chunks {
            self.spare_chunks.push(self.chunks.len() as u32);
            let bytes = vec![0; CHUNK_BYTES].into_boxed_slice();
            self.chunks.push(Chunk { bytes, filled: 0, packets: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &mut Store, bytes: usize, fill: u8) -> Option<PacketId> {
        store.room()?[..bytes].fill(fill);
        Some(store.keep(bytes, Layout::single(bytes as u32)))
    }

    #[test]
    fn packets_keep_their_bytes_until_the_last_share_is_gone() {
        let mut store = Store::new(64 << 20);
        let packets: Vec<_> = (0..200).map(|i| (i, put(&mut store, 40_000, i).unwrap())).collect();
        for (i, id) in &packets {
            assert!(store.bytes(*id).iter().all(|byte| byte == i) && store.bytes(*id).len() == 40_000);
        }
        let (_, first) = packets[0];
        store.share(first);
        packets.iter().for_each(|(_, id)| store.release(*id));
        assert_eq!((store.packets(), store.bytes(first)[0]), (1, 0));
        store.release(first);
        assert_eq!(store.packets(), 0);
    }

    #[test]
    fn memory_is_used_again_and_bounded() {
        let mut store = Store::new(2 * CHUNK_BYTES);
        let mut kept = Vec::new();
        while let Some(id) = put(&mut store, 60_000, 1) {
            kept.push(id);
        }
        assert!((30..40).contains(&kept.len()), "{}", kept.len());
        kept.drain(..).for_each(|id| store.release(id));
        for _ in 0..10_000 {
            let id = put(&mut store, 60_000, 2).unwrap();
            store.release(id);
        }
        assert_eq!(store.chunks.len(), 2);
    }
}
