//! Comparisons beside a hog: they find no difference between equal targets, and find one if a target takes 10 % more time.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bar, By, Outcome, Scale, is_wanted_among};
use crate::{
    Proofload,
    hog::{Bursts, Hog},
    machine::Cores,
    proofload::binary,
    random::Random,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "compare-beside-hog",
    what: "beside a hog of 10 % on the generator's processor, 12 runs of each of two targets: 100 comparisons of equal ones claim at \
           most 10 differences; of 25 of one that takes 10 % more time, 20 show it, as do 8 runs of each without the hog",
    full_seconds: 4_500,
    decided_by: By::Times,
    run,
};

const HOG_SHARE: f64 = 0.1;
const HOG_BURSTS_MS: [f64; 2] = [0.2, 20.0];
/// Runs of each target beside the hog: at most twice those that suffice without it.
const RUNS: u64 = 12;
const QUIET_RUNS: u64 = 8;
/// Number of comparisons that one name in `PROVE_CASES` selects: `0-24`; `1000-1024` for those with a difference, `2000-2024` for those
/// with a difference and without a hog.
const TOGETHER: u64 = 25;

fn run(scale: Scale) -> Result<Outcome> {
    let (equal, other) = scale.pick((1, 1), (100, 25));
    let mut outcome = Outcome::default();
    let wanted = |from: u64, count: u64| -> Vec<u64> {
        (from..from + count).filter(|&seed| is_wanted_among(seed, TOGETHER)).collect()
    };
    let equal = wanted(0, equal);
    let (mut false_claims, mut undecided) = (0, 0);
    for &seed in &equal {
        let claims = claims(seed, 1.0, RUNS, true)?;
        false_claims += u64::from(!claims.differences.is_empty());
        undecided += claims.undecided;
        if !claims.differences.is_empty() {
            outcome.note(format!("equal #{seed}: {}", claims.differences.join(", ")));
        }
    }
    if !equal.is_empty() {
        let (equal, most) = (equal.len() as u64, (equal.len() as u64 / 10).max(1));
        let value = format!("{false_claims} of {equal}");
        outcome.time().figure("false_claims", value, format!("<= {most}"), false_claims <= most);
        outcome.note(format!("{undecided} rows of equal targets could not tell"));
    }
    for (name, from, runs, has_hog) in
        [("found", 1_000, RUNS, true), ("found_without_hog", 2_000, QUIET_RUNS, false)]
    {
        let seeds = wanted(from, other);
        let mut found = 0;
        for &seed in &seeds {
            let claims = claims(seed, 1.1, runs, has_hog)?;
            let is_found = claims.differences.iter().any(|claim| claim.contains("a_better"));
            found += u64::from(is_found);
            if !is_found {
                outcome.note(format!("10 % #{seed}: not found: {}", claims.shown));
            }
        }
        if !seeds.is_empty() {
            let seeds = seeds.len() as u64;
            let least = scale.pick(0, seeds * 4 / 5);
            outcome.time().figure(name, format!("{found} of {seeds}"), format!(">= {least}"), found >= least);
        }
    }
    Ok(outcome)
}

/// The claims of a comparison.
struct Claims {
    /// Quantities that differ according to the comparison, each with the verdict.
    differences: Vec<String>,
    undecided: u64,
    shown: String,
}

/// Compares two targets by `runs` runs of each. The second takes `factor` times as long as the first.
fn claims(seed: u64, factor: f64, runs: u64, has_hog: bool) -> Result<Claims> {
    let folder = TemporaryFolder::new()?;
    let cores = Cores::of_this_process()?;
    let study = folder.file("study.toml");
    fs::write(&study, study_file(seed, factor, runs, cores, &folder.file("starts"))?)?;
    let bursts = Bursts::new(Random::new(seed).any(), HOG_SHARE, HOG_BURSTS_MS);
    let hog = if has_hog { Some(Hog::start([(cores.generator, bursts)])?) } else { None };
    let out = folder.file("result");
    let ran = Proofload::new(&format!("run {study} --out {out} -q"))?.run()?;
    hog.map(Hog::end).transpose()?;
    let compared = Proofload::new(&format!("compare {out} --factor target=a,b --json -"))?.run()?;
    let json: Value = serde_json::from_str(&compared.stdout)
        .with_context(|| format!("{}\n{}", ran.described(), compared.described()))?;
    let rows = json["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let shown =
        |row: &Value| format!("{} {}", row["quantity"], row["statistics"]["verdict"]).replace('"', "");
    let is = |row: &&Value, verdict: &str| row["statistics"]["verdict"] == verdict;
    let differ = rows.iter().filter(|row| is(row, "a_better") || is(row, "b_better"));
    Ok(Claims {
        differences: differ.map(shown).collect(),
        undecided: rows.iter().filter(|row| is(row, "cannot_tell")).count() as u64,
        shown: rows.iter().map(shown).collect::<Vec<_>>().join(", "),
    })
}

/// A target draws its times anew in each run: every start takes the next seed. With the same times in each run, the runs would
/// not be independent, and two targets whose times are drawn from one distribution would still differ.
fn study_file(seed: u64, factor: f64, runs: u64, cores: Cores, starts: &str) -> Result<String> {
    let program = binary()?;
    let program = program.display();
    let target = |name: &str, service_ms: f64| {
        let (core, service_us) = (cores.server, (service_ms * 1e3).round());
        format!(
            "[targets.{name}]\nport = 8080\nready = \"http://127.0.0.1:8080/\"\ncommand = [\"sh\", \"-c\", \"echo >> {starts} && \
             exec {program} serve --listen 127.0.0.1:8080 --capacity 4 --service-time exp:{service_us}us --cpus {core} \
             --seed $(({seed} * 1000 + $(wc -l < {starts})))\"]\n"
        )
    };
    let targets = [target("a", 4.0), target("b", 4.0 * factor)].concat();
    let core = cores.generator;
    Ok(format!(
        "title = \"comparison\"\nseed = {seed}\n{targets}[factors]\ntarget = [\"a\", \"b\"]\n[workload.http]\nusers = 8\nthreads = 1\n\
         cpus = \"{core}\"\n[trial]\nrepeats = {runs}\nduration = \"1s\"\nsettle = \"0s\"\n"
    ))
}
