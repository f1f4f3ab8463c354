//! Records connections, and TLS on them.

use record::ErrorClass;

use super::Recorder;
use crate::wire::Agreed;

impl Recorder {
    /// Counts an ended connection attempt that began while absences might delay requests.
    pub(crate) fn connect_delayed(&mut self) {
        self.result.http.counts.connects_delayed += 1;
    }

    /// Records an opened connection. `is_reconnect`: the slot had a connection before.
    pub(crate) fn connected(&mut self, took_ns: u64, is_reconnect: bool) {
        self.result.http.connect_time.record_ns(took_ns);
        self.result.http.counts.connections_opened += 1;
        self.result.http.counts.reconnects += u64::from(is_reconnect);
        self.open += 1;
        self.result.http.counts.connections_peak = self.result.http.counts.connections_peak.max(self.open);
    }

    /// Records the closing of an open connection.
    pub(crate) fn disconnected(&mut self) {
        self.open -= 1;
    }

    /// Counts a planned connection that this machine could not open.
    pub(crate) fn unopened(&mut self, class: ErrorClass) {
        self.result.http.counts.connections_unopened += 1;
        self.connection_error(class);
    }

    /// Records the end of a connection's handshake, which took `took_ns`.
    pub(crate) fn agreed(&mut self, took_ns: u64, agreed: Agreed) {
        self.result.http.handshake_time.record_ns(took_ns);
        self.result.http.counts.handshakes += 1;
        self.result.http.counts.handshakes_resumed += u64::from(agreed.is_resumed);
        let sessions = &mut self.result.http.tls_sessions;
        let (version, cipher) = (agreed.version, agreed.cipher);
        *sessions.entry(format!("{version} {cipher}")).or_default() += 1;
    }

    /// Counts session tickets that were received.
    pub(crate) fn tickets(&mut self, tickets: u64) {
        self.result.http.counts.session_tickets += tickets;
    }
}
