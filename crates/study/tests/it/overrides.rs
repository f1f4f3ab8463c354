//! Levels and values that the command line overrides.

use crate::{HOST, mistakes_with};

const TEXT: &str = "[targets.web]\nrun = \"serve\"\n[workload.http]\n[factors]\nusers = [1, 2]\n\
                    threads = { values = [1], when = { users = 2 } }\n";

fn names(overrides: &[(&str, &str)]) -> Vec<String> {
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let study = study::file::read("f", TEXT, &overrides, &HOST).unwrap();
    assert!(study.setup(0, None).is_ok());
    study.settings.into_iter().map(|setting| setting.name).collect()
}

#[test]
fn levels_replace_those_of_the_file() {
    assert_eq!(names(&[("users", "5, 2")]), ["users=5", "users=2 threads=1"]);
    assert_eq!(names(&[("threads", "3,4"), ("users", "2")]), ["users=2 threads=3", "users=2 threads=4"]);
    assert_eq!(names(&[("users", "5k")]), ["users=5k"]);
}

#[test]
fn a_part_of_a_study_can_be_chosen() {
    let text = include_str!("../../../../studies/max-rps.toml");
    let read = |mode: &str| {
        let overrides = [("mode".to_owned(), mode.to_owned()), ("target".to_owned(), "serve".to_owned())];
        study::file::read("max-rps.toml", text, &overrides, &HOST).unwrap()
    };
    let (limit, sweep) = (read("limit"), read("sweep"));
    assert_eq!((limit.settings.len(), limit.settings[0].searched, limit.factors.len()), (1, true, 2));
    assert_eq!((sweep.settings.len(), sweep.search), (12, None));
}

#[test]
fn keys_are_set_by_their_paths() {
    let set = |key: &str, value: &str| {
        let study = study::file::read("f", TEXT, &[(key.to_owned(), value.to_owned())], &HOST).unwrap();
        let setup = study.setup(0, None).unwrap();
        (study, setup.workload.http().unwrap().clone())
    };
    assert_eq!(set("trial.repeats", "3").0.trial.repeats, 3);
    assert_eq!(set("seed", "9").1.seed, 9);
    assert_eq!(set("title", "a new name, with a comma").0.title, "a new name, with a comma");
    assert_eq!(set("workload.http.expect", "200,404").1.expect, ["200,404"]);
    assert_eq!(set("workload.http.headers", "[\"A: b\", \"C: d\"]").1.headers, ["A: b", "C: d"]);
    assert_eq!(set("targets.web.port", "81").1.url, "http://127.0.0.1:81/");
}

#[test]
fn mistakes_in_overrides_name_them() {
    for (overrides, expected) in [
        (&[("user", "1")][..], "--set:1:1: there is no factor 'user'; did you mean 'users'?"),
        (&[("users", "1,x")], "--set:1:9: users: 'x' is not a whole number"),
        (&[("trial.repeat", "3")], "--set:1:1: unknown key 'repeat'; did you mean 'repeats'?"),
        (&[("trial.repeats", "0")], "--set:1:15: 0 is not a whole number from 1"),
        (&[("trail.repeats", "3")], "--set:1:1: a study has no table 'trail'; did you mean 'trial'?"),
        (&[("targets.web.run.x", "3")], "--set:1:1: 'run' is not a table"),
        (&[("", "1")], "--set:1:1: expected a factor or a key"),
        (&[("workload.http.users", "3")], "--set:1:21: the factor 'users' replaces this value in every"),
        (&[("seed", "1"), ("seed", "-1")], "--set:1:6: -1 is not a whole number"),
    ] {
        let mistakes = mistakes_with(TEXT, overrides);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].starts_with(expected), "{mistakes:?}");
    }
    assert!(
        mistakes_with("[workload.http]\nurl = \"http://127.0.0.1/\"\n", &[("users", "1")])[0]
            .contains("has no factors")
    );
}

#[test]
fn a_key_that_a_factor_or_a_search_always_sets_cannot_be_overridden() {
    let refused = |text: &str, key: &str, value: &str| {
        mistakes_with(text, &[(&format!("workload.http.{key}"), value)]).pop().unwrap_or_default()
    };
    assert!(refused(TEXT, "users", "3").contains("--set users="));
    // Settings without a value of this factor use the key, so the override is not useless.
    assert_eq!(refused(TEXT, "threads", "2"), "");
    // A placeholder names the factor, so it does not set the key.
    let named = TEXT.replace("[workload.http]", "[workload.http]\npath = \"/{users}\"");
    assert_eq!(refused(&named, "users", "3"), "");
    let search = "[targets.web]\nrun = \"serve\"\n[workload.http]\n[search]\nvary = \"rate\"\nmin = 1\nmax = 9\nWHEN\n\
                  [[goals]]\nerrors = 0.1\n[factors]\nmode = [1, 2]\nsize = [\"{mode}\"]\n";
    let everywhere = search.replace("WHEN", "").replace("mode = [1, 2]\nsize = [\"{mode}\"]\n", "");
    assert!(refused(&everywhere, "rate", "5").contains("--set search.min="));
    assert_eq!(refused(&everywhere, "connections", "5"), "");
    let partly = search.replace("WHEN", "when = { mode = 1 }").replace("size = [\"{mode}\"]\n", "");
    assert_eq!(refused(&partly, "rate", "5"), "");
    // Some settings have a level of the factor, and the search varies the value in all others.
    let max_rps = include_str!("../../../../studies/max-rps.toml");
    assert!(refused(max_rps, "rate", "5").contains("'rate' or the search"));
}

#[test]
fn thousands_of_levels_are_planned() {
    let levels: Vec<String> = (1..=10_000).map(|level| level.to_string()).collect();
    let levels = levels.join(",");
    let text = |levels: &str| {
        format!(
            "[targets.web]\nrun = \"serve\"\nargs = [\"--delay\", \"{{d}}us\"]\n[workload.http]\n[factors]\nd = [{levels}]\n"
        )
    };
    for (text, set) in [(text(&levels), vec![]), (text("0"), vec![("d".to_owned(), levels.clone())])] {
        let study = study::file::read("f", &text, &set, &HOST).unwrap();
        assert!(study.describe().contains("10,000"));
        let mut setups = 0;
        study.each_setup((0..10_000).map(|setting| (setting, None)), &mut |setting, setup| {
            setups += 1;
            let setup = setup.unwrap();
            setting % 1_000 > 0 || setup == study.setup(setting, None).unwrap()
        });
        assert_eq!(setups, 10_000);
    }
}
