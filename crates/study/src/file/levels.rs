//! The levels of one setting, and values with them in their places.

use std::{borrow::Cow, collections::BTreeMap, path::Path};

use record::Level;
use settings::{Reader, Value};
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use super::{
    factors::Factors,
    places::{self, Piece},
};

/// The level of every factor that applies.
pub(super) struct Levels<'d> {
    values: BTreeMap<&'d str, Value<'d>>,
    /// Factors that do not apply here, or whose load is not known.
    missing: Vec<&'d str>,
    /// What `{study_folder}` stands for.
    folder: String,
}

impl<'d> Levels<'d> {
    /// Those of a setting.
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

    /// With the load of a search in the place of the factor that it varies.
    pub(super) fn with_load(&self, name: &'d str, load: Value<'d>) -> Self {
        let missing = self.missing.iter().copied().filter(|missing| *missing != name).collect();
        let mut values = self.values.clone();
        values.insert(name, load);
        Self { values, missing, folder: self.folder.clone() }
    }

    /// A factor's level here.
    pub(super) fn get(&self, name: &str) -> Option<&Value<'d>> {
        self.values.get(name)
    }

    /// The same as a record has it.
    pub(super) fn level(&self, name: &str) -> Option<Level> {
        self.get(name).and_then(level)
    }

    /// The value with levels in the places of their factors; none if it is nothing but the place of a factor that
    /// does not apply. A text that is nothing but a place becomes the level as it is, a number or a flag, except in
    /// lists and environments, which hold texts.
    pub(super) fn put(&self, reader: &mut Reader<'_>, value: &Value<'d>) -> Option<Value<'d>> {
        let inner = match value.get_ref() {
            DeValue::String(text) => match places::pieces(text)[..] {
                [Piece::Name(name)] if self.missing.contains(&name) => return None,
                [Piece::Name(name)] if self.get(name).is_some() => return self.get(name).cloned(),
                _ => DeValue::String(Cow::Owned(self.put_text(reader, value, text))),
            },
            DeValue::Array(values) => {
                let values = values.iter().filter_map(|value| self.put_as_text(reader, value));
                DeValue::Array(values.collect::<DeArray<'d>>())
            }
            DeValue::Table(table) => DeValue::Table(self.put_table(reader, table)),
            other => other.clone(),
        };
        Some(Spanned::new(value.span(), inner))
    }

    /// The same for all values of a table.
    pub(super) fn put_table(&self, reader: &mut Reader<'_>, table: &DeTable<'d>) -> DeTable<'d> {
        let mut put = |key: &str, value: &Value<'d>| match value.get_ref() {
            DeValue::Table(environment) if key == "env" => {
                let texts = environment.iter();
                let texts =
                    texts.filter_map(|(name, value)| Some((name.clone(), self.put_as_text(reader, value)?)));
                Some(Spanned::new(value.span(), DeValue::Table(texts.collect())))
            }
            _ => self.put(reader, value),
        };
        table.iter().filter_map(|(key, value)| Some((key.clone(), put(key.get_ref(), value)?))).collect()
    }

    fn put_as_text(&self, reader: &mut Reader<'_>, value: &Value<'d>) -> Option<Value<'d>> {
        let put = self.put(reader, value)?;
        if !value.get_ref().is_str() || put.get_ref().is_str() {
            return Some(put);
        }
        let text = level(&put)?.to_string();
        Some(Spanned::new(put.span(), DeValue::String(Cow::Owned(text))))
    }

    fn put_text(&self, reader: &mut Reader<'_>, value: &Value<'_>, text: &str) -> String {
        for name in places::names(text) {
            if self.missing.contains(&name) {
                let message =
                    format!("the factor '{name}' has no level in every setting that needs this text");
                reader.mistake(value.span(), message);
            }
        }
        let stands_for = |name: &str| match self.get(name) {
            Some(value) => Some(level(value)?.to_string()),
            None => (name == "study_folder").then(|| self.folder.clone()),
        };
        places::replaced(text, &stands_for)
    }
}

/// A value as a level, if it can be one.
pub(super) fn level(value: &Value<'_>) -> Option<Level> {
    match value.get_ref() {
        DeValue::Boolean(flag) => Some(Level::Flag(*flag)),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()?;
            // 2⁵³: beyond it a float does not hold every whole number.
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
