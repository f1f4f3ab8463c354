//! The outline of a study: the parts that are the same for all settings.

use std::{ops::Range, time::Duration};

use kernel::remote::Destination;
use record::GoalQuantity;
use settings::{Reader, Table, Value};
use toml::de::DeTable;

use super::{
    actions, balancers,
    factors::Factors,
    goals::{self, ParsedGoal},
    keys::{TRIAL_KEYS, TrialKeys},
    searches::{self, ParsedSearch},
};
use crate::{kernels, study::TrialShape};

/// The parts of a study that do not depend on levels.
pub(super) struct Outline<'d> {
    pub(super) title: String,
    pub(super) seed: u64,
    pub(super) budget: Option<Duration>,
    pub(super) factors: Factors<'d>,
    /// Whether the factors have no mistakes.
    pub(super) has_valid_factors: bool,
    pub(super) goals: Vec<ParsedGoal>,
    pub(super) trial: TrialShape,
    pub(super) observe: Vec<Destination>,
    /// Duration of a trial at the workload's own load, and its span in the file.
    pub(super) duration: Option<(Duration, Range<usize>)>,
    /// Whether processor time is requested, by its key or by a goal.
    pub(super) books_time: bool,
    pub(super) search: Option<ParsedSearch<'d>>,
}

impl<'d> Outline<'d> {
    pub(super) fn read(reader: &mut Reader<'_>, tree: &'d DeTable<'d>) -> Self {
        let mut table = Table::new(tree, 0..0);
        let title = table.take("title").and_then(|value| reader.text(value)).unwrap_or_default().to_owned();
        let seed = table.take("seed").and_then(|value| reader.whole(value, 0..1 << 53)).unwrap_or(1);
        let budget = table.take("budget").and_then(|value| {
            let budget = reader.time(value)?;
            if budget.is_zero() {
                reader.mistake(value.span(), "a budget of 0 allows no trial; give one such as \"10m\"");
            }
            Some(budget)
        });
        let observe = table.take("observe").map_or_else(Vec::new, |value| read_observe(reader, value));
        // Skip these tables: the resolver reads them for every setting.
        for key in [
            "hosts",
            "tuning",
            "links",
            "processes",
            "targets",
            balancers::NAME,
            actions::NAME,
            "workload",
            "audit",
        ] {
            table.take(key);
        }
        let mistakes_before = reader.mistake_count();
        let factors = Factors::read(reader, &mut table);
        let has_valid_factors = reader.mistake_count() == mistakes_before;
        let (trial, duration, has_time_key) = read_trial(reader, &mut table);
        let length = duration.as_ref().map(|(duration, _)| *duration);
        let search = searches::read(reader, &mut table, &factors, length);
        let goals = goals::read(reader, &mut table);
        let books_time = has_time_key || bounds_time(&goals);
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
                let message =
                    "only an audit measures this: add a table [audit], and 'events' to [workload.http]";
                reader.mistake(goal.span.clone(), message);
            }
        }
        Self {
            title,
            seed,
            budget,
            factors,
            has_valid_factors,
            goals,
            trial,
            observe,
            duration,
            books_time,
            search,
        }
    }
}

fn read_observe(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<Destination> {
    let hosts = reader.array(value, "a list of hosts to log in to, such as [\"admin@web1\"]").iter();
    hosts.filter_map(|host| reader.text(host).and_then(|text| reader.checked(host, text.parse()))).collect()
}

/// Whether a goal bounds processor time.
fn bounds_time(goals: &[ParsedGoal]) -> bool {
    goals.iter().any(|goal| match &goal.goal.quantity {
        GoalQuantity::Declared { quantity, .. } => kernels::is_processor_time(quantity),
        _ => false,
    })
}

type Length = Option<(Duration, Range<usize>)>;

fn read_trial<'d>(reader: &mut Reader<'_>, table: &mut Table<'d, 'd>) -> (TrialShape, Length, bool) {
    let (mut keys, mut length) = (TrialKeys::default(), None);
    if let Some(value) = table.take("trial") {
        let mut table = reader.table(value, "a table [trial]");
        for spec in TRIAL_KEYS {
            let Some(value) = table.take(spec.key) else { continue };
            reader.apply(spec, value, &mut keys);
            if spec.key == "duration" {
                length = keys.duration.map(|duration| (duration, value.span()));
            }
        }
        table.finish(reader);
    }
    (keys.shape, length, keys.processor_time)
}
