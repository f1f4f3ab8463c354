//! Tests of an overloaded budget and of a failing storage.

use std::path::Path;

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use tempfile::TempDir;
use testing::until;

use crate::testbed::Testbed;

#[test]
fn what_does_not_fit_the_budget_is_refused_before_its_body() {
    let testbed = Testbed::with(|config| {
        config.limits.budget_bytes = 100_000;
        config.limits.body_bytes = 100_000;
        config.limits.inflated_bytes = 100_000;
        config.limits.retry_after_s = 7;
    });
    // A request that takes most of the budget and then stops sending.
    let mut large = testbed.connect();
    large.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n{\"a\":\"");
    large.send("x".repeat(89_000));
    until("it came", || testbed.handle.statistics().budget_used_bytes >= 89_000);
    let mut second = testbed.connect();
    second.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 50000\r\n\r\n");
    let answer = second.answer();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("7")));
    assert!(second.is_closed());
    // After the refusal of a body that has arrived completely, the connection stays open.
    let mut third = testbed.connect();
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(20_000));
    assert_eq!(third.post("/a", &body).status, 503);
    // Small requests still fit into the budget.
    assert_eq!(third.post("/a", "{}").status, 204);
    large.send(format!("{}\"}}", "x".repeat(90_000 - 89_000 - 8)));
    assert_eq!(large.answer().status, 204);
    assert_eq!(third.post("/a", &body).status, 204);
    assert_eq!(testbed.handle.statistics().refused["budget"], 2);
    testbed.has_free_budget();
}

#[test]
fn overload_can_be_told_as_429() {
    let testbed = Testbed::with(|config| {
        config.limits.budget_bytes = 100_000;
        config.limits.body_bytes = 100_000;
        config.limits.inflated_bytes = 100_000;
        config.limits.overload_status = 429;
        config.format = events::LineFormat::OutFile { time: true, tag: true };
    });
    let mut large = testbed.connect();
    large.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n{\"a\":\"");
    large.send("x".repeat(89_000));
    until("it came", || testbed.handle.statistics().budget_used_bytes >= 89_000);
    // The body fits into the rest of the budget, but the lines of its 1,000 small events do not.
    let answer = testbed.connect().post("/a", "{}\n".repeat(1_000));
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    assert_eq!(testbed.stored("a"), "");
}

#[test]
fn a_small_body_that_becomes_more_lines_than_all_may_have_is_told_that_it_never_fits() {
    let testbed = Testbed::with(|config| {
        config.limits.budget_bytes = 1 << 20;
        config.limits.body_bytes = 1 << 20;
        config.limits.inflated_bytes = 1 << 20;
        config.format = events::LineFormat::OutFile { time: true, tag: true };
    });
    let path = format!("/{}", "t".repeat(1_000));
    let answer = testbed.connect().post(&path, "{}\n".repeat(100_000));
    assert_eq!((answer.status, answer.header("retry-after")), (413, None), "{answer:?}");
    assert!(answer.text().contains("send it in parts"), "{answer:?}");
    assert_eq!(testbed.connect().post(&path, "{}\n".repeat(500)).status, 204);
    testbed.has_free_budget();
}

#[test]
fn a_key_that_finds_no_room_beside_its_lines_never_will() {
    let testbed = Testbed::with(|config| {
        config.limits.budget_bytes = 100_000;
        config.limits.body_bytes = 100_000;
        config.limits.inflated_bytes = 100_000;
    });
    // Even without other requests, the lines leave only 45 bytes of the budget.
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(99_570 - 8));
    let key = format!("Idempotency-Key: {}\r\n", "k".repeat(255));
    let mut client = testbed.connect();
    let answer = client.post_with("/a", &key, &body);
    assert_eq!((answer.status, answer.header("retry-after")), (413, None), "{answer:?}");
    assert_eq!(client.post("/a", &body).status, 204);
    testbed.has_free_budget();
}

/// A small filesystem that only the threads of one test see.
struct Small(TempDir);

