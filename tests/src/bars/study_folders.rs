//! Result folders that are damaged, foreign, mixed, half-finished, or large.

mod cases;

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use record::{Ending, ResultFolder};
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale};
use crate::{
    Output, Proofload,
    process::{Finished, Launch},
    proofload::binary,
    temporary::TemporaryFolder,
};
use cases::{CASES, Case, Expected, sealed};

pub(super) const BAR: Bar = Bar {
    name: "study-folders",
    what: "60 damaged, foreign, mixed or half-finished result folders: refused with the reason, or read rightly; none changed; \
           every byte flipped; a report of 10,000 trials in 200 MB",
    full_seconds: 70,
    decided_by: By::Counts,
    run,
};

/// A study with two settings and two blocks. SEED distinguishes studies of this kind.
const STUDY: &str = r#"
title = "folders SEED"
seed = SEED
[targets.serve]
run = "serve"
[workload.http]
path = "/"
requests = 20
[factors]
users = [1, 2]
[trial]
repeats = 2
[[goals]]
p99 = "10s"
"#;

/// A study with one trial whose times fill as many histogram bins as real ones do.
const LARGE: &str = r#"
title = "large"
[targets.serve]
run = "serve"
args = ["--delay", "lognormal:2ms,0.5"]
[workload.http]
path = "/"
rate = 2000
duration = "1s"
"#;

