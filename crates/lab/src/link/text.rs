//! The shape of a direction of a link as users write it, in a lab file or on the command line.

use record::{
    Distribution,
    units::{parse_ratio, parse_size, parse_time},
};

use super::spec::{JitterOrder, Layer, Loss, Queue, Reorder, Shape};

/// The keys of a [`Shape`] as text. A missing key leaves the shape unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapeText {
    /// `1gbit`, `20mbit`, `unlimited`.
    pub rate: Option<String>,
    /// `wire`, `frame` or `ip`.
    pub layer: Option<String>,
    /// `114ms`.
    pub delay: Option<String>,
    /// A distribution of times: `uniform:0ms..2ms`, `exp:1ms`.
    pub jitter: Option<String>,
    /// `keep` or `free`.
    pub jitter_order: Option<String>,
    /// `0.1%`, `burst:0.1%,8` (share, mean length) or `ge:P,R,LOSS_GOOD,LOSS_BAD`.
    pub loss: Option<String>,
    /// `64KiB` or `1bdp`.
    pub queue: Option<String>,
    /// `1%,2ms`: share of late segments, additional delay.
    pub reorder: Option<String>,
    /// `0.1%`.
    pub duplicate: Option<String>,
}

/// A mistake in the value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the key.
    pub key: &'static str,
    /// The mistake, and the expected form of the value.
    pub message: String,
}

/// Names of the keys.
pub const KEYS: [&str; 9] =
    ["rate", "layer", "delay", "jitter", "jitter_order", "loss", "queue", "reorder", "duplicate"];

impl ShapeText {
    /// The value of a key, mutable; none if the key does not exist.
    pub fn value_mut(&mut self, key: &str) -> Option<&mut Option<String>> {
        Some(match key {
            "rate" => &mut self.rate,
            "layer" => &mut self.layer,
            "delay" => &mut self.delay,
            "jitter" => &mut self.jitter,
            "jitter_order" => &mut self.jitter_order,
            "loss" => &mut self.loss,
            "queue" => &mut self.queue,
            "reorder" => &mut self.reorder,
            "duplicate" => &mut self.duplicate,
            _ => return None,
        })
    }

    /// Returns `base` with the given keys applied.
    ///
    /// # Errors
    /// Every mistake.
    pub fn read(&self, base: &Shape) -> Result<Shape, Vec<Mistake>> {
        let mut shape = base.clone();
        let mut mistakes = Vec::new();
        let mut read = |key, text: &Option<String>, take: &mut dyn FnMut(&str) -> Result<(), String>| {
            if let Some(Err(message)) = text.as_deref().map(|text| take(text.trim())) {
                mistakes.push(Mistake { key, message });
            }
        };
        read("rate", &self.rate, &mut |t| parse_rate(t).map(|v| shape.rate_bits_per_s = v));
        read("layer", &self.layer, &mut |t| layer(t).map(|v| shape.layer = v));
        read("delay", &self.delay, &mut |t| time_ns(t).map(|v| shape.delay_ns = v));
        read("jitter", &self.jitter, &mut |t| t.parse().map(|v: Distribution| shape.jitter = v));
        read("jitter_order", &self.jitter_order, &mut |t| order(t).map(|v| shape.jitter_order = v));
        read("loss", &self.loss, &mut |t| loss(t).map(|v| shape.loss = v));
        read("queue", &self.queue, &mut |t| queue(t).map(|v| shape.queue = v));
        read("reorder", &self.reorder, &mut |t| reorder(t).map(|v| shape.reorder = v));
        read("duplicate", &self.duplicate, &mut |t| ratio(t).map(|v| shape.duplicate_ratio = v));
        if mistakes.is_empty() && self.queue.is_some() && shape.rate_bits_per_s.is_none() {
            let message = "a link without a rate has no queue; give 'rate' too, or leave 'queue' out";
            mistakes.push(Mistake { key: "queue", message: message.to_owned() });
        }
        if mistakes.is_empty() {
            let whole = |message: String| {
                let (key, message) = message.split_once(": ").unwrap_or(("loss", &message));
                let key = KEYS.into_iter().find(|known| *known == key).unwrap_or("loss");
                Mistake { key, message: message.to_owned() }
            };
            mistakes.extend(shape.mistakes().into_iter().map(whole));
        }
        if mistakes.is_empty() { Ok(shape) } else { Err(mistakes) }
    }
}

