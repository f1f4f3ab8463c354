//! Sources of a host's counters: this machine or a remote machine.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Seek},
    mem,
    net::SocketAddr,
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
    tcp::{self, Connection, Listener},
};

/// Key in [`Counters::missing`] for listening processes that this user may not see.
pub(crate) const PROGRAMS: &str = "programs";
/// Key for processes that are left out because there are too many.
pub(crate) const MORE_PROGRAMS: &str = "more programs";

/// Processes by the identity of their network namespace.
pub(crate) type Processes = BTreeMap<(u64, u64), Vec<u32>>;

/// Thoroughness of a look at a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// All data, at the start and the end of a trial.
    Whole,
    /// The data that is needed several times a second.
    Brief,
}

impl Look {
    /// Maximum number of connections in a look. The kernel lists connections that stay open in the same order each
    /// time.
    pub(crate) fn max_connections(self) -> usize {
        if self == Self::Whole { 1_000 } else { 500 }
    }

    /// Maximum number of processes in a look. If there are more, only those that listen are read, and their children, and at most this
    /// many.
    pub(crate) fn max_programs(self) -> usize {
        if self == Self::Whole { usize::MAX } else { 64 }
    }
}

/// The `ssh` on this machine with which this program observes a remote host. It is not part of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnConnection {
    /// The process group of `ssh`.
    pub process_group: u32,
    /// The two addresses of its connection, ours first; none if the host does not report them.
    pub connection: Option<(SocketAddr, SocketAddr)>,
}

/// A source of a host's counters.
pub(crate) trait Source {
    /// A look takes so little time that there may be one more before the load.
    const IS_QUICK: bool = false;
    /// Must be called before a look by a thread that has looked at another host.
    fn enter(&mut self) -> io::Result<()>;
    /// All processes of the machine; empty if looks at programs do not need them.
    fn processes() -> Processes;
    /// The counters of the machine. For a brief look, call `network` first.
    fn machine(&mut self, look: Look) -> io::Result<Counters>;
    /// The counters of the network namespace. A brief look may leave out counters that have not changed.
    fn network(&mut self, look: Look) -> io::Result<Counters>;
    fn listeners(&mut self) -> io::Result<Vec<Listener>>;
    /// Established connections, except the one over which this program observes the host.
    fn connections(&mut self, look: Look) -> io::Result<Vec<Connection>>;
    fn programs(&mut self, processes: &Processes, look: Look) -> io::Result<Vec<Program>>;
    /// The addresses at which a process listened during the last look.
    fn listens(&mut self, pid: u32) -> BTreeSet<String>;
    /// The quota counters of a process's control group. Empty if there is no quota, or if the group belongs to a lab's
    /// host.
    fn quota(&mut self, _pid: u32) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
    /// The processors that these threads of a process may use together; none if unknown.
    fn cpus(&self, _pid: u32, _threads: &[u32]) -> Option<String> {
        None
    }
}

/// A host on this machine: a network namespace.
#[derive(Debug)]
pub(crate) struct Here {
    network: Arc<File>,
    group: Option<PathBuf>,
    identity: (u64, u64),
    /// Whether this is the network namespace of this process.
    is_own: bool,
    ignored: Arc<[OwnConnection]>,
    listeners: Vec<Listener>,
    has_connections: bool,
    /// Whether no packet was sent or received between the last two looks.
    is_quiet: bool,
    /// Reason why sockets cannot be listed; none if they can.
    sockets_missing: Option<String>,
    /// The kinds of processes that are left out, with the reasons.
    programs_missing: BTreeMap<String, String>,
    /// For each process whose descriptors have been read, the inodes of its listening sockets, by process id.
    owned: BTreeMap<u32, BTreeSet<u32>>,
    /// The open files of brief looks, with their last texts. Opening a file again would take as long as reading it. An
    /// open file keeps showing the network namespace in which it was opened.
    recent: RefCell<BTreeMap<String, (File, String)>>,
    /// Whether there was a whole look at processes.
    has_looked: bool,
    /// The processes found by the last look.
    looked: BTreeMap<u32, programs::Look>,
}

