//! The numbers with which tables and flows refer to servers and VIPs.

use std::collections::BTreeMap;

use crate::{
    Error,
    layout::{SERVERS, VIPS},
};

/// The free numbers of servers, and the last generation of each number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The last generation of each number that was ever assigned.
    last: BTreeMap<u16, u32>,
    used: std::collections::BTreeSet<u16>,
    /// All numbers below this one are in use.
    lowest: u16,
}

impl Numbers {
    /// Restores a saved state: the last generation of each number, and the numbers in use.
    pub(crate) fn of(last: BTreeMap<u16, u32>, used: impl IntoIterator<Item = u16>) -> Self {
        Self { last, used: used.into_iter().collect(), lowest: 1 }
    }

    /// The last generation of each number that was ever assigned.
    pub(crate) fn last(&self) -> &BTreeMap<u16, u32> {
        &self.last
    }

    /// Takes the lowest free number, with a generation that this number has not had.
    pub(crate) fn take(&mut self) -> Result<(u16, u32), Error> {
        let free = (self.lowest.max(1)..SERVERS as u16).find(|number| !self.used.contains(number));
        let number = free.ok_or(Error::TooMany { what: "servers", most: SERVERS - 1 })?;
        self.lowest = number + 1;
        let generation = self.last.entry(number).or_default();
        *generation = generation.wrapping_add(1).max(1);
        self.used.insert(number);
        Ok((number, *generation))
    }

    /// Makes a number free again.
    pub(crate) fn free(&mut self, number: u16) {
        self.used.remove(&number);
        self.lowest = self.lowest.min(number);
    }
}

/// The lowest free number for a VIP.
pub(crate) fn free_vip(used: impl Iterator<Item = u32>) -> Result<u32, Error> {
    let mut is_used = [false; VIPS];
    used.for_each(|number| is_used[number as usize % VIPS] = true);
    let free = (1..VIPS as u32).find(|number| !is_used[*number as usize]);
    free.ok_or(Error::TooMany { what: "VIPs", most: VIPS - 1 })
}

/// Fails if these VIPs and servers need more numbers than the tables have.
pub(crate) fn check(vips: usize, servers: usize) -> Result<(), Error> {
    match (vips < VIPS, servers < SERVERS) {
        (true, true) => Ok(()),
        (false, _) => Err(Error::TooMany { what: "VIPs", most: VIPS - 1 }),
        (_, false) => Err(Error::TooMany { what: "servers", most: SERVERS - 1 }),
    }
}
