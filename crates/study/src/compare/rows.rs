//! The values of two settings, and their comparison.

use record::{
    BoundKind, Confirmation, Quantity, QuantitySummary, SearchOutcome, Setting, SettingOutcome, Warning,
};
use search::statistics::{self, Better, Question, Runs, Scale, Verdict, compare_all};

use super::{CompareError, CompareOptions, Gate, Row, Side};

const LOWER_BOUND: &str = "lower_bound";

/// Two settings whose quantities are compared.
pub(super) struct Pair<'a> {
    name: String,
    a: Option<&'a SettingOutcome>,
    b: Option<&'a SettingOutcome>,
    /// Number of blocks if A and B ran alternately; `None` if they ran separately.
    blocks: Option<usize>,
}

/// The values of one quantity in both settings.
#[derive(Clone)]
pub(super) struct Values {
    setting: String,
    quantity: String,
    goal: Option<String>,
    better: Better,
    scale: Scale,
    a: Vec<f64>,
    b: Vec<f64>,
    /// The extreme cases if values are intervals: all of A smallest and all of B largest, and the reverse.
    extremes: Option<[(Vec<f64>, Vec<f64>); 2]>,
    in_blocks: bool,
    /// Whether the true values of A or of B may be larger than the measured ones.
    at_least: (bool, bool),
}

impl<'a> Pair<'a> {
    /// The same setting of two results.
    pub(super) fn of_two_results(setting: &Setting, a: (Side<'a>, usize), b: (Side<'a>, usize)) -> Self {
        Self { name: setting.name.clone(), a: outcome(a.0, a.1), b: outcome(b.0, b.1), blocks: None }
    }

    /// Two settings of one result that differ in one factor.
    pub(super) fn of_one_result(side: Side<'a>, factor: &str, a: usize, b: usize) -> Self {
        let others = side.plan.settings[a].levels.iter().filter(|(name, _)| *name != factor);
        let name = others.map(|(name, level)| format!("{name}={level}")).collect::<Vec<_>>().join(" ");
        Self { name, a: outcome(side, a), b: outcome(side, b), blocks: Some(side.plan.blocks.len()) }
    }

    /// The values of every quantity that both settings have.
    pub(super) fn values(
        &self,
        quantities: &[Quantity],
        wanted: &[String],
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<Values>, CompareError> {
        let names = quantities.iter().map(|quantity| quantity.name.clone().into_owned());
        let known: Vec<String> = names.chain([LOWER_BOUND.to_owned()]).collect();
        if let Some(name) = wanted.iter().find(|name| !known.contains(name)) {
            return Err(CompareError::Quantity { name: name.clone(), known });
        }
        // Without a choice, the default quantities are compared.
        let is_wanted = |name: &str, by_default: bool| match wanted {
            [] => by_default,
            wanted => wanted.iter().any(|wanted| wanted == name),
        };
        let is_compared = |quantity: &Quantity| {
            is_wanted(&quantity.name, quantity.column.as_ref().is_some_and(|column| column.is_compared))
        };
        let (Some(a), Some(b)) = (self.a, self.b) else { return Ok(Vec::new()) };
        let other_loads = self.other_loads(a, b);
        let is_fair = other_loads.is_none();
        warnings.extend(other_loads);
        let mut values = Vec::new();
        for quantity in quantities.iter().filter(|quantity| is_fair && is_compared(quantity)) {
            let of = |outcome: &'a SettingOutcome| {
                summaries(outcome).iter().find(|summary| summary.quantity == quantity.name)
            };
            if let (Some(of_a), Some(of_b)) = (of(a), of(b)) {
                let (a, b) = (of_a.values.clone(), of_b.values.clone());
                let is_wide = !of_a.ends.is_empty() || !of_b.ends.is_empty();
                let extremes = [false, true].map(|most| (of_a.at_end(most), of_b.at_end(!most)));
                // Values are in the order of the blocks. With one value per block, a value's index is its block.
                let in_blocks = self.blocks.is_some_and(|blocks| a.len() == blocks && b.len() == blocks);
                values.push(Values {
                    setting: self.name.clone(),
                    quantity: quantity.name.clone().into_owned(),
                    goal: None,
                    better: if quantity.more_is_better { Better::More } else { Better::Less },
                    scale: if quantity.may_be_zero { Scale::Difference } else { Scale::Ratio },
                    a,
                    b,
                    extremes: is_wide.then_some(extremes),
                    in_blocks,
                    at_least: (of_a.at_least, of_b.at_least),
                });
            }
        }
        if is_wanted(LOWER_BOUND, true) {
            values.extend(self.lower_bounds(a, b, warnings));
        }
        Ok(values)
    }

