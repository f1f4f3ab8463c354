//! A target that has run out of file descriptors. In a process of its own, for it lowers the limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serve::{Config, Server};
use testing::http::Client;

#[test]
fn accepting_without_descriptors_is_counted_does_not_spin_and_goes_on_later() {
    let server = Server::bind(Config::default()).unwrap();
    let address = server.local_addrs()[0];
    let stop = Arc::new(AtomicBool::new(false));
    let running = std::thread::spawn({
        let stop = stop.clone();
        move || server.run(stop)
    });
    // An answer tells that the connection was taken in.
    let seated = || {
        let mut client = Client::connect(address).unwrap();
        client.get("/");
        client
    };
    let clients: Vec<Client> = (0..4).map(|_| seated()).collect();

    // No descriptor above those open now: the client's own socket takes the last.
    let mut late = {
        let probe = seated();
        let highest = std::os::fd::AsRawFd::as_raw_fd(&probe.socket) as u64 + 64;
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(highest), maximum: limits.maximum }).unwrap();
        let mut fillers = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            fillers.push(file);
        }
        fillers.pop();
        let late = Client::connect(address).unwrap();
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(300));
        let busy = cpu_time() - before;
        assert!(busy < Duration::from_millis(100), "busy for {busy:?} of 300 ms");
        late
    };
    // The fillers are closed: the connection that waited is taken in.
    late.get("/");
    stop.store(true, Ordering::Relaxed);
    let report = running.join().unwrap();
    drop((clients, late));
    assert_eq!(report.connections_accepted, 6);
    let failed = report.accept_errors["EMFILE"];
    assert!((5..=40).contains(&failed), "{failed} failed accepts within 300 ms, one every 10 ms expected");
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
