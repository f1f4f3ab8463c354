//! A listener whose clients take all descriptors they can get. In a process of its own, for it lowers the limit.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use listen::{Config, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of this process, the clients included.
const LIMIT: u64 = 400;
/// More files than that would leave room for: fewer are open at once.
const FILES: usize = 1_000;

fn post(socket: &mut TcpStream, tag: &str) -> String {
    let head = format!("POST /{tag} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}");
    // One that was turned away may be closed already.
    let _ = socket.write_all(head.as_bytes());
    let mut answer = [0; 512];
    let received = socket.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..received]).into_owned()
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

#[test]
fn clients_leave_the_storage_its_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: limit.maximum }).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let template = format!("{}/${{tag}}", folder.path().display()).parse().unwrap();
    let store = segments::Config { max_open: FILES, ..segments::Config::new(template) };
    let server = Server::bind(Config::new(store), Vec::new()).unwrap();
    let (address, handle) = (server.local_addrs()[0], server.handle());
    let running = std::thread::spawn(move || server.run());
    let mut clients = Vec::new();
    let refused_open = loop {
        let mut client = connect(address);
        let answer = post(&mut client, "first");
        if !answer.starts_with("HTTP/1.1 204") {
            break answer;
        }
        clients.push(client);
        assert!(clients.len() < LIMIT as usize, "there is no bound");
    };
    assert!(refused_open.starts_with("HTTP/1.1 503"), "{refused_open:?}");
    assert!(clients.len() >= 50, "{}", clients.len());
    // Those that are in can still have events stored in files of their own.
    for number in 0..300 {
        let answer = post(&mut clients[0], &format!("later{number}"));
        assert!(answer.starts_with("HTTP/1.1 204"), "{number}: {answer:?}");
    }
    drop(clients);
    handle.stop();
    let report = running.join().unwrap();
    assert_eq!((report.statistics.accept_errors, report.close_error), (0, None));
}
