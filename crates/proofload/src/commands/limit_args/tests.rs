use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    limit: LimitArgs,
}

const HOST: MachineLimits = MachineLimits::EXAMPLE;

fn study(line: &str) -> Result<Study, Vec<String>> {
    let words = ["limit"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words).unwrap().limit.study(&HOST)
}

#[test]
fn several_goals_at_once() {
    let study = study("rate 127.0.0.1:80 --errors 0.1% --p99 10ms --connect-p99 900ms --width 2%").unwrap();
    let names: Vec<_> = study.goals.iter().map(|goal| goal.name.as_str()).collect();
    assert_eq!(names, ["errors ≤ 0.1 %", "p99 ≤ 10 ms", "connect p99 ≤ 900 ms"]);
    assert_eq!(study.search.unwrap().width, 0.02);
}

#[test]
fn users_without_goals_must_have_no_errors() {
    let study = study("users http://127.0.0.1/").unwrap();
    assert_eq!(study.goals, [Goal::errors(0.0)]);
    let setup = study.setup(0, Some(128.0)).unwrap();
    assert_eq!(setup.workload.http().unwrap().users.as_deref(), Some("128"));
}

#[test]
fn the_preset_jmeter_sets_loops() {
    let study = study("users http://127.0.0.1/ --preset jmeter --no-keepalive").unwrap();
    let setup = study.setup(0, Some(3.0)).unwrap();
    let workload = setup.workload.http().unwrap();
    assert_eq!((workload.loops.as_deref(), workload.no_keepalive), (Some("100"), true));
}

#[test]
fn all_mistakes_at_once() {
    let mistakes =
        study("users ftp://x --p99 0s --width 2 --trial x --repeats 0 --min 9 --max 3 -R 5").unwrap_err();
    assert_eq!(mistakes.len(), 6, "{mistakes:#?}");
    assert!(study("connections 127.0.0.1").unwrap_err()[0].contains("--rate is missing"));
}

#[test]
fn mistakes_name_their_options() {
    for (line, expected) in [
        ("--preset wrk", "--preset: there is no search preset \"wrk\": use mlrsearch"),
        ("--duration 5s", "--duration: use --trial for the length"),
        ("-d 5s", "--duration: use --trial for the length"),
        ("--p99 10", "--p99: '10' has no unit; write 10ms or 10s"),
        ("-m POST", "-m: write -X POST"),
        ("--source 192.0.2.9", "--source: 192.0.2.9 is not an address of this machine"),
    ] {
        let mistakes = study(&format!("users 127.0.0.1 {line}")).unwrap_err();
        assert!(mistakes.len() == 1 && mistakes[0].starts_with(expected), "{line}: {mistakes:?}");
    }
}

#[test]
fn the_ramp_up_must_end_before_the_trial() {
    let mistakes = study("users 127.0.0.1 --ramp-up 20s --trial 5s").unwrap_err();
    assert!(mistakes.len() == 1 && mistakes[0].contains("20 s (ramp_up, --ramp-up)"), "{mistakes:?}");
    assert!(study("users 127.0.0.1 --ramp-up 2s --trial 5s").is_ok());
    assert!(study("users 127.0.0.1 --ramp-up 20s --preset jmeter").is_ok(), "loops end its trials");
}

#[test]
fn void_attempts_include_the_first() {
    let study = study("users 127.0.0.1 --void-attempts 2").unwrap();
    assert_eq!(study.trial.void_attempts, 1, "a study counts only repeated attempts");
    let plan = study::plan(&study, Vec::new()).unwrap();
    let search = plan.search_of(0).unwrap();
    assert_eq!(search.method_settings["void"]["attempts"], 2);
}

#[test]
fn a_bound_that_no_request_can_miss_is_refused_as_in_a_study() {
    let line = "rate 127.0.0.1 --p99 40s --timeout 2s --max 20";
    let mistakes = study(line).unwrap_err();
    assert!(mistakes.len() == 1 && mistakes[0].contains("no request can be this slow"), "{mistakes:?}");
    assert!(study(&line.replace("40s", "2s")).is_ok() && study(&line.replace("2s", "50s")).is_ok());
}
