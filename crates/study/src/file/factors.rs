//! The table `[factors]`: the factors with their levels, and the combinations of levels that are run.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use record::{Factor, Level, Setting, printable};
use settings::{Reader, Table, Value, suggestion, values_of};
use toml::de::DeValue;

use super::{levels::level, placeholders, programs};

const MAX_SETTINGS: usize = 10_000;
const FACTOR: &str = "a list of levels such as [1, 2], or { values = [1, 2], when = { … } }";

/// All factors, in the order of the file.
pub(super) struct Factors<'d> {
    pub(super) list: Vec<ParsedFactor<'d>>,
    /// Combinations to leave out: those for which all conditions of one of these lists hold.
    exceptions: Vec<Vec<Condition>>,
}

/// A factor as the file defines it.
pub(super) struct ParsedFactor<'d> {
    pub(super) name: &'d str,
    pub(super) span: Range<usize>,
    pub(super) levels: Vec<(Level, &'d Value<'d>)>,
    /// Indices in `levels`, by key.
    index: BTreeMap<String, usize>,
    pub(super) when: Vec<Condition>,
    /// Levels whose programs are not installed, each with the missing programs.
    pub(super) uninstalled: Vec<(String, Vec<&'d str>)>,
    /// Whether a search varies the factor.
    pub(super) searched: bool,
    /// Whether overrides replace its levels. Conditions may then name levels that no longer exist.
    pub(super) is_overridden: bool,
    /// Whether its name is valid for a placeholder.
    pub(super) has_valid_name: bool,
}

/// A condition: a factor must have one of these levels.
pub(super) struct Condition {
    pub(super) factor: String,
    /// The levels, with their spans.
    levels: Vec<(Level, Range<usize>)>,
    span: Range<usize>,
}

type Combination = BTreeMap<String, Level>;

