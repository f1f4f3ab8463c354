//! Comparisons beside a hog: they find no difference between equal targets, and find one if a target takes 10 % more time.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bar, By, Outcome, Scale, is_wanted_among};
use crate::{
    Proofload,
    hog::{Bursts, Hog},
    machine::Cores,
    random::Random,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "compare-beside-hog",
    what: "beside a hog of 10 % on the generator's processor, 8 runs of each of two targets: 100 comparisons of equal ones claim at \
           most 10 differences; of 25 of one that takes 10 % more time, 20 show it",
    full_seconds: 2_400,
    decided_by: By::Times,
    run,
};

const HOG_SHARE: f64 = 0.1;
const HOG_BURSTS_MS: [f64; 2] = [0.2, 20.0];
/// Runs of each target. Eight quiet runs suffice to show 10 %.
const RUNS: u64 = 8;
/// Number of comparisons that one name in `PROVE_CASES` selects: `0-24`, or `1000-1024` for those with a difference.
const TOGETHER: u64 = 25;

fn run(scale: Scale) -> Result<Outcome> {
    let (equal, other) = scale.pick((1, 1), (100, 25));
    let is_wanted = |seed: &u64| is_wanted_among(*seed, TOGETHER);
    let mut outcome = Outcome::default();
    let (mut false_claims, mut found, mut undecided) = (0, 0, 0);
    let equal: Vec<u64> = (0..equal).filter(is_wanted).collect();
    let other: Vec<u64> = (0..other).filter(|seed| is_wanted(&(1_000 + seed))).collect();
    for &seed in &equal {
        let claims = claims(seed, 1.0)?;
        false_claims += u64::from(!claims.differences.is_empty());
        undecided += claims.undecided;
        if !claims.differences.is_empty() {
            outcome.note(format!("equal #{seed}: {}", claims.differences.join(", ")));
        }
    }
    for &seed in &other {
        let claims = claims(1_000 + seed, 1.1)?;
        let is_found = claims.differences.iter().any(|claim| claim.contains("a_better"));
        found += u64::from(is_found);
        if !is_found {
            outcome.note(format!("10 % #{seed}: not found: {}", claims.shown));
        }
    }
    let (equal, other) = (equal.len() as u64, other.len() as u64);
    if equal > 0 {
        let most = (equal / 10).max(1);
        let value = format!("{false_claims} of {equal}");
        outcome.time().figure("false_claims", value, format!("<= {most}"), false_claims <= most);
    }
    if other > 0 {
        let least = scale.pick(0, other * 4 / 5);
        outcome.time().figure("found", format!("{found} of {other}"), format!(">= {least}"), found >= least);
    }
    outcome.note(format!("{undecided} rows of equal targets could not tell"));
    Ok(outcome)
}

/// The claims of a comparison.
struct Claims {
    /// Quantities that differ according to the comparison, each with the verdict.
    differences: Vec<String>,
    undecided: u64,
    shown: String,
}

/// Compares two targets. The second takes `factor` times as long as the first.
fn claims(seed: u64, factor: f64) -> Result<Claims> {
    let folder = TemporaryFolder::new()?;
    let cores = Cores::of_this_process()?;
    let study = folder.file("study.toml");
    fs::write(&study, study_file(seed, factor, cores))?;
    let hog =
        Hog::start([(cores.generator, Bursts::new(Random::new(seed).any(), HOG_SHARE, HOG_BURSTS_MS))])?;
    let out = folder.file("result");
    let ran = Proofload::new(&format!("run {study} --out {out} -q"))?.run()?;
    hog.end()?;
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

fn study_file(seed: u64, factor: f64, cores: Cores) -> String {
    let target = |name: &str, service_ms: f64, seed: u64| {
        let (core, service_us) = (cores.server, (service_ms * 1e3).round());
        format!(
            "[targets.{name}]\nrun = \"serve\"\nargs = [\"--capacity\", \"4\", \"--service-time\", \"exp:{service_us}us\", \
             \"--seed\", \"{seed}\", \"--cpus\", \"{core}\"]\n"
        )
    };
    let targets = [target("a", 4.0, 2 * seed + 1), target("b", 4.0 * factor, 2 * seed + 2)].concat();
    let core = cores.generator;
    format!(
        "title = \"comparison\"\nseed = {seed}\n{targets}[factors]\ntarget = [\"a\", \"b\"]\n[workload.http]\nusers = 8\nthreads = 1\n\
         cpus = \"{core}\"\n[trial]\nrepeats = {RUNS}\nduration = \"1s\"\nsettle = \"0s\"\n"
    )
}
