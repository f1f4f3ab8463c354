//! Copies over 1 Gbit/s and a round trip of 228 ms: one large file, many small ones, and a lossy link.

use std::{fs, path::Path};

use anyhow::Result;

use super::{Bar, By, Outcome, Runs, Scale, is_wanted};
use crate::copying::{Copied, CopyPath, Way};

pub(super) const BAR: Bar = Bar {
    name: "copy-ocean",
    what: "1 Gbit/s and 228 ms, Debian's sshd: 4 GB up and down (not the first copy to this machine) at ≥ 95 % of TCP's goodput \
           and within bytes ÷ (0.97 × goodput) + 5 s, \
           verified ≥ 0.9 of that, ≥ 85 % with Debian's socket buffers, 500 MB ≥ 10 × scp; with 0.01 % loss ≥ 0.9 of iperf3 -P; \
           10,000 × 4 KiB in ≤ 60 s, 680 × 5 MB within bytes ÷ (0.95 × goodput) + 6 s",
    full_seconds: 1_800,
    decided_by: By::Times,
    run,
};

const TUNED: &str = "tcp_rmem = \"64MB\", tcp_wmem = \"64MB\"";
const DELAY: &str = "delay = \"114ms\"";
const FILE_BYTES: u64 = 4_000_000_000;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if scale == Scale::Sample {
        let path = CopyPath::up(Some(100), TUNED, "delay = \"50ms\"", 1 << 30)?;
        path.make("file", 100_000_000)?;
        let copied = path.copy("", Way::Up, "file", "copy")?;
        // Other tests run beside a sample, so that a login takes twice as long, for example.
        large(&mut outcome, "up", &copied, &path, (100_000_000, 0.9, 10.0));
        small_files(&mut outcome, &path, 200, 10.0)?;
        path.down()?;
        return Ok(outcome);
    }
    if is_wanted("clean") {
        clean(&mut outcome)?;
    }
    if ["half", "small", "set"].into_iter().any(is_wanted) {
        sets(&mut outcome)?;
    }
    // This case needs 34 GB of disk, so it only runs if the user names it.
    if std::env::var("PROVE_CASES").is_ok() && is_wanted("reference") {
        let path = CopyPath::up(Some(1_000), TUNED, DELAY, 34_000_000_000)?;
        published(&mut outcome, &path, 50_000_000)?;
        path.down()?;
    }
    if is_wanted("untuned") {
        untuned(&mut outcome)?;
    }
    for congestion in ["cubic", "bbr"].into_iter().filter(|congestion| is_wanted(congestion)) {
        lossy(&mut outcome, congestion)?;
    }
    Ok(outcome)
}

/// The figures of a copy of one large file. Its share of TCP's goodput must be at least `least`, and it may take `more_s` seconds longer
/// than its bytes alone.
fn large(
    outcome: &mut Outcome,
    name: &str,
    copied: &Copied,
    path: &CopyPath,
    (bytes, least, more_s): (u64, f64, f64),
) {
    let steady = copied.steady(path.goodput);
    let most_s = bytes as f64 / (0.97 * path.goodput) + more_s;
    let reached = steady.median >= least;
    let bound = format!(">= {least} of TCP's goodput");
    outcome.time().figure(&format!("{name}_share"), format!("{:.3}", steady.median), bound, reached);
    let bound = format!("<= {most_s:.1} s");
    let reached = copied.wall_s <= most_s;
    outcome.time().figure(&format!("{name}_wall"), format!("{:.1}s", copied.wall_s), bound, reached);
    outcome.note(format!(
        "{name}: login {:.1} s, ramp until {} s, {} steady seconds, {:.3} of them within 10 %, the slowest {:.2} of the median; {:.1} \
         processor seconds; held back by {}",
        copied.number("login_s"),
        steady.ramp_s,
        steady.seconds,
        steady.even,
        steady.least,
        copied.cpu_s,
        copied.report["held_back"]
    ));
}

fn clean(outcome: &mut Outcome) -> Result<()> {
    let path = CopyPath::up(Some(1_000), TUNED, DELAY, 3 * FILE_BYTES)?;
    path.make("file", FILE_BYTES)?;
    let first = path.copy("--no-verify", Way::Up, "file", "copy")?;
    outcome.note(format!("the first copy to this machine: {:.1} s up", first.wall_s));
    for (way, name) in [(Way::Up, "up"), (Way::Down, "down")] {
        let bare = path.copy("--no-verify", way, "file", "copy")?;
        large(outcome, name, &bare, &path, (FILE_BYTES, 0.95, 5.0));
        let steady = bare.steady(path.goodput);
        let is_even = steady.even >= 0.95 && steady.least >= 0.5;
        let value = format!("{:.3} {:.2}", steady.even, steady.least);
        let bound = ">= 0.95 of the seconds within 10 % of the median, none below half";
        outcome.time().figure(&format!("{name}_even"), value, bound, is_even);
        let verified = path.copy("", way, "file", "copy")?;
        let ratio = bare.wall_s / verified.wall_s;
        outcome.time().figure(
            &format!("{name}_verified_ratio"),
            format!("{ratio:.3}"),
            ">= 0.9 of the rate without",
            ratio >= 0.9,
        );
    }
    path.down()
}

