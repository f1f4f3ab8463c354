//! A target that has run out of file descriptors. In a process of its own, for it lowers the limit.

use std::{
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serve::{Config, Server};

#[test]
fn accepting_without_descriptors_is_counted_does_not_spin_and_goes_on_later() {
    let server = Server::bind(Config::default()).unwrap();
    let address = server.local_addrs()[0];
    let stop = Arc::new(AtomicBool::new(false));
    let running = std::thread::spawn({
        let stop = stop.clone();
        move || server.run(stop)
    });
    let clients: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(50));

    // No descriptor above those open now: the client's own socket takes the last.
    let late = {
        let probe = TcpStream::connect(address).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let highest = std::os::fd::AsRawFd::as_raw_fd(&probe) as u64 + 64;
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(highest), maximum: limits.maximum }).unwrap();
        let mut fillers = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            fillers.push(file);
        }
        fillers.pop();
        let late = TcpStream::connect(address).unwrap();
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(300));
        let busy = cpu_time() - before;
        assert!(busy < Duration::from_millis(100), "busy for {busy:?} of 300 ms");
        late
    };
    // The fillers are closed: the connection that waited is taken in.
    std::thread::sleep(Duration::from_millis(100));
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
