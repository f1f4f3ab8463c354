//! Reads a remote host through its shell.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    path::PathBuf,
};

use record::Counters;

use super::{
    session::{AT_ONCE, DRIVER, Part, Session},
    ss,
};
use crate::{
    cgroups,
    counters::{ReadFile, machine_files, network_files, of_machine, of_network, of_network_in_brief},
    ethtool,
    leftovers::{self, Leftover},
    programs::{self, Program},
    protocol_number,
    source::{Look, MORE_PROGRAMS, PROGRAMS, Processes, Source},
    tcp::{Connection, Listener},
};

/// The requested texts by name. An error contains the reason why there is no text.
type Texts = BTreeMap<String, Result<String, String>>;
/// Quota counters of control groups, by the name of the group's file.
type Groups = BTreeMap<String, BTreeMap<String, u64>>;

/// The shell of a remote host during a trial.
#[derive(Debug)]
pub(crate) struct Shell<'a> {
    session: &'a mut Session,
    /// The processes that listen, with their addresses, according to the last whole look.
    owners: BTreeMap<u32, BTreeSet<String>>,
    /// The control groups of the processes that listened at the start.
    groups: Option<BTreeSet<PathBuf>>,
    /// The counters of these groups at their first reading.
    groups_before: Groups,
    /// The names of data that cannot be read, with the reasons.
    missing: BTreeMap<String, String>,
    /// The texts about the network and the machine from the last brief look.
    recent: Texts,
}

impl<'a> Shell<'a> {
    pub(super) fn new(session: &'a mut Session) -> Self {
        let mut missing = BTreeMap::new();
        if !session.has_ss {
            for what in ["listeners", "connections", PROGRAMS] {
                missing.insert(what.to_owned(), "ss is not installed there (Debian: iproute2)".to_owned());
            }
        }
        let (owners, groups_before, recent) = Default::default();
        Self { session, owners, groups: None, groups_before, missing, recent }
    }

    fn ask(&mut self, commands: &str) -> io::Result<Texts> {
        let of = |Part { name, status, text }: Part| {
            (name, if status == 0 { Ok(text) } else { Err(text.trim().to_owned()) })
        };
        Ok(self.session.ask(commands)?.into_iter().map(of).collect())
    }

    /// The output of `ss`; empty if `ss` is not installed or fails.
    fn sockets(&mut self, what: &str, options: &str) -> io::Result<String> {
        if !self.session.has_ss {
            return Ok(String::new());
        }
        match self.ask(&format!("s {what} {options}"))?.remove(what) {
            Some(Ok(text)) => Ok(text),
            failed => {
                let why = failed.and_then(Result::err).unwrap_or_default();
                self.missing.insert(what.to_owned(), format!("ss {options}: {why}"));
                Ok(String::new())
            }
        }
    }

    /// Finds the processes that listen.
    fn find_owners(&mut self) -> io::Result<()> {
        let (owners, hidden) = ss::owners(&self.sockets(PROGRAMS, "-ltnp")?);
        if hidden > 0 {
            let why = format!(
                "the processes of {hidden} listening sockets there belong to other users; log in as root to see them"
            );
            self.missing.insert(PROGRAMS.to_owned(), why);
        }
        let most = Look::Brief.max_programs();
        if owners.len() > most {
            let why = format!("of the {} listening processes there, only {most} are observed", owners.len());
            self.missing.insert(MORE_PROGRAMS.to_owned(), why);
        }
        self.owners = owners.into_iter().take(most).collect();
        Ok(())
    }

    pub(super) fn leftovers(&mut self) -> io::Result<Vec<Leftover>> {
        let texts = self.ask(&format!("f{}", words(network_files().chain(leftovers::FILES))))?;
        leftovers::of(&|name| found(&texts, name))
    }

    fn groups(&mut self) -> io::Result<BTreeSet<PathBuf>> {
        if let Some(known) = &self.groups {
            return Ok(known.clone());
        }
        self.find_owners()?;
        let names: String = self.owners.keys().map(|pid| format!(" {pid}/cgroup")).collect();
        let texts = self.ask(&format!("f{names}"))?;
        let of = |text: &String| cgroups::group_of(&self.session.mounts, text, "cpu");
        // Another user may have chosen the group's name. A command contains the name in single quotes, so it must not
        // contain any itself.
        let of = |text| of(text).filter(|group| !group.to_string_lossy().contains('\''));
        Ok(self.groups.insert(texts.values().flatten().filter_map(of).collect()).clone())
    }
}

