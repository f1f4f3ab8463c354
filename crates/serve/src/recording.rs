//! Writes every complete request to a file as a line of JSON.

use std::{
    fs::File,
    io::Write as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use files::Watched;
use serde_json::{Map, Value, json};

use crate::{
    Error, Record,
    asked::{Asked, put_body},
};

/// A thread writes its lines when they reach this size in bytes.
const WRITE_BYTES: usize = 256 * 1024;
/// Maximum nanoseconds for which a line waits in memory.
const WRITE_AFTER_NS: u64 = 100_000_000;

/// The record's file, which the threads of a target share.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: Mutex<Watched<File>>,
    /// Maximum number of body bytes in a line.
    pub body_bytes: usize,
    connections: AtomicU64,
    failed: Mutex<Option<String>>,
}

impl Recorder {
    /// Opens the file. Only its owner may read it, because requests contain unmasked secrets.
    pub(crate) fn open(record: &Record) -> Result<Self, Error> {
        let file = files::written("--record", &record.file, false, 0o600);
        let file = file.map_err(|cause| Error::Record { path: record.file.clone(), cause })?;
        let body_bytes = usize::try_from(record.body_bytes).unwrap_or(usize::MAX);
        Ok(Self {
            file: Mutex::new(file),
            body_bytes,
            connections: AtomicU64::new(0),
            failed: Mutex::new(None),
        })
    }

    /// The number of the next connection, starting at 1.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The error that caused missing lines; `None` if none are missing.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, lines: &[u8]) {
        // Writes complete lines under the lock, so that the lines of several threads do not mix.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // After an error, the file may end in an incomplete line, which would corrupt the next one.
        if self.failure().is_some() {
            return;
        }
        if let Err(error) = file.write_all(lines) {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.to_string());
        }
    }
}

/// Lines of one thread that are not in the file yet.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    /// The file that the lines go to.
    pub recorder: &'a Recorder,
    bytes: Vec<u8>,
    /// When the first of these lines was added, in nanoseconds of CLOCK_MONOTONIC.
    since_ns: u64,
}

/// Facts about a request that its line contains in addition to the content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// When the request's last byte was read, in nanoseconds of CLOCK_MONOTONIC.
    pub received_ns: u64,
    /// The number of the request's connection.
    pub connection: u64,
    /// Whether the TLS session was resumed; `None` without TLS.
    pub resumed: Option<bool>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(recorder: &'a Recorder) -> Self {
        Self { recorder, bytes: Vec::new(), since_ns: 0 }
    }

    /// Adds a line for a request.
    pub(crate) fn add(&mut self, asked: &Asked, circumstances: &Circumstances) {
        if self.bytes.is_empty() {
            self.since_ns = circumstances.received_ns;
        }
        let line = line(asked, circumstances, self.recorder.body_bytes);
        serde_json::to_writer(&mut self.bytes, &line).expect("a vector takes all bytes");
        self.bytes.push(b'\n');
        if self.bytes.len() >= WRITE_BYTES {
            self.write();
        }
    }

    /// Writes the lines if the oldest has waited long enough.
    pub(crate) fn write_if_due(&mut self) {
        if !self.bytes.is_empty() && clock::monotonic_ns() >= self.since_ns + WRITE_AFTER_NS {
            self.write();
        }
    }

    /// Writes all waiting lines to the file.
    pub(crate) fn write(&mut self) {
        self.recorder.write(&self.bytes);
        self.bytes.clear();
    }
}

fn line(asked: &Asked, circumstances: &Circumstances, body_bytes: usize) -> Value {
    let mut map = Map::new();
    let tls = circumstances.resumed.map(|resumed| if resumed { "resumed" } else { "new" });
    map.insert("received_ns".to_owned(), circumstances.received_ns.into());
    map.insert("connection".to_owned(), circumstances.connection.into());
    map.insert("tls".to_owned(), tls.into());
    map.insert("method".to_owned(), asked.method.as_str().into());
    map.insert("target".to_owned(), asked.target.as_str().into());
    map.insert("headers".to_owned(), json!(asked.headers));
    let kept = &asked.body[..asked.body.len().min(body_bytes)];
    put_body(&mut map, kept);
    map.insert("body_bytes".to_owned(), asked.body_bytes.into());
    map.insert("truncated".to_owned(), (asked.body_bytes > kept.len() as u64).into());
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_holds_what_was_asked(
            method in "[A-Z]{1,5}", target in "/[!-~]{0,20}", value in ".{0,20}",
            body in prop::collection::vec(any::<u8>(), 0..30), limit in 0_usize..30
        ) {
            let asked = Asked {
                method: method.clone(),
                target: target.clone(),
                headers: vec![("X".to_owned(), value.clone())],
                body_bytes: body.len() as u64,
                body: body.clone(),
                limit: 99,
            };
            let circumstances = Circumstances { received_ns: 7, connection: 3, resumed: Some(true) };
            let text = line(&asked, &circumstances, limit).to_string();
            prop_assert!(!text.contains('\n'));
            let read: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read["method"], &json!(method));
            prop_assert_eq!(&read["target"], &json!(target));
            prop_assert_eq!(&read["headers"], &json!([["X", value]]));
            prop_assert_eq!(&read["tls"], &json!("resumed"));
            prop_assert_eq!(&read["truncated"], &json!(body.len() > limit));
            let kept = &body[..body.len().min(limit)];
            match str::from_utf8(kept) {
                Ok(text) => prop_assert_eq!(&read["body"], &json!(text)),
                Err(_) => prop_assert!(read["body_base64"].is_string()),
            }
        }
    }
}
