//! A reliable, ordered stream of bytes in both directions, over datagrams that may be lost, repeated or reordered.
//!
//! Pure: no clock, no input, no output. Times are nanoseconds of any clock that does not go back. The caller hands
//! [`Link`] the datagrams that arrive, and sends those that [`transmit`](Link::transmit) gives it.
//!
//! As in TCP, a piece is numbered by the offset of its first byte, acknowledgements are cumulative, the receiver says
//! up to where it has room, and the end of a stream counts as one byte. The resend timeout follows the measured round
//! trip. A link is dead when nothing was heard, or nothing acknowledged, for [`SILENCE_NS`].

use std::collections::VecDeque;

/// Maximum number of bytes of the stream in a datagram.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Number of bytes that a datagram has besides those of the stream.
pub(crate) const HEADER_BYTES: usize = 26;
/// Maximum number of bytes on their way in each direction, and maximum number that wait for a reader.
pub(crate) const WINDOW_BYTES: usize = 512 << 10;
/// After this time without a datagram from the other side, or without an acknowledgement of what was sent, the link is dead.
pub(crate) const SILENCE_NS: u64 = 20_000_000_000;

/// Maximum number of pieces on their way. What is written meanwhile goes into fewer, larger pieces.
const MAX_PIECES: usize = 64;
/// After this time without a datagram to send, one is sent that only acknowledges.
const KEEP_ALIVE_NS: u64 = 3_000_000_000;
/// The resend timeout before the round trip is known.
const FIRST_RESEND_NS: u64 = 1_000_000_000;
/// The shortest resend timeout.
const MIN_RESEND_NS: u64 = 200_000_000;
/// The longest resend timeout.
const MAX_RESEND_NS: u64 = 2_000_000_000;

/// The first byte of each datagram.
const VERSION: u8 = 1;
/// Flag of a datagram: it has a piece.
const PIECE: u8 = 1;
/// Flag of a datagram: its piece is the last one.
const LAST: u8 = 2;
/// Flag of a datagram: the session is over.
const OVER: u8 = 4;

/// One end of a stream.
#[derive(Debug)]
pub(crate) struct Link {
    piece_bytes: usize,
    out: Outgoing,
    into: Incoming,
    /// When a datagram last arrived.
    heard_ns: u64,
    /// When a datagram was last sent.
    said_ns: u64,
    /// When `transmit` was last called.
    seen_ns: u64,
    /// Whether the other side has to be told what has arrived, or that there is room.
    owes_ack: bool,
    dead: Option<&'static str>,
}

/// What is sent.
#[derive(Debug)]
struct Outgoing {
    /// Written, and not in a piece yet.
    queued: VecDeque<u8>,
    is_finished: bool,
    has_sent_last: bool,
    /// Pieces that are not acknowledged.
    pieces: VecDeque<Piece>,
    /// The index of the piece that is sent next.
    next: usize,
    /// Bytes in `pieces`.
    on_way: usize,
    /// The number of the first byte that is not acknowledged.
    acked: u64,
    /// The number of the first byte that is in no piece.
    cut: u64,
    /// The number of the first byte that the other side has no room for.
    limit: u64,
    /// After a timeout only the first piece is sent again, until an acknowledgement shows that pieces arrive.
    is_probing: bool,
    progress_ns: u64,
    resend_at_ns: u64,
    resend_ns: u64,
    /// The smoothed round trip and its deviation (RFC 6298).
    round_trip_ns: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    is_last: bool,
    sent_ns: Option<u64>,
    was_resent: bool,
}

/// What arrives.
#[derive(Debug, Default)]
struct Incoming {
    /// In order, not yet read.
    ready: VecDeque<u8>,
    /// The number of the next byte that is expected.
    expected: u64,
    /// The number of the next byte that is read.
    taken: u64,
    /// The number after the last byte, once known.
    end: Option<u64>,
    /// The limit that the other side was last told.
    told_limit: u64,
}

