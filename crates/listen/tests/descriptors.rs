//! A listener whose clients take all descriptors they can get. In a process of its own, for it lowers the limit.

use std::time::Duration;

use listen::{Config, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testing::http::{Client, post_json};

/// Of this process, the clients included.
const LIMIT: u64 = 400;
/// More files than that would leave room for: fewer are open at once.
const FILES: usize = 1_000;

#[test]
fn clients_leave_the_storage_its_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: limit.maximum }).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let template = format!("{}/${{tag}}", folder.path().display()).parse().unwrap();
    // However slow this machine is.
    let long = Duration::from_secs(3_600);
    let store =
        segments::Config { max_open: FILES, descriptor_wait: long, ..segments::Config::new(template) };
    let mut config = Config::new(segments::Config { close_wait: long, ..store });
    (config.timeouts.idle, config.timeouts.store) = (long, long);
    let server = Server::bind(config, Vec::new()).unwrap();
    let (address, handle) = (server.local_addrs()[0], server.handle());
    let running = std::thread::spawn(move || server.run());
    let mut clients = Vec::new();
    let refused_open = loop {
        let mut client = Client::connect(address).unwrap();
        // One that is turned away may be closed already.
        let answer = client.ask(&post_json("/first", "", b"{}")).unwrap();
        if answer.status != 204 {
            break answer;
        }
        clients.push(client);
        assert!(clients.len() < LIMIT as usize, "there is no bound");
    };
    assert_eq!(refused_open.status, 503, "{refused_open:?}");
    assert!(clients.len() >= 50, "{}", clients.len());
    // Those that are in can still have events stored in files of their own.
    for number in 0..300 {
        let answer = clients[0].post(&format!("/later{number}"), "{}");
        assert_eq!(answer.status, 204, "{number}: {answer:?}");
    }
    drop(clients);
    handle.stop();
    let report = running.join().unwrap();
    assert_eq!((report.statistics.accept_errors, report.close_error), (0, None));
}
