//! Splits the received stream into packets.

use crate::{Error, MAX_PACKET, Reply};

/// Size of a packet's length field, in bytes.
const LENGTH_BYTES: usize = 4;

/// A buffer that splits a server's stream into packets.
///
/// The caller reads into [`Frames::space`], reports the number of bytes read to [`Frames::filled`], and calls
/// [`Frames::next_reply`] until it returns `None`. Neither replies nor errors depend on how the stream was split.
///
/// A reply borrows from the buffer. Bytes are moved within the buffer only if its end contains an incomplete packet: on
/// average at most half a byte for each byte that arrives. The buffer grows to at most the requested space plus three
/// packets.
#[derive(Clone, Debug)]
pub struct Frames {
    /// Bytes from `start` to `end` have arrived but were not returned yet; bytes after `end` are free.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Maximum size of a packet without its length field, in bytes.
    limit: usize,
    /// Whether a packet has been returned.
    is_begun: bool,
}

impl Default for Frames {
    fn default() -> Self {
        Self::new()
    }
}

impl Frames {
    /// An empty buffer for packets of at most [`MAX_PACKET`] bytes.
    pub fn new() -> Self {
        Self::with_limit(MAX_PACKET)
    }

    /// An empty buffer for packets of at most `limit` bytes, without their length field.
    pub fn with_limit(limit: usize) -> Self {
        Frames { buffer: Vec::new(), start: 0, end: 0, limit, is_begun: false }
    }

    /// Space of at least `want` bytes to read into. Its old contents are meaningless.
    pub fn space(&mut self, want: usize) -> &mut [u8] {
        let held = self.end - self.start;
        // Bytes are moved only after at least twice as many were returned, so that moving costs at most half a byte for
        // each.
        if held == 0 || (self.buffer.len() - self.end < want && self.start >= 2 * held) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        if self.buffer.len() - self.end < want {
            self.buffer.resize(self.end + want, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Records that the first `count` bytes of the space contain received bytes.
    ///
    /// # Panics
    /// If `count` is larger than the space.
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.end, "more bytes were read than there was space for");
        self.end += count;
    }

    /// The next packet; `None` until more bytes arrive. After an error, every call returns the same error.
    ///
    /// # Errors
    /// If the bytes are no valid packet of a server.
    pub fn next_reply(&mut self) -> Result<Option<Reply<'_>>, Error> {
        let held = &self.buffer[self.start..self.end];
        let Some((length, rest)) = held.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = self.checked_length(*length)?;
        let Some(packet) = rest.get(..length) else { return Ok(None) };
        let reply = Reply::read(packet)?;
        self.start += LENGTH_BYTES + length;
        self.is_begun = true;
        Ok(Some(reply))
    }

    /// The bytes that have arrived but were not returned. After an error, they begin with the faulty packet.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn checked_length(&self, sent: [u8; LENGTH_BYTES]) -> Result<usize, Error> {
        let length = u32::from_be_bytes(sent);
        match usize::try_from(length) {
            Ok(0) => Err(Error::EmptyPacket),
            Ok(length) if length <= self.limit => Ok(length),
            _ if !self.is_begun && sent.iter().all(|byte| is_text(*byte)) => {
                Err(Error::TextBeforeSftp { begin: sent })
            }
            _ => Err(Error::PacketTooLong { length, limit: self.limit }),
        }
    }
}

/// Whether a byte may be part of printed text: ASCII, UTF-8, or a control character that moves the cursor.
fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b | b' '..=b'~' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Answer;

    /// Limits how much a stream of DATA packets grows the buffer and moves bytes within it.
    #[test]
    fn bytes_hardly_move_and_the_buffer_stays_small() {
        for (data, want) in
            [(255 * 1024, 64 * 1024), (255 * 1024, 1 << 20), (100, 64 * 1024), (32 * 1024, 1000)]
        {
            let mut packet = u32::to_be_bytes(data as u32 + 9).to_vec();
            packet.extend([103, 0, 0, 0, 1]);
            packet.extend(u32::to_be_bytes(data as u32));
            packet.resize(packet.len() + data, 7);
            let (mut frames, mut sent, mut moved, mut received) = (Frames::new(), 0, 0, 0);
            let all = 40_000_000 / packet.len() * packet.len();
            while sent < all {
                let (before, held) = (frames.start, frames.end - frames.start);
                let space = &mut frames.space(want)[..want.min(all - sent)];
                let count = space.len();
                space
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, byte)| *byte = packet[(sent + at) % packet.len()]);
                moved += if frames.start == before { 0 } else { held };
                frames.filled(count);
                sent += count;
                while let Some(Reply::Answer(1, Answer::Data(bytes))) = frames.next_reply().unwrap() {
                    assert!(bytes.len() == data && bytes.iter().all(|byte| *byte == 7));
                    received += 1;
                }
            }
            assert_eq!(received, all / packet.len());
            assert!(moved <= sent / 2, "{moved} of {sent} bytes were moved");
            let most = 3 * packet.len() + want;
            assert!(frames.buffer.len() <= most, "{} bytes, at most {most}", frames.buffer.len());
        }
    }

    #[test]
    #[should_panic(expected = "more bytes were read than there was space for")]
    fn what_was_not_given_cannot_be_filled() {
        Frames::new().filled(1);
    }
}
