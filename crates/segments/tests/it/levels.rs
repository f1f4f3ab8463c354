//! Each part gets exactly one answer, at the time of its level, with a correct receipt.

use std::{
    fs,
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_pcg::Pcg64Mcg;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use segments::{Batch, Failure, Level, Part, StorageState};

use crate::rig::{Rig, answers, config, lines, submit};

const LEVELS: [Level; 3] = [Level::Accepted, Level::Written, Level::Synced];

#[test]
fn every_level_is_answered_once_with_where_the_lines_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), "${tag}_%Y"), 1);
    let key = rig.key_at("web", 1_578_905_529);
    for (level, offset) in LEVELS.into_iter().zip([0, 4, 8]) {
        let receipt = rig.put(&key, level, "one\n").unwrap();
        assert_eq!((&*receipt.segment, receipt.offset, receipt.bytes), ("web_2020.log", offset, 4));
    }
    assert_eq!(rig.text("web_2020.log"), "one\none\none\n");
    assert_eq!(rig.store.state(), StorageState::Ok);
    let statistics = rig.store.statistics();
    assert_eq!(statistics.syncs, 1);
    assert_eq!(statistics.open_segments, 1);
    // The answer may come before the store releases its bytes.
    testing::until("the queue is empty", || rig.store.queued_bytes() == 0);
}

#[test]
fn receipts_of_many_ports_keys_and_levels_are_true_and_the_order_is_kept() {
    const PORTS: usize = 3;
    const BATCHES: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::open(config(folder.path(), "${tag}"), PORTS);
    let keys: Vec<_> = ["a", "b", "c/d"].map(|tag| rig.key(tag)).into();
    let threads: Vec<_> = rig
        .ports
        .into_iter()
        .enumerate()
        .map(|(number, mut port)| {
            let keys = keys.clone();
            std::thread::spawn(move || {
                let mut rng = Pcg64Mcg::seed_from_u64(number as u64);
                let mut sent = Vec::new();
                for _ in 0..BATCHES {
                    let mut batch = Batch { data: port.spare_buffer(), parts: Vec::new() };
                    for _ in 0..rng.random_range(1..40) {
                        let begin = batch.data.len();
                        let line =
                            format!("{number}-{:06}-{}", sent.len(), "x".repeat(rng.random_range(0..300)));
                        batch.data.extend(format!("{line}\n").bytes());
                        let key = keys.choose(&mut rng).unwrap().clone();
                        let level = *LEVELS.choose(&mut rng).unwrap();
                        let range = begin..batch.data.len();
                        batch.parts.push(Part { token: sent.len() as u64, key, range, level });
                        sent.push(line);
                    }
                    port.submit(batch);
                }
                let done = answers(&mut port, sent.len());
                assert_eq!(done.len(), sent.len());
                (sent, done)
            })
        })
        .collect();
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    rig.store.close().unwrap();
    let stored = lines(folder.path());
    assert_eq!(stored.len(), results.iter().map(|(sent, _)| sent.len()).sum::<usize>());
    for (sent, done) in results {
        let mut answered = vec![false; sent.len()];
        for done in done {
            let receipt = done.result.unwrap();
            let number = done.token as usize;
            assert!(!std::mem::replace(&mut answered[number], true), "answered twice");
            assert_eq!(stored[&sent[number]], [(receipt.segment.to_string(), receipt.offset)]);
        }
        for tag in ["a.log", "b.log", "c_d.log"] {
            let offsets = sent.iter().filter_map(|line| {
                let (segment, offset) = &stored[line][0];
                (segment == tag).then_some(*offset)
            });
            assert!(offsets.is_sorted(), "parts of one port and key keep their order");
        }
    }
}

#[test]
fn parts_that_are_no_whole_lines_are_refused_and_the_others_stand() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), "x"), 1);
    let key = rig.key("");
    let part = |token, range| Part { token, key: key.clone(), range, level: Level::Written };
    let parts = vec![part(0, 0..4), part(1, 4..6), part(2, 6..6), part(3, 3..99)];
    rig.ports[0].submit(Batch { data: b"one\ntwo\n".to_vec(), parts });
    let invalid = Failure::Io(rustix::io::Errno::INVAL.raw_os_error());
    for done in answers(&mut rig.ports[0], 4) {
        assert_eq!(done.result.err(), (done.token > 0).then_some(invalid));
    }
    assert_eq!(rig.text("x.log"), "one\n");
}

#[test]
fn a_port_is_readable_exactly_while_there_are_answers() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), "x"), 1);
    let readable = |rig: &Rig, wait_s| {
        let wait = Timespec { tv_sec: wait_s, tv_nsec: 0 };
        poll(&mut [PollFd::new(&rig.ports[0].fd(), PollFlags::IN)], Some(&wait)).unwrap() == 1
    };
    assert!(!readable(&rig, 0));
    let key = rig.key("");
    submit(&mut rig.ports[0], &[(1, &key, Level::Written, "one\n")]);
    assert!(readable(&rig, testing::PATIENCE.as_secs() as i64));
    let mut done = Vec::new();
    rig.ports[0].drain(&mut done);
    assert_eq!(done.len(), 1);
    assert!(!readable(&rig, 0));
}

#[test]
fn closing_writes_everything_and_later_parts_fail_as_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), "x"), 1);
    let key = rig.key("");
    for number in 0..1000 {
        submit(&mut rig.ports[0], &[(number, &key, Level::Synced, &format!("{number}\n"))]);
    }
    rig.store.close().unwrap();
    assert!(answers(&mut rig.ports[0], 1000).iter().all(|done| done.result.is_ok()));
    assert_eq!(rig.text("x.log").lines().count(), 1000);
    assert_eq!(rig.put(&key, Level::Written, "late\n"), Err(Failure::Closed));
    testing::until("the queue is empty", || rig.store.queued_bytes() == 0);
    rig.store.close().unwrap();
    assert!(fs::read_to_string(folder.path().join(".proofload/journal")).unwrap().lines().count() < 10);
}

#[test]
fn a_delay_gathers_commits() {
    let folder = tempfile::tempdir().unwrap();
    let sync_delay = Duration::from_millis(300);
    let mut rig = Rig::open(segments::Config { sync_delay, ..config(folder.path(), "x") }, 1);
    let key = rig.key("");
    let begin = Instant::now();
    rig.put(&key, Level::Synced, "first\n").unwrap();
    assert!(begin.elapsed() >= sync_delay, "{:?}", begin.elapsed());
    let before = rig.store.statistics().syncs;
    let begin = Instant::now();
    for number in 0..100 {
        submit(&mut rig.ports[0], &[(number, &key, Level::Synced, "more\n")]);
        // Spreads the lines over a few delays.
        std::thread::sleep(Duration::from_millis(10));
    }
    answers(&mut rig.ports[0], 100);
    // A delay precedes each sync, even on a busy machine.
    let delays = begin.elapsed().as_millis() / sync_delay.as_millis();
    let syncs = rig.store.statistics().syncs - before;
    assert!(u128::from(syncs) <= delays, "{syncs} syncs within {delays} delays");
}
