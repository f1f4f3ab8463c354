//! Measures the memory of idle connections. Runs in a separate process, because memory is measured per process.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use listen::{Config, Server};

const COUNT: u64 = 5_000;
const REQUEST: &[u8] = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn an_idle_connection_holds_little_memory() {
    let folder = tempfile::TempDir::new().unwrap();
    let template = format!("{}/${{tag}}", folder.path().display()).parse().unwrap();
    let mut config = Config::new(segments::Config::new(template));
    // Longer than even a slow machine needs.
    config.timeouts.idle = Duration::from_secs(3_600);
    let server = Server::bind(config, Vec::new()).unwrap();
    let (address, handle) = (server.local_addrs()[0], server.handle());
    let running = std::thread::spawn(move || server.run());
    // The client's side is in this process too, but it takes only a descriptor.
    let connect = |_| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(REQUEST).unwrap();
        let mut answer = [0; 512];
        let received = socket.read(&mut answer).unwrap();
        assert!(answer[..received].starts_with(b"HTTP/1.1 204"));
        socket
    };
    // Lets the thread allocate its shared buffers before the measurement.
    drop((0..16).map(connect).collect::<Vec<_>>());
    let before = resident_bytes();
    let held: Vec<_> = (0..COUNT).map(connect).collect();
    assert!(handle.statistics().connections_open >= COUNT);
    let each = resident_bytes().saturating_sub(before) / COUNT;
    assert!(each <= 4096, "{each} bytes");
    println!("{each} bytes for each of {} connections", held.len());
    drop(held);
    handle.stop();
    running.join().unwrap();
}