    /// Warns that the confirmations of two searches ran at different loads, and leaves them uncompared: the loads explain the difference,
    /// and one search of each says nothing about chance.
    fn other_loads(&self, a: &SettingOutcome, b: &SettingOutcome) -> Option<Warning> {
        let (a, b) = (confirmation(a)?, confirmation(b)?);
        (a.load != b.load).then(|| {
            let prefix = if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) };
            Warning::new(
                "other_load",
                format!(
                    "{prefix}the further trials of A ran at {}, those of B at {}, so they are not compared; measure both at one \
                     load (proofload http --rate or a study without a search)",
                    a.load, b.load
                ),
            )
        })
    }

    fn lower_bounds(
        &self,
        a: &SettingOutcome,
        b: &SettingOutcome,
        warnings: &mut Vec<Warning>,
    ) -> Vec<Values> {
        let goals = a.searches.first().map_or(0, |search| search.goals.len());
        let both = (0..goals).filter_map(|goal| {
            let name = a.searches.first()?.goals[goal].goal.clone();
            let (of_a, of_b) = (Bounds::of(&a.searches, &name), Bounds::of(&b.searches, &name));
            if of_a.left_out + of_b.left_out > 0 {
                warnings.push(Warning::new(
                    "searches_left_out",
                    format!(
                        "{name}: {} searches of A and {} of B found no lower bound and are left out",
                        of_a.left_out, of_b.left_out
                    ),
                ));
            }
            let in_blocks = self.blocks.is_some() && of_a.blocks == of_b.blocks;
            Some(Values {
                setting: self.name.clone(),
                quantity: LOWER_BOUND.to_owned(),
                goal: Some(name),
                better: Better::More,
                scale: Scale::Ratio,
                a: of_a.loads,
                b: of_b.loads,
                extremes: None,
                in_blocks,
                at_least: (of_a.at_least, of_b.at_least),
            })
        });
        both.filter(|values| !values.a.is_empty() && !values.b.is_empty()).collect()
    }
}

/// Summaries of the repeats of a setting or, if it was searched once, of the confirmations at its lower bound.
fn summaries(outcome: &SettingOutcome) -> &[QuantitySummary] {
    match &outcome.searches[..] {
        [_] => confirmation(outcome).map_or(&[], |confirmed| &confirmed.summaries),
        _ => &outcome.summaries,
    }
}

fn confirmation(outcome: &SettingOutcome) -> Option<&Confirmation> {
    match &outcome.searches[..] {
        [search] => search.confirmation.as_ref(),
        _ => None,
    }
}

/// The lower bounds that searches found for a goal.
#[derive(Default)]
struct Bounds {
    loads: Vec<f64>,
    blocks: Vec<usize>,
    at_least: bool,
    left_out: usize,
}

impl Bounds {
    fn of(searches: &[SearchOutcome], goal: &str) -> Self {
        let mut bounds = Self::default();
        for search in searches {
            let Some(found) = search.goals.iter().find(|found| found.goal == goal) else { continue };
            match (&found.lower, &found.kind) {
                (Some(lower), kind) if *kind != BoundKind::Unfinished => {
                    bounds.loads.push(lower.load);
                    bounds.blocks.push(search.block);
                    bounds.at_least |= matches!(
                        kind,
                        BoundKind::AtLeast | BoundKind::GeneratorBound { .. } | BoundKind::Disputed
                    );
                }
                _ => bounds.left_out += 1,
            }
        }
        bounds
    }
}

/// Compares all quantities as one family. If values are intervals, a difference must show at both extremes: all values of A at one end of
/// their intervals and all values of B at the opposite end. Two extremes suffice because ranks change monotonically with each value.
pub(super) fn judge(values: Vec<Values>, options: &CompareOptions, warnings: &mut Vec<Warning>) -> Vec<Row> {
    let is_wide = values.iter().any(|values| values.extremes.is_some());
    let mut rows = judge_values(values.clone(), options, warnings);
    for end in [0, 1].into_iter().filter(|_| is_wide) {
        let mut at_end = values.clone();
        for values in &mut at_end {
            if let Some(extremes) = values.extremes.take() {
                (values.a, values.b) = extremes[end].clone();
            }
        }
        let others = judge_values(at_end, options, &mut Vec::new());
        for row in &mut rows {
            let is_same = |other: &&Row| {
                (&other.setting, &other.quantity, &other.goal) == (&row.setting, &row.quantity, &row.goal)
            };
            row.hold_against(others.iter().find(is_same), options);
        }
    }
    rows
}

