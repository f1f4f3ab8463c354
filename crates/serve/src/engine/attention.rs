//! Steps that are needed only for TLS, pages or the record of requests.

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

use super::{Engine, Step, close::reset};
use crate::{
    asked::Asked,
    connection::{Connection, Extra},
    pages::Pages,
    recording::Circumstances,
    security::Security,
};

impl Engine<'_> {
    /// Gives a new connection the state for TLS, pages and the record, if any of them is enabled.
    pub(super) fn prepare(&mut self, connection: &mut Connection) {
        let session = self.shared.security.and_then(Security::session);
        let wants_to_know = self.shared.pages.is_some() || self.lines.is_some();
        if session.is_none() && !wants_to_know {
            return;
        }
        connection.extra = Some(Box::new(Extra {
            number: self.lines.as_ref().map_or(0, |lines| lines.recorder.next_connection()),
            session,
            asked: wants_to_know.then(Asked::default),
            ..Extra::default()
        }));
    }

    /// Maximum number of body bytes to keep.
    pub(super) fn body_limit(&self, asked: &Asked) -> usize {
        let page_bytes = if self.shared.pages.is_some() { Pages::body_limit(asked) } else { 0 };
        page_bytes.max(self.lines.as_ref().map_or(0, |lines| lines.recorder.body_bytes))
    }

    /// Records a complete request and determines the page that answers it.
    #[cold]
    pub(super) fn attend(&mut self, connection: &mut Connection) {
        let shape = connection.shape;
        let Some(extra) = &mut connection.extra else { return };
        let Some(asked) = &extra.asked else { return };
        let now_ns = clock::monotonic_ns();
        if let Some(lines) = &mut self.lines {
            let resumed = extra.session.as_ref().map(|session| session.is_resumed());
            lines.add(asked, &Circumstances { received_ns: now_ns, connection: extra.number, resumed });
        }
        extra.page = self.shared.pages.and_then(|pages| pages.answer(asked, shape, now_ns));
    }

    /// Counts a completed handshake, or a failure that has ended the session.
    #[cold]
    pub(super) fn count_tls(&mut self, connection: &mut Connection) {
        let Some(extra) = &mut connection.extra else { return };
        let Some(session) = &extra.session else { return };
        let counts = self.report.tls.get_or_insert_default();
        if !extra.is_counted && !session.is_handshaking() {
            extra.is_counted = true;
            counts.handshakes += 1;
            counts.resumed += u64::from(session.is_resumed());
        }
        if let Some(failure) = extra.failure.take() {
            *counts.failures.entry(failure.name().to_owned()).or_default() += 1;
        }
    }

    /// Refuses a client's handshake after its first bytes have arrived.
    #[cold]
    pub(super) fn refuse_handshake(&mut self, connection: &mut Connection) -> Step {
        if !connection.readable {
            return Step::Wait;
        }
        match recv(&connection.socket, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) => return Step::Close,
            Ok(_) => {}
            Err(Errno::AGAIN) => {
                connection.readable = false;
                return Step::Wait;
            }
            Err(Errno::INTR) => return Step::Continue,
            Err(_) => return Step::Close,
        }
        self.report.tls.get_or_insert_default().refused += 1;
        if let Some(Security::Refuse(alert)) = self.shared.security {
            // Fits the send buffer, because the socket is new and the alert has seven bytes.
            let _ = send(&connection.socket, alert, SendFlags::NOSIGNAL);
            return self.close(connection, true);
        }
        reset(connection)
    }
}
