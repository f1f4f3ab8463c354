//! The table `[search]`: a search for the largest load that meets the goals.

use std::{
    ops::{Range, RangeInclusive},
    time::Duration,
};

use record::{
    Level, LoadUnit,
    units::{parse_count, parse_rate, parse_ratio},
};
use search::Preset;
use settings::{Reader, Table, Value, suggestion};

use super::{
    factors::{Condition, Factors},
    placeholders,
};
use crate::study::{Begin, Search};

/// Load units that every workload supports.
const UNITS: [&str; 4] = ["users", "rate", "connections", "copies"];
/// Largest default width of the bounds if only whole loads are tried.
const WHOLE_WIDTH: f64 = 0.005;
/// The shortest duration of a trial.
const MIN_TRIAL: Duration = Duration::from_millis(100);

pub(super) struct ParsedSearch<'d> {
    /// The search with its first preset.
    pub(super) search: Search,
    /// The factor that selects the preset, and the search with the preset of each level.
    presets: Option<(&'d str, Vec<(Level, Search)>)>,
    /// The factor that the search varies, if any.
    pub(super) factor: Option<&'d str>,
    pub(super) when: Vec<Condition>,
    pub(super) span: Range<usize>,
    pub(super) vary: Range<usize>,
    pub(super) min: Range<usize>,
    pub(super) max: Range<usize>,
}

/// Reads the table; `trial` is the duration of the study's trials, if given.
pub(super) fn read<'d>(
    reader: &mut Reader<'_>,
    table: &mut Table<'d, 'd>,
    factors: &Factors<'d>,
    trial: Option<Duration>,
) -> Option<ParsedSearch<'d>> {
    let Some(value) = table.take("search") else {
        for factor in factors.list.iter().filter(|factor| factor.searched) {
            reader.mistake(factor.span.clone(), "there is no table [search] to vary this factor");
        }
        return None;
    };
    let mut table = reader.table(value, "a table [search]");
    let vary = table.require(
        reader,
        "vary",
        "\"users\", \"rate\", \"connections\", \"copies\", or a factor with search = true",
    );
    let unit = vary.and_then(|value| read_unit(reader, value, factors));
    let is_whole = unit.as_ref().is_none_or(|(unit, _)| unit.is_whole());
    let mut bound = |reader: &mut Reader<'_>, key| {
        let value =
            table.require(reader, key, "the ends of the search, such as min = 100 and max = \"100k\"")?;
        Some((read_load(reader, value, is_whole), value.span()))
    };
    let (min, max) = (bound(reader, "min"), bound(reader, "max"));
    if let (Some((Some(min), _)), Some((Some(max), span))) = (&min, &max)
        && max <= min
    {
        reader.mistake(span.clone(), format!("the largest load, {max}, is not above the smallest, {min}"));
    }
    let (preset, by_level) =
        table.take("preset").map_or((Preset::Mlrsearch, None), |value| read_presets(reader, value, factors));
    let width = table.take("width").and_then(|value| read_width(reader, value));
    let duration = table.take("trial").and_then(|value| read_duration(reader, value)).or(trial);
    let repeats = table.take("repeats").and_then(|value| reader.whole(value, 1..1_001)).map(|n| n as u32);
    let confirm = table.take("confirm").and_then(|value| reader.whole(value, 1..1_001)).unwrap_or(0) as u32;
    let when = table.take("when").map(|value| Condition::read_all(reader, value)).unwrap_or_default();
    when.iter().for_each(|condition| factors.check(reader, condition, None));
    table.finish(reader);
    let (unit, factor) = unit?;
    let ((min, min_span), (max, max_span)) = (min?, max?);
    let (min, max) = (min?, max?);
    let by = |preset: Preset| Search {
        width: width.unwrap_or_else(|| Search::default_width(preset, &unit, min..=max)),
        unit: unit.clone(),
        min,
        max,
        preset: preset.name().to_owned(),
        trial_duration: duration,
        repeats,
        confirm,
        begin: Begin::Smallest,
    };
    let presets = by_level.map(|(factor, levels)| {
        (factor, levels.into_iter().map(|(level, preset)| (level, by(preset))).collect())
    });
    let vary = vary.map_or(value.span(), |vary| vary.span());
    let search = by(preset);
    Some(ParsedSearch {
        search,
        presets,
        factor,
        when,
        span: value.span(),
        vary,
        min: min_span,
        max: max_span,
    })
}

impl ParsedSearch<'_> {
    /// The search of a setting with these levels; the search with the first preset if no level selects one.
    pub(super) fn at(&self, level_of: impl Fn(&str) -> Option<Level>) -> &Search {
        let Some((factor, presets)) = &self.presets else { return &self.search };
        let chosen = level_of(factor).and_then(|level| presets.iter().find(|(known, _)| *known == level));
        chosen.map_or(&self.search, |(_, search)| search)
    }

    /// The span of `max`, or of `min` if that is the load.
    pub(super) fn span_of_load(&self, load: f64) -> Range<usize> {
        if load == self.search.min { self.min.clone() } else { self.max.clone() }
    }

    pub(super) fn preset_factor(&self) -> Option<&str> {
        self.presets.as_ref().map(|(factor, _)| *factor)
    }
}

/// The first preset; if a factor selects it, also the factor and the preset of each level.
type Presets<'d> = (Preset, Option<(&'d str, Vec<(Level, Preset)>)>);