impl Here {
    pub(crate) fn new(
        network: Arc<File>,
        group: Option<PathBuf>,
        ignored: Arc<[OwnConnection]>,
    ) -> io::Result<Self> {
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
            programs_missing: BTreeMap::new(),
            owned: BTreeMap::new(),
            recent: RefCell::default(),
            has_looked: false,
            looked: BTreeMap::new(),
        })
    }

    /// Returns the sockets of a list. If the kernel refuses, records the reason and returns none, because the counters
    /// are useful without sockets.
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

    /// The inodes of a process's listening sockets.
    fn owned(&mut self, pid: u32) -> &BTreeSet<u32> {
        let listeners = &self.listeners;
        self.owned.entry(pid).or_insert_with(|| {
            let sockets = if listeners.is_empty() { BTreeSet::new() } else { programs::sockets(pid) };
            listeners.iter().map(|listener| listener.inode).filter(|inode| sockets.contains(inode)).collect()
        })
    }

    /// Chooses the processes to look at.
    fn chosen(&mut self, pids: Vec<u32>, look: Look) -> Vec<u32> {
        let last: BTreeSet<u32> = self.owned.keys().copied().collect();
        for ended in last.difference(&pids.iter().copied().collect()) {
            self.owned.remove(ended);
        }
        if pids.len() <= look.max_programs() {
            return pids;
        }
        let mut listening: Vec<u32> =
            pids.iter().copied().filter(|&pid| !self.owned(pid).is_empty()).collect();
        if listening.len() > look.max_programs() {
            let why = format!(
                "of the {} listening processes, only {} are sampled",
                listening.len(),
                look.max_programs()
            );
            self.programs_missing.insert(MORE_PROGRAMS.to_owned(), why);
            listening.truncate(look.max_programs());
        }
        // A program with a process for each connection listens only in the first of them.
        let most = look.max_programs() - listening.len();
        let parents = listening.iter().filter(|pid| **pid != programs::FIRST);
        let mut others: BTreeSet<u32> = parents.flat_map(|pid| programs::children(*pid)).collect();
        others.retain(|pid| pids.contains(pid) && !listening.contains(pid));
        listening.extend(others.into_iter().take(most));
        listening
    }

    /// Records the number of listening sockets that belong to none of these processes: this user may not see their
    /// owners.
    fn find_hidden(&mut self, pids: &[u32]) {
        let mut hidden: BTreeSet<u32> = self.listeners.iter().map(|listener| listener.inode).collect();
        for &pid in pids {
            self.owned(pid).iter().for_each(|inode| _ = hidden.remove(inode));
        }
        if hidden.is_empty() {
            self.programs_missing.remove(PROGRAMS);
        } else {
            let next = if rustix::process::geteuid().is_root() {
                "they belong to the kernel or to another network namespace"
            } else {
                "run proofload as root to see the processes of other users"
            };
            let why = format!("the processes of {} listening sockets are unknown; {next}", hidden.len());
            self.programs_missing.insert(PROGRAMS.to_owned(), why);
        }
    }

    /// Reads a file. Returns an empty text if it has not changed, as most files have not: parsing takes longer than
    /// reading.
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
    const IS_QUICK: bool = true;

    /// Enters the host's namespace. Does nothing for this process's own namespace, because entering needs privileges.
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
            Some(Ok(stat)) => cgroups::add_throttling(&stat, "cgroup", &mut counters.values),
            Some(Err(error)) => _ = counters.missing.insert("cpu.stat".to_owned(), error.to_string()),
            None => {}
        }
        if let Some(why) = &self.sockets_missing {
            counters.missing.extend(["listeners", "connections"].map(|what| (what.to_owned(), why.clone())));
        }
        counters.missing.extend(self.programs_missing.clone());
        if look == Look::Whole {
            ethtool::add(&mut counters);
        }
        Ok(counters)
    }

    fn listeners(&mut self) -> io::Result<Vec<Listener>> {
        // For each list, the kernel walks the sockets of all namespaces, so the sockets of a quiet namespace are not
        // listed again.
        if !self.is_quiet || self.listeners.iter().any(|listener| listener.waiting > 0) {
            let last = mem::take(&mut self.listeners);
            self.listeners = self.listed(tcp::listeners());
            let inode = |listener: &Listener| listener.inode;
            if self.listeners.iter().map(inode).ne(last.iter().map(inode)) {
                self.owned.clear();
            }
        }
        Ok(self.listeners.clone())
    }

    fn connections(&mut self, look: Look) -> io::Result<Vec<Connection>> {
        if self.sockets_missing.is_some() || (self.is_quiet && !self.has_connections) {
            return Ok(Vec::new());
        }
        let mut all = self.listed(tcp::connections(look.max_connections(), &self.listeners));
        self.has_connections = !all.is_empty();
        let ends = |seen: &Connection| Some((seen.local, seen.remote));
        all.retain(|seen| self.ignored.iter().all(|looking| looking.connection != ends(seen)));
        Ok(all)
    }

    fn programs(&mut self, processes: &Processes, look: Look) -> io::Result<Vec<Program>> {
        let pids = processes.get(&self.identity).cloned().unwrap_or_default();
        let pids = self.chosen(pids, look);
        // Hidden processes are reported only at the start of a trial.
        if look == Look::Whole && !mem::replace(&mut self.has_looked, true) {
            self.find_hidden(&pids);
        }
        let mut last = mem::take(&mut self.looked);
        let looks = pids.into_iter().filter_map(|pid| Some((pid, programs::look(pid, last.remove(&pid))?)));
        self.looked = looks.collect();
        let all = self.looked.values().map(|look| look.program.clone());
        let is_looking = |program: &Program| {
            self.ignored.iter().any(|looking| looking.process_group == program.process_group)
        };
        Ok(all.filter(|program| !is_looking(program)).collect())
    }

    fn listens(&mut self, pid: u32) -> BTreeSet<String> {
        let inodes = self.owned(pid).clone();
        let listeners = self.listeners.iter().filter(|listener| inodes.contains(&listener.inode));
        listeners.map(|listener| listener.address.to_string()).collect()
    }

    fn quota(&mut self, pid: u32) -> BTreeMap<String, u64> {
        // The hosts of a lab have separate groups, so a quota is searched only for this process's own namespace.
        let is_looked_for = self.is_own && self.group.is_none() && !self.owned(pid).is_empty();
        if is_looked_for { cgroups::quota_of(pid) } else { BTreeMap::new() }
    }

    fn cpus(&self, pid: u32, threads: &[u32]) -> Option<String> {
        programs::cpus(pid, threads)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        process::{Child, Command, Stdio},
    };

    use super::*;

    fn here() -> Here {
        Here::new(Arc::new(namespaces::own(Kind::Network).unwrap()), None, Arc::new([])).unwrap()
    }

    #[test]
    fn among_many_processes_those_that_listen_are_looked_at_each_second() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The processes wait for the end of their input.
        let idle = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut idle: Vec<Child> = (0..=Look::Brief.max_programs()).map(|_| idle()).collect();
        let mut here = here();
        here.listeners().unwrap();
        let pids: Vec<u32> =
            here.programs(&Here::processes(), Look::Brief).unwrap().iter().map(|one| one.pid).collect();
        assert!(pids.contains(&std::process::id()) && !pids.contains(&idle[0].id()), "{pids:?}");
        for child in &mut idle {
            child.kill().and_then(|()| child.wait()).unwrap();
        }
        drop(listener);
    }

    #[test]
    fn processes_that_are_not_looked_at_are_missing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut here, pid) = (here(), std::process::id());
        here.listeners().unwrap();
        let port = listener.local_addr().unwrap().port();
        here.listeners.retain(|listener| listener.address.port() == port);
        here.find_hidden(&[pid]);
        assert!(here.programs_missing.is_empty());
        here.find_hidden(&[]);
        let missing = here.network(Look::Whole).unwrap().missing;
        assert!(missing[PROGRAMS].contains("processes of 1 listening sockets"), "{missing:?}");
        // The processes have the ids 1 to `most + 1`, and all of them listen.
        let most = Look::Brief.max_programs();
        let many = |number: usize| (1..=number as u32).collect::<Vec<u32>>();
        here.owned = many(most + 1).into_iter().map(|pid| (pid, BTreeSet::from([1]))).collect();
        assert_eq!(here.chosen(many(most), Look::Brief).len(), most);
        assert!(!here.programs_missing.contains_key(MORE_PROGRAMS));
        here.owned = many(most + 1).into_iter().map(|pid| (pid, BTreeSet::from([1]))).collect();
        assert_eq!(here.chosen(many(most + 1), Look::Brief).len(), most);
        assert!(here.programs_missing[MORE_PROGRAMS].contains("of the 65 listening processes, only 64"));
    }
}
