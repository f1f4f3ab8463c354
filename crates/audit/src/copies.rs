//! Counts how often each event of a client is stored.

use std::{collections::BTreeMap, ops::Range};

/// Counts of copies by event number. Memory is allocated only near stored numbers, regardless of how many events the
/// receipts claim.
#[derive(Debug, Clone, Default)]
pub(crate) struct Copies {
    pages: BTreeMap<u32, Box<[u8; PAGE as usize]>>,
}

/// Number of events whose counts share one allocation.
const PAGE: u32 = 256;

impl Copies {
    /// Counts a copy. Returns how many were counted before; 255 means 255 or more.
    pub(crate) fn count(&mut self, number: u32) -> u8 {
        let page = self.pages.entry(number / PAGE).or_insert_with(|| Box::new([0; PAGE as usize]));
        let copies = &mut page[(number % PAGE) as usize];
        let before = *copies;
        *copies = before.saturating_add(1);
        before
    }

    /// Those numbers in `range` without any copy, as ranges.
    pub(crate) fn absent(&self, range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let pages = self.pages.range(range.start / PAGE..=range.end.div_ceil(PAGE));
        let stored = pages.flat_map(|(page, copies)| {
            let counted = copies.iter().zip(page * PAGE..=page * PAGE + (PAGE - 1));
            counted.filter(|&(&copies, _)| copies > 0).map(|(_, number)| number)
        });
        let mut from = range.start;
        let (start, end) = (range.start, range.end);
        let stored = stored.skip_while(move |&number| number < start).take_while(move |&number| number < end);
        stored.map(|number| (number, number + 1)).chain([(end, end)]).filter_map(move |(until, next)| {
            let absent = from..until;
            from = next;
            (!absent.is_empty()).then_some(absent)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_number_takes_one_page() {
        let mut copies = Copies::default();
        assert_eq!((copies.count(u32::MAX - 1), copies.count(u32::MAX - 1)), (0, 1));
        assert_eq!(copies.pages.len(), 1);
        assert_eq!(copies.absent(0..u32::MAX).next(), Some(0..u32::MAX - 1));
    }

    proptest! {
        #[test]
        fn every_number_is_stored_or_absent(
            numbers in prop::collection::vec(0_u32..1500, 0..400), from in 0_u32..1500, length in 0_u32..900
        ) {
            let (mut copies, mut expected) = (Copies::default(), HashMap::<u32, u8>::new());
            for number in numbers {
                let before = expected.entry(number).or_default();
                prop_assert_eq!(copies.count(number), *before);
                *before += 1;
            }
            let absent: Vec<u32> = copies.absent(from..from + length).flatten().collect();
            let by_hand: Vec<u32> = (from..from + length).filter(|number| !expected.contains_key(number)).collect();
            prop_assert_eq!(absent, by_hand);
        }
    }
}
