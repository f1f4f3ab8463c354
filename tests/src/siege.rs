//! Hostile clients that a server must withstand: too many, too slow, too long, too large, and not speaking HTTP.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};
use testing::PATIENCE;

use crate::{process::Launch, random::Random};

/// Number of connections that send nothing.
const IDLE: usize = 10_000;
/// Number of connections whose head never ends, and also of those whose body never ends. Each sends one byte a second.
const SLOW: usize = 200;
/// Number of connections that endlessly send chunks.
const ENDLESS: usize = 4;
/// Number of connections with garbage, and of compressed bombs, per second.
const GARBAGE_PER_S: u32 = 50;
const BOMBS_PER_S: u32 = 2;
/// Size of an inflated bomb, in MiB.
const BOMB_MIB: u64 = 256;

/// Hostile clients, which run until dropped. They share one thread, to take little processor time from the good clients.
#[derive(Debug)]
pub struct Siege {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    ready: AtomicBool,
    bombs: AtomicU64,
    garbage: AtomicU64,
    chunks: AtomicU64,
    reopened: AtomicU64,
}

/// The numbers of hostile actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deeds {
    /// Compressed bombs sent.
    pub bombs: u64,
    /// Connections with garbage.
    pub garbage: u64,
    /// Chunks of bodies that never end.
    pub chunks: u64,
    /// Connections that the server had closed and the clients opened again.
    pub reopened: u64,
}

impl Siege {
    /// Opens the connections, and starts the hostile actions.
    ///
    /// # Errors
    /// If the server does not accept the connections, or the bomb cannot be made.
    pub fn begin(address: SocketAddr, core: u32) -> Result<Self> {
        let (shared, bomb) = (Arc::new(Shared::default()), bomb()?);
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            stay_on(core);
            let _ = besiege(address, &own, &bomb);
        });
        let siege = Self { shared, thread: Some(thread) };
        let begun = Instant::now();
        while !siege.shared.ready.load(Ordering::Acquire) {
            ensure!(begun.elapsed() < PATIENCE, "the hostile connections were not all taken");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(siege)
    }

    /// Ends the siege, and returns the numbers of its actions.
    ///
    /// # Errors
    /// If it had ended by itself.
    pub fn end(mut self) -> Result<Deeds> {
        let thread = self.thread.take().context("it has ended")?;
        ensure!(!thread.is_finished(), "the hostile clients gave up");
        self.shared.stop.store(true, Ordering::Release);
        let _ = thread.join();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(Deeds {
            bombs: read(&self.shared.bombs),
            garbage: read(&self.shared.garbage),
            chunks: read(&self.shared.chunks),
            reopened: read(&self.shared.reopened),
        })
    }
}