impl<'d> Factors<'d> {
    pub(super) fn read(reader: &mut Reader<'_>, table: &mut Table<'d, 'd>) -> Self {
        let exceptions = table.take("except");
        let read_exceptions = |reader: &mut Reader<'_>| {
            let value = exceptions?;
            let tables = reader.array(value, "tables such as [[except]] with target = \"nginx\"");
            Some(tables.iter().map(|table| Condition::read_all(reader, table)).collect())
        };
        let exceptions = read_exceptions(reader).unwrap_or_default();
        let Some(value) = table.take("factors") else { return Self { list: Vec::new(), exceptions } };
        let table = reader.table(value, "a table of factors such as connections = [50, 100]");
        let mut list: Vec<ParsedFactor<'d>> =
            table.entries().map(|(span, name, value)| read_one(reader, span, name, value)).collect();
        list.sort_by_key(|factor| factor.span.start);
        let factors = Self { list, exceptions };
        for factor in &factors.list {
            for condition in &factor.when {
                factors.check(reader, condition, Some(factor.name));
            }
        }
        for condition in factors.exceptions.iter().flatten() {
            factors.check(reader, condition, None);
        }
        factors
    }

    pub(super) fn get(&self, name: &str) -> Option<&ParsedFactor<'d>> {
        self.list.iter().find(|factor| factor.name == name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'d str> {
        self.list.iter().map(|factor| factor.name)
    }

    /// Reports parts of a condition that can never hold. `of` is the factor with this condition.
    pub(super) fn check(&self, reader: &mut Reader<'_>, condition: &Condition, of: Option<&str>) {
        let Some(factor) = self.get(&condition.factor) else {
            let hint = suggestion(&condition.factor, self.names());
            return reader
                .mistake(condition.span.clone(), format!("there is no factor '{}'{hint}", condition.factor));
        };
        if of == Some(factor.name) {
            return reader.mistake(condition.span.clone(), "a factor cannot depend on itself");
        }
        if factor.searched {
            let message = format!("the search sets '{}', so nothing can depend on its level", factor.name);
            return reader.mistake(condition.span.clone(), message);
        }
        for (wanted, span) in &condition.levels {
            let is_sure = !factor.is_overridden && !factor.levels.is_empty();
            if is_sure && !factor.levels.iter().any(|(level, _)| level == wanted) {
                let known: Vec<String> = factor.levels.iter().map(|(level, _)| level.to_string()).collect();
                let hint = suggestion(&wanted.to_string(), known.iter().map(String::as_str));
                let message =
                    format!("'{}' has no level '{wanted}'{hint} (levels: {})", factor.name, known.join(", "));
                reader.mistake(span.clone(), message);
            }
        }
    }

    /// All combinations of levels; the first factor varies most slowly.
    pub(super) fn combinations(&self, reader: &mut Reader<'_>) -> Vec<Combination> {
        let Some(order) = self.in_order(reader) else { return Vec::new() };
        let mut combinations = vec![Combination::new()];
        for factor in order {
            let mut next = Vec::new();
            for combination in combinations {
                if factor.searched || !all_hold(&factor.when, &combination) || factor.levels.is_empty() {
                    next.push(combination);
                    continue;
                }
                for (level, _) in &factor.levels {
                    let mut more = combination.clone();
                    more.insert(factor.name.to_owned(), level.clone());
                    next.push(more);
                }
                if next.len() > MAX_SETTINGS {
                    let message = format!(
                        "the factors make more than {MAX_SETTINGS} settings: give fewer levels, or limit a factor by \
                         'when'"
                    );
                    reader.mistake(factor.span.clone(), message);
                    return Vec::new();
                }
            }
            combinations = next;
        }
        combinations.retain(|combination| !self.is_excepted(combination));
        combinations
    }

    /// Whether an exception excludes a combination. An exception does not apply if overrides set the levels of all its factors.
    fn is_excepted(&self, combination: &Combination) -> bool {
        let is_own =
            |condition: &Condition| self.get(&condition.factor).is_some_and(|factor| factor.is_overridden);
        let holds =
            |conditions: &Vec<Condition>| !conditions.iter().all(is_own) && all_hold(conditions, combination);
        self.exceptions.iter().any(holds)
    }

    /// Sorts factors after those on which they depend, otherwise in the order of the file.
    fn in_order(&self, reader: &mut Reader<'_>) -> Option<Vec<&ParsedFactor<'d>>> {
        let mut waiting: Vec<&ParsedFactor<'d>> = self.list.iter().collect();
        let mut order: Vec<&ParsedFactor<'d>> = Vec::new();
        while !waiting.is_empty() {
            let ready = waiting.iter().position(|factor| {
                let is_other = |other: &&ParsedFactor<'_>| other.name != factor.name;
                let waits = |condition: &Condition| {
                    waiting.iter().filter(|other| is_other(other)).any(|other| other.name == condition.factor)
                };
                !factor.when.iter().any(waits)
            });
            let Some(ready) = ready else {
                let names: Vec<&str> = waiting.iter().map(|factor| factor.name).collect();
                let message = format!("these factors depend on each other in a circle: {}", names.join(", "));
                return reader.refuse(waiting[0].span.clone(), message);
            };
            order.push(waiting.remove(ready));
        }
        Some(order)
    }

    /// The factors for the result folder, with only those levels that occur in a setting.
    pub(super) fn record(&self, settings: &[Setting]) -> Vec<Factor> {
        let factor = |factor: &ParsedFactor<'_>| {
            let of_settings = settings.iter().filter_map(|setting| setting.levels.get(factor.name));
            let occurring: BTreeSet<String> = of_settings.map(key).collect();
            let occurs = |level: &&Level| occurring.contains(&key(level));
            let levels = factor.levels.iter().map(|(level, _)| level).filter(occurs).cloned().collect();
            Factor { name: factor.name.to_owned(), levels }
        };
        let factors = self.list.iter().filter(|one| !one.searched).map(factor);
        factors.filter(|factor| !factor.levels.is_empty()).collect()
    }

    /// Whether overrides replace the levels of any factor, so that parts of the file may be unused.
    pub(super) fn are_overridden(&self) -> bool {
        self.list.iter().any(|factor| factor.is_overridden)
    }

    /// The name of a combination, with its factors in the order of the file.
    pub(super) fn words(&self, combination: &Combination) -> String {
        let word = |name: &str| {
            combination.get(name).map(|level| format!("{name}={}", printable(&level.to_string())))
        };
        self.names().filter_map(word).collect::<Vec<_>>().join(" ")
    }
}

impl<'d> ParsedFactor<'d> {
    /// The value in the file that defined a level.
    pub(super) fn value_of(&self, level: &Level) -> Option<&'d Value<'d>> {
        self.index.get(&key(level)).map(|index| self.levels[*index].1)
    }