/// Files that no command may change in a finished study.
const KEPT: [&str; 5] = ["plan.json", "environment.json", "trials.jsonl", "result.json", "report.html"];

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let folder = TemporaryFolder::new()?;
    let at = |name: &str| folder.path().join(name);
    // `again` is the same study as `own`: its plan and paths are equal, but its figures differ.
    for (name, seed) in [("again", "1"), ("own", "1"), ("other", "2")] {
        study(folder.path(), name, &STUDY.replace("SEED", seed))?;
    }

    let begun = Instant::now();
    let mut failures = Vec::new();
    for case in CASES {
        let copy = at("copy");
        fresh_copy(&at("own"), &copy)?;
        (case.make)(&copy, folder.path()).with_context(|| case.name.to_owned())?;
        for command in ["report", "compare", "resume"] {
            if let Err(error) = check(case, command, folder.path()) {
                failures.push(format!("{} × {command}: {error:#}", case.name));
            }
        }
    }
    outcome.figure("folders", CASES.len(), ">= 60", CASES.len() >= 60);
    outcome.equal("wrong", failures.len() as u64, 0, "each × report, compare, --resume");
    failures.into_iter().for_each(|failure| outcome.note(failure));
    outcome.note(format!("folders: {:.1} s", begun.elapsed().as_secs_f64()));

    let tiny = at("tiny");
    study(
        folder.path(),
        "tiny",
        &STUDY.replace("SEED", "3").replace("users = [1, 2]", "users = [1]").replace("= 20", "= 1"),
    )?;
    for (name, finished) in [("finished", true), ("killed", false)] {
        if !finished {
            fs::remove_file(tiny.join("result.json"))?;
        }
        let (flips, passed) = flip(&tiny, scale.pick(13, 1), scale.pick(&[0x01], &[0x01, 0x20, 0x80, 0xff]))?;
        outcome.equal(&format!("wrong_after_flips_{name}"), passed, 0, "read otherwise than written");
        outcome
            .note(format!("{name}: {flips} flips, {:.1} s since the start", begun.elapsed().as_secs_f64()));
    }

    let trials = scale.pick(1_000, 10_000);
    large(folder.path(), trials)?;
    // On a busy machine, a trial's times fill more bins, so the stored trials are larger. The bound on memory therefore depends on their
    // size.
    let stored_kib = fs::metadata(at("large").join("trials.jsonl"))?.len() / 1024;
    let most_kib = 20_000 + stored_kib * 6 / 5;
    for words in ["", " --html page", " --json all", " --openmetrics metrics", " --junit cases"] {
        let begun = Instant::now();
        let (output, peak_kib) = at_its_peak(folder.path(), &format!("report large{words}"))?;
        let name = format!("report{}", words.split(' ').nth(1).unwrap_or_default().replace("--", "_"));
        outcome.equal(&format!("{name}_status"), output.code.unwrap_or(-1) as u64, 0, "exit status");
        let bound = format!("<= {most_kib} KiB of memory: {trials} trials are {stored_kib} KiB");
        outcome.figure(&name, format!("{peak_kib} KiB"), bound, peak_kib <= most_kib);
        outcome.note(format!("report{words}: {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(outcome)
}

/// Runs the program in a folder. Returns the result and the peak of its memory, in KiB.
fn at_its_peak(folder: &Path, words: &str) -> Result<(Finished, u64)> {
    let peak = folder.join("peak");
    // Start the program from `time`, which is small: until a child executes another program, the kernel counts the memory of its parent.
    let line = format!(
        "cd {} && exec /usr/bin/time -q -f %M -o {} {} {words} >/dev/null",
        folder.display(),
        peak.display(),
        binary()?.display()
    );
    let output = Launch::new("sh").args(["-c", &line]).run(PATIENCE)?;
    let kib = fs::read_to_string(&peak)?.trim().parse().context("`time` tells KiB")?;
    Ok((output, kib))
}

/// Runs a study into a folder of this name. All studies use the same command line, because it is part of the plan.
fn study(folder: &Path, name: &str, text: &str) -> Result<()> {
    fs::write(folder.join(format!("{name}.toml")), text)?;
    fs::write(folder.join("study.toml"), text)?;
    let output = call("run FOLDER/study.toml --out FOLDER/run -q", folder)?;
    // On a busy machine, trials may be void, but the folder is good enough.
    ensure!(ResultFolder::open(&folder.join("run"))?.result()?.is_some(), "{}", output.described());
    Ok(fs::rename(folder.join("run"), folder.join(name))?)
}

fn call(words: &str, folder: &Path) -> Result<Output> {
    let words = words.replace("FOLDER", &folder.display().to_string());
    Proofload::new(&words)?.run()
}

fn fresh_copy(from: &Path, to: &Path) -> Result<()> {
    if to.is_dir() {
        fs::remove_dir_all(to)?;
    } else if to.exists() {
        fs::remove_file(to)?;
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        // Skip the folders with logs of processes, because they are no part of the result.
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// The contents of the files of a result. Pipes and folders count as empty.
fn inventory(folder: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let read = |name| {
        let path: std::path::PathBuf = folder.join(name);
        let is_file = fs::metadata(&path).ok()?.is_file();
        Some((name, if is_file { fs::read(&path).ok()? } else { Vec::new() }))
    };
    KEPT.into_iter().filter_map(read).collect()
}

fn check(case: &Case, command: &str, folder: &Path) -> Result<()> {
    let copy = folder.join("copy");
    let before = inventory(&copy);
    let output = match command {
        "report" => call("report FOLDER/copy --json -", folder)?,
        "compare" => call("compare FOLDER/own FOLDER/copy --json -", folder)?,
        _ => call("run FOLDER/own.toml --out FOLDER/copy --resume -q --json -", folder)?,
    };
    for leak in ["Place {", "Some(", "Unsound", "None"] {
        ensure!(!output.stderr.contains(leak), "{leak} in {}", output.stderr);
    }
    let refused = || -> Result<()> {
        ensure!(output.code == Some(2), "exit status {:?}\n{}", output.code, output.described());
        let says = case.says.iter().all(|part| output.stderr.contains(part));
        ensure!(says, "the reason is not told ({:?}): {}", case.says, output.stderr);
        ensure!(output.stdout.is_empty(), "figures all the same");
        Ok(())
    };
    match (case.expected, command) {
        (Expected::Refused, _) => refused()?,
        (Expected::Sound, "compare") => {
            ensure!(
                output.stderr.is_empty() && output.stdout.contains("\"a_median\""),
                "{}",
                output.described()
            );
        }
        (Expected::Sound, _) => {
            ensure!(output.code != Some(2), "{}", output.described());
            let own = call("report FOLDER/own --json -", folder)?;
            ensure!(output.stdout == own.stdout, "other figures than the folder's");
        }
        // Without a result, there is nothing to compare. The results of an interrupted study can be compared.
        (Expected::Half { .. }, "compare") => {
            ensure!(matches!(output.code, Some(0 | 2 | 3)), "{}", output.described());
            let why = ["no result yet", "nothing to compare"];
            ensure!(
                output.code != Some(2) || why.iter().any(|why| output.stderr.contains(why)),
                "{}",
                output.described()
            );
        }
        (Expected::Half { trials }, "report") => {
            let told: serde_json::Value = serde_json::from_str(&output.stdout)?;
            let told = told["trials"].as_array().map(Vec::len);
            ensure!(told == Some(trials), "{told:?} of {trials} trials: {}", output.described());
        }
        (Expected::Half { trials }, _) => {
            let contents = ResultFolder::open(&copy)?.read().with_context(|| output.described())?;
            let ending = contents.result.map(|result| result.ending);
            ensure!(ending == Some(Ending::Finished), "{ending:?}: {}", output.described());
            let own = ResultFolder::open(&folder.join("own"))?.read()?;
            ensure!(contents.trials[..trials] == own.trials[..trials], "a trial of before has changed");
            return Ok(());
        }
    }
    let after = inventory(&copy);
    let changed: Vec<&str> = KEPT.into_iter().filter(|name| before.get(name) != after.get(name)).collect();
    ensure!(changed.is_empty(), "changed: {}", changed.join(", "));
    Ok(())
}

/// Flips bits of the trials, in one of `one_in` bytes and in the last one. Returns the number of flips, and the number after which the
/// folder could be read but with other contents than written.
fn flip(folder: &Path, one_in: usize, bits: &[u8]) -> Result<(u64, u64)> {
    let result = ResultFolder::open(folder)?;
    let written = result.read()?;
    let mut file = fs::File::options().read(true).write(true).open(folder.join("trials.jsonl"))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut put = |place: usize, byte: u8| -> Result<()> {
        file.seek(SeekFrom::Start(place as u64))?;
        Ok(file.write_all(&[byte])?)
    };
    let (mut flips, mut passed) = (0, 0);
    let is_next = |place: &usize| place.is_multiple_of(one_in) || place + 1 == bytes.len();
    for place in (0..bytes.len()).filter(is_next) {
        let byte = bytes[place];
        for bits in bits {
            put(place, byte ^ bits)?;
            flips += 1;
            // If its line end is lost, the last line looks like one that a killed run had not finished.
            let is_torn = place + 1 == bytes.len() && written.result.is_none();
            passed += u64::from(match result.read() {
                Err(_) => false,
                Ok(read) => !is_torn || read.trials[..] != written.trials[..written.trials.len() - 1],
            });
        }
        put(place, byte)?;
    }
    ensure!(result.read()?.trials == written.trials, "the folder was not put back");
    Ok((flips, passed))
}

/// Makes a folder with this many trials by repeating one trial.
fn large(folder: &Path, trials: usize) -> Result<()> {
    study(folder, "large", LARGE)?;
    let folder = folder.join("large");
    let result = ResultFolder::open(&folder)?;
    let mut contents = result.read()?;
    let Some(mut found) = contents.result.take() else { bail!("it has a result") };
    contents.plan.blocks = vec![vec![0]; trials];
    let environment = contents.environment.as_ref().context("an environment")?;
    result.write_environment(environment, &contents.plan)?;
    result.write_plan(&contents.plan)?;
    // These records name the plan that has been replaced.
    fs::remove_file(folder.join("counters.jsonl"))?;
    let plan = fs::read_to_string(folder.join("plan.json"))?;
    let plan = plan.get(11..19).context("it is sealed")?;
    let journal = fs::read_to_string(folder.join("trials.jsonl"))?;
    let line = journal.lines().next().context("it has a trial")?;
    let (_, entry) = line.split_once("\"schema\":").context("it is one")?;
    let (head, tail) = entry.split_once("\"index\":1,\"block\":0,").context("it is the first")?;
    let mut file = std::io::BufWriter::new(fs::File::create(folder.join("trials.jsonl"))?);
    for number in 0..trials {
        let entry = format!(
            "\"plan\":\"{plan}\",\"schema\":{head}\"index\":{},\"block\":{number},{tail}",
            number + 1
        );
        writeln!(file, "{}", sealed(&entry))?;
    }
    file.flush()?;
    found.trials = trials as u64;
    for summary in found.outcomes.iter_mut().flat_map(|outcome| &mut outcome.summaries) {
        summary.values = vec![summary.median; trials];
    }
    Ok(result.write_result(&found)?)
}
