//! Tables of keys. What a key is called, is for, takes and does is said once: files are read by it, and their schema is made
//! of it.

use std::{ops::Range, time::Duration};

use serde_json::{Map, Value as Json};
use settings::{Reader, Table, Value, schema};

use super::hosts::Groups;
use crate::plan::Plan;

/// A key of a table that is read into a `T`.
pub(crate) struct Key<T: 'static> {
    pub name: &'static str,
    /// What it is for, without a capital letter and a full stop.
    pub help: &'static str,
    takes: Takes<T>,
}

/// What a key takes: an example, and where the value goes. Numbers have bounds too; flags are false unless given.
pub(crate) enum Takes<T: 'static> {
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
pub(crate) type Read<T> = fn(&mut T, &mut Reader<'_>, &Value<'_>, &Scene<'_>);

/// The hosts that values may name.
pub(crate) struct Scene<'a> {
    pub plan: &'a Plan,
    pub groups: &'a Groups,
}

/// Reads what a table has of these keys.
pub(crate) fn read<T>(
    keys: &'static [Key<T>],
    own: &mut T,
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    scene: &Scene<'_>,
) {
    for key in keys {
        if let Some(value) = table.take(key.name) {
            key.read(own, reader, value, scene);
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
    pub(crate) const fn new(name: &'static str, help: &'static str, takes: Takes<T>) -> Self {
        Self { name, help, takes }
    }

    fn read(&self, own: &mut T, reader: &mut Reader<'_>, value: &Value<'_>, scene: &Scene<'_>) {
        // What could not be taken has been told.
        let _: Option<()> = match &self.takes {
            Takes::Flag(put) => reader.flag(value).map(|flag| put(own, flag)),
            Takes::Whole(bounds, _, put) => {
                reader.whole(value, bounds.clone()).map(|number| put(own, number))
            }
            Takes::Size(_, put) => reader.size(value).map(|size| put(own, size)),
            Takes::Time(_, put) => reader.time(value).map(|time| put(own, time)),
            Takes::Text(_, put) => reader.text(value).map(|text| put(own, text)),
            Takes::Choice(words, put) => reader.text(value).and_then(|text| {
                let at = words.iter().position(|word| *word == text);
                let refuse = || format!("'{text}' is no '{}'; one of {}", self.name, words.join(", "));
                reader.checked(value, at.ok_or_else(refuse)).map(|at| put(own, at))
            }),
            Takes::Other(_, read) => {
                read(own, reader, value, scene);
                None
            }
        };
    }

    /// Its schema; `what` says what it is for.
    pub(crate) fn schema(&self, what: &str) -> Json {
        match &self.takes {
            Takes::Flag(_) => schema::flag(what, false),
            Takes::Whole(bounds, example, _) => schema::whole_number(bounds.start, what, *example),
            Takes::Size(example, _) => schema::size(what, example),
            Takes::Time(example, _) => schema::time(what, example),
            Takes::Text(example, _) => schema::text(what, example),
            Takes::Choice(words, _) => schema::choice(what, words),
            Takes::Other(schema, _) => schema(what),
        }
    }
}
