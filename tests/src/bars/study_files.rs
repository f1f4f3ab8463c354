//! Broken study files: proofload reports every mistake and starts nothing.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

use super::{Bar, By, Outcome, Scale};
use crate::{Proofload, lab::Labs, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "study-files",
    what: "30 broken study files: every mistake with its line and column, exit status 2, nothing started or written",
    full_seconds: 5,
    decided_by: By::Counts,
    run,
};

fn run(_scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let labs = Labs::new()?;
    let before = labs.inventory()?;
    let folder = TemporaryFolder::new()?;
    let out = folder.file("result");
    let broken = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/study/tests/broken");
    let (mut files, mut mistakes) = (0, 0);
    for entry in fs::read_dir(&broken).with_context(|| format!("cannot read {}", broken.display()))? {
        let file = entry?.path();
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let expected = fs::read_to_string(file.with_extension("expected"))?;
        let output = Proofload::new("run")?
            .arg(&file.display().to_string())
            .with(|launch| launch.args(["--out", &out]))
            .run()?;
        ensure!(output.code == Some(2), "not refused: {}", output.described());
        for line in expected.lines().filter(|line| !line.trim().is_empty()) {
            let (place, _) = line.split_once(": ").with_context(|| format!("no place in '{line}'"))?;
            let told = format!("{}:{place}: ", file.display());
            ensure!(output.stderr.contains(&told), "no mistake at {place} in {}", output.described());
            mistakes += 1;
        }
        ensure!(!Path::new(&out).exists(), "{} wrote a result", file.display());
        files += 1;
    }
    outcome.figure("files", files, ">= 30, each refused with every mistake", files >= 30);
    outcome.figure("mistakes", mistakes, ">= 70, each with line and column", mistakes >= 70);
    let left = labs.difference(&before)?;
    outcome.holds("nothing_started", left.is_empty(), "the inventory is as before");
    left.into_iter().for_each(|line| outcome.note(line));
    Ok(outcome)
}