impl Link {
    /// A link whose other end is a new link, too. `piece_bytes`: maximum number of bytes of the stream in a datagram, from
    /// 1 to [`PIECE_BYTES`].
    pub(crate) fn new(now_ns: u64, piece_bytes: usize) -> Self {
        Self {
            piece_bytes: piece_bytes.clamp(1, PIECE_BYTES),
            out: Outgoing {
                queued: VecDeque::new(),
                is_finished: false,
                has_sent_last: false,
                pieces: VecDeque::new(),
                next: 0,
                on_way: 0,
                acked: 0,
                cut: 0,
                limit: WINDOW_BYTES as u64,
                is_probing: false,
                progress_ns: now_ns,
                resend_at_ns: u64::MAX,
                resend_ns: FIRST_RESEND_NS,
                round_trip_ns: None,
            },
            into: Incoming { told_limit: WINDOW_BYTES as u64, ..Incoming::default() },
            heard_ns: now_ns,
            said_ns: now_ns,
            seen_ns: now_ns,
            owes_ack: false,
            dead: None,
        }
    }

    /// How many bytes can be written now.
    pub(crate) fn room(&self) -> usize {
        WINDOW_BYTES.saturating_sub(self.out.queued.len() + self.out.on_way)
    }

    /// Sends these bytes, as far as there is [`room`](Self::room); returns how many were taken.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = if self.out.is_finished { 0 } else { bytes.len().min(self.room()) };
        self.out.queued.extend(&bytes[..taken]);
        taken
    }

    /// Nothing more will be written.
    pub(crate) fn finish(&mut self) {
        self.out.is_finished = true;
    }

    /// The next bytes that have arrived, one piece at most; empty if there are none yet.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        let into = &mut self.into;
        let count = into.ready.len().min(PIECE_BYTES);
        let bytes: Vec<u8> = into.ready.drain(..count).collect();
        into.taken += bytes.len() as u64;
        self.owes_ack |= into.limit() - into.told_limit >= WINDOW_BYTES as u64 / 2;
        bytes
    }

    /// Whether everything that the other side wrote was read, and it writes no more.
    pub(crate) fn has_read_all(&self) -> bool {
        self.into.end == Some(self.into.taken)
    }

    /// Whether both sides have written everything, and know that it arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.into.has_all() && self.has_delivered() && !self.owes_ack
    }

    /// Whether everything that was written has arrived, with the end.
    fn has_delivered(&self) -> bool {
        self.out.has_sent_last && self.out.pieces.is_empty()
    }

    /// Why the link is dead; `None` if it is not.
    pub(crate) fn dead(&self) -> Option<&'static str> {
        self.dead
    }

    /// Takes a datagram. Ignores one that no link can have sent.
    pub(crate) fn receive(&mut self, now_ns: u64, datagram: &[u8]) {
        let Some(datagram) = Datagram::parse(datagram) else { return };
        self.heard_ns = self.heard_ns.max(now_ns);
        if datagram.flags & OVER != 0 {
            if !self.into.has_all() {
                self.dead = self.dead.or(Some("the other side has ended the session"));
            }
            // It has sent everything; whether it has received everything can no longer be known.
            self.out.pieces.clear();
            (self.out.is_finished, self.out.has_sent_last, self.owes_ack) = (true, true, false);
            return;
        }
        self.out.acknowledge(now_ns, datagram.ack, datagram.limit);
        if let Some((number, bytes)) = datagram.piece {
            // Also for a known piece: the other side sends it again because it has not received the acknowledgement.
            self.owes_ack = true;
            self.into.take(number, bytes, datagram.flags & LAST != 0);
        }
    }

    /// The next datagram to be sent now.
    pub(crate) fn transmit(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        self.look_after(now_ns);
        if self.dead.is_some() {
            return None;
        }
        let ack = self.into.expected + u64::from(self.into.has_all());
        let limit = self.into.limit();
        let piece = self.out.next_piece(now_ns, self.piece_bytes);
        let is_quiet = now_ns >= self.said_ns + KEEP_ALIVE_NS;
        if piece.is_none() && !self.owes_ack && !is_quiet {
            return None;
        }
        let mut datagram = Vec::with_capacity(HEADER_BYTES + piece.map_or(0, |(_, piece)| piece.bytes.len()));
        let flags = piece.map_or(0, |(_, piece)| if piece.is_last { PIECE | LAST } else { PIECE });
        datagram.extend([VERSION, flags]);
        let number = piece.map_or(0, |(number, _)| number);
        [ack, limit, number].iter().for_each(|field| datagram.extend(field.to_be_bytes()));
        datagram.extend(piece.map_or(&[][..], |(_, piece)| &piece.bytes));
        self.into.told_limit = limit;
        (self.owes_ack, self.said_ns) = (false, now_ns);
        Some(datagram)
    }

    /// When [`transmit`](Self::transmit) has to be called, at the latest.
    pub(crate) fn wake_ns(&self) -> u64 {
        if self.dead.is_some() {
            return u64::MAX;
        }
        let resend_ns = if self.out.pieces.is_empty() { u64::MAX } else { self.out.resend_at_ns };
        resend_ns.min(self.said_ns + KEEP_ALIVE_NS).min(self.heard_ns + SILENCE_NS)
    }

    fn look_after(&mut self, now_ns: u64) {
        let away_ns = now_ns.saturating_sub(self.seen_ns);
        self.seen_ns = self.seen_ns.max(now_ns);
        if away_ns > 2 * KEEP_ALIVE_NS {
            // This process was stopped. What arrived meanwhile has not been read yet: the other side was not silent.
            self.heard_ns += away_ns;
            self.out.progress_ns += away_ns;
        }
        if now_ns >= self.heard_ns + SILENCE_NS {
            self.dead = self.dead.or(Some("nothing was heard from the other side for 20 s"));
        }
        let out = &mut self.out;
        if out.pieces.is_empty() {
            out.progress_ns = now_ns.max(out.progress_ns);
        } else if now_ns >= out.progress_ns + SILENCE_NS {
            self.dead = self.dead.or(Some("nothing that was sent has arrived for 20 s"));
        } else if now_ns >= out.resend_at_ns {
            (out.next, out.is_probing) = (0, true);
            out.resend_ns = (out.resend_ns * 2).min(MAX_RESEND_NS);
            out.resend_at_ns = now_ns + out.resend_ns;
        }
    }
}

