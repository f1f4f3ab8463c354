//! After a power cut, everything that was acknowledged as synced is on the disk.
//!
//! Debian's kernel runs the listener on ext4, on a disk with a volatile cache ([`crate::nbd`]), in an emulated machine. The load and its
//! receipts are outside of it. At a random moment the machine is killed, and the disk loses some of the data that it was not told to flush.
//! Then the machine boots again from that disk, the listener recovers, and the files are read out and audited.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use record::{AckLevel, AuditResult};
use testing::{
    PATIENCE,
    http::{exchange, get},
    until,
};

use super::{Bar, By, Outcome, Scale};
use crate::{
    Vm,
    listen::{EventLoad, audit, counted_at},
    nbd::{Cut, ForgetfulDisk},
    nginx::free_address,
    process::Launch,
    random::Random,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "listen-power-cut",
    what: "20 power cuts of a machine whose disk forgets what was not flushed: every event acknowledged as \
           synced is there, no line is torn; and the same disk loses events where nobody flushes",
    full_seconds: 500,
    decided_by: By::Counts,
    run,
};

/// Size of the disk: several times what a load stores.
const DISK_BYTES: u64 = 64 << 20;
/// The cut comes only after this many events, so that there is something to lose.
const ENOUGH: u64 = 100;
/// Shortest and longest time from these events to the cut.
const MOMENTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(2_300));
/// Longest time for a boot with recovery, by the clock of this machine.
const BOOT: Duration = Duration::from_secs(900);

/// The mount options of the disk and the acknowledgement level of the load.
#[derive(Debug, Clone, Copy)]
struct Setting {
    options: &'static str,
    level: AckLevel,
}

/// The setting that the bar is about.
const SYNCED: Setting = Setting { options: "data=ordered", level: AckLevel::Synced };
/// A control: the kernel never tells the disk to flush, so events must be lost. It shows that the disk forgets.
const NEVER_FLUSHED: Setting = Setting { options: "data=ordered,nobarrier", level: AckLevel::Synced };
/// A control: this level does not promise to survive a cut. It shows that the cuts come early enough to lose something.
const WRITTEN: Setting = Setting { options: "data=ordered", level: AckLevel::Written };

fn run(scale: Scale) -> Result<Outcome> {
    let cuts = scale.pick(1, 20);
    let mut random = Random::new(0x706f_7765);
    let mut outcome = Outcome::default();
    let (mut lost, mut torn, mut corrupt, mut duplicated, mut synced) = (0, 0, 0, 0, 0);
    let (mut unflushed, mut forgotten, mut flushes) = (0, 0, 0);
    for _ in 0..cuts {
        let (result, cut) = one_cut(SYNCED, &mut random)?;
        lost += result.lost;
        torn += result.torn;
        corrupt += result.corrupt;
        duplicated += result.duplicated + result.never_sent;
        synced += result.sent.synced;
        unflushed += cut.unflushed_sectors;
        forgotten += cut.forgotten_sectors;
        flushes += cut.flushes;
        result.examples.iter().take(3).for_each(|example| outcome.note(format!("{example:?}")));
    }
    outcome.equal("lost_synced", lost, 0, "acknowledged as synced and not on the disk");
    outcome.equal("torn_lines", torn, 0, "after the listener's recovery");
    outcome.equal("corrupt", corrupt, 0, "events that are not as they were sent");
    outcome.equal("beyond_sent", duplicated, 0, "events or copies that nobody sent");
    let enough = ENOUGH / 2 * cuts;
    outcome.figure(
        "synced",
        synced,
        format!(">= {enough}, so that there was something to lose"),
        synced >= enough,
    );
    if scale == Scale::Full {
        let bound = ">= 1: the disk forgets what was not flushed";
        outcome.figure("forgotten_sectors", forgotten, bound, forgotten > 0);
    }
    outcome.note(format!(
        "{cuts} cuts: of {unflushed} sectors written and not flushed {forgotten} were forgotten, after {flushes} flushes"
    ));
    if scale == Scale::Full {
        for (name, setting) in [("never_flushed", NEVER_FLUSHED), ("written", WRITTEN)] {
            let lost = lost_at_last(setting, &mut random).with_context(|| format!("control {name}"))?;
            let bound = ">= 1: the bar can fail";
            outcome.figure(&format!("lost_{name}"), lost, bound, lost > 0);
        }
    }
    Ok(outcome)
}

