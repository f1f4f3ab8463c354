//! `proofload report`: shows a result or exports it for other tools.

use std::{io::Write, path::PathBuf};

use clap::Args;
use record::ResultFolder;
use report::{Format, Results};

use super::study::terminal_options;
use crate::{
    exit::{Exit, Refusal, Result},
    output::{destination::Destination, standard},
};

const EXIT_STATUS: &str = "Exit status: 0 shown, whether or not the goals are met, 2 wrong use, or a file cannot be \
                           read or written, 3 no trial was run. The exit status of the run itself says whether the goals are met.";

/// Show a result on the terminal, as an HTML page, or for other tools.
///
/// Without options the result is shown on the terminal. The FILE - is standard output.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct ReportArgs {
    /// Result folder
    result: PathBuf,
    /// Write an HTML page that opens offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write one JSON document with plan, trials and result
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a JUnit report with one test case per goal
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write metrics in the OpenMetrics text format
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,
    /// Append Markdown to this file, such as $GITHUB_STEP_SUMMARY on a GitHub runner
    #[arg(long, value_name = "FILE")]
    github: Option<PathBuf>,
    /// Print ::error and ::warning lines for GitHub
    #[arg(long)]
    github_annotations: bool,
}

/// Prints the result, or writes it in the requested formats.
pub(crate) fn run(arguments: &ReportArgs) -> Result<Exit> {
    let folder = ResultFolder::open(&arguments.result).map_err(Refusal::one)?;
    let mut results = Results::read(&folder).map_err(Refusal::one)?;
    if results.result.is_none() {
        // There is no result yet if the run was killed or is still running.
        results.so_far = study::outcome::outcomes(&results.plan, &results.trials).map_err(Refusal::one)?;
    }
    let mut options = terminal_options();
    let page = folder.path().join("report.html");
    options.page = page.exists().then(|| page.display().to_string());
    let outputs = [
        ("--html", &arguments.html, Format::Html),
        ("--json", &arguments.json, Format::Json),
        ("--junit", &arguments.junit, Format::Junit),
        ("--openmetrics", &arguments.openmetrics, Format::OpenMetrics),
        ("--github", &arguments.github, Format::Github),
    ];
    let opened = outputs.into_iter().filter_map(|(option, path, format)| {
        // GitHub's summary file may contain the output of earlier steps.
        let is_appended = format == Format::Github;
        let open = if is_appended { Destination::open_appended } else { Destination::open };
        Some((open(option, path.as_deref()?), format))
    });
    // Opens all outputs before the first write, so that a mistake leaves none half done.
    let opened = opened.map(|(opened, format)| Ok((opened.map_err(Refusal::one)?, format)));
    let opened: Vec<_> = opened.collect::<Result<_>>()?;
    let is_exported = arguments.github_annotations || !opened.is_empty();
    for (output, format) in opened {
        output.write(|output: &mut dyn Write| report::write(&results, format, &options, output))?;
    }
    if arguments.github_annotations {
        standard::print_raw(&report::render(&results, Format::GithubAnnotations, &options))?;
    }
    if !is_exported {
        standard::print_coloured(&report::render(&results, Format::Terminal, &options))?;
    }
    Ok(if results.trials.is_empty() { Exit::Void } else { Exit::GoalsMet })
}
