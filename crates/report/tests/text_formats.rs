//! Tests of the text formats with simulated results.

mod fixtures;

use std::{fs, path::Path};

use fixtures::{
    searches,
    service::{Load, Service},
    sweeps,
};
use record::{BoundKind, Validity, VoidReason, VoidRule, folder::Place};
use report::{Format, Options, Results, Status, answers, render, trial_answer};

fn terminal(results: &Results) -> String {
    let options =
        Options { width_columns: Some(120), page: Some("out/report.html".to_owned()), colour: false };
    render(results, Format::Terminal, &options)
}

fn plain(results: &Results, format: Format) -> String {
    render(results, format, &Options::default())
}

#[test]
fn the_terminal_shows_tables() {
    insta::assert_snapshot!("terminal-two-goals", terminal(&searches::two_goals()));
    insta::assert_snapshot!("terminal-generator-bound", terminal(&searches::generator_bound()));
    insta::assert_snapshot!("terminal-interrupted", terminal(&searches::interrupted()));
    insta::assert_snapshot!("terminal-blocks", terminal(&searches::blocks_and_factor()));
    insta::assert_snapshot!("terminal-one-factor", terminal(&sweeps::one_factor()));
    insta::assert_snapshot!("terminal-confirmed", terminal(&searches::confirmed(0)));
    insta::assert_snapshot!("terminal-empty", terminal(&fixtures::empty()));
}

#[test]
fn colours_do_not_change_the_text() {
    let results = sweeps::one_factor();
    let options =
        Options { width_columns: Some(120), page: Some("out/report.html".to_owned()), colour: true };
    let coloured = render(&results, Format::Terminal, &options);
    assert!(coloured.contains("\u{1b}["));
    let mut bare = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        bare.push_str(before);
        rest = after.split_once('m').expect("every escape sequence is a colour").1;
    }
    assert_eq!(bare + rest, terminal(&results));
}

#[test]
fn lines_are_no_longer_than_the_terminal() {
    for (name, results) in [("one-factor", sweeps::one_factor()), ("blocks", searches::blocks_and_factor())] {
        for width in [60, 80, 200] {
            let options = Options { width_columns: Some(width), ..Options::default() };
            let text = render(&results, Format::Terminal, &options);
            let tables = text.lines().filter(|line| line.starts_with(' '));
            let longest = tables.map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= usize::from(width), "{name} at {width}: {longest}");
        }
    }
}

#[test]
fn no_word_is_broken_at_80_columns() {
    for (name, results) in [
        ("one-factor", sweeps::one_factor()),
        ("blocks", searches::blocks_and_factor()),
        ("confirmed", searches::confirmed(2)),
    ] {
        let at_80 = Options { width_columns: Some(80), ..Options::default() };
        let narrow = render(&results, Format::Terminal, &at_80);
        let words: Vec<&str> = narrow.split_whitespace().collect();
        let wide = render(&results, Format::Terminal, &Options::default());
        for word in wide.split_whitespace().filter(|word| !word.starts_with('─')) {
            assert!(words.contains(&word), "{name}: '{word}' is broken:\n{narrow}");
        }
    }
}

#[test]
fn junit_distinguishes_failed_void_and_unfinished() {
    insta::assert_snapshot!("junit-two-goals", plain(&searches::two_goals(), Format::Junit));
    insta::assert_snapshot!("junit-lost", plain(&searches::confirmed(2), Format::Junit));
    insta::assert_snapshot!("junit-none-met", plain(&searches::none_met(), Format::Junit));
    insta::assert_snapshot!("junit-everything-void", plain(&searches::everything_void(), Format::Junit));
    insta::assert_snapshot!("junit-interrupted", plain(&searches::interrupted(), Format::Junit));
}

#[test]
fn openmetrics_has_bounds_and_medians() {
    insta::assert_snapshot!("openmetrics-two-goals", plain(&searches::two_goals(), Format::OpenMetrics));
    insta::assert_snapshot!("openmetrics-lost", plain(&searches::confirmed(2), Format::OpenMetrics));
    insta::assert_snapshot!("openmetrics-one-setting", plain(&sweeps::one_setting(), Format::OpenMetrics));
}

