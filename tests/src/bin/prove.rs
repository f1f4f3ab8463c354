//! Proves the bars: `prove` lists them, `prove NAME...` or `prove all` runs them, and `prove samples` runs a short sample of each bar that
//! depends on time.

use std::{
    process::ExitCode,
    sync::atomic::Ordering,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use clap::Parser;
use proofload_tests::{
    Bar, Scale,
    bars::{ALL, By, Checked, SHOWS_NOTES, Verdict},
    machine::{description, raise_descriptor_limit},
};

/// Runs the bars that proofload must clear, or lists them.
#[derive(Parser)]
struct Arguments {
    /// Names of bars, `all`, or `samples`: a little of each bar that time can turn.
    names: Vec<String>,
    /// Run only a sample of each.
    #[arg(long)]
    sample: bool,
    /// Begin no bar after so many seconds. The first one is another one each day; those that were left out are named.
    #[arg(long)]
    seconds: Option<u64>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.names.is_empty() {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    let mut bars = Vec::new();
    let is_report = arguments.names == ["samples"];
    for name in &arguments.names {
        match Bar::named(name) {
            Some(bar) => bars.push(bar),
            None if name == "all" => bars.extend(ALL),
            None if is_report => bars.extend(ALL.iter().filter(|bar| bar.decided_by != By::Counts)),
            None => {
                eprintln!("there is no bar '{name}'; `prove` without arguments lists them");
                return Ok(ExitCode::from(2));
            }
        }
    }
    let budget = arguments.seconds.map(Duration::from_secs);
    if budget.is_some() && !bars.is_empty() {
        let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
        // A stride of a third lets consecutive days start with bars that are far apart.
        let first = days * (bars.len() as u64 / 3 + 1) % bars.len() as u64;
        bars.rotate_left(first as usize);
    }
    let limit = raise_descriptor_limit();
    println!("{}, open files {limit}", description());
    let scale = if arguments.sample || is_report { Scale::Sample } else { Scale::Full };
    SHOWS_NOTES.store(scale == Scale::Full, Ordering::Relaxed);
    // Measure the noise before the bars themselves cause load.
    let noise = kernel::noise::look(Duration::from_secs(1), &[])?;
    println!("this machine: {noise}");
    let first_began = Instant::now();
    let mut checked: Vec<(&Bar, f64, Checked)> = Vec::new();
    let mut left_out: Vec<&str> = Vec::new();
    for bar in bars {
        if budget.is_some_and(|budget| first_began.elapsed() > budget) {
            left_out.push(bar.name);
            continue;
        }
        let begun = Instant::now();
        let outcome = bar.check(scale);
        checked.push((bar, begun.elapsed().as_secs_f64(), outcome));
    }
    if scale == Scale::Sample {
        print!("\nthis machine: {noise}\n{}", table(&checked));
    }
    let worst = checked.iter().map(|(.., checked)| checked.verdict).max().unwrap_or(Verdict::Reached);
    let is_proven = match is_report {
        true => worst < Verdict::Wrong,
        false => worst == Verdict::Reached,
    };
    let names = |wanted: Verdict| -> Vec<&str> {
        checked.iter().filter(|(.., checked)| checked.verdict == wanted).map(|(bar, ..)| bar.name).collect()
    };
    for (verdict, what) in
        [(Verdict::Wrong, "wrong"), (Verdict::Missed, "missed"), (Verdict::Undecided, "not decided")]
    {
        if !names(verdict).is_empty() {
            println!("{what}: {}", names(verdict).join(", "));
        }
    }
    if !left_out.is_empty() {
        println!("not run, for lack of time: {}", left_out.join(", "));
    }
    println!("{} of {} bars reached", names(Verdict::Reached).len(), checked.len() + left_out.len());
    Ok(if is_proven { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line for each bar, with those of its figures that were not reached.
fn table(checked: &[(&Bar, f64, Checked)]) -> String {
    let mut text = format!(
        "{:<24} {:<10} {:>5}  a witness of real-time priority waited for a processor\n",
        "bar", "sample", "s"
    );
    for (bar, took_s, Checked { verdict, missed, gaps }) in checked {
        let verdict = match verdict {
            Verdict::Reached => "reached",
            Verdict::Undecided => "undecided",
            Verdict::Missed => "missed",
            Verdict::Wrong => "WRONG",
        };
        text += &format!("{:<24} {verdict:<10} {took_s:>5.0}  {gaps}\n", bar.name);
        for line in missed.lines() {
            text += &format!("    {}\n", line.trim_start_matches(&format!("bar {} ", bar.name)));
        }
    }
    text
}

fn list() {
    println!(
        "make prove NAME=... runs one of these whole, NAME=all all of them, NAME=samples a little of those marked *, which time can turn:"
    );
    for bar in ALL {
        let mark = if bar.decided_by == By::Counts { ' ' } else { '*' };
        println!("{mark} {:<22} {:>4} s  {}", bar.name, bar.full_seconds, bar.what);
    }
}
