//! Derives the results of a study from only its plan and its trials.

use record::{
    AuditTotals, BoundKind, BoundsAfterTrial, Confirmation, Goal, GoalOutcome, Knee, LoadUnit, Purpose,
    Quantity, QuantitySummary, SearchOutcome, SettingOutcome, Span, StudyPlan, TrialEntry, Warning,
    study::{UNDECIDED, quantities},
};
use search::statistics::{Confidence, summarize};

use crate::{running_search::RunningSearch, steadiness};

/// The results of each setting.
///
/// # Errors
/// If the trials do not belong to this plan.
pub fn outcomes(plan: &StudyPlan, entries: &[TrialEntry]) -> Result<Vec<SettingOutcome>, String> {
    (0..plan.settings.len()).map(|setting| outcome_of(plan, entries, setting)).collect()
}

fn outcome_of(plan: &StudyPlan, entries: &[TrialEntry], setting: usize) -> Result<SettingOutcome, String> {
    let of_setting: Vec<&TrialEntry> = entries.iter().filter(|entry| entry.setting == setting).collect();
    let valid: Vec<&TrialEntry> =
        of_setting.iter().copied().filter(|entry| !entry.trial.validity.is_void()).collect();
    let audits = of_setting.iter().filter_map(|entry| entry.audit.as_ref());
    let mut outcome = SettingOutcome {
        setting,
        goals_met: None,
        searches: Vec::new(),
        summaries: Vec::new(),
        knee: None,
        audit: AuditTotals::of(audits.filter(|audit| audit.is_conclusive())),
        warnings: Vec::new(),
    };
    if plan.settings[setting].searched {
        for (block, _) in plan.blocks.iter().enumerate() {
            let Some((mut found, noticed)) = search_outcome(plan, &of_setting, block)? else { continue };
            found.confirmation = confirmation(plan, setting, &found, &of_setting);
            outcome.warnings.extend(unconfirmed(plan, setting, &found));
            outcome.searches.push(found);
            outcome.warnings.extend(noticed);
        }
        outcome.warnings.extend(bounds_far_apart(plan, &outcome));
        outcome.knee = knee(plan, &outcome, &valid);
    } else {
        outcome.goals_met = goals_met(plan, &valid);
        outcome.summaries = summaries(plan, &valid);
        if valid.is_empty() && !of_setting.is_empty() {
            let message = "every trial was void: nothing may be concluded for this setting; each trial lists its reasons";
            outcome.warnings.push(Warning::new("all_void", message));
        } else if outcome.goals_met.is_none() && !plan.goals.is_empty() && !valid.is_empty() {
            let message = "it is undecided whether every goal is met: some measured intervals contain the bound of their goal, as each \
                           trial lists. Use a quieter machine, give the generator processors of its own (--cpus), or \
                           run more repeats";
            outcome.warnings.push(Warning::new(UNDECIDED, message));
        }
        outcome.warnings.extend(nothing_completed(&valid));
    }
    Ok(outcome)
}

/// Warns if no trial of a setting completed a request.
fn nothing_completed(valid: &[&TrialEntry]) -> Option<Warning> {
    let first = valid.first().filter(|_| valid.iter().all(|entry| entry.trial.completed_nothing()))?;
    let why = first.trial.main_failure().unwrap_or_else(|| "no request was due".to_owned());
    Some(Warning::new("nothing_completed", format!("no request was completed in any trial: {why}")))
}

fn search_outcome(
    plan: &StudyPlan,
    entries: &[&TrialEntry],
    block: usize,
) -> Result<Option<(SearchOutcome, Vec<Warning>)>, String> {
    let of_block: Vec<_> =
        entries.iter().filter(|entry| entry.block == block && entry.purpose != Purpose::Confirm).collect();
    let Some(first) = of_block.first() else { return Ok(None) };
    let Some(search) = plan.search_of(first.setting) else { return Ok(None) };
    let mut running = RunningSearch::new(search, &plan.goals)?;
    let mut path = Vec::with_capacity(of_block.len());
    for entry in &of_block {
        running.tell(entry)?;
        path.push(BoundsAfterTrial { trial: entry.index, goals: running.bounds() });
    }
    // Only this call makes the search notice that nothing is left to measure.
    running.next();
    if let Some(last) = path.last_mut() {
        last.goals = running.bounds();
    }
    let mut found = SearchOutcome { path, ..running.outcome(block) };
    let ends_itself =
        |entry: &&&TrialEntry| entry.trial.http().is_none_or(|http| http.plan.duration_ns.is_none());
    if of_block.iter().all(ends_itself) {
        // The search cannot know the duration of trials that end by themselves, so add up their measured times.
        found.trial_seconds = of_block.iter().map(|entry| entry.trial.elapsed_s).sum();
    }
    let mut warnings =
        steadiness::check(search, |goal| (running.unsteady(goal), running.trial_s(goal)), &mut found);
    warnings.extend(running.warnings());
    warnings.extend(generator_bound(&found, &of_block, &search.unit));
    Ok(Some((found, warnings)))
}

