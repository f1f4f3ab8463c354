//! The indices of the files in a folder.

use std::{
    collections::HashMap,
    ffi::OsStr,
    path::PathBuf,
    time::{Duration, Instant},
};

use files::Folder;
use rustix::fs::Dir;

use crate::Compression;

/// Number after a name: `None`, or N for `_N`.
pub(crate) type Index = Option<u32>;

/// Maximum age of a listing. Until then it is reused, so that many new keys in one folder do not each read the folder.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum number of digits of an index. Longer numbers are not indices of segments.
const MAX_INDEX_DIGITS: usize = 9;

/// The listing of the folder that was read last.
#[derive(Debug)]
pub(crate) struct Listing {
    suffix: String,
    read: Option<Instant>,
    folder: PathBuf,
    /// The highest index for each name without index.
    newest: HashMap<String, u32>,
}

impl Listing {
    /// A listing of files with this suffix, packed or not.
    pub(crate) fn new(suffix: &str) -> Self {
        Self { suffix: suffix.to_owned(), read: None, folder: PathBuf::new(), newest: HashMap::new() }
    }

    /// The highest index of the files with this name. `None` if no such file exists or the folder cannot be read.
    pub(crate) fn newest(&mut self, folder: &Folder, name: &OsStr) -> Index {
        let name = name.to_str()?;
        if folder.path() != self.folder || self.read.is_none_or(|read| read.elapsed() > MAX_AGE) {
            self.refresh(folder);
        }
        self.newest.get(name).copied()
    }

    fn refresh(&mut self, folder: &Folder) {
        self.newest.clear();
        self.read = Some(Instant::now());
        folder.path().clone_into(&mut self.folder);
        for entry in Dir::read_from(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if let Some((base, index)) = name.to_str().ok().and_then(|name| self.split_name(name)) {
                let newest = self.newest.entry(base.to_owned()).or_default();
                *newest = index.max(*newest);
            }
        }
    }

    /// Splits `x_3.log.gz` into `x` and 3.
    fn split_name<'a>(&self, name: &'a str) -> Option<(&'a str, u32)> {
        let packed = Compression::ALL_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
        let stem = packed.unwrap_or(name).strip_suffix(&self.suffix)?;
        let (base, index) = stem.rsplit_once('_')?;
        let is_index =
            (1..=MAX_INDEX_DIGITS).contains(&index.len()) && index.bytes().all(|byte| byte.is_ascii_digit());
        // Indices have no leading zeros: `x_01` is not a segment.
        (is_index && (index == "0" || !index.starts_with('0'))).then(|| Some((base, index.parse().ok()?)))?
    }
}

pub(crate) fn next_index(index: Index) -> Index {
    Some(index.map_or(1, |number| number + 1))
}
