//! Chooses the number of connections and channels for a round-trip time.

use std::time::Duration;

/// Maximum number of channels of a connection. sshd allows ten sessions (`MaxSessions`), and each shell takes one too.
pub(crate) const MAX_CHANNELS: u32 = 6;
/// Number of channels per connection if there are several connections.
pub(crate) const USUAL_CHANNELS: u32 = 2;
/// From this round trip on, two channels per connection do not fill 1 Gbit/s: each channel carries 1.5 MiB per round
/// trip, three quarters of SSH's window.
const VERY_LONG_ROUND_TRIP: Duration = Duration::from_millis(250);
/// From this round trip on, several connections are faster than one.
pub(crate) const LONG_ROUND_TRIP: Duration = Duration::from_millis(5);

/// The number of connections, and of channels per connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolSize {
    pub(crate) connections: u32,
    pub(crate) channels: u32,
}

impl PoolSize {
    /// The numbers for a round trip. Nine connections with two channels each filled 1 Gbit/s at 228 ms, even with a 4
    /// MB buffer per socket. On loopback, six channels over one connection took 0.75 of scp's time and 0.99 of its
    /// processor time; one channel took 1.0 and 1.06.
    pub(crate) fn of(round_trip: Duration, connections: Option<u32>) -> Self {
        let usual = if round_trip >= LONG_ROUND_TRIP { 9 } else { 1 };
        match connections.unwrap_or(usual) {
            1 => Self { connections: 1, channels: MAX_CHANNELS },
            connections => {
                let more = u32::from(round_trip >= VERY_LONG_ROUND_TRIP);
                Self { connections, channels: USUAL_CHANNELS + more }
            }
        }
    }
}
