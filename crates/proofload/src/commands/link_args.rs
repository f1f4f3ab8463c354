//! The options of `proofload link`.

use std::path::PathBuf;

use clap::Args;
use lab::link::{
    Address, CertifyOptions, Direction, Driver, End, LinkSpec, Namespace, Shape,
    text::{KEYS, Mistake, ShapeText},
};
use record::units::{parse_count, parse_time};

use super::text::Mistakes;

const SHAPE: &str = "The link (both directions)";
const ENDS: &str = "Its ends";
const OUTPUT: &str = "Output";

/// What the exit status says, at the end of the help.
const STATUS: &str = "Exit status: 0 ended by --duration, Ctrl-C or SIGTERM, 2 wrong use, or the link \
                      cannot be had, 3 it ran but --certify did not find it as it should be.";

/// Join two hosts by a link of a certain rate, delay and loss.
///
/// A host is a process (its number), a name under /run/netns, or a path such as /proc/PID/ns/net. While the
/// link runs it takes orders on standard input: `set rate=20mbit delay=5ms`, `set a-to-b loss=1%`, `down`,
/// `up`, `counters`.
#[derive(Debug, Clone, Args)]
#[command(after_help = STATUS)]
pub(crate) struct LinkArgs {
    /// The first host
    #[arg(value_name = "A")]
    a: String,
    /// The second host
    #[arg(value_name = "B")]
    b: String,
    /// 1gbit, 20mbit, 64kbit or unlimited
    #[arg(long, value_name = "RATE", help_heading = SHAPE)]
    rate: Option<String>,
    /// What the rate counts: wire (Ethernet with preamble and gap), frame or ip
    #[arg(long, value_name = "wire|frame|ip", help_heading = SHAPE)]
    layer: Option<String>,
    /// One-way delay
    #[arg(long, value_name = "T", help_heading = SHAPE)]
    delay: Option<String>,
    /// Added to the delay: uniform:0ms..2ms, exp:1ms, lognormal:1ms,0.5 or file:PATH
    #[arg(long, value_name = "DIST", help_heading = SHAPE)]
    jitter: Option<String>,
    /// Whether packets keep their order under jitter, or overtake each other as with netem
    #[arg(long, value_name = "keep|free", help_heading = SHAPE)]
    jitter_order: Option<String>,
    /// 0.1%, burst:0.1%,8 (share, mean length) or ge:P,R,LOSS_GOOD,LOSS_BAD
    #[arg(long, value_name = "LOSS", help_heading = SHAPE)]
    loss: Option<String>,
    /// What may wait: 64KiB, or 1bdp of rate and round-trip time
    #[arg(long, value_name = "SIZE", help_heading = SHAPE)]
    queue: Option<String>,
    /// Share that comes late, and by how much: 1%,2ms
    #[arg(long, value_name = "RATIO,T", help_heading = SHAPE)]
    reorder: Option<String>,
    /// Share that comes twice
    #[arg(long, value_name = "RATIO", help_heading = SHAPE)]
    duplicate: Option<String>,
    /// What is different from B to A, such as rate=20mbit; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = SHAPE)]
    back: Vec<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value = "1", help_heading = SHAPE)]
    seed: String,
    /// emulator (ours) or netem (the kernel's sch_netem and sch_tbf, on interfaces that exist)
    #[arg(long, value_name = "emulator|netem", default_value = "emulator", help_heading = ENDS)]
    driver: String,
    /// Names of the interfaces in A and B
    #[arg(long, value_name = "A[,B]", default_value = "link0", help_heading = ENDS)]
    device: String,
    /// Their addresses; netem leaves those that there are
    #[arg(long, value_name = "A,B", default_value = "10.255.255.1/30,10.255.255.2/30", help_heading = ENDS)]
    addresses: String,
    /// Largest IP packet
    #[arg(long, value_name = "BYTES", default_value = "1500", help_heading = ENDS)]
    mtu: String,
    /// Measure the link before it is declared ready; exit status 3 if it is not what it should be
    #[arg(long)]
    certify: bool,
    /// Packets sent each way to measure the loss
    #[arg(long, value_name = "N", requires = "certify")]
    certify_packets: Option<String>,
    /// How long to measure the delay
    #[arg(long, value_name = "T", requires = "certify")]
    certify_delay: Option<String>,
    /// End by itself after this long
    #[arg(short, long, value_name = "T")]
    duration: Option<String>,
    /// Write specification, certificate and counters as JSON at the end (- for standard output)
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    /// The link.
    pub spec: LinkSpec,
    /// Its ends.
    pub ends: [End; 2],
    /// Whether and how to measure it.
    pub certify: Option<CertifyOptions>,
    /// How long it runs; without end if not given.
    pub duration: Option<std::time::Duration>,
}

