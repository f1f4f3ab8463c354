//! The contents of the disk, and the loss at a cut.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};

use crate::random::Random;

/// The unit that a disk writes completely or not at all, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;

type Sector = Box<[u8; SECTOR_BYTES]>;

/// The effects of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Number of sectors that were written but not flushed.
    pub unflushed_sectors: u64,
    /// Number of these sectors that lost their last version.
    pub forgotten_sectors: u64,
    /// Number of flushes since the disk was made.
    pub flushes: u64,
}

/// A medium with a volatile cache in front of it.
#[derive(Debug)]
pub(super) struct Cells {
    medium: Vec<u8>,
    /// All versions of a sector since the last flush, by the sector's number.
    cache: BTreeMap<u64, Vec<Sector>>,
    flushes: u64,
    /// Whether the disk has power. Without it, nothing is read, written or answered.
    powered: bool,
}

impl Cells {
    /// A disk with these contents.
    pub(super) fn new(medium: Vec<u8>) -> Self {
        Self { medium, cache: BTreeMap::new(), flushes: 0, powered: true }
    }

    /// The contents without the cache.
    pub(super) fn medium(&self) -> &[u8] {
        &self.medium
    }

    /// The sectors of a range in bytes, if the range has whole sectors and lies on the disk.
    fn sectors(&self, offset: u64, length: usize) -> Result<std::ops::Range<u64>> {
        let (sector, end) = (SECTOR_BYTES as u64, offset.saturating_add(length as u64));
        if !offset.is_multiple_of(sector)
            || !length.is_multiple_of(SECTOR_BYTES)
            || end > self.medium.len() as u64
        {
            return Err(anyhow!("{length} bytes at {offset} are not whole sectors of the disk"));
        }
        Ok(offset / sector..end / sector)
    }

    /// Appends `length` bytes from `offset` on to `into`.
    pub(super) fn read(&self, offset: u64, length: usize, into: &mut Vec<u8>) -> Result<()> {
        let sectors = self.sectors(offset, length)?;
        let start = offset as usize;
        into.extend_from_slice(&self.medium[start..start + length]);
        for (number, versions) in self.cache.range(sectors.clone()) {
            let at = (number - sectors.start) as usize * SECTOR_BYTES;
            let newest = versions.last().expect("a cached sector has a version");
            into[at..at + SECTOR_BYTES].copy_from_slice(&newest[..]);
        }
        Ok(())
    }

    /// Writes data into the cache.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let sectors = self.sectors(offset, data.len())?;
        for (number, bytes) in sectors.zip(data.as_chunks::<SECTOR_BYTES>().0) {
            self.cache.entry(number).or_default().push(Box::new(*bytes));
        }
        Ok(())
    }

    /// Moves the cached versions of these sectors to the medium.
    pub(super) fn harden(&mut self, offset: u64, length: usize) {
        let Ok(sectors) = self.sectors(offset, length) else { return };
        for number in sectors {
            if let Some(newest) = self.cache.remove(&number).and_then(|mut versions| versions.pop()) {
                self.put(number, &newest);
            }
        }
    }

    /// Moves the whole cache to the medium.
    pub(super) fn flush(&mut self) {
        self.flushes += 1;
        for (number, mut versions) in std::mem::take(&mut self.cache) {
            let newest = versions.pop().expect("a cached sector has a version");
            self.put(number, &newest);
        }
    }

    /// Whether the disk has power.
    pub(super) fn is_powered(&self) -> bool {
        self.powered
    }

    /// Turns the power on again.
    pub(super) fn power_on(&mut self) {
        self.powered = true;
    }

    /// Cuts the power. The cache is lost, except for the versions that reached the medium in time.
    pub(super) fn cut(&mut self, seed: u64) -> Cut {
        self.powered = false;
        let cache = std::mem::take(&mut self.cache);
        let mut cut =
            Cut { unflushed_sectors: cache.len() as u64, forgotten_sectors: 0, flushes: self.flushes };
        let mut random = Random::new(seed);
        for (number, versions) in cache {
            // 0 keeps the version on the medium, 1 the first version since the flush, and so on.
            let kept = random.below(versions.len() as u64 + 1) as usize;
            cut.forgotten_sectors += u64::from(kept < versions.len());
            if let Some(version) = kept.checked_sub(1).map(|index| &versions[index]) {
                self.put(number, version);
            }
        }
        cut
    }

    fn put(&mut self, number: u64, sector: &Sector) {
        let at = number as usize * SECTOR_BYTES;
        self.medium[at..at + SECTOR_BYTES].copy_from_slice(&sector[..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(sectors: usize) -> Cells {
        Cells::new(vec![b'.'; sectors * SECTOR_BYTES])
    }

    fn first_bytes(cells: &Cells) -> String {
        cells.medium.chunks(SECTOR_BYTES).map(|sector| sector[0] as char).collect()
    }

    #[test]
    fn what_was_flushed_stays_and_of_the_rest_some_is_forgotten() {
        let mut cells = cells(100);
        cells.write(0, &[b'a'; 50 * SECTOR_BYTES]).unwrap();
        cells.flush();
        cells.write(25 * 512, &[b'b'; 75 * SECTOR_BYTES]).unwrap();
        cells.write(99 * 512, &[b'c'; SECTOR_BYTES]).unwrap();
        cells.harden(99 * 512, SECTOR_BYTES);
        let mut seen = Vec::new();
        cells.read(98 * 512, 1024, &mut seen).unwrap();
        assert_eq!((seen[0], seen[512]), (b'b', b'c'));
        let cut = cells.cut(7);
        let left = first_bytes(&cells);
        assert_eq!((&left[..25], &left[99..]), ("a".repeat(25).as_str(), "c"));
        assert_eq!((cut.unflushed_sectors, cut.flushes, cells.is_powered()), (74, 1, false));
        assert!((20..55).contains(&cut.forgotten_sectors), "{cut:?}");
        assert_eq!(left.matches('b').count() as u64, 74 - cut.forgotten_sectors);
    }

    #[test]
    fn a_sector_may_keep_any_of_its_versions() {
        let kept = |seed| {
            let mut cells = cells(1);
            for version in *b"abc" {
                cells.write(0, &[version; SECTOR_BYTES]).unwrap();
            }
            cells.cut(seed);
            first_bytes(&cells)
        };
        let all: std::collections::BTreeSet<_> = (0..100).map(kept).collect();
        assert_eq!(all.into_iter().collect::<String>(), ".abc");
        assert_eq!(kept(3), kept(3));
    }

    #[test]
    fn what_is_not_on_the_disk_is_refused() {
        let mut cells = cells(2);
        assert!(cells.write(1, &[0; 512]).is_err() && cells.write(512, &[0; 1024]).is_err());
        assert!(cells.read(u64::MAX - 511, 512, &mut Vec::new()).is_err());
    }
}
