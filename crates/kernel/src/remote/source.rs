//! What is read of a remote host through its shell.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    path::PathBuf,
};

use record::Counters;

use super::{
    session::{Part, Session},
    ss,
};
use crate::{
    cgroups,
    counters::{machine_files, network_files, of_machine, of_network},
    leftovers::{self, Leftover},
    programs::{self, Program},
    source::{Look, Processes, Source},
    tcp::{Connection, Listener},
};

/// What was asked for, by its name: its text, or why there is none.
type Texts = BTreeMap<String, Result<String, String>>;

/// The shell of a remote host during a trial.
#[derive(Debug)]
pub(crate) struct Shell<'a> {
    session: &'a mut Session,
    /// The processes that listen, with their addresses, since the last whole look.
    owners: BTreeMap<u32, BTreeSet<String>>,
    /// The control groups of those that listened at the begin.
    groups: Option<BTreeSet<PathBuf>>,
    /// What cannot be read, with the reason.
    missing: BTreeMap<String, String>,
}

impl<'a> Shell<'a> {
    pub(super) fn new(session: &'a mut Session) -> Self {
        let mut missing = BTreeMap::new();
        if !session.has_ss {
            for what in ["listeners", "connections", "programs"] {
                missing.insert(what.to_owned(), "ss is not installed there (Debian: iproute2)".to_owned());
            }
        }
        Self { session, owners: BTreeMap::new(), groups: None, missing }
    }

    fn ask(&mut self, commands: &str) -> io::Result<Texts> {
        let of = |Part { name, status, text }: Part| {
            (name, if status == 0 { Ok(text) } else { Err(text.trim().to_owned()) })
        };
        Ok(self.session.ask(commands)?.into_iter().map(of).collect())
    }

    /// Reads files by their names below `/proc`, and `more` of them.
    fn read(&mut self, files: impl Iterator<Item = &'static str>, more: &str) -> io::Result<Texts> {
        self.ask(&format!("f {}{more}", files.collect::<Vec<_>>().join(" ")))
    }

    /// What `ss` prints; nothing where there is none, or where it fails.
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
        let (owners, hidden) = ss::owners(&self.sockets("programs", "-ltnp")?);
        if hidden > 0 {
            let why = format!(
                "the processes of {hidden} listening sockets there belong to other users; log in as root to see them"
            );
            self.missing.insert("programs".to_owned(), why);
        }
        self.owners = owners.into_iter().take(Look::Brief.max_programs()).collect();
        Ok(())
    }

    pub(super) fn leftovers(&mut self) -> io::Result<Vec<Leftover>> {
        let texts = self.read(network_files().chain(leftovers::FILES), "")?;
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
        // Others may have named it, and it is to stand between quotes in a command.
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

    fn machine(&mut self) -> io::Result<Counters> {
        let texts = self.read(machine_files(), "")?;
        Ok(of_machine(&|name| found(&texts, name)))
    }

    fn network(&mut self) -> io::Result<Counters> {
        let groups: String =
            self.groups()?.iter().map(|group| format!(" '..{}/cpu.stat'", group.display())).collect();
        let texts = self.read(network_files(), &groups)?;
        let mut counters = of_network(&|name| found(&texts, name));
        for stat in texts.iter().filter(|(name, _)| name.ends_with("/cpu.stat")).flat_map(|(_, text)| text) {
            let mut throttling = BTreeMap::new();
            cgroups::add_throttling(stat, &mut throttling);
            throttling
                .into_iter()
                .for_each(|(name, value)| *counters.values.entry(name).or_default() += value);
        }
        counters.missing.extend(self.missing.clone());
        Ok(counters)
    }

    fn listeners(&mut self) -> io::Result<Vec<Listener>> {
        Ok(ss::listeners(&self.sockets("listeners", "-ltn")?))
    }

    fn connections(&mut self, look: Look) -> io::Result<Vec<Connection>> {
        // Each costs some 500 bytes on the way, so they are counted first.
        let texts = self.ask("f net/snmp")?;
        let established = of_network(&|name| found(&texts, name)).get("Tcp.CurrEstab").unwrap_or(0);
        if established > look.max_connections() as u64 {
            if look == Look::Whole {
                let why = format!("{established} are too many to be read from there");
                self.missing.insert("connections".to_owned(), why);
            }
            return Ok(Vec::new());
        }
        let mut all = ss::connections(&self.sockets("connections", "-tinm state established")?);
        let own = self.session.own.connection.map(|(ours, theirs)| (theirs, ours));
        // A socket for both versions of IP shows an address of version 4 as one of version 6.
        let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        all.retain(|seen| Some((plain(seen.local), plain(seen.remote))) != own);
        Ok(all)
    }

    /// Processes that listen. In a brief look, those that listened at the begin.
    fn programs(&mut self, _: &Processes, look: Look) -> io::Result<Vec<Program>> {
        if look == Look::Whole {
            self.find_owners()?;
        }
        let pids: String = self.owners.keys().map(|pid| format!(" {pid}")).collect();
        let texts = self.ask(&format!("t{pids}"))?;
        Ok(self.owners.keys().filter_map(|&pid| program(pid, &texts)).collect())
    }

    fn listens(&self, pid: u32) -> BTreeSet<String> {
        self.owners.get(&pid).cloned().unwrap_or_default()
    }
}

fn found(texts: &Texts, name: &str) -> io::Result<String> {
    let text = texts.get(name).cloned().unwrap_or_else(|| Err("it was not read".to_owned()));
    text.map_err(io::Error::other)
}

fn program(pid: u32, texts: &Texts) -> Option<Program> {
    let text = |name: &str| texts.get(&format!("{pid}/{name}"))?.as_ref().ok();
    let times = |line: &str| {
        let (thread, times) = line.split_once(' ')?;
        Some((thread.parse().ok()?, programs::parse_times(times)?))
    };
    let threads = text("threads")?.lines().filter_map(times).collect();
    let descriptors = text("fd").and_then(|count| count.trim().parse().ok());
    programs::parse(pid, text("stat")?, text("limits")?, threads, descriptors)
}