/// Warns that the generator could not make a load and says why, if that bounded the search.
fn generator_bound(found: &SearchOutcome, trials: &[&&TrialEntry], unit: &LoadUnit) -> Option<Warning> {
    let at = found.goals.iter().find_map(|goal| match goal.kind {
        BoundKind::GeneratorBound { at } => Some(at),
        _ => None,
    })?;
    let last = trials.iter().rev().find(|entry| entry.load == Some(at) && !entry.is_decided())?;
    let reasons: Vec<&str> = last.why_undecided().collect();
    let message = format!("at {} this machine was the limit: {}", unit.show(at), reasons.join("; "));
    Some(Warning::new("generator_bound", message))
}

/// The load at which the result of a search is confirmed: the smallest of the goals' lower bounds.
pub(crate) fn confirmed_load(found: &SearchOutcome) -> Option<f64> {
    let lower: Option<Vec<f64>> = found.goals.iter().map(|goal| Some(goal.lower.as_ref()?.load)).collect();
    lower?.into_iter().reduce(f64::min).filter(|_| found.finished)
}

fn confirmation(
    plan: &StudyPlan,
    setting: usize,
    found: &SearchOutcome,
    entries: &[&TrialEntry],
) -> Option<Confirmation> {
    let planned = plan.search_of(setting)?.confirm;
    let load = confirmed_load(found).filter(|_| planned > 0)?;
    let is_one = |entry: &&&TrialEntry| {
        entry.purpose == Purpose::Confirm && entry.block == found.block && entry.is_decided()
    };
    let valid: Vec<&TrialEntry> = entries.iter().filter(is_one).copied().collect();
    let met = |goal: usize| valid.iter().filter(|entry| entry.meets(goal, plan)).count() as u32;
    Some(Confirmation {
        load,
        planned,
        valid: valid.len() as u32,
        met: (0..plan.goals.len()).map(met).collect(),
        summaries: summaries(plan, &valid),
        audit: AuditTotals::of(valid.iter().filter_map(|entry| entry.audit.as_ref())),
    })
}

/// Warns of goals that were met at the lower bound in the search but not in all confirmations.
fn unconfirmed(plan: &StudyPlan, setting: usize, found: &SearchOutcome) -> Vec<Warning> {
    let Some((confirmed, search)) = found.confirmation.as_ref().zip(plan.search_of(setting)) else {
        return Vec::new();
    };
    let goals = plan.goals.iter().zip(&confirmed.met).enumerate();
    let warning = |(index, (goal, met)): (usize, (&Goal, &u32))| {
        let counts_as_met = plan.counts_as_met(index, *met as usize, confirmed.valid as usize);
        let message = format!(
            "{}: met in {met} of {} further trials at {}, the lower bound of the search: the true limit is lower, or \
             varies between trials; more repeats in the search (search.repeats) show which",
            goal.name,
            confirmed.valid,
            search.unit.show(confirmed.load)
        );
        Warning::new(if counts_as_met { "not_always_met" } else { "not_confirmed" }, message)
    };
    goals.filter(|(_, (_, met))| **met < confirmed.valid).map(warning).collect()
}

/// Whether each goal was met in enough of the repeats that decided it; none if nothing is decided.
fn goals_met(plan: &StudyPlan, valid: &[&TrialEntry]) -> Option<bool> {
    let is_met = |goal: usize| {
        let decided: Vec<bool> = valid.iter().filter_map(|entry| entry.decides(goal, plan)).collect();
        let met = decided.iter().filter(|met| **met).count();
        (!decided.is_empty()).then(|| plan.counts_as_met(goal, met, decided.len()))
    };
    let of_goals: Vec<Option<bool>> = (0..plan.goals.len()).map(is_met).collect();
    // One missed goal decides, whatever the other goals' outcomes are.
    let is_missed = of_goals.contains(&Some(false));
    (!of_goals.is_empty() && (is_missed || !of_goals.contains(&None))).then_some(!is_missed)
}

