//! Devices that end before their link does.

use std::{fs, path::PathBuf};

use super::*;

#[test]
fn a_device_that_is_gone_is_not_waited_for() {
    let gone = || {
        // The end for writing of a pipe without a reader: like a device that is gone, it cannot be read, and is
        // always ready.
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
        thread::sleep(Duration::from_millis(300));
        // No packet, and so no counter, has a share in it.
        let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let is_mover =
            |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "link-test\n");
        let stat = fs::read_to_string(tasks.into_iter().find(is_mover).unwrap().join("schedstat")).unwrap();
        let cpu_ns: u64 = stat.split_whitespace().next().unwrap().parse().unwrap();
        assert!(cpu_ns < 100_000_000, "{cpu_ns} ns");
        drop(forwarder);
    }
}
