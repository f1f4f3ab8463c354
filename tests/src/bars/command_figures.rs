//! Figures about programs, compared with programs that know what they used.

use std::{fs, process::Command, time::Instant};

use anyhow::{Context, Result, ensure};
use record::{ResultFolder, TrialEntry};

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{
    Proofload,
    lab::{Labs, SshdFolder},
    link::uncertified,
    process::Process,
    stats::median,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "command-figures",
    what: "programs of known wall time, processor time, memory and bytes, with children and strays: each figure is right, nothing is \
           left running; socat's bytes on the wire are payload x 1538/1448 within 1 %; scp takes as long as outside of a study, within 10 %",
    full_seconds: 60,
    decided_by: By::Both,
    run,
};

/// Burns processor time in a child, a grandchild and a stray, holds memory in two processes, and sleeps. The program and the stray write
/// down the processor time that the kernel counts for them and for the children that they waited for. They use getrusage, because
/// os.times() cuts its numbers to hundredths of a second.
const KNOWN: &str = r#"
import os, sys, time
from resource import getrusage, RUSAGE_CHILDREN, RUSAGE_SELF
def burn(seconds):
    begun = time.process_time()
    while time.process_time() - begun < seconds: pass
def tell():
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    with open(sys.argv[2], "a") as times: times.write("%f\n" % sum(one.ru_utime + one.ru_stime for one in used))
def hold(megabytes): return bytearray(os.urandom(1 << 20)) * megabytes
begun = time.monotonic()
if os.fork() == 0:
    if os.fork() == 0:
        held = hold(60); burn(0.3); time.sleep(0.8); os._exit(0)
    held = hold(40); burn(0.3); os.wait(); os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "a").write("%d\n" % os.getpid()); burn(0.2); tell(); time.sleep(600)
    os._exit(0)
burn(0.2); os.wait(); os.wait()
time.sleep(max(0, 1.5 - (time.monotonic() - begun)))
tell()
"#;

const HOSTS: &str = r#"
[hosts]
client = { tcp_rmem = "32MB", tcp_wmem = "32MB" }
far = { tcp_rmem = "32MB", tcp_wmem = "32MB" }
[[links]]
name = "way"
between = ["client", "far"]
rate = "RATE"
delay = "5ms"
queue = "2bdp"
"#;

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    known(&mut outcome, scale, false)?;
    known(&mut outcome, scale, true)?;
    socat(&mut outcome, scale)?;
    if scale.is_timed() {
        scp(&mut outcome, scale)?;
    }
    Ok(outcome)
}

/// Runs this program on this machine or on a host, and checks each figure about it.
fn known(outcome: &mut Outcome, scale: Scale, on_host: bool) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    fs::write(folder.file("known.py"), KNOWN)?;
    let (strays, times) = (folder.file("strays"), folder.file("times"));
    let hosts = if on_host { "[hosts]\nclient = {}\n" } else { "" };
    let study = format!(
        "title = \"known\"\n{hosts}[workload.command]\nrun = [\"python3\", \"{}\", \"{strays}\", \"{times}\"]\n[trial]\nrepeats = {}\n",
        folder.file("known.py"),
        scale.pick(1, 5)
    );
    let trials = study_of(&folder, &study)?;
    let reasons: Vec<_> = trials.iter().flat_map(|entry| entry.trial.validity.reasons()).collect();
    ensure!(reasons.is_empty(), "void: {reasons:?}");
    let of = |name: &str| -> Result<f64> {
        let values = trials.iter().map(|entry| entry.trial.quantities.get(name).copied());
        let values: Vec<f64> = values.collect::<Option<_>>().with_context(|| format!("{name} is missing"))?;
        Ok(median(&values))
    };
    let place = if on_host { "host" } else { "here" };
    let mut within = |name: &str, value: f64, low: f64, high: f64| {
        let bound = format!("{low:.2} to {high:.2}");
        let is_time = name != "largest_process_mib";
        let outcome = if is_time { outcome.time() } else { &mut *outcome };
        outcome.figure(
            &format!("{name}_{place}"),
            format!("{value:.3}"),
            bound,
            (low..=high).contains(&value),
        );
    };
    within("largest_process_mib", of("largest_process_bytes")? / f64::from(1 << 20), 60.0, 80.0);
    if scale.is_timed() {
        let told = fs::read_to_string(&times)?;
        let told: f64 = told.lines().map(|line| line.parse().unwrap_or(f64::NAN)).sum();
        let told = told / trials.len() as f64;
        // The upper bound includes the start of the interpreter.
        within("wall_s", of("wall_s")?, 1.5, 2.2);
        // The upper bound includes processor time after the two have written their figures, such as for their exit.
        within("processor_s", of("user_s")? + of("system_s")?, told - 0.02, told + 0.15);
        // Memory is only sampled, so the peak may be missed.
        within("peak_memory_mib", of("peak_memory_bytes")? / f64::from(1 << 20), 100.0, 145.0);
    }
    let left = fs::read_to_string(&strays)?;
    let own = |id: &&str| {
        !on_host
            && fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.contains("known.py"))
    };
    outcome.equal(&format!("left_running_{place}"), left.lines().filter(own).count() as u64, 0, "strays end");
    Ok(())
}

