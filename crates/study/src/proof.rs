//! Proves verdicts: raises the limits that they named, and runs the same load alternately without and with the change.
//!
//! The trials form a separate study within the result folder, with one more factor.

mod raise;

use std::{sync::Arc, time::Duration};

use record::{
    Bottleneck, Bounding, Cause, Ending, Factor, Level, Proof, ProofFigure, Proven, ResultFolder, Setting,
    StudyPlan, StudyResult, TrialEntry, folder::Contents, quantity::main_figures, study::quantities,
};
use search::statistics::Verdict as Shown;

use crate::{
    compare::{CompareOptions, Comparison, Side, compare_levels},
    event::{Event, Options},
    run::{RunError, run},
    study::{Setup, Source, Study, StudyFile, Take, Wanted},
};

/// The folder of the proof within the result folder.
const FOLDER: &str = "proof";
/// The factor that the proof varies, with its levels. A study file cannot use this name, so it does not clash.
const FACTOR: &str = "the limit";
const BEFORE: &str = "as it was";
const RAISED: &str = "raised";
/// Trials of each level: the smallest number that can show a difference in one of four figures (`docs/statistics.md`).
const REPEATS: u32 = 8;

/// A limit that a verdict named, and the trials that prove it.
#[derive(Debug, Clone)]
struct Claim {
    setting: usize,
    load: Option<f64>,
    length: Option<Duration>,
    bottleneck: Bottleneck,
    /// The change that raises the limit; the error describes the change if proofload cannot make it.
    change: Result<String, String>,
}

/// The study that proves the claims: two settings for each claim, first without the change, then with it.
#[derive(Debug)]
struct Document {
    original: Study,
    claims: Vec<Claim>,
}

/// Raises each limit that the trials of a finished study named, once, and adds the findings to the study's result. If the proof is
/// stopped, returns the result with the proof's ending and does not write it.
///
/// # Errors
/// If the folder of the proof cannot be used, or a limit of this machine cannot be read.
pub fn prove(
    study: &Study,
    folder: &ResultFolder,
    options: &Options,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<StudyResult, RunError> {
    let Contents { plan, trials, result, .. } = folder.read()?;
    let Some(mut result) = result.filter(|result| result.ending == Ending::Finished) else {
        return Err(RunError::Refused("only a finished study can be proven".to_owned()));
    };
    let (claims, others): (Vec<Claim>, Vec<Claim>) =
        claims(study, &plan, &trials).into_iter().partition(|claim| claim.change.is_ok());
    result.proofs = Vec::new();
    if !claims.is_empty() {
        match run_trials(study, &claims, folder, options, on_event)? {
            Ok(proofs) => result.proofs = proofs,
            // The stored result of the study remains unchanged.
            Err(ending) => return Ok(StudyResult { ending, ..result }),
        }
    }
    result.proofs.extend(others.iter().map(|claim| claim.proof(Proven::NotTried)));
    result.proofs.sort_by_key(|proof| proof.setting);
    folder.write_result(&result)?;
    Ok(result)
}

/// The first limit that each verdict names, with the first setting in which it was named. An offered load is not a limit.
fn claims(study: &Study, plan: &StudyPlan, trials: &[TrialEntry]) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    for setting in 0..plan.settings.len() {
        let Some(Bounding { entry, verdict, .. }) = Bounding::of(plan, setting, trials) else { continue };
        let Some(bottleneck) = verdict.bottlenecks.first().filter(|first| first.cause != Cause::OfferedLoad)
        else {
            continue;
        };
        let is_same = |other: &Bottleneck| other.cause == bottleneck.cause && other.place == bottleneck.place;
        if claims.iter().any(|claim| is_same(&claim.bottleneck)) {
            continue;
        }
        let Ok(mut setup) = study.setup(setting, entry.load) else { continue };
        claims.push(Claim {
            setting,
            load: entry.load,
            length: plan.search_of(setting).map(|search| Duration::from_secs_f64(search.trial_duration_s)),
            change: raise::raise(&mut setup, bottleneck),
            bottleneck: bottleneck.clone(),
        });
    }
    claims
}

