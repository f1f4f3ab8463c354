//! How long this disk takes to put a little on the medium.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use proofload_tests::stats::median;

/// Times it is tried, and how long at the most.
const TIMES: usize = 200;
const LONGEST: Duration = Duration::from_secs(3);

/// The median of fdatasync after each 4 KiB appended to a new file, in seconds.
///
/// # Errors
/// When the folder's disk refuses.
pub(crate) fn median_s(folder: &Path) -> Result<f64> {
    let path = folder.join("fdatasync");
    let file = File::create(&path)?;
    let begun = Instant::now();
    let mut each = Vec::new();
    while each.len() < TIMES && begun.elapsed() < LONGEST {
        file.write_all_at(&[b'x'; 4096], each.len() as u64 * 4096)?;
        let before = Instant::now();
        file.sync_data()?;
        each.push(before.elapsed().as_secs_f64());
    }
    std::fs::remove_file(path)?;
    Ok(median(&each))
}
