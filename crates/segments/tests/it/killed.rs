//! After SIGKILL at any time, no answered line is lost, and no line is stored twice or torn.

use std::{
    collections::HashSet,
    env, fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use segments::{Batch, Compression, Config, Level, Part};

use crate::rig::{Rig, answers, config, lines, submit};

const CHILD: &str = "SEGMENTS_TEST_CHILD";
const START: &str = "SEGMENTS_TEST_START";

fn child_folder() -> Option<PathBuf> {
    env::var_os(CHILD).map(PathBuf::from)
}

fn child(name: &str, folder: &Path, start: usize) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, folder)
        .env(START, start.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits to be killed, or until the parent has gone.
fn wait_for_the_end() {
    io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
}

/// Kills the child some microseconds after it has reported this number of lines with this prefix. Returns all complete
/// lines of its output.
fn killed(mut child: Child, reports: usize, prefix: &str, more: Duration) -> Vec<String> {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut reported = Vec::new();
    let mut line = String::new();
    let mut is_alive = true;
    loop {
        if is_alive && reported.len() >= reports {
            thread::sleep(more);
            // The child has ended, so the pipe contains all its output.
            child.kill().unwrap();
            child.wait().unwrap();
            is_alive = false;
        }
        line.clear();
        if output.read_line(&mut line).unwrap() == 0 {
            assert!(!is_alive, "the child has ended by itself");
            return reported;
        }
        if line.ends_with('\n') && line.starts_with(prefix) {
            reported.push(line.trim_end().to_owned());
        }
    }
}

fn settings(folder: &Path) -> Config {
    Config {
        rotate_bytes: Some(20_000),
        compress: Compression::Gzip,
        max_open: 2,
        idle: Duration::from_millis(30),
        ..config(folder, "${tag}")
    }
}

/// Writes numbered lines to three keys through three ports as fast as possible, and prints the answers.
fn write_for_ever(folder: &Path) {
    let start = env::var(START).unwrap();
    let rig = Rig::open(settings(folder), 3);
    let keys: Vec<_> = ["a", "b", "c"].map(|tag| rig.key(tag)).into();
    let reported = Mutex::new(io::stdout());
    thread::scope(|scope| {
        for (number, mut port) in rig.ports.into_iter().enumerate() {
            let (keys, reported, start) = (&keys, &reported, &start);
            scope.spawn(move || {
                // The parent kills the child long before the last round.
                for round in 0..100_000u64 {
                    let mut batch = Batch { data: port.spare_buffer(), parts: Vec::new() };
                    for token in round * 8..round * 8 + 8 {
                        let begin = batch.data.len();
                        writeln!(
                            batch.data,
                            "{start}-{number}-{token:08}-{}",
                            "x".repeat((token % 97) as usize)
                        )
                        .unwrap();
                        let level = [Level::Synced, Level::Written][(token % 9 != 0) as usize];
                        let key = keys[(token % 3) as usize].clone();
                        batch.parts.push(Part { token, key, range: begin..batch.data.len(), level });
                    }
                    port.submit(batch);
                    let mut text = String::new();
                    for done in answers(&mut port, 8) {
                        let receipt = done.result.unwrap();
                        text += &format!(
                            "\n{start}-{number}-{:08} {} {}\n",
                            done.token, receipt.segment, receipt.offset
                        );
                    }
                    reported.lock().unwrap().write_all(text.as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn at_any_moment_what_was_answered_is_there_once() {
    if let Some(folder) = child_folder() {
        return write_for_ever(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    let mut reported = Vec::new();
    for start in 0..12 {
        let child = child("killed::at_any_moment_what_was_answered_is_there_once", folder.path(), start);
        // Kills every fourth child during recovery or shortly afterwards.
        let reports = if start % 4 == 3 { 0 } else { rng.random_range(1..1_500) };
        let more = Duration::from_micros(rng.random_range(0..30_000));
        reported.extend(killed(child, reports, &format!("{start}-"), more));
        // After every other kill, the next child does the recovery.
        if start % 2 == 0 {
            let rig = Rig::open(settings(folder.path()), 0);
            rig.store.close().unwrap();
        }
    }
    let rig = Rig::open(settings(folder.path()), 0);
    rig.store.close().unwrap();
    let stored = lines(folder.path());
    let mut numbers = HashSet::new();
    for (line, positions) in &stored {
        assert_eq!(positions.len(), 1, "{line} is there more than once: {positions:?}");
        let (number, filler) = line.rsplit_once('-').unwrap();
        let token: usize = number.rsplit_once('-').unwrap().1.parse().unwrap();
        assert_eq!(filler.len(), token % 97, "a line of another length than it was sent: {line}");
        numbers.insert((number.to_owned(), positions[0].clone()));
    }
    for line in &reported {
        let [number, segment, offset] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let position = (segment.to_owned(), offset.parse().unwrap());
        assert!(numbers.contains(&(number.to_owned(), position)), "answered, but not there: {line}");
    }
}

#[test]
fn torn_ends_are_cut_and_what_is_whole_stays() {
    if let Some(folder) = child_folder() {
        let mut rig = Rig::open(config(&folder, "x"), 1);
        let key = rig.key("");
        submit(&mut rig.ports[0], &[(0, &key, Level::Synced, "one\ntwo\n")]);
        answers(&mut rig.ports[0], 1);
        println!("\nwritten");
        return wait_for_the_end();
    }
    let name = "killed::torn_ends_are_cut_and_what_is_whole_stays";
    for (tail, kept, cut) in [
        (&b""[..], "one\ntwo\n", 0),
        (b"thr", "one\ntwo\n", 3),
        (b"three\nfour\nfi", "one\ntwo\nthree\nfour\n", 2),
        (b"three\nfo\0\0\0\0\nsix\n", "one\ntwo\nthree\n", 11),
        (&[0; 5000], "one\ntwo\n", 5000),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = child(name, folder.path(), 0);
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(output.any(|line| line.unwrap() == "written"));
        child.kill().unwrap();
        child.wait().unwrap();
        let path = folder.path().join("x.log");
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(tail).unwrap();
        let mut rig = Rig::open(config(folder.path(), "x"), 1);
        assert_eq!((rig.recovery.segments, rig.cut_bytes()), (1, cut));
        assert_eq!(rig.text("x.log"), kept);
        assert_eq!(rig.put(&rig.key(""), Level::Synced, "more\n").unwrap().offset, kept.len() as u64);
        rig.store.close().unwrap();
        assert_eq!(Rig::open(config(folder.path(), "x"), 0).recovery.segments, 0);
    }
}

#[test]
fn nul_bytes_that_were_lines_survive() {
    if let Some(folder) = child_folder() {
        let mut rig = Rig::open(config(&folder, "x"), 1);
        let key = rig.key("");
        rig.put(&key, Level::Written, "a\0\0b\n").unwrap();
        // This must also work after the file was closed and opened again.
        rig.store.reopen();
        rig.put(&key, Level::Written, "c\n").unwrap();
        println!("\nwritten");
        return wait_for_the_end();
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = child("killed::nul_bytes_that_were_lines_survive", folder.path(), 0);
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap() == "written"));
    child.kill().unwrap();
    child.wait().unwrap();
    let rig = Rig::open(config(folder.path(), "x"), 0);
    assert_eq!((rig.recovery.segments, rig.cut_bytes()), (1, 0));
    assert_eq!(rig.text("x.log"), "a\0\0b\nc\n");
}
