//! Where the counters of a host are read: here, or on a remote machine.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Seek},
    mem,
    path::PathBuf,
    sync::Arc,
};

use record::Counters;

use crate::{
    cgroups,
    counters::{of_machine, of_network, of_network_in_brief, own_path, read_own},
    ethtool,
    namespaces::{self, Kind},
    programs::{self, Program},
    remote::Own,
    tcp::{self, Connection, Listener},
};

/// Processes by the identity of their network namespace.
pub(crate) type Processes = BTreeMap<(u64, u64), Vec<u32>>;

/// How closely a host is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// At the begin and the end.
    Whole,
    /// Once a second.
    Brief,
}

impl Look {
    /// Of more connections than this, only so many are looked at. The kernel lists those that stay in the same order.
    pub(crate) fn max_connections(self) -> usize {
        if self == Self::Whole { 1_000 } else { 100 }
    }

    /// More processes than this are not looked at.
    pub(crate) fn max_programs(self) -> usize {
        if self == Self::Whole { usize::MAX } else { 64 }
    }
}

/// Where the counters of a host are read.
pub(crate) trait Source {
    /// Must be called before a look from a thread that has looked at another host.
    fn enter(&mut self) -> io::Result<()>;
    /// All processes of the machine, if a look at programs needs them.
    fn processes() -> Processes;
    /// In a brief look, after those of the network.
    fn machine(&mut self, look: Look) -> io::Result<Counters>;
    /// In a brief look, only those that have changed need to be there.
    fn network(&mut self, look: Look) -> io::Result<Counters>;
    fn listeners(&mut self) -> io::Result<Vec<Listener>>;
    /// Established connections, without that by which this program looks.
    fn connections(&mut self, look: Look) -> io::Result<Vec<Connection>>;
    fn programs(&mut self, processes: &Processes, look: Look) -> io::Result<Vec<Program>>;
    /// The addresses at which a process listened in the last look.
    fn listens(&self, pid: u32) -> BTreeSet<String>;
    /// The processors that a process may use, if this is known.
    fn cpus(&self, _pid: u32) -> Option<String> {
        None
    }
}

/// A host on this machine: a network namespace.
#[derive(Debug)]
pub(crate) struct Here {
    network: Arc<File>,
    group: Option<PathBuf>,
    identity: (u64, u64),
    /// Whether it is the namespace of this process.
    is_own: bool,
    ignored: Arc<[Own]>,
    listeners: Vec<Listener>,
    has_connections: bool,
    /// Whether no packet has come or gone between the last two looks.
    is_quiet: bool,
    /// Why sockets cannot be listed; none while they can.
    sockets_missing: Option<String>,
    /// The files that brief looks read, open, with their last texts. Opening them anew would take as long as reading them; they stay
    /// those of the network namespace that they were opened in.
    recent: RefCell<BTreeMap<String, (File, String)>>,
    /// Processes as the last look found them.
    looked: BTreeMap<u32, programs::Look>,
}

impl Here {
    pub(crate) fn new(network: Arc<File>, group: Option<PathBuf>, ignored: Arc<[Own]>) -> io::Result<Self> {
        let identity = namespaces::identity(&network)?;
        let is_own = identity == namespaces::own_identity(Kind::Network)?;
        Ok(Self {
            network,
            group,
            identity,
            is_own,
            ignored,
            listeners: Vec::new(),
            has_connections: false,
            is_quiet: false,
            sockets_missing: None,
            recent: RefCell::default(),
            looked: BTreeMap::new(),
        })
    }

