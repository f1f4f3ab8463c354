//! Tests of the presets.

use search::{Preset, SearchPlan, Unit};

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
fn only_the_partial_drop_rate_of_csit_allows_loss() {
    let lossy: Vec<Preset> = Preset::ALL.into_iter().filter(|preset| preset.loss_ratio() > 0.0).collect();
    assert_eq!(lossy, [Preset::CsitPdr]);
    assert_eq!(Preset::CsitPdr.loss_ratio(), 0.005);
}
