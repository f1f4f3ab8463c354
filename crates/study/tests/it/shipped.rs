//! The studies that proofload ships, and the example of its design.

use load::MachineLimits;

use crate::{HOST, files};

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
fn as_root_the_example_of_the_design_balances_over_25_web_hosts() {
    let text = include_str!("../sound/design-example.toml");
    let study = study::file::read("design.toml", text, &[], &HOST).unwrap();
    let of = |level: &str| {
        let is_own = |name: &String| name.starts_with(&format!("balancer={level} "));
        study.settings.iter().position(|setting| is_own(&setting.name))
    };
    // On a machine with two processors, the balancer needs one of them.
    assert!(!study.settings.iter().any(|setting| setting.name.contains("threads=2")), "{:?}", study.settings);
    let told = |text: &str| study.warnings.iter().any(|warning| warning.message.contains(text));
    assert!(of("haproxy").is_none() || told("8 threads of the balancer leave none"), "{:?}", study.warnings);
    assert!(of("haproxy").is_some() || told("needs haproxy"), "{:?}", study.warnings);
    assert!(of("lvs").is_some() || told("the balancer lvs needs"), "{:?}", study.warnings);
    let setup = study.setup(of("l2dsr").unwrap(), None).unwrap();
    let (balancer, plan) = (setup.balancer.unwrap(), setup.lab.unwrap());
    assert_eq!((balancer.servers.len(), plan.processes.len()), (25, 26));
    let workload = setup.workload.http().unwrap();
    assert_eq!(workload.url, "http://192.168.16.100:80/dummy_file");
    assert!(workload.no_keepalive && workload.connect_to.is_none() && setup.from.len() == 2);
}

#[test]
fn a_balancer_with_tls_is_asked_for_tls() {
    let text = include_str!("../sound/design-example.toml")
        .replace("[workload.http]", "tls = true\n[workload.http]");
    let text = text.replace("[\"haproxy\", \"l2dsr\", \"lvs\"]", "[\"haproxy\", \"direct\"]");
    let study = study::file::read("design.toml", &text, &[], &HOST).unwrap();
    for (number, setting) in study.settings.iter().enumerate() {
        let setup = study.setup(number, None).unwrap();
        let workload = setup.workload.http().unwrap();
        let is_haproxy = setting.name.starts_with("balancer=haproxy");
        let url = if is_haproxy { "https://192.168.16.100:443/" } else { "http://192.168.16.100:80/" };
        assert!(workload.url.starts_with(url) && workload.insecure == is_haproxy, "{}", workload.url);
    }
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
        "new hosts and targets for each",
        // 88 trials: half of them 3 s, half 4 s long, each after 1.1 s.
        "at least about 6 min 45 s",
        "no trial begins after 60 min",
    ] {
        assert!(description.contains(part), "'{part}' is not in:\n{description}");
    }
}
