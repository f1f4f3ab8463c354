//! Memory of the packets in a link. A chunk is filled from its start and reused when it holds no packets. The chunk
//! freed last is reused first, because the cache most likely still contains it.

use super::packet::{Layout, MAX_PACKET_BYTES};

/// Bytes of a chunk: many times the largest packet, so that little space at its end stays unused.
const CHUNK_BYTES: usize = 1 << 20;

/// Identifier of a packet in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketId(u32);

/// A store of reference-counted packets.
#[derive(Debug)]
pub(super) struct Store {
    chunks: Vec<Chunk>,
    free_chunks: Vec<u32>,
    filling: u32,
    packets: Vec<Packet>,
    free_packets: Vec<u32>,
    max_chunks: usize,
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
    references: u32,
    layout: Layout,
}

impl Store {
    /// Creates a store that allocates chunks as needed, up to `max_bytes` rounded up to a chunk.
    pub(super) fn new(max_bytes: usize) -> Self {
        let mut store = Self {
            chunks: Vec::new(),
            free_chunks: Vec::new(),
            filling: 0,
            packets: Vec::new(),
            free_packets: Vec::new(),
            max_chunks: max_bytes.div_ceil(CHUNK_BYTES).max(1),
        };
        store.grow();
        store.filling = store.free_chunks.pop().unwrap_or_default();
        store
    }

    /// Buffer for the next packet; none when all memory is in use.
    pub(super) fn next_buffer(&mut self) -> Option<&mut [u8]> {
        let chunk = &self.chunks[self.filling as usize];
        if chunk.bytes.len() - chunk.filled < MAX_PACKET_BYTES {
            if chunk.packets == 0 {
                self.chunks[self.filling as usize].filled = 0;
            } else {
                if self.free_chunks.is_empty() {
                    self.grow();
                }
                self.filling = self.free_chunks.pop()?;
            }
        }
        let chunk = &mut self.chunks[self.filling as usize];
        Some(&mut chunk.bytes[chunk.filled..chunk.filled + MAX_PACKET_BYTES])
    }

    /// Stores the packet, which occupies the first `bytes` bytes of [`Store::next_buffer`], with one reference.
    pub(super) fn commit(&mut self, bytes: usize, layout: Layout) -> PacketId {
        let chunk = &mut self.chunks[self.filling as usize];
        let start = chunk.filled;
        // Headers are aligned to 64 bytes, because the kernel reads and writes them faster then.
        chunk.filled += bytes.next_multiple_of(64).min(MAX_PACKET_BYTES);
        chunk.packets += 1;
        let packet = Packet {
            chunk: self.filling,
            start: start as u32,
            end: (start + bytes) as u32,
            references: 1,
            layout,
        };
        let index = match self.free_packets.pop() {
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

    pub(super) fn layout(&self, id: PacketId) -> Layout {
        self.packets[id.0 as usize].layout
    }

    pub(super) fn bytes(&self, id: PacketId) -> &[u8] {
        let packet = &self.packets[id.0 as usize];
        &self.chunks[packet.chunk as usize].bytes[packet.start as usize..packet.end as usize]
    }

    pub(super) fn retain(&mut self, id: PacketId) {
        self.packets[id.0 as usize].references += 1;
    }

    /// Removes a reference to a packet. With the last reference, the packet is removed.
    pub(super) fn release(&mut self, id: PacketId) {
        let packet = &mut self.packets[id.0 as usize];
        packet.references -= 1;
        if packet.references > 0 {
            return;
        }
        let index = packet.chunk;
        self.free_packets.push(id.0);
        let chunk = &mut self.chunks[index as usize];
        chunk.packets -= 1;
        if chunk.packets == 0 {
            chunk.filled = 0;
            if index != self.filling {
                self.free_chunks.push(index);
            }
        }
    }

    /// Number of stored packets.
    #[cfg(test)]
    pub(super) fn packets(&self) -> usize {
        self.packets.len() - self.free_packets.len()
    }

    fn grow(&mut self) {
        if self.chunks.len() < self.max_chunks {
            self.free_chunks.push(self.chunks.len() as u32);
            let bytes = vec![0; CHUNK_BYTES].into_boxed_slice();
            self.chunks.push(Chunk { bytes, filled: 0, packets: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &mut Store, bytes: usize, fill: u8) -> Option<PacketId> {
        store.next_buffer()?[..bytes].fill(fill);
        Some(store.commit(bytes, Layout::single(bytes as u32)))
    }

    #[test]
    fn packets_keep_their_bytes_until_the_last_share_is_gone() {
        let mut store = Store::new(64 << 20);
        let packets: Vec<_> = (0..200).map(|i| (i, put(&mut store, 40_000, i).unwrap())).collect();
        for (i, id) in &packets {
            assert!(store.bytes(*id).iter().all(|byte| byte == i) && store.bytes(*id).len() == 40_000);
        }
        let (_, first) = packets[0];
        store.retain(first);
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
