//! Finds members in valid JSON without parsing it. Invalid JSON gives wrong results, but never a panic.

use std::borrow::Cow;

use memchr::memchr2;

/// The last top-level member `key` of the object `json`. A string is returned without quotes and escapes, any other
/// value as written. `None` if the member is missing or null.
pub fn field<'a>(json: &'a str, key: &str) -> Option<Cow<'a, str>> {
    match last(json, key)? {
        "null" => None,
        value if value.starts_with('"') => Some(unquoted(value)),
        value => Some(Cow::Borrowed(value)),
    }
}

/// The top-level members of an object: their names in quotes and their values, both as written.
pub fn members(json: &str) -> impl Iterator<Item = (&str, &str)> {
    Members::of(json).map(|member| (member.quoted_name, member.value))
}

/// The value of the last top-level member `key`, as written.
pub(crate) fn last<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    Members::of(json).filter(|member| member.is_named(key)).map(|member| member.value).last()
}

/// Writes `json` to `out` without whitespace between tokens.
pub(crate) fn compact<'a>(json: &str, out: &'a mut String) -> &'a str {
    out.clear();
    let mut at = 0;
    while at < json.len() {
        let rest = &json[at..];
        let end = match rest.as_bytes()[0] {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'"' => string_end(json.as_bytes(), at),
            _ => rest.find(['"', ' ', '\t', '\r', '\n']).map_or(json.len(), |length| at + length),
        };
        out.push_str(&json[at..end]);
        at = end;
    }
    out
}

/// Writes the object `json` to `out` without its top-level members `key` and without whitespace around members.
pub(crate) fn without<'a>(json: &str, key: &str, out: &'a mut String) -> &'a str {
    let mut kept = String::with_capacity(json.len());
    for member in Members::of(json).filter(|member| !member.is_named(key)) {
        kept.push(if kept.is_empty() { '{' } else { ',' });
        kept.push_str(member.quoted_name);
        kept.push(':');
        kept.push_str(member.value);
    }
    if kept.is_empty() {
        kept.push('{');
    }
    kept.push('}');
    match memchr2(b'\n', b'\r', kept.as_bytes()) {
        Some(_) => compact(&kept, out),
        None => {
            *out = kept;
            out
        }
    }
}

/// Whether the nesting of arrays and objects is deeper than `max`.
pub(crate) fn deeper_than(json: &str, max: usize) -> bool {
    // Fast checks first: each level takes two bytes, and most longer records have few brackets.
    let opening = |byte: &&u8| matches!(byte, b'{' | b'[');
    if json.len() <= 2 * max || json.as_bytes().iter().filter(opening).count() <= max {
        return false;
    }
    let bytes = json.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = string_end(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > max {
            return true;
        }
        at += 1;
    }
    false
}

/// Decodes a quoted JSON string. Returns a string with a lone surrogate as written, because it cannot be decoded to
/// text.
pub(crate) fn unquoted(quoted: &str) -> Cow<'_, str> {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str(quoted).map_or(Cow::Borrowed(inner), Cow::Owned)
}

/// The end of the string whose opening quote is at `start`.
pub(crate) fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// The top-level members of an object.
struct Members<'a> {
    json: &'a str,
    at: usize,
}

struct Member<'a> {
    quoted_name: &'a str,
    value: &'a str,
}

impl<'a> Members<'a> {
    fn of(json: &'a str) -> Members<'a> {
        let brace =
            json.bytes().position(|byte| !is_whitespace(byte)).filter(|&at| json.as_bytes()[at] == b'{');
        Members { json, at: brace.map_or(json.len(), |at| at + 1) }
    }

    /// Skips whitespace and separators.
    fn skip(&mut self, separator: u8) {
        let rest = self.json.as_bytes().get(self.at..).unwrap_or_default();
        let skipped = rest.iter().position(|&byte| byte != separator && !is_whitespace(byte));
        self.at += skipped.unwrap_or(rest.len());
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let bytes = self.json.as_bytes();
        self.skip(b',');
        if bytes.get(self.at) != Some(&b'"') {
            return None;
        }
        let name_end = string_end(bytes, self.at);
        let quoted_name = self.json.get(self.at..name_end)?;
        self.at = name_end;
        self.skip(b':');
        let start = self.at;
        self.at = value_end(bytes, start);
        Some(Member { quoted_name, value: self.json.get(start..self.at)? })
    }
}

impl Member<'_> {
    fn is_named(&self, key: &str) -> bool {
        unquoted(self.quoted_name) == key
    }
}

/// The end of the value that starts at `start`.
fn value_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = string_end(bytes, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 1 => depth -= 1,
            // Ends this value at depth 1, or the enclosing value at depth 0.
            b'}' | b']' => return at + depth,
            b',' if depth == 0 => return at,
            byte if depth == 0 && is_whitespace(byte) => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Whether a byte is JSON whitespace.
pub(crate) fn is_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_the_last_member_of_that_name_as_text() {
        let json = r#" { "a" : 1 , "b":"x\"y\u00e9","c":{"a":2,"k":"}"},"d":[1,"]"],"e":null,"\u0066":true,"a":-3.0}"#;
        assert_eq!(field(json, "a").as_deref(), Some("-3.0"));
        assert_eq!(field(json, "b").as_deref(), Some("x\"yé"));
        assert_eq!(field(json, "c").as_deref(), Some(r#"{"a":2,"k":"}"}"#));
        assert_eq!(field(json, "d").as_deref(), Some(r#"[1,"]"]"#));
        assert_eq!(field(json, "e"), None);
        assert_eq!(field(json, "f").as_deref(), Some("true"));
        assert_eq!(field(json, "k"), None);
        assert_eq!(field("[1]", "a"), None);
        assert_eq!(field(r#"{"a":"\ud800"}"#, "a").as_deref(), Some("\\ud800"));
    }

    #[test]
    fn whitespace_in_strings_stays() {
        let mut out = String::new();
        assert_eq!(compact("{ \"a b\" :\r\n [ 1 ,\t\"c \\\" d\" ] }", &mut out), r#"{"a b":[1,"c \" d"]}"#);
    }

    #[test]
    fn members_are_removed() {
        let mut out = String::new();
        for (json, left) in [
            (r#"{"time":1}"#, "{}"),
            (r#"{"time":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":2, "t\u0069me":1, "b":{"time":3}, "time":4}"#, r#"{"a":2,"b":{"time":3}}"#),
            ("{\"a\":[1,\n2],\"time\":1}", r#"{"a":[1,2]}"#),
        ] {
            assert_eq!(without(json, "time", &mut out), left);
        }
    }

    #[test]
    fn depth_is_exact_and_not_fooled_by_strings() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!deeper_than(&nested(128), 128));
        assert!(deeper_than(&nested(129), 128));
        assert!(!deeper_than(&format!("[{:?}]", nested(300)), 128));
        assert!(!deeper_than(&format!("[{}]", vec!["[]"; 300].join(",")), 128));
    }

    #[test]
    fn invalid_json_does_not_panic() {
        for text in
            ["", "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":\"\\", "{é", "{\"é\\", "}", "{\"a\":é"]
        {
            field(text, "a");
        }
    }
}
