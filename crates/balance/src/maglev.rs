//! The ring: its places, each of which has a server, and the turns of round robin.
//!
//! A new ring is filled as in *Maglev: A Fast and Reliable Software Network Load Balancer* (Eisenbud and others, NSDI
//! 2016, section 3.4): each server has its own order of all places, which depends on its name, and the servers take
//! turns to occupy the next free place of their orders. A server with a lower weight takes a turn less often, as in
//! Katran, and stops at its share. All shares are therefore exact to one place, except that a server whose share is
//! below one place gets one. Two balancers with the same servers make the same new ring.
//!
//! A changed ring is not filled from scratch. Plain Maglev moves more flows than necessary: in a table of 65,537
//! places, removing one of 5, 25 or 100 servers moves 1.01, 1.09 and 1.55 times the places of that server. A change
//! here keeps all places except those of removed servers and those that a server has beyond its new share. Servers that
//! lack places take these, again in their own orders. No change can move fewer places. The price is that a ring depends
//! on its history: two balancers are sure to have equal rings only if they made the same changes in the same order.
//! Only changes of weights and of the list of servers change a ring. Servers that are drained, full or dead stay in the
//! ring, and the program bypasses them.

use std::collections::BTreeMap;

/// Number of places of a ring: the prime of the paper's small table.
pub(crate) const PLACES: usize = 65_537;

/// Maximum length of a cycle of round robin, in turns.
pub(crate) const TURNS: usize = 4_096;

/// A server, with the values that determine the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Number of the server, above 0.
    pub number: u16,
    /// Name, which determines the order of its places. It must be the same on all balancers.
    pub name: String,
    /// Its share of the ring is weight / sum of all weights.
    pub weight: u32,
}

/// The ring of a VIP: the server of each place, and the turns of round robin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// Number of the server of each place; 0 if none.
    pub(crate) places: Vec<u16>,
    pub(crate) turns: Vec<u16>,
}

/// A server that may still take places.
struct Taker {
    number: u16,
    weight: u64,
    /// Credit for places: grows by the weight in each round; taking a place costs the largest weight.
    credit: u64,
    /// The next place in its order. The one after it is `skip` places further.
    next: usize,
    skip: usize,
}

impl Ring {
    /// A new ring.
    pub fn new(members: &[Member]) -> Self {
        Self::filled(vec![0; PLACES], members)
    }

    /// The ring after a change of servers or weights. It moves the fewest possible places.
    pub fn changed(&self, members: &[Member]) -> Self {
        Self::filled(self.places.clone(), members)
    }

    /// Number of places that a server has.
    pub fn share(&self, number: u16) -> usize {
        self.places.iter().filter(|server| **server == number).count()
    }

    /// Number of places by server; 0 stands for no server.
    pub(crate) fn shares(&self) -> BTreeMap<u16, usize> {
        let mut shares = vec![0; usize::from(u16::MAX) + 1];
        self.places.iter().for_each(|server| shares[usize::from(*server)] += 1);
        (0..=u16::MAX).zip(shares).filter(|(_, share)| *share > 0).collect()
    }

    /// This new ring with other numbers of servers; none if the names and weights of the members differ. This takes
    /// much less time than making a new ring.
    pub(crate) fn renumbered(&self, from: &[Member], to: &[Member]) -> Option<Self> {
        let is_alike =
            |(one, other): (&Member, &Member)| (&one.name, one.weight) == (&other.name, other.weight);
        if from.len() != to.len() || !from.iter().zip(to).all(is_alike) {
            return None;
        }
        let mut numbers = vec![0; usize::from(u16::MAX) + 1];
        from.iter().zip(to).for_each(|(from, to)| numbers[usize::from(from.number)] = to.number);
        let of = |places: &[u16]| places.iter().map(|number| numbers[usize::from(*number)]).collect();
        Some(Self { places: of(&self.places), turns: of(&self.turns) })
    }