impl Outgoing {
    fn next_piece(&mut self, now_ns: u64, piece_bytes: usize) -> Option<(u64, &Piece)> {
        if self.next == self.pieces.len() {
            self.cut_piece(piece_bytes);
        }
        if self.next >= self.pieces.len() || self.is_probing && self.next > 0 {
            return None;
        }
        let before: u64 = self.pieces.iter().take(self.next).map(Piece::length).sum();
        if self.resend_at_ns == u64::MAX {
            self.resend_at_ns = now_ns + self.resend_ns;
        }
        let piece = &mut self.pieces[self.next];
        piece.was_resent = piece.sent_ns.replace(now_ns).is_some();
        self.next += 1;
        Some((self.acked + before, piece))
    }

    /// Makes a piece of what was written, if the other side has room for it.
    fn cut_piece(&mut self, piece_bytes: usize) {
        let allowed = usize::try_from(self.limit.saturating_sub(self.cut)).unwrap_or(usize::MAX);
        let count = self.queued.len().min(piece_bytes).min(allowed);
        let is_last = self.is_finished && count == self.queued.len() && !self.has_sent_last;
        if self.pieces.len() >= MAX_PIECES || count == 0 && !is_last {
            return;
        }
        let bytes: Vec<u8> = self.queued.drain(..count).collect();
        self.has_sent_last |= is_last;
        self.on_way += count;
        let piece = Piece { bytes, is_last, sent_ns: None, was_resent: false };
        self.cut += piece.length();
        self.pieces.push_back(piece);
    }

