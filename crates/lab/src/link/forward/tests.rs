//! Tests of devices that have disappeared and of absences of the thread.

use std::os::unix::net::UnixDatagram;

use super::*;
use crate::link::packet::VIRTIO_BYTES;

/// A device and the host's end of it.
fn device() -> (Arc<File>, UnixDatagram) {
    let (device, host) = UnixDatagram::pair().unwrap();
    device.set_nonblocking(true).unwrap();
    (Arc::new(File::from(OwnedFd::from(device))), host)
}

fn pipe() -> Pipe {
    Pipe::new(Shape::default(), 0)
}

fn mover([a, b]: [Arc<File>; 2]) -> Mover {
    Mover {
        ways: [
            OneWay::new(Arc::clone(&a), Arc::clone(&b), pipe(), 1 << 21),
            OneWay::new(b, a, pipe(), 1 << 21),
        ],
        wakeup: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
        inbox: mpsc::channel().1,
        spin: SpinTail::new(0),
        slept_ns: 0,
        is_batching: false,
        absences: AwayCounter::default(),
        has_backlog: false,
        next_check_ns: monotonic_ns(),
    }
}

#[test]
fn what_waited_while_the_thread_was_away_is_late() {
    let ((a, host), (b, _other)) = (device(), device());
    let mut mover = mover([a, b]);
    mover.next_check_ns -= 50_000_000;
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
        // The write end of a pipe without a reader is always ready but cannot be read, like a device that has
        // disappeared.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Arc::new(File::from(OwnedFd::from(writer)))
    };
    let (quiet, host) = device();
    for devices in [[gone(), gone()], [gone(), Arc::clone(&quiet)], [Arc::clone(&quiet), gone()]] {
        let has_quiet = devices.iter().any(|device| Arc::ptr_eq(device, &quiet));
        let mut mover = mover(devices.clone());
        assert_eq!(mover.read_some(), (0, false));
        // A wait that ended too early would be repeated at once and keep the processor busy.
        assert_eq!(mover.poll(MAX_SLEEP_NS, true), (false, false));
        host.send(&[0; VIRTIO_BYTES + 40]).unwrap();
        assert_eq!(mover.poll(MAX_SLEEP_NS, true), (has_quiet, false), "the other one is watched");
        write(&*mover.wakeup, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(mover.poll(MAX_SLEEP_NS, true), (has_quiet, true));
        while read(&*quiet, &mut [0; 64]).is_ok() {}

        let forwarder = Forwarder::start("link-test", devices, [pipe(), pipe()], 1 << 20).unwrap();
        testing::until("it runs", || forwarder.counters().is_some());
    }
}