impl LinkArgs {
    /// What is to be done.
    ///
    /// # Errors
    /// Every mistake.
    pub(crate) fn job(&self) -> Result<Job, Vec<String>> {
        let mut m = Mistakes::default();
        let text = ShapeText {
            rate: self.rate.clone(),
            layer: self.layer.clone(),
            delay: self.delay.clone(),
            jitter: self.jitter.clone(),
            jitter_order: self.jitter_order.clone(),
            loss: self.loss.clone(),
            queue: self.queue.clone(),
            reorder: self.reorder.clone(),
            duplicate: self.duplicate.clone(),
        };
        let seed = m.optional("--seed", Some(&self.seed), parse_count).unwrap_or(1);
        let common = Shape { seed, ..Shape::default() };
        let LinkSpec { a_to_b, b_to_a, .. } =
            LinkSpec::symmetric(shape(&mut m, "", text.read(&common), Shape::default()));
        let back = m.optional("--back", Some(&self.back.join(" ")), parse_settings);
        let b_to_a = shape(&mut m, "--back ", back.unwrap_or_default().read(&b_to_a), b_to_a);
        let driver = match self.driver.as_str() {
            "emulator" => Driver::Emulator,
            "netem" => Driver::Netem,
            other => {
                m.add(format!("--driver: '{other}' is not a driver; emulator or netem"));
                Driver::Emulator
            }
        };
        let mut certify = self.certify.then(CertifyOptions::default);
        if let Some(certify) = &mut certify {
            if let Some(packets) =
                m.optional("--certify-packets", self.certify_packets.as_deref(), parse_count)
            {
                certify.loss_packets = packets.clamp(1, 100_000_000);
            }
            if let Some(time) = m.optional("--certify-delay", self.certify_delay.as_deref(), parse_time) {
                certify.delay_ms = time.as_millis() as u64;
            }
        }
        let job = Job {
            spec: LinkSpec { driver, a_to_b, b_to_a },
            ends: self.ends(&mut m),
            certify,
            duration: m.optional("--duration", self.duration.as_deref(), parse_time),
        };
        if driver == Driver::Netem && job.certify.is_some() {
            m.add("--certify measures the emulator; the kernel's netem has no certificate");
        }
        m.none_or(job)
    }

    fn ends(&self, m: &mut Mistakes) -> [End; 2] {
        let (device_a, device_b) = self.device.split_once(',').unwrap_or((&self.device, &self.device));
        let (address_a, address_b) = self.addresses.split_once(',').unwrap_or((&self.addresses, ""));
        let mtu = m.optional("--mtu", Some(&self.mtu), parse_count).unwrap_or(1_500);
        if !(68..=65_000).contains(&mtu) {
            m.add(format!("--mtu: {mtu} is not between 68 and 65000"));
        }
        let mut end = |host: &str, device: &str, address: &str| End {
            namespace: namespace(host),
            device: device.to_owned(),
            addresses: m
                .optional("--addresses", Some(address), |text| text.parse::<Address>())
                .into_iter()
                .collect(),
            mtu: mtu as u32,
        };
        [end(&self.a, device_a, address_a), end(&self.b, device_b, address_b)]
    }
}

fn namespace(host: &str) -> Namespace {
    match host.parse() {
        Ok(pid) => Namespace::Pid(pid),
        Err(_) if host.contains('/') => Namespace::Path(host.into()),
        Err(_) => Namespace::Path(PathBuf::from("/run/netns").join(host)),
    }
}