    fn acknowledge(&mut self, now_ns: u64, ack: u64, limit: u64) {
        if ack > self.cut {
            return;
        }
        // No link has more room than that, so a higher limit is false.
        self.limit = self.limit.max(limit.min(ack.saturating_add(2 * WINDOW_BYTES as u64)));
        let mut sent_ns = None;
        let before = self.acked;
        while self.pieces.front().is_some_and(|piece| self.acked + piece.length() <= ack) {
            let Some(piece) = self.pieces.pop_front() else { break };
            self.acked += piece.length();
            self.on_way -= piece.bytes.len();
            self.next = self.next.saturating_sub(1);
            sent_ns = piece.sent_ns.filter(|_| !piece.was_resent);
        }
        if self.acked == before {
            return;
        }
        if let Some(sent_ns) = sent_ns {
            self.measured(now_ns.saturating_sub(sent_ns));
        }
        (self.is_probing, self.progress_ns) = (false, now_ns);
        self.resend_at_ns = if self.pieces.is_empty() { u64::MAX } else { now_ns + self.resend_ns };
    }

    fn measured(&mut self, sample_ns: u64) {
        let (mean_ns, deviation_ns) = match self.round_trip_ns {
            None => (sample_ns, sample_ns / 2),
            Some((mean_ns, deviation_ns)) => {
                ((7 * mean_ns + sample_ns) / 8, (3 * deviation_ns + mean_ns.abs_diff(sample_ns)) / 4)
            }
        };
        self.round_trip_ns = Some((mean_ns, deviation_ns));
        self.resend_ns = (mean_ns + 4 * deviation_ns).clamp(MIN_RESEND_NS, MAX_RESEND_NS);
    }
}

impl Piece {
    /// How many byte numbers the piece takes.
    fn length(&self) -> u64 {
        self.bytes.len() as u64 + u64::from(self.is_last)
    }
}

impl Incoming {
    /// The number of the first byte that there is no room for.
    fn limit(&self) -> u64 {
        self.taken + WINDOW_BYTES as u64
    }

    fn has_all(&self) -> bool {
        self.end == Some(self.expected)
    }

    /// Takes the part of a piece that is expected next. A piece that comes too early is dropped: the broker keeps the order,
    /// so something before it was lost.
    fn take(&mut self, number: u64, bytes: &[u8], is_last: bool) {
        let end = number.saturating_add(bytes.len() as u64);
        if number > self.expected || end < self.expected || end > self.limit() || self.end.is_some() {
            return;
        }
        self.ready.extend(&bytes[bytes.len() - (end - self.expected) as usize..]);
        self.expected = end;
        self.end = is_last.then_some(end);
    }
}

/// A datagram as it arrives.
struct Datagram<'a> {
    flags: u8,
    ack: u64,
    limit: u64,
    piece: Option<(u64, &'a [u8])>,
}

impl<'a> Datagram<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, piece) = bytes.split_at_checked(HEADER_BYTES)?;
        let [VERSION, flags, fields @ ..] = header else { return None };
        if piece.len() > PIECE_BYTES {
            return None;
        }
        let mut fields = fields
            .chunks_exact(8)
            .map(|field| field.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
        let (ack, limit, number) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { flags: *flags, ack, limit, piece: (flags & PIECE != 0).then_some((number, piece)) })
    }
}

/// Whether a datagram is the first of a session.
pub(crate) fn opens(datagram: &[u8]) -> bool {
    Datagram::parse(datagram).is_some_and(|datagram| {
        datagram.flags & OVER == 0 && datagram.piece.is_some_and(|piece| piece.0 == 0)
    })
}

/// Whether a datagram says that its session is over, or is not valid. It must not be answered.
pub(crate) fn is_over(datagram: &[u8]) -> bool {
    Datagram::parse(datagram).is_none_or(|datagram| datagram.flags & OVER != 0)
}

/// A datagram that says that this side no longer knows the session.
pub(crate) fn over() -> Vec<u8> {
    let mut datagram = vec![0; HEADER_BYTES];
    (datagram[0], datagram[1]) = (VERSION, OVER);
    datagram
}

#[cfg(test)]
mod tests;