fn read_presets<'d>(reader: &mut Reader<'_>, value: &Value<'_>, factors: &Factors<'d>) -> Presets<'d> {
    let pieces = value.get_ref().as_str().map(placeholders::pieces);
    if let Some([placeholders::Piece::Name(name)]) = pieces.as_deref() {
        let Some(factor) = factors.get(name).filter(|factor| !factor.searched) else {
            let hint = suggestion(name, factors.names());
            reader.mistake(value.span(), format!("'{{{name}}}' is not a factor with levels{hint}"));
            return (Preset::Mlrsearch, None);
        };
        let preset = |(level, at): &(Level, &Value<'_>)| Some((level.clone(), read_preset(reader, at)?));
        let levels: Vec<(Level, Preset)> = factor.levels.iter().filter_map(preset).collect();
        let first = levels.first().map_or(Preset::Mlrsearch, |(_, preset)| *preset);
        return (first, Some((factor.name, levels)));
    }
    (read_preset(reader, value).unwrap_or(Preset::Mlrsearch), None)
}

/// Duration of a preset's full trial in seconds, and the number of trials that decide about a load.
pub(super) fn preset_trials(preset: &str) -> (f64, u32) {
    let goal = preset.parse().unwrap_or(Preset::Mlrsearch).goal("", 0.0);
    (goal.final_trial_duration_s, (goal.duration_sum_s / goal.final_trial_duration_s).round() as u32)
}

impl Search {
    /// Default of the requested width: the preset's, or less if only whole loads are tried, because neighbouring small whole loads are
    /// far apart anyway.
    pub fn default_width(preset: Preset, unit: &LoadUnit, loads: RangeInclusive<f64>) -> f64 {
        let width = preset.goal("", 0.0).width;
        if are_whole(unit, *loads.start(), *loads.end()) { width.min(WHOLE_WIDTH) } else { width }
    }

    /// Whether the search tries only whole loads.
    pub fn takes_whole_loads(&self) -> bool {
        are_whole(&self.unit, self.min, self.max)
    }
}

/// Whether a search tries only whole loads: counts, and a factor between whole ends.
fn are_whole(unit: &LoadUnit, min: f64, max: f64) -> bool {
    let is_factor = matches!(unit, LoadUnit::Factor(_));
    unit.is_whole() || (is_factor && min.fract() == 0.0 && max.fract() == 0.0)
}

fn read_unit<'d>(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    factors: &Factors<'d>,
) -> Option<(LoadUnit, Option<&'d str>)> {
    let name = reader.text(value)?;
    let factor = factors.get(name);
    for other in factors.list.iter().filter(|other| other.searched && other.name != name) {
        reader.mistake(other.span.clone(), format!("the search varies '{name}', not this: give it levels"));
    }
    match (name, factor) {
        (_, Some(factor)) if factor.searched => {
            Some((LoadUnit::Factor(factor.name.to_owned()), Some(factor.name)))
        }
        // A factor of this name may apply only to settings without the search.
        ("users", _) => Some((LoadUnit::Users, None)),
        ("rate", _) => Some((LoadUnit::Rate, None)),
        ("connections", _) => Some((LoadUnit::Connections, None)),
        ("copies", _) => Some((LoadUnit::Copies, None)),
        (_, Some(_)) => {
            let message = format!(
                "the factor '{name}' has levels; to search for it, write {name} = {{ search = true }}"
            );
            reader.refuse(value.span(), message)
        }
        _ => {
            let hint = suggestion(name, UNITS.into_iter().chain(factors.names()));
            let message = format!(
                "a search cannot vary '{name}'{hint}; it varies users, rate, connections, copies or a factor"
            );
            reader.refuse(value.span(), message)
        }
    }
}

fn read_load(reader: &mut Reader<'_>, value: &Value<'_>, is_whole: bool) -> Option<f64> {
    let what = if is_whole { "a count such as 100 or \"5k\"" } else { "a load such as 100, 0.5 or \"5k\"" };
    let text = reader.number_or_text(value, what)?;
    if is_whole {
        let count = reader.checked(value, parse_count(&text))?;
        if count == 0 || count > 1_000_000_000 {
            return reader.refuse(
                value.span(),
                format!("{count} is not a load; give a count from 1 to 1_000_000_000"),
            );
        }
        return Some(count as f64);
    }
    reader.checked(value, parse_rate(&text))
}

fn read_preset(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Preset> {
    let name = reader.text(value)?;
    let preset = name.parse().ok();
    if preset.is_none() {
        let names = Preset::ALL.map(Preset::name);
        let hint = suggestion(name, names);
        let message = format!("there is no preset '{name}'{hint} (presets: {})", names.join(", "));
        reader.mistake(value.span(), message);
    }
    preset
}

fn read_width(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<f64> {
    let refuse = "the width of the interval between the bounds is a share of the load above 0 and below 1, such as \
                  \"2%\"";
    let text = reader.number_or_text(value, "a share such as \"2%\" or 0.02")?;
    match parse_ratio(&text) {
        Ok(width) if (1e-9..1.0).contains(&width) => Some(width),
        _ => reader.refuse(value.span(), refuse),
    }
}

/// Reads the duration of a trial, which has a minimum.
pub(super) fn read_duration(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Duration> {
    let duration = reader.time(value)?;
    reader.checked(value, check_trial(duration))
}

/// Checks that the duration of a trial is not too short, and returns it.
///
/// # Errors
/// The reason why the duration is refused.
pub fn check_trial(duration: Duration) -> Result<Duration, String> {
    let is_long_enough = duration >= MIN_TRIAL;
    is_long_enough.then_some(duration).ok_or_else(|| "too short for a trial; give at least 100ms".to_owned())
}