#[test]
fn github_gets_a_summary_and_annotations() {
    insta::assert_snapshot!("github-generator-bound", plain(&searches::generator_bound(), Format::Github));
    insta::assert_snapshot!("github-lost", plain(&searches::confirmed(2), Format::Github));
    insta::assert_snapshot!("github-one-factor", plain(&sweeps::one_factor(), Format::Github));
    let annotations = |results: &Results| plain(results, Format::GithubAnnotations);
    insta::assert_snapshot!("annotations-none-met", annotations(&searches::none_met()));
    insta::assert_snapshot!("annotations-lost", annotations(&searches::confirmed(2)));
    insta::assert_snapshot!("annotations-everything-void", annotations(&searches::everything_void()));
    assert_eq!(annotations(&searches::one_goal()), "");
}

#[test]
fn blocks_are_numbered_from_1_in_sentences() {
    let annotations = |results: &Results| plain(results, Format::GithubAnnotations);
    let below = |results: &mut Results, settings: usize| {
        let outcomes = results.result.as_mut().unwrap().outcomes.iter_mut().take(settings);
        for goal in outcomes.flat_map(|outcome| &mut outcome.searches).flat_map(|search| &mut search.goals) {
            (goal.kind, goal.lower) = (BoundKind::Below, None);
        }
    };
    let mut results = searches::blocks_and_factor();
    below(&mut results, 1);
    let text = terminal(&results) + &annotations(&results);
    assert_eq!(text.matches("threads=1: block 1: ").count(), 4, "{text}");
    below(&mut results, 3);
    let text = terminal(&results) + &annotations(&results);
    assert!(text.contains("with threads=1 block 1, ") && !text.contains("block 0"), "{text}");
}

#[test]
fn the_reason_why_no_trial_is_valid_is_reported() {
    let mut results = searches::everything_void();
    results.result.as_mut().unwrap().outcomes.clear();
    let sentence = &answers(&results)[0].sentence;
    assert!(sentence.contains("none is valid; the first: "), "{sentence}");
}

#[test]
fn the_sentence_of_a_trial_begins_with_the_load() {
    let trial = Service::default().trial(Load::Users(20), 10.0, 1);
    let (_, sentence) = trial_answer(&trial, trial.http().unwrap());
    assert!(sentence.contains(" requests/s with 20 users for 10 s: p99 "), "{sentence}");
}

#[test]
fn json_has_everything_but_full_histograms() {
    let results = sweeps::one_setting();
    let text = plain(&results, Format::Json);
    assert!(!text.contains("base64"));
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["plan"]["title"], "200 users");
    assert_eq!(document["trials"].as_array().map(Vec::len), Some(results.trials.len()));
    let p99_us = &document["trials"][0]["trial"]["response_time"]["observed"]["p99_us"];
    assert_eq!(
        p99_us.as_f64(),
        results.trials[0].trial.http().unwrap().response_time.observed.summary().percentiles.p99_us
    );
}

#[test]
fn open_bounds_are_marked() {
    for results in
        [searches::generator_bound(), searches::all_met(), searches::none_met(), searches::interrupted()]
    {
        let [answer] = &answers(&results)[..] else { panic!("one goal, one setting") };
        let bounds = answer.bounds.as_ref().unwrap();
        assert!(bounds.lower.starts_with("≥ ") || bounds.upper.starts_with("< "), "{answer:?}");
        for format in [Format::Terminal, Format::Html, Format::Github] {
            let text = plain(&results, format).replace("&lt;", "<");
            assert!(text.contains(&bounds.lower) && text.contains(&bounds.upper), "{format:?} {bounds:?}");
        }
    }
}

