//! Loads that several machines make together: what each sends and counts, and what is left on it.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use proofload_tests::held_target::Received;

use super::*;

/// What a machine is to make: its name, its share of the load (0 to 1), its requests.
type Share<'a> = (&'a str, f64, u64);

#[test]
fn inventory_as_root_machines_make_a_load_together() -> Result<()> {
    try_all(&[
        ("shares and copies", each_machine_makes_its_share_and_is_sent_the_program_once),
        ("templates", numbers_are_those_of_one_machine),
        ("clean", copies_are_removed),
    ])
}

/// Checks a trial in which every request was answered against what the target received.
fn is_shared(output: &Output, shares: &[Share<'_>], received: &[Received]) -> Result<()> {
    let trial = output.counted(0)?;
    is_their_sum(trial).with_context(|| output.described())?;
    ensure!(trial.machines.len() == shares.len(), "{:?}", names(trial));
    for (machine, (name, share_ratio, requests)) in trial.machines.iter().zip(shares) {
        let counts = &machine.counts;
        let counted = [counts.scheduled, counts.sent, counts.completed, machine.response_time.count()];
        ensure!(machine.name == *name && counted == [*requests; 4], "{name}: {counted:?} {counts:?}");
        ensure!(counts.failed == 0 && machine.lost.is_none(), "{name}: {counts:?} {:?}", machine.lost);
        let share = machine.share_ratio;
        ensure!(
            (share - share_ratio).abs() < 1e-9,
            "{name} has {share} of the load in place of {share_ratio}"
        );
        ensure!(machine.processes >= 1, "{name} has no process");
        ensure!(machine.round_trip_s > 0.0 && machine.clock_bound_s > 0.0, "{name}: nothing was compared");
        let own = received.iter().filter(|request| request.from == address(name)).count() as u64;
        ensure!(own == *requests, "{own} of {requests} requests of {name} came from its address");
    }
    let all: u64 = shares.iter().map(|(_, _, requests)| requests).sum();
    // This also holds for the controller's host: it sends nothing.
    ensure!(received.len() as u64 == all, "{} of {all} requests were received", received.len());
    ensure!(trial.counts.completed == all && trial.counts.failed == 0, "{}", output.described());
    Ok(())
}

/// What is said of a machine before the load.
fn told<'a>(output: &'a Output, machine: &str) -> Result<&'a str> {
    let begins = format!("proofload: {machine}: ");
    let line = output.stderr.lines().find_map(|line| line.strip_prefix(&begins));
    line.with_context(|| format!("no line of {machine}: {}", output.described()))
}

/// What changes when a machine's copy is written again: its inode, and when it was written.
fn stamps(fleet: &Fleet) -> Result<Vec<(u64, i64, i64)>> {
    let stamp = |machine: &str| -> Result<(u64, i64, i64)> {
        let known = fs::metadata(fleet.copy(machine)?)?;
        Ok((known.ino(), known.mtime(), known.mtime_nsec()))
    };
    ALL_MACHINES.into_iter().map(stamp).collect()
}

fn each_machine_makes_its_share_and_is_sent_the_program_once(fleet: &Fleet) -> Result<()> {
    let first = fleet.run(&format!("-n 3000 -u 12 --share c1=2 {}", on(&ALL_MACHINES)))?;
    let shares = [("c1", 0.5, 1_500), ("c2", 0.25, 750), ("c3", 0.25, 750)];
    is_shared(&first, &shares, &fleet.target.received())?;
    for (machine, share_ratio, _) in shares {
        let line = told(&first, machine)?;
        let share = format!("{:.0} % of the load", 100.0 * share_ratio);
        for words in
            [share.as_str(), " processors", "round trip ", "clock known to ±", "; copied ", " MiB to it"]
        {
            ensure!(line.contains(words), "'{words}' is not in '{line}'");
        }
        let copy = fleet.copy(machine)?;
        ensure!(fs::read(&copy)? == fs::read(binary()?)?, "{machine} has another program");
        let mode = fs::metadata(&copy)?.permissions().mode() & 0o7777;
        ensure!(mode == 0o700, "{machine}: the mode of the copy is {mode:o}");
        // Nothing else lies there, such as the beginning of a copy.
        let folder = copy.parent().context("a copy has a folder")?;
        let folders = [folder.parent().context("and that has one")?, folder];
        let entries = folders.map(|folder| fs::read_dir(folder).map(Iterator::count));
        ensure!(matches!(entries, [Ok(1), Ok(1)]), "{machine}: {entries:?}");
    }
    fleet.is_quiet()?;

    // Longer than a lease: it is extended while the load goes on.
    let before = stamps(fleet)?;
    let second = fleet.run(&format!("-R 150 -n 1200 -c 12 {}", on(&ALL_MACHINES)))?;
    let third = 1.0 / 3.0;
    let shares = ALL_MACHINES.map(|machine| (machine, third, 400));
    is_shared(&second, &shares, &fleet.target.received())?;
    ensure!(!second.stderr.contains("copied"), "{}", second.described());
    ensure!(stamps(fleet)? == before, "the copies were written again");
    Ok(())
}

fn numbers_are_those_of_one_machine(fleet: &Fleet) -> Result<()> {
    let mut known: Option<BTreeSet<String>> = None;
    // First without other machines.
    for machines in [&ALL_MACHINES[..0], &["c2"], &ALL_MACHINES] {
        let option = if machines.is_empty() { String::new() } else { on(machines) };
        let load = fleet.http("{{counter}}", &format!("-n 300 -u 6 -q {option}"))?;
        let output = fleet.start(&load, ALL)?.finish()?;
        let trial = output.counted(0)?;
        ensure!(names(trial) == machines, "{:?} in place of {machines:?}", names(trial));
        let received = fleet.target.received();
        let senders: BTreeSet<IpAddr> = received.iter().map(|request| request.from).collect();
        ensure!(senders.len() == machines.len().max(1), "{machines:?}: {senders:?}");
        let paths: BTreeSet<String> = received.iter().map(|request| request.path().to_owned()).collect();
        ensure!(received.len() == 300 && paths.len() == 300, "{machines:?}: {} paths", paths.len());
        let known = known.get_or_insert_with(|| paths.clone());
        let others: Vec<_> = paths.symmetric_difference(known).collect();
        ensure!(others.is_empty(), "{machines:?} and this machine alone differ in {others:?}");
    }
    Ok(())
}

fn copies_are_removed(fleet: &Fleet) -> Result<()> {
    let clean = fleet.control(&format!("clean {}", on(&ALL_MACHINES)))?;
    let first = clean.run(PATIENCE)?;
    ensure!(first.code == Some(0), "{first:?}");
    for machine in ALL_MACHINES {
        let line = first.stdout.lines().find(|line| line.starts_with(&format!("{machine}: ")));
        ensure!(line.is_some_and(|line| line.contains("removed")), "{machine}: {first:?}");
        let copy = fleet.copy(machine)?;
        ensure!(!copy.exists(), "{} is left", copy.display());
        let folder = PathBuf::from(fleet.labs.path(machine)).join(".cache/proofload");
        let left = fs::read_dir(&folder).map_or(0, Iterator::count);
        ensure!(left == 0, "{left} entries are left in {}", folder.display());
    }
    let second = clean.run(PATIENCE)?;
    ensure!(second.code == Some(0), "{second:?}");
    for machine in ALL_MACHINES {
        let line = second.stdout.lines().find(|line| line.starts_with(&format!("{machine}: ")));
        ensure!(line.is_some_and(|line| line.contains("nothing to remove")), "{machine}: {second:?}");
    }
    Ok(())
}
