//! Studies of data listeners: events, audits, and searches with several methods.

use std::time::Duration;

use lab::plan::{KnownKind, Program};
use record::{GoalQuantity, StudyPlan};

use crate::{HOST, read};

const LISTENERS: &str = include_str!("../sound/listener.toml");

#[test]
fn listeners_are_set_up_to_be_audited() {
    let study = read(LISTENERS);
    assert_eq!(study.settings.len(), 8);
    let setup = study.setup(0, Some(3.0)).unwrap();
    let plan = setup.lab.as_ref().unwrap();
    let Program::Known(listen) = &plan.processes[0].program else { panic!("{plan:?}") };
    let kind = KnownKind::Listen(lab::program::Listen { backlog: Some(128) });
    assert_eq!((&listen.kind, listen.port), (&kind, 9880));
    assert_eq!(setup.target_processes().collect::<Vec<_>>(), ["local-listen"]);
    assert_eq!(setup.workload.http().unwrap().url, "http://127.0.0.1:9880/tag");
    assert_eq!(setup.workload.http().unwrap().events.as_deref(), Some("{\"a\":1}"));
    let audit = setup.audit.unwrap();
    assert_eq!(audit.files[0], "{target_folder}/**/*.log");
    assert!(audit.files[1].starts_with('/') && audit.files[1].ends_with("/folder/stored/listen.log"));
    assert_eq!(audit.flush, Duration::from_secs(12));
    let quantities: Vec<GoalQuantity> = study.goals.iter().map(|goal| goal.quantity.clone()).collect();
    let audited = [GoalQuantity::Lost, GoalQuantity::Duplicated, GoalQuantity::Corrupt];
    assert_eq!(quantities[1..], audited);
    assert_eq!(study.goals[1].name, "nothing lost");
    assert_eq!(study.goals[2].name, "duplicated ≤ 0.1 %");

    let nginx = study.settings.iter().position(|setting| setting.name.contains("target=nginx")).unwrap();
    let setup = study.setup(nginx, Some(3.0)).unwrap();
    let Program::Known(known) = &setup.lab.as_ref().unwrap().processes[0].program else {
        panic!("{setup:?}")
    };
    assert!(matches!(&known.kind, KnownKind::Nginx(nginx) if nginx.log_bodies) && known.port == 9880);
}

#[test]
fn an_optional_target_is_selected_by_an_override() {
    let overrides = [("target".to_owned(), "other".to_owned())];
    let study = study::file::read("folder/test.toml", LISTENERS, &overrides, &HOST).unwrap();
    let setup = study.setup(0, Some(3.0)).unwrap();
    let process = &setup.lab.as_ref().unwrap().processes[0];
    let words = ["./listener", "--port", "9880", "--to", "{target_folder}"].map(str::to_owned);
    assert_eq!(process.program, Program::Command(words.to_vec()));
    assert_eq!(process.environment["STORED"], "{target_folder}/{x}");
    assert_eq!(process.directory.as_deref().and_then(|path| path.to_str()), Some("{target_folder}"));
}

#[test]
fn a_factor_chooses_the_method_of_the_search() {
    let study = read(LISTENERS);
    let plan: StudyPlan = study::plan(&study, Vec::new()).unwrap();
    let methods: Vec<&str> =
        (0..plan.settings.len()).map(|number| plan.search_of(number).unwrap().method.as_str()).collect();
    for (setting, method) in plan.settings.iter().zip(methods) {
        let asked = if setting.name.contains("method=jmeter") { "jmeter" } else { "mlrsearch" };
        assert_eq!(method, asked, "{}", setting.name);
    }
    assert_eq!(plan.other_searches.len(), 1);
    assert!(
        [plan.search.as_ref().unwrap(), &plan.other_searches[0]].iter().all(|search| search.confirm == 6)
    );
    assert_eq!(plan.audit.unwrap().flush_s, 12.0);
}

#[test]
fn searches_whose_trials_end_themselves_have_no_short_trials() {
    let study = read(LISTENERS);
    let setup = study.setup(1, Some(3.0)).unwrap();
    assert_eq!(
        (setup.workload.ends_itself(), setup.workload.http().unwrap().duration.as_deref()),
        (true, None)
    );
    let plan = study::plan(&study, Vec::new()).unwrap();
    for search in plan.search.iter().chain(&plan.other_searches) {
        let goal = &search.method_settings["goals"][0];
        assert_eq!(goal["initial_trial_duration_s"], goal["final_trial_duration_s"], "{}", search.method);
    }
    let description = study.describe();
    for part in ["by jmeter", "by mlrsearch", "then 6 trials at the lower bound", "within 12 s", "receipts"] {
        assert!(description.contains(part), "'{part}' is not in:\n{description}");
    }
}
