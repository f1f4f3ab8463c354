//! What is recorded of TLS.

use super::Recorder;
use crate::wire::Agreed;

impl Recorder {
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
