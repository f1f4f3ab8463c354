//! Studies from outside: run, interrupted, taken up again, reported, compared.

mod balancers;
mod folders;
mod leftovers;
mod listeners;
mod saved;

use std::{collections::BTreeSet, fs, net::TcpListener, path::Path};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Output, Proofload, proofload::binary, temporary::TemporaryFolder};
use record::{BoundKind, Ending, ResultFolder, StudyResult, TrialEntry};
use rustix::process::Signal;
use testing::until;

use super::{beside_others, own_address};

/// Two hosts, nginx on one, the load from the other; two levels, two repeats, no search.
const SWEEP: &str = r#"
title = "two levels"
seed = 3
[hosts]
client = {}
web = {}
[[links]]
between = ["client", "web"]
[targets.nginx]
ready_timeout = "10m"
on = "web"
run = "nginx"
file = { path = "/file", size = "5KiB" }
[workload.http]
from = "client"
path = "/file"
requests = 200
think_time = "5ms"
drain = "5m"
timeout = "5m"
[factors]
users = [4, 8]
[trial]
repeats = 2
settle = "2s"
void_attempts = 5
[[goals]]
errors = 0.0
"#;

/// The same with our own target, which is started after these commands of the shell.
fn with_own_target(first: &str) -> Result<String> {
    let target = format!("{first}; exec {} serve --listen 0.0.0.0:80", binary()?.display());
    let own = format!("command = [\"sh\", \"-c\", \"{target}\"]\nport = 80");
    Ok(SWEEP.replace("run = \"nginx\"\nfile = { path = \"/file\", size = \"5KiB\" }", &own))
}

fn run_study(text: &str, words: &str) -> Result<(TemporaryFolder, Output)> {
    let folder = TemporaryFolder::new()?;
    let file = folder.file("study.toml");
    fs::write(&file, text)?;
    let words = format!("run {file} --out {} -q {words}", folder.file("result"));
    let output = Proofload::new(&words)?.run()?;
    Ok((folder, output))
}

fn result(folder: &TemporaryFolder) -> Result<StudyResult> {
    ResultFolder::open(&folder.path().join("result"))?.result()?.context("no result was written")
}

fn trials_of(folder: &TemporaryFolder, output: &Output) -> Result<Vec<TrialEntry>> {
    super::trials_of(&folder.path().join("result"), output)
}

fn report(folder: &TemporaryFolder, words: &str) -> Result<String> {
    let output = Proofload::new(&format!("report {} {words}", folder.file("result")))?.run()?;
    ensure!(output.code == Some(0), "{}", output.described());
    Ok(output.stdout)
}

#[test]
fn a_study_without_goals_that_nothing_answers_fails() -> Result<()> {
    let _shared = beside_others();
    let closed = own_address()?;
    let text = format!(
        "title = \"nobody\"\n[workload.http]\nurl = \"http://{closed}/\"\nusers = 2\nrequests = 10\n[trial]\nvoid_attempts = 5\n"
    );
    let (folder, output) = run_study(&text, "")?;
    ensure!(output.code == Some(2), "{}", output.described());
    ensure!(output.stdout.contains("nothing listens at"), "{}", output.described());
    ensure!(result(&folder)?.ending == Ending::Finished, "the study ran");
    Ok(())
}

#[test]
fn requests_that_were_given_up_are_waited_for_up_to_the_bound_and_it_is_said() -> Result<()> {
    let _shared = beside_others();
    // It accepts nothing, and the kernel answers for it.
    let target = TcpListener::bind("127.0.0.1:0")?;
    for (settle, is_told) in [("400ms", true), ("0s", false)] {
        let text = format!(
            "title = \"mute\"\n[workload.http]\nurl = \"http://{}/\"\nusers = 1\nduration = \"100ms\"\ntimeout = \"100ms\"\n\
             [trial]\nrepeats = 2\nsettle = \"{settle}\"\n[[goals]]\nerrors = 0.0\n",
            target.local_addr()?
        );
        let folder = TemporaryFolder::new()?;
        fs::write(folder.file("study.toml"), text)?;
        let words = format!("run {} --out {}", folder.file("study.toml"), folder.file("result"));
        let output = Proofload::new(&words)?.run()?;
        let line = "waiting 400 ms before trial 2: the target may still work on requests";
        ensure!(output.stderr.contains(line) == is_told, "{}", output.described());
        ensure!(output.stderr.contains("trial 2 of"), "{}", output.described());
    }
    Ok(())
}