/// Cuts the power until something is lost, at most five times.
fn lost_at_last(setting: Setting, random: &mut Random) -> Result<u64> {
    for _ in 0..5 {
        // Without flushes, the cut may damage the file system beyond repair, which counts as a loss.
        match one_cut(setting, random) {
            Ok((result, _)) if result.lost == 0 => {}
            Ok((result, _)) => return Ok(result.lost),
            Err(error) if setting.options.contains("nobarrier") && error.is::<Unmountable>() => return Ok(1),
            Err(error) => return Err(error),
        }
    }
    Ok(0)
}

/// After the cut, the file system cannot be mounted or used.
#[derive(Debug)]
struct Unmountable(String);

impl std::fmt::Display for Unmountable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the file system did not survive the cut: {}", self.0)
    }
}

impl std::error::Error for Unmountable {}

fn one_cut(setting: Setting, random: &mut Random) -> Result<(AuditResult, Cut)> {
    let folder = TemporaryFolder::new()?;
    let (image, receipts) = (folder.path().join("image"), folder.path().join("receipts"));
    make_file_system(&image)?;
    let disk = ForgetfulDisk::of_image(&image)?;
    let served = disk.serve(&folder.path().join("disk"))?;

    let address = free_address()?;
    let vm = Vm::default().proofload()?.disk(served.socket()).forward(address, 9880);
    let mut machine = vm.start(&script(setting, "cut"))?;
    let begun = Instant::now();
    while !is_healthy(address) {
        if begun.elapsed() > BOOT || !machine.is_running() {
            bail!("the listener in the machine does not answer; {}", machine.said());
        }
        thread::sleep(Duration::from_millis(50));
    }
    let url = format!("http://{address}/cut");
    let load = EventLoad::start(&url, &receipts, setting.level, "-u 16 -d 600s --timeout 60s --threads 1")?;
    until("some events are synced", || {
        counted_at(address, "events_total", setting.level.name()).is_some_and(|count| count >= ENOUGH)
    });
    thread::sleep(random.between(MOMENTS.0, MOMENTS.1));
    // Cut the disk first. A flush that it has not answered must not count.
    let cut = disk.cut(random.any());
    machine.kill()?;
    load.interrupt()?;
    drop(served);

    let served = disk.serve(&folder.path().join("disk"))?;
    let vm = Vm::default().proofload()?.disk(served.socket()).forward(free_address()?, 9880);
    let ran = vm.start(&script(setting, "recover"))?.finish(BOOT)?;
    // Even a file system that can be mounted may have lost the blocks of its folders.
    let is_broken = ran.output.contains("mount: mounting") || ran.console.contains("EXT4-fs error");
    if ran.code != 0 && is_broken {
        return Err(Unmountable(ran.output).into());
    }
    ran.succeeded()?;
    drop(served);
    disk.write_image(&image)?;
    let files = read_out(&image, folder.path())?;
    Ok((audit(&[&receipts], &files, setting.level)?, cut))
}

fn script(setting: Setting, phase: &str) -> String {
    let Setting { options, level } = setting;
    format!("OPTIONS={options} LEVEL={level} PHASE={phase}\n{}", include_str!("listen_power_cut.sh"))
}

fn is_healthy(address: std::net::SocketAddr) -> bool {
    exchange(address, &get("/health")).is_ok_and(|answer| answer.status == 200)
}

fn make_file_system(image: &Path) -> Result<()> {
    fs::File::create(image)?.set_len(DISK_BYTES)?;
    let program = crate::machine::program("mkfs.ext4")
        .context("mkfs.ext4 is not installed: run scripts/setup.sh test, or install e2fsprogs")?;
    let launch = Launch::new(program.display().to_string()).words("-q -F -b 4096");
    let finished = launch.arg(image.display().to_string()).run(PATIENCE)?;
    ensure!(finished.code == Some(0), "mkfs.ext4: {}", finished.stderr);
    Ok(())
}

/// Copies the folder of events out of an image, without mounting it.
fn read_out(image: &Path, to: &Path) -> Result<std::path::PathBuf> {
    let program = crate::machine::program("debugfs")
        .context("debugfs is not installed: run scripts/setup.sh test, or install e2fsprogs")?;
    let order = format!("rdump /events {}", to.display());
    let launch = Launch::new(program.display().to_string()).args(["-R", &order]);
    let finished = launch.arg(image.display().to_string()).run(PATIENCE)?;
    let files = to.join("events");
    ensure!(files.is_dir(), "debugfs did not read the events out: {}", finished.stderr);
    Ok(files)
}
