//! Rewrites JSON like Ruby: without whitespace, with the last of duplicate members at the position of the first, with
//! escapes only where JSON requires them, and with numbers as in `Integer#to_s` and `Float#to_s`.
//!
//! Two kinds of values cannot be rewritten: numbers beyond the range of a double, for which Ruby's generator raises an
//! error, and lone surrogates, which Oj refuses.

use std::{collections::HashMap, ops::Range};

use crate::members::{is_whitespace, string_end};

/// A value that Ruby cannot write: its position, and the input expected there.
type Unwritable = (usize, &'static str);

/// Writes the object `json` to `out` without its top-level members `dropped`. `json` must be valid and its nesting
/// limited.
pub(crate) fn generate<'o>(
    json: &str,
    dropped: Option<&str>,
    out: &'o mut String,
) -> Result<&'o str, Unwritable> {
    out.clear();
    let mut generator = Generator { json, at: 0, out, unwritable: None };
    generator.object(dropped);
    generator.unwritable.map_or(Ok(out), Err)
}

struct Generator<'a> {
    json: &'a str,
    at: usize,
    out: &'a mut String,
    unwritable: Option<Unwritable>,
}

impl Generator<'_> {
    fn value(&mut self) {
        match self.next_token() {
            b'{' => self.object(None),
            b'[' => self.array(),
            b'"' => self.string(),
            _ => self.scalar(),
        }
    }

    fn object(&mut self, dropped: Option<&str>) {
        let start = self.out.len();
        let mut members: Vec<[Range<usize>; 2]> = Vec::new();
        let mut positions: HashMap<String, usize> = HashMap::new();
        let mut must_rewrite = false;
        self.at += 1;
        self.out.push('{');
        while self.next_or_close('}') {
            let name_start = self.out.len();
            self.string();
            let name = name_start..self.out.len();
            self.next_token();
            // Skips the colon.
            self.at += 1;
            self.out.push(':');
            let value_start = self.out.len();
            self.value();
            let value = value_start..self.out.len();
            let is_dropped = dropped.is_some_and(|key| self.out[name.clone()] == quoted(key));
            must_rewrite |= is_dropped;
            if is_dropped {
                continue;
            }
            match positions.get(&self.out[name.clone()]) {
                Some(&position) => {
                    must_rewrite = true;
                    members[position][1] = value;
                }
                None => {
                    positions.insert(self.out[name.clone()].to_owned(), members.len());
                    members.push([name, value]);
                }
            }
        }
        if must_rewrite {
            self.rewrite(start, &members);
        }
    }

    /// Replaces the object at the end of the output, from `start` on, by one with only these members.
    fn rewrite(&mut self, start: usize, members: &[[Range<usize>; 2]]) {
        let written = self.out.split_off(start);
        let of = |range: &Range<usize>| &written[range.start - start..range.end - start];
        for [name, value] in members {
            self.out.push(if self.out.len() == start { '{' } else { ',' });
            self.out.push_str(of(name));
            self.out.push(':');
            self.out.push_str(of(value));
        }
        if members.is_empty() {
            self.out.push('{');
        }
        self.out.push('}');
    }

    fn array(&mut self) {
        self.at += 1;
        self.out.push('[');
        while self.next_or_close(']') {
            self.value();
        }
    }

    /// Copies a comma or the closing bracket. Returns whether another element follows.
    fn next_or_close(&mut self, closing: char) -> bool {
        if self.next_token() == b',' {
            self.at += 1;
            self.out.push(',');
        }
        let has_next = char::from(self.next_token()) != closing;
        if !has_next {
            self.at += 1;
            self.out.push(closing);
        }
        has_next
    }

    fn string(&mut self) {
        let start = self.at;
        let end = string_end(self.json.as_bytes(), start);
        let string = &self.json[start..end];
        self.at = end;
        match string.contains('\\').then(|| serde_json::from_str::<String>(string)) {
            Some(Ok(text)) => self.out.push_str(&quoted(&text)),
            Some(Err(_)) => self.unwritable = Some((start, "expected both halves of a surrogate pair")),
            None => self.out.push_str(string),
        }
    }

    fn scalar(&mut self) {
        let rest = &self.json[self.at..];
        let end = rest.find([',', '}', ']', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
        let scalar = &rest[..end];
        self.at += end;
        match scalar.as_bytes() {
            b"-0" => self.out.push('0'),
            [b'-' | b'0'..=b'9', ..] if scalar.contains(['.', 'e', 'E']) => match scalar.parse() {
                Ok(number) if f64::is_finite(number) => float(number, self.out),
                _ => {
                    self.unwritable = Some((self.at - end, "expected a number within the range of a double"))
                }
            },
            _ => self.out.push_str(scalar),
        }
    }

    /// Skips whitespace and returns the next byte.
    fn next_token(&mut self) -> u8 {
        let rest = &self.json.as_bytes()[self.at..];
        let blank = rest.iter().position(|&byte| !is_whitespace(byte));
        self.at += blank.expect("valid JSON does not end before its outermost bracket");
        self.json.as_bytes()[self.at]
    }
}

/// Encodes text as a JSON string. `serde_json` escapes the same characters as Ruby's generator.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("any text can be a string of JSON")
}

