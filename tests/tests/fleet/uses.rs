//! What names machines, what else runs on them, and what they are told without writing it down.

use std::path::Path;

use proofload_tests::faulty_disk::files_below;
use record::ResultFolder;

use super::*;

/// The value of a header field. No other program says it.
const SECRET: &str = "sesame-4711-for-the-fleet";

#[test]
fn inventory_as_root_machines_are_named_and_used_in_every_way() -> Result<()> {
    try_all(&[
        ("inventories", an_inventory_names_machines),
        ("logins", a_login_names_a_machine),
        ("refused logins", machines_that_refuse_are_named_together),
        ("secrets", a_secret_is_written_nowhere),
        ("search", a_search_runs_on_machines),
        ("other programs", lines_of_other_programs_run_on_machines),
        ("folder", the_folder_of_the_copy_can_be_chosen),
    ])
}

/// Runs 40 requests with this option, and returns the machines that made them. Each must have sent its own.
fn used(fleet: &Fleet, on: &str) -> Result<Vec<String>> {
    let output = fleet.run(&format!("-n 40 -u 4 {on}"))?;
    let trial = output.counted(0)?;
    is_their_sum(trial).with_context(|| output.described())?;
    ensure!(trial.counts.completed == 40, "{}", output.described());
    for name in names(trial) {
        let line = format!("proofload: {name}: ");
        ensure!(output.stderr.contains(&line), "'{line}' is not said: {}", output.described());
    }
    Ok(names(trial).into_iter().map(str::to_owned).collect())
}

fn an_inventory_names_machines(fleet: &Fleet) -> Result<()> {
    for (file, text) in INVENTORIES {
        let path = fleet.labs.file(file, text)?;
        for (pattern, named) in [(":clients", &BOTH[..]), (":every", &ALL_MACHINES)] {
            let mut used = used(fleet, &format!("--on {path}{pattern}"))?;
            used.sort();
            ensure!(used == named, "{file}{pattern}: {used:?}");
            for machine in ALL_MACHINES {
                let sent = fleet.target.count(address(machine));
                ensure!((sent > 0) == named.contains(&machine), "{file}{pattern}: {machine} sent {sent}");
            }
        }
        let both = used(fleet, &format!("--on {path}:c3,c1=root@c1"))?;
        ensure!(both == ["c3", "c1"], "{both:?}");
    }
    Ok(())
}

fn a_login_names_a_machine(fleet: &Fleet) -> Result<()> {
    // The port is that of the option, and for c1 of the user's ssh configuration.
    let used = used(fleet, "--on root@c1,root@c2:2222")?;
    let [first, second] = &used[..] else { anyhow::bail!("{used:?}") };
    ensure!(first.contains("c1") && second.contains("c2"), "{used:?}");
    ensure!(fleet.counts(BOTH) == [20, 20], "{:?}", fleet.counts(BOTH));
    Ok(())
}

fn machines_that_refuse_are_named_together(fleet: &Fleet) -> Result<()> {
    // The user nobody cannot read the authorized keys, and no sshd runs on the target's host.
    let web = address("web");
    let output =
        fleet.run(&format!("-n 40 -u 4 --on c1=root@c1,stranger=nobody@c1,deaf=root@{web},c3=root@c3"))?;
    ensure!(output.code == Some(2) && output.stdout.is_empty(), "{}", output.described());
    for (name, login) in [("stranger", "nobody@c1".to_owned()), ("deaf", format!("root@{web}"))] {
        let advice = format!("`ssh {login} true`");
        let said = output.stderr.contains(name) && output.stderr.contains(&advice);
        ensure!(said, "{name} or {advice} is not named: {}", output.described());
    }
    ensure!(!output.stderr.contains("root@c3"), "c3 can be logged in to: {}", output.described());
    ensure!(fleet.target.received().is_empty(), "{:?}", fleet.target.received());
    Ok(())
}

