//! Where the receiver says that it stored events, held against where they are.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use record::{
    PlaceCounts,
    receipt::{EventId, RunId, StoredAt},
};

/// What is claimed of each segment.
#[derive(Debug, Default)]
pub struct Places {
    segments: BTreeMap<PathBuf, Segment>,
    /// Claims about the file being read, by where their lines begin; the next is last.
    awaited: Vec<(u64, PathBuf, usize)>,
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
    holds: bool,
}

impl Places {
    /// More claims of a run.
    pub fn claim(&mut self, run: RunId, places: Vec<StoredAt>) {
        for StoredAt { client, number, segment, offset, .. } in places {
            let segment = Path::new(&segment).components().as_path().to_owned();
            let claim = Claim { id: EventId { run, client, number }, offset, holds: false };
            self.segments.entry(segment).or_default().claims.push(claim);
        }
    }

    /// A file is read, called so without the ending of its compression.
    pub fn begin_file(&mut self, plain: &Path) {
        self.awaited.clear();
        for (name, segment) in self.segments.iter_mut().filter(|(name, _)| plain.ends_with(name)) {
            segment.was_read = true;
            let claims = segment.claims.iter().enumerate();
            self.awaited.extend(claims.map(|(index, claim)| (claim.offset, name.clone(), index)));
        }
        self.awaited.sort_by_key(|&(offset, ..)| std::cmp::Reverse(offset));
    }

    /// Whether something is claimed of the line that begins at `offset`. Lines are told in order.
    #[inline]
    pub fn awaits(&mut self, offset: u64) -> bool {
        while self.awaited.last().is_some_and(|&(claimed, ..)| claimed < offset) {
            self.awaited.pop();
        }
        self.awaited.last().is_some_and(|&(claimed, ..)| claimed == offset)
    }

    /// The line that begins at `offset` holds this event.
    pub fn holds(&mut self, offset: u64, id: EventId) {
        let here = self.awaited.iter().rev().take_while(|&&(claimed, ..)| claimed == offset);
        for (_, name, index) in here {
            let claim = self.segments.get_mut(name).and_then(|segment| segment.claims.get_mut(*index));
            if let Some(claim) = claim.filter(|claim| claim.id == id) {
                claim.holds = true;
            }
        }
    }

    /// How many claims hold. Gives those that do not, with the segment and the offset.
    pub fn conclude(&self, mut wrong: impl FnMut(EventId, &Path, u64)) -> PlaceCounts {
        let mut counts = PlaceCounts::default();
        for (name, segment) in &self.segments {
            for claim in &segment.claims {
                match (claim.holds, segment.was_read) {
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
