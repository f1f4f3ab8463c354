//! Determines what stops senders, from sums over samples of their connections.

use std::{collections::BTreeMap, net::SocketAddr};

use record::counters::SenderUse;

use crate::tcp::{Connection, TcpInfo};

/// Maximum unsent data, in segments, that proves nothing: on any connection, it may wait for the next acknowledgement.
const FEW_SEGMENTS: u32 = 4;

/// An end of a connection is no sender if it has received more than this many bytes for each byte that it has sent.
const RECEIVED_PER_SENT_BYTE: u64 = 10;

/// Sums over samples of connections.
#[derive(Debug, Default)]
pub struct Senders {
    /// The kernel's information about each connection at its last sample.
    known: BTreeMap<(SocketAddr, SocketAddr), TcpInfo>,
    /// The sum of the squares of the bytes in flight.
    in_flight_squared: f64,
    used: SenderUse,
}

impl Senders {
    /// Resets the sums: from now on, only new activity of the connections counts.
    pub fn begin(&mut self) {
        (self.used, self.in_flight_squared) = (SenderUse::default(), 0.0);
    }

    /// Adds the kernel's counts for a connection since its last sample. After the end of the load, only these counts
    /// are used.
    pub(crate) fn look_after_load(&mut self, connection: &Connection) {
        let ends = (connection.local, connection.remote);
        let before = self.known.insert(ends, connection.info.clone()).unwrap_or_default();
        let (now, used) = (&connection.info, &mut self.used);
        let passed = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before.unwrap_or(0)));
        used.retransmits += u64::from(now.retransmits.saturating_sub(before.retransmits));
        if let Some(busy_us) = passed(now.busy_us, before.busy_us) {
            *used.busy_us.get_or_insert_default() += busy_us;
        }
        used.receive_window_limited_us +=
            passed(now.receive_window_limited_us, before.receive_window_limited_us).unwrap_or(0);
        used.send_buffer_limited_us +=
            passed(now.send_buffer_limited_us, before.send_buffer_limited_us).unwrap_or(0);
    }

    /// Adds a sample of a connection.
    pub fn look_at(&mut self, connection: &Connection) {
        self.look_after_load(connection);
        let (now, used) = (&connection.info, &mut self.used);
        // The receiving end says nothing about senders. If both ends are in one namespace, it would make up half of all
        // samples.
        let is_receiver = now.received_bytes > RECEIVED_PER_SENT_BYTE * now.acknowledged_bytes;
        if is_receiver && connection.unacknowledged_bytes == 0 {
            return;
        }
        used.samples += 1;
        if connection.unacknowledged_bytes > 0 {
            let bytes = |segments: u32| u64::from(segments) * u64::from(now.segment_bytes);
            used.samples_sending += 1;
            used.samples_unsent += u64::from(u64::from(now.unsent_bytes) > bytes(FEW_SEGMENTS));
            let in_flight = bytes(now.in_flight);
            used.in_flight_bytes += in_flight;
            self.in_flight_squared += (in_flight as f64).powi(2);
            used.typical_in_flight_bytes =
                (self.in_flight_squared / used.in_flight_bytes.max(1) as f64) as u64;
            used.congestion_window_bytes += bytes(now.congestion_window);
            used.send_buffer_used_bytes += u64::from(connection.send_buffer_used_bytes);
            used.send_buffer_bytes += u64::from(connection.send_buffer_bytes);
            used.rtt_us += u64::from(now.rtt_us);
            used.least_rtt_us += u64::from(now.least_rtt_us.min(now.rtt_us));
        }
    }

    /// The current sums.
    pub fn used(&self) -> SenderUse {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: ([u8; 4], u16) = ([127, 0, 0, 1], 22);

    fn connection(info: TcpInfo) -> Connection {
        Connection {
            local: ENDS.into(),
            remote: ENDS.into(),
            inode: 0,
            unread_bytes: 0,
            unacknowledged_bytes: 1,
            send_buffer_used_bytes: 0,
            send_buffer_bytes: 0,
            info,
        }
    }

    #[test]
    fn after_the_load_only_times_count() {
        let mut senders = Senders::default();
        let busy = |us| connection(TcpInfo { busy_us: Some(us), ..TcpInfo::default() });
        senders.look_at(&busy(10));
        senders.look_after_load(&busy(25));
        let used = senders.used();
        assert_eq!((used.samples, used.samples_sending, used.busy_us), (1, 1, Some(25)));
    }

    #[test]
    fn an_end_that_receives_is_no_sender_and_a_small_request_is() {
        let mut senders = Senders::default();
        let mut look = |acknowledged_bytes, received_bytes, unacknowledged_bytes| {
            let info = TcpInfo { acknowledged_bytes, received_bytes, ..TcpInfo::default() };
            senders.look_at(&Connection { unacknowledged_bytes, ..connection(info) });
            senders.used().samples
        };
        assert_eq!(look(100, 1_000_000, 0), 0);
        assert_eq!(look(100, 1_000_000, 50), 1, "it has just sent");
        assert_eq!(look(100, 250, 0), 2);
    }

    #[test]
    fn what_is_typically_on_the_way_leaves_out_a_login() {
        let mut senders = Senders::default();
        for in_flight in [1, 1, 1, 1_000, 1_000] {
            let info = TcpInfo { segment_bytes: 1_000, in_flight, ..TcpInfo::default() };
            senders.look_at(&connection(info));
        }
        let used = senders.used();
        assert_eq!((used.samples_sending, used.in_flight_bytes), (5, 2_003_000));
        assert!((998_000..1_000_000).contains(&used.typical_in_flight_bytes), "{used:?}");
    }
}
