//! The levels of one setting, and their substitution for placeholders.

use std::{borrow::Cow, collections::BTreeMap, env, path::Path};

use record::Level;
use settings::{Reader, Value};
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use super::{
    factors::Factors,
    placeholders::{self, Piece},
};

pub(super) struct Levels<'d> {
    values: BTreeMap<&'d str, Value<'d>>,
    /// Factors without a level in this setting: the factor does not apply, or the search has not set its load yet.
    missing: Vec<&'d str>,
    /// Value of `{study_folder}`.
    folder: String,
}

impl<'d> Levels<'d> {
    /// The levels of a setting, as values of the file.
    pub(super) fn of(factors: &Factors<'d>, setting: &BTreeMap<String, Level>, folder: &Path) -> Self {
        let folder = folder.display().to_string();
        let mut levels = Self { values: BTreeMap::new(), missing: Vec::new(), folder };
        for factor in &factors.list {
            let level = setting.get(factor.name).and_then(|level| factor.value_of(level));
            match level {
                Some(value) => drop(levels.values.insert(factor.name, value.clone())),
                None => levels.missing.push(factor.name),
            }
        }
        levels
    }

    /// Adds the load of a search as the level of the factor that the search varies.
    pub(super) fn with_load(&self, name: &'d str, load: Value<'d>) -> Self {
        let missing = self.missing.iter().copied().filter(|missing| *missing != name).collect();
        let mut values = self.values.clone();
        values.insert(name, load);
        Self { values, missing, folder: self.folder.clone() }
    }

    /// The value of a factor's level.
    pub(super) fn get(&self, name: &str) -> Option<&Value<'d>> {
        self.values.get(name)
    }

    /// The level of a factor.
    pub(super) fn level(&self, name: &str) -> Option<Level> {
        self.get(name).and_then(level)
    }

    /// Substitutes levels for placeholders. `None` if the value is just a placeholder of a factor that does not apply. A string that is
    /// just a placeholder becomes the level's value, which may be a number or a flag. In lists and environments, which hold only strings,
    /// it stays a string.
    pub(super) fn substitute(&self, reader: &mut Reader<'_>, value: &Value<'d>) -> Option<Value<'d>> {
        let inner = match value.get_ref() {
            DeValue::String(text) => match placeholders::pieces(text)[..] {
                [Piece::Name(name)] if self.missing.contains(&name) => return None,
                [Piece::Name(name)] if self.get(name).is_some() => return self.get(name).cloned(),
                _ => DeValue::String(Cow::Owned(self.substitute_in_text(reader, value, text))),
            },
            DeValue::Array(values) => {
                let values = values.iter().filter_map(|value| self.substitute_as_text(reader, value));
                DeValue::Array(values.collect::<DeArray<'d>>())
            }
            DeValue::Table(table) => DeValue::Table(self.substitute_table(reader, table)),
            other => other.clone(),
        };
        Some(Spanned::new(value.span(), inner))
    }

    /// Substitutes levels in all values of a table.
    pub(super) fn substitute_table(&self, reader: &mut Reader<'_>, table: &DeTable<'d>) -> DeTable<'d> {
        let mut substitute = |key: &str, value: &Value<'d>| match value.get_ref() {
            DeValue::Table(environment) if key == "env" => {
                let texts = environment.iter();
                let texts = texts.filter_map(|(name, value)| {
                    Some((name.clone(), self.substitute_as_text(reader, value)?))
                });
                Some(Spanned::new(value.span(), DeValue::Table(texts.collect())))
            }
            _ => self.substitute(reader, value),
        };
        table
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), substitute(key.get_ref(), value)?)))
            .collect()
    }

    fn substitute_as_text(&self, reader: &mut Reader<'_>, value: &Value<'d>) -> Option<Value<'d>> {
        let substituted = self.substitute(reader, value)?;
        if !value.get_ref().is_str() || substituted.get_ref().is_str() {
            return Some(substituted);
        }
        let text = level(&substituted)?.to_string();
        Some(Spanned::new(substituted.span(), DeValue::String(Cow::Owned(text))))
    }

    fn substitute_in_text(&self, reader: &mut Reader<'_>, value: &Value<'_>, text: &str) -> String {
        for name in placeholders::names(text) {
            if self.missing.contains(&name) {
                let message =
                    format!("the factor '{name}' does not have a level in every setting that uses this text");
                reader.mistake(value.span(), message);
            }
        }
        let lookup = |name: &str| match self.get(name) {
            Some(value) => Some(level(value)?.to_string()),
            None => match name {
                "study_folder" => Some(self.folder.clone()),
                // Use the path of the running program, because it may not be in the search path.
                "proofload" => Some(env::current_exe().ok()?.display().to_string()),
                _ => None,
            },
        };
        placeholders::substitute(text, &lookup)
    }
}

/// Converts a value of the file into a level, if possible.
pub(super) fn level(value: &Value<'_>) -> Option<Level> {
    match value.get_ref() {
        DeValue::Boolean(flag) => Some(Level::Flag(*flag)),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()?;
            // Beyond 2⁵³, a float cannot represent every whole number, so the level would change.
            (number.unsigned_abs() <= 1 << 53).then_some(Level::Number(number as f64))
        }
        DeValue::Float(number) => {
            let number: f64 = number.as_str().replace('_', "").parse().ok()?;
            number.is_finite().then_some(Level::Number(number))
        }
        DeValue::String(text) => Some(Level::Text(text.as_ref().to_owned())),
        _ => None,
    }
}
