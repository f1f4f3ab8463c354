//! A head that was just read need not be parsed again: a server under load sends the same one, byte for byte,
//! until its `Date` changes.

use crate::response::{Meaning, ResponseHead, ResponseSink};
use crate::{Error, Fed, Response, ResponseReader};

/// The last answer head that came in one piece, and what it meant. One serves all connections of a thread.
#[derive(Clone, Debug, Default)]
pub struct KnownHead {
    bytes: Vec<u8>,
    to_head: bool,
    meaning: Option<Meaning>,
}

impl ResponseReader {
    /// Like [`ResponseReader::feed`] with no sink, and with the same outcome. What a head means depends on
    /// its bytes alone, so one that equals the known one is not parsed.
    ///
    /// # Errors
    ///
    /// As for `feed`.
    #[inline]
    pub fn feed_known(
        &mut self,
        bytes: &[u8],
        to_head: bool,
        known: &mut KnownHead,
    ) -> Result<Fed<Response>, Error> {
        let fresh = self.is_fresh();
        if fresh
            && let Some(meaning) = known.meaning
            && known.to_head == to_head
            && bytes.starts_with(&known.bytes)
            && self.enter_body(known.bytes.len(), meaning)
        {
            let head_bytes = known.bytes.len();
            let fed = self.feed(&bytes[head_bytes..], to_head, &mut ())?;
            return Ok(Fed { used: head_bytes + fed.used, done: fed.done });
        }
        let mut heard = Heard(None);
        let fed = self.feed(bytes, to_head, &mut heard)?;
        // Only a head that stands alone at the front is known by the bytes there.
        if fresh
            && let Some(meaning) = heard.0
            && let Some(head) = self.head_at_front(bytes, fed.done.as_ref())
        {
            known.bytes.clear();
            known.bytes.extend_from_slice(head);
            (known.to_head, known.meaning) = (to_head, Some(meaning));
        }
        Ok(fed)
    }
}

struct Heard(Option<Meaning>);

impl ResponseSink for Heard {
    #[inline]
    fn head(&mut self, head: &ResponseHead<'_>) {
        let ResponseHead { status, keep_alive, framing, .. } = *head;
        self.0 = Some(Meaning { status, keep_alive, framing });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    #[test]
    fn a_known_head_is_taken_for_what_it_is() {
        let mut known = KnownHead::default();
        for _ in 0..3 {
            let mut reader = ResponseReader::new(Limits::default());
            let twice = [ANSWER, ANSWER].concat();
            let first = reader.feed_known(&twice, false, &mut known).unwrap();
            assert_eq!(first.used, ANSWER.len());
            let second = reader.feed_known(&twice[first.used..], false, &mut known).unwrap();
            assert_eq!((first, Some(200)), (second, first.done.map(|r| r.status)));
        }
        assert_eq!(known.bytes, &ANSWER[..ANSWER.len() - 2]);
    }

    #[test]
    fn the_same_head_to_a_head_request_has_no_body() {
        let mut known = KnownHead::default();
        let mut reader = ResponseReader::new(Limits::default());
        assert_eq!(reader.feed_known(ANSWER, false, &mut known).unwrap().used, ANSWER.len());
        let head = &ANSWER[..ANSWER.len() - 2];
        assert_eq!(reader.feed_known(head, true, &mut known).unwrap().done.unwrap().body_bytes, 0);
        assert_eq!(reader.feed_known(ANSWER, false, &mut known).unwrap().done.unwrap().body_bytes, 2);
    }

    #[test]
    fn heads_behind_others_and_beyond_a_smaller_limit_are_not_known() {
        let mut known = KnownHead::default();
        let mut reader = ResponseReader::new(Limits::default());
        let informed = [b"HTTP/1.1 100 Continue\r\n\r\n", ANSWER].concat();
        reader.feed_known(&informed, false, &mut known).unwrap();
        reader.feed_known(&[b"\r\n", ANSWER].concat(), false, &mut known).unwrap();
        assert!(known.meaning.is_none());
        reader.feed_known(ANSWER, false, &mut known).unwrap();
        assert!(known.meaning.is_some());
        let mut narrow = ResponseReader::new(Limits { head_bytes: 20 });
        assert!(narrow.feed_known(ANSWER, false, &mut known).is_err());
    }
}
