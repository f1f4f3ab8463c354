//! The options of ipvsadm(8).

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use super::{MAX_WEIGHT, Wrong};

/// A word of a line, and its column in characters, starting with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<'l> {
    pub(super) text: &'l str,
    pub(super) column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    AddService,
    EditService,
    DeleteService,
    AddServer,
    EditServer,
    DeleteServer,
    Clear,
}

/// The meaning of a line.
#[derive(Debug)]
pub(super) struct Given<'l> {
    pub(super) command: Command,
    pub(super) command_at: usize,
    pub(super) service: Option<SocketAddr>,
    pub(super) scheduler: Option<Word<'l>>,
    pub(super) flags: Option<&'l str>,
    /// The inner option is none for `-p` without a time.
    pub(super) persistence: Option<Option<Duration>>,
    /// Address, port, and the column of the word.
    pub(super) server: Option<(IpAddr, Option<u16>, usize)>,
    pub(super) weight: Option<u32>,
    pub(super) most: Option<u32>,
    pub(super) resume: Option<u32>,
    /// The mistakes of the line.
    pub(super) wrong: Wrong,
}

/// An option: its letter, its long name, and whether it takes a value.
type Known = (char, &'static str, Value);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    Needed,
    /// A value follows only if the next word is not an option.
    Possible,
}

const COMMANDS: [(char, &str, Command); 7] = [
    ('A', "add-service", Command::AddService),
    ('E', "edit-service", Command::EditService),
    ('D', "delete-service", Command::DeleteService),
    ('a', "add-server", Command::AddServer),
    ('e', "edit-server", Command::EditServer),
    ('d', "delete-server", Command::DeleteServer),
    ('C', "clear", Command::Clear),
];

/// The letter of options that have only a long name.
const NO_LETTER: char = '\0';

const OPTIONS: [Known; 25] = [
    ('t', "tcp-service", Value::Needed),
    ('u', "udp-service", Value::Needed),
    ('f', "fwmark-service", Value::Needed),
    (NO_LETTER, "sctp-service", Value::Needed),
    ('s', "scheduler", Value::Needed),
    ('b', "sched-flags", Value::Needed),
    ('p', "persistent", Value::Possible),
    ('M', "netmask", Value::Needed),
    ('r', "real-server", Value::Needed),
    ('g', "gatewaying", Value::None),
    ('i', "ipip", Value::None),
    ('m', "masquerading", Value::None),
    (NO_LETTER, "tun-type", Value::Needed),
    (NO_LETTER, "tun-port", Value::Needed),
    (NO_LETTER, "tun-nocsum", Value::None),
    (NO_LETTER, "tun-csum", Value::None),
    (NO_LETTER, "tun-remcsum", Value::None),
    ('w', "weight", Value::Needed),
    ('x', "u-threshold", Value::Needed),
    ('y', "l-threshold", Value::Needed),
    ('6', "ipv6", Value::None),
    ('o', "ops", Value::None),
    ('n', "numeric", Value::None),
    (NO_LETTER, "pe", Value::Needed),
    (NO_LETTER, "timeout", Value::None),
];

/// Commands of ipvsadm that define no services or servers, each with advice for the user.
const OTHERS: [(&str, &str); 8] = [
    ("set", "set idle_timeout and closing_timeout in the balancer's file, and leave this line out"),
    (
        "start-daemon",
        "balancers need not synchronise connections: give both the same seed, and leave this line out",
    ),
    (
        "stop-daemon",
        "balancers need not synchronise connections: give both the same seed, and leave this line out",
    ),
    ("list", "leave this line out, or import the output of ipvsadm-save -n"),
    ("save", "import the output of this command"),
    ("restore", "import the file that it reads"),
    ("zero", "leave this line out"),
    ("help", "leave this line out"),
];

/// The words of a line, without comments.
pub(super) fn words(line: &str) -> Vec<Word<'_>> {
    let (mut words, mut begin) = (Vec::new(), None);
    let ends = line.char_indices().map(|(at, c)| (at, Some(c))).chain([(line.len(), None)]);
    for (column, (at, c)) in ends.enumerate() {
        match (c.filter(|c| !c.is_whitespace()), begin) {
            (Some('#'), None) => break,
            (Some(_), None) => begin = Some((at, column + 1)),
            (None, Some((from, column))) => {
                words.push(Word { text: &line[from..at], column });
                begin = None;
            }
            _ => {}
        }
    }
    words
}