impl Small {
    /// Runs a test on a small filesystem. Mounting requires root, so `make test` skips these tests for other users.
    fn run(bytes: u64, test: impl FnOnce(&Self) + Send) {
        let run = || {
            // The new mount namespace applies to this thread and to those that it starts.
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            let small = Self(TempDir::new().unwrap());
            small.mount(MsFlags::empty(), bytes).unwrap();
            test(&small);
        };
        let outcome = std::thread::scope(|scope| scope.spawn(run).join());
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Mounts the filesystem, or changes its size.
    fn mount(&self, flags: MsFlags, bytes: u64) -> nix::Result<()> {
        let size = format!("size={bytes}");
        mount(Some("proofload-test"), self.path(), Some("tmpfs"), flags, Some(size.as_str()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}

#[test]
fn as_root_a_full_disk_is_told_and_goes_by_without_a_restart() {
    Small::run(256 * 1024, full_disk);
}

fn full_disk(small: &Small) {
    let store = crate::testbed::store(small.path());
    let testbed = Testbed::with(|config| config.store = store);
    let mut client = testbed.connect();
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(10_000));
    let mut acknowledged = Vec::new();
    let full = loop {
        assert!(acknowledged.len() < 100, "the disk is never full");
        let answer = client.post("/a", &body);
        if answer.status != 204 {
            break answer;
        }
        acknowledged.extend(answer.receipts());
    };
    assert_eq!((full.status, full.header("retry-after")), (507, Some("1")), "{full:?}");
    assert!(acknowledged.len() >= 15, "{}", acknowledged.len());
    // The listener now refuses requests before their body, except for occasional probes.
    until("one is refused early", || {
        let mut client = testbed.connect();
        client.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10010\r\n\r\n");
        client.answer().status == 507
    });
    let mut refused = 2;
    let health = client.get("/health");
    assert_eq!((health.status, health.json()["status"].as_str()), (503, Some("storage_full")));
    let path = small.path().join("a.log");
    let stored = std::fs::read_to_string(&path).unwrap();
    for receipt in &acknowledged {
        assert_eq!(stored[receipt.offset..receipt.offset + receipt.bytes], format!("{body}\n"));
    }
    assert_eq!(stored.len(), acknowledged.len() * (body.len() + 1), "no torn line is left");
    // As if other programs had freed space.
    small.mount(MsFlags::MS_REMOUNT, 4 << 20).unwrap();
    until("events are taken again", || {
        let answer = client.post("/a", &body);
        assert!(matches!(answer.status, 204 | 507), "{answer:?}");
        refused += u64::from(answer.status == 507);
        answer.status == 204
    });
    assert_eq!(client.get("/health").status, 200);
    drop(client);
    let (report, _folder) = testbed.stop();
    assert_eq!(report.statistics.refused["storage_full"], refused);
}

#[test]
fn as_root_what_was_accepted_and_is_lost_is_counted() {
    Small::run(256 * 1024, large_body_on_a_full_disk);
}

fn large_body_on_a_full_disk(small: &Small) {
    let store = crate::testbed::store(small.path());
    let testbed = Testbed::with(|config| {
        config.store = store;
        config.level = listen::Level::Accepted;
    });
    // The level `accepted` never waits for the disk, regardless of the number of pieces.
    let answer = testbed.connect().post("/a", "{\"a\":\"b\"}\n".repeat(800_000));
    assert_eq!(answer.status, 202, "{answer:?}");
    let (report, folder) = testbed.stop();
    assert_eq!(report.statistics.accepted_events_lost, 800_000);
    drop(folder);
}

#[test]
fn as_root_a_read_only_disk_is_told() {
    Small::run(4 << 20, read_only_disk);
}

fn read_only_disk(small: &Small) {
    let store = crate::testbed::store(small.path());
    let testbed = Testbed::with(|config| config.store = store);
    let mut client = testbed.connect();
    assert_eq!(client.post("/a", "{}").status, 204);
    // A filesystem cannot become read-only while a file is open for writing.
    drop(client);
    let (_, _folder) = testbed.stop();
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    // The storage's threads may not have closed their files yet.
    until("nothing is open for writing", || small.mount(read_only, 4 << 20).is_ok());
    let error = listen::Server::bind(listen::Config::new(crate::testbed::store(small.path())), Vec::new());
    let error = error.expect_err("nothing can be stored there").to_string();
    assert!(error.to_lowercase().contains("read-only"), "{error}");
}
