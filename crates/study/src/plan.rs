//! Makes the plan of a study for its result folder.

use std::collections::BTreeSet;

use rand::{SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use record::{
    AuditPlan, DeclaredQuantity, LoadUnit, SecretFingerprint, SecretFingerprints, Setting, StudyPlan,
    study::PLAN_SCHEMA,
};
use secrets::fingerprint;
use settings::Mistake;

use crate::{
    Setup, Workload, observers, running_search,
    study::{Source, Study},
};

/// Makes the plan of a study.
///
/// # Errors
/// If the search cannot work with the given values, or a setting has a mistake.
pub fn plan(study: &Study, command: Vec<String>) -> Result<StudyPlan, String> {
    let searches = study.search.iter().chain(&study.other_searches);
    let searches: Result<Vec<_>, String> = searches.map(|asked| running_search::plan(study, asked)).collect();
    let mut searches = searches?.into_iter();
    let first = study.setup(0, study.search.as_ref().map(|search| search.min)).map_err(joined)?;
    let is_bounded = first.workload.http().is_none_or(|http| http.duration.is_some());
    let (settings, quantities) = settings_and_quantities(study)?;
    Ok(StudyPlan {
        schema: PLAN_SCHEMA.to_owned(),
        proofload_version: env!("CARGO_PKG_VERSION").to_owned(),
        title: secrets::mask(&study.title).into_owned(),
        command: command.iter().map(|word| secrets::mask(word).into_owned()).collect(),
        seed: study.seed,
        factors: study.factors.clone(),
        settings,
        blocks: blocks(study),
        goals: study.goals.clone(),
        trial_duration_s: is_bounded.then(|| first.workload.length_s()).flatten(),
        search: searches.next(),
        other_searches: searches.collect(),
        audit: first
            .audit
            .as_ref()
            .map(|audit| AuditPlan { files: audit.files.clone(), flush_s: audit.flush.as_secs_f64() }),
        kind: first.workload.kind(),
        quantities,
        workload: in_words(&first, study.search.as_ref().map(|search| &search.unit)),
        inputs: fingerprint_inputs(study),
        secrets: None,
        noise: study.noise.clone(),
        machines: Vec::new(),
    })
}

/// The settings, each with those of its host settings that vary, and the quantities that workloads and observers declare, without
/// duplicates.
fn settings_and_quantities(study: &Study) -> Result<(Vec<Setting>, Vec<DeclaredQuantity>), String> {
    let mut settings = study.settings.clone();
    let mut all: Vec<DeclaredQuantity> = Vec::new();
    let mut number = 0;
    each_setup(study, &mut |setup| {
        let hosts = setup.lab.iter().flat_map(|plan| &plan.hosts);
        settings[number].host_settings =
            hosts.map(|host| (host.name.clone(), host.sysctls.clone())).collect();
        number += 1;
        for given in observers::quantities(setup) {
            if !all.iter().any(|known| known.name == given.name) {
                all.push(given);
            }
        }
    })?;
    keep_varied(&mut settings);
    Ok((settings, all))
}

/// Removes the host settings that are the same in all settings of the study.
fn keep_varied(settings: &mut [Setting]) {
    let Some(first) = settings.first().map(|setting| setting.host_settings.clone()) else { return };
    let of = |setting: &Setting, host: &str, name: &str| setting.host_settings.get(host)?.get(name).cloned();
    let mut varied = BTreeSet::new();
    for setting in settings.iter() {
        for (host, names) in setting.host_settings.iter().chain(&first) {
            let differs = |name: &&String| {
                of(setting, host, name) != first.get(host).and_then(|values| values.get(*name)).cloned()
            };
            varied.extend(names.keys().filter(differs).map(|name| (host.clone(), name.clone())));
        }
    }
    for setting in settings {
        for (host, names) in &mut setting.host_settings {
            names.retain(|name, _| varied.contains(&(host.clone(), name.clone())));
        }
        setting.host_settings.retain(|_, names| !names.is_empty());
    }
}

/// Calls `visit` with every setting's setup at the smallest load of the search.
fn each_setup(study: &Study, visit: &mut dyn FnMut(&Setup)) -> Result<(), String> {
    let least = study.search.as_ref().map(|search| search.min);
    let mut wrong = Ok(());
    study.each_setup((0..study.settings.len()).map(|setting| (setting, least)), &mut |_, setup| {
        wrong = setup.map(|setup| visit(&setup)).map_err(joined);
        wrong.is_ok()
    });
    wrong
}

fn joined(mistakes: Vec<Mistake>) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Fingerprints of the study's secrets, which let a resumed run check that they are unchanged.
pub(crate) fn secret_prints(study: &Study, salt: Option<&str>) -> Result<Option<SecretFingerprints>, String> {
    let mut secrets = BTreeSet::new();
    each_setup(study, &mut |setup| secrets.extend(setup.workload.secrets()))?;
    if secrets.is_empty() {
        return Ok(None);
    }
    let salt = salt.map_or_else(fingerprint::draw_salt, |salt| Ok(salt.to_owned()))?;
    let print = |(what, secret): (String, String)| {
        let fingerprint = fingerprint::derive(&salt, &what, &secret);
        SecretFingerprint { what, fingerprint }
    };
    Ok(Some(SecretFingerprints { prints: secrets.into_iter().map(print).collect(), salt }))
}

/// The key of a study file that limits only the study's duration.
const BUDGET: &str = "budget";

/// Fingerprint (FNV-1a, 64 bits) of everything that affects trials and is not in the plan itself, without secrets. Comments,
/// the layout of the file and the budget do not affect it.
fn fingerprint_inputs(study: &Study) -> String {
    let given = match &study.source {
        Source::File(document) => {
            let overrides = document.overrides().into_iter().filter(|(key, _)| *key != BUDGET);
            let overrides: Vec<_> = overrides.map(|(key, value)| (key, secrets::mask(value))).collect();
            let mut tables: toml::Table = toml::from_str(&document.masked_text()).unwrap_or_default();
            tables.remove(BUDGET);
            format!("{overrides:?}\n{tables:?}")
        }
        Source::Fixed(setup) => setup.workload.fingerprint(),
    };
    let all = format!("{given}\n{:?}", study.trial);
    let hash = all.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Each block runs all settings once in a random order, so that a drift of this machine affects all settings alike.
fn blocks(study: &Study) -> Vec<Vec<usize>> {
    let mut rng = Pcg64Mcg::seed_from_u64(study.seed);
    let block = |_| {
        let mut order: Vec<usize> = (0..study.settings.len()).collect();
        order.shuffle(&mut rng);
        order
    };
    (0..study.trial.repeats).map(block).collect()
}

/// The workload in words for users, without the load that a search varies.
fn in_words(setup: &Setup, varied: Option<&LoadUnit>) -> String {
    let target = setup.target.as_ref();
    let target = target.map(|target| match (target.name.as_str(), secrets::mask(&target.what)) {
        // `proofload limit` calls its only target `target`, which says nothing to users.
        ("target", what) => format!("target {what}"),
        (name, what) => format!("target {name} ({what})"),
    });
    match &setup.workload {
        Workload::Http(workload) => workload.in_words(target, varied.and_then(LoadUnit::key)),
        Workload::Command(workload) => {
            let mut parts = vec![secrets::mask(&workload.in_words()).into_owned()];
            parts.extend(target);
            if varied != Some(&LoadUnit::Copies) && workload.copies > 1 {
                parts.push(format!("{} at once", workload.copies));
            }
            parts.join(", ")
        }
    }
}