impl Source for Shell<'_> {
    fn enter(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn processes() -> Processes {
        Processes::new()
    }

    fn machine(&mut self, look: Look) -> io::Result<Counters> {
        let texts = match look {
            Look::Whole => &self.ask(&format!("f{}", words(machine_files())))?,
            Look::Brief => &self.recent,
        };
        Ok(of_machine(&|name| found(texts, name)))
    }

    fn network(&mut self, look: Look) -> io::Result<Counters> {
        let groups = self.groups()?;
        let groups: String =
            groups.iter().map(|group| format!(" '..{}/cpu.stat'", group.display())).collect();
        let files = format!("{}{groups}", words(network_files()));
        let (texts, of_network): (_, fn(ReadFile<'_>) -> Counters) = match look {
            Look::Whole => (&self.ask(&format!("f{files}\nn"))?, of_network),
            Look::Brief => {
                let answer = self.ask(&format!("b{files}{}", words(machine_files())))?.remove(AT_ONCE);
                self.recent = answer.and_then(Result::ok).map_or_else(Texts::new, |text| apart(&text));
                (&self.recent, of_network_in_brief)
            }
        };
        let mut counters = of_network(&|name| found(texts, name));
        counters.values.extend(throttling(texts, &mut self.groups_before));
        for (name, text) in texts {
            match (name.strip_prefix(DRIVER), text) {
                (Some(interface), Ok(text)) => ethtool::add_printed(interface, text, &mut counters.values),
                (Some(_), Err(why)) if !why.contains("no stats available") => {
                    counters.missing.insert(name.clone(), why.clone());
                }
                _ => {}
            }
        }
        counters.missing.extend(self.missing.clone());
        Ok(counters)
    }

    fn listeners(&mut self) -> io::Result<Vec<Listener>> {
        Ok(ss::listeners(&self.sockets("listeners", "-ltn")?))
    }

    fn connections(&mut self, look: Look) -> io::Result<Vec<Connection>> {
        // Each connection takes some 500 bytes to transfer, so the connections are counted first.
        let established = found(&self.ask("f net/snmp")?, "net/snmp").ok();
        let established =
            established.and_then(|snmp| protocol_number(&snmp, "Tcp", "CurrEstab")).unwrap_or(0);
        let most = if look == Look::Brief { 100 } else { look.max_connections() as u64 };
        if established > most {
            let why = format!("{established} connections are too many to read over ssh");
            self.missing.insert("connections".to_owned(), why);
            return Ok(Vec::new());
        }
        let mut all = ss::connections(&self.sockets("connections", "-tinm state established")?);
        let own_ends = self.session.own.connection.map(|(ours, theirs)| (theirs, ours));
        // A socket for both IP versions shows an IPv4 address in IPv6 form.
        let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        all.retain(|seen| Some((plain(seen.local), plain(seen.remote))) != own_ends);
        Ok(all)
    }

    /// The processes that listen. In a brief look, only those that listened at the start.
    fn programs(&mut self, _: &Processes, look: Look) -> io::Result<Vec<Program>> {
        if look == Look::Whole {
            self.find_owners()?;
        }
        let pids: String = self.owners.keys().map(|pid| format!(" {pid}")).collect();
        let texts = self.ask(&format!("t{pids}"))?;
        Ok(self.owners.keys().filter_map(|&pid| program(pid, &texts)).collect())
    }

    fn listens(&mut self, pid: u32) -> BTreeSet<String> {
        self.owners.get(&pid).cloned().unwrap_or_default()
    }
}

/// Words of a command, each preceded by a blank.
fn words(words: impl Iterator<Item = &'static str>) -> String {
    words.flat_map(|word| [" ", word]).collect()
}

/// Splits the output of `tail` into the contents of its files.
fn apart(text: &str) -> Texts {
    let files = text.split("==> ").filter_map(|part| part.split_once(" <==\n"));
    files.map(|(name, text)| (name.to_owned(), Ok(text.trim_end().to_owned()))).collect()
}

fn found(texts: &Texts, name: &str) -> io::Result<String> {
    let text = texts.get(name).cloned().unwrap_or_else(|| Err("it was not read".to_owned()));
    text.map_err(io::Error::other)
}

/// The counters of the control group that was throttled most often since its first reading. A sum over several groups
/// would exceed the throttling of each group, and would fall when a group is removed.
fn throttling(texts: &Texts, before: &mut Groups) -> BTreeMap<String, u64> {
    let files = texts.iter().filter(|(name, _)| name.ends_with("/cpu.stat"));
    let since_before = |(name, text): (&String, &Result<String, String>)| {
        let mut now = BTreeMap::new();
        cgroups::add_throttling(text.as_ref().ok()?, "cgroup", &mut now);
        let before = before.entry(name.clone()).or_insert_with(|| now.clone());
        now.iter_mut()
            .for_each(|(name, value)| *value = value.saturating_sub(before.get(name).copied().unwrap_or(0)));
        Some(now)
    };
    let stopped = |group: &BTreeMap<String, u64>| group.get("cgroup.throttled_periods").copied();
    files.filter_map(since_before).max_by_key(stopped).unwrap_or_default()
}

fn program(pid: u32, texts: &Texts) -> Option<Program> {
    let text = |name: &str| texts.get(&format!("{pid}/{name}"))?.as_ref().ok();
    let times = |line: &str| {
        let (thread, times) = line.split_once(' ')?;
        Some((thread.parse().ok()?, programs::parse_times(times)?))
    };
    let threads = text("threads")?.lines().filter_map(times).collect();
    let descriptors = text("fd").and_then(|count| count.trim().parse().ok());
    let program = programs::parse(pid, text("stat")?, text("limits")?, threads, descriptors)?;
    let blocked = text("blocked").map(|_| program.pid).into_iter().collect();
    Some(Program { blocked, ..program })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_was_stopped_most_often_counts() {
        let mut before = Groups::new();
        let mut at = |groups: &[(&str, u64, u64)]| {
            let stat = |periods, stopped| {
                format!("nr_periods {periods}\nnr_throttled {stopped}\nthrottled_usec {}\n", stopped * 1_000)
            };
            let texts = groups.iter().map(|&(name, periods, stopped)| {
                (format!("../sys/fs/cgroup/{name}/cpu.stat"), Ok(stat(periods, stopped)))
            });
            let counted = throttling(&texts.collect(), &mut before);
            ["periods", "throttled_periods", "throttled_us"].map(|name| counted[&format!("cgroup.{name}")])
        };
        assert_eq!(at(&[("a", 900, 800), ("b", 50, 0)]), [0, 0, 0]);
        assert_eq!(at(&[("a", 1_000, 820), ("b", 150, 90)]), [100, 90, 90_000]);
        assert_eq!(at(&[("a", 1_000, 820)]), [100, 20, 20_000], "the other group has gone");
    }

    #[test]
    fn a_process_of_which_a_thread_waits_for_a_device_is_blocked() {
        let stat = "7 (a) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0 11 0";
        let is_blocked = |blocked: Result<String, String>| {
            let texts = [
                ("stat", Ok(stat.to_owned())),
                ("limits", Ok(String::new())),
                ("threads", Ok(String::new())),
            ];
            let texts = texts.into_iter().chain([("blocked", blocked)]);
            let texts = texts.map(|(name, text)| (format!("7/{name}"), text)).collect();
            program(7, &texts).unwrap().blocked.contains(&7)
        };
        assert!(is_blocked(Ok(String::new())) && !is_blocked(Err(String::new())));
    }

    #[test]
    fn files_that_are_read_at_once_are_told_apart() {
        let files = ["net/snmp", "net/dev", "stat"];
        let mut tail = std::process::Command::new("tail");
        let printed = tail.args(["-n", "+1"]).args(files).current_dir("/proc").output().unwrap();
        let texts = apart(std::str::from_utf8(&printed.stdout).unwrap());
        assert_eq!(texts.keys().collect::<Vec<_>>(), ["net/dev", "net/snmp", "stat"]);
        let (network, machine) =
            (of_network(&|name| found(&texts, name)), of_machine(&|name| found(&texts, name)));
        for name in ["Tcp.CurrEstab", "interface.lo.received_bytes"] {
            assert!(network.get(name).is_some(), "{name}: {network:?}");
        }
        assert!(machine.get("cpu0.idle_ms").is_some() && !machine.missing.contains_key("stat"));
        assert!(!network.missing.contains_key("net/snmp") && !network.missing.contains_key("net/dev"));
    }
}
