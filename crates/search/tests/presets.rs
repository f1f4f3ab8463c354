//! The presets, and what is said of plans that stray from what is recommended.

use search::{Preset, SearchGoal, SearchPlan, Unit};

#[test]
fn presets_are_found_by_their_names() {
    for preset in Preset::ALL {
        assert_eq!(preset.name().parse(), Ok(preset));
        let goal = preset.goal("goal", preset.loss_ratio());
        let plan =
            SearchPlan { method: preset.method(), ..SearchPlan::new(Unit::Continuous, 1.0, 1e6, vec![goal]) };
        assert_eq!(plan.mistakes(), []);
    }
    let error = "mlr".parse::<Preset>().expect_err("there is none").to_string();
    assert!(error.contains("mlrsearch, rfc2544, tst009, csit-ndr, csit-pdr, jmeter"), "{error}");
}

#[test]
fn what_the_rfc_recommends_is_said() {
    let long = Preset::Rfc2544.goal("long", 0.0);
    let short = SearchGoal { width: 0.005, ..Preset::Mlrsearch.goal("short", 0.01) };
    let plan = SearchPlan::new(Unit::Continuous, 1.0, 10.0, vec![long.clone(), short]);
    let fields: Vec<String> = plan.advice().into_iter().map(|advice| advice.field).collect();
    assert_eq!(fields, ["goal \"short\": width", "goal \"short\": final_trial_duration_s"]);
    assert_eq!(SearchPlan::new(Unit::Continuous, 1.0, 10.0, vec![long]).advice(), []);
    assert_eq!(plan.mistakes(), []);
}