/// Reads the rate of a link, in bits per second: `1gbit`, `2.5gbit`, `100mbit`, `64kbit`, `unlimited`.
/// Prefixes are decimal, as networks count.
///
/// # Errors
/// When the text is not a rate; the message says what was expected.
pub fn parse_rate(text: &str) -> Result<Option<u64>, String> {
    let refuse = || format!("'{text}' is not a rate such as 1gbit, 20mbit, 64kbit or unlimited");
    if text == "unlimited" {
        return Ok(None);
    }
    let lower = text.to_ascii_lowercase();
    let number = lower.strip_suffix("/s").or(lower.strip_suffix("ps")).unwrap_or(&lower);
    let number = number.strip_suffix("bit").ok_or_else(refuse)?;
    let (number, factor) = match number.as_bytes().last() {
        Some(b'k') => (&number[..number.len() - 1], 1e3),
        Some(b'm') => (&number[..number.len() - 1], 1e6),
        Some(b'g') => (&number[..number.len() - 1], 1e9),
        _ => (number, 1.0),
    };
    let digits = number.trim_end();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(refuse());
    }
    let rate = digits.parse::<f64>().map_err(|_| refuse())? * factor;
    if (1.0..=1e15).contains(&rate) { Ok(Some(rate.round() as u64)) } else { Err(refuse()) }
}

/// A rate as users write it.
pub fn show_rate(rate_bits_per_s: Option<u64>) -> String {
    let Some(rate) = rate_bits_per_s else { return "unlimited".to_owned() };
    let (factor, unit) = match rate {
        1_000_000_000.. => (1e9, "gbit"),
        1_000_000.. => (1e6, "mbit"),
        1_000.. => (1e3, "kbit"),
        _ => (1.0, "bit"),
    };
    format!("{}{unit}", rate as f64 / factor)
}

fn layer(text: &str) -> Result<Layer, String> {
    match text {
        "wire" => Ok(Layer::Wire),
        "frame" => Ok(Layer::Frame),
        "ip" => Ok(Layer::Ip),
        _ => Err(format!("'{text}' is not a layer; one of wire, frame, ip")),
    }
}

fn order(text: &str) -> Result<JitterOrder, String> {
    match text {
        "keep" => Ok(JitterOrder::Keep),
        "free" => Ok(JitterOrder::Free),
        _ => Err(format!("'{text}' is not a jitter order; one of keep, free")),
    }
}

fn time_ns(text: &str) -> Result<u64, String> {
    parse_time(text).map(|time| time.as_nanos() as u64).map_err(|e| e.to_string())
}

fn ratio(text: &str) -> Result<f64, String> {
    parse_ratio(text).map_err(|e| e.to_string())
}

fn loss(text: &str) -> Result<Loss, String> {
    let refuse = || {
        format!(
            "'{text}' is not a loss such as 0.1%, burst:0.1%,8 (share, mean length in packets) or \
             ge:0.01%,20%,0,100% (good to bad, bad to good, loss when good, loss when bad)"
        )
    };
    let ratios = |list: &str| {
        list.split(',').map(|t| ratio(t.trim()).map_err(|_| refuse())).collect::<Result<Vec<_>, _>>()
    };
    match text.split_once(':') {
        None if text == "none" => Ok(Loss::None),
        None => match ratio(text).map_err(|_| refuse())? {
            0.0 => Ok(Loss::None),
            ratio => Ok(Loss::Random { ratio }),
        },
        Some(("burst", parameters)) => {
            let (share, length) = parameters.split_once(',').ok_or_else(refuse)?;
            let length: f64 = length.trim().parse().map_err(|_| refuse())?;
            let share = ratio(share.trim()).map_err(|_| refuse())?;
            if !(1.0..=1e6).contains(&length) || share >= 1.0 {
                return Err(refuse());
            }
            let loss = Loss::bursty(share, length);
            // At least one packet must pass between two bursts.
            if matches!(loss, Loss::GilbertElliott { good_to_bad, .. } if good_to_bad > 1.0) {
                return Err(format!(
                    "'{text}': bursts this short cannot lose such a large share; give longer bursts"
                ));
            }
            Ok(loss)
        }
        Some(("ge", parameters)) => match ratios(parameters)?[..] {
            [good_to_bad, bad_to_good, loss_good, loss_bad] => {
                Ok(Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad })
            }
            _ => Err(refuse()),
        },
        Some(_) => Err(refuse()),
    }
}