#[test]
fn what_processes_wrote_is_kept_without_secrets() -> Result<()> {
    let _shared = beside_others();
    let process = "[[processes]]\non = \"web\"\nname = \"talks\"\nready = \"log:told\"\nready_timeout = \"10m\"\n\
                   command = [\"sh\", \"-c\", \"echo GET /?api_key=sesame-4711; echo told; sleep infinity\"]\n";
    let text = SWEEP.replace("[targets.nginx]", &format!("{process}[targets.nginx]"));
    let (folder, output) = run_study(&text, "--set trial.repeats=1 --set trial.void_attempts=0")?;
    trials_of(&folder, &output)?;
    // Two settings, each with hosts of its own, from trials 1 and 2 or later on.
    let logs: Vec<_> = fs::read_dir(folder.file("result/logs"))?.collect::<Result<_, _>>()?;
    ensure!(logs.len() >= 2, "{logs:?}");
    let kept = fs::read_to_string(folder.file("result/logs/1/web-talks.log"))?;
    ensure!(kept.contains("told") && kept.contains("api_key=") && !kept.contains("sesame"), "{kept}");
    Ok(())
}

#[test]
fn a_study_on_hosts_is_run_reported_and_compared_with_itself() -> Result<()> {
    let _shared = beside_others();
    let (folder, output) = run_study(SWEEP, "")?;
    let result = result(&folder).with_context(|| output.described())?;
    ensure!(result.ending == Ending::Finished, "{:?}", result.warnings);
    let trials = trials_of(&folder, &output)?;
    for entry in &trials {
        let counts = &http(entry).counts;
        ensure!((counts.completed, counts.failed) == (200, 0), "{counts:?}");
        ensure!(counts.received_body_bytes == 200 * 5 * 1024, "{counts:?}");
    }
    let valid: Vec<_> = trials.iter().filter(|entry| !entry.trial.validity.is_void()).collect();
    let has_valid = |setting: usize| valid.iter().any(|entry| entry.setting == setting);
    // Of trials that are all void nothing is known; no goal is missed.
    for outcome in &result.outcomes {
        ensure!(outcome.goals_met == has_valid(outcome.setting).then_some(true), "{outcome:?}");
    }

    let page = fs::read_to_string(folder.path().join("result/report.html"))?;
    ensure!(page.contains("two levels") && page.len() < 1 << 20);
    ensure!(report(&folder, "")?.contains("users=8"));
    ensure!(report(&folder, "--junit -")?.contains("<testsuite"));
    ensure!(report(&folder, "--openmetrics -")?.trim_end().ends_with("# EOF"));
    let json: serde_json::Value = serde_json::from_str(&report(&folder, "--json -")?)?;
    ensure!(json["plan"]["title"] == "two levels", "{json}");
    ensure!(report(&folder, "--github -")?.contains('|'));

    let same = folder.file("result");
    let compared = Proofload::new(&format!("compare {same} {same} --json -"))?.run()?;
    // On a crowded machine all trials may be void, or all of one level. Then nothing may be compared, and that is told.
    let is_refused =
        |compared: &Output| compared.code == Some(2) && compared.stderr.contains("look at the void trials");
    if valid.is_empty() {
        ensure!(is_refused(&compared), "{}", compared.described());
    } else {
        let comparison: serde_json::Value =
            serde_json::from_str(&compared.stdout).with_context(|| compared.described())?;
        ensure!(comparison["verdict"] != "a_better" && comparison["verdict"] != "b_better", "{comparison}");
    }
    let levels = Proofload::new(&format!("compare {same} --factor users=4,8"))?.run()?;
    let told =
        if (0..2).all(has_valid) { levels.stdout.contains("throughput_per_s") } else { is_refused(&levels) };
    ensure!(told, "{}", levels.described());
    let unknown = Proofload::new(&format!("compare {same} --factor users=4,9"))?.run()?;
    ensure!(unknown.code == Some(2) && unknown.stderr.contains("'9'"), "{}", unknown.described());
    Ok(())
}

