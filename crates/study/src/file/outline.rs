//! What a study says for all of its settings.

use std::{ops::Range, time::Duration};

use settings::{Reader, Table};
use toml::de::DeTable;

use super::{
    factors::Factors,
    goals::{self, GoalRead},
    searches::{self, SearchRead, read_duration},
};
use crate::study::{Fresh, TrialShape};

/// Time that is waited for a target's connections to be gone unless the study says another.
const SETTLE: Duration = Duration::from_secs(10);

/// All that does not depend on levels.
pub(super) struct Outline<'d> {
    pub(super) title: String,
    pub(super) seed: u64,
    pub(super) budget: Option<Duration>,
    pub(super) factors: Factors<'d>,
    /// Whether the factors themselves are without mistakes.
    pub(super) has_sound_factors: bool,
    pub(super) goals: Vec<GoalRead>,
    pub(super) trial: TrialShape,
    /// How long a trial at the workload's own load lasts, and where that stands.
    pub(super) duration: Option<(Duration, Range<usize>)>,
    pub(super) search: Option<SearchRead<'d>>,
}

impl<'d> Outline<'d> {
    pub(super) fn read(reader: &mut Reader<'_>, tree: &'d DeTable<'d>) -> Self {
        let mut table = Table::of(tree, 0..0);
        let title = table.take("title").and_then(|value| reader.text(value)).unwrap_or_default().to_owned();
        let seed = table.take("seed").and_then(|value| reader.whole(value, 0..1 << 53)).unwrap_or(1);
        let budget = table.take("budget").and_then(|value| {
            let budget = reader.time(value)?;
            if budget.is_zero() {
                reader.mistake(value.span(), "no trial begins within no time; give a budget such as \"10m\"");
            }
            Some(budget)
        });
        // Read for every setting.
        for key in ["hosts", "links", "processes", "targets", "workload", "audit"] {
            table.take(key);
        }
        let begun = reader.mistakes();
        let factors = Factors::read(reader, &mut table);
        let has_sound_factors = reader.mistakes() == begun;
        let (trial, duration) = read_trial(reader, &mut table);
        let length = duration.as_ref().map(|(duration, _)| *duration);
        let search = searches::read(reader, &mut table, &factors, length);
        let goals = goals::read(reader, &mut table);
        table.finish(reader);
        if let Some(search) = tree.get("search")
            && !tree.contains_key("goals")
        {
            reader.mistake(
                search.span(),
                "a search needs at least one goal, such as [[goals]] with p99 = \"10ms\"",
            );
        }
        for goal in goals.iter().filter(|goal| goal.goal.quantity.is_audited()) {
            if !tree.contains_key("audit") {
                let message = "only an audit can tell: add a table [audit], and events to [workload.http]";
                reader.mistake(goal.span.clone(), message);
            }
        }
        Self { title, seed, budget, factors, has_sound_factors, goals, trial, duration, search }
    }
}

type Length = Option<(Duration, Range<usize>)>;

fn read_trial<'d>(reader: &mut Reader<'_>, table: &mut Table<'d, 'd>) -> (TrialShape, Length) {
    let mut shape = TrialShape {
        repeats: 1,
        warm_up: None,
        pause: Duration::ZERO,
        settle: SETTLE,
        fresh: Fresh::Setting,
        void_attempts: 3,
    };
    let Some(value) = table.take("trial") else { return (shape, None) };
    let mut table = reader.table(value, "a table [trial]");
    if let Some(repeats) = table.take("repeats").and_then(|value| reader.whole(value, 1..1_001)) {
        shape.repeats = repeats as u32;
    }
    let duration =
        table.take("duration").and_then(|value| Some((read_duration(reader, value)?, value.span())));
    let warm_up = table.take("warm_up").and_then(|value| reader.time(value));
    shape.warm_up = warm_up.filter(|warm_up| !warm_up.is_zero());
    if let Some(pause) = table.take("pause").and_then(|value| reader.time(value)) {
        shape.pause = pause;
    }
    if let Some(settle) = table.take("settle").and_then(|value| reader.time(value)) {
        shape.settle = settle;
    }
    if let Some(value) = table.take("fresh")
        && let Some(text) = reader.text(value)
    {
        match text {
            "setting" => shape.fresh = Fresh::Setting,
            "trial" | "hosts" => shape.fresh = Fresh::Trial,
            _ => {
                let message = format!(
                    "'{text}' does not say when hosts and targets are new; one of \"setting\" (whenever the setting \
                     changes), \"trial\""
                );
                reader.mistake(value.span(), message);
            }
        }
    }
    if let Some(attempts) = table.take("void_attempts").and_then(|value| reader.whole(value, 0..101)) {
        shape.void_attempts = attempts as u32;
    }
    table.finish(reader);
    (shape, duration)
}
