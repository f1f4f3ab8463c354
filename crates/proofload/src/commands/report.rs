//! `proofload report`: a result for people and for other tools.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use record::ResultFolder;
use report::{Format, Results};

use super::study::terminal_options;
use crate::{
    exit::{Exit, Refusal},
    output::{destination::Destination, standard},
};

/// What the exit status says, at the end of the help.
const STATUS: &str = "Exit status: 0 shown, whatever the result says, 2 wrong use, or something cannot be \
                      read or written. Whether the goals were met is the exit status of the run itself.";

/// Show a result: on the terminal, as a page, or for other tools.
///
/// Without options it is shown on the terminal; a FILE called - is standard output.
#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct ReportArgs {
    /// Result folder
    result: PathBuf,
    /// Write the page that opens offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write everything as one JSON document
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a JUnit report: a test case for each goal
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write metrics in the OpenMetrics text format
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,
    /// Append markdown to this file; on a GitHub runner, $GITHUB_STEP_SUMMARY
    #[arg(long, value_name = "FILE")]
    github: Option<PathBuf>,
    /// Print GitHub's ::error and ::warning lines
    #[arg(long)]
    github_annotations: bool,
}

/// Shows it. A file called - is standard output.
pub(crate) fn run(arguments: &ReportArgs) -> Result<Exit, Refusal> {
    let folder = ResultFolder::open(&arguments.result).map_err(Refusal::one)?;
    let mut results = Results::read(&folder).map_err(Refusal::one)?;
    if results.result.is_none() {
        // A run that was killed, or still goes on.
        results.so_far = study::outcome::outcomes(&results.plan, &results.trials).map_err(Refusal::one)?;
    }
    let mut options = terminal_options();
    let page = folder.path().join("report.html");
    options.page = page.exists().then(|| page.display().to_string());
    let asked = [
        ("--html", &arguments.html, Format::Html),
        ("--json", &arguments.json, Format::Json),
        ("--junit", &arguments.junit, Format::Junit),
        ("--openmetrics", &arguments.openmetrics, Format::OpenMetrics),
        ("--github", &arguments.github, Format::Github),
    ];
    let mut shown = arguments.github_annotations;
    for (option, path, format) in asked {
        let Some(path) = path else { continue };
        shown = true;
        let fill = |output: &mut dyn Write| report::write(&results, format, &options, output);
        // GitHub's summary may hold what earlier steps wrote; every other file is ours.
        if format == Format::Github && path != Path::new("-") {
            let file = fs::OpenOptions::new().append(true).create(true).open(path);
            file.and_then(|mut file| fill(&mut file)).map_err(|error| {
                Refusal::one(format_args!("{option}: cannot write {}: {error}", path.display()))
            })?;
            continue;
        }
        Destination::open(option, path).map_err(Refusal::one)?.write(fill)?;
    }
    if arguments.github_annotations {
        standard::print(&report::render(&results, Format::GithubAnnotations, &options))?;
    }
    if !shown {
        standard::show_coloured(&report::render(&results, Format::Terminal, &options))?;
    }
    Ok(Exit::GoalsMet)
}
