//! The table `[search]`: a search for the largest load that meets the goals.

use std::{
    ops::{Range, RangeInclusive},
    time::Duration,
};

use record::{Level, LoadUnit};
use search::Preset;
use settings::{Reader, Table, Value, suggestion};

use super::{
    factors::{Condition, Factors},
    keys::{SEARCH_KEYS, SearchKeys, parse_load},
    placeholders,
};
use crate::study::{Begin, Search};

/// Load units that every workload supports.
const UNITS: [&str; 4] = ["users", "rate", "connections", "copies"];
/// Largest default width of the bounds for a search over whole loads.
const WHOLE_WIDTH: f64 = 0.005;

pub(super) struct ParsedSearch<'d> {
    /// The search with its first preset.
    pub(super) search: Search,
    /// The factor that selects the preset, and a search for each of its levels.
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
            reader.mistake(
                factor.span.clone(),
                "there is no table [search] to vary this factor: add it, or give the factor levels",
            );
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
    let (mut keys, mut ends) = (SearchKeys::default(), [None, None]);
    let mut by_level = None;
    for spec in SEARCH_KEYS {
        let end = ["min", "max"].iter().position(|end| *end == spec.key);
        let what = "the ends of the search, such as min = 100 and max = \"100k\"";
        let value = if end.is_some() { table.require(reader, spec.key, what) } else { table.take(spec.key) };
        let Some(value) = value else { continue };
        if spec.key == "preset" {
            let preset;
            (preset, by_level) = read_presets(reader, value, factors);
            keys.preset = Some(preset);
            continue;
        }
        reader.apply(spec, value, &mut keys);
        if let Some(end) = end {
            let text = if end == 0 { &keys.min } else { &keys.max };
            let load = text.as_ref().and_then(|text| reader.checked(value, parse_load(text, is_whole)));
            ends[end] = Some((load, value.span()));
        }
    }
    let [min, max] = ends;
    if let (Some((Some(min), _)), Some((Some(max), span))) = (&min, &max)
        && max <= min
    {
        reader.mistake(span.clone(), format!("the largest load, {max}, is not above the smallest, {min}"));
    }
    let preset = keys.preset.unwrap_or(Preset::Mlrsearch);
    let when = table.take("when").map(|value| Condition::read_all(reader, value)).unwrap_or_default();
    when.iter().for_each(|condition| factors.check(reader, condition, None));
    table.finish(reader);
    let (unit, factor) = unit?;
    let ((min, min_span), (max, max_span)) = (min?, max?);
    let (min, max) = (min?, max?);
    let by = |preset: Preset| Search {
        width: keys.width.unwrap_or_else(|| Search::default_width(preset, &unit, min..=max)),
        unit: unit.clone(),
        min,
        max,
        preset: preset.name().to_owned(),
        trial_duration: keys.trial.or(trial),
        repeats: keys.repeats,
        confirm: keys.confirm.unwrap_or(0),
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

    /// The span of `min` if that is the load, else the span of `max`.
    pub(super) fn span_of_load(&self, load: f64) -> Range<usize> {
        if load == self.search.min { self.min.clone() } else { self.max.clone() }
    }

    pub(super) fn preset_factor(&self) -> Option<&str> {
        self.presets.as_ref().map(|(factor, _)| *factor)
    }
}

/// The first preset. If a factor selects the preset, also that factor and the preset of each level.
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
    /// Default of the requested width: the preset's, or less for whole loads, because neighbouring small whole loads differ by a large
    /// share.
    pub fn default_width(preset: Preset, unit: &LoadUnit, loads: RangeInclusive<f64>) -> f64 {
        let width = preset.goal("", 0.0).width;
        if are_whole(unit, *loads.start(), *loads.end()) { width.min(WHOLE_WIDTH) } else { width }
    }

    /// Whether the search tries only whole loads.
    pub fn takes_whole_loads(&self) -> bool {
        are_whole(&self.unit, self.min, self.max)
    }
}

/// Whether a search tries only whole loads. It does for counts, and for a factor whose ends are whole.
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
        reader.mistake(other.span.clone(), format!("the search varies '{name}'; give this factor levels"));
    }
    match (name, factor) {
        (_, Some(factor)) if factor.searched => {
            Some((LoadUnit::Factor(factor.name.to_owned()), Some(factor.name)))
        }
        // Do not look for a factor of this name: it may apply only to settings without the search.
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
