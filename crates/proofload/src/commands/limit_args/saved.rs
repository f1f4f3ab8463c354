//! The study file that is equivalent to a command line of `proofload limit`.

use record::OnNoise;
use study::{Source, Study, file::goal_parts};

use super::{
    super::save::{Saved, SavedKey, list, number_of, row, text},
    LimitArgs,
};

impl LimitArgs {
    /// The study file that is equivalent to the command line, whose study is `study`.
    pub(in super::super) fn saved(&self, study: &Study) -> Saved {
        let search = study.search.as_ref().expect("the study searches");
        let mut goals =
            vec![text("errors", self.errors.as_ref()), text("connect_p99", self.connect_p99.as_ref())];
        goals.extend(self.percentiles.0.iter().map(|(percentile, given)| text(percentile.key, Some(given))));
        if goals.iter().all(Option::is_none) && self.other_goals.is_empty() {
            goals[0] = text("errors", Some(study.goals[0].loss_ratio));
        }
        let mut trial: Vec<SavedKey> = self.trial.0.iter().map(row).collect();
        trial.push(text("void_attempts", Some(study.trial.void_attempts)));
        trial.push(text("on_noise", self.noise.on_noise.map(OnNoise::word)));
        let mut keys = vec![
            text("vary", Some(search.unit.name())),
            text("min", Some(search.min)),
            text("max", Some(search.max)),
            text("preset", Some(&search.preset)),
        ];
        let written = ["min", "max", "preset"];
        keys.extend(self.search.0.iter().filter(|(spec, _)| !written.contains(&spec.key)).map(row));
        let workload = match &study.source {
            Source::Fixed(setup) => setup.workload.http().cloned(),
            Source::File(_) => None,
        };
        Saved {
            title: study.title.clone(),
            head: vec![text("budget", self.budget.as_ref()), list("observe", &self.observe.observe)],
            workload: workload.expect("the command makes HTTP load"),
            tables: [("[trial]", trial), ("[search]", keys), ("[[goals]]", goals)]
                .into_iter()
                .chain(self.other_goals.iter().map(|goal| ("[[goals]]", other_goal(goal))))
                .collect(),
        }
    }
}

/// The keys of a goal of `--goal`, which has already been parsed successfully.
fn other_goal(goal: &str) -> Vec<SavedKey> {
    let (name, bound) = goal_parts(goal).unwrap_or_default();
    let number = bound.replace('_', "");
    let at_most = match number.parse::<f64>() {
        Ok(_) => number_of("at_most", number),
        Err(_) => text("at_most", Some(bound)),
    };
    vec![text("quantity", Some(name)), at_most]
}
