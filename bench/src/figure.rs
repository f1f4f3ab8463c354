//! Figures of several tools over several rounds, and how they compare.

use proofload_tests::stats::{median, quantile_ranks, spread};

/// A figure of several tools.
#[derive(Debug)]
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    more_is_better: bool,
    /// The values of each tool, one per round; `None` if the run is not usable.
    values: Vec<(&'static str, Vec<Option<f64>>)>,
}

impl Figure {
    /// A figure without values, of which less is better.
    pub(crate) fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Self { name: name.into(), unit, more_is_better: false, values: Vec::new() }
    }

    /// A figure without values, of which more is better.
    pub(crate) fn more_is_better(name: impl Into<String>, unit: &'static str) -> Self {
        Self { more_is_better: true, ..Self::new(name, unit) }
    }

    /// Adds a tool's value of the next round.
    pub(crate) fn push(&mut self, tool: &'static str, value: Option<f64>) {
        match self.values.iter_mut().find(|(name, _)| *name == tool) {
            Some((_, values)) => values.push(value),
            None => self.values.push((tool, vec![value])),
        }
    }

    /// The medians of all tools, and comparisons of ours with the best peer and with wrk.
    pub(crate) fn lines(&self) -> String {
        let mut medians: Vec<_> =
            self.values.iter().map(|(tool, values)| (*tool, usable_median(values))).collect();
        medians.sort_by(|a, b| a.1.total_cmp(&b.1));
        if self.more_is_better {
            medians.reverse();
        }
        let all = medians.iter().map(|(tool, value)| format!("{tool} {}", self.shown(*value)));
        let mut text = format!("medians {}: {}\n", self.name, all.collect::<Vec<_>>().join(", "));
        let best = medians.iter().find(|(tool, value)| *tool != "ours" && value.is_finite());
        if let Some((peer, _)) = best {
            text += &self.comparison(&self.name, peer);
        }
        text += &self.comparison(&format!("{}-vs-wrk", self.name), "wrk");
        text
    }

    fn comparison(&self, name: &str, peer: &str) -> String {
        let values_of =
            |tool: &str| self.values.iter().find(|(name, _)| *name == tool).map(|(_, values)| values);
        let Some(theirs) = values_of(peer) else { return String::new() };
        let best = self.shown(usable_median(theirs));
        let Some(ours) = values_of("ours") else {
            return format!("bench {name} ours=missing best_peer={best} ({peer}) ratio=- spread=-\n");
        };
        let mut ratios: Vec<f64> =
            ours.iter().zip(theirs).filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?)).collect();
        let (low, high) = spread(&ratios);
        let ours = self.shown(usable_median(ours));
        if ratios.is_empty() {
            return format!("bench {name} ours={ours} best_peer={best} ({peer}) ratio=- spread=-\n");
        }
        ratios.sort_by(f64::total_cmp);
        // The interval of the true median of the ratios needs at least six values.
        let (lower, upper) = quantile_ranks(ratios.len() as u64, 0.5, 0.95);
        let interval = match ratios.len() {
            0..6 => String::new(),
            _ => format!(" interval95={:.3}-{:.3}", ratios[lower as usize - 1], ratios[upper as usize - 1]),
        };
        format!(
            "bench {name} ours={ours} best_peer={best} ({peer}) ratio={:.3} spread={low:.3}-{high:.3}{interval}\n",
            median(&ratios)
        )
    }

    fn shown(&self, value: f64) -> String {
        match value {
            v if !v.is_finite() => "void".to_owned(),
            v if v >= 1_000.0 => format!("{v:.0}{}", self.unit),
            v => format!("{v:.2}{}", self.unit),
        }
    }
}

/// The median of the usable rounds; infinite if there are none.
fn usable_median(values: &[Option<f64>]) -> f64 {
    let usable: Vec<f64> = values.iter().copied().flatten().collect();
    if usable.is_empty() { f64::INFINITY } else { median(&usable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_computed_within_rounds() {
        let mut figure = Figure::new("cpu", "us");
        for (ours, wrk, ab) in [(8.0, 10.0, 9.0), (16.0, 20.0, 18.0), (7.0, 10.0, 9.0)] {
            figure.push("ours", Some(ours));
            figure.push("wrk", Some(wrk));
            figure.push("ab", Some(ab));
        }
        figure.push("ab", None);
        assert_eq!(
            figure.lines(),
            "medians cpu: ours 8.00us, ab 9.00us, wrk 10.00us\n\
             bench cpu ours=8.00us best_peer=9.00us (ab) ratio=0.889 spread=0.778-0.889\n\
             bench cpu-vs-wrk ours=8.00us best_peer=10.00us (wrk) ratio=0.800 spread=0.700-0.800\n"
        );
    }

    #[test]
    fn missing_values_are_marked() {
        let mut figure = Figure::new("cpu", "us");
        figure.push("ab", Some(9.0));
        figure.push("oha", None);
        let lines = figure.lines();
        assert!(lines.contains("oha void"), "{lines}");
        assert!(lines.contains("ours=missing best_peer=9.00us (ab) ratio=- spread=-"), "{lines}");
    }
}