/// Warns of bounds that are further apart than requested because trials at the same load disagree.
fn bounds_far_apart(plan: &StudyPlan, outcome: &SettingOutcome) -> Vec<Warning> {
    let Some(search) = plan.search_of(outcome.setting) else { return Vec::new() };
    let mut warnings = Vec::new();
    for goal in outcome.searches.iter().flat_map(|search| &search.goals) {
        let (Some(lower), Some(upper)) = (&goal.lower, &goal.upper) else { continue };
        let apart = 1.0 - lower.load / upper.load;
        // With whole-numbered loads, neighbouring loads may be further apart than the width.
        if apart > search.width * 1.5 && upper.load - lower.load > 1.5 {
            warnings.push(Warning::new(
                "bounds_far_apart",
                format!(
                    "{}: the bounds are {:.1} % apart, {:.1} % were asked for: trials at loads between the bounds \
                     disagree or are undecided, or time ran out; longer trials (--trial; in a study search.trial) or more of them (--repeats) bring the bounds closer",
                    goal.goal,
                    apart * 100.0,
                    search.width * 100.0
                ),
            ));
        }
    }
    warnings
}

/// The load at which the 99th percentile of the response time begins to rise faster than the load. Short trials above the limit
/// are left out, because they end before their backlog shows.
fn knee(plan: &StudyPlan, outcome: &SettingOutcome, valid: &[&TrialEntry]) -> Option<Knee> {
    let goals = outcome.searches.iter().flat_map(|search| &search.goals);
    let limit = goals.filter_map(beyond_answer).fold(f64::INFINITY, f64::min);
    let shows = |entry: &&&TrialEntry| {
        let is_below = entry.load.is_some_and(|load| load < limit);
        entry.purpose != Purpose::WarmUp && (is_below || !entry.is_short(plan))
    };
    let points: Vec<(f64, f64)> = valid
        .iter()
        .filter(shows)
        .filter_map(|entry| {
            let http = entry.trial.http().filter(|http| http.counts.completed > 0)?;
            Some((entry.load?, http.response_time.percentile(0.99).value / 1e3))
        })
        .filter(|(load, p99_us)| *load > 0.0 && *p99_us > 0.0)
        .collect();
    search::knee(&points).map(|(load, response_p99_us)| Knee { load, response_p99_us })
}

/// The smallest load that is known not to be carried: it missed the goal, or the generator could not make it.
fn beyond_answer(goal: &GoalOutcome) -> Option<f64> {
    match goal.kind {
        BoundKind::GeneratorBound { at } => Some(at),
        _ => goal.upper.as_ref().map(|bound| bound.load),
    }
}

fn summaries(plan: &StudyPlan, valid: &[&TrialEntry]) -> Vec<QuantitySummary> {
    let confidence = Confidence::new(0.95).expect("it lies between 0 and 1");
    let of = |quantity: &Quantity| {
        let measured: Vec<Span> = valid.iter().map(|entry| quantity.read(entry)).collect::<Option<_>>()?;
        let at = |end: fn(&Span) -> f64| measured.iter().map(end).collect::<Vec<f64>>();
        let values = at(|span| span.value);
        let is_wide = measured.iter().any(Span::is_wide);
        let summary = summarize(&values, confidence).ok()?;
        // The interval reaches from the low end for the smallest possible values to the high end for the largest possible values.
        let low = summarize(&at(|span| span.least), confidence).ok()?.low;
        let high = summarize(&at(|span| span.most), confidence).ok()?.high;
        Some(QuantitySummary {
            quantity: quantity.name.clone().into_owned(),
            at_least: measured.iter().any(|measured| measured.at_least),
            ends: measured.iter().filter(|_| is_wide).map(|span| [span.least, span.most]).collect(),
            mean: Some(values.iter().sum::<f64>() / values.len() as f64),
            values,
            median: summary.median,
            low,
            high,
            confidence: summary.confidence,
            warnings: summary.warnings,
        })
    };
    quantities(plan).iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests;
