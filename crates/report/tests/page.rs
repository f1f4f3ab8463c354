//! Tests of the HTML page: its content, its size, and that it fetches nothing.

mod fixtures;

use fixtures::{searches, sweeps};
use record::{CensoredTimes, Level, Setting};
use report::{Format, Options, Results, render};

const MAX_BYTES: usize = 1_000_000;

fn page(results: &Results) -> String {
    render(results, Format::Html, &Options::default())
}

/// The values of all attributes with this name.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    page.split(start.as_str()).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn nothing_is_fetched_and_nothing_is_run() {
    for (name, results) in fixtures::all() {
        let page = page(&results);
        assert!(page.len() <= MAX_BYTES, "{name}: {} bytes", page.len());
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("@import"), "{name}");
        assert!(page.contains("default-src 'none'"), "{name}");
        for target in attributes(&page, "href").into_iter().chain(attributes(&page, "src")) {
            assert!(target == "data:," || target.starts_with('#'), "{name}: {target}");
        }
    }
}

#[test]
fn every_anchor_exists_and_every_chart_has_a_description() {
    for results in [searches::two_goals(), sweeps::three_factors(), fixtures::empty()] {
        let page = page(&results);
        for anchor in attributes(&page, "href").iter().filter_map(|target| target.strip_prefix('#')) {
            assert_eq!(page.matches(&format!(" id=\"{anchor}\"")).count(), 1, "{anchor}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("role=\"img\" aria-label=\"").count());
        assert_eq!(page.matches("<h1").count(), 1);
    }
}

#[test]
fn sections_are_in_order() {
    let order = |page: &str, headings: &[&str]| {
        let positions: Vec<usize> =
            headings.iter().map(|heading| page.find(&format!(">{heading}</h2>")).expect(heading)).collect();
        assert!(positions.is_sorted(), "{headings:?} {positions:?}");
    };
    let page_of_search = page(&searches::blocks_and_factor());
    order(
        &page_of_search,
        &[
            "The answer",
            "How the search went",
            "Load against latency",
            "Factors",
            "Latency by percentile",
            "Second by second",
            "Lateness",
            "Validity",
            "Environment",
            "Repeat it",
            "Warnings",
            "How to read this",
        ],
    );
    let page_of_sweep = page(&sweeps::three_factors());
    assert!(page_of_sweep.contains("class=\"heat\"") && !page_of_sweep.contains("How the search went"));
}

#[test]
fn censored_and_void_values_are_marked() {
    let overloaded = page(&sweeps::one_factor());
    assert!(overloaded.contains("≥: some requests were unanswered") && overloaded.contains("≥ 415 ms"));
    assert!(overloaded.contains("p99 of a void trial") && overloaded.contains("1.8 ms late"));
    assert!(page(&searches::generator_bound()).contains("lower bound ≥ 21,000/s"));
}

#[test]
fn further_trials_at_the_lower_bound_and_audits_are_shown() {
    let clean = page(&searches::confirmed(0));
    for part in [
        "Further trials at the lower bound",
        "6 of 6 further trials at",
        "bytes stored",
        "compared with stored",
    ] {
        assert!(clean.contains(part), "{part}");
    }
    assert!(!clean.contains("What the audits found"));
    let lost = page(&searches::confirmed(2));
    assert!(lost.contains("What the audits found") && lost.contains("0000002a-000001-00000001"));
}

#[test]
fn a_second_without_an_answer_is_a_gap() {
    let mut results = searches::none_met();
    let series = &mut results.trials[1].trial.http_mut().unwrap().series;
    (series[2].completed, series[2].p50_us, series[2].p99_us, series[2].max_us) = (0, None, None, None);
    let with_gap = page(&results);
    let lines =
        with_gap.split("<path class=\"line s0\" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    assert!(lines.clone().any(|path| path.matches('M').count() == 2), "no line has a gap");
}

#[test]
fn five_hundred_trials_are_all_in_the_figure_and_the_table() {
    let page = page(&searches::many_trials(500));
    assert!(page.len() <= MAX_BYTES, "{} bytes", page.len());
    assert!(page.contains("trial 499: ") && page.contains("<th class=\"name\" scope=\"row\">499</th>"));
}

#[test]
fn the_page_of_a_large_study_stays_small() {
    let mut results = sweeps::one_setting();
    let long = "a very long name ".repeat(20);
    results.plan.goals = (0..8).flat_map(|_| results.plan.goals.clone()).collect();
    results.plan.settings = (0..3_000)
        .map(|number| Setting {
            levels: [("n".to_owned(), Level::Number(f64::from(number)))].into(),
            name: format!("{long}{number}"),
            searched: number % 2 == 0,
            ..Setting::default()
        })
        .collect();
    results.plan.factors = vec![record::Factor {
        name: "n".to_owned(),
        levels: (0..3_000).map(|number| Level::Number(f64::from(number))).collect(),
    }];
    results.plan.command = vec![long; 5_000];
    let page = page(&results);
    assert!(page.len() <= MAX_BYTES, "{} bytes", page.len());
    assert!(page.contains("are shown, to keep this page small"));
}

#[test]
fn times_that_are_intervals_are_drawn_from_end_to_end() {
    let mut results = sweeps::one_setting();
    for http in results.trials.iter_mut().filter_map(|entry| entry.trial.http_mut()) {
        for times in [&mut http.response_time, &mut http.service_time] {
            let count = times.observed.count();
            *times = CensoredTimes::default();
            (0..count).for_each(|_| times.record_ns(300_000_000, 200_000_000));
        }
    }
    let chart = "role=\"img\" aria-label=\"Times by percentile";
    let sentence = "Whiskers show the range of the true time";
    let page_of_intervals = page(&results);
    assert!(page_of_intervals.contains(chart) && page_of_intervals.contains(sentence));
    assert!(page_of_intervals.contains("whisker s0") && page_of_intervals.contains("100–300 ms"));
    let page_of_values = page(&sweeps::one_setting());
    assert!(page_of_values.contains(chart) && !page_of_values.contains(sentence));
}

#[test]
fn an_undecided_trial_is_valid_and_counted_by_that_name() {
    let mut results = sweeps::one_setting();
    let goal = results.plan.goals.len() - 1;
    results.trials[0].undecided = vec![goal];
    let page = page(&results);
    assert!(page.contains("none void, 1 undecided, ") && page.contains("◇ undecided"));
    assert!(page.contains("(1 more undecided)"), "goals are counted over the trials that decide them");
}