impl Row {
    /// Withdraws a verdict that the values at the other extreme do not confirm.
    fn hold_against(&mut self, other: Option<&Self>, options: &CompareOptions) {
        // The two scales differ, so an interval of a difference cannot widen one of a ratio.
        let other = other.filter(|other| other.statistics.scale == self.statistics.scale);
        if let Some(other) = other {
            self.statistics.low = self.statistics.low.min(other.statistics.low);
            self.statistics.high = self.statistics.high.max(other.statistics.high);
        }
        if other.map(|other| other.statistics.verdict) != Some(self.statistics.verdict) {
            self.statistics.verdict = Verdict::CannotTell;
            let why = "the verdict depends on how much this machine itself changed the figures; measure on a quieter \
                       machine, or give the generator processors of its own (--cpus)";
            if self.statistics.warnings.iter().all(|warning| warning.code != "interval") {
                self.statistics.warnings.push(Warning::new("interval", why));
            }
        }
        self.gate = options.fail_if_worse.map(|limit| Gate::of(&self.statistics, limit));
    }
}

/// Compares values as exact numbers, ignoring their intervals.
fn judge_values(mut values: Vec<Values>, options: &CompareOptions, warnings: &mut Vec<Warning>) -> Vec<Row> {
    for values in &mut values {
        if values.a.iter().chain(&values.b).any(|value| *value <= 0.0) {
            values.scale = Scale::Difference;
        }
    }
    // A quantity that is equal in all runs of A and B cannot show a difference, so it does not count in the family: R. E.
    // Tarone, "A modified Bonferroni method for discrete data", 1990.
    let (same, family): (Vec<&Values>, Vec<&Values>) = values.iter().partition(|values| values.is_constant());
    let questions: Vec<Question> = family.iter().map(|values| values.question()).collect();
    let mut answers = compare_all(&questions, options.confidence).into_iter();
    let mut constant = same.iter().map(|values| statistics::compare(values.question(), options.confidence));
    let mut rows = Vec::new();
    for values in &values {
        let answer = if values.is_constant() { constant.next() } else { answers.next() };
        match answer.expect("every quantity has one answer") {
            Ok(statistics) => rows.push(values.row(statistics, options)),
            Err(refusal) => warnings.push(Warning::new(
                "not_compared",
                format!("{} {} is not compared: {refusal}", values.setting, values.quantity),
            )),
        }
    }
    rows
}

impl Values {
    fn is_constant(&self) -> bool {
        self.a.iter().chain(&self.b).all(|value| *value == self.a[0])
    }

    fn question(&self) -> Question<'_> {
        let (a, b) = (&self.a[..], &self.b[..]);
        let runs = if self.in_blocks { Runs::Blocks { a, b } } else { Runs::Separate { a, b } };
        Question { runs, better: self.better, scale: self.scale }
    }

    fn row(&self, mut statistics: statistics::Comparison, options: &CompareOptions) -> Row {
        // If a search was too small to find the target's limit, the target may be better than measured. If requests were given up, their
        // true times are longer, so the target may be worse.
        let (a_open, b_open) = self.at_least;
        let (loser_open, winner_open, why) = match self.better {
            Better::More => (
                true,
                false,
                "a search reached its largest load, the generator had no more to give, or a link stalled, so the target may carry more; \
                 search to a larger load, or give generator and links more processors",
            ),
            Better::Less => (
                false,
                true,
                "some requests were given up, so their true times are longer than measured; raise the timeout and drain, or \
                 lower the load",
            ),
        };
        let open = match statistics.verdict {
            Verdict::ABetter => (winner_open && a_open) || (loser_open && b_open),
            Verdict::BBetter => (winner_open && b_open) || (loser_open && a_open),
            Verdict::NoDifferenceShown => a_open || b_open,
            Verdict::CannotTell => false,
        };
        if open {
            statistics.verdict = Verdict::CannotTell;
            statistics.warnings.push(Warning::new("at_least", why));
        }
        let median = |values: &[f64]| {
            statistics::Sample::new(values).expect("the comparison has taken these values").median()
        };
        Row {
            setting: self.setting.clone(),
            quantity: self.quantity.clone(),
            goal: self.goal.clone(),
            a: self.a.clone(),
            b: self.b.clone(),
            a_median: median(&self.a),
            b_median: median(&self.b),
            gate: options.fail_if_worse.map(|limit| Gate::of(&statistics, limit)),
            statistics,
        }
    }
}

fn outcome(side: Side<'_>, setting: usize) -> Option<&SettingOutcome> {
    side.result.outcomes.iter().find(|outcome| outcome.setting == setting)
}
