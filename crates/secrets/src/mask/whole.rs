//! Masks whole records, so that callers need not mask each member.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{has_learned, mask_learned_text};

/// Masks the learned values in all texts of a record, except in the members `own`. A text stays unchanged if the record
/// does not deserialize with the masked text. Such a text is a word of this program, for example the name of a kind,
/// even if it equals a secret.
pub fn mask_record<T: Serialize + DeserializeOwned>(record: T, own: &[&str]) -> T {
    if !has_learned() {
        return record;
    }
    let Ok(mut value) = serde_json::to_value(&record) else { return record };
    let mut found = Vec::new();
    find(&value, "", own, &mut found);
    if found.is_empty() {
        return record;
    }
    let mut masked = value.clone();
    found.iter().for_each(|(place, shown)| drop(put(&mut masked, place, shown)));
    if let Ok(read) = T::deserialize(&masked) {
        return read;
    }
    for (place, shown) in &found {
        let text = put(&mut value, place, shown);
        if T::deserialize(&value).is_err() {
            put(&mut value, place, &text);
        }
    }
    T::deserialize(&value).unwrap_or(record)
}

/// Finds the texts that contain learned values. Adds the JSON pointer and the masked text of each to `found`.
fn find(value: &Value, place: &str, own: &[&str], found: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => {
            let shown = mask_learned_text(text);
            if shown != *text {
                found.push((place.to_owned(), shown));
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                find(value, &format!("{place}/{index}"), own, found);
            }
        }
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
                let name = name.replace('~', "~0").replace('/', "~1");
                find(value, &format!("{place}/{name}"), own, found);
            }
        }
        _ => {}
    }
}

/// Replaces the text at a JSON pointer, and returns the previous text.
fn put(value: &mut Value, place: &str, text: &str) -> String {
    match value.pointer_mut(place) {
        Some(Value::String(old)) => std::mem::replace(old, text.to_owned()),
        _ => String::new(),
    }
}
