//! Assigns each processor's time, softirqs included, to the network namespace that the processor works for. BPF
//! programs cut the time into slices (`bpf/processor_time.bpf.c` explains where) and sum them by processor and
//! namespace.
//!
//! Programs and accounts exist only while their files are open, so the kernel removes them when the process ends in any
//! way.

use std::{collections::BTreeMap, error::Error, io, thread, time::Duration};

use aya::{
    Btf, Ebpf, EbpfLoader, include_bytes_aligned,
    maps::{Array, PerCpuArray, PerCpuValues},
    programs::BtfTracePoint,
};
// The BPF programs read the same clock with `bpf_ktime_get_ns`.
use clock::monotonic_ns;
use record::counters::{ProcessorTime, UnownedTime};

use crate::counters::{processors, read_own};

/// `bpf/build.sh` compiles this object from `bpf/processor_time.bpf.c`.
const PROGRAMS: &[u8] = include_bytes_aligned!("../bpf/processor_time.bpf.o");

/// Numbers of the owners other than namespaces, as in the BPF programs.
const IDLE: u32 = 1;
const KERNEL: u32 = 2;
/// The names of the programs, which are also those of the tracepoints that they are attached to.
const TRACEPOINTS: [&str; 5] =
    ["sched_switch", "softirq_exit", "netif_receive_skb", "netif_receive_skb_exit", "qdisc_dequeue"];
/// The lost time may be at most the elapsed time divided by this number.
const MIN_PER_LOST: u64 = 1_000;
/// Pause between two readings: longer than a program that has started needs to end.
const PROGRAMS_END: Duration = Duration::from_millis(1);
/// Maximum number of readings of the slices. Reading ends when two in a row are equal.
const MAX_READINGS: u32 = 1_000;

/// Time of tasks and of softirqs, in nanoseconds, and the number of slices.
type Account = [u64; 3];
/// `struct account` of the BPF programs: the owner, 0 if there is none yet, and the [`Account`].
type Place = [u64; 4];
/// `struct slice` of the BPF programs: begin, owner and kind of the slice. The other fields concern the processor: the
/// lost time, the number of slices whose end was timed, the duration of those ends, and the number of slices until the
/// next timed end.
type Slice = [u64; 7];

/// The accounts of one processor.
struct Core {
    number: u32,
    owners: BTreeMap<u32, Account>,
    stolen_s: f64,
}

/// Assigns processor time until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Booking {
    ebpf: Ebpf,
    began_ns: u64,
    /// The steal time of each processor at the start.
    stolen_ms: BTreeMap<u32, u64>,
}

/// The resulting accounts.
#[derive(Debug)]
pub(crate) struct Booked {
    /// Accounts by the inode number of the namespace.
    namespaces: BTreeMap<u32, ProcessorTime>,
    unowned: UnownedTime,
}

impl Booking {
    /// Loads the programs and begins the accounting.
    ///
    /// # Errors
    /// A message with the reason why the rights of this user or this kernel do not suffice.
    pub(crate) fn start() -> Result<Self, String> {
        Self::of(PROGRAMS)
    }

    fn of(programs: &[u8]) -> Result<Self, String> {
        let kernel = Btf::from_sys_fs().map_err(|error| {
            format!("the kernel does not publish its types (/sys/kernel/btf/vmlinux): {}", in_words(&error))
        })?;
        let mut ebpf =
            EbpfLoader::new().btf(Some(&kernel)).load(programs).map_err(|error| refused(&error))?;
        for tracepoint in TRACEPOINTS {
            program(&mut ebpf, tracepoint)?.load(tracepoint, &kernel).map_err(|error| refused(&error))?;
        }
        for tracepoint in TRACEPOINTS {
            program(&mut ebpf, tracepoint)?.attach().map_err(|error| refused(&error))?;
        }
        let stolen_ms = stolen_ms().map_err(|error| error.to_string())?;
        let began_ns = monotonic_ns();
        set_began(&mut ebpf, began_ns)?;
        Ok(Self { ebpf, began_ns, stolen_ms })
    }

