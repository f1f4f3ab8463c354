//! Tests that every format shows names and messages from files and machines as plain text.

mod fixtures;

use proptest::prelude::*;
use record::{Validity, VoidReason, VoidRule, Warning};
use report::{Format, Options, Results, render};

/// A short search with a given text for every name.
fn named(name: impl Fn(usize) -> String) -> Results {
    let mut results = fixtures::searches::none_met();
    let plan = &mut results.plan;
    (plan.title, plan.workload, plan.command) = (name(0), name(1), vec![name(2), name(3)]);
    plan.proofload_version = name(4);
    plan.settings[0].name = name(5);
    plan.goals[0].name = name(6);
    let environment = results.environment.get_or_insert_default();
    (environment.cpu_model, environment.kernel) = (name(7), name(8));
    environment.sysctls = [(name(9), name(10))].into();
    let reason = VoidReason { rule: VoidRule::Late, evidence: name(11) };
    results.trials[2].trial.validity = Validity::from_reasons(vec![reason]);
    results.trials[3].trial.warnings = vec![Warning::new(&name(12), name(13))];
    let result = results.result.as_mut().expect("the fixture has one");
    result.warnings = vec![Warning::new(&name(14), name(15))];
    result.outcomes[0].searches[0].goals[0].goal = name(6);
    results
}

/// The tags and names of attributes of a page, without text and values.
fn skeleton(page: &str) -> String {
    let body = page.split_once("</style>").expect("the page has a style").1;
    let (mut tags, mut inside, mut quoted) = (String::new(), false, false);
    for c in body.chars() {
        match c {
            '<' if !inside => inside = true,
            '"' if inside => quoted = !quoted,
            '>' if inside && !quoted => {
                inside = false;
                tags.push('\n');
            }
            // The width of a name changes numbers in charts, so the skeleton leaves out values.
            c if inside && !quoted => tags.push(c),
            _ => {}
        }
    }
    assert!(!inside && !quoted, "a tag or an attribute has no end");
    tags
}

fn strange() -> impl Strategy<Value = Vec<String>> {
    let pieces = prop_oneof![
        any::<String>(),
        prop::sample::select(fixtures::WEIRD.to_vec()).prop_map(str::to_owned),
        prop::sample::select(vec![
            "\"",
            "'",
            "<",
            ">",
            "&",
            "-->",
            "]]>",
            "</svg>",
            "</title>",
            "`",
            "\n",
            "\r\n::error::x"
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(prop::collection::vec(pieces, 1..4).prop_map(|pieces| pieces.concat()), 16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn foreign_text_changes_no_markup(names in strange()) {
        // Number the names, so that they are unique and not empty.
        let results = named(|number| format!("{number} {}", names[number]));
        let harmless = named(|number| format!("{number} name"));
        let of = |results: &Results, format| render(results, format, &Options::default());

        prop_assert_eq!(skeleton(&of(&results, Format::Html)), skeleton(&of(&harmless, Format::Html)));

        let junit = of(&results, Format::Junit);
        let read = quick_junit::Report::deserialize_from_str(&junit).expect("well-formed XML");
        prop_assert_eq!((read.test_suites.len(), read.test_suites[0].test_cases.len()), (1, 1));

        let json: serde_json::Value = serde_json::from_str(&of(&results, Format::Json)).expect("well-formed JSON");
        prop_assert_eq!(&json["plan"]["title"], &results.plan.title);

        let lines = |format| [&results, &harmless].map(|results| of(results, format).lines().count());
        for format in [Format::OpenMetrics, Format::GithubAnnotations, Format::Github] {
            let [strange, plain] = lines(format);
            prop_assert_eq!(strange, plain, "{:?}", format);
        }
        let annotations = of(&results, Format::GithubAnnotations);
        prop_assert!(annotations.lines().all(|line| line.starts_with("::error title=")));

        let terminal = of(&results, Format::Terminal);
        prop_assert!(!terminal.chars().any(|c| c.is_control() && c != '\n'));
    }
}
