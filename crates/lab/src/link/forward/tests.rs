//! Tests of devices that are gone and of a thread that is away.

use std::{fs, os::unix::net::UnixDatagram, path::PathBuf};

use super::*;
use crate::link::packet::VIRTIO_BYTES;

#[test]
fn what_waited_while_the_thread_was_away_is_late() {
    let device = || {
        let (device, host) = UnixDatagram::pair().unwrap();
        device.set_nonblocking(true).unwrap();
        (Arc::new(File::from(OwnedFd::from(device))), host)
    };
    let ((a, host), (b, _other)) = (device(), device());
    let pipe = || Pipe::new(Shape::default(), 0);
    let (_orders, inbox) = mpsc::channel();
    let mut mover = Mover {
        ways: [
            OneWay::new(Arc::clone(&a), Arc::clone(&b), pipe(), 1 << 21),
            OneWay::new(b, a, pipe(), 1 << 21),
        ],
        wakeup: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
        inbox,
        spin: SpinTail::new(0),
        slept_ns: 0,
        is_batching: false,
        away: LinkAway::default(),
        has_backlog: false,
        next_check_ns: monotonic_ns() - 50_000_000,
    };
    let packet = [0; VIRTIO_BYTES + 40];
    for _ in 0..40 {
        host.send(&packet).unwrap();
    }
    while mover.read_some().1 {}
    let [a_to_b, b_to_a] = mover.count();
    assert_eq!((a_to_b.late_packets, b_to_a.late_packets), (40, 0), "more than one turn reads");
    let away = a_to_b.away;
    assert!(away.times >= 1 && away.longest_ns >= 50_000_000, "{away:?}");
    assert_eq!(b_to_a.away, away, "one thread moves both");
    assert!(mover.count()[0].away.longest_ns >= 50_000_000, "a reading forgets nothing");
    assert!(!mover.has_backlog, "nothing waits any more");
}

#[test]
fn a_device_that_is_gone_is_not_waited_for() {
    let gone = || {
        // The write end of a pipe without a reader cannot be read and is always ready, like a device that is gone.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Arc::new(File::from(OwnedFd::from(writer)))
    };
    let pipes = || [0; 2].map(|_| Pipe::new(Shape::default(), 0));
    let (quiet, _held) = std::os::unix::net::UnixStream::pair().unwrap();
    quiet.set_nonblocking(true).unwrap();
    let quiet = Arc::new(File::from(OwnedFd::from(quiet)));
    for devices in [[gone(), gone()], [gone(), Arc::clone(&quiet)], [quiet, gone()]] {
        let forwarder = Forwarder::start("link-test", devices, pipes(), 1 << 20).unwrap();
        forwarder.counters().expect("it runs");
        // The time in which it must use little of a processor.
        thread::sleep(Duration::from_millis(300));
        // No packets were moved, so the link's counters do not show this processor time.
        let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let is_mover =
            |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "link-test\n");
        let stat = fs::read_to_string(tasks.into_iter().find(is_mover).unwrap().join("schedstat")).unwrap();
        let cpu_ns: u64 = stat.split_whitespace().next().unwrap().parse().unwrap();
        assert!(cpu_ns < 100_000_000, "{cpu_ns} ns");
        drop(forwarder);
    }
}