    /// Ends the accounting and reads the accounts.
    ///
    /// # Errors
    /// A message if they cannot be read.
    pub(crate) fn stop(mut self) -> Result<Booked, String> {
        set_began(&mut self.ebpf, 0)?;
        let ended_ns = monotonic_ns();
        let slices = self.slices_at_rest()?;
        let accounts = self.ebpf.map("accounts").ok_or_else(|| no_part("accounts"))?;
        let accounts: PerCpuArray<_, Place> = accounts.try_into().map_err(|error| in_words(&error))?;
        let has_owner = |place: &PerCpuValues<Place>| place.iter().any(|[owner, ..]| *owner != 0);
        let places: Result<Vec<_>, _> =
            accounts.iter().filter(|place| place.as_ref().map_or(true, has_owner)).collect();
        let places = places.map_err(|error| in_words(&error))?;
        let now_stolen_ms = stolen_ms().map_err(|error| error.to_string())?;
        let cores = now_stolen_ms.iter().map(|(&core, ms)| {
            let stolen_ms = ms.saturating_sub(*self.stolen_ms.get(&core).unwrap_or(ms));
            let on_core = |place: &PerCpuValues<Place>| {
                let [owner, account @ ..] = *place.get(core as usize)?;
                (owner != 0).then_some((owner as u32, account))
            };
            let mut owners: BTreeMap<u32, Account> = places.iter().filter_map(on_core).collect();
            let slice = slices.get(core as usize).copied().unwrap_or_default();
            // This adds the slice that was in progress. A processor without any event was idle.
            let (owner, began_ns) =
                if slice[0] == 0 { (IDLE, self.began_ns) } else { (slice[1] as u32, slice[0]) };
            let kind = usize::from(slice[2] != 0);
            owners.entry(owner.max(IDLE)).or_default()[kind] += ended_ns.saturating_sub(began_ns);
            Core { number: core, owners, stolen_s: stolen_ms as f64 / 1e3 }
        });
        let over_all = |field: usize| slices.iter().map(|slice| slice[field]).sum::<u64>();
        let mut booked = Booked::of(cores, over_all(5) as f64 / over_all(4).max(1) as f64);
        let elapsed_ns = ended_ns - self.began_ns;
        if over_all(3) > elapsed_ns / MIN_PER_LOST {
            return Err(
                "no counter was free for a network namespace; run again, because new hosts get other counters"
                    .to_owned(),
            );
        }
        booked.unowned.elapsed_s = elapsed_ns as f64 / 1e9;
        Ok(booked)
    }

    /// The last slice of each processor at the end of the accounting.
    fn slices_at_rest(&self) -> Result<Vec<Slice>, String> {
        let slices = self.ebpf.map("slices").ok_or_else(|| no_part("slices"))?;
        let slices: PerCpuArray<_, Slice> = slices.try_into().map_err(|error| in_words(&error))?;
        let mut last = Vec::new();
        for _ in 0..MAX_READINGS {
            let now = slices.get(&0, 0).map_err(|error| in_words(&error))?.to_vec();
            if now == last {
                return Ok(now);
            }
            last = now;
            thread::sleep(PROGRAMS_END);
        }
        Err("the counters changed while they were read; run the trial again".to_owned())
    }
}

impl Booked {
    /// Sums the accounts of the processors. `slice_ns` is the time that the accounting of one slice took.
    fn of(cores: impl Iterator<Item = Core>, slice_ns: f64) -> Self {
        let mut booked = Self { namespaces: BTreeMap::new(), unowned: UnownedTime::default() };
        for Core { number, owners, stolen_s } in cores {
            let time_s = |account: &Account| (account[0] + account[1]) as f64 / 1e9;
            let busy_s: f64 =
                owners.iter().filter(|(owner, _)| **owner != IDLE).map(|(_, account)| time_s(account)).sum();
            // The hypervisor takes time from work, not from idle time. It does not report whose work, so all owners
            // lose the same share.
            let from_work_s = stolen_s.min(busy_s);
            let left = if busy_s > 0.0 { 1.0 - from_work_s / busy_s } else { 1.0 };
            for (owner, account) in &owners {
                let left = if *owner == IDLE { 1.0 } else { left };
                let booking_s = (account[2] as f64 * slice_ns / 1e9).min(time_s(account));
                let rest = 1.0 - booking_s / time_s(account).max(f64::MIN_POSITIVE);
                let (to, left_s) = match *owner {
                    IDLE => (&mut booked.unowned.idle, time_s(account) * rest + from_work_s - stolen_s),
                    KERNEL => (&mut booked.unowned.kernel, time_s(account) * rest * left),
                    inode => (booked.namespaces.entry(inode).or_default(), time_s(account) * rest * left),
                };
                add(to, number, left_s, account[1] as f64 / 1e9 * rest * left);
                add(&mut booked.unowned.booking, number, booking_s * left, 0.0);
            }
            add(&mut booked.unowned.stolen, number, stolen_s, 0.0);
        }
        booked
    }