#[test]
fn a_dry_run_shows_the_plan_and_starts_nothing() -> Result<()> {
    let _shared = beside_others();
    let (folder, output) = run_study(SWEEP, "--dry-run --set users=1,2,3 --set trial.repeats=6")?;
    ensure!(output.code == Some(0) && output.stdout.contains("users"), "{}", output.described());
    ensure!(!folder.path().join("result").exists(), "a dry run wrote a result");
    let (_folder, wrong) = run_study(SWEEP, "--dry-run --set user=1")?;
    ensure!(wrong.code == Some(2) && wrong.stderr.contains("--set"), "{}", wrong.described());
    Ok(())
}

#[test]
fn a_study_out_of_budget_goes_on_with_a_larger_one() -> Result<()> {
    let _shared = beside_others();
    let (folder, cut) = run_study(SWEEP, "--set budget=600ms")?;
    ensure!(result(&folder)?.ending == Ending::OutOfBudget, "{}", cut.described());
    ensure!(cut.stdout.contains("--set budget="), "the way on is not told: {}", cut.described());
    let before = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    // Neither a comment nor the layout of the file makes it another study.
    let file = folder.file("study.toml");
    fs::write(&file, format!("# more time\nbudget = \"1h\"\n{}", SWEEP.replace(" = ", "  =  ")))?;
    let words = format!("run {file} --out {} -q --resume", folder.file("result"));
    let resumed = Proofload::new(&words)?.run()?;
    ensure!(result(&folder)?.ending == Ending::Finished, "{}", resumed.described());
    let trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    ensure!(trials.len() >= 4 && trials[..before.len()] == before[..], "{} trials", trials.len());
    // What decides about trials does.
    fs::write(&file, SWEEP.replace("think_time = \"5ms\"", "think_time = \"6ms\""))?;
    let other = Proofload::new(&words)?.run()?;
    ensure!(other.code == Some(2) && other.stderr.contains("another plan"), "{}", other.described());
    Ok(())
}

#[test]
fn a_terminal_that_goes_away_ends_a_study_as_ctrl_c_does() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let (file, log) = (folder.file("study.toml"), folder.file("targets"));
    let text = with_own_target(&format!("echo $$ >> {log}"))?;
    fs::write(&file, text.replace("requests = 200", "duration = \"1h\""))?;
    let mut running = Proofload::new(&format!("run {file} --out {} -q", folder.file("result")))?.start()?;
    let is_up = || fs::read_to_string(&log).is_ok_and(|text| text.ends_with('\n'));
    until("the target is up", is_up);
    let hosts = children(running.process.pid())?;
    ensure!(!hosts.is_empty(), "no host is up");
    running.process.signal(Signal::HUP);
    let output = running.finish()?;
    ensure!(output.code == Some(130), "{}", output.described());
    ensure!(result(&folder)?.ending == Ending::Interrupted, "{}", output.described());
    until(&format!("nothing is left of {hosts:?}"), || {
        !hosts.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    });
    Ok(())
}

/// The processes below one, its children's children included.
fn children(of: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{of}/task"))? {
        let own = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        for child in own.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            found.push(child);
            found.extend(children(child).unwrap_or_default());
        }
    }
    Ok(found)
}

