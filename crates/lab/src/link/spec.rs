//! The specification of a link.

use record::Distribution;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of [`Shape::group_ns`].
const GROUP_NS: std::ops::RangeInclusive<u64> = 60_000..=600_000;

/// Minimum size of a queue given as a multiple of the bandwidth-delay product, in bytes. Two super-packets of 64 KiB
/// must fit, because the kernel passes them at once.
pub(crate) const MIN_BDP_QUEUE_BYTES: u64 = 160 * 1024;

/// What emulates the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// This program, in user space. Needs only the kernel module TUN.
    #[default]
    Emulator,
    /// The kernel's `sch_netem` and `sch_tbf`, on existing interfaces.
    Netem,
}

/// Both directions of a link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkSpec {
    /// What emulates the link.
    #[serde(default)]
    pub driver: Driver,
    /// From the first host to the second.
    pub a_to_b: Shape,
    /// From the second host to the first.
    pub b_to_a: Shape,
}

impl LinkSpec {
    /// The same shape in both directions, with different random numbers.
    pub fn symmetric(shape: Shape) -> Self {
        let back = Shape { seed: shape.seed.wrapping_add(1), ..shape.clone() };
        Self { driver: Driver::Emulator, a_to_b: shape, b_to_a: back }
    }

    /// One direction's shape.
    pub fn shape(&self, direction: Direction) -> &Shape {
        if direction == Direction::AToB { &self.a_to_b } else { &self.b_to_a }
    }

    /// One direction's shape, mutable.
    pub(crate) fn shape_mut(&mut self, direction: Direction) -> &mut Shape {
        if direction == Direction::AToB { &mut self.a_to_b } else { &mut self.b_to_a }
    }

    /// Round-trip time with empty queues and without jitter, in nanoseconds.
    pub fn round_trip_ns(&self) -> u64 {
        self.a_to_b.delay_ns.saturating_add(self.b_to_a.delay_ns)
    }
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the first host to the second.
    AToB,
    /// From the second host to the first.
    BToA,
}

impl Direction {
    /// Both directions, ordered by their indexes.
    pub const BOTH: [Self; 2] = [Self::AToB, Self::BToA];

    /// Index of the direction in arrays: 0 or 1.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One direction of a link: a queue, a wire of a certain rate, then a delay line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Rate in bits per second, counted on `layer`; unlimited if none.
    pub rate_bits_per_s: Option<u64>,
    /// Layer whose bytes count against the rate and the queue.
    #[serde(default)]
    pub layer: Layer,
    /// One-way delay after the last bit has left the wire, in nanoseconds.
    pub delay_ns: u64,
    /// Random time that is added to the delay.
    pub jitter: Distribution,
    /// Whether jitter may change the order of packets.
    #[serde(default)]
    pub jitter_order: JitterOrder,
    /// Loss on the wire. A lost segment has used the wire.
    pub loss: Loss,
    /// Capacity of the queue before the wire.
    pub queue: Queue,
    /// Segments that arrive late, so that others overtake them.
    pub reorder: Option<Reorder>,
    /// Share of segments that arrive twice, 0 to 1.
    pub duplicate_ratio: f64,
    /// Seed of all random numbers.
    #[serde(default)]
    pub seed: u64,
}

impl Default for Shape {
    /// No limit, no delay, no fault.
    fn default() -> Self {
        Self {
            rate_bits_per_s: None,
            layer: Layer::Wire,
            delay_ns: 0,
            jitter: Distribution::Fixed { ns: 0 },
            jitter_order: JitterOrder::Keep,
            loss: Loss::None,
            queue: Queue::Bdp { multiple: 1.0 },
            reorder: None,
            duplicate_ratio: 0.0,
            seed: 1,
        }
    }
}

impl Shape {
    /// Capacity of the queue in bytes of `layer`; none without a rate, because nothing waits then.
    pub fn queue_bytes(&self, round_trip_ns: u64) -> Option<u64> {
        let rate = self.rate_bits_per_s?;
        Some(match self.queue {
            Queue::Bytes { bytes } => bytes,
            Queue::Bdp { multiple } => {
                let bdp = rate as f64 / 8.0 * round_trip_ns as f64 / 1e9;
                ((bdp * multiple) as u64).max(MIN_BDP_QUEUE_BYTES)
            }
        })
    }

