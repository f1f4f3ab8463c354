//! The text form of the shape of a link's direction, in lab files and on the command line.

use std::collections::BTreeMap;

use record::units::{parse_ratio, parse_size, parse_time};
use settings::options::{Kind, OptionSpec, choice};

use super::spec::{JitterOrder, Layer, Loss, Queue, Reorder, Shape};

/// Heading of the options in the help of `proofload link`.
pub const HEADING: &str = "The link (both directions)";

/// The keys of a [`Shape`], for lab files, studies and the command line.
pub static KEYS: &[OptionSpec<Shape>] = settings::option_table! {
    /// Rate: 1gbit, 20mbit, 64kbit or unlimited. Prefixes are decimal; without a rate there is no queue
    "rate", Kind::Text, "RATE", HEADING, "unlimited", "1gbit", |shape, t| shape.rate_bits_per_s = parse_rate(t[0])?;
    /// Which bytes the rate and the queue count: wire (Ethernet with preamble and gap), frame or ip
    "layer", Kind::Choice(LAYERS), "wire|frame|ip", HEADING, "wire", "frame",
        |shape, t| shape.layer = choice(t[0], LAYERS, &[Layer::Wire, Layer::Frame, Layer::Ip])?;
    /// One-way delay
    "delay", Kind::Time, "T", HEADING, "0ms", "114ms", |shape, t| shape.delay_ns = time_ns(t[0])?;
    /// Random time added to the delay: uniform:0ms..2ms, exp:1ms, lognormal:1ms,0.5 or file:PATH
    "jitter", Kind::Text, "DIST", HEADING, "", "exp:1ms", |shape, t| shape.jitter = t[0].parse()?;
    /// Whether packets keep their order under jitter, or overtake each other as with netem
    "jitter_order", Kind::Choice(ORDERS), "keep|free", HEADING, "keep", "free",
        |shape, t| shape.jitter_order = choice(t[0], ORDERS, &[JitterOrder::Keep, JitterOrder::Free])?;
    /// Loss: 0.1% of all packets; burst:0.1%,8 (share, mean length: Gilbert's model); or ge:P,R,LOSS_GOOD,LOSS_BAD
    /// (Gilbert-Elliott: good to bad, bad to good, loss in either)
    "loss", Kind::Text, "LOSS", HEADING, "none", "0.1%", |shape, t| shape.loss = loss(t[0])?;
    /// Size of the queue: bytes such as 64KiB, including the packet on the wire, or a multiple of rate times round-trip time such as
    /// 1bdp or 0.5bdp, at least 160 KiB
    "queue", Kind::Text, "SIZE", HEADING, "1bdp", "64KiB", |shape, t| shape.queue = queue(t[0])?;
    /// Share of packets that arrive late, behind later ones, and their extra delay: 1%,2ms
    "reorder", Kind::Text, "RATIO,T", HEADING, "", "1%,2ms", |shape, t| shape.reorder = reorder(t[0])?;
    /// Share of packets that arrive twice
    "duplicate", Kind::Text, "RATIO", HEADING, "0", "0.1%", |shape, t| shape.duplicate_ratio = ratio(t[0])?;
};
const LAYERS: &[&str] = &["wire", "frame", "ip"];
const ORDERS: &[&str] = &["keep", "free"];

/// The given keys of a [`Shape`], each with its text. Other keys leave the shape unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapeText(BTreeMap<&'static str, String>);

/// A mistake in the value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the key.
    pub key: &'static str,
    /// Description of the mistake and of the expected value.
    pub message: String,
}

