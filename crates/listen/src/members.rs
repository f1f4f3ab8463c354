//! The JSON members (header fields, query parameters, the client's address) that the listener adds to a request's records,
//! as Fluentd does.

use std::{collections::HashMap, hash::Hash};

use form_urlencoded as form;
use http1::RequestHead;
use serde_json::{Value, json};

use crate::RequestFields;

/// Writes the members that the request adds to its records, like Fluentd, as a JSON object.
pub(crate) fn add_members(
    head: &RequestHead<'_>,
    query: &str,
    peer: impl FnOnce() -> String,
    what: RequestFields,
    extra_members: &mut String,
) {
    let headers = head.headers.iter().map(|header| (header.name, String::from_utf8_lossy(header.value)));
    let headers = by_name(headers);
    let mut members = Vec::new();
    let mut member = |prefix: &str, name: &str, value: Value| {
        members.push((format!("{prefix}{}", name.replace('-', "_").to_uppercase()), value));
    };
    if what.http_headers {
        for (name, values) in &headers {
            // The values of a repeated header become an array.
            member("HTTP_", name, if let [value] = &values[..] { json!(value) } else { json!(values) });
        }
    }
    if what.query_params {
        // The first value of a repeated parameter counts.
        let parameters = by_name(form::parse(query.as_bytes()));
        parameters.iter().for_each(|(name, values)| member("QUERY_", name, json!(values[0])));
    }
    if what.remote_addr {
        let forwarded = headers.iter().rfind(|(name, _)| name.eq_ignore_ascii_case("x-forwarded-for"));
        let address = match forwarded.map(|(_, values)| &values[0]) {
            None => json!(peer()),
            // The header contains no address.
            Some(list) if list.trim_matches(',').is_empty() => Value::Null,
            Some(list) => json!(list.split(',').next()),
        };
        member("", "REMOTE_ADDR", address);
    }
    for (name, values) in by_name(members.into_iter()) {
        // Names that differ only in case, or in - and _, become equal; the last value counts.
        let value = values.last().unwrap_or(&Value::Null);
        extra_members.push(if extra_members.is_empty() { '{' } else { ',' });
        extra_members.push_str(&format!("{}:{value}", json!(name)));
    }
    extra_members.push('}');
}

/// Groups values by name, in the order of each name's first occurrence.
fn by_name<N: Clone + Eq + Hash, V>(pairs: impl Iterator<Item = (N, V)>) -> Vec<(N, Vec<V>)> {
    let (mut indexes, mut named) = (HashMap::new(), Vec::new());
    for (name, value) in pairs {
        let index = *indexes.entry(name.clone()).or_insert(named.len());
        if index == named.len() {
            named.push((name, Vec::new()));
        }
        named[index].1.push(value);
    }
    named
}
