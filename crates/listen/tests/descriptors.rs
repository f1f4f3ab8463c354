//! Tests a listener whose clients take all descriptors. Runs in a separate process, because it lowers the process's
//! limit.

use std::time::Duration;

use listen::{Config, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testing::http::{Client, post_json};

/// Descriptor limit of this process; the clients' descriptors count too.
const LIMIT: u64 = 400;
/// More files than the limit allows, so that the listener keeps fewer open.
const FILES: usize = 1_000;

#[test]
fn clients_leave_the_storage_its_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: limit.maximum }).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let template = format!("{}/${{tag}}", folder.path().display()).parse().unwrap();
    // Longer than even a slow machine needs.
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
        // The listener may have closed a refused connection already.
        let answer = client.ask(&post_json("/first", "", b"{}")).unwrap();
        if answer.status != 204 {
            break answer;
        }
        clients.push(client);
        assert!(clients.len() < LIMIT as usize, "there is no bound");
    };
    assert_eq!(refused_open.status, 503, "{refused_open:?}");
    assert!(clients.len() >= 50, "{}", clients.len());
    // Accepted clients can still store events in new files.
    for number in 0..300 {
        let answer = clients[0].post(&format!("/later{number}"), "{}");
        assert_eq!(answer.status, 204, "{number}: {answer:?}");
    }
    drop(clients);
    handle.stop();
    let report = running.join().unwrap();
    assert_eq!((report.statistics.accept_errors, report.close_error), (0, None));
}
