//! A target that is faster than the generator: the answer is a lower bound, and says that the generator was the limit.

use anyhow::{Context, Result};
use record::{BoundKind, ResultFolder};

use super::{Bar, By, Outcome, Scale};
use crate::{Nginx, Proofload, machine::Cores, nginx, process::Launch, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "limit-generator-bound",
    what: "a target that carries more than the generator makes is `at least, generator-bound`, never a limit",
    full_seconds: 260,
    decided_by: By::Times,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let cores = Cores::of_this_process()?;
    // The target has a processor for itself. The generator shares its processor with an endless loop.
    let _rival = Launch::new("sh").args(["-c", "while :; do :; done"]).on_core(cores.generator).start()?;
    let effort = scale.pick(
        "--trial 1s --repeats 1 --width 30% --min 2k --void-attempts 2 --budget 40s",
        "--trial 4s --repeats 2 --void-attempts 3 --budget 150s",
    );
    let goals = [("on_time", "--p99 50ms"), ("without_errors", "--errors 0")];
    for (name, goal) in &goals[..scale.pick(1, 2)] {
        let words = format!("limit rate {goal} {effort}");
        let nginx = Nginx::start(&nginx::Options { core: Some(cores.server), ..Default::default() })?;
        let folder = TemporaryFolder::new()?;
        let more = format!("--cpus {} --max 3M --out {}", cores.generator, folder.file("result"));
        let output = Proofload::new(&words)?.arg(&nginx.url("/")).with(|launch| launch.words(&more)).run()?;
        let result = ResultFolder::open(&folder.path().join("result"))?.result()?;
        let result = result.with_context(|| output.described())?;
        let goal = &result.outcomes[0].searches[0].goals[0];
        outcome.time().figure(
            &format!("{name}_kind"),
            format!("{:?}", goal.kind),
            "generator-bound",
            matches!(goal.kind, BoundKind::GeneratorBound { .. }),
        );
        outcome.time().holds(
            &format!("{name}_no_upper_bound"),
            goal.upper.is_none(),
            "none: no limit was seen",
        );
        let said = output.stdout.contains('≥') && output.stdout.contains("generator-bound");
        outcome.time().holds(&format!("{name}_said_so"), said, "`≥ …, generator-bound` on the terminal");
    }
    Ok(outcome)
}
