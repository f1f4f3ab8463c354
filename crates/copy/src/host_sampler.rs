//! Samples both ends during a copy: processors, disks, the copy's programs and its connections.

mod look;

use std::{
    cell::{Cell, Ref, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use kernel::{
    programs::sockets,
    senders::Senders,
    ssh::ends,
    tcp::{self, Connection},
};
use look::{Look, SOCKETS, look_at, program};
use record::counters::SenderUse;
use serde::Serialize;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    process::Command,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{processes::with_descendants, shell::next_line};

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(500);
/// Maximum wait for an answer. A shell that has not answered by then is not asked again.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Maximum number of connections that are sampled.
const MAX_CONNECTIONS: usize = 1_000;
/// Maximum bytes of an answer from a shell.
const MAX_LOOK_BYTES: usize = 16 << 20;
/// The line that ends each answer of the shell.
const END: &str = "proofload: seen";
/// The first command for the shell on the other machine.
const FIRST: &str = "PATH=$PATH:/usr/sbin:/sbin LC_ALL=C; export PATH LC_ALL; echo \"$SSH_CONNECTION\"; \
    read -r pid name state parent rest </proc/self/stat; cat /proc/$parent/stat";
/// The command for each sample.
const EACH: &str = "head -n 1 /proc/stat; cat /proc/pressure/io 2>/dev/null; \
    cat /proc/[0-9]*/stat 2>/dev/null | grep -E '[(](sshd|sshd-session|sftp-server|dropbear)[)]'";

/// The load of one end during a copy.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HostUse {
    /// Time covered by the samples while all connections carried data, in seconds.
    pub steady_s: f64,
    /// Share of the time in which the machine's processors were busy; none if unknown.
    pub busy_share: Option<f64>,
    /// The copy's program with the most processor time, and its share of a processor.
    pub busiest: Option<(String, f64)>,
    /// Share of the time in which any program waited for a disk; none if unknown.
    pub disk_share: Option<f64>,
    /// Share of the samples in which a program of the copy waited for a device.
    pub blocked_share: f64,
    /// The limits that stopped the copy's own connections at this end from sending.
    pub senders: SenderUse,
}

/// Sums over all samples of one end.
#[derive(Debug, Default)]
struct Sums {
    last: Option<(Instant, Look)>,
    elapsed_s: f64,
    steady_s: f64,
    worked_ticks: u64,
    idle_ticks: u64,
    disk_us: Option<u64>,
    programs: BTreeMap<u32, (String, u64)>,
    looks: u32,
    looks_blocked: u32,
    senders: Senders,
}

impl Sums {
    fn add(&mut self, now: Instant, look: Look, is_steady: bool) {
        self.looks += 1;
        self.looks_blocked += u32::from(look.programs.values().any(|program| program.is_blocked));
        let Some((then, before)) = self.last.replace((now, look.clone())) else {
            look.connections.iter().for_each(|connection| self.senders.look_at(connection));
            self.senders.begin();
            return;
        };
        let elapsed_s = now.duration_since(then).as_secs_f64();
        self.elapsed_s += elapsed_s;
        if let (Some(now), Some(before)) = (look.disk_us, before.disk_us) {
            *self.disk_us.get_or_insert_default() += now.saturating_sub(before);
        }
        if !is_steady {
            // Samples before the steady time only set the start values of the connections' counters.
            if self.steady_s == 0.0 {
                look.connections.iter().for_each(|connection| self.senders.look_at(connection));
                self.senders.begin();
            }
            return;
        }
        self.steady_s += elapsed_s;
        look.connections.iter().for_each(|connection| self.senders.look_at(connection));
        if let (Some(now), Some(before)) = (look.processors, before.processors) {
            self.worked_ticks += now.0.saturating_sub(before.0);
            self.idle_ticks += now.1.saturating_sub(before.1);
        }
        for (pid, program) in look.programs {
            let before = before.programs.get(&pid).map_or(0, |before| before.running_ticks);
            let (_, ticks) = self.programs.entry(pid).or_insert((program.name, 0));
            *ticks += program.running_ticks.saturating_sub(before);
        }
    }

    fn shown(&self) -> HostUse {
        let ticks = self.worked_ticks + self.idle_ticks;
        let share = |time_s: f64| time_s / self.steady_s.max(f64::MIN_POSITIVE);
        let busiest = self.programs.values().max_by_key(|(_, ticks)| *ticks);
        HostUse {
            steady_s: self.steady_s,
            busy_share: (ticks > 0).then(|| self.worked_ticks as f64 / ticks as f64),
            // Linux reports times in hundredths of a second, regardless of its own tick rate (proc_pid_stat(5), USER_HZ).
            busiest: busiest.map(|(name, ticks)| (name.clone(), share(*ticks as f64 / 100.0))),
            disk_share: self
                .disk_us
                .map(|us| (us as f64 / 1e6 / self.elapsed_s.max(f64::MIN_POSITIVE)).min(1.0)),
            blocked_share: f64::from(self.looks_blocked) / f64::from(self.looks.max(1)),
            senders: self.senders.used(),
        }
    }
}

/// The state of the copy itself at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick {
    /// Whether all connections carry data and there is work that no channel has begun.
    pub(crate) is_steady: bool,
    pub(crate) delivered_bytes: u64,
    /// Share of the channels whose bytes in flight have reached their limit; 1 if the limit of all channels together is
    /// reached.
    pub(crate) full_channels_share: f64,
    /// Whether the limit of all channels together is reached.
    pub(crate) is_path_full: bool,
    /// Whether only small files are left, which are not split into chunks.
    pub(crate) are_files_small: bool,
}