    /// Maximum time on the wire of segments that are moved as a group, in nanoseconds: a fiftieth of the delay, at
    /// least 60 µs, at most 600 µs. At 20 Mbit/s, a group is a single segment; at 1 Gbit/s and a long delay, it is all
    /// 45 segments of a super-packet. All segments of a group arrive with the last, as from a network card that
    /// coalesces interrupts.
    pub(crate) fn group_ns(&self) -> u64 {
        (self.delay_ns / 50).clamp(*GROUP_NS.start(), *GROUP_NS.end())
    }

    /// The mistakes in the shape. Each names the field and its allowed values.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.rate_bits_per_s.is_some_and(|rate| !(8_000..=1_000_000_000_000).contains(&rate)) {
            mistakes.push("rate: from 8kbit to 1000gbit".to_owned());
        }
        if self.delay_ns > 60_000_000_000 {
            mistakes.push("delay: at most 60s".to_owned());
        }
        if let Queue::Bytes { bytes } = self.queue
            && bytes < 1_600
        {
            mistakes.push(format!("queue: {bytes} bytes are less than one frame; at least 1600"));
        }
        if let Queue::Bdp { multiple } = self.queue
            && !(multiple > 0.0 && multiple <= 1_000.0)
        {
            mistakes.push("queue: a multiple above 0 and at most 1000bdp".to_owned());
        }
        let ratios = match self.loss {
            Loss::None => Vec::new(),
            Loss::Random { ratio } => vec![ratio],
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                if bad_to_good <= 0.0 {
                    mistakes.push("loss: the length of a burst must be finite".to_owned());
                }
                vec![good_to_bad, bad_to_good, loss_good, loss_bad]
            }
        };
        let ratios = ratios.into_iter().chain(self.reorder.map(|reorder| reorder.ratio));
        for ratio in ratios.chain([self.duplicate_ratio]) {
            if !(0.0..=1.0).contains(&ratio) {
                mistakes.push(format!("{ratio} is not a share between 0 and 1"));
            }
        }
        mistakes
    }
}

/// Whether jitter lets packets overtake each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JitterOrder {
    /// Packets keep their order: a packet that would overtake another arrives right behind it. The mean delay therefore
    /// grows with the rate of packets. Jitter is drawn for each group of segments.
    #[default]
    Keep,
    /// Packets overtake each other, as with netem. Jitter is drawn once for each packet that the kernel hands over.
    Free,
}

/// The layer whose bytes a rate counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The Ethernet wire: header 14, FCS 4, preamble 8, gap 12 bytes, frames padded to 64 bytes.
    #[default]
    Wire,
    /// The Ethernet frame without FCS, as the kernel's queueing disciplines count.
    Frame,
    /// The IP packet.
    Ip,
}

impl Layer {
    /// Bytes of an IP packet on this layer.
    pub fn bytes(self, ip_bytes: u64) -> u64 {
        match self {
            Self::Wire => ip_bytes.max(46) + 38,
            Self::Frame => ip_bytes + 14,
            Self::Ip => ip_bytes,
        }
    }
}

