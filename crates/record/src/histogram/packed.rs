//! A histogram that holds only its non-empty bins, for reading.

use std::{cell::RefCell, collections::BTreeMap};

use flate2::{Decompress, FlushDecompress, Status};

use super::{DIGITS, HIGHEST_NS, Hdr, LOWEST_NS, empty_hdr};

/// The first bytes of the V2 format of the HdrHistogram libraries.
const V2_COOKIE: u32 = 0x1c84_9313;
/// The first bytes of the compressed V2 format.
const V2_COMPRESSED_COOKIE: u32 = 0x1c84_9314;
/// Bytes between the cookie and the counts: length, normalizing offset, digits, smallest and largest value, conversion
/// ratio.
const V2_HEAD_BYTES: usize = 36;

/// Number of low bits of a time that the width of the lowest bins drops.
const UNIT_BITS: u32 = LOWEST_NS.ilog2();
/// Logarithm of the number of bins between two doublings of their width. That number is half of the power of two needed
/// for [`DIGITS`].
const HALF_BITS: u32 = (2 * 10_u64.pow(DIGITS as u32)).next_power_of_two().ilog2() - 1;

/// Largest size of the decompressed format, in bytes. All bins with the largest count need less.
const MAX_INFLATED_BYTES: usize = 1 << 20;

thread_local! {
    /// Reused, because an allocation of this size per trial would fragment the memory.
    static INFLATER: RefCell<(Decompress, Vec<u8>)> =
        RefCell::new((Decompress::new(true), Vec::with_capacity(MAX_INFLATED_BYTES)));
}

/// The non-empty bins, mostly in one or two bytes each; the library's array of all bins takes 0.2 MB. All results equal
/// those of the library to the last bit.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Packed {
    /// The bins in ascending order, as numbers of variable length. The number of a bin is twice its distance from the
    /// preceding bin. If the bin's count is not 1, the number is increased by 1 and the count follows.
    bins: Box<[u8]>,
    total: u64,
    /// The largest time: the upper end of the last bin, or 0 if all times are 0, as in the library.
    max_ns: u64,
}

impl Packed {
    /// Packs a histogram of the library, whose largest value must not exceed [`HIGHEST_NS`].
    pub(super) fn of(hdr: &Hdr) -> Self {
        if hdr.is_empty() {
            return Self::default();
        }
        let recorded = hdr.iter_recorded().map(|v| (Bin::of(v.value_iterated_to()), v.count_at_value()));
        Self::from_bins(recorded, hdr.len(), hdr.max())
    }

    /// Parses the compressed V2 format without an array of all bins, which would be slow for thousands of histograms.
    pub(super) fn of_v2_deflate(bytes: &[u8]) -> Option<Self> {
        let compressed = bytes.strip_prefix(&V2_COMPRESSED_COOKIE.to_be_bytes())?.get(4..)?;
        INFLATER.with_borrow_mut(|(state, plain)| {
            plain.clear();
            state.reset(true);
            let status = state.decompress_vec(compressed, plain, FlushDecompress::Finish);
            matches!(status, Ok(Status::StreamEnd)).then(|| Self::of_v2(plain))?
        })
    }

    fn of_v2(plain: &[u8]) -> Option<Self> {
        let rest = plain.strip_prefix(&V2_COOKIE.to_be_bytes())?;
        let (head, mut numbers) = rest.split_at_checked(V2_HEAD_BYTES)?;
        let (length, head) = head.split_at(4);
        let (normalizing_offset, bounds) = ([0; 4], [LOWEST_NS, HIGHEST_NS, 1.0_f64.to_bits()]);
        let digits = u32::from(DIGITS).to_be_bytes();
        let expected = [&normalizing_offset[..], &digits].concat().into_iter();
        let expected = expected.chain(bounds.into_iter().flat_map(u64::to_be_bytes));
        let is_ours = head.iter().copied().eq(expected) && length == (numbers.len() as u32).to_be_bytes();
        if !is_ours {
            return None;
        }
        let (mut bins, mut next, mut total) = (Vec::new(), 0_u64, 0_u64);
        while !numbers.is_empty() {
            let number = read_varint(&mut numbers)?;
            // An odd number stands for a row of empty bins.
            let (step, count) = if number % 2 == 1 { (number / 2 + 1, 0) } else { (1, number / 2) };
            if count > 0 {
                bins.push((Bin(u16::try_from(next).ok()?), count));
                total = total.saturating_add(count);
            }
            next = next.checked_add(step).filter(|next| *next <= 1 << u16::BITS)?;
        }
        let max_ns = bins.last().map_or(0, |(bin, _)| bin.high_ns());
        Some(Self::from_bins(bins.into_iter(), total, max_ns))
    }