/// Sends a file over one TCP connection, and compares the payload with the bytes that the link counted.
fn socat(outcome: &mut Outcome, scale: Scale) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let megabytes: u64 = scale.pick(50, 500);
    let study = format!(
        "title = \"socat\"\n{}\n[targets.sink]\non = \"far\"\nport = 9000\n\
         command = [\"socat\", \"-u\", \"TCP-LISTEN:9000,reuseaddr,fork\", \"OPEN:/dev/null\"]\n\
         [workload.command]\nfrom = \"client\"\nsetup = \"head -c {megabytes}000000 /dev/zero > {{scratch}}/file\"\n\
         run = [\"socat\", \"-u\", \"FILE:{{scratch}}/file\", \"TCP:{{sink}}\"]\nbytes = \"{megabytes}MB\"\n",
        HOSTS.replace("RATE", "500mbit")
    );
    // A void trial is good enough: the link's counters are right even if packets were late.
    let trials = study_of(&folder, &study)?;
    let wire = trials.last().and_then(|entry| entry.trial.quantities.get("link_way_a_to_b_bytes").copied());
    let share = wire.context("the link has no bytes")? / (megabytes as f64 * 1e6 * 1538.0 / 1448.0);
    let of = "of payload x 1538/1448";
    outcome.figure("socat_wire_share", format!("{share:.4}"), format!(">= 0.99 {of}"), share >= 0.99);
    if scale.is_timed() {
        // If the emulator stalls, TCP retransmits data that was not lost, so this bound depends on time.
        let bound = format!("<= 1.01 {of}");
        outcome.time().figure("socat_wire_share_at_most", format!("{share:.4}"), bound, share <= 1.01);
    }
    Ok(())
}

/// Compares the time of a copy inside a study with that outside.
fn scp(outcome: &mut Outcome, scale: Scale) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let file = folder.file("data");
    let made =
        Command::new("sh").args(["-c", &format!("head -c 20000000 /dev/urandom > {file}")]).status()?;
    ensure!(made.success(), "no file to copy");
    let server = "[[processes]]\non = \"far\"\nrun = \"sshd\"\nconfig = \"debian\"\n";
    let hosts = HOSTS.replace("RATE", "100mbit");
    let repeats = scale.pick(2, 6);
    let study = format!(
        "title = \"scp\"\n{hosts}{server}[workload.command]\nfrom = \"client\"\n\
         run = [\"scp\", \"-q\", \"-F\", \"{{ssh_config}}\", \"{file}\", \"far:{file}.inside\"]\nbytes = \"20MB\"\n\
         [trial]\nrepeats = {repeats}\n"
    );
    let bound = "0.9 to 1.1";
    let trials = study_of(&folder, &study)?;
    if let Some(why) = uncertified(&trials)? {
        outcome.undecided("scp_inside_to_outside", bound, why);
        return Ok(());
    }
    let valid = trials.iter().filter(|entry| !entry.trial.validity.is_void());
    let inside: Vec<f64> = valid.filter_map(|entry| entry.trial.quantities.get("wall_s").copied()).collect();
    let labs = Labs::new()?;
    let (lab, _) = labs.up(&labs.file("scp.toml", &format!("title = \"scp\"\n{hosts}{server}"))?)?;
    let outside = outside(&labs, &lab, &file, repeats);
    labs.down(lab)?;
    let ratio = median(&inside) / median(&outside?);
    outcome.time().figure(
        "scp_inside_to_outside",
        format!("{ratio:.3}"),
        bound,
        (0.9..=1.1).contains(&ratio),
    );
    Ok(())
}

/// The seconds that `scp` took in a shell of the host, measured by the shell's clock.
fn outside(labs: &Labs, lab: &Process, file: &str, repeats: u32) -> Result<Vec<f64>> {
    let told = lab.stdout();
    let folder = told.lines().find_map(|line| line.strip_prefix("files and logs in "));
    let folder = folder.with_context(|| format!("where are its files? {}", lab.stdout()))?;
    let copy = format!("scp -q -F {folder}/ssh_config {file} far:{file}.outside");
    let script = labs
        .file("copy.sh", &format!("s=$(date +%s%N); {copy} || exit 1; e=$(date +%s%N); echo $((e - s))\n"))?;
    let mut times = Vec::new();
    let begun = Instant::now();
    for _ in 0..repeats {
        ensure!(begun.elapsed() < seconds(120), "scp takes too long");
        let ns = labs.done(&format!("lab shell client -- sh {script}"))?;
        times.push(ns.trim().parse::<f64>().with_context(|| format!("no time: {ns}"))? / 1e9);
    }
    Ok(times)
}

/// Runs a study and returns its trials. None may fail, but they may be void.
fn study_of(folder: &TemporaryFolder, text: &str) -> Result<Vec<TrialEntry>> {
    let (file, out) = (folder.file("study.toml"), folder.file("result"));
    fs::write(&file, text)?;
    let output = Proofload::new(&format!("run {file} --out {out} -q"))?.run()?;
    ensure!([Some(0), Some(3)].contains(&output.code), "{}", output.described());
    let trials = ResultFolder::open(out.as_ref())?.read()?.trials;
    ensure!(!trials.is_empty(), "no trial: {}", output.described());
    for entry in &trials {
        let failure = entry.trial.command().and_then(record::CommandTrial::failure);
        ensure!(failure.is_none(), "trial {}: {failure:?}", entry.index);
    }
    Ok(trials)
}