fn queue(text: &str) -> Result<Queue, String> {
    if let Some(multiple) = text.strip_suffix("bdp") {
        return match multiple.trim().parse::<f64>() {
            Ok(multiple) if multiple > 0.0 && multiple.is_finite() => Ok(Queue::Bdp { multiple }),
            _ => Err(format!("'{text}' is not a multiple such as 1bdp or 0.5bdp")),
        };
    }
    parse_size(text)
        .map(|bytes| Queue::Bytes { bytes })
        .map_err(|_| format!("'{text}' is not a queue such as 64KiB, 2MiB, 1bdp or 0.5bdp"))
}

fn reorder(text: &str) -> Result<Option<Reorder>, String> {
    let refuse = || format!("'{text}' is not a reordering such as 1%,2ms (share, how late)");
    let (share, late) = text.split_once(',').ok_or_else(refuse)?;
    let ratio = ratio(share.trim()).map_err(|_| refuse())?;
    let late_ns = time_ns(late.trim()).map_err(|_| refuse())?;
    Ok((ratio > 0.0).then_some(Reorder { ratio, late_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn every_setting_is_read() {
        let text = ShapeText {
            rate: some("1gbit"),
            layer: some("frame"),
            delay: some("114ms"),
            jitter: some("exp:1ms"),
            jitter_order: some("free"),
            loss: some("0.1%"),
            queue: some("0.5bdp"),
            reorder: some("1%,2ms"),
            duplicate: some("0.2%"),
        };
        let expected = Shape {
            rate_bits_per_s: Some(1_000_000_000),
            layer: Layer::Frame,
            delay_ns: 114_000_000,
            jitter: Distribution::Exponential { mean_ns: 1_000_000 },
            jitter_order: JitterOrder::Free,
            loss: Loss::Random { ratio: 0.001 },
            queue: Queue::Bdp { multiple: 0.5 },
            reorder: Some(Reorder { ratio: 0.01, late_ns: 2_000_000 }),
            duplicate_ratio: 0.002,
            seed: 1,
        };
        assert_eq!(text.read(&Shape::default()), Ok(expected));
        assert_eq!(ShapeText::default().read(&Shape::default()), Ok(Shape::default()));
    }

    #[test]
    fn all_mistakes_are_named_with_their_keys() {
        let text = ShapeText {
            rate: some("fast"),
            layer: some("ether"),
            delay: some("soon"),
            jitter: some("wild"),
            jitter_order: some("any"),
            loss: some("burst:1%"),
            queue: some("long"),
            reorder: some("1%"),
            duplicate: some("2"),
        };
        let mistakes = text.read(&Shape::default()).unwrap_err();
        assert_eq!(mistakes.iter().map(|mistake| mistake.key).collect::<Vec<_>>(), KEYS);
        let small = ShapeText { queue: some("10"), rate: some("1bit"), ..ShapeText::default() };
        let keys: Vec<_> = small.read(&Shape::default()).unwrap_err().iter().map(|m| m.key).collect();
        assert_eq!(keys, ["rate", "queue"]);
    }

    #[test]
    fn rates_are_decimal_and_shown_as_written() {
        for (text, rate) in [("64kbit", 64_000), ("2.5gbit", 2_500_000_000), ("20Mbit/s", 20_000_000)] {
            assert_eq!(parse_rate(text), Ok(Some(rate)));
            assert_eq!(parse_rate(&show_rate(Some(rate))), Ok(Some(rate)));
        }
        assert_eq!(parse_rate("unlimited"), Ok(None));
        for bad in ["", "bit", "1", "-1gbit", "1e9bit", "1gb", "infbit", "0bit"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn losses_in_every_form() {
        assert_eq!(loss("0"), Ok(Loss::None));
        assert_eq!(loss("burst:1%,5"), Ok(Loss::bursty(0.01, 5.0)));
        let chain =
            Loss::GilbertElliott { good_to_bad: 0.01, bad_to_good: 0.2, loss_good: 0.0, loss_bad: 0.5 };
        assert_eq!(loss("ge:1%,20%,0,50%"), Ok(chain));
        for bad in ["burst:99%,1", "burst:1%,0", "ge:1,1", "x:1", "2"] {
            assert!(loss(bad).is_err(), "{bad}");
        }
    }
}
