//! The effect of `--on-noise void` on a trial whose figures are intervals.

use record::{HttpTrial, OnNoise, Trial, VoidReason, VoidRule};

/// The reason why a trial of HTTP requests is void under [`OnNoise::Void`]: a figure is not a single value. `None` for other trials, and
/// for a trial that is already void and has no goals that could revoke its void reasons.
pub(crate) fn widened(trial: &Trial, on_noise: OnNoise) -> Option<VoidReason> {
    let http = trial.http().filter(|http| on_noise == OnNoise::Void && is_widened(http))?;
    if trial.validity.is_void() && http.plan.decides.is_none() {
        return None;
    }
    let (rule, code) = match http.is_exhausted() {
        true => (VoidRule::CpuExhausted, "cpu_exhausted"),
        false => (VoidRule::Late, "generator_away"),
    };
    let why = trial.told(code).map(str::to_owned);
    let why = why.unwrap_or_else(|| load::soundness_in_words(http, trial.elapsed_s));
    let evidence = format!("noise turned figures into intervals, which --on-noise void refuses: {why}");
    Some(VoidReason { rule, evidence })
}

/// Whether a figure is an interval or a one-sided bound because the generator was disturbed or exhausted.
fn is_widened(http: &HttpTrial) -> bool {
    !http.own_percentiles.is_empty() || http.throughput().is_wide() || http.is_exhausted()
}

#[cfg(test)]
mod tests {
    use record::{Decision, OwnPercentile, Validity};
    use testing::plans;

    use super::*;

    #[test]
    fn only_void_makes_a_trial_void_whose_figures_are_intervals() {
        let rule = |http: &HttpTrial, on_noise| {
            let trial = plans::trial(http.clone());
            widened(&trial, on_noise).map(|reason| reason.rule)
        };
        let sound = HttpTrial { measured_s: 5.0, throughput_per_s: 100.0, ..HttpTrial::default() };
        let slower = HttpTrial { throughput_at_most_per_s: 110.0, ..sound.clone() };
        let late = OwnPercentile {
            times: "response_time".to_owned(),
            percentile: "p99".to_owned(),
            measured_us: 900.0,
            less_own_us: 400.0,
        };
        let late = HttpTrial { own_percentiles: vec![late], ..sound.clone() };
        let mut exhausted = sound.clone();
        exhausted.cpu.busiest_loop_ratio = 1.0;
        for (http, expected) in
            [(slower, VoidRule::Late), (late.clone(), VoidRule::Late), (exhausted, VoidRule::CpuExhausted)]
        {
            assert_eq!(rule(&http, OnNoise::Void), Some(expected));
            assert_eq!((rule(&http, OnNoise::Widen), rule(&http, OnNoise::Wait)), (None, None));
        }
        assert_eq!(rule(&sound, OnNoise::Void), None, "sound trials stay valid");
        let reason = VoidReason { rule: VoidRule::Late, evidence: String::new() };
        let void = |http: HttpTrial| {
            let validity = Validity::from_reasons(vec![reason.clone()]);
            let trial = Trial { validity, ..plans::trial(http) };
            widened(&trial, OnNoise::Void).is_some()
        };
        let mut of_goals = late.clone();
        of_goals.plan.decides = Some(Decision { response_time_ns: 1, longest_ns: 1, loss_ratio: 0.0 });
        assert!(void(of_goals) && !void(late), "goals revoke its reason");
    }
}
