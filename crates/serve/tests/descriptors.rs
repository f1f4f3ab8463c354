//! Tests a target without free descriptors. Runs in a separate process, because it lowers the process's limit.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serve::{Config, Server};
use testing::{http::Client, until};

#[test]
fn accepting_without_descriptors_is_counted_does_not_spin_and_goes_on_later() {
    let server = Server::bind(Config::default()).unwrap();
    let address = server.local_addrs()[0];
    let stop = Arc::new(AtomicBool::new(false));
    let running = std::thread::spawn({
        let stop = stop.clone();
        move || server.run(stop)
    });
    // An answer shows that the target has accepted the connection.
    let seated = || {
        let mut client = Client::connect(address).unwrap();
        client.get("/");
        client
    };
    let clients: Vec<Client> = (0..4).map(|_| seated()).collect();
    let server_thread = status_of("serve-0");

    // Leaves one descriptor free, which the client's socket takes.
    let (mut late, begun) = {
        let probe = seated();
        let highest = std::os::fd::AsRawFd::as_raw_fd(&probe.socket) as u64 + 64;
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(highest), maximum: limits.maximum }).unwrap();
        let mut fillers = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            fillers.push(file);
        }
        fillers.pop();
        let begun = Instant::now();
        let late = Client::connect(address).unwrap();
        // A thread that spins never yields its processor; one that pauses does so between two attempts.
        let before = sleeps(&server_thread);
        until("the server pauses again and again", || sleeps(&server_thread) >= before + 20);
        (late, begun)
    };
    // The loop's fillers are closed here, so the target can accept the waiting connection.
    late.get("/");
    stop.store(true, Ordering::Relaxed);
    let report = running.join().unwrap();
    drop((clients, late));
    assert_eq!(report.connections_accepted, 6);
    let (failed, most) = (report.accept_errors["EMFILE"], begun.elapsed().as_millis() as u64 / 10 + 1);
    assert!((2..=most).contains(&failed), "{failed} failed accepts, one every 10 ms expected");
}

/// The kernel's status file of the thread with this name.
fn status_of(thread: &str) -> File {
    let mut tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_it = |name: &str| name.trim_end() == thread;
    let found = tasks.find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| is_it(&name)));
    File::open(found.unwrap().join("status")).unwrap()
}

/// How often the thread has yielded its processor. Opens no descriptor, because none is free.
fn sleeps(status: &File) -> u64 {
    let mut text = [0; 4096];
    let length = status.read_at(&mut text, 0).unwrap();
    let text = String::from_utf8_lossy(&text[..length]);
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}