    /// Converts to the library's histogram, with all bins.
    pub(super) fn to_hdr(&self) -> Hdr {
        let mut hdr = empty_hdr();
        self.add_to(&mut hdr);
        hdr
    }

    /// Adds all counts to a histogram of the library.
    pub(super) fn add_to(&self, hdr: &mut Hdr) {
        for (bin, count) in self.iter() {
            hdr.saturating_record_n(bin.high_ns().min(self.max_ns), count);
        }
    }

    /// Adds all counts of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        let mut both: Vec<(Bin, u64)> = self.iter().chain(other.iter()).collect();
        // The stable sort merges the two ascending halves in one pass.
        both.sort_by_key(|&(bin, _)| bin);
        both.dedup_by(|(bin, count), (kept_bin, kept_count)| {
            let same = bin == kept_bin;
            if same {
                *kept_count = kept_count.saturating_add(*count);
            }
            same
        });
        let total = self.total.saturating_add(other.total);
        *self = Self::from_bins(both.into_iter(), total, self.max_ns.max(other.max_ns));
    }

    /// Subtracts the counts of `other`; `None` if `other` has counts that this histogram lacks.
    pub(super) fn without(&self, other: &Self) -> Option<Self> {
        let mut left: BTreeMap<Bin, u64> = self.iter().collect();
        for (bin, count) in other.iter() {
            let remaining = left.get_mut(&bin)?;
            *remaining = remaining.checked_sub(count)?;
        }
        left.retain(|_, count| *count > 0);
        let max_ns = left.keys().next_back().map_or(0, |bin| bin.high_ns());
        Some(Self::from_bins(left.into_iter(), self.total.checked_sub(other.total)?, max_ns))
    }

    /// The number of counted times.
    pub(super) fn count(&self) -> u64 {
        self.total
    }

    /// Smallest counted time; 0 if empty.
    pub(super) fn min_ns(&self) -> u64 {
        self.iter().next().map_or(0, |(bin, _)| bin.low_ns())
    }

    /// Largest counted time; 0 if empty.
    pub(super) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// A quantile, as in the library: the upper end of the first bin at which the cumulative share reaches the
    /// quantile. For quantile 0 the lower end of the first bin; 0 if empty.
    pub(super) fn quantile_ns(&self, quantile: f64) -> u64 {
        let quantile = if quantile > 1.0 { 1.0 } else { quantile };
        let rank = ((quantile * self.total as f64).ceil() as u64).max(1);
        let mut up_to_here = 0_u64;
        for (bin, count) in self.iter() {
            up_to_here = up_to_here.saturating_add(count);
            if up_to_here >= rank {
                return if quantile == 0.0 { bin.low_ns() } else { bin.high_ns() };
            }
        }
        0
    }

    /// Arithmetic mean in nanoseconds, computed from the middles of the bins; 0 if empty.
    pub(super) fn mean_ns(&self) -> f64 {
        // The same order of operations as in the library gives the same rounding.
        self.iter()
            .fold(0.0, |mean, (bin, count)| mean + bin.middle_ns() as f64 * count as f64 / self.total as f64)
    }

    /// Standard deviation in nanoseconds; 0 if empty.
    pub(super) fn stdev_ns(&self) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        let mean = self.mean_ns();
        let squares = self.iter().fold(0.0, |sum, (bin, count)| {
            let deviation = bin.middle_ns() as f64 - mean;
            sum + (deviation * deviation) * count as f64
        });
        (squares / self.total as f64).sqrt()
    }

    /// The number of counted times in the bin of `ns` and in lower bins.
    pub(super) fn count_up_to_ns(&self, ns: u64) -> u64 {
        let last = Bin::of(ns);
        let within = self.iter().take_while(|&(bin, _)| bin <= last);
        within.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    fn iter(&self) -> impl Iterator<Item = (Bin, u64)> {
        let (mut rest, mut bin) = (&*self.bins, 0);
        std::iter::from_fn(move || {
            let number = read_varint(&mut rest)?;
            bin += number / 2;
            let count = if number % 2 == 0 { 1 } else { read_varint(&mut rest)? };
            Some((Bin(bin as u16), count))
        })
    }

    fn from_bins(recorded: impl Iterator<Item = (Bin, u64)>, total: u64, max_ns: u64) -> Self {
        let (mut bins, mut before) = (Vec::new(), 0);
        for (Bin(bin), count) in recorded {
            write_varint(&mut bins, u64::from(bin - before) * 2 + u64::from(count != 1));
            if count != 1 {
                write_varint(&mut bins, count);
            }
            before = bin;
        }
        Self { bins: bins.into(), total, max_ns }
    }
}

