//! The options of `proofload link`.

use std::path::PathBuf;

use clap::Args;
use lab::link::{
    Address, CertifyOptions, Direction, Driver, End, LinkSpec, Namespace, Shape,
    text::{HEADING, KEYS, Mistake, ShapeText},
};
use record::units::{parse_count, parse_time};
use settings::options::OptionSpec;

use super::{
    mistakes::Mistakes,
    options::{Given, Table},
};

const ENDS: &str = "The ends of the link";
const OUTPUT: &str = "Output";

const EXIT_STATUS: &str = "Exit status: 0 ended by --duration, Ctrl-C or SIGTERM, 2 wrong use, or the link \
                           cannot be made, 3 the link ran, but --certify found other values than specified.";

/// Join two hosts by a link with a given rate, delay and loss.
///
/// A host is a process id, a name under /run/netns, or a path such as /proc/PID/ns/net. While the link runs, it reads
/// commands from standard input: `set rate=20mbit delay=5ms`, `set a-to-b loss=1%`, `down`, `up`, `counters`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct LinkArgs {
    /// The first host
    #[arg(value_name = "A")]
    a: String,
    /// The second host
    #[arg(value_name = "B")]
    b: String,
    #[command(flatten)]
    shape: Given<ShapeKeys>,
    /// Value for the direction from B to A, where it differs, such as rate=20mbit; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = HEADING)]
    back: Vec<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value = "1", help_heading = HEADING)]
    seed: String,
    /// emulator (proofload's own) or netem: the kernel's sch_netem and sch_tbf, on interfaces that exist
    #[arg(long, value_name = "emulator|netem", default_value = "emulator", help_heading = ENDS)]
    driver: String,
    /// Names of the interfaces in A and B
    #[arg(long, value_name = "A[,B]", default_value = "link0", help_heading = ENDS)]
    device: String,
    /// Addresses of the interfaces; netem keeps the existing ones
    #[arg(long, value_name = "A,B", default_value = "10.255.255.1/30,10.255.255.2/30", help_heading = ENDS)]
    addresses: String,
    /// Largest IP packet, in bytes
    #[arg(long, value_name = "BYTES", default_value = "1500", help_heading = ENDS)]
    mtu: String,
    /// Measure the link before it is announced as ready; exit status 3 if the values differ from the specification
    #[arg(long)]
    certify: bool,
    /// Packets sent each way to measure the loss
    #[arg(long, value_name = "N", requires = "certify")]
    certify_packets: Option<String>,
    /// How long to measure the delay
    #[arg(long, value_name = "T", requires = "certify")]
    certify_delay: Option<String>,
    /// Stop after this time
    #[arg(short, long, value_name = "T")]
    duration: Option<String>,
    /// Write specification, certificate and counters as JSON at the end; - is standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
}

/// The option table of the keys of a link's shape.
#[derive(Debug)]
struct ShapeKeys;

impl Table for ShapeKeys {
    type Config = Shape;
    const HAS_POSITIONALS: bool = true;

    fn settings() -> impl Iterator<Item = &'static OptionSpec<Shape>> {
        KEYS.iter()
    }
}

/// A link to run, from the parsed options.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    /// The driver and the shapes of both directions.
    pub spec: LinkSpec,
    /// Where the two ends of the link are.
    pub ends: [End; 2],
    /// How to certify the link; `None` skips the certification.
    pub certify: Option<CertifyOptions>,
    /// How long the link runs; `None` is until a signal.
    pub duration: Option<std::time::Duration>,
}

impl LinkArgs {
    /// Parses the options.
    ///
    /// # Errors
    /// All mistakes in the options.
    pub(crate) fn job(&self) -> Result<Job, Vec<String>> {
        let mut m = Mistakes::default();
        let mut text = ShapeText::default();
        for (setting, values) in &self.shape.0 {
            values.iter().for_each(|value| text.insert(setting, value));
        }
        let seed = m.optional("--seed", Some(&self.seed), parse_count).unwrap_or(1);
        let common = Shape { seed, ..Shape::default() };
        let LinkSpec { a_to_b, b_to_a, .. } =
            LinkSpec::symmetric(shape(&mut m, "", text.read(&common), Shape::default()));
        let back = m.optional("--back", Some(&self.back.join(" ")), parse_shape_text);
        let b_to_a = shape(&mut m, "--back ", back.unwrap_or_default().read(&b_to_a), b_to_a);
        let driver = match self.driver.as_str() {
            "emulator" => Driver::Emulator,
            "netem" => Driver::Netem,
            other => {
                m.add(format!("--driver: '{other}' is not a driver; give emulator or netem"));
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
        m.into_result(job)
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

/// Returns the parsed shape. If it is invalid, adds its mistakes under `prefix` or their options and returns `default`.
fn shape(m: &mut Mistakes, prefix: &str, read: Result<Shape, Vec<Mistake>>, default: Shape) -> Shape {
    read.unwrap_or_else(|mistakes| {
        for Mistake { key, message } in mistakes {
            m.add(match prefix {
                "" => format!("--{}: {message}", key.replace('_', "-")),
                prefix => format!("{prefix}{key}: {message}"),
            });
        }
        default
    })
}

/// Parses values separated by spaces: `rate=20mbit delay=5ms`.
fn parse_shape_text(text: &str) -> Result<ShapeText, String> {
    let mut shape = ShapeText::default();
    for word in text.split_whitespace() {
        let (key, value) =
            word.split_once('=').ok_or_else(|| format!("'{word}' is not KEY=VALUE, such as rate=20mbit"))?;
        shape.set(key, value)?;
    }
    Ok(shape)
}

/// A command that the user types on standard input while the link runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkCommand {
    /// Changes the shape of these directions.
    Set(Vec<Direction>, Box<ShapeText>),
    /// Takes the link down.
    Down,
    /// Brings the link up again.
    Up,
    /// Prints the counters.
    Counters,
}

impl std::str::FromStr for LinkCommand {
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
                Ok(Self::Set(directions, Box::new(parse_shape_text(rest)?)))
            }
            _ => Err(format!(
                "'{line}' is not a command; give set [a-to-b|b-to-a] KEY=VALUE…, down, up or counters"
            )),
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
    fn back_overrides_the_shape_from_b_to_a() {
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
    fn commands_are_parsed() {
        assert_eq!("down".parse(), Ok(LinkCommand::Down));
        let both: LinkCommand = "set rate=20mbit delay=5ms".parse().unwrap();
        assert!(matches!(both, LinkCommand::Set(ref directions, ref text)
            if directions.len() == 2 && text.read(&Shape::default()).unwrap().delay_ns == 5_000_000));
        let one: LinkCommand = "set b-to-a loss=1%".parse().unwrap();
        assert!(matches!(one, LinkCommand::Set(ref directions, _) if *directions == [Direction::BToA]));
        assert!("sideways".parse::<LinkCommand>().is_err() && "set speed=1".parse::<LinkCommand>().is_err());
    }
}
