//! Whether a generator that was late says anything against what a trial showed.

use record::{AuditResult, Goal, GoalQuantity, Trial, Validity, VoidReason, VoidRule, Warning};

/// A trial that is void for lateness or for a shared processor alone, and met every goal in spite of it, is valid:
/// response times count from when requests were due, so that the lateness is part of those that met the goals, and the
/// bursts that follow it made the load harder, not easier. One that did not meet them stays void: that may have been
/// the reason. Lateness is forgiven only where one of the goals is on response times: else it is part of nothing that was
/// asked.
pub fn forgive(trial: &mut Trial, audit: Option<&AuditResult>, goals: &[Goal]) {
    let timed = goals.iter().any(|goal| matches!(goal.quantity, GoalQuantity::ResponseTime { .. }));
    let is_forgivable = |reason: &VoidReason| match reason.rule {
        VoidRule::Late => timed,
        rule => rule == VoidRule::ProcessorShared,
    };
    let reasons = trial.validity.reasons();
    let met =
        !goals.is_empty() && goals.iter().all(|goal| goal.loss_ratio_of(trial, audit) <= goal.loss_ratio);
    if met && !reasons.is_empty() && reasons.iter().all(is_forgivable) {
        let late = reasons.iter().find(|reason| reason.rule == VoidRule::Late);
        let Some(evidence) = late.map(|reason| reason.evidence.clone()) else {
            // The warning that processors are shared is there already.
            trial.validity = Validity::Valid;
            return;
        };
        trial.validity = Validity::Valid;
        trial.warnings.push(Warning::new(
            "late_and_met",
            format!(
                "the goals were met although the generator was late, which is part of the response times; without goals \
                 this trial would be void: {evidence}"
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::{Circumstances, Host, HttpWorkload, Part, conclude};

    fn trial(response_ms: u64, rules: &[VoidRule]) -> Trial {
        let host = Host {
            hard_descriptors: 20_000,
            ports: 28_232,
            available_memory_bytes: 1 << 34,
            cpus: 2,
            tasks: 30_000,
        };
        let workload = HttpWorkload { url: "127.0.0.1:1".to_owned(), ..HttpWorkload::default() };
        let circumstances = Circumstances {
            started_unix_s: 0.0,
            command: Vec::new(),
            version: String::new(),
            series: Vec::new(),
        };
        let mut trial = conclude(workload.plan(&host).unwrap(), Part::default(), circumstances);
        trial.counts.scheduled = 100;
        trial.response_time.observed.record_n_ns(response_ms * 1_000_000, 100);
        let reason = |&rule: &VoidRule| VoidReason { rule, evidence: "so it was".to_owned() };
        trial.validity = Validity::from_reasons(rules.iter().map(reason).collect());
        trial
    }

    #[test]
    fn lateness_is_forgiven_only_where_it_cannot_have_helped() {
        let goals = [Goal::response_time(0.99, 10_000_000), Goal::errors(0.0)];
        let valid_after = |mut trial: Trial, goals: &[Goal]| {
            forgive(&mut trial, None, goals);
            !trial.validity.is_void()
        };
        assert!(valid_after(trial(9, &[VoidRule::Late]), &goals), "met in spite of it");
        assert!(!valid_after(trial(11, &[VoidRule::Late]), &goals), "not met, perhaps because of it");
        assert!(!valid_after(trial(9, &[VoidRule::Late]), &[]), "nothing was asked");
        assert!(!valid_after(trial(9, &[VoidRule::Late]), &[Goal::errors(0.0)]), "no time was asked about");
        assert!(!valid_after(trial(9, &[VoidRule::Late, VoidRule::CpuExhausted]), &goals), "not it alone");
        assert!(
            valid_after(trial(9, &[VoidRule::Late, VoidRule::ProcessorShared]), &goals),
            "the same cause"
        );
        assert!(
            valid_after(trial(9, &[VoidRule::ProcessorShared]), &[Goal::errors(0.0)]),
            "no error in spite of it"
        );
        assert!(
            !valid_after(trial(11, &[VoidRule::ProcessorShared]), &goals),
            "not met, perhaps because of it"
        );
        assert!(!valid_after(trial(9, &[VoidRule::Accounting]), &goals), "something else");
    }
}
