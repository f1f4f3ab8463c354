//! Watches the data that a host still sends for programs that have ended.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::job::{Rest, Sent};

/// Interval between two reads of the tables.
const INTERVAL: Duration = Duration::from_micros(500);
/// Size of the buffer for a table of sockets.
const BUFFER_BYTES: usize = 1 << 16;
/// The kernel fills a page with as many whole lines as fit before a read returns, so a shorter read is the last of a table.
const LAST_READ_BYTES: usize = 2_048;

/// Watches the sockets and the sent datagrams of this process's host.
pub(crate) struct Watch {
    tables: Vec<File>,
    text: Vec<u8>,
    sent_before: Sent,
}

impl Watch {
    /// Opens the tables of sockets, and reads the counters of sent data.
    ///
    /// # Errors
    /// If `/proc` does not have them.
    pub(crate) fn start() -> io::Result<Self> {
        let mut tables = vec![File::open("/proc/thread-self/net/tcp")?];
        // A kernel without IPv6 does not have this table.
        tables.extend(File::open("/proc/thread-self/net/tcp6").ok());
        Ok(Self { tables, text: vec![0; BUFFER_BYTES], sent_before: sent() })
    }

    /// Reads the tables of sockets until the other sides have acknowledged all bytes, at most for `settle`.
    ///
    /// # Errors
    /// If the tables cannot be read.
    pub(crate) fn finish(mut self, ended_s: f64, settle: Duration, stop: &AtomicBool) -> io::Result<Rest> {
        let until = Instant::now() + settle;
        let mut bytes = self.unacknowledged_bytes()?;
        let looked_s = clock::monotonic_s();
        let (first_bytes, mut between_s) = (bytes, (ended_s, looked_s));
        while bytes > 0 && Instant::now() < until && !stop.load(Ordering::Relaxed) {
            thread::sleep(INTERVAL);
            bytes = self.unacknowledged_bytes()?;
            between_s = (between_s.1, clock::monotonic_s());
        }
        let (now, before) = (sent(), self.sent_before);
        let sent = Sent {
            datagrams: now.datagrams.saturating_sub(before.datagrams),
            segments: now.segments.saturating_sub(before.segments),
            resets: now.resets.saturating_sub(before.resets),
            mptcp_connections: now.mptcp_connections.saturating_sub(before.mptcp_connections),
        };
        Ok(Rest { looked_s, bytes: first_bytes, between_s, is_acknowledged: bytes == 0, sent })
    }

    fn unacknowledged_bytes(&mut self) -> io::Result<u64> {
        let mut bytes = 0;
        for mut table in std::mem::take(&mut self.tables) {
            let of_table = self.unacknowledged_bytes_in(&mut table)?;
            bytes += of_table;
            // Programs that have ended open no connections, so a table without unacknowledged bytes needs no further readings.
            if of_table > 0 {
                self.tables.push(table);
            }
        }
        Ok(bytes)
    }

    fn unacknowledged_bytes_in(&mut self, table: &mut File) -> io::Result<u64> {
        table.rewind()?;
        let mut length = 0;
        // Each read makes the kernel walk its whole table, which takes up to a millisecond, so keep the buffer large and the reads few.
        loop {
            if self.text.len() - length < BUFFER_BYTES / 2 {
                self.text.resize(self.text.len() * 2, 0);
            }
            let read = table.read(&mut self.text[length..])?;
            length += read;
            if read < LAST_READ_BYTES {
                return Ok(kernel::unacknowledged_bytes(&String::from_utf8_lossy(&self.text[..length])));
            }
        }
    }
}

/// The counters of this process's host.
fn sent() -> Sent {
    let text = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    let (both, ipv6) = (text("snmp"), text("snmp6"));
    // The counters of TCP cover both versions of IP.
    let tcp = |name| kernel::protocol_number(&both, "Tcp", name).unwrap_or(0);
    let datagrams = kernel::protocol_number(&both, "Udp", "OutDatagrams").unwrap_or(0);
    Sent {
        datagrams: datagrams + kernel::number(&ipv6, "Udp6OutDatagrams").unwrap_or(0),
        segments: tcp("OutSegs"),
        resets: tcp("EstabResets") + tcp("OutRsts"),
        mptcp_connections: kernel::protocol_number(&text("netstat"), "MPTcpExt", "MPCapableSYNTX")
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream, UdpSocket},
        process::Command,
    };

    use super::*;

    /// Environment variable that a test sets in the process that it starts in a new namespace.
    const INSIDE: &str = "REST_TEST_IS_INSIDE";

    #[test]
    fn datagrams_are_counted() {
        let before = sent();
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", "127.0.0.1:9").unwrap();
        assert!(sent().datagrams > before.datagrams);
    }

    #[test]
    fn bytes_of_a_closed_connection_are_watched_until_they_are_acknowledged() {
        // The watch sees the closed connections of the whole namespace, so other tests must not run in it.
        if std::env::var_os(INSIDE).is_none() {
            let test = "rest::tests::bytes_of_a_closed_connection_are_watched_until_they_are_acknowledged";
            let mut inside = Command::new("unshare");
            inside.args(["-Urn", "sh", "-ec", "ip link set lo up; exec \"$0\" --exact \"$1\""]);
            let output =
                inside.arg(std::env::current_exe().unwrap()).arg(test).env(INSIDE, "1").output().unwrap();
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            return assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.write(&[0; 1 << 16]).is_ok() {}
        let watch = Watch::start().unwrap();
        drop(sender);
        let stop = AtomicBool::new(false);
        let rest = watch.finish(0.0, Duration::from_millis(20), &stop).unwrap();
        assert!(rest.bytes > 10_000 && !rest.is_acknowledged, "nobody reads: {rest:?}");
        let reader = thread::spawn(move || io::copy(&mut &receiver, &mut io::sink()));
        let rest = Watch::start().unwrap().finish(0.0, testing::PATIENCE, &stop).unwrap();
        assert!(rest.is_acknowledged && rest.between_s.0 <= rest.between_s.1, "{rest:?}");
        reader.join().unwrap().unwrap();
    }
}
