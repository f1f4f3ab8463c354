//! `proofload compare`: compares two results, or two levels of a factor in one result.

use std::path::{Path, PathBuf};

use clap::Args;
use record::{Environment, Level, ResultFolder, StudyPlan, StudyResult, units::parse_ratio};
use report::Results;
use search::statistics::Confidence;
use study::compare::{CompareOptions, Comparison, Gate, Overall, Side, compare, compare_levels, rank_levels};

use super::mistakes::Mistakes;
use crate::{
    exit::{Exit, Refusal, Result},
    output::{
        comparison_text,
        destination::{Destination, write_result},
    },
};

const EXIT_STATUS: &str = "Exit status: 0 compared, and B is not worse than --fail-if-worse allows, 1 B is worse than \
                           --fail-if-worse allows, 2 wrong use, or the results cannot be compared, 3 not decided: too \
                           little was measured.";

/// Compare two results: effect, confidence, verdict.
///
/// Shows by how much two results differ, with confidence intervals, and the smallest difference that these runs could
/// have shown.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct CompareArgs {
    /// Result folder A: before
    a: PathBuf,
    /// Result folder B: after
    #[arg(conflicts_with = "factor")]
    b: Option<PathBuf>,
    /// Compare two levels of a factor within A: target=nginx,serve; with the factor's name alone, every level is compared with the first, and the best is listed first
    #[arg(long, value_name = "FACTOR[=LEVEL,LEVEL]")]
    factor: Option<String>,
    /// Exit with status 1 if B is worse than A by more than this, such as 5%, and with status 3 if this is not decided
    #[arg(long, value_name = "SHARE")]
    fail_if_worse: Option<String>,
    /// Confidence of all verdicts together
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    confidence: String,
    /// Compare these quantities, such as throughput_per_s, response_p99_us or lower_bound; separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    quantities: Vec<String>,
    /// Compare even if the plans differ
    #[arg(long)]
    force: bool,
    /// Write the comparison as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The exit statuses of a ranking by precedence: the first that applies to any comparison.
const RANKING: [Exit; 3] = [Exit::GoalsNotMet, Exit::GoalsMet, Exit::Void];

/// Compares the results and prints the comparison.
pub(crate) fn run(arguments: &CompareArgs) -> Result<Exit> {
    let options = arguments.options().map_err(Refusal::new)?;
    if arguments.b.is_none() && arguments.factor.is_none() {
        return Err(Refusal::one(
            "result folder B is missing; to compare two levels within A, give --factor FACTOR=LEVEL,LEVEL",
        ));
    }
    let json = Destination::open_optional("--json", arguments.json.as_deref())?;
    let (a_plan, a_result, a_environment) = read(&arguments.a)?;
    let a_name = arguments.a.display().to_string();
    let a = Side { name: &a_name, plan: &a_plan, result: &a_result, environment: a_environment.as_ref() };
    if let Some(factor) = arguments.factor.as_ref().filter(|text| !text.contains('=')) {
        let ranked = rank_levels(a, factor, &options).map_err(Refusal::one)?;
        write_result(json, &ranked, false, || comparison_text::render_ranking(&ranked))?;
        let statuses = ranked.iter().map(exit_status);
        return Ok(statuses
            .min_by_key(|status| RANKING.iter().position(|known| known == status))
            .unwrap_or(Exit::Void));
    }
    let comparison = match (&arguments.factor, &arguments.b) {
        (Some(text), _) => {
            let (factor, levels) = levels(text, &a_plan)?;
            compare_levels(a, factor, (&levels[0], &levels[1]), &options)
        }
        (None, Some(path)) => {
            let (plan, result, environment) = read(path)?;
            let name = path.display().to_string();
            let b = Side { name: &name, plan: &plan, result: &result, environment: environment.as_ref() };
            compare(a, b, &options)
        }
        (None, None) => unreachable!("refused above"),
    };
    let comparison = comparison.map_err(Refusal::one)?;
    write_result(json, &comparison, false, || comparison_text::render(&comparison))?;
    Ok(exit_status(&comparison))
}

impl CompareArgs {
    fn options(&self) -> Result<CompareOptions, Vec<String>> {
        let mut m = Mistakes::default();
        let fail_if_worse = m.optional("--fail-if-worse", self.fail_if_worse.as_deref(), parse_ratio);
        let confidence = m.optional("--confidence", Some(&self.confidence), |text| {
            let share = parse_ratio(text).map_err(|error| error.to_string())?;
            Confidence::new(share).map_err(|error| error.to_string())
        });
        let (quantities, force) = (self.quantities.clone(), self.force);
        let options =
            confidence.map(|confidence| CompareOptions { confidence, fail_if_worse, quantities, force });
        Ok(m.into_result(options)?.expect("a missing value is a mistake"))
    }
}

fn read(path: &Path) -> Result<(StudyPlan, StudyResult, Option<Environment>)> {
    let folder = ResultFolder::open(path).map_err(Refusal::one)?;
    let Results { plan, result, environment, .. } = Results::read(&folder).map_err(Refusal::one)?;
    let result = result.ok_or_else(|| {
        Refusal::one(format_args!(
            "{}: no result yet: the run is still going on or was killed; finish it with --resume",
            path.display()
        ))
    })?;
    Ok((plan, result, environment))
}

/// Parses `FACTOR=LEVEL,LEVEL`. A level that occurs in the plan has its type there.
fn levels<'a>(text: &'a str, plan: &StudyPlan) -> Result<(&'a str, [Level; 2]), Refusal> {
    let refuse = || {
        Refusal::one(format_args!("--factor: '{text}' is not FACTOR=LEVEL,LEVEL, such as target=nginx,serve"))
    };
    let (factor, levels) = text.split_once('=').ok_or_else(refuse)?;
    let known = plan.factors.iter().find(|known| known.name == factor);
    let level = |text: &str| {
        let found = known.and_then(|known| known.levels.iter().find(|level| level.to_string() == text));
        // Kept as text; `compare_levels` refuses an unknown level and lists the known ones.
        found.cloned().unwrap_or_else(|| Level::Text(text.to_owned()))
    };
    let (a, b) = levels.split_once(',').ok_or_else(refuse)?;
    Ok((factor, [level(a.trim()), level(b.trim())]))
}

fn exit_status(comparison: &Comparison) -> Exit {
    match (comparison.gate, comparison.verdict) {
        (Some(Gate::Failed), _) => Exit::GoalsNotMet,
        (Some(Gate::Undecided), _) | (_, Overall::CannotTell) => Exit::Void,
        _ => Exit::GoalsMet,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        compare: CompareArgs,
    }

    #[test]
    fn a_single_result_needs_a_factor() {
        let refusal = run(&Line::try_parse_from(["compare", "a"]).unwrap().compare).unwrap_err();
        assert!(format!("{refusal:?}").contains("--factor FACTOR=LEVEL,LEVEL"), "{refusal:?}");
    }
}