fn run_trials(
    study: &Study,
    claims: &[Claim],
    within: &ResultFolder,
    options: &Options,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Result<Vec<Proof>, Ending>, RunError> {
    let proof = study_of(study, claims);
    let (folder, resume) = within.within(FOLDER)?;
    let options = Options { resume, ..options.clone() };
    let ending = run(&proof, &folder, &options, on_event)?.ending;
    if ending != Ending::Finished {
        return Ok(Err(ending));
    }
    let Contents { plan, trials, result, .. } = folder.read()?;
    let levels = (&Level::Text(BEFORE.to_owned()), &Level::Text(RAISED.to_owned()));
    let comparison = result.as_ref().and_then(|result| {
        let side = Side { name: FOLDER, plan: &plan, result, environment: None };
        compare_levels(side, FACTOR, levels, &CompareOptions::default()).ok()
    });
    let compared = main_figures(&quantities(&plan)).filter(|(_, column)| column.is_compared).count();
    let concluded = |(number, claim): (usize, &Claim)| {
        let then = Bounding::of(&plan, 2 * number + 1, &trials).and_then(|after| after.verdict.in_words());
        let of_claim = comparison.as_ref().map_or(Vec::new(), |all| figures(all, study, claim));
        let better: Vec<Option<bool>> = of_claim.iter().map(|(_, better)| *better).collect();
        let (before, after) = (2 * number, 2 * number + 1);
        let valid = |setting| {
            let entries = trials.iter().filter(move |entry| entry.setting == setting);
            entries.filter(|entry| !entry.trial.validity.is_void()).count() as u32
        };
        let are_met = |setting| {
            let of_setting = result.as_ref()?.outcomes.iter().find(|outcome| outcome.setting == setting)?;
            of_setting.goals_met
        };
        let proven = match better[..] {
            // A limit of this machine: with it all trials were void, without it most are valid.
            [] if valid(before) == 0 && 2 * valid(after) > REPEATS => Proven::Moved,
            // The first figure is the carried load. If it rose, longer response times do not matter; if it fell, nothing is proven.
            [Some(false), ..] => Proven::NotMoved,
            _ if better.contains(&Some(true)) => Proven::Moved,
            _ if (are_met(before), are_met(after)) == (Some(false), Some(true)) => Proven::Moved,
            // Figures that could not be compared may have improved.
            _ if better.len() < compared => Proven::Undecided,
            _ => Proven::NotMoved,
        };
        let figures = of_claim.into_iter().map(|(figure, _)| figure).collect();
        Proof { figures, then, ..claim.proof(proven) }
    };
    Ok(Ok(claims.iter().enumerate().map(concluded).collect()))
}

/// The figures of a claim. The second value says whether the raised limit improved the figure; it is `None` if no difference is shown.
/// Figures for which the trials cannot have shown a difference are left out.
fn figures(all: &Comparison, study: &Study, claim: &Claim) -> Vec<(ProofFigure, Option<bool>)> {
    let name = &study.settings[claim.setting].name;
    let rows = all.rows.iter().filter(|row| row.setting == *name);
    let rows = rows.filter(|row| row.statistics.verdict != Shown::CannotTell);
    let figure = |row: &crate::compare::Row| {
        let better = match row.statistics.verdict {
            Shown::BBetter => Some(true),
            Shown::ABetter => Some(false),
            Shown::NoDifferenceShown | Shown::CannotTell => None,
        };
        let figure = ProofFigure {
            quantity: row.quantity.clone(),
            before: row.a_median,
            after: row.b_median,
            is_shown: better.is_some(),
        };
        (figure, better)
    };
    rows.map(figure).collect()
}

fn study_of(study: &Study, claims: &[Claim]) -> Study {
    let level = |level: &str| Level::Text(level.to_owned());
    let setting = |claim: &Claim, to: &str| {
        let base = &study.settings[claim.setting];
        let mut levels = base.levels.clone();
        levels.insert(FACTOR.to_owned(), level(to));
        let name = format!("{} {FACTOR}={to}", base.name).trim_start().to_owned();
        Setting { levels, name, ..Setting::default() }
    };
    let factor = Factor { name: FACTOR.to_owned(), levels: vec![level(BEFORE), level(RAISED)] };
    let document = Document { original: study.clone(), claims: claims.to_vec() };
    Study {
        title: format!("{}: limits raised", study.title),
        budget: None,
        factors: study.factors.iter().cloned().chain([factor]).collect(),
        settings: claims
            .iter()
            .flat_map(|claim| [BEFORE, RAISED].map(|level| setting(claim, level)))
            .collect(),
        trial: crate::TrialShape { repeats: REPEATS, ..study.trial.clone() },
        search: None,
        other_searches: Vec::new(),
        warnings: Vec::new(),
        source: Source::File(Arc::new(document)),
        ..study.clone()
    }
}

impl StudyFile for Document {
    fn each_setup(&self, _: &Study, wanted: &mut Wanted<'_>, take: &mut Take<'_>) {
        for (number, _) in wanted {
            let claim = &self.claims[number / 2];
            let raised = |mut setup: Setup| {
                if let Some(length) = claim.length {
                    setup.workload.set_length(length);
                }
                if number % 2 == 1 {
                    // This cannot fail: the same call succeeded when the claim was made.
                    let _ = raise::raise(&mut setup, &claim.bottleneck);
                }
                setup
            };
            if !take(number, self.original.setup(claim.setting, claim.load).map(raised)) {
                break;
            }
        }
    }

    fn masked_text(&self) -> String {
        match &self.original.source {
            Source::File(file) => file.masked_text(),
            Source::Fixed(_) => String::new(),
        }
    }

    fn overrides(&self) -> Vec<(&str, &str)> {
        match &self.original.source {
            Source::File(file) => file.overrides(),
            Source::Fixed(_) => Vec::new(),
        }
    }
}

impl Claim {
    fn proof(&self, proven: Proven) -> Proof {
        let Bottleneck { cause, place, .. } = &self.bottleneck;
        let change = self.change.clone().unwrap_or_else(|advice| advice);
        Proof {
            setting: self.setting,
            load: self.load,
            cause: *cause,
            place: place.clone(),
            change,
            proven,
            figures: Vec::new(),
            then: None,
        }
    }
}
