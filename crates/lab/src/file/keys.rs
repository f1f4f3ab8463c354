//! Tables of keys. What a key is called, is for, key_type and does is said once: files are read by it, and their schema is made
//! of it.

use std::{ops::Range, time::Duration};

use serde_json::{Map, Value as Json};
use settings::{Reader, Table, Value, schema};

use super::hosts::HostGroups;
use crate::plan::Plan;

/// A key of a table that is read into a `T`.
pub(crate) struct Key<T: 'static> {
    pub name: &'static str,
    /// What it is for, without a capital letter and a full stop.
    pub help: &'static str,
    key_type: KeyType<T>,
}

/// What a key key_type: an example, and where the value goes. Numbers have bounds too; flags are false unless given.
pub(crate) enum KeyType<T: 'static> {
    Flag(fn(&mut T, bool)),
    Whole(Range<u64>, u64, fn(&mut T, u64)),
    Size(&'static str, fn(&mut T, u64)),
    Time(&'static str, fn(&mut T, Duration)),
    Text(&'static str, fn(&mut T, &str)),
    /// One of these words, given by its place among them; the first unless given.
    Choice(&'static [&'static str], fn(&mut T, usize)),
    /// Anything else: its schema, from what it is for, and its reader.
    Other(fn(&str) -> Json, Read<T>),
}

/// Reads a value.
pub(crate) type Read<T> = fn(&mut T, &mut Reader<'_>, &Value<'_>, &HostNames<'_>);

/// The hosts that values may name.
pub(crate) struct HostNames<'a> {
    pub plan: &'a Plan,
    pub groups: &'a HostGroups,
}

/// Reads what a table has of these keys.
pub(crate) fn read<T>(
    keys: &'static [Key<T>],
    own: &mut T,
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    names: &HostNames<'_>,
) {
    for key in keys {
        if let Some(value) = table.take(key.name) {
            key.read(own, reader, value, names);
        }
    }
}

/// The schema of these keys.
pub(crate) fn schema<T>(keys: &[Key<T>]) -> Map<String, Json> {
    keys.iter().map(|key| (key.name.to_owned(), key.schema(&sentence(key.help)))).collect()
}

/// With a capital letter and a full stop.
pub(crate) fn sentence(help: &str) -> String {
    let (first, rest) = help.split_at(help.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}.", first.to_uppercase())
}

impl<T> Key<T> {
    pub(crate) const fn new(name: &'static str, help: &'static str, key_type: KeyType<T>) -> Self {
        Self { name, help, key_type }
    }

    fn read(&self, own: &mut T, reader: &mut Reader<'_>, value: &Value<'_>, names: &HostNames<'_>) {
        // What could not be taken has been told.
        let _: Option<()> = match &self.key_type {
            KeyType::Flag(set) => reader.flag(value).map(|flag| set(own, flag)),
            KeyType::Whole(bounds, _, set) => {
                reader.whole(value, bounds.clone()).map(|number| set(own, number))
            }
            KeyType::Size(_, set) => reader.size(value).map(|size| set(own, size)),
            KeyType::Time(_, set) => reader.time(value).map(|time| set(own, time)),
            KeyType::Text(_, set) => reader.text(value).map(|text| set(own, text)),
            KeyType::Choice(words, set) => reader.text(value).and_then(|text| {
                let index = words.iter().position(|word| *word == text);
                let refuse = || format!("'{text}' is no '{}'; one of {}", self.name, words.join(", "));
                reader.checked(value, index.ok_or_else(refuse)).map(|index| set(own, index))
            }),
            KeyType::Other(_, read) => {
                read(own, reader, value, names);
                None
            }
        };
    }

    /// Its schema; `what` says what it is for.
    pub(crate) fn schema(&self, what: &str) -> Json {
        match &self.key_type {
            KeyType::Flag(_) => schema::flag(what, false),
            KeyType::Whole(bounds, example, _) => schema::whole(bounds.start, what, *example),
            KeyType::Size(example, _) => schema::size(what, example),
            KeyType::Time(example, _) => schema::time(what, example),
            KeyType::Text(example, _) => schema::text(what, example),
            KeyType::Choice(words, _) => schema::choice(what, words),
            KeyType::Other(schema, _) => schema(what),
        }
    }
}
