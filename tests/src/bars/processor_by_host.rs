//! Processor time is booked to the host for which it is spent, whichever process is interrupted for it.

use std::{fmt::Write, fs};

use anyhow::{Context, Result, ensure};
use aya::programs::loaded_programs;
use record::{
    TrialCounters,
    counters::{HostCounters, ProcessorTime},
};
use rustix::process::Signal;
use serde_json::Value;
use testing::until;

use super::{Bar, By, Outcome, Runs, Scale};
use crate::{Proofload, process::Launch, proofload::binary, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "processor-by-host",
    what: "processor time of hosts: the sum is the wall clock within 2 %, a spinning host within 5 %, forwarding and receiving hosts \
           within 25 % of that work alone; it costs at most 10 %, and reading 30 hosts without it at most 1 % of a core",
    full_seconds: 160,
    decided_by: By::Both,
    run,
};

/// Number of trials of the whole, for the median.
const TRIALS: usize = 3;
/// Number of pairs of trials, which alternate.
const PAIRS: usize = 8;
/// Routers of the long path. The short path has only the first.
const ROUTERS: usize = 5;
/// Endlessly sends small packets to an address that no host has.
const FLOOD: &str = "socat -u -b 64 OPEN:/dev/zero UDP4-SENDTO:192.0.2.1:9";

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let cores = kernel::noise::allowed_cpus()?;
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    whole(&mut outcome, scale, [first, last])?;
    killed(&mut outcome, first)?;
    if scale != Scale::Full {
        return Ok(outcome);
    }
    forwarding(&mut outcome, last)?;
    cost(&mut outcome, last)?;
    match cores[..] {
        [first, second, .., last] => receiving(&mut outcome, [first, second, last])?,
        _ => outcome.undecided("receiving", "3 processors", "this machine has two"),
    }
    reading(&mut outcome)?;
    Ok(outcome)
}

/// A host that spins on one core, and a flood through a router on another. The program's own count includes the time that the hypervisor
/// takes away, but the booked time does not, and its amount is known only in steps of 10 ms. So the test takes medians of several trials,
/// which count as times.
fn whole(outcome: &mut Outcome, scale: Scale, [first, last]: [u32; 2]) -> Result<()> {
    let spin = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done; read t rest < /proc/self/schedstat; echo \\\"{ \\\\\\\"t\\\\\\\": $t }\\\"";
    let study = format!(
        "{}[[processes]]\non = \"client\"\ncommand = {:?}\n[[processes]]\non = \"client\"\nrun = \"serve\"\n\
         [workload.command]\nfrom = \"spin\"\nrun = \"{spin}\"\nread = [{{ json = \"/t\", name = \"worked\", unit = \"ns\" }}]\n\
         [trial]\nprocessor_time = true\n",
        path(1, last, &format!("spin = {{ cpus = \"{first}\" }}\n")),
        FLOOD.split(' ').collect::<Vec<_>>(),
    );
    let (mut sums, mut sums_with_stat, mut spinning) = (Runs::default(), Runs::default(), Runs::default());
    let mut listens = true;
    for _ in 0..if scale.is_timed() { TRIALS } else { 1 } {
        let (trial, counters) = run_study(&study)?;
        let unowned = counters.processor.as_ref().context("nothing was booked")?;
        let cores = unowned.idle.by_core_s.len().max(kernel::noise::allowed_cpus()?.len()) as f64;
        // Booking begins after everything else has been read, and ends earlier.
        let wall_s = unowned.elapsed_s * cores;
        let worked_s: f64 =
            counters.hosts.iter().filter_map(|host| Some(host.processor.as_ref()?.total_s)).sum();
        let rest_s = unowned.kernel.total_s + unowned.others.total_s + unowned.booking.total_s;
        let sum_s = worked_s + rest_s + unowned.stolen.total_s;
        let share = |s: f64| 100.0 * s / wall_s;
        sums.push(share(sum_s + unowned.idle.total_s));
        // The kernel's separate count of idle time.
        let idle_ms: u64 = counters
            .machine
            .values
            .iter()
            .filter(|(name, _)| name.ends_with(".idle_ms"))
            .map(|(_, ms)| ms)
            .sum();
        sums_with_stat.push(share(sum_s) + idle_ms as f64 / 10.0 / (counters.elapsed_s * cores));
        let truth_s =
            trial["quantities"]["worked_ns"].as_f64().context("the spinning program said nothing")? / 1e9;
        spinning.push(time(&counters, "spin")?.total_s / truth_s);
        outcome.note(format!("the hypervisor took {:.2} % of the processors", share(unowned.stolen.total_s)));
        // Check a host that is not the last one.
        listens &= host(&counters, "client")?.programs.iter().any(|program| !program.listens.is_empty());
    }
    if scale.is_timed() {
        outcome.time().runs_near("sum_percent_of_clock", &sums, 100.0, 2.0);
        outcome.time().runs_near("sum_percent_with_idle_of_stat", &sums_with_stat, 100.0, 2.0);
        outcome.time().runs_near("spinning_to_kernel_count", &spinning, 1.0, 0.05);
    }
    outcome.holds("listeners_of_a_first_host", listens, "serve on client listens");
    Ok(())
}

