//! Tables of keys. What a key is called, is for, takes and does is said once: files are read by it, and their schema is made
//! of it.

use std::{ops::Range, time::Duration};

use serde_json::{Map, Value as Json};
use settings::{Reader, Table, Value, schema};

use super::hosts::Groups;
use crate::plan::Plan;

/// A key of a table that is read into a `T`.
pub(crate) struct Key<T: 'static> {
    /// Its name.
    pub name: &'static str,
    /// What it is for, without a capital letter and a full stop.
    pub help: &'static str,
    /// What it takes, and what becomes of that.
    pub takes: Takes<T>,
}

/// What a key takes: the default of a flag, the bounds of a number, an example of anything else, and where the value goes.
pub(crate) enum Takes<T: 'static> {
    Flag(bool, fn(&mut T, bool)),
    Whole(Range<u64>, u64, fn(&mut T, u64)),
    Size(&'static str, fn(&mut T, u64) -> Result<(), String>),
    Time(&'static str, fn(&mut T, Duration)),
    Text(&'static str, fn(&mut T, &str) -> Result<(), String>),
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
    fn read(&self, own: &mut T, reader: &mut Reader<'_>, value: &Value<'_>, scene: &Scene<'_>) {
        match &self.takes {
            Takes::Flag(_, put) => reader.flag(value).into_iter().for_each(|flag| put(own, flag)),
            Takes::Whole(bounds, _, put) => {
                reader.whole(value, bounds.clone()).into_iter().for_each(|number| put(own, number));
            }
            Takes::Size(_, put) => {
                let put = reader.size(value).map_or(Ok(()), |size| put(own, size));
                reader.checked(value, put);
            }
            Takes::Time(_, put) => reader.time(value).into_iter().for_each(|time| put(own, time)),
            Takes::Text(_, put) => {
                let put = reader.text(value).map_or(Ok(()), |text| put(own, text));
                reader.checked(value, put);
            }
            Takes::Choice(words, put) => {
                let Some(text) = reader.text(value) else { return };
                match words.iter().position(|word| *word == text) {
                    Some(place) => put(own, place),
                    None => {
                        let known = words.join(", ");
                        reader
                            .mistake(value.span(), format!("'{text}' is no '{}'; one of {known}", self.name));
                    }
                }
            }
            Takes::Other(_, read) => read(own, reader, value, scene),
        }
    }

    /// Its schema; `what` says what it is for.
    pub(crate) fn schema(&self, what: &str) -> Json {
        match &self.takes {
            Takes::Flag(default, _) => schema::flag(what, *default),
            Takes::Whole(bounds, example, _) => schema::whole(bounds.start, what, *example),
            Takes::Size(example, _) => schema::size(what, example),
            Takes::Time(example, _) => schema::time(what, example),
            Takes::Text(example, _) => schema::text(what, example),
            Takes::Choice(words, _) => schema::choice(what, words),
            Takes::Other(schema, _) => schema(what),
        }
    }
}