#[test]
fn every_format_has_the_same_sentence() {
    for results in [searches::one_goal(), searches::none_met(), searches::everything_void()] {
        let [answer] = &answers(&results)[..] else { panic!("one goal, one setting") };
        assert_eq!(terminal(&results).lines().next(), Some(answer.sentence.as_str()));
        for format in [Format::Html, Format::Junit, Format::Json] {
            let text = plain(&results, format);
            assert!(text.contains(&answer.sentence), "{format:?}: {}", answer.sentence);
        }
    }
    let json: serde_json::Value =
        serde_json::from_str(&plain(&searches::everything_void(), Format::Json)).unwrap();
    assert_eq!(json["answers"][0]["status"], "not_decided");
}

/// Short trials cannot show whether response times keep growing.
#[test]
fn bounds_of_trials_too_short_are_unconfirmed() {
    let mut results = searches::one_goal();
    assert!(!answers(&results)[0].sentence.contains("not confirmed"));
    results.trials.iter_mut().for_each(|entry| entry.trial.http_mut().unwrap().series.truncate(3));
    let sentence = &answers(&results)[0].sentence;
    assert!(
        sentence.contains(", not confirmed for longer than 5 s: give longer trials (--trial)."),
        "{sentence}"
    );
}

#[test]
fn void_trials_meet_no_goal() {
    let results = searches::everything_void();
    assert!(answers(&results).iter().all(|answer| answer.status == Status::Void));
    let mut results = sweeps::one_setting();
    let reasons = results.trials[0].trial.validity.reasons().to_vec();
    assert!(reasons.is_empty());
    for entry in &mut results.trials {
        let evidence = "3 descriptors short".to_owned();
        let reason = VoidReason { rule: VoidRule::LocalExhaustion, evidence };
        entry.trial.validity = Validity::from_reasons(vec![reason]);
    }
    results.result = None;
    assert!(answers(&results).iter().all(|answer| answer.status == Status::Void));
    assert!(plain(&results, Format::Html).contains("3 descriptors short"));
}

#[test]
fn a_written_folder_is_read_back() {
    let mut written = searches::none_met();
    (1..).zip(&mut written.trials).for_each(|(number, entry)| entry.index = number);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("folder");
    let _ = fs::remove_dir_all(&path);
    let folder = Place::of(&path).unwrap().make().unwrap();
    folder.write_plan(&written.plan).unwrap();
    let early_end = Results::read(&folder).unwrap();
    assert_eq!((early_end.environment, early_end.trials.len()), (None, 0));
    folder.write_environment(written.environment.as_ref().unwrap(), &written.plan).unwrap();
    let mut journal = folder.journal().unwrap();
    written.trials.iter().for_each(|entry| journal.append(entry).unwrap());
    folder.write_result(written.result.as_ref().unwrap()).unwrap();
    assert_eq!(Results::read(&folder).unwrap(), written);
}

/// Writes files that parsers of the formats check; see `docs/report.md`.
#[test]
fn every_fixture_can_be_rendered_in_every_format() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("formats");
    for (name, results) in fixtures::all() {
        fs::create_dir_all(folder.join(name)).unwrap();
        for format in Format::ALL {
            let text = plain(&results, format);
            if let Some(file) = format.file_name() {
                fs::write(folder.join(name).join(file), &text).unwrap();
            }
            let ends = format != Format::OpenMetrics || text.ends_with("\n# EOF\n");
            assert!(
                ends && (!text.is_empty() || format == Format::GithubAnnotations),
                "{name} as {format:?}"
            );
        }
    }
}

#[test]
fn a_search_that_ended_early_says_what_its_bounds_rest_on() {
    let mut results = searches::interrupted();
    results.plan.search.as_mut().unwrap().trial_duration_s *= 1e3;
    let late = VoidReason { rule: VoidRule::Late, evidence: "the generator was away".to_owned() };
    let last = results.trials.last_mut().unwrap();
    last.load = Some(8_000.0);
    last.trial.validity = Validity::from_reasons(vec![late]);
    let shown = terminal(&results);
    let told = "Unfinished: carries 2,000 requests/s with p99 ≤ 10 ms so far, in trials of ";
    let (_, rest) = shown.split_once(told).unwrap_or_else(|| panic!("{shown}"));
    assert!(
        rest.lines().next().unwrap().ends_with(" s; this machine was too busy to test 8,000 requests/s."),
        "{rest}"
    );
}