/// Sums over all ticks while all connections carried data.
#[derive(Debug, Default)]
pub(crate) struct Steady {
    last: Option<(Instant, u64)>,
    elapsed_s: f64,
    bytes: u64,
    ticks: u32,
    full_channels: f64,
    full_path: u32,
    small: u32,
}

impl Steady {
    /// Rate in bytes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / self.elapsed_s.max(f64::MIN_POSITIVE)
    }

    fn share(&self, sum: f64) -> f64 {
        sum / f64::from(self.ticks.max(1))
    }

    /// Mean share of the channels whose bytes in flight had reached their limit.
    pub(crate) fn full_channels_share(&self) -> f64 {
        self.share(self.full_channels)
    }

    /// Share of the time in which the limit of all channels together was reached.
    pub(crate) fn full_path_share(&self) -> f64 {
        self.share(f64::from(self.full_path))
    }

    /// Whether only small files were left most of the time.
    pub(crate) fn were_files_small(&self) -> bool {
        self.share(f64::from(self.small)) > 0.5
    }
}

/// Samples both ends of a copy.
#[derive(Debug, Default)]
pub(crate) struct HostSampler {
    here: RefCell<Sums>,
    there: RefCell<Sums>,
    steady: RefCell<Steady>,
    /// Whether connections on the other machine are sampled. They show why the sender of a download stops.
    looks_at_connections_there: bool,
    is_there: Cell<bool>,
    /// The addresses of the copy's connections on this machine.
    own: RefCell<Vec<(SocketAddr, SocketAddr)>>,
    /// Whether one of these connections ends at the other machine and not at a jump host.
    is_direct: Cell<bool>,
}

impl HostSampler {
    pub(crate) fn new(is_download: bool) -> Rc<Self> {
        Rc::new(Self { looks_at_connections_there: is_download, ..Self::default() })
    }

    /// Records the state of the copy. Must be called ten times a second during the copy.
    pub(crate) fn tick(&self, now: Instant, tick: &Tick) {
        let mut steady = self.steady.borrow_mut();
        if let (true, Some((then, bytes))) = (tick.is_steady, steady.last) {
            steady.elapsed_s += now.duration_since(then).as_secs_f64();
            steady.bytes += tick.delivered_bytes - bytes;
            steady.ticks += 1;
            steady.full_channels += tick.full_channels_share;
            steady.full_path += u32::from(tick.is_path_full);
            steady.small += u32::from(tick.are_files_small);
        }
        steady.last = tick.is_steady.then_some((now, tick.delivered_bytes));
    }

