//! A look at a target before a search for a rate: measures the rate that a few users reach, so that the search need not begin far below the
//! limit.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use load::Tick;
use record::{Distribution, HttpPlan, LoadModel};

use super::probe::probe_plan;
use crate::{
    event::Options,
    study::{Begin, Setup, Study},
    testbed::Testbed,
};

/// Number of users in each step.
const USERS: [u64; 3] = [1, 4, 16];
/// Length of a step.
const STEP: Duration = Duration::from_millis(250);
/// The search begins at this share of the largest rate that a step carried.
const SHARE: f64 = 0.25;

/// Looks at the target of a search for a rate that has no fixed start, sets the load at which the search begins, and returns a message
/// about it. The look is not a trial and sets no bounds: if trials miss a goal, the search goes below this load. The study's budget
/// includes the look.
///
/// Returns `None`, so that the search begins at its smallest load, if the study's hosts are a lab, if requests may change the target's
/// state (methods other than GET and HEAD, events), if they use up a feeder, or if the first step fails.
pub fn look(study: &mut Study, options: &Options) -> Option<String> {
    let search = study.search.clone().filter(|search| search.begin == Begin::Looks)?;
    let setup: Setup = study.setup(0, Some(search.min)).ok().filter(|setup| setup.lab.is_none())?;
    let testbed = Testbed::bring_up(
        setup.clone(),
        &options.lab,
        &options.generator,
        None,
        Path::new(""),
        &mut |_, _| Ok(()),
    );
    let testbed = testbed.ok()?;
    let plan = probe_plan(&testbed, &setup, study, &mut Vec::new()).ok().flatten()?;
    if !may_be_repeated(&plan) {
        return None;
    }
    let (mut carried_per_s, mut looked) = (0.0_f64, Duration::ZERO);
    for users in USERS {
        let stop = Arc::new(AtomicBool::new(false));
        // The look stops sending soon after the first failure.
        let watch = |tick: &Tick| {
            let ends = tick.failed > 0 || options.stop.load(Ordering::Relaxed);
            stop.fetch_or(ends, Ordering::Relaxed);
        };
        let trial = testbed.run(step(plan.clone(), users, search.max), &stop, &[], watch).ok()?;
        looked += STEP;
        let http = trial.http()?;
        if trial.interrupted || http.errors.total() > 0 || http.counts.completed == 0 {
            break;
        }
        carried_per_s = carried_per_s.max(http.throughput_per_s);
    }
    study.budget = study.budget.map(|budget| budget.saturating_sub(looked));
    let begin = (carried_per_s * SHARE).clamp(search.min, search.max);
    let asked = study.search.as_mut().filter(|_| begin > search.min)?;
    asked.begin = Begin::At(begin);
    let show = |load| search.unit.show(load);
    Some(format!(
        "in a look of {} ms, up to 16 users carried {}; the search begins at {} (see --no-look)",
        looked.as_millis(),
        show(carried_per_s),
        show(begin)
    ))
}

/// Whether extra requests are harmless: they change neither the target nor later trials.
fn may_be_repeated(plan: &HttpPlan) -> bool {
    let is_simple = plan.script.as_ref().is_none_or(|script| !script.is_session() && !script.may_run_out());
    let is_safe = ["GET", "HEAD"].contains(&plan.request.method.as_str());
    is_simple && is_safe && plan.events.is_none()
}

/// The plan of a step, which sends at most `most_per_s` requests per second.
fn step(mut plan: HttpPlan, users: u64, most_per_s: f64) -> HttpPlan {
    let pause_ns = (users as f64 / most_per_s * 1e9) as u64;
    // A pause far below the response time has no effect but costs timers, so leave it out.
    let think_time = Distribution::Fixed { ns: if pause_ns < 50_000 { 0 } else { pause_ns } };
    let ramp_up_ns = if users == 1 { 0 } else { pause_ns };
    plan.load = LoadModel::Closed { users, loops: None, ramp_up_ns, think_time };
    plan.duration_ns = Some(STEP.as_nanos() as u64);
    plan.drain_ns = plan.drain_ns.min(STEP.as_nanos() as u64);
    (plan.requests, plan.decides) = (None, None);
    (plan.processes, plan.threads, plan.pipeline) = (1, 1, 1);
    if let Some(script) = &mut plan.script {
        script.log = None;
    }
    plan
}