/// Kills proofload, and checks that no BPF program stays in the kernel.
fn killed(outcome: &mut Outcome, core: u32) -> Result<()> {
    let is_loaded = || loaded_programs().flatten().any(|program| program.name() == b"netif_receive_s");
    // Wait, because the kernel frees programs with a delay.
    until("nobody else books processor time", || !is_loaded());
    let folder = TemporaryFolder::new()?;
    let file = folder.file("study.toml");
    let command =
        "[workload.command]\nfrom = \"client\"\nrun = \"sleep 30\"\n[trial]\nprocessor_time = true\n";
    fs::write(&file, format!("{}{command}", path(1, core, "")))?;
    let launch = Launch::new(binary()?.display().to_string()).args(["run", &file, "-q", "--out"]);
    let mut process = launch.arg(folder.file("result")).start()?;
    until("the programs are loaded", is_loaded);
    process.signal(Signal::KILL);
    until("they are gone after a SIGKILL", || !is_loaded());
    outcome.holds("nothing_left", true, "no BPF program after a SIGKILL");
    Ok(())
}

/// Compares the time booked to the last routers of a path with the work that they add to its core. That work is the kernel's own count for
/// the only program, because all packets are forwarded in its context.
fn forwarding(outcome: &mut Outcome, core: u32) -> Result<()> {
    let study = |routers, books| {
        let command =
            format!("[workload.command]\nfrom = \"client\"\nrun = \"exec {FLOOD}\"\nstop_after = \"2s\"\n");
        format!("{}{command}[trial]\nprocessor_time = {books}\n", path(routers, core, ""))
    };
    let per_packet_us = |counters: &TrialCounters| -> Result<(f64, f64)> {
        let packets = received_packets(counters, "web")?;
        let worked_s: f64 = host(counters, "client")?.programs.iter().map(|program| program.running_s).sum();
        let routers = (2..=ROUTERS).filter_map(|number| time(counters, &format!("r{number}")).ok());
        let booked_s: f64 = routers.map(|time| time.total_s).sum();
        Ok((worked_s * 1e6 / packets, booked_s * 1e6 / packets))
    };
    let mut ratios = Runs::default();
    for _ in 0..PAIRS {
        let (short_us, _) = per_packet_us(&run_study(&study(1, false))?.1)?;
        let (long_us, _) = per_packet_us(&run_study(&study(ROUTERS, false))?.1)?;
        let (with_us, booked_us) = per_packet_us(&run_study(&study(ROUTERS, true))?.1)?;
        outcome.note(format!(
            "a packet takes {short_us:.3} us by one router, {long_us:.3} by {ROUTERS}, {with_us:.3} with booking, of which {booked_us:.3} \
             are booked to the last {}",
            ROUTERS - 1
        ));
        ratios.push(booked_us / (long_us - short_us));
    }
    outcome.time().runs_near("forwarding", &ratios, 1.0, 0.25);
    Ok(())
}

