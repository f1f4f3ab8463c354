//! Table rows and lines that the terminal, Markdown and the HTML page share.

use record::{Ending, Purpose, TrialEntry, quantity::main_figures};

use crate::{
    Answer, Results, Status,
    reading::Reading,
    setting::{self, SettingFigures},
    text,
};

/// Column titles of [`search_row`].
pub(crate) const SEARCH_HEADER: [&str; 5] =
    ["goal", "lower bound", "upper bound", "result", "conditional throughput"];

/// The table of the settings without a search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Repeats {
    /// The column titles after the setting.
    pub header: Vec<String>,
    /// Index, name and cells of each setting.
    pub rows: Vec<(usize, String, Vec<String>)>,
    /// The confidence of the intervals if it is the same for all; otherwise the table has a column for it.
    pub confidence: Option<String>,
}

/// A line that explains the brackets of a table; empty if the table has no intervals.
pub(crate) fn brackets_line(confidence: Option<String>) -> String {
    let line =
        |confidence| format!("In brackets: the interval of the true median at {confidence} confidence.\n");
    confidence.map_or_else(String::new, line)
}

/// A notice that the result is incomplete, for the top of a report.
pub(crate) fn banner(results: &Results) -> Option<String> {
    let so_far = "the figures are those of the trials so far";
    match results.result.as_ref().map(|result| result.ending) {
        Some(Ending::Finished) => None,
        Some(Ending::Interrupted) => Some(format!("INTERRUPTED: {so_far}.")),
        Some(Ending::OutOfBudget) => Some(format!(
            "OUT OF TIME: the budget is used up; continue with --resume and a larger one (run: --set budget=2h, limit: \
             --budget 2h); {so_far}."
        )),
        Some(Ending::Failed) => {
            Some(format!("FAILED: the study could not be finished, and the warnings say why; {so_far}."))
        }
        None => Some(format!(
            "NO RESULT YET: the run is still running or was killed; continue a killed one with --resume; {so_far}."
        )),
    }
}

/// The number of trials and their time: `27 trials, 2 void, 4 min of trials in 4 min 5 s.`
pub(crate) fn trials_line(results: &Results) -> String {
    if results.trials.is_empty() {
        return "No trial was run.".to_owned();
    }
    let trials_s: f64 = results.trials.iter().map(|entry| entry.trial.elapsed_s).sum();
    let cost = cost(&results.trials.iter().collect::<Vec<_>>(), trials_s);
    match &results.result {
        Some(result) => format!("{cost} in {}.", text::elapsed(result.elapsed_s)),
        None => format!("{cost}."),
    }
}

/// `14 trials, 1 void, 2 min 20 s of trials`: the cost of a setting's search.
pub(crate) fn cost_line(results: &Results, setting: usize) -> String {
    let entries = results.trials_of(setting).filter(|entry| entry.purpose != Purpose::Confirm);
    let trials_s: f64 = match results.searches_of(setting) {
        [] => results.trials_of(setting).map(|entry| entry.trial.elapsed_s).sum(),
        searches => searches.iter().map(|search| search.trial_seconds).sum(),
    };
    cost(&entries.collect::<Vec<_>>(), trials_s)
}

fn cost(entries: &[&TrialEntry], trials_s: f64) -> String {
    let void = match entries.iter().filter(|entry| entry.trial.validity.is_void()).count() {
        0 => "none".to_owned(),
        void => void.to_string(),
    };
    let undecided = match entries.iter().filter(|entry| !entry.undecided.is_empty()).count() {
        0 => String::new(),
        undecided => format!(", {undecided} undecided"),
    };
    let trials = text::counted(entries.len(), "trial");
    format!("{trials}, {void} void{undecided}, {} of trials", text::elapsed(trials_s))
}

/// The table cells for the answer of a search.
pub(crate) fn search_row(answer: &Answer) -> Vec<String> {
    let goal = format!("{} {}", answer.status.sign(), answer.goal_name);
    match &answer.bounds {
        Some(bounds) => vec![
            goal,
            bounds.lower.clone(),
            bounds.upper.clone(),
            bounds.kind.clone(),
            bounds.conditional_throughput.clone().unwrap_or_else(|| "–".to_owned()),
        ],
        None => vec![goal, "–".to_owned(), "–".to_owned(), answer.status.word().to_owned(), "–".to_owned()],
    }
}

/// `✓ met` if all goals are met, otherwise the unmet goals.
pub(crate) fn goals_cell(answers: &[Answer], setting: usize) -> String {
    let own_answers: Vec<&Answer> = answers.iter().filter(|answer| answer.setting == setting).collect();
    if own_answers.is_empty() {
        return "–".to_owned();
    }
    let open: Vec<String> = own_answers
        .iter()
        .filter(|answer| answer.status != Status::Met)
        .map(|answer| {
            let goal = format!("{} {}", answer.status.sign(), answer.goal_name);
            if answer.status == Status::NotMet { goal } else { format!("{goal}: {}", answer.status.word()) }
        })
        .collect();
    if open.is_empty() { format!("{} met", Status::Met.sign()) } else { open.join("; ") }
}

/// The table of the settings without a search, with at most `max_rows` rows.
pub(crate) fn repeats(
    results: &Results,
    readings: &[Reading],
    answers: &[Answer],
    max_rows: usize,
) -> Repeats {
    let repeated =
        results.plan.settings.iter().enumerate().filter(|(_, setting)| !setting.searched).take(max_rows);
    let figures: Vec<SettingFigures> =
        repeated.map(|(number, _)| setting::figures(results, readings, number)).collect();
    let confidence = |figures: &SettingFigures| figures.confidence.map(text::confidence);
    let common = figures
        .first()
        .and_then(confidence)
        .filter(|first| figures.iter().all(|figures| confidence(figures).as_ref() == Some(first)));
    let quantities = results.quantities();
    let heads = main_figures(&quantities).map(|(_, column)| text::printable(&column.head));
    let mut header: Vec<String> = heads.collect();
    header.extend(["goals", "valid trials"].map(str::to_owned));
    if common.is_none() {
        header.push("confidence".to_owned());
    }
    let rows = figures.into_iter().map(|figures| {
        let void = if figures.void > 0 { format!(" + {} void", figures.void) } else { String::new() };
        let confidence = confidence(&figures).unwrap_or_else(|| "–".to_owned());
        let mut cells: Vec<String> = figures.figures.into_iter().map(|figure| figure.shown).collect();
        cells.extend([goals_cell(answers, figures.number), format!("{}{void}", figures.valid)]);
        if common.is_none() {
            cells.push(confidence);
        }
        (figures.number, figures.name, cells)
    });
    let rows = rows.collect();
    Repeats { header, rows, confidence: common }
}