/// Writes a number like `Float#to_s`: with the fewest digits that give the same double, as a decimal from 0.0001 to
/// below 10^15 (10^16 if there is a fraction), otherwise with an exponent of at least two digits.
fn float(number: f64, out: &mut String) {
    let shortest = format!("{number:e}");
    // If two numbers with this many digits are equally near, Ruby uses the even one.
    let (mantissa, _) = shortest.split_once('e').expect("{:e} writes an exponent");
    let places = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let scientific = format!("{number:.places$e}");
    let scientific = if scientific.parse() == Ok(number) { scientific } else { shortest };
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} writes the exponent as an integer");
    let digits = mantissa.trim_start_matches('-').replace('.', "");
    if mantissa.starts_with('-') {
        out.push('-');
    }
    match usize::try_from(exponent) {
        Ok(places @ 0..=15) if places < 15 || digits.len() > 16 => {
            let whole = places + 1;
            let padded = format!("{digits:0<whole$}");
            let (whole, fraction) = padded.split_at(whole);
            *out += &format!("{whole}.{}", if fraction.is_empty() { "0" } else { fraction });
        }
        Err(_) if exponent >= -4 => {
            *out += "0.";
            (1..-exponent).for_each(|_| out.push('0'));
            *out += &digits;
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            *out += &format!("{first}.{}e{exponent:+03}", if rest.is_empty() { "0" } else { rest });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generated(json: &str) -> String {
        let mut out = "old".to_owned();
        generate(json, None, &mut out).unwrap().to_owned()
    }

    #[test]
    fn numbers_are_printed_as_ruby_prints_them() {
        for (sent, printed) in [
            ("1", "1"),
            ("-0", "0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("1.0", "1.0"),
            ("-0.0", "-0.0"),
            ("1.50", "1.5"),
            ("1e2", "100.0"),
            ("123.456", "123.456"),
            ("1e14", "100000000000000.0"),
            ("1e15", "1.0e+15"),
            ("9999999999999998.0", "9.999999999999998e+15"),
            ("1234567890123456.5", "1234567890123456.5"),
            ("1e16", "1.0e+16"),
            ("1.25e+100", "1.25e+100"),
            ("0.0001", "0.0001"),
            ("0.00001", "1.0e-05"),
            ("1.5E-7", "1.5e-07"),
            ("0.1", "0.1"),
            ("123456789.123456789", "123456789.12345679"),
        ] {
            assert_eq!(generated(&format!("{{\"a\":{sent}}}")), format!("{{\"a\":{printed}}}"));
        }
    }

    #[test]
    fn unwritable_values_are_reported_with_their_position() {
        let position = |json| generate(json, None, &mut String::new()).unwrap_err().0;
        assert_eq!(position(r#"{"a":[-1e400]}"#), 6);
        assert_eq!(position(r#"{"a":"\ud800"}"#), 5);
    }

    #[test]
    fn escapes_become_text_where_json_allows() {
        let sent = r#"{"\u0061":"\u00e9\/\u0000\u001F\n\"\\\ud83d\ude00\u007f"}"#;
        let written = "{\"a\":\"é/\\u0000\\u001f\\n\\\"\\\\😀\u{7f}\"}";
        assert_eq!(generated(sent), written);
    }

    #[test]
    fn the_last_duplicate_member_takes_the_position_of_the_first() {
        let sent = "{ \"a\" : [ 1 , { } , [ ] ] , \"b\" : {\"x\":1,\"y\":2,\"x\":[3]} , \"\\u0061\":\nnull }";
        assert_eq!(generated(sent), r#"{"a":null,"b":{"x":[3],"y":2}}"#);
    }

    #[test]
    fn a_member_is_dropped_at_the_top_only() {
        let mut out = String::new();
        let mut without = |json| generate(json, Some("time"), &mut out).unwrap().to_owned();
        assert_eq!(without(r#"{"time":1,"a":{"time":2},"t\u0069me":3}"#), r#"{"a":{"time":2}}"#);
        assert_eq!(without(r#"{"time":1}"#), "{}");
    }
}