    fn filled(mut places: Vec<u16>, members: &[Member]) -> Self {
        // The result must not depend on the order of the servers in a file.
        let mut members = members.to_vec();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        // For each number of a server, the number of places beyond its share; negative if it lacks places. Removed
        // servers have a share of 0.
        let mut beyond = vec![0_i64; usize::from(u16::MAX) + 1];
        places.iter().for_each(|server| beyond[usize::from(*server)] += 1);
        for (member, share) in members.iter().zip(shares(&members)) {
            beyond[usize::from(member.number)] -= share as i64;
        }
        let lacks = |taker: &Taker, beyond: &[i64]| beyond[usize::from(taker.number)] < 0;
        let mut takers: Vec<Taker> = members.iter().map(Taker::of).collect();
        loop {
            takers.retain(|taker| lacks(taker, &beyond));
            let Some(turn) = takers.iter().map(|taker| taker.weight).max() else { break };
            for taker in &mut takers {
                taker.credit += taker.weight;
                if taker.credit < turn || !lacks(taker, &beyond) {
                    continue;
                }
                taker.credit -= turn;
                // A server takes places that are free or beyond the share of others. Places that its order has already
                // passed stay unchanged.
                let place = taker.find(|place| beyond[usize::from(places[place])] > 0);
                beyond[usize::from(places[place])] -= 1;
                beyond[usize::from(taker.number)] += 1;
                places[place] = taker.number;
            }
        }
        // If no server is left, nobody has taken the places of removed servers.
        if members.iter().all(|member| member.weight == 0) {
            places.fill(0);
        }
        Self { places, turns: turns(&members) }
    }
}

impl Taker {
    fn of(member: &Member) -> Self {
        let hash = mixed(member.name.bytes().fold(0, |hash, byte| mixed(hash ^ u64::from(byte))));
        Self {
            number: member.number,
            weight: u64::from(member.weight),
            credit: 0,
            next: (hash % PLACES as u64) as usize,
            skip: (mixed(hash) % (PLACES as u64 - 1)) as usize + 1,
        }
    }

    /// The next place of its order for which `may_take` holds.
    fn find(&mut self, may_take: impl Fn(usize) -> bool) -> usize {
        loop {
            let place = self.next;
            // This replaces a division, which would take most of the time.
            self.next += self.skip;
            self.next -= if self.next < PLACES { 0 } else { PLACES };
            if may_take(place) {
                return place;
            }
        }
    }
}

/// The finalizer of SplitMix64: each bit of the output depends on each bit of the input.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Number of places of each member. The members with the largest remainders get one place more, and each member with a
/// weight gets at least one.
fn shares(members: &[Member]) -> Vec<u64> {
    let sum: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
    if sum == 0 {
        return vec![0; members.len()];
    }
    let exact = |member: &Member| PLACES as u64 * u64::from(member.weight);
    let mut shares: Vec<u64> = members.iter().map(|member| exact(member) / sum).collect();
    let mut by_remainder: Vec<usize> = (0..members.len()).collect();
    by_remainder.sort_by_key(|&at| (u64::MAX - exact(&members[at]) % sum, &members[at].name));
    let left = PLACES as u64 - shares.iter().sum::<u64>();
    by_remainder.iter().take(left as usize).for_each(|&at| shares[at] += 1);
    // A server with a weight but no place gets one from the largest share. There are more places than servers.
    for at in 0..members.len() {
        if members[at].weight > 0
            && shares[at] == 0
            && let Some(largest) = (0..members.len()).max_by_key(|&at| shares[at])
        {
            (shares[largest], shares[at]) = (shares[largest] - 1, 1);
        }
    }
    shares
}

/// The turns of smooth weighted round robin: the shortest cycle that the weights allow, evenly spread.
fn turns(members: &[Member]) -> Vec<u16> {
    let sum: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
    let divisor = members.iter().fold(0, |divisor, member| common_divisor(divisor, u64::from(member.weight)));
    let weight = |member: &Member| match u64::from(member.weight) {
        0 => 0,
        weight if sum / divisor <= TURNS as u64 => (weight / divisor) as i64,
        weight => (weight * (TURNS - members.len().min(TURNS)) as u64 / sum) as i64 + 1,
    };
    let weights: Vec<i64> = members.iter().map(weight).collect();
    let length: i64 = weights.iter().sum();
    let mut credits = vec![0; members.len()];
    let mut turns = Vec::new();
    for _ in 0..length {
        credits.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight);
        // Of the servers with the largest credit, the first one.
        let Some(at) = (0..credits.len()).rev().max_by_key(|&at| credits[at]) else { break };
        credits[at] -= length;
        turns.push(members[at].number);
    }
    turns
}

fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(weights: &[u32]) -> Vec<Member> {
        let member = |(at, &weight): (usize, &u32)| Member {
            number: at as u16 + 1,
            name: format!("10.0.0.{}", at + 1),
            weight,
        };
        weights.iter().enumerate().map(member).collect()
    }

    fn check_shares(ring: &Ring, members: &[Member]) {
        let sum: f64 = members.iter().map(|member| f64::from(member.weight)).sum();
        for member in members {
            let exact = PLACES as f64 * f64::from(member.weight) / sum;
            let share = ring.share(member.number) as f64;
            assert!((share - exact).abs() <= 1.0, "{member:?}: {share} of {exact}");
        }
    }

    /// Number of places that have different servers in the two rings.
    fn moved(ring: &Ring, other: &Ring) -> usize {
        ring.places.iter().zip(&other.places).filter(|(server, other)| server != other).count()
    }

    #[test]
    fn one_server_more_or_less_moves_its_places_and_no_others() {
        for count in [5, 25, 100] {
            let all = members(&vec![1; count]);
            let ring = Ring::new(&all);
            let fewer: Vec<Member> = all.iter().filter(|member| member.number != 3).cloned().collect();
            let without = ring.changed(&fewer);
            check_shares(&without, &fewer);
            assert_eq!(moved(&ring, &without), ring.share(3), "{count} servers: what server 3 had");

            let again = without.changed(&all);
            check_shares(&again, &all);
            assert_eq!(moved(&without, &again), again.share(3), "{count} servers: what server 3 got");

            // The number of places that plain Maglev moves, for the figures in the module's documentation.
            let plain = moved(&ring, &Ring::new(&fewer)) as f64 / ring.share(3) as f64;
            println!("{count} servers: anew {plain:.3} times the least");
        }
    }

    #[test]
    fn a_new_ring_depends_on_names_and_not_on_their_order() {
        let all = members(&[3, 1, 4, 1, 5]);
        let mut shuffled = all.clone();
        shuffled.rotate_left(2);
        let ring = Ring::new(&all);
        assert_eq!(ring, Ring::new(&shuffled));
        let mut others = all.clone();
        others.iter_mut().for_each(|member| member.number += 40);
        assert_eq!(ring.renumbered(&all, &others), Some(Ring::new(&others)));
        assert_eq!(ring.renumbered(&all, &members(&[3, 1, 4, 1, 6])), None);
        assert!(Ring::new(&members(&[0, 0])).places.iter().all(|server| *server == 0));
        assert!(ring.changed(&[]).places.iter().all(|server| *server == 0));
    }

    #[test]
    fn a_server_of_the_least_weight_has_a_place() {
        let mut weights = vec![65_535; 50];
        weights.extend([1; 20]);
        weights.push(0);
        let all = members(&weights);
        let ring = Ring::new(&all);
        let shares: Vec<usize> = all.iter().map(|member| ring.share(member.number)).collect();
        assert!(shares[50..70].iter().all(|share| *share == 1) && shares[70] == 0, "{shares:?}");
        assert!(shares[..50].iter().all(|share| share.abs_diff(PLACES / 50) <= 1), "{shares:?}");
        assert_eq!(shares.iter().sum::<usize>(), PLACES);
    }

    #[test]
    fn turns_are_spread_and_fit() {
        assert_eq!(turns(&members(&[5, 1, 1])), [1, 1, 2, 1, 3, 1, 1]);
        assert_eq!(turns(&members(&[70, 70, 0, 70])), [1, 2, 4]);
        assert!(turns(&members(&[0])).is_empty());
        let many = turns(&members(&[65_535, 1, 65_534]));
        assert!(many.len() <= TURNS && many.contains(&2));
        let of_first = many.iter().filter(|number| **number == 1).count() as f64 / many.len() as f64;
        assert!((of_first - 0.5).abs() < 0.005, "{of_first}");
    }

    /// Rings must not change between versions, because the balancers of a failover pair may have different versions.
    #[test]
    fn a_ring_is_as_it_always_was() {
        let sum = |ring: &Ring| ring.places.iter().fold(0_u64, |sum, server| mixed(sum ^ u64::from(*server)));
        let five = Ring::new(&members(&[1; 5]));
        let other = five.changed(&members(&[3, 0, 1, 4, 1, 5]));
        let many = Ring::new(&members(&(1..=100).collect::<Vec<u32>>()));
        let sums = [sum(&five), sum(&other), sum(&many), sum(&many.changed(&members(&[1; 60])))];
        assert_eq!(
            sums,
            [0xd7a447f7e37739d8, 0x08cdaa17a3d6123d, 0xcba2564751c95493, 0xa5d453ed5979f4c2],
            "{sums:?}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn shares_are_those_of_the_weights_after_any_change(
            before in prop::collection::vec(0_u32..=100, 1..40),
            after in prop::collection::vec(0_u32..=100, 1..40),
        ) {
            prop_assume!(before.iter().any(|weight| *weight > 0) && after.iter().any(|weight| *weight > 0));
            let (before, after) = (members(&before), members(&after));
            let ring = Ring::new(&before);
            check_shares(&ring, &before);
            let changed = ring.changed(&after);
            check_shares(&changed, &after);
            let most = before.len().max(after.len()) as u16;
            let least: usize =
                (1..=most).map(|number| ring.share(number).saturating_sub(changed.share(number))).sum();
            prop_assert_eq!(moved(&ring, &changed), least);
        }
    }
}
