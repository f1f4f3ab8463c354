//! A cache of the last answer head: a server under load sends the same head, byte for byte, until its `Date` changes.

use crate::response::{ParsedHead, ResponseHead, ResponseSink};
use crate::{Error, Fed, Response, ResponseReader};

/// The last answer head that arrived in one piece, with its parsed form. All connections of a thread can share it.
#[derive(Clone, Debug, Default)]
pub struct HeadCache {
    bytes: Vec<u8>,
    is_head_request: bool,
    parsed_head: Option<ParsedHead>,
}

impl ResponseReader {
    /// Like [`ResponseReader::feed`] without a sink, but does not parse a head that equals the cached head. The result is
    /// the same.
    ///
    /// # Errors
    ///
    /// As for `feed`.
    #[inline]
    pub fn feed_cached(
        &mut self,
        bytes: &[u8],
        is_head_request: bool,
        cache: &mut HeadCache,
    ) -> Result<Fed<Response>, Error> {
        let fresh = self.is_fresh();
        if fresh
            && let Some(parsed_head) = cache.parsed_head
            && cache.is_head_request == is_head_request
            && bytes.starts_with(&cache.bytes)
            && self.enter_body(cache.bytes.len(), parsed_head)
        {
            let head_bytes = cache.bytes.len();
            let fed = self.feed(&bytes[head_bytes..], is_head_request, &mut ())?;
            return Ok(Fed { used: head_bytes + fed.used, done: fed.done });
        }
        let mut capture = Capture(None);
        let fed = self.feed(bytes, is_head_request, &mut capture)?;
        // Caches only a head at the very start of `bytes`, because the lookup compares from there.
        if fresh
            && let Some(parsed_head) = capture.0
            && let Some(head) = self.head_at_front(bytes, fed.done.as_ref())
        {
            cache.bytes.clear();
            cache.bytes.extend_from_slice(head);
            (cache.is_head_request, cache.parsed_head) = (is_head_request, Some(parsed_head));
        }
        Ok(fed)
    }
}

struct Capture(Option<ParsedHead>);

impl ResponseSink for Capture {
    #[inline]
    fn head(&mut self, head: &ResponseHead<'_>) {
        let ResponseHead { status, keep_alive, framing, .. } = *head;
        self.0 = Some(ParsedHead { status, keep_alive, framing });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    #[test]
    fn a_cached_head_gives_the_same_result() {
        let mut cache = HeadCache::default();
        for _ in 0..3 {
            let mut reader = ResponseReader::new(Limits::default());
            let twice = [ANSWER, ANSWER].concat();
            let first = reader.feed_cached(&twice, false, &mut cache).unwrap();
            assert_eq!(first.used, ANSWER.len());
            let second = reader.feed_cached(&twice[first.used..], false, &mut cache).unwrap();
            assert_eq!((first, Some(200)), (second, first.done.map(|r| r.status)));
        }
        assert_eq!(cache.bytes, &ANSWER[..ANSWER.len() - 2]);
    }

    #[test]
    fn the_same_head_to_a_head_request_has_no_body() {
        let mut cache = HeadCache::default();
        let mut reader = ResponseReader::new(Limits::default());
        assert_eq!(reader.feed_cached(ANSWER, false, &mut cache).unwrap().used, ANSWER.len());
        let head = &ANSWER[..ANSWER.len() - 2];
        assert_eq!(reader.feed_cached(head, true, &mut cache).unwrap().done.unwrap().body_bytes, 0);
        assert_eq!(reader.feed_cached(ANSWER, false, &mut cache).unwrap().done.unwrap().body_bytes, 2);
    }

    #[test]
    fn heads_after_other_bytes_and_above_a_smaller_limit_are_not_cached() {
        let mut cache = HeadCache::default();
        let mut reader = ResponseReader::new(Limits::default());
        let informed = [b"HTTP/1.1 100 Continue\r\n\r\n", ANSWER].concat();
        reader.feed_cached(&informed, false, &mut cache).unwrap();
        reader.feed_cached(&[b"\r\n", ANSWER].concat(), false, &mut cache).unwrap();
        assert!(cache.parsed_head.is_none());
        reader.feed_cached(ANSWER, false, &mut cache).unwrap();
        assert!(cache.parsed_head.is_some());
        let mut narrow = ResponseReader::new(Limits { head_bytes: 20 });
        assert!(narrow.feed_cached(ANSWER, false, &mut cache).is_err());
    }
}
