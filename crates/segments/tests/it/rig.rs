//! A store in its own folder, with helpers for the tests.

use std::{
    collections::HashMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use segments::{Batch, Config, Done, Error, Failure, Key, Level, Part, Port, Receipt, Recovery, Store};
use testing::PATIENCE;

pub(crate) struct Rig {
    pub store: Store,
    pub ports: Vec<Port>,
    pub recovery: Recovery,
    pub folder: PathBuf,
}

/// Settings for files `<folder>/<path>`.
pub(crate) fn config(folder: &Path, path: &str) -> Config {
    let template = format!("{}/{path}", folder.display());
    // Long enough for a slow disk.
    let (descriptor_wait, close_wait) = (2 * PATIENCE, 2 * PATIENCE);
    Config { utc: true, descriptor_wait, close_wait, ..Config::new(template.parse().unwrap()) }
}

impl Rig {
    pub(crate) fn open(config: Config, ports: usize) -> Self {
        let folder = config.template.folder().to_owned();
        let opened = testing::find(PATIENCE, || match Store::open(config.clone(), ports) {
            // A child that another test has just forked keeps the lock open until the child executes its program.
            Err(Error::Locked { .. }) => None,
            opened => Some(opened.unwrap()),
        });
        let (store, ports, recovery) = opened.expect("it is not locked for long");
        Self { store, ports, recovery, folder }
    }

    pub(crate) fn key(&self, tag: &str) -> Arc<Key> {
        self.key_at(tag, now_s())
    }

    pub(crate) fn key_at(&self, tag: &str, seconds: i64) -> Arc<Key> {
        self.store.key(tag, seconds, &|_| None).unwrap()
    }

    /// Submits one part through the first port and waits for its answer.
    pub(crate) fn put(&mut self, key: &Arc<Key>, level: Level, lines: &str) -> Result<Receipt, Failure> {
        submit(&mut self.ports[0], &[(7, key, level, lines)]);
        let mut done = answers(&mut self.ports[0], 1);
        let Done { token, result } = done.remove(0);
        assert_eq!((token, done.len()), (7, 0));
        result
    }

    /// Bytes that recovery removed.
    pub(crate) fn cut_bytes(&self) -> u64 {
        self.recovery.truncations.iter().map(|cut| cut.from_bytes - cut.to_bytes).sum()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        text(&self.folder.join(name))
    }

    /// Waits until `holds` returns true.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        testing::until(what, || holds(self));
    }
}

pub(crate) fn submit(port: &mut Port, parts: &[(u64, &Arc<Key>, Level, &str)]) {
    let mut batch = Batch { data: port.spare_buffer(), parts: Vec::new() };
    for &(token, key, level, lines) in parts {
        let begin = batch.data.len();
        batch.data.extend_from_slice(lines.as_bytes());
        batch.parts.push(Part { token, key: key.clone(), range: begin..batch.data.len(), level });
    }
    port.submit(batch);
}

/// Waits for at least `count` answers.
pub(crate) fn answers(port: &mut Port, count: usize) -> Vec<Done> {
    let begin = Instant::now();
    let mut done = Vec::new();
    while done.len() < count {
        assert!(begin.elapsed() < PATIENCE, "{} of {count} answers within {PATIENCE:?}", done.len());
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        poll(&mut [PollFd::new(&port.fd(), PollFlags::IN)], Some(&second)).unwrap();
        port.drain(&mut done);
    }
    done
}

pub(crate) fn now_s() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The text of a file, unpacked if necessary.
pub(crate) fn text(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    let read = match path.extension().and_then(|name| name.to_str()) {
        Some("gz") => flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text),
        Some("zst") => zstd::Decoder::new(file).unwrap().read_to_string(&mut text),
        _ => { file }.read_to_string(&mut text),
    };
    read.unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    text
}

/// Sorted names of the files below `folder`, relative to it, without hidden files.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(inner).unwrap().map(Result::unwrap) {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type().unwrap() {
                _ if hidden => {}
                kind if kind.is_dir() => folders.push(entry.path()),
                _ => found.push(entry.path().strip_prefix(folder).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

/// Every line of every file, with the name of its segment (packed or not) and its offset in the plain text.
pub(crate) fn lines(folder: &Path) -> HashMap<String, Vec<(String, u64)>> {
    let mut lines: HashMap<String, Vec<(String, u64)>> = HashMap::new();
    for name in names(folder) {
        let text = text(&folder.join(&name));
        assert!(text.is_empty() || text.ends_with('\n'), "{name} ends in a torn line: {text:?}");
        let segment = name.trim_end_matches(".gz").trim_end_matches(".zst").to_owned();
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            lines.entry(line.trim_end().to_owned()).or_default().push((segment.clone(), offset));
            offset += line.len() as u64;
        }
    }
    lines
}