/// How segments are lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Loss {
    /// No losses.
    #[default]
    None,
    /// Independent losses.
    Random {
        /// Share of lost segments, 0 to 1.
        ratio: f64,
    },
    /// Losses in bursts: a Markov chain of two states with one step per segment (E. N. Gilbert, "Capacity of a
    /// Burst-Noise Channel", 1960; E. O. Elliott, 1963).
    GilbertElliott {
        /// Probability of a change from the good to the bad state.
        good_to_bad: f64,
        /// Probability of a change back; the mean burst is `1 / bad_to_good` segments.
        bad_to_good: f64,
        /// Share lost in the good state.
        loss_good: f64,
        /// Share lost in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// Bursts in which every segment is lost. `ratio` is the overall share of lost segments, `mean_burst` the mean
    /// number of segments in a burst.
    pub(crate) fn bursty(ratio: f64, mean_burst: f64) -> Self {
        let bad_to_good = 1.0 / mean_burst;
        // In equilibrium the share of the bad state is p / (p + r).
        let good_to_bad = if ratio >= 1.0 { 1.0 } else { bad_to_good * ratio / (1.0 - ratio) };
        Self::GilbertElliott { good_to_bad, bad_to_good, loss_good: 0.0, loss_bad: 1.0 }
    }

    /// Share of lost segments in the long run, 0 to 1.
    pub fn ratio(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Random { ratio } => ratio,
            Self::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                let turns = good_to_bad + bad_to_good;
                let bad = if turns > 0.0 { good_to_bad / turns } else { 0.0 };
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }

    /// Variance of the number of lost segments, divided by that of independent losses with the same share, in the limit
    /// of many segments.
    pub(crate) fn dispersion(self) -> f64 {
        match self {
            Self::None | Self::Random { .. } => 1.0,
            Self::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                let (mean, turns) = (self.ratio(), good_to_bad + bad_to_good);
                if mean <= 0.0 || mean >= 1.0 || turns <= 0.0 {
                    return 1.0;
                }
                let bad = good_to_bad / turns;
                // The covariance at lag k is that of the state times (1 - p - r)^k; their sum is a geometric series.
                let state = bad * (1.0 - bad) * (loss_bad - loss_good).powi(2);
                1.0 + 2.0 * state * (1.0 - turns) / turns / (mean * (1.0 - mean))
            }
        }
    }
}

/// Capacity of the queue before the wire. Segments that do not fit are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// A number of bytes, counted on the layer of the rate.
    Bytes {
        /// Bytes, at least one frame.
        bytes: u64,
    },
    /// A multiple of rate × round-trip time (both delays, without jitter).
    Bdp {
        /// Multiple, above 0.
        multiple: f64,
    },
}

/// Segments that arrive late.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reorder {
    /// Share of late segments, 0 to 1.
    pub ratio: f64,
    /// Additional delay, in nanoseconds.
    pub late_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_frame_takes_1538_bytes_of_wire_and_an_acknowledgement_84_or_more() {
        assert_eq!((Layer::Wire.bytes(1_500), Layer::Wire.bytes(40)), (1_538, 84));
        assert_eq!((Layer::Frame.bytes(1_500), Layer::Ip.bytes(1_500)), (1_514, 1_500));
    }

    #[test]
    fn the_queue_is_in_bytes_or_in_products_of_rate_and_round_trip() {
        let mut shape =
            Shape { rate_bits_per_s: Some(1_000_000_000), delay_ns: 114_000_000, ..Shape::default() };
        let spec = LinkSpec::symmetric(shape.clone());
        assert_eq!(shape.queue_bytes(spec.round_trip_ns()), Some(28_500_000));
        assert_eq!(shape.queue_bytes(0), Some(MIN_BDP_QUEUE_BYTES));
        shape.queue = Queue::Bytes { bytes: 5_000 };
        assert_eq!(shape.queue_bytes(spec.round_trip_ns()), Some(5_000));
        assert_eq!(Shape::default().queue_bytes(1), None);
    }

    #[test]
    fn bursts_have_the_share_asked_for() {
        assert!((Loss::bursty(0.01, 5.0).ratio() - 0.01).abs() < 1e-12);
        assert!(Loss::bursty(0.01, 5.0).dispersion() > 8.0);
        assert_eq!(Loss::Random { ratio: 0.5 }.dispersion(), 1.0);
    }

    #[test]
    fn mistakes_are_all_named() {
        let shape = Shape {
            rate_bits_per_s: Some(1),
            delay_ns: u64::MAX,
            loss: Loss::Random { ratio: 1.5 },
            queue: Queue::Bytes { bytes: 10 },
            duplicate_ratio: -1.0,
            ..Shape::default()
        };
        assert_eq!(shape.mistakes().len(), 5, "{:?}", shape.mistakes());
        assert!(Shape::default().mistakes().is_empty());
    }
}