/// The time that booking adds to requests on new connections through a router, by the kernel's own count for all programs. All hosts share
/// a core, and softirqs run in the context of these programs.
fn cost(outcome: &mut Outcome, core: u32) -> Result<()> {
    let request_us = |books| -> Result<f64> {
        let (trial, counters) = run_study(&format!(
            "[hosts]\nclient = {{ cpus = \"{core}\", routes = [{{ to = \"10.2.0.0/16\", via = \"router\" }}] }}\n\
             router = {{ cpus = \"{core}\", forward = true }}\n\
             web = {{ cpus = \"{core}\", routes = [{{ to = \"default\", via = \"router\" }}] }}\n\
             [[links]]\nbetween = [\"client\", \"router\"]\n[[links]]\nbetween = [\"router\", \"web\"]\n\
             [targets.web]\non = \"web\"\nrun = \"serve\"\n\
             [workload.http]\nfrom = \"client\"\ntarget = \"web\"\nduration = \"2s\"\nusers = 8\nkeepalive = false\n\
             [trial]\nvoid_attempts = 0\nprocessor_time = {books}\n"
        ))?;
        let programs = counters.hosts.iter().flat_map(|host| &host.programs);
        let worked_s: f64 = programs.map(|program| program.running_s).sum();
        let requests = trial["counts"]["completed"].as_f64().context("no requests were counted")?;
        Ok(worked_s * 1e6 / requests)
    };
    let mut costs = Runs::default();
    for _ in 0..PAIRS {
        costs.push(100.0 * (request_us(true)? / request_us(false)? - 1.0));
    }
    outcome.time().at_most("cost", &costs, 10.0, " % of all work");
    Ok(())
}

/// Compares the time that a host needs to receive small packets in two places: on one core with its client and a router, and alone on a
/// core to which receive packet steering (RPS) gives all its packets.
fn receiving(outcome: &mut Outcome, cores: [u32; 3]) -> Result<()> {
    let study = |[client, router, web]: [u32; 3]| {
        let mut study = format!(
            "[hosts]\nclient = {{ cpus = \"{client}\", routes = [{{ to = \"10.2.0.0/16\", via = \"router\" }}] }}\n\
             web = {{ cpus = \"{web}\", routes = [{{ to = \"default\", via = \"router\" }}] }}\n\
             router = {{ cpus = \"{router}\", forward = true }}\n\
             [[links]]\nbetween = [\"client\", \"router\"]\n[[links]]\nbetween = [\"router\", \"web\"]\n\
             [targets.sink]\non = \"web\"\nrun = \"iperf3\"\n\
             [workload.command]\nfrom = \"client\"\nrun = \"iperf3 -c {{web}} -u -b 0 -l 64 -t 2\"\n\
             [trial]\nprocessor_time = true\n"
        );
        for (host, core) in [("router", router), ("web", web)].into_iter().filter(|_| client != web) {
            // The settings file of an interface is visible only in a sysfs that the host itself has mounted.
            let _ = write!(
                study,
                "[[processes]]\non = \"{host}\"\nready = \"exit\"\ncommand = [\"unshare\", \"-m\", \"sh\", \"-ec\", \"mount -t sysfs none \
                 /sys; for f in /sys/class/net/*/queues/rx-0/rps_cpus; do echo {:x} > $f; done\"]\n",
                1_u64 << core
            );
        }
        study
    };
    let per_packet_us = |study: String| -> Result<f64> {
        let (_, counters) = run_study(&study)?;
        Ok(time(&counters, "web")?.total_s * 1e6 / received_packets(&counters, "web")?)
    };
    let mut ratios = Runs::default();
    for _ in 0..PAIRS {
        let mixed_us = per_packet_us(study([cores[2]; 3]))?;
        let alone_us = per_packet_us(study(cores))?;
        outcome.note(format!(
            "a packet takes its receiver {mixed_us:.3} us among others, {alone_us:.3} us alone"
        ));
        ratios.push(mixed_us / alone_us);
    }
    outcome.time().runs_near("receiving", &ratios, 1.0, 0.25);
    Ok(())
}