/// What was read; with mistakes in it, which are told by `prefix` or by their options, what was to hold otherwise.
fn shape(m: &mut Mistakes, prefix: &str, read: Result<Shape, Vec<Mistake>>, otherwise: Shape) -> Shape {
    read.unwrap_or_else(|mistakes| {
        for Mistake { key, message } in mistakes {
            m.add(match prefix {
                "" => format!("--{}: {message}", key.replace('_', "-")),
                prefix => format!("{prefix}{key}: {message}"),
            });
        }
        otherwise
    })
}

/// Settings parted by blanks: `rate=20mbit delay=5ms`.
pub(crate) fn parse_settings(text: &str) -> Result<ShapeText, String> {
    let mut settings = ShapeText::default();
    for word in text.split_whitespace() {
        let (key, value) =
            word.split_once('=').ok_or_else(|| format!("'{word}' is not a setting such as rate=20mbit"))?;
        let slot = settings.value_mut(key);
        *slot.ok_or_else(|| format!("'{key}' is not a setting; one of {}", KEYS.join(", ")))? =
            Some(value.to_owned());
    }
    Ok(settings)
}

/// An order on standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Change these directions.
    Set(Vec<Direction>, Box<ShapeText>),
    /// Cut it.
    Down,
    /// Mend it.
    Up,
    /// Show the counters.
    Counters,
}

impl std::str::FromStr for Order {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        match line.split_once(char::is_whitespace).unwrap_or((line, "")) {
            ("down", "") => Ok(Self::Down),
            ("up", "") => Ok(Self::Up),
            ("counters", "") => Ok(Self::Counters),
            ("set", rest) => {
                let (directions, rest) = match rest.trim().split_once(char::is_whitespace) {
                    Some(("a-to-b", rest)) => (vec![Direction::AToB], rest),
                    Some(("b-to-a", rest)) => (vec![Direction::BToA], rest),
                    _ => (Direction::BOTH.to_vec(), rest),
                };
                Ok(Self::Set(directions, Box::new(parse_settings(rest)?)))
            }
            _ => {
                Err(format!("'{line}' is not an order; set [a-to-b|b-to-a] KEY=VALUE…, down, up or counters"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        link: LinkArgs,
    }

    fn job(line: &str) -> Result<Job, Vec<String>> {
        Command::try_parse_from(["link"].into_iter().chain(line.split_whitespace())).unwrap().link.job()
    }

    #[test]
    fn both_directions_and_what_differs_on_the_way_back() {
        let job =
            job("12 lab --rate 1gbit --delay 114ms --back rate=20mbit --device eth1,eth2 --certify").unwrap();
        assert_eq!(job.spec.a_to_b.rate_bits_per_s, Some(1_000_000_000));
        assert_eq!(job.spec.b_to_a.rate_bits_per_s, Some(20_000_000));
        assert_eq!(job.spec.b_to_a.delay_ns, 114_000_000);
        assert_eq!(job.ends[0].namespace, Namespace::Pid(12));
        assert_eq!(job.ends[1].namespace, Namespace::Path("/run/netns/lab".into()));
        assert_eq!(job.ends[1].device, "eth2");
        assert_eq!(job.certify, Some(CertifyOptions::default()));
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let mistakes = job(
            "1 2 --rate fast --delay soon --back speed=1 --addresses here --mtu 5 --driver tc --seed x --duration long",
        );
        let mistakes = mistakes.unwrap_err().join("\n");
        for part in
            ["--rate: 'fast'", "--delay: 'soon'", "'speed'", "'here'", "--mtu: 5", "'tc'", "'x'", "'long'"]
        {
            assert!(mistakes.contains(part), "{part} is not in {mistakes}");
        }
    }

    #[test]
    fn orders_are_read() {
        assert_eq!("down".parse(), Ok(Order::Down));
        let both: Order = "set rate=20mbit delay=5ms".parse().unwrap();
        assert!(matches!(both, Order::Set(ref directions, ref text)
            if directions.len() == 2 && text.delay.as_deref() == Some("5ms")));
        let one: Order = "set b-to-a loss=1%".parse().unwrap();
        assert!(matches!(one, Order::Set(ref directions, _) if *directions == [Direction::BToA]));
        assert!("sideways".parse::<Order>().is_err() && "set speed=1".parse::<Order>().is_err());
    }
}
