//! Checks the positions that the receiver's answers claim for stored events against the files.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use record::{
    PlaceCounts,
    receipt::{EventId, RunId, StoredAt},
};

/// The claimed positions, by segment.
#[derive(Debug, Default)]
pub(crate) struct ClaimedPositions {
    segments: BTreeMap<PathBuf, Segment>,
    /// Claims about the rest of the current file, by offset in descending order.
    pending: Vec<(u64, PathBuf, usize)>,
}

#[derive(Debug, Default)]
struct Segment {
    claims: Vec<Claim>,
    was_read: bool,
}

#[derive(Debug)]
struct Claim {
    id: EventId,
    offset: u64,
    is_confirmed: bool,
}

impl ClaimedPositions {
    /// Adds the positions that a run's receipts claim.
    pub(crate) fn claim(&mut self, run: RunId, positions: Vec<StoredAt>) {
        for StoredAt { client, number, segment, offset, .. } in positions {
            let segment = Path::new(&segment).components().as_path().to_owned();
            let claim = Claim { id: EventId { run, client, number }, offset, is_confirmed: false };
            self.segments.entry(segment).or_default().claims.push(claim);
        }
    }

    /// Starts a file. `plain` is its path without the suffix of its compression.
    pub(crate) fn begin_file(&mut self, plain: &Path) {
        self.pending.clear();
        if self.segments.is_empty() {
            return;
        }
        for name in segments_of(plain) {
            let Some(segment) = self.segments.get_mut(&name) else { continue };
            segment.was_read = true;
            let open = segment.claims.iter().enumerate().filter(|(_, claim)| !claim.is_confirmed);
            self.pending.extend(open.map(|(index, claim)| (claim.offset, name.clone(), index)));
        }
        self.pending.sort_by_key(|&(offset, ..)| std::cmp::Reverse(offset));
    }

    /// Advances to the line at `offset`. Returns whether a claim names it. Lines must come in order.
    #[inline]
    pub(crate) fn advance_to(&mut self, offset: u64) -> bool {
        while self.pending.last().is_some_and(|&(claimed, ..)| claimed < offset) {
            self.pending.pop();
        }
        self.pending.last().is_some_and(|&(claimed, ..)| claimed == offset)
    }

    /// Confirms the claims that this event is at `offset`.
    pub(crate) fn confirm(&mut self, offset: u64, id: EventId) {
        let here = self.pending.iter().rev().take_while(|&&(claimed, ..)| claimed == offset);
        for (_, name, index) in here {
            let claim = self.segments.get_mut(name).and_then(|segment| segment.claims.get_mut(*index));
            if let Some(claim) = claim.filter(|claim| claim.id == id) {
                claim.is_confirmed = true;
            }
        }
    }

    /// Counts the claims. Passes wrong ones to `wrong` with their segment and offset.
    pub(crate) fn count(&self, mut wrong: impl FnMut(EventId, &Path, u64)) -> PlaceCounts {
        let mut counts = PlaceCounts::default();
        for (name, segment) in &self.segments {
            for claim in &segment.claims {
                match (claim.is_confirmed, segment.was_read) {
                    (true, _) => counts.right += 1,
                    (false, false) => counts.unchecked += 1,
                    (false, true) => {
                        counts.wrong += 1;
                        wrong(claim.id, name, claim.offset);
                    }
                }
            }
        }
        counts
    }
}

/// All segment names that this file may have in receipts. A receipt may name any number of its parent folders, and
/// rotation may have added a suffix after a dot or a hyphen (`x.log.1`, `x.log-20261121`).
fn segments_of(plain: &Path) -> impl Iterator<Item = PathBuf> {
    let name = plain.file_name().unwrap_or_default().as_bytes();
    let folders: Vec<Component<'_>> = plain.parent().unwrap_or(Path::new("")).components().collect();
    let ends = (1..=name.len()).filter(move |&end| end == name.len() || matches!(name[end], b'.' | b'-'));
    ends.flat_map(move |end| {
        let folders = folders.clone();
        (0..=folders.len()).map(move |from| {
            folders[from..].iter().collect::<PathBuf>().join(OsStr::from_bytes(&name[..end]))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_may_be_any_part_of_a_path_rotated_or_not() {
        let names: Vec<PathBuf> = segments_of(Path::new("/a/b/x.log-2026.1")).collect();
        for name in ["x", "x.log", "x.log-2026", "x.log-2026.1", "b/x.log", "a/b/x.log", "/a/b/x.log"] {
            assert!(names.contains(&PathBuf::from(name)), "{name}: {names:?}");
        }
        assert_eq!(names.len(), 4 * 4);
        assert_eq!(segments_of(Path::new("x")).collect::<Vec<_>>(), [PathBuf::from("x")]);
        assert_eq!(segments_of(Path::new("/")).count(), 0);
    }
}
