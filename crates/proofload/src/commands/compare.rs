//! `proofload compare`: two results, or two levels of a factor of one.

use std::path::{Path, PathBuf};

use clap::Args;
use record::{Environment, Level, ResultFolder, StudyPlan, StudyResult, units::parse_ratio};
use report::Results;
use search::statistics::Confidence;
use study::compare::{CompareOptions, Comparison, Gate, Overall, Side, compare, compare_levels};

use super::text::Mistakes;
use crate::{
    exit::{Exit, Refusal},
    output::{
        comparison_text,
        destination::{Destination, leave},
    },
};

/// What the exit status says, at the end of the help.
const STATUS: &str = "Exit status: 0 compared, and with --fail-if-worse not worse by more, 1 worse by more \
                      than --fail-if-worse allows, 2 wrong use, or the results cannot be compared, 3 it \
                      cannot be told: too little was measured.";

/// Compare two results: effect, confidence, verdict.
///
/// Says by how much two results differ, how sure that is, and what difference could have been seen at all.
#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct CompareArgs {
    /// Result folder A: what was
    a: PathBuf,
    /// Result folder B: what is now
    #[arg(conflicts_with = "factor")]
    b: Option<PathBuf>,
    /// Compare two levels of a factor within A, such as target=nginx,serve
    #[arg(long, value_name = "FACTOR=LEVEL,LEVEL")]
    factor: Option<String>,
    /// Exit with status 1 if B is shown to be worse by more than this, such as 5%, and with 3 if that cannot be told
    #[arg(long, value_name = "SHARE")]
    fail_if_worse: Option<String>,
    /// Confidence of all verdicts together
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    confidence: String,
    /// Compare these quantities, such as throughput_per_s, response_p99_us or lower_bound; several with commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    quantities: Vec<String>,
    /// Compare although the plans are not the same
    #[arg(long)]
    force: bool,
    /// Write the comparison as JSON; - is standard output, and then nothing else is written there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Compares, and shows it.
pub(crate) fn run(arguments: &CompareArgs) -> Result<Exit, Refusal> {
    let options = arguments.options().map_err(Refusal::new)?;
    if arguments.b.is_none() && arguments.factor.is_none() {
        return Err(Refusal::one(
            "result folder B is missing: compare A with what? For two levels within A give --factor FACTOR=LEVEL,LEVEL",
        ));
    }
    let json = Destination::of("--json", arguments.json.as_deref())?;
    let (a_plan, a_result, a_environment) = read(&arguments.a)?;
    let a_name = arguments.a.display().to_string();
    let a = Side { name: &a_name, plan: &a_plan, result: &a_result, environment: a_environment.as_ref() };
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
        (None, None) => unreachable!("one of them was asked for above"),
    };
    let comparison = comparison.map_err(Refusal::one)?;
    leave(json, &comparison, false, || comparison_text::render(&comparison))?;
    Ok(judge(&comparison))
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
        Ok(m.none_or(options)?.expect("what could not be read has been told"))
    }
}

fn read(path: &Path) -> Result<(StudyPlan, StudyResult, Option<Environment>), Refusal> {
    let folder = ResultFolder::open(path).map_err(Refusal::one)?;
    let Results { plan, result, environment, .. } = Results::read(&folder).map_err(Refusal::one)?;
    let result = result.ok_or_else(|| {
        Refusal::one(format_args!(
            "{}: the run still goes on, or was killed before it had a result; finish it with --resume",
            path.display()
        ))
    })?;
    Ok((plan, result, environment))
}

/// The factor, and its two levels as the plan has them.
fn levels<'a>(text: &'a str, plan: &StudyPlan) -> Result<(&'a str, [Level; 2]), Refusal> {
    let refuse = || {
        Refusal::one(format_args!("--factor: '{text}' is not FACTOR=LEVEL,LEVEL, such as target=nginx,serve"))
    };
    let (factor, levels) = text.split_once('=').ok_or_else(refuse)?;
    let known = plan.factors.iter().find(|known| known.name == factor);
    let as_known = |text: &str| {
        let level = known.and_then(|known| known.levels.iter().find(|level| level.to_string() == text));
        // One that is not there is told by the comparison, with those that are.
        level.cloned().unwrap_or_else(|| Level::Text(text.to_owned()))
    };
    let (a, b) = levels.split_once(',').ok_or_else(refuse)?;
    Ok((factor, [as_known(a.trim()), as_known(b.trim())]))
}

fn judge(comparison: &Comparison) -> Exit {
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
    fn with_one_result_two_levels_can_be_compared() {
        let refusal = run(&Line::try_parse_from(["compare", "a"]).unwrap().compare).unwrap_err();
        assert!(format!("{refusal:?}").contains("--factor FACTOR=LEVEL,LEVEL"), "{refusal:?}");
    }
}
