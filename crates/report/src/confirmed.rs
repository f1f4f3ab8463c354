//! Confirmations (further trials at the lower bounds) and the totals of audits.

use std::iter::once;

use record::{AuditTotals, Confirmation, Quantity};

use crate::{Results, Status, bounded::SettingTable, setting::outcome, text};

/// Column titles of [`Confirmed::rows`].
pub(crate) const HEADER: [&str; 3] = ["quantity", "median", "mean"];

/// Column titles of [`Audited::row`].
pub(crate) const AUDIT_HEADER: [&str; 8] =
    ["audit", "acknowledged", "stored", "lost", "duplicated", "corrupt", "never sent", "misplaced"];

/// Further trials at the lower bound of a search.
pub(crate) struct Confirmed<'a> {
    /// Index of the setting.
    pub setting: usize,
    /// The block of the search; `None` if it is the only one.
    pub block: Option<usize>,
    /// The confirmation in the result.
    pub found: &'a Confirmation,
    results: &'a Results,
}

/// The confirmations of all searches.
pub(crate) fn confirmed(results: &Results) -> Vec<Confirmed<'_>> {
    let confirmations_of = |setting: usize| {
        let searches = results.searches_of(setting);
        let several = searches.len() > 1;
        searches.iter().filter_map(move |search| {
            let found = search.confirmation.as_ref()?;
            Some(Confirmed { setting, block: several.then_some(search.block), found, results })
        })
    };
    (0..results.plan.settings.len()).flat_map(confirmations_of).collect()
}

impl Confirmed<'_> {
    /// Whether the further trials met the goals.
    pub(crate) fn status(&self) -> Status {
        let Confirmation { valid, planned, met, .. } = self.found;
        let counts_as_met = |(goal, met): (usize, &u32)| {
            self.results.plan.counts_as_met(goal, *met as usize, *valid as usize)
        };
        match valid {
            0 => Status::Unfinished,
            _ if !met.iter().enumerate().all(counts_as_met) => Status::NotMet,
            valid if valid < planned => Status::Unfinished,
            _ => Status::Met,
        }
    }

    /// The result in words: `6 of 6 further trials at the lower bound, 128 users, were valid; goals met: no errors in
    /// 6, p99 ≤ 10 ms in 5`.
    pub(crate) fn sentence(&self) -> String {
        let Confirmation { load, valid, planned, met, .. } = self.found;
        let unit = self.results.plan.search_of(self.setting).map(|search| &search.unit);
        let load = unit.map_or_else(|| text::number(*load), |unit| unit.show(*load));
        let goals = self.results.plan.goals.iter().zip(met);
        let goals: Vec<String> = goals.map(|(goal, met)| format!("{} in {met}", goal.name)).collect();
        let has_goals = *valid > 0 && !goals.is_empty();
        let goals = if has_goals { format!("; goals met: {}", goals.join(", ")) } else { String::new() };
        format!(
            "{valid} of {planned} further trials at the lower bound, {load}, {} valid{goals}",
            if *valid == 1 { "was" } else { "were" }
        )
    }

    /// A row for each quantity: its name, its median with interval, its mean.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let quantities = self.results.quantities();
        let known = quantities.iter().filter_map(|Quantity { name, words, .. }| {
            let summary = self.found.summaries.iter().find(|summary| summary.quantity == *name)?;
            let mean = text::value(name, summary.mean_span());
            Some(vec![text::printable(words), text::interval(summary, summary.at_least), mean])
        });
        known.collect()
    }

    /// The smallest confidence of the intervals; `None` if there are no intervals.
    pub(crate) fn confidence(&self) -> Option<String> {
        let with_interval = self.found.summaries.iter().filter(|summary| summary.values.len() > 1);
        with_interval.map(|summary| summary.confidence).min_by(f64::total_cmp).map(text::confidence)
    }
}

/// The audits of a setting's trials.
pub(crate) struct Audited {
    /// Index of the setting.
    pub setting: usize,
    /// The sum of all audits.
    pub totals: AuditTotals,
}

/// The audits of all settings.
pub(crate) fn audited(results: &Results) -> Vec<Audited> {
    let audits_of = |setting| Some(Audited { setting, totals: outcome(results, setting)?.audit? });
    (0..results.plan.settings.len()).filter_map(audits_of).collect()
}

/// The audits of all settings by their names, if there are any.
pub(crate) fn audit_table(results: &Results) -> Option<SettingTable> {
    let row = |audited: Audited| once(results.setting_name(audited.setting)).chain(audited.row()).collect();
    let rows: Vec<Vec<String>> = audited(results).into_iter().map(row).collect();
    (!rows.is_empty()).then(|| (once("setting").chain(AUDIT_HEADER).collect(), rows))
}

impl Audited {
    /// Whether every acknowledged event is stored once and intact.
    pub(crate) fn status(&self) -> Status {
        if self.totals.is_clean() { Status::Met } else { Status::NotMet }
    }

    /// The cells of the table: `✓ 8 trials` and the counts.
    pub(crate) fn row(&self) -> Vec<String> {
        let totals = &self.totals;
        let trials = text::counted(totals.trials as usize, "trial");
        let counts = [
            totals.acknowledged,
            totals.stored,
            totals.lost,
            totals.duplicated,
            totals.corrupt,
            totals.never_sent,
            totals.wrong_places,
        ];
        let head = format!("{} {trials}", self.status().sign());
        once(head).chain(counts.map(record::units::show_count)).collect()
    }

    /// The counts in words.
    pub(crate) fn sentence(&self) -> String {
        let head = AUDIT_HEADER.iter().skip(1).zip(self.row().into_iter().skip(1));
        let counts: Vec<String> = head.map(|(name, count)| format!("{count} {name}")).collect();
        format!("audit of {}: {}", text::counted(self.totals.trials as usize, "trial"), counts.join(", "))
    }
}
