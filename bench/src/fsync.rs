//! Measures how long fdatasync of a small write takes on this disk.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use proofload_tests::stats::median;

/// Most measurements.
const MAX_SYNCS: usize = 200;
/// Longest time for all measurements.
const MAX_DURATION: Duration = Duration::from_secs(3);

/// The median time of fdatasync after 4 KiB appended to a new file, in seconds.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn median_s(folder: &Path) -> Result<f64> {
    let path = folder.join("fdatasync");
    let file = File::create(&path)?;
    let started = Instant::now();
    let mut times_s = Vec::new();
    while times_s.len() < MAX_SYNCS && started.elapsed() < MAX_DURATION {
        file.write_all_at(&[b'x'; 4096], times_s.len() as u64 * 4096)?;
        let before = Instant::now();
        file.sync_data()?;
        times_s.push(before.elapsed().as_secs_f64());
    }
    std::fs::remove_file(path)?;
    Ok(median(&times_s))
}
