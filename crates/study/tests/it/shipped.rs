//! The studies that proofload ships, and the example of its design.

use load::MachineLimits;

use crate::{HOST, files, mistakes};

#[test]
fn shipped_studies_have_no_mistakes() {
    let studies = files("../../studies");
    assert!(studies.len() >= 2);
    for (path, text) in studies {
        assert!(text.starts_with("#:schema ../docs/schema/study.schema.json\n"), "{}", path.display());
        let name = path.to_str().unwrap();
        let read = study::file::read(name, &text, &[], &HOST);
        let study = read.unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let description = study.describe();
        assert!(description.lines().count() <= 60 && description.starts_with(&study.title), "{description}");
        for setting in 0..study.settings.len() {
            let load = study.search.as_ref().map(|search| search.min);
            study.setup(setting, load.filter(|_| study.settings[setting].searched)).unwrap();
        }
    }
}

#[test]
fn quickstart_finds_the_limit_of_a_target_whose_limit_is_known() {
    let text = include_str!("../../../../studies/quickstart.toml");
    // Even a machine with few descriptors and one processor can run the study.
    let host = MachineLimits { hard_descriptors: 1_024, cpus: 1, ..HOST };
    let study = study::file::read("quickstart.toml", text, &[], &host).unwrap();
    let search = study.search.as_ref().unwrap();
    assert!(search.min < 2_000.0 && search.max > 2_000.0 && study.settings[0].searched);
    assert!(study.budget.is_some_and(|budget| budget.as_secs() <= 70));
    let target = study.setup(0, Some(search.min)).unwrap().target.unwrap();
    assert_eq!(target.what, "serve --capacity 8 --service-time 4ms");
}

#[test]
fn the_example_of_the_design_lacks_only_balancers() {
    let text = include_str!("../sound/design-example.toml");
    let found = mistakes(text);
    assert_eq!(found.len(), 3, "{found:?}");
    for (level, found) in ["haproxy", "l2dsr", "lvs"].iter().zip(&found) {
        assert!(
            found.contains(&format!("a balancer '{level}' between clients and target is not built yet")),
            "{found}"
        );
    }
    // Without the balancers it is a study of 25 web hosts.
    let direct = text.replace("balancer = [\"haproxy\", \"l2dsr\", \"lvs\"]\n", "");
    let direct = direct.replace(", when = { balancer = \"haproxy\" }", "");
    let study = study::file::read("design.toml", &direct, &[], &HOST).unwrap();
    assert_eq!((study.settings.len(), study.trial.repeats), (20, 6));
    let setup = study.setup(0, None).unwrap();
    assert_eq!(setup.lab.unwrap().processes.len(), 25);
    assert!(setup.workload.http().unwrap().no_keepalive && setup.from.len() == 2);
}

#[test]
fn a_description_lists_what_is_run() {
    let text = include_str!("../sound/every-key.toml");
    let study = study::file::read("every-key.toml", text, &[], &HOST).unwrap();
    let description = study.describe();
    for part in [
        "4: client1 10.1.0.1, client2 10.1.0.2, router 10.1.0.3, web 10.2.0.10",
        "wan: emulated link of router, web",
        "web-helper: sleep 600",
        "outside: http://192.0.2.7:81/app/",
        "PUT http://10.2.0.10:80/1KiB",
        "44, in 2 blocks",
        "service=nginx from=client bandwidth=10mbit size=1KiB level=2s wait=600",
        "… and 38 more",
        "fast: p99.9 ≤ 900 ms",
        "hosts and targets new for each",
        // 88 trials: half of them 3 s, half 4 s long, each after 1.1 s.
        "at least about 6 min 45 s",
        "no trial begins after 60 min",
    ] {
        assert!(description.contains(part), "'{part}' is not in:\n{description}");
    }
}