/// Where a secret is found on a machine: in a process, or in a file of its home.
fn found_on(fleet: &Fleet, machine: &str) -> Result<Vec<String>> {
    let has_secret = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(SECRET);
    let mut found = Vec::new();
    for pid in fleet.processes(&[machine]).into_keys() {
        // A process may have ended by now.
        let of_process = ["cmdline", "environ"].map(|name| format!("/proc/{pid}/{name}"));
        found.extend(of_process.into_iter().filter(|path| has_secret(&fs::read(path).unwrap_or_default())));
    }
    for path in files_below(Path::new(&fleet.labs.path(machine)))? {
        if has_secret(&fs::read(&path)?) {
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}

fn a_secret_is_written_nowhere(fleet: &Fleet) -> Result<()> {
    for value in ["${FLEET_TOKEN}", SECRET] {
        let words = format!("-u 4 -n 200 {}", on(&BOTH));
        let launch = fleet.http("", &words)?.arg("-H").arg(format!("Authorization: Bearer {value}"));
        let mut load = fleet.start(&launch.env("FLEET_TOKEN", SECRET), 20)?;
        // Both users of each machine wait for answers that are held back.
        load.until("all users wait", || fleet.counts(BOTH) == [22, 22])?;
        for machine in BOTH {
            let found = found_on(fleet, machine)?;
            ensure!(!fleet.workers(machine).is_empty(), "{machine} has no worker");
            ensure!(found.is_empty(), "{value}: {found:?} has the secret");
        }
        fleet.target.answer_all();
        let output = load.finish()?;
        ensure!(output.counted(0)?.counts.completed == 200, "{}", output.described());
        let wanted = format!("Bearer {SECRET}");
        let received = fleet.target.received();
        let with_secret =
            received.iter().filter(|request| request.field("authorization") == Some(&*wanted)).count();
        ensure!(with_secret == 200, "{with_secret} of {} requests have the secret", received.len());
        ensure!(!(output.stdout.clone() + &output.stderr).contains(SECRET), "it is printed");
        for machine in BOTH {
            let found = found_on(fleet, machine)?;
            ensure!(found.is_empty(), "{value}: afterwards, {found:?} has the secret");
        }
    }
    Ok(())
}

fn a_search_runs_on_machines(fleet: &Fleet) -> Result<()> {
    let out = fleet.labs.path("search");
    let words = format!(
        "limit rate {CAPACITY_URL} --p99 100ms --min 50 --max 2k --trial 500ms --repeats 1 --width 50% --drain 5m \
         --budget 20s -q --out {out} {}",
        on(&BOTH)
    );
    let output = fleet.start(&fleet.control(&words)?, ALL)?.finish()?;
    ensure!(matches!(output.code, Some(0 | 1 | 3)), "{}", output.described());
    if output.code == Some(3) {
        testing::accepted_void(&format!("{}: nothing could be concluded", output.line));
    }
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    ensure!(!trials.is_empty(), "{}", output.described());
    let mut completed = 0;
    for entry in &trials {
        let http = entry.trial.http().context("no requests")?;
        ensure!(names(http) == BOTH, "trial {}: {:?}", entry.index, names(http));
        is_their_sum(http).with_context(|| format!("trial {}", entry.index))?;
        completed += http.counts.completed;
    }
    ensure!(completed > 0, "{} trials without an answer: {}", trials.len(), output.described());
    Ok(())
}

fn lines_of_other_programs_run_on_machines(fleet: &Fleet) -> Result<()> {
    let (on, url) = (on(&BOTH), url(""));
    let wrk = fleet.control(&format!("wrk -t1 -c4 -d1s {on} {url}"))?;
    let wrk = fleet.start(&wrk, ALL)?.finish()?;
    for word in ["Running 1s test @ ", "  2 threads and 4 connections", "Requests/sec:", "Transfer/sec:"] {
        ensure!(wrk.stdout.contains(word), "no '{word}': {}", wrk.described());
    }
    fleet.is_quiet()?;
    let sent = fleet.counts(["c1", "c2", "control"]);
    ensure!(sent[0] > 0 && sent[1] > 0 && sent[2] == 0, "{sent:?}: {}", wrk.described());

    let ab = fleet.control(&format!("ab -n 100 -c 4 -s 300 {on} {url}"))?;
    let ab = fleet.start(&ab, ALL)?.finish()?;
    for word in ["Concurrency Level:      4", "Complete requests:      100", "Requests per second:"] {
        ensure!(ab.stdout.contains(word), "no '{word}': {}", ab.described());
    }
    let sent = fleet.counts(["c1", "c2", "control"]);
    ensure!(sent == [50, 50, 0], "{sent:?}: {}", ab.described());
    Ok(())
}

fn the_folder_of_the_copy_can_be_chosen(fleet: &Fleet) -> Result<()> {
    let folder = PathBuf::from(fleet.labs.path("chosen"));
    let option = format!("--remote-path {} {}", folder.display(), on(&["c1"]));
    let copied = fleet.run(&format!("-n 40 -u 4 {option}"))?;
    ensure!(copied.counted(0)?.counts.completed == 40, "{}", copied.described());
    ensure!(copied.stderr.contains("; copied "), "{}", copied.described());
    let copy = folder.join(checksum()?).join("proofload");
    ensure!(fs::read(&copy)? == fs::read(binary()?)?, "{} is another program", copy.display());
    let again = fleet.run(&format!("-n 40 -u 4 {option}"))?;
    ensure!(!again.stderr.contains("copied"), "{}", again.described());
    let clean = fleet.control(&format!("clean {option}"))?.run(PATIENCE)?;
    ensure!(clean.code == Some(0) && !copy.exists(), "{clean:?}");
    // The usual place has a copy of its own, and keeps it.
    ensure!(fleet.copy("c1")?.exists(), "the copy in another folder is gone");
    Ok(())
}