    fn read_levels(&mut self, reader: &mut Reader<'_>, value: &'d Value<'d>) {
        let values = reader.array(value, "a list of levels such as [50, 100]");
        if values.is_empty() && value.get_ref().is_array() {
            reader.mistake(value.span(), "a factor needs at least one level");
        }
        for value in values {
            match level(value) {
                Some(level) if self.index.contains_key(&key(&level)) => {
                    reader.mistake(value.span(), format!("the level '{level}' is given twice"));
                }
                Some(level) => {
                    self.index.insert(key(&level), self.levels.len());
                    self.levels.push((level, value));
                }
                None if value.get_ref().is_integer() || value.get_ref().is_float() => {
                    reader.mistake(value.span(), "a level is a number up to 9_007_199_254_740_992");
                }
                None => reader.expected(value, "a level: a number, text, or true or false"),
            }
        }
    }
}

/// Key of a level in the index, which finds a level quickly among thousands.
fn key(level: &Level) -> String {
    match level {
        // Adding 0 turns -0 into 0.
        Level::Number(number) => format!("{}", number + 0.0),
        other => format!("{other:?}"),
    }
}

pub(super) fn all_hold(conditions: &[Condition], combination: &Combination) -> bool {
    let holds = |condition: &Condition| {
        let at = combination.get(&condition.factor);
        at.is_some_and(|level| condition.levels.iter().any(|(wanted, _)| wanted == level))
    };
    conditions.iter().all(holds)
}

impl Condition {
    /// Reads `{ mode = "limit", target = ["a", "b"] }`.
    pub(super) fn read_all(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<Self> {
        let table = reader.table(value, "a table such as { target = \"nginx\" }");
        let mut conditions: Vec<Self> = Vec::new();
        for (span, factor, value) in table.entries() {
            let values = values_of(value);
            if values.is_empty() {
                reader.mistake(value.span(), "no level is given, so this condition never holds");
            }
            let mut levels = Vec::new();
            for value in values {
                match level(value) {
                    Some(level) => levels.push((level, value.span())),
                    None => reader.expected(value, "a level or a list of levels"),
                }
            }
            conditions.push(Self { factor: factor.to_owned(), levels, span });
        }
        conditions.sort_by_key(|condition| condition.span.start);
        conditions
    }
}

fn read_one<'d>(
    reader: &mut Reader<'_>,
    span: Range<usize>,
    name: &'d str,
    value: &'d Value<'d>,
) -> ParsedFactor<'d> {
    let mut factor = ParsedFactor {
        name,
        span,
        levels: Vec::new(),
        index: BTreeMap::new(),
        when: Vec::new(),
        uninstalled: Vec::new(),
        searched: false,
        is_overridden: false,
        has_valid_name: false,
    };
    factor.has_valid_name = placeholders::check_name(reader, name, &factor.span);
    if ["self", "port", "study_folder", "proofload"].contains(&name) {
        let message = format!("'{{{name}}}' already has a meaning: choose another name");
        reader.mistake(factor.span.clone(), message);
        factor.has_valid_name = false;
    }
    match value.get_ref() {
        DeValue::Array(_) => factor.read_levels(reader, value),
        DeValue::Table(_) => {
            let mut table = reader.table(value, FACTOR);
            let values = table.take("values");
            let search = table.take("search");
            if let Some(value) = table.take("when") {
                factor.when = Condition::read_all(reader, value);
            }
            if let Some(value) = table.take("needs") {
                let needs = reader.table(value, "a table such as { rclone = \"rclone\" }");
                let missing =
                    |(_, level, value): (_, &str, _)| (level.to_owned(), programs::missing(reader, value));
                factor.uninstalled =
                    needs.entries().map(missing).filter(|(_, missing)| !missing.is_empty()).collect();
            }
            factor.searched = search.and_then(|value| reader.flag(value)).unwrap_or(false);
            match (values, factor.searched) {
                (Some(values), false) => factor.read_levels(reader, values),
                (Some(values), true) => {
                    reader
                        .mistake(values.span(), "a search finds the levels: leave out 'values' or 'search'");
                }
                (None, false) => {
                    reader.mistake(value.span(), "'values' is missing: the levels, or search = true");
                }
                (None, true) => {}
            }
            table.finish(reader);
        }
        _ => reader.expected(value, FACTOR),
    }
    factor.is_overridden = factor.levels.iter().any(|(_, level)| !reader.is_in_file(&level.span()));
    factor
}