/// Parses the words of a line.
///
/// # Errors
/// If no word is a command that defines services or servers.
pub(super) fn parse<'l>(words: &[Word<'l>]) -> Result<Given<'l>, Wrong> {
    let is_program = |word: &Word<'_>| word.text == "sudo" || word.text.rsplit('/').next() == Some("ipvsadm");
    let mut rest = words.iter().copied().skip_while(is_program).peekable();
    let end = words.last().map_or(1, |word| word.column);
    let Some(first) = rest.next() else {
        return Err(vec![(end, "the command is missing, such as -A -t 192.168.16.100:80 -s wrr".to_owned())]);
    };
    let (command, attached) = command(first)?;
    let mut given = Given {
        command,
        command_at: first.column,
        service: None,
        scheduler: None,
        flags: None,
        persistence: None,
        server: None,
        weight: None,
        most: None,
        resume: None,
        wrong: Vec::new(),
    };
    // Letters may be joined: `-At` means `-A -t`.
    let mut letters = attached.map(|letters| Word { text: letters, column: first.column });
    loop {
        let (known, column, value) = if let Some(word) = letters.take() {
            let mut chars = word.text.chars();
            let Some(letter) = chars.next() else { continue };
            let known = OPTIONS.iter().find(|(option, ..)| *option == letter && letter != NO_LETTER);
            let Some(known) = known else {
                given
                    .wrong
                    .push((word.column, format!("-{letter} is not an option for a service or server")));
                continue;
            };
            let after = Some(chars.as_str()).filter(|after| !after.is_empty());
            match (known.2, after) {
                (Value::None, after) => {
                    letters = after.map(|text| Word { text, column: word.column });
                    (known, word.column, None)
                }
                (_, after) => (known, word.column, after.map(|text| Word { text, column: word.column })),
            }
        } else if let Some(word) = rest.next() {
            match (word.text.strip_prefix("--"), word.text.strip_prefix('-')) {
                (Some(long), _) => {
                    let (name, value) =
                        long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                    let Some(known) = OPTIONS.iter().find(|(_, option, _)| *option == name) else {
                        given.wrong.push((
                            word.column,
                            format!("--{name} is not an option for a service or server"),
                        ));
                        continue;
                    };
                    (known, word.column, value.map(|text| Word { text, column: word.column }))
                }
                (None, Some(short)) if !short.is_empty() => {
                    letters = Some(Word { text: short, column: word.column });
                    continue;
                }
                _ => {
                    given.wrong.push((word.column, format!("'{}' belongs to no option", word.text)));
                    continue;
                }
            }
        } else {
            break;
        };
        let value = match known.2 {
            Value::None => None,
            Value::Needed => value.or_else(|| rest.next()),
            Value::Possible => value.or_else(|| rest.next_if(|next| !next.text.starts_with('-'))),
        };
        if known.2 == Value::Needed && value.is_none() {
            given.wrong.push((column, format!("--{} needs a value", known.1)));
        } else if let Err(why) = given.take(known.1, value) {
            given.wrong.push((value.map_or(column, |value| value.column), why));
        }
    }
    Ok(given)
}

/// The command that a word contains, and the letters attached to it.
fn command(word: Word<'_>) -> Result<(Command, Option<&str>), Wrong> {
    let wrong = |why: String| Err(vec![(word.column, why)]);
    if let Some(name) = word.text.strip_prefix("--") {
        if let Some((.., command)) = COMMANDS.iter().find(|(_, long, _)| *long == name) {
            return Ok((*command, None));
        }
        let other = OTHERS.iter().find(|(other, _)| name.starts_with(other));
        let advice = other.map_or("a line begins with -A, -E, -a or -e", |(_, advice)| advice);
        return wrong(format!("--{name} adds no service or server: {advice}"));
    }
    let mut letters = word.text.strip_prefix('-').unwrap_or_default().chars();
    let letter = letters.next();
    match COMMANDS.iter().find(|(short, ..)| Some(*short) == letter) {
        Some((.., command)) => Ok((*command, Some(letters.as_str()).filter(|letters| !letters.is_empty()))),
        None => {
            let name = match letter {
                Some('L' | 'l') => "list",
                Some('S') => "save",
                Some('R') => "restore",
                Some('Z') => "zero",
                _ => "",
            };
            let other = OTHERS.iter().find(|(other, _)| *other == name);
            let advice = other.map_or("a line begins with -A, -E, -a or -e", |(_, advice)| advice);
            wrong(format!("'{}' adds no service or server: {advice}", word.text))
        }
    }
}

