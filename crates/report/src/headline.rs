//! The first sentences of a report, which every format shows.

use record::BoundKind;

use crate::{
    Answer, Results, Status,
    sentence::{failure, goal_name, with_goal},
    text,
};

/// With more answers than this, the headline has one sentence per goal.
const MAX_SENTENCES: usize = 12;

/// The first sentences of a report: one for each goal in each setting or, if there are many, one for each goal.
pub(crate) fn headline(results: &Results, answers: &[Answer]) -> Vec<(Option<Status>, String)> {
    if answers.is_empty() {
        let why = failure(results).map(|why| format!("Not decided: {why}."));
        let is_void = results.trials.iter().all(|entry| entry.trial.validity.is_void());
        let measured = || match is_void {
            true if results.trials.is_empty() => "Nothing was measured: no trial was run.".to_owned(),
            true => "Not decided: every trial was void.".to_owned(),
            false => match nothing_completed(results) {
                Some(why) => format!("Carried nothing: {why}."),
                None => "Measured; the study has no goals.".to_owned(),
            },
        };
        return vec![(is_void.then_some(Status::Void), why.unwrap_or_else(measured))];
    }
    let same = |a: &Answer, b: &Answer| a.setting == b.setting && a.goal == b.goal;
    let mut sentences = Vec::new();
    for of_goal in answers.chunk_by(same) {
        let setting = match results.plan.settings.len() {
            0 | 1 => String::new(),
            _ => format!("{}: ", text::printable(&results.setting_name(of_goal[0].setting))),
        };
        match over_blocks(results, of_goal) {
            Some(sentence) => sentences.push((Some(of_goal[0].status), format!("{setting}{sentence}"))),
            None => sentences.extend(of_goal.iter().map(|answer| {
                let block = answer.block.map(|block| format!("{}: ", text::block(block))).unwrap_or_default();
                (Some(answer.status), format!("{setting}{block}{}", text::printable(&answer.sentence)))
            })),
        }
    }
    if sentences.len() <= MAX_SENTENCES {
        return sentences;
    }
    (0..results.plan.goals.len()).map(|goal| over_settings(results, answers, goal)).collect()
}

/// Why no trial completed a request; `None` if one did.
fn nothing_completed(results: &Results) -> Option<String> {
    let mut trials = results.trials.iter();
    let first = results.trials.first().filter(|_| trials.all(|entry| entry.trial.completed_nothing()))?;
    first.trial.main_failure()
}

/// One sentence for several searches, if all of them found both bounds.
fn over_blocks(results: &Results, answers: &[Answer]) -> Option<String> {
    if answers.len() < 2 {
        return None;
    }
    let outcomes = answers.iter().map(|answer| {
        let search = results.searches_of(answer.setting).iter().find(|s| Some(s.block) == answer.block)?;
        let outcome = search.goals.get(answer.goal).filter(|outcome| outcome.kind == BoundKind::Regular)?;
        Some((outcome.lower.as_ref()?.load, outcome.upper.as_ref()?.load))
    });
    let bounds: Vec<(f64, f64)> = outcomes.collect::<Option<_>>()?;
    let unit = &results.plan.search.as_ref()?.unit;
    let range = |of: fn(&(f64, f64)) -> f64| {
        let (least, most) =
            bounds.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        if least < most { format!("{} to {}", unit.show(least), unit.show(most)) } else { unit.show(most) }
    };
    Some(format!(
        "In {} searches, carries {} and does not carry {} {}.",
        bounds.len(),
        range(|(lower, _)| *lower),
        range(|(_, upper)| *upper),
        with_goal(&results.plan.goals[answers[0].goal])
    ))
}

/// One sentence for a goal over all settings: how many meet it, and which do not.
fn over_settings(results: &Results, answers: &[Answer], goal: usize) -> (Option<Status>, String) {
    let goal_answers: Vec<&Answer> = answers.iter().filter(|answer| answer.goal == goal).collect();
    let met = goal_answers.iter().filter(|answer| answer.status == Status::Met).count();
    let statuses = [Status::NotMet, Status::Void, Status::Unfound, Status::Unfinished];
    let worst =
        statuses.into_iter().find(|status| goal_answers.iter().any(|answer| answer.status == *status));
    let others = statuses.into_iter().filter_map(|status| {
        let mut locations: Vec<String> = goal_answers
            .iter()
            .filter(|answer| answer.status == status)
            .map(|answer| {
                let block = answer.block.map(|block| format!(" {}", text::block(block))).unwrap_or_default();
                format!("{}{block}", text::printable(&results.setting_name(answer.setting)))
            })
            .collect();
        let more = locations.len().saturating_sub(MAX_SENTENCES);
        locations.truncate(MAX_SENTENCES);
        if more > 0 {
            locations.push(format!("{more} more"));
        }
        (!locations.is_empty()).then(|| format!("; {} with {}", status.word(), locations.join(", ")))
    });
    let name = goal_name(&results.plan.goals[goal]);
    let what = if results.plan.search.is_some() { "searches" } else { "settings" };
    let sentence =
        format!("{name}: met in {met} of {} {what}{}.", goal_answers.len(), others.collect::<String>());
    (Some(worst.unwrap_or(Status::Met)), sentence)
}