impl Drop for Siege {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A request whose body is small and inflates to [`BOMB_MIB`].
fn bomb() -> Result<Vec<u8>> {
    let body = gzipped(&format!("head -c {BOMB_MIB}M /dev/zero"))?;
    let mut request = format!(
        "POST /bomb HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(&body);
    Ok(request)
}

/// Pins this thread to a processor.
pub fn stay_on(core: u32) {
    let mut only = CpuSet::new();
    only.set(core as usize);
    // If this processor is not allowed, the thread stays where it is.
    let _ = sched_setaffinity(None, &only);
}

/// The output of a shell line, compressed with gzip.
///
/// # Errors
/// If gzip is not installed.
pub fn gzipped(line: &str) -> Result<Vec<u8>> {
    let line = format!("({line}) | gzip -9 | base64 -w 0");
    let made = Launch::new("sh").args(["-c", &line]).run(PATIENCE)?;
    let body = unbase64(made.stdout.trim().as_bytes());
    ensure!(body.starts_with(&[0x1f, 0x8b]), "gzip did not pack: {}", made.stderr);
    Ok(body)
}

/// Decodes base64 (RFC 4648).
fn unbase64(text: &[u8]) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for quad in text.chunks(4) {
        let used: Vec<u32> = quad.iter().filter(|&&byte| byte != b'=').map(|&byte| value(byte)).collect();
        let word = used.iter().enumerate().fold(0, |word, (place, value)| word | value << (18 - 6 * place));
        bytes.extend_from_slice(&word.to_be_bytes()[1..used.len().max(1)]);
    }
    bytes
}

fn besiege(address: SocketAddr, shared: &Shared, bomb: &[u8]) -> Result<()> {
    let open = || -> Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    let idle = (0..IDLE).map(|_| open()).collect::<Result<Vec<_>>>()?;
    let head = b"POST /slow HTTP/1.1\r\nHost: x\r\nX-Never-Ends: ".as_slice();
    let body = b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n{";
    let chunked = b"POST /endless HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n\
                    Transfer-Encoding: chunked\r\n\r\n"
        .as_slice();
    let line = format!("{{\"filler\":\"{}\"}}\n", "x".repeat(2_000));
    let chunk = format!("{:x}\r\n{line}\r\n", line.len()).into_bytes();
    let mut slow = Vec::new();
    for place in 0..2 * SLOW {
        slow.push((open()?, if place < SLOW { head } else { body.as_slice() }));
    }
    let mut endless = (0..ENDLESS).map(|_| open()).collect::<Result<Vec<_>>>()?;
    slow.iter_mut().for_each(|(stream, first)| drop(stream.write(first)));
    endless.iter_mut().for_each(|stream| drop(stream.write(chunked)));
    shared.ready.store(true, Ordering::Release);

    let mut random = Random::new(0x7369_6567);
    let (mut recent, mut bombs): (Vec<TcpStream>, Vec<(TcpStream, usize)>) = (Vec::new(), Vec::new());
    // A loop of 100 steps per second.
    for step in 0_u32.. {
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        for (place, (stream, first)) in slow.iter_mut().enumerate() {
            if place % 100 == step as usize % 100 && is_gone(stream, b"x") {
                *stream = open()?;
                let _ = stream.write(first);
                shared.reopened.fetch_add(1, Ordering::Relaxed);
            }
        }
        for stream in &mut endless {
            if is_gone(stream, &chunk) {
                *stream = open()?;
                let _ = stream.write(chunked);
                shared.reopened.fetch_add(1, Ordering::Relaxed);
            }
            shared.chunks.fetch_add(1, Ordering::Relaxed);
        }
        if step % (100 / GARBAGE_PER_S) == 0 {
            let mut stream = open()?;
            let bytes: Vec<u8> = (0..64).flat_map(|_| random.any().to_le_bytes()).collect();
            let _ = stream.write(&bytes);
            recent.push(stream);
            if recent.len() > 100 {
                recent.remove(0);
            }
            shared.garbage.fetch_add(1, Ordering::Relaxed);
        }
        if step % (100 / BOMBS_PER_S) == 0 {
            bombs.push((open()?, 0));
            shared.bombs.fetch_add(1, Ordering::Relaxed);
        }
        bombs.retain_mut(|(stream, sent)| match stream.write(&bomb[*sent..]) {
            Ok(n) => {
                *sent += n;
                *sent < bomb.len() || !is_answered(stream)
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(idle);
    Ok(())
}

/// Sends more bytes. Returns whether the server has closed the connection, or has answered and so will not read more.
fn is_gone(stream: &mut TcpStream, more: &[u8]) -> bool {
    let failed = |error: &std::io::Error| error.kind() != ErrorKind::WouldBlock;
    is_answered(stream) || stream.write(more).is_err_and(|error| failed(&error))
}

fn is_answered(stream: &mut TcpStream) -> bool {
    !stream.read(&mut [0; 4096]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_base64_wrote_is_read() {
        let read = |text: &str| String::from_utf8(unbase64(text.as_bytes())).unwrap();
        assert_eq!(
            [read("Zm9vYmFy"), read("Zm9vYmE="), read("Zm9vYg=="), read("")],
            ["foobar", "fooba", "foob", ""]
        );
    }
}