impl<'l> Given<'l> {
    /// Records an option and its value.
    fn take(&mut self, name: &str, value: Option<Word<'l>>) -> Result<(), String> {
        let text = value.map_or("", |value| value.text);
        match name {
            "tcp-service" => self.service = Some(service(text)?),
            "udp-service" => return Err("only TCP is supported: keep this service in LVS".to_owned()),
            "sctp-service" => return Err("only TCP is supported: keep this service in LVS".to_owned()),
            "fwmark-service" => {
                return Err("firewall marks are not supported: give each address and port with -t".to_owned());
            }
            "scheduler" => self.scheduler = value,
            "sched-flags" => {
                let unknown = text.split(',').map(str::trim).find(|flag| {
                    !matches!(
                        *flag,
                        "sh-port" | "mh-port" | "sh-fallback" | "mh-fallback" | "flag-1" | "flag-2"
                    )
                });
                if let Some(flag) = unknown {
                    return Err(format!(
                        "the scheduler flag {flag} is not supported; use mh-port or sh-port"
                    ));
                }
                if text.contains("flag-") {
                    return Err(
                        "write sh-port or mh-port for flag-2, and omit flag-1 (fallback): another server always takes over"
                            .to_owned(),
                    );
                }
                self.flags = Some(text);
            }
            "persistent" => {
                let seconds =
                    value.map(|value| value.text.parse::<u32>().ok().filter(|seconds| *seconds > 0));
                let refused = || format!("'{text}' is not a time in seconds such as 300");
                let seconds = seconds.map(|seconds| seconds.ok_or_else(refused)).transpose()?;
                self.persistence = Some(seconds.map(|seconds| Duration::from_secs(seconds.into())));
            }
            "netmask" => {
                let is_full = text == "128" || text.parse() == Ok(Ipv4Addr::BROADCAST);
                if !is_full {
                    return Err(
                        "persistence applies to single addresses, not to networks of clients: leave -M out"
                            .to_owned(),
                    );
                }
            }
            "real-server" => {
                let (address, port) = address_and_port(text, "a server such as 172.16.0.101:80")?;
                self.server = Some((address, port, value.map_or(1, |value| value.column)));
            }
            "gatewaying" | "ipv6" | "numeric" => {}
            "ipip" => return Err(
                "packets are not sent through tunnels: servers must be on the balancer's segment, with -g"
                    .to_owned(),
            ),
            "masquerading" => {
                return Err(
                    "addresses are not rewritten: use -g, and give the servers the VIP (proofload balance server-setup)".to_owned()
                );
            }
            "weight" => {
                let weight = number(text)?;
                if weight > MAX_WEIGHT {
                    return Err(format!("the weight {weight} is above the maximum, {MAX_WEIGHT}"));
                }
                self.weight = Some(weight);
            }
            "u-threshold" => self.most = Some(number(text)?),
            "l-threshold" => self.resume = Some(number(text)?),
            "ops" => {
                return Err("--ops (one-packet scheduling) is for UDP, which this balancer lacks".to_owned());
            }
            "pe" => {
                return Err(
                    "persistence by packet content is not supported; use the source address (-p)".to_owned()
                );
            }
            name => return Err(format!("--{name} is for a feature that this balancer lacks: leave it out")),
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("'{text}' is not a whole number such as 100"))
}

fn service(text: &str) -> Result<SocketAddr, String> {
    const WHAT: &str = "a service such as 192.168.16.100:80 or [fd00::100]:80";
    let (address, port) = address_and_port(text, WHAT)?;
    let port = port.ok_or_else(|| format!("'{text}' is not {WHAT}: its port is missing"))?;
    Ok(SocketAddr::new(address, port))
}

fn address_and_port(text: &str, what: &str) -> Result<(IpAddr, Option<u16>), String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Ok((address, None));
    }
    let found = text.parse::<SocketAddr>().map(|found| (found.ip(), Some(found.port())));
    found.map_err(|_| {
        let has_names = text.chars().any(|c| c.is_ascii_alphabetic() && !c.is_ascii_hexdigit() || c == '$');
        let advice = if has_names { ": write numbers, as ipvsadm-save -n does" } else { "" };
        format!("'{text}' is not {what}{advice}")
    })
}