    /// Returns the time of the namespace with this inode number and removes it from the accounts.
    pub(crate) fn take(&mut self, inode: u64) -> ProcessorTime {
        let inode = u32::try_from(inode).ok();
        inode.and_then(|inode| self.namespaces.remove(&inode)).unwrap_or_default()
    }

    /// The time that is left after the namespaces were taken.
    pub(crate) fn rest(mut self) -> UnownedTime {
        self.namespaces.values().for_each(|time| self.unowned.others.merge(time));
        self.unowned
    }
}

fn add(time: &mut ProcessorTime, core: u32, total_s: f64, softirq_s: f64) {
    if total_s > 0.0 {
        time.total_s += total_s;
        time.softirq_s += softirq_s;
        *time.by_core_s.entry(core).or_default() += total_s;
    }
}

/// Sets the time at which accounting began; 0 ends it.
fn set_began(ebpf: &mut Ebpf, began_ns: u64) -> Result<(), String> {
    let variable = ebpf.map_mut(".bss").ok_or_else(|| no_part(".bss"))?;
    let mut variable: Array<_, u64> = variable.try_into().map_err(|error| in_words(&error))?;
    variable.set(0, began_ns, 0).map_err(|error| in_words(&error))
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint, String> {
    let program = ebpf.program_mut(name).ok_or_else(|| no_part(name))?;
    program.try_into().map_err(|_| no_part(name))
}

fn no_part(name: &str) -> String {
    format!("the BPF object has no {name}")
}

/// The steal time of each processor, in milliseconds.
fn stolen_ms() -> io::Result<BTreeMap<u32, u64>> {
    let mut values = BTreeMap::new();
    let known = processors(&read_own("stat")?, &mut values);
    known.ok_or_else(|| io::Error::other("the format of /proc/stat is unknown"))?;
    let stolen = |(name, ms): (String, u64)| {
        let core = name.strip_prefix("cpu")?.strip_suffix(".steal_ms")?;
        Some((core.parse().ok()?, ms))
    };
    Ok(values.into_iter().filter_map(stolen).collect())
}

fn refused(error: &(dyn Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let system = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if system == Some(io::ErrorKind::PermissionDenied) {
            return "this user may not load BPF programs; run as root, or with CAP_BPF and CAP_PERFMON"
                .to_owned();
        }
        cause = error.source();
    }
    format!("the kernel refuses the BPF programs: {}", in_words(error))
}

/// An error and its causes in one line. Only the first line of each is used, because the verifier writes hundreds of
/// lines.
fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut words = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        words.push(error.to_string().lines().next().unwrap_or_default().to_owned());
        cause = error.source();
    }
    words.dedup();
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead, BufReader},
        process::{Child, Command, Stdio},
    };

    use super::*;

    /// A shell script that prints its network namespace and works for a while.
    const WORK: &str = "readlink /proc/self/ns/net; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

    /// The inode number in the target of a network namespace's link.
    fn inode(link: &str) -> u64 {
        link.strip_prefix("net:[").and_then(|rest| rest.strip_suffix(']')).unwrap().parse().unwrap()
    }

    /// Accounts time while a process works in a new namespace. `make prove NAME=processor-by-host` verifies the
    /// amounts.
    fn check_work(booking: Booking) {
        let done = Command::new("unshare").args(["--net", "sh", "-c", WORK]).output().unwrap();
        let mut booked = booking.stop().unwrap();
        let inode = inode(String::from_utf8(done.stdout).unwrap().trim());
        assert!(has_account(&booked, inode), "{booked:?}");
        booked.take(inode);
        assert!(!has_account(&booked, inode), "it is taken out");
    }

    /// Whether a namespace has an account. The account may be empty if the hypervisor took much time.
    fn has_account(booked: &Booked, inode: u64) -> bool {
        booked.namespaces.contains_key(&(inode as u32))
    }

    #[test]
    fn work_is_booked_to_its_namespace_or_refused_with_the_reason() {
        match Booking::start() {
            Ok(booking) => check_work(booking),
            Err(why) => {
                assert!(!rustix::process::geteuid().is_root() && why.contains("run as root"), "{why}")
            }
        }
    }

    #[test]
    fn as_root_each_of_many_namespaces_has_an_account() {
        crate::testing::need_root();
        let booking = Booking::start().unwrap();
        let begin = || {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", "readlink /proc/self/ns/net; read end"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut hosts: Vec<Child> = (0..400).map(|_| begin()).collect();
        let said = |host: &mut Child| {
            let mut line = String::new();
            BufReader::new(host.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            inode(line.trim())
        };
        let inodes: Vec<u64> = hosts.iter_mut().map(said).collect();
        // `wait` closes the standard input of the processes, which ends them.
        hosts.iter_mut().for_each(|host| assert!(host.wait().is_ok()));
        let booked = booking.stop().unwrap();
        let without: Vec<u64> = inodes.into_iter().filter(|inode| !has_account(&booked, *inode)).collect();
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn the_committed_programs_are_those_of_their_source() {
        let folder = tempfile::tempdir().unwrap();
        let build = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/build.sh");
        let built = Command::new(build).arg(folder.path()).status().unwrap();
        assert!(built.success(), "`make setup-test` installs what {build} needs");
        let object = fs::read(folder.path().join("processor_time.bpf.o")).unwrap();
        let version = Command::new("clang").arg("--version").output().unwrap().stdout;
        if String::from_utf8_lossy(&version).contains("clang version 14.0.6") {
            assert!(object == PROGRAMS, "run {build} and commit what it made");
        } else if rustix::process::geteuid().is_root() {
            // Programs that another version of clang has compiled must behave in the same way.
            testing::skipped("bytes of processor_time", "other versions of clang make other bytes");
            check_work(Booking::of(&object).unwrap());
        }
    }

    #[test]
    fn what_the_hypervisor_took_is_taken_from_work() {
        let second: u64 = 1_000_000_000;
        let owners = |owners: &[(u32, Account)]| owners.iter().copied().collect::<BTreeMap<u32, Account>>();
        let busy = owners(&[(IDLE, [second, 0, 0]), (KERNEL, [second, 0, 0]), (77, [second, 2 * second, 0])]);
        let idle = owners(&[(IDLE, [4 * second, 0, 0])]);
        let busy = Core { number: 0, owners: busy, stolen_s: 1.0 };
        let idle = Core { number: 3, owners: idle, stolen_s: 0.5 };
        let mut booked = Booked::of([busy, idle].into_iter(), 100.0);
        let time = booked.take(77);
        assert_eq!((time.total_s, time.softirq_s, &time.by_core_s), (2.25, 1.5, &[(0, 2.25)].into()));
        assert_eq!(booked.take(78), ProcessorTime::default());
        let unowned = booked.rest();
        assert_eq!(unowned.idle.by_core_s, [(0, 1.0), (3, 3.5)].into());
        assert_eq!((unowned.kernel.total_s, unowned.stolen.total_s), (0.75, 1.5));
    }

    #[test]
    fn what_is_not_taken_out_is_of_others_and_booking_of_nobody() {
        let core = |number, inode| {
            let owners = [(inode, [500_000_000, 1_500_000_000, 1_000_000])].into();
            Core { number, owners, stolen_s: 0.0 }
        };
        let unowned = Booked::of([core(0, 77), core(1, 78)].into_iter(), 1_000.0).rest();
        assert_eq!((unowned.others.total_s, unowned.others.softirq_s), (2.0, 1.5));
        assert_eq!(unowned.others.by_core_s, [(0, 1.0), (1, 1.0)].into());
        assert_eq!(unowned.booking.by_core_s, [(0, 1.0), (1, 1.0)].into());
        let all = Booked::of([core(0, 77)].into_iter(), 1e9).rest();
        assert_eq!((all.others.total_s, all.booking.total_s), (0.0, 2.0), "no more than there was");
    }
}
