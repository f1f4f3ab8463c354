//! Bodies as Fluentd's `in_http` reads them: what is malformed is passed over, and all else is written anew.
//!
//! Facts from Fluentd's `in_http.rb` and `parser_json.rb`. It differs where the JSON parsers Fluentd may be run with
//! differ among themselves: comments and `NaN`, which some of them take, are malformed here, and records nested more
//! than 127 deep are passed over.

use serde::de::DeserializeSeed;
use serde_json::{Deserializer, value::RawValue};

use crate::{
    Kind, Mistake, Record, members,
    read::{Elements, MOST_DEPTH, Reader, WHITESPACE},
    ruby,
};

/// Hands out the records of a body, which is `Json` or `Ndjson`.
pub(crate) fn read<S: FnMut(Record<'_>)>(
    reader: &mut Reader<'_, S>,
    body: &[u8],
    kind: Kind,
) -> Result<(), Mistake> {
    if kind != Kind::Ndjson {
        return parsed(reader, body);
    }
    let lines = body.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.trim_ascii().is_empty()).try_for_each(|line| parsed(reader, line))
}

/// What Fluentd gives its parser at once: an object, an array of which the objects count, or nothing of use.
fn parsed<S: FnMut(Record<'_>)>(reader: &mut Reader<'_, S>, text: &[u8]) -> Result<(), Mistake> {
    // The whole of it first, since nothing of a malformed array is stored.
    let text = std::str::from_utf8(text).unwrap_or_default();
    let Ok(value) = serde_json::from_str::<&RawValue>(text) else {
        reader.count.skipped += 1;
        return Ok(());
    };
    let value = value.get().trim_matches(WHITESPACE);
    if !value.starts_with('[') {
        return object(reader, value, text);
    }
    let mut refused = None;
    let element = |element: &str| object(reader, element, text).map_err(|mistake| refused = Some(mistake));
    let outcome = Elements(element).deserialize(&mut Deserializer::from_str(value));
    match (outcome, refused) {
        (_, Some(mistake)) => Err(mistake),
        (outcome, None) => {
            outcome.expect("a valid array is read again");
            Ok(())
        }
    }
}

fn object<S: FnMut(Record<'_>)>(reader: &mut Reader<'_, S>, value: &str, text: &str) -> Result<(), Mistake> {
    if !value.starts_with('{') || members::deeper_than(value, MOST_DEPTH) {
        reader.count.skipped += 1;
        return Ok(());
    }
    reader.room_for_one(value, text)?;
    let (time, is_dropped) = reader.time_of(value, text)?;
    let key = reader.rules.time_key.as_deref().filter(|_| is_dropped);
    ruby::generate(value, key, reader.line);
    (reader.sink)(Record { text: reader.line, is_json: true, time });
    Ok(())
}