/// Writes a number with seven bits per byte, lowest first; the highest bit of a byte means that another byte follows. A
/// ninth byte has eight bits, as in the HdrHistogram format.
fn write_varint(bytes: &mut Vec<u8>, mut number: u64) {
    for _ in 0..8 {
        if number <= 0x7f {
            break;
        }
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads and removes a number from the front of `bytes`, see [`write_varint`].
fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut next_byte = || {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        Some(u64::from(byte))
    };
    let mut number = 0;
    for shift in (0..56).step_by(7) {
        let byte = next_byte()?;
        number |= (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    Some(number | next_byte()? << 56)
}

/// The index of a bin in HdrHistogram's array of counts. The first 2,048 bins are 64 ns wide; each further group of
/// 1,024 bins is twice as wide as the preceding group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bin(u16);

impl Bin {
    fn of(ns: u64) -> Self {
        let units = ns >> UNIT_BITS;
        let bits = u64::BITS - units.leading_zeros();
        let dropped = bits.saturating_sub(HALF_BITS + 1);
        // `units` has at most 58 bits, so at most 47 are dropped, and the index is at most 48 Ki + 2,047.
        Self(((u64::from(dropped) << HALF_BITS) + (units >> dropped)) as u16)
    }

    fn low_ns(self) -> u64 {
        let dropped = self.dropped_bits();
        (u64::from(self.0) - (u64::from(dropped) << HALF_BITS)) << (dropped + UNIT_BITS)
    }

    fn middle_ns(self) -> u64 {
        self.low_ns() + self.width_ns() / 2
    }

    fn high_ns(self) -> u64 {
        self.low_ns() + (self.width_ns() - 1)
    }

    fn width_ns(self) -> u64 {
        1 << (self.dropped_bits() + UNIT_BITS)
    }

    fn dropped_bits(self) -> u32 {
        (u32::from(self.0) >> HALF_BITS).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_those_of_the_library() {
        let hdr = empty_hdr();
        let last = hdr.distinct_values() - 1;
        let mut next_ns = 0;
        for number in 0..=last {
            let bin = Bin(u16::try_from(number).unwrap());
            assert_eq!(bin.low_ns(), next_ns, "bin {number} is not where the one before ends");
            for ns in [bin.low_ns(), bin.middle_ns(), bin.high_ns()] {
                assert_eq!(Bin::of(ns), bin, "{ns} ns");
                assert_eq!(bin.low_ns(), hdr.lowest_equivalent(ns));
                assert_eq!(bin.middle_ns(), hdr.median_equivalent(ns));
                assert_eq!(bin.high_ns(), hdr.highest_equivalent(ns));
            }
            next_ns = bin.high_ns() + 1;
        }
        assert!(Bin::of(u64::MAX) > Bin::of(next_ns - 1));
    }

    #[test]
    fn a_packed_histogram_takes_a_fortieth_of_the_memory_or_less() {
        let mut hdr = empty_hdr();
        (0..2_000).for_each(|i| hdr.saturating_record(1_000_000 + i * 2_000));
        let packed = Packed::of(&hdr);
        let bytes = packed.bins.len();
        assert!(bytes * 40 <= hdr.distinct_values() * size_of::<u64>(), "{bytes} bytes");
    }
}