impl ShapeText {
    /// Sets a key.
    ///
    /// # Errors
    /// When the key does not exist.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        let Some(known) = KEYS.iter().find(|known| known.key == key) else {
            let keys: Vec<&str> = KEYS.iter().map(|known| known.key).collect();
            return Err(format!("'{key}' is not known; the keys are {}", keys.join(", ")));
        };
        self.insert(known, text);
        Ok(())
    }

    /// Sets the key that this row defines.
    pub fn insert(&mut self, row: &'static OptionSpec<Shape>, text: &str) {
        self.0.insert(row.key, text.to_owned());
    }

    /// Returns `base` with the given keys applied.
    ///
    /// # Errors
    /// All mistakes.
    pub fn read(&self, base: &Shape) -> Result<Shape, Vec<Mistake>> {
        let mut shape = base.clone();
        let mut mistakes = Vec::new();
        for known in KEYS {
            let Some(text) = self.0.get(known.key) else { continue };
            if let Err(message) = (known.apply)(&mut shape, &[text.trim()]) {
                mistakes.push(Mistake { key: known.key, message });
            }
        }
        if mistakes.is_empty() && self.0.contains_key("queue") && shape.rate_bits_per_s.is_none() {
            let message = "a link without a rate has no queue; give 'rate' too, or leave 'queue' out";
            mistakes.push(Mistake { key: "queue", message: message.to_owned() });
        }
        if mistakes.is_empty() {
            let whole = |message: String| {
                let (key, message) = message.split_once(": ").unwrap_or(("loss", &message));
                let key = KEYS.iter().find(|known| known.key == key).map_or("loss", |known| known.key);
                Mistake { key, message: message.to_owned() }
            };
            mistakes.extend(shape.mistakes().into_iter().map(whole));
        }
        if mistakes.is_empty() { Ok(shape) } else { Err(mistakes) }
    }
}

/// Reads the rate of a link, in bits per second: `1gbit`, `2.5gbit`, `100mbit`, `64kbit`, `unlimited`. Prefixes are
/// decimal, as is usual in networks.
///
/// # Errors
/// If the text is not a rate. The message gives the expected form.
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

/// A rate in the form that [`parse_rate`] reads.
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
            // At least one packet must pass between two bursts: the probability cannot exceed 1.
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
    use record::Distribution;

    use super::*;

    fn text(keys: &[(&str, &str)]) -> ShapeText {
        let mut text = ShapeText::default();
        keys.iter().for_each(|(key, value)| text.set(key, value).unwrap());
        text
    }

    #[test]
    fn every_setting_is_read() {
        let keys = [
            ("rate", "1gbit"),
            ("layer", "frame"),
            ("delay", "114ms"),
            ("jitter", "exp:1ms"),
            ("jitter_order", "free"),
            ("loss", "0.1%"),
            ("queue", "0.5bdp"),
            ("reorder", "1%,2ms"),
            ("duplicate", "0.2%"),
        ];
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
        assert_eq!(text(&keys).read(&Shape::default()), Ok(expected));
        assert_eq!(ShapeText::default().read(&Shape::default()), Ok(Shape::default()));
        assert!(ShapeText::default().set("speed", "1").unwrap_err().contains("the keys are rate, layer"));
    }

    /// Every example is a valid value that changes the shape, and every default leaves the default shape unchanged.
    #[test]
    fn examples_and_defaults_are_what_they_say() {
        let base = Shape { rate_bits_per_s: Some(1), ..Shape::default() };
        for key in KEYS {
            let mut shape = base.clone();
            (key.apply)(&mut shape, &[key.example]).unwrap();
            assert_ne!(shape, base, "{}", key.key);
            if !key.default.is_empty() {
                let mut shape = Shape::default();
                (key.apply)(&mut shape, &[key.default]).unwrap();
                assert_eq!(shape, Shape::default(), "{}", key.key);
            }
        }
    }

    #[test]
    fn all_mistakes_are_named_with_their_keys() {
        let wrong = [
            ("rate", "fast"),
            ("layer", "ether"),
            ("delay", "soon"),
            ("jitter", "wild"),
            ("jitter_order", "any"),
            ("loss", "burst:1%"),
            ("queue", "long"),
            ("reorder", "1%"),
            ("duplicate", "2"),
        ];
        let mistakes = text(&wrong).read(&Shape::default()).unwrap_err();
        assert_eq!(mistakes.iter().map(|mistake| mistake.key).collect::<Vec<_>>(), wrong.map(|(key, _)| key));
        let small = text(&[("queue", "10"), ("rate", "1bit")]).read(&Shape::default()).unwrap_err();
        assert_eq!(small.iter().map(|m| m.key).collect::<Vec<_>>(), ["rate", "queue"]);
    }

    #[test]
    fn the_documented_keys_are_those_of_this_code() {
        let mut table = "| key | default | example | |\n|---|---|---|---|\n".to_owned();
        for key in KEYS {
            let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
            table += &format!("| `{}` | {default} | `{}` | {} |\n", key.key, key.example, key.help);
        }
        testing::assert_part_published("link.md", "keys", &table);
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
