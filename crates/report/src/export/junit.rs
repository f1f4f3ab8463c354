//! JUnit XML for continuous integration: a test case for each goal in each setting.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::{
    Results, Status,
    answer::{self, Answer},
    confirmed, text,
};

/// JUnit XML: a met goal is a pass, an unmet one a failure, an undecided one an error, and an unfinished one is
/// skipped.
pub(crate) fn render(results: &Results) -> String {
    let mut report = Report::new(text::printable(&results.plan.title));
    let answers = answer::answers(results);
    for number in 0..results.plan.settings.len() {
        report.add_test_suite(suite(results, number, &answers));
    }
    report.to_string().expect("the text has no characters that XML forbids")
}

fn suite(results: &Results, setting: usize, answers: &[Answer]) -> TestSuite {
    let name = text::printable(&results.setting_name(setting));
    let mut suite = TestSuite::new(&name);
    let seconds: f64 = results.trials_of(setting).map(|entry| entry.trial.elapsed_s).sum();
    suite.set_time(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    suite.add_property(("seed", results.plan.seed.to_string().as_str()));
    suite.add_property(("command", text::shell_line(&results.plan.command).as_str()));
    let confirmed =
        confirmed::confirmed(results).into_iter().filter(|confirmed| confirmed.setting == setting);
    let confirmed = confirmed.map(|confirmed| {
        let block = confirmed.block.map(|block| format!(" ({})", text::block(block))).unwrap_or_default();
        case_of(&name, format!("lower bound confirmed{block}"), confirmed.status(), &confirmed.sentence())
    });
    let audited = confirmed::audited(results).into_iter().filter(|audited| audited.setting == setting);
    let audited =
        audited.map(|audited| case_of(&name, "audit".to_owned(), audited.status(), &audited.sentence()));
    suite.add_test_cases(answers.iter().filter(|answer| answer.setting == setting).map(|a| case(&name, a)));
    suite.add_test_cases(confirmed.chain(audited));
    suite
}

fn case(setting: &str, answer: &Answer) -> TestCase {
    let goal = text::printable(&answer.goal_name);
    let name = match answer.block {
        Some(block) => format!("{goal} ({})", text::block(block)),
        None => goal,
    };
    case_of(setting, name, answer.status, &answer.sentence)
}

fn case_of(setting: &str, name: String, status: Status, sentence: &str) -> TestCase {
    let sentence = text::printable(sentence);
    let status = match status {
        Status::Met | Status::Unfound => TestCaseStatus::success(),
        Status::NotMet => problem(NonSuccessKind::Failure, "goal not met", &sentence),
        Status::Void => problem(NonSuccessKind::Error, "not decided", &sentence),
        Status::Unfinished => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(sentence.clone());
            status
        }
    };
    let mut case = TestCase::new(name, status);
    case.set_classname(setting);
    case.set_system_out(sentence);
    case
}

fn problem(kind: NonSuccessKind, name: &str, sentence: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(name).set_message(sentence);
    status
}
