//! Definitions of keys: name, help, type of value and effect. Both the reader of a file and its schema use them.

use std::{ops::Range, time::Duration};

use serde_json::{Map, Value as Json};
use settings::{Reader, Table, Value, schema};

use crate::host_names::HostNames;

/// A key of a table that is read into a `T`.
pub(crate) struct Key<T: 'static> {
    pub name: &'static str,
    /// Description: starts in lower case and has no final full stop.
    pub help: &'static str,
    key_type: KeyType<T>,
}

/// Makes a table of [`Key`]s. A doc comment before each key is its help text.
macro_rules! key_table {
    ($($(#[doc = $help:literal])+ $name:literal, $key_type:expr;)*) => {
        &[$($crate::keys::Key::new($name, concat!($($help),+).trim_ascii_start(), $key_type)),*]
    };
}
pub(crate) use key_table;

/// The type of a key's value, with an example and a function that stores the value. Numbers have bounds. A flag that is
/// not given is false.
pub(crate) enum KeyType<T: 'static> {
    Flag(fn(&mut T, bool)),
    Whole(Range<u64>, u64, fn(&mut T, u64)),
    Size(&'static str, fn(&mut T, u64)),
    Time(&'static str, fn(&mut T, Duration)),
    Text(&'static str, fn(&mut T, &str)),
    /// One of these words; the function gets its index. The default is the first.
    Choice(&'static [&'static str], fn(&mut T, usize)),
    /// Any other type: a function that turns the help into a schema, and a function that reads the value.
    Other(fn(&str) -> Json, Read<T>),
}

/// Reads a value.
pub(crate) type Read<T> = fn(&mut T, &mut Reader<'_>, &Value<'_>, &HostNames<'_>);

/// Reads all keys of this list that the table contains.
pub(crate) fn read<T: 'static>(
    keys: impl IntoIterator<Item = &'static Key<T>>,
    object: &mut T,
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    names: &HostNames<'_>,
) {
    for key in keys {
        if let Some(value) = table.take(key.name) {
            key.read(object, reader, value, names);
        }
    }
}

/// The schema of these keys.
pub(crate) fn schema<T: 'static>(keys: impl IntoIterator<Item = &'static Key<T>>) -> Map<String, Json> {
    keys.into_iter().map(|key| (key.name.to_owned(), key.schema(&sentence(key.help)))).collect()
}

/// Turns a help text into a sentence: adds a capital letter and a full stop.
pub(crate) fn sentence(help: &str) -> String {
    let (first, rest) = help.split_at(help.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}.", first.to_uppercase())
}

impl<T> Key<T> {
    pub(crate) const fn new(name: &'static str, help: &'static str, key_type: KeyType<T>) -> Self {
        Self { name, help, key_type }
    }

    fn read(&self, object: &mut T, reader: &mut Reader<'_>, value: &Value<'_>, names: &HostNames<'_>) {
        // The reader has already reported values that it could not read.
        let _: Option<()> = match &self.key_type {
            KeyType::Flag(set) => reader.flag(value).map(|flag| set(object, flag)),
            KeyType::Whole(bounds, _, set) => {
                reader.whole(value, bounds.clone()).map(|number| set(object, number))
            }
            KeyType::Size(_, set) => reader.size(value).map(|size| set(object, size)),
            KeyType::Time(_, set) => reader.time(value).map(|time| set(object, time)),
            KeyType::Text(_, set) => reader.text(value).map(|text| set(object, text)),
            KeyType::Choice(words, set) => reader.text(value).and_then(|text| {
                let index = words.iter().position(|word| *word == text);
                let refuse =
                    || format!("'{text}' is not a valid '{}'; give one of {}", self.name, words.join(", "));
                reader.checked(value, index.ok_or_else(refuse)).map(|index| set(object, index))
            }),
            KeyType::Other(_, read) => {
                read(object, reader, value, names);
                None
            }
        };
    }

    /// The schema of the key, with `what` as its description.
    pub(crate) fn schema(&self, what: &str) -> Json {
        match &self.key_type {
            KeyType::Flag(_) => schema::flag(what, false),
            KeyType::Whole(bounds, example, _) => schema::whole_number(bounds.start, what, *example),
            KeyType::Size(example, _) => schema::size(what, example),
            KeyType::Time(example, _) => schema::time(what, example),
            KeyType::Text(example, _) => schema::text(what, example),
            KeyType::Choice(words, _) => schema::choice(what, words),
            KeyType::Other(schema, _) => schema(what),
        }
    }
}
