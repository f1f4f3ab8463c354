//! Leaves out settings that this machine cannot run, with a warning.

use record::{Setting, Warning};
use settings::Reader;

use super::{balancers::Shortage, resolver::Resolver};

/// A setting, the name of its target, and what this machine lacks for its balancer.
type Chosen<'a> = (Setting, Option<&'a str>, Option<&'a Shortage>);

/// Leaves out the settings whose targets, levels or balancers this machine cannot run, with a warning for each reason. `targets` has the
/// name of each setting's target, `balancers` what this machine lacks for its balancer.
pub(super) fn leave_out(
    reader: &mut Reader<'_>,
    resolver: &Resolver<'_>,
    settings: Vec<Setting>,
    (targets, balancers): (&[Option<&str>], &[Option<Shortage>]),
) -> (Vec<Setting>, Vec<Warning>) {
    let before = settings.len();
    let chosen = settings.into_iter().zip(targets).zip(balancers);
    let mut kept: Vec<Chosen<'_>> =
        chosen.map(|((setting, target), balancer)| (setting, *target, balancer.as_ref())).collect();
    let mut left_out = Vec::new();
    let mut leave_out = |is_kept: &dyn Fn(&Chosen<'_>) -> bool, why: String, cure: &str, span| {
        let count = kept.len();
        kept.retain(is_kept);
        if kept.len() < count {
            left_out.push((count - kept.len(), why, cure.to_owned(), span));
        }
    };
    const INSTALL: &str = "install it";
    let lacks = |needs: String| format!("{needs}, which this machine does not have");
    for target in resolver.targets.list.iter().filter(|target| !target.missing_programs.is_empty()) {
        let needs = format!("the target '{}' needs {}", target.name, target.missing_programs.join(", "));
        leave_out(&|(_, chosen, _)| *chosen != Some(target.name), lacks(needs), INSTALL, target.span.clone());
    }
    for factor in &resolver.outline.factors.list {
        for (level, missing) in &factor.uninstalled {
            let needs = format!("{}={level} needs {}", factor.name, missing.join(", "));
            let has_level = |setting: &Setting| {
                setting.levels.get(factor.name).is_some_and(|chosen| chosen.to_string() == *level)
            };
            leave_out(&|(setting, ..)| !has_level(setting), lacks(needs), INSTALL, factor.span.clone());
        }
    }
    let mut shortages: Vec<&Shortage> = Vec::new();
    for shortage in balancers.iter().flatten() {
        if !shortages.contains(&shortage) {
            shortages.push(shortage);
        }
    }
    for shortage in shortages {
        let is_kept = |(_, _, found): &Chosen<'_>| *found != Some(shortage);
        leave_out(&is_kept, shortage.why.clone(), &shortage.cure, shortage.span.clone());
    }
    if let (Some((_, why, cure, span)), true) = (left_out.last(), kept.is_empty()) {
        reader.mistake(span.clone(), format!("nothing is left to run: {why}; {cure}"));
    }
    let warning = |(count, why, cure, _)| {
        let message =
            format!("{count} of {before} settings are left out: {why}; {cure} to have them measured");
        Warning::new("setting_left_out", message)
    };
    let warnings = left_out.into_iter().map(warning).collect();
    (kept.into_iter().map(|(setting, ..)| setting).collect(), warnings)
}