/// Copies half a gigabyte, many small files, and the files of the published test at a tenth of their size.
fn sets(outcome: &mut Outcome) -> Result<()> {
    let path = CopyPath::up(Some(1_000), TUNED, DELAY, 3 * FILE_BYTES)?;
    if is_wanted("half") {
        path.make("half", 500_000_000)?;
        let ours = path.copy("", Way::Up, "half", "copy")?.wall_s;
        let scp = path.scp("", Way::Up, "half", "copy")?.wall_s;
        let bound = format!(">= 10 times scp; {ours:.1} s and {scp:.1} s for 500 MB");
        outcome.time().figure("half_gb_ratio", format!("{:.1}", scp / ours), bound, scp / ours >= 10.0);
    }
    if is_wanted("small") {
        small_files(outcome, &path, 10_000, 60.0)?;
    }
    if is_wanted("set") {
        published(outcome, &path, 5_000_000)?;
    }
    path.down()
}

/// Copies the 680 files of the published test, each with this many bytes.
fn published(outcome: &mut Outcome, path: &CopyPath, bytes: u64) -> Result<()> {
    let count = 680;
    let first = path.make("set/0", bytes)?;
    for number in 1..count {
        // Hard links save the disk space of the other files.
        let name = Path::new(&first).with_file_name(number.to_string());
        fs::hard_link(&first, name)?;
    }
    let most_s = (count * bytes) as f64 / (0.95 * path.goodput) + 6.0;
    let copied = path.copy("", Way::Up, "set", "copy")?;
    let name = format!("680_of_{}_mb", bytes / 1_000_000);
    let rates = &copied.report["rate_bytes_per_s"];
    outcome.note(format!("{name}: bytes per second in each second: {rates}"));
    let (took_s, bound) = (copied.wall_s, format!("<= {most_s:.1} s"));
    outcome.time().figure(&name, format!("{took_s:.1}s"), bound, took_s <= most_s);
    Ok(())
}

fn small_files(outcome: &mut Outcome, path: &CopyPath, count: u32, most_s: f64) -> Result<()> {
    for number in 0..count {
        path.make(&format!("small/{number}"), 4_096)?;
    }
    let name = format!("{count}_of_4_kib");
    for (kind, options) in [("without_fsync", "--no-fsync"), ("default", "")] {
        let took_s = path.copy(options, Way::Up, "small", "copy")?.wall_s;
        if kind == "default" {
            outcome.note(format!("{name} verified and with fsync: {took_s:.1} s"));
        } else {
            let bound = format!("<= {most_s} s");
            outcome.time().figure(&name, format!("{took_s:.1}s"), bound, took_s <= most_s);
        }
    }
    Ok(())
}

/// Copies with Debian's default buffers.
fn untuned(outcome: &mut Outcome) -> Result<()> {
    let bytes = FILE_BYTES / 2;
    let path = CopyPath::up(Some(1_000), "", DELAY, 3 * bytes)?;
    path.make("file", bytes)?;
    for (way, name) in [(Way::Up, "untuned_up_share"), (Way::Down, "untuned_down_share")] {
        let share = path.copy("--no-verify", way, "file", "copy")?.steady(path.goodput).median;
        outcome.time().figure(name, format!("{share:.3}"), ">= 0.85 of TCP's goodput", share >= 0.85);
    }
    path.down()
}

fn lossy(outcome: &mut Outcome, congestion: &str) -> Result<()> {
    let bytes = 1_500_000_000;
    let host = format!("{TUNED}, congestion = \"{congestion}\"");
    let path = CopyPath::up(Some(1_000), &host, &format!("{DELAY}\nloss = \"0.01%\""), 3 * bytes)?;
    path.make("file", bytes)?;
    let (mut ours, mut theirs) = (Runs::default(), Runs::default());
    for _ in 0..5 {
        let copied = path.copy("--no-verify", Way::Up, "file", "copy")?;
        let rates = copied.report["rate_bytes_per_s"].as_array().cloned().unwrap_or_default();
        let rates: Vec<f64> = rates.iter().filter_map(serde_json::Value::as_f64).collect();
        // Leave out the first 8 s, as iperf3 does, and measure both for the same time: the effect of the start on the windows fades over a
        // minute.
        let steady = rates.get(8..rates.len().saturating_sub(1)).unwrap_or_default();
        ours.push(steady.iter().sum::<f64>() / steady.len().max(1) as f64);
        theirs.push(path.iperf3(copied.number("connections") as u64, steady.len() as u32)?);
    }
    path.down()?;
    let ratio = ours.median() / theirs.median();
    let mbit = |runs: &Runs| runs.median() * 8.0 / 1e6;
    let bound =
        format!(">= 0.9 of iperf3 -P; {:.0} and {:.0} Mbit/s, medians of 5", mbit(&ours), mbit(&theirs));
    outcome.time().figure(&format!("loss_{congestion}_ratio"), format!("{ratio:.3}"), bound, ratio >= 0.9);
    Ok(())
}