    /// The sums over the time in which all connections carried data.
    pub(crate) fn steady(&self) -> Ref<'_, Steady> {
        self.steady.borrow()
    }

    fn is_steady(&self) -> bool {
        self.steady.borrow().last.is_some()
    }

    /// Samples this machine until the future is dropped.
    pub(crate) async fn watch_here(self: Rc<Self>) {
        while let Ok(look) = spawn_blocking(look_here).await {
            *self.own.borrow_mut() = look.connections.iter().map(|seen| (seen.local, seen.remote)).collect();
            self.here.borrow_mut().add(Instant::now(), look, self.is_steady());
            sleep(INTERVAL).await;
        }
    }

    /// Samples the other machine through a shell as long as the shell answers.
    pub(crate) async fn watch_there(self: Rc<Self>, mut command: Command) {
        if self.is_there.replace(true) {
            return;
        }
        let watched = async {
            let mut child = command.spawn().ok()?;
            let (mut stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
            let mut lines = BufReader::new(stdout);
            let sockets = if self.looks_at_connections_there {
                format!("; echo '{SOCKETS}'; ss -tinm state established 2>/dev/null")
            } else {
                String::new()
            };
            let (mut shell, mut connection) = (None, None);
            let mut ask = format!("{FIRST}; echo '{END}'\n");
            for number in 0.. {
                stdin.write_all(ask.as_bytes()).await.ok()?;
                let mut text = String::new();
                loop {
                    let line = timeout(ANSWER_WAIT, next_line(&mut lines)).await.ok()??;
                    if line == END {
                        break;
                    }
                    if text.len() > MAX_LOOK_BYTES {
                        return None;
                    }
                    text += &line;
                    text.push('\n');
                }
                if number == 0 {
                    shell = text.lines().find_map(program);
                    connection = text.lines().find_map(ends).map(|(client, _)| client);
                    let is_own = |client: SocketAddr| {
                        self.own.borrow().iter().any(|ends| ends.0.port() == client.port())
                    };
                    self.is_direct.set(connection.is_some_and(is_own));
                    ask = format!("{EACH}{sockets}; echo '{END}'\n");
                } else {
                    let mut look = look_at(&text);
                    if let Some((pid, shell)) = &shell {
                        look.keep_siblings(*pid, shell.began_ticks);
                    }
                    self.keep_own(&mut look.connections, connection);
                    self.there.borrow_mut().add(Instant::now(), look, self.is_steady());
                    sleep(INTERVAL).await;
                }
            }
            Some(())
        };
        watched.await;
        self.is_there.set(false);
    }

    /// Keeps only the connections of the copy. Behind address translation, only the shell's own connection can be
    /// identified.
    fn keep_own(&self, there: &mut Vec<Connection>, of_shell: Option<SocketAddr>) {
        let ends = self.own.borrow();
        let is_own = |seen: &Connection| {
            ends.iter().any(|(local, remote)| {
                local.port() == seen.remote.port() && remote.port() == seen.local.port()
            })
        };
        if there.iter().any(is_own) {
            there.retain(is_own);
        } else {
            let of_shell = of_shell.map(|client| (client.ip().to_canonical(), client.port()));
            there.retain(|seen| Some((seen.remote.ip().to_canonical(), seen.remote.port())) == of_shell);
        }
    }

    /// Whether the connections of this machine certainly end at the other machine.
    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct.get()
    }

    pub(crate) fn here(&self) -> HostUse {
        self.here.borrow().shown()
    }

    /// The load of the other machine. None if no shell there has answered.
    pub(crate) fn there(&self) -> Option<HostUse> {
        let there = self.there.borrow();
        (there.looks > 1).then(|| there.shown())
    }
}

/// A sample of this machine, including the first thread of proofload and its child processes.
fn look_here() -> Look {
    // `/proc` may show the process ids of another PID namespace, so this process's own id is read from `/proc` too.
    let own_pid = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    let pids: Vec<u32> = own_pid.into_iter().flat_map(with_descendants).collect();
    let stat = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).ok();
    let files = ["/proc/stat", "/proc/pressure/io"].map(|file| fs::read_to_string(file).unwrap_or_default());
    let mut look = look_at(&(files.concat() + &pids.iter().filter_map(stat).collect::<String>()));
    let inodes: BTreeSet<u32> = pids.iter().skip(1).flat_map(|pid| sockets(*pid)).collect();
    look.connections = tcp::connections(MAX_CONNECTIONS, &[]).unwrap_or_default();
    look.connections.retain(|connection| inodes.contains(&connection.inode));
    look
}

#[cfg(test)]
mod tests {
    use look::Working;

    use super::*;

    #[test]
    fn only_what_happened_while_all_carried_counts_for_processors_and_connections() {
        let look = |ticks: u64| Look {
            processors: Some((ticks, ticks)),
            disk_us: Some(ticks * 5_000),
            programs: BTreeMap::from([(
                7,
                Working {
                    name: "ssh".to_owned(),
                    parent: 1,
                    began_ticks: 1,
                    running_ticks: ticks,
                    is_blocked: ticks == 0,
                },
            )]),
            connections: Vec::new(),
        };
        let (mut sums, began) = (Sums::default(), Instant::now());
        for (second, ticks, is_steady) in
            [(0, 0, false), (1, 50, false), (2, 150, true), (3, 250, true), (4, 250, false)]
        {
            sums.add(began + Duration::from_secs(second), look(ticks), is_steady);
        }
        let shown = sums.shown();
        assert_eq!(
            (shown.steady_s, shown.busy_share, shown.busiest),
            (2.0, Some(0.5), Some(("ssh".to_owned(), 1.0)))
        );
        assert_eq!((shown.disk_share, shown.blocked_share), (Some(1.25 / 4.0), 0.2));
    }

    #[test]
    fn this_machine_is_seen() {
        let look = look_here();
        let program = look.programs.values().next().unwrap();
        assert!(look.processors.is_some() && program.began_ticks > 0, "{look:?}");
    }
}