/// The time to read the counters of 30 hosts each second, without booking.
fn reading(outcome: &mut Outcome) -> Result<()> {
    let study = "[hosts]\nweb = { count = 29 }\nclient = {}\n[[links]]\nbetween = [\"client\", \"web\"]\n\
                 [[processes]]\non = \"web\"\nrun = \"serve\"\n\
                 [workload.http]\nfrom = \"client\"\nurl = \"http://{web1}:8080/\"\nrate = 100\nduration = \"10s\"\n";
    let mut shares = Runs::default();
    for _ in 0..3 {
        let (_, counters) = run_study(study)?;
        ensure!(counters.hosts.len() == 30 && counters.processor.is_none(), "30 hosts without booking");
        shares.push(100.0 * counters.reading_s / counters.elapsed_s);
    }
    outcome.time().at_most("reading", &shares, 1.0, " % of one core");
    Ok(())
}

/// Hosts in a row, all on one core: a client, routers r1, r2, …, and web, which gets and drops all packets for 192.0.2.0/24.
fn path(routers: usize, core: u32, more_hosts: &str) -> String {
    let mut names = vec!["client".to_owned()];
    names.extend((1..=routers).map(|number| format!("r{number}")));
    let (mut hosts, mut links) = ("[hosts]\n".to_owned(), String::new());
    for (number, name) in names.iter().enumerate() {
        let next = names.get(number + 1).map_or("web", String::as_str);
        let forward = number > 0;
        let route = format!("{{ to = \"192.0.2.0/24\", via = \"{next}\" }}");
        let _ = writeln!(hosts, "{name} = {{ cpus = \"{core}\", forward = {forward}, routes = [{route}] }}");
        let _ = writeln!(links, "[[links]]\nbetween = [\"{name}\", \"{next}\"]");
    }
    format!("{hosts}web = {{ cpus = \"{core}\" }}\n{more_hosts}{links}")
}

/// Runs a study of one trial. Returns the trial and the counters.
fn run_study(study: &str) -> Result<(Value, TrialCounters)> {
    let folder = TemporaryFolder::new()?;
    let (file, out) = (folder.file("study.toml"), folder.file("result"));
    fs::write(&file, study)?;
    let output = Proofload::new("run")?.arg(&file).with(|launch| launch.args(["--out", &out, "-q"]));
    let output = output.run()?;
    let last = |name: &str| -> Result<String> {
        let text = fs::read_to_string(format!("{out}/{name}"))
            .with_context(|| format!("{}\n{study}", output.described()))?;
        Ok(text.lines().last().unwrap_or_default().to_owned())
    };
    let mut entry: Value = serde_json::from_str(&last("trials.jsonl")?)?;
    Ok((entry["trial"].take(), serde_json::from_str(&last("counters.jsonl")?)?))
}

fn host<'c>(counters: &'c TrialCounters, name: &str) -> Result<&'c HostCounters> {
    let found = counters.hosts.iter().find(|host| host.host == name);
    found.with_context(|| format!("no host {name}"))
}

fn time<'c>(counters: &'c TrialCounters, name: &str) -> Result<&'c ProcessorTime> {
    let missing = || format!("no processor time of {name}: {:?}", counters.machine.missing);
    host(counters, name)?.processor.as_ref().with_context(missing)
}

fn received_packets(counters: &TrialCounters, name: &str) -> Result<f64> {
    let values = &host(counters, name)?.counters.values;
    let packets: u64 =
        values.iter().filter(|(name, _)| name.ends_with(".received_packets")).map(|(_, number)| number).sum();
    ensure!(packets > 1_000, "{packets} packets came to {name}");
    Ok(packets as f64)
}