#[test]
fn an_interrupted_study_says_what_it_knows_and_goes_on() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let [file, starts, go] = ["study.toml", "starts", "go"].map(|name| folder.file(name));
    // Each trial has a target of its own, and the third of these waits until it may start.
    let gate =
        format!("echo >> {starts}; [ $(wc -l < {starts}) -le 2 ] || until [ -e {go} ]; do sleep 0.01; done");
    let text = with_own_target(&gate)?.replace("repeats = 2", "repeats = 4\nfresh = \"trial\"");
    fs::write(&file, &text)?;
    let words = format!("run {file} --out {} -q", folder.file("result"));
    let mut running = Proofload::new(&words)?.start()?;
    let journal = folder.path().join("result/trials.jsonl");
    until("two trials are over", || fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() >= 2));
    running.process.signal(Signal::INT);
    let output = running.finish()?;
    ensure!(output.code == Some(130), "{}", output.described());
    let cut = result(&folder)?;
    ensure!(cut.ending == Ending::Interrupted && cut.trials >= 2, "{:?} after {}", cut.ending, cut.trials);
    ensure!(report(&folder, "")?.to_lowercase().contains("interrupted"), "the report does not say so");

    fs::write(&go, "")?;
    let again = Proofload::new(&words)?.run()?;
    ensure!(again.code == Some(2) && again.stderr.contains("--resume"), "{}", again.described());
    let resumed = Proofload::new(&format!("{words} --resume"))?.run()?;
    let whole = result(&folder).with_context(|| resumed.described())?;
    ensure!(whole.ending == Ending::Finished && whole.resumed == 1, "{:?}", whole.ending);
    // Every setting in every block, and none of them twice: what is void, as on a crowded machine, is tried again.
    let trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    let place = |entry: &TrialEntry| (entry.block, entry.setting);
    let places: BTreeSet<_> = trials.iter().map(place).collect();
    let valid: Vec<_> = trials.iter().filter(|entry| !entry.trial.validity.is_void()).map(place).collect();
    ensure!(places.len() == 8, "{places:?}");
    ensure!(valid.iter().collect::<BTreeSet<_>>().len() == valid.len(), "{valid:?}");
    fs::write(&file, text.replace("repeats = 4", "repeats = 2"))?;
    let changed = Proofload::new(&format!("{words} --resume"))?.run()?;
    ensure!(changed.code == Some(2) && changed.stderr.contains("another plan"), "{}", changed.described());
    Ok(())
}

#[test]
fn a_target_that_dies_is_told_with_the_end_of_its_output() -> Result<()> {
    let _shared = beside_others();
    // On a host of its own, nobody else listens on the port.
    let study = r#"
title = "dies"
[hosts]
host = {}
[targets.broken]
on = "host"
command = ["sh", "-c", "echo out of luck; exit 7"]
port = 8080
ready = "tcp:8080"
ready_timeout = "10m"
[workload.http]
from = "host"
path = "/"
users = 1
"#;
    let (folder, output) = run_study(study, "")?;
    ensure!(output.code == Some(2), "{}", output.described());
    let result = result(&folder)?;
    ensure!(result.ending == Ending::Failed);
    let told = result.warnings.iter().any(|warning| warning.message.contains("out of luck"));
    ensure!(told, "{:?}", result.warnings);
    Ok(())
}

#[test]
fn the_reference_s_bisection_finds_the_users_of_a_service() -> Result<()> {
    let _shared = beside_others();
    // It is the number of users that the limit follows from, not their speed: those from the 13th on have no token. They pause, so that
    // no processor is ever the limit.
    let serve = proofload_tests::Serve::start("--pages")?;
    let folder = TemporaryFolder::new()?;
    let rows: String = (1..=40).map(|user| if user <= 12 { "echo\n" } else { "private/x\n" }).collect();
    fs::write(folder.file("rows.csv"), format!("path\n{rows}"))?;
    let words = format!(
        "limit users --preset jmeter --loops 5 --think-time 50ms --errors 0 --no-keepalive --max 40 --timeout 5m -q --out {} --feeder {},per-user",
        folder.file("result"),
        folder.file("rows.csv")
    );
    let output = Proofload::new(&words)?.arg(&format!("{}{{{{path}}}}", serve.url())).run()?;
    serve.stop()?;
    let result = result(&folder).with_context(|| output.described())?;
    let goal = &result.outcomes[0].searches[0].goals[0];
    let loads = (goal.lower.as_ref().map(|b| b.load), goal.upper.as_ref().map(|b| b.load));
    ensure!(
        loads == (Some(12.0), Some(13.0)) && goal.kind == BoundKind::Regular,
        "{loads:?} {:?}",
        goal.kind
    );
    ensure!(output.stdout.contains("12 users"), "{}", output.described());
    Ok(())
}

#[test]
fn a_report_of_no_result_says_so() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let output = Proofload::new(&format!("report {}", folder.path().display()))?.run()?;
    ensure!(
        output.code == Some(2) && output.stderr.contains("not a result folder"),
        "{}",
        output.described()
    );
    ensure!(!Path::new(&folder.file("report.html")).exists());
    Ok(())
}

/// What a trial's requests measured.
fn http(entry: &TrialEntry) -> &record::HttpTrial {
    entry.trial.http().expect("these studies send HTTP requests")
}