    /// What a list of sockets has, nothing if there is no list: counters tell much without it.
    fn listed<T>(&mut self, list: io::Result<Vec<T>>) -> Vec<T> {
        list.unwrap_or_else(|error| {
            let hint = if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
                "; modprobe tcp_diag brings it"
            } else {
                ""
            };
            self.sockets_missing = Some(format!("the kernel does not list its sockets: {error}{hint}"));
            Vec::new()
        })
    }

    /// Reads a file; an empty text stands for one that is as it was. Most are, and to read numbers takes longer than to read text.
    fn read_changed(&self, name: &str) -> io::Result<String> {
        let mut recent = self.recent.borrow_mut();
        let Some((file, last)) = recent.get_mut(name) else {
            let mut file = File::open(own_path(name))?;
            let text = crate::read_rest(&mut file)?;
            recent.insert(name.to_owned(), (file, text.clone()));
            return Ok(text);
        };
        file.rewind()?;
        let text = crate::read_rest(file)?;
        if *last == text {
            return Ok(String::new());
        }
        last.clone_from(&text);
        Ok(text)
    }
}

impl Source for Here {
    /// Enters the host's namespace. To stay in that of this process needs no rights.
    fn enter(&mut self) -> io::Result<()> {
        if self.is_own { Ok(()) } else { namespaces::enter(&self.network, Kind::Network) }
    }

    fn processes() -> Processes {
        programs::by_network()
    }

    fn machine(&mut self, _: Look) -> io::Result<Counters> {
        Ok(of_machine(&read_own))
    }

    fn network(&mut self, look: Look) -> io::Result<Counters> {
        let mut counters = match look {
            Look::Whole => of_network(&read_own),
            Look::Brief => of_network_in_brief(&|name| self.read_changed(name)),
        };
        self.is_quiet = counters.values.is_empty() && counters.missing.is_empty();
        match self.group.as_ref().map(|group| crate::read(group.join("cpu.stat"))) {
            Some(Ok(stat)) => cgroups::add_throttling(&stat, &mut counters.values),
            Some(Err(error)) => _ = counters.missing.insert("cpu.stat".to_owned(), error.to_string()),
            None => {}
        }
        if let Some(why) = &self.sockets_missing {
            counters.missing.extend(["listeners", "connections"].map(|what| (what.to_owned(), why.clone())));
        }
        if look == Look::Whole {
            ethtool::add(&mut counters);
        }
        Ok(counters)
    }

    fn listeners(&mut self) -> io::Result<Vec<Listener>> {
        // The kernel looks through the sockets of all namespaces for each list.
        if !self.is_quiet || self.listeners.iter().any(|listener| listener.waiting > 0) {
            self.listeners = self.listed(tcp::listeners());
        }
        Ok(self.listeners.clone())
    }

    fn connections(&mut self, look: Look) -> io::Result<Vec<Connection>> {
        if self.sockets_missing.is_some() || (self.is_quiet && !self.has_connections) {
            return Ok(Vec::new());
        }
        let mut all = self.listed(tcp::connections(look.max_connections(), &self.listeners));
        self.has_connections = !all.is_empty();
        let own = |seen: &Connection| Some((seen.local, seen.remote));
        all.retain(|seen| self.ignored.iter().all(|looking| looking.connection != own(seen)));
        Ok(all)
    }

    fn programs(&mut self, processes: &Processes, look: Look) -> io::Result<Vec<Program>> {
        let own = processes.get(&self.identity).filter(|own| own.len() <= look.max_programs());
        let mut last = mem::take(&mut self.looked);
        let looks =
            own.into_iter().flatten().filter_map(|&pid| Some((pid, programs::look(pid, last.remove(&pid))?)));
        self.looked = looks.collect();
        let all = self.looked.values().map(|look| look.program.clone());
        let is_looking = |program: &Program| {
            self.ignored.iter().any(|looking| looking.process_group == program.process_group)
        };
        Ok(all.filter(|program| !is_looking(program)).collect())
    }

    fn listens(&self, pid: u32) -> BTreeSet<String> {
        let own = if self.listeners.is_empty() { BTreeSet::new() } else { programs::sockets(pid) };
        let own = self.listeners.iter().filter(|listener| own.contains(&listener.inode));
        own.map(|listener| listener.address.to_string()).collect()
    }

    fn cpus(&self, pid: u32) -> Option<String> {
        programs::cpus(pid)
    }
}
