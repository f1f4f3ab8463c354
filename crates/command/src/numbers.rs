//! Reads numbers from the output of programs.

use serde_json::Value;

/// Reads the number at a JSON pointer (RFC 6901) from a program's output. If the output as a whole is not JSON, this function reads the
/// last object that starts at the beginning of a line. If that object is not valid JSON, for example because it holds `NaN`, there is no
/// number: an earlier object has another meaning. A string that holds a number counts as a number.
pub fn number_in(output: &[u8], pointer: &str) -> Option<f64> {
    let text = String::from_utf8_lossy(output);
    let text = text.trim_start_matches('\u{feff}');
    let whole = serde_json::from_str::<Value>(text).ok();
    let last = || {
        let begins = text.match_indices('{').map(|(at, _)| at);
        let begins = begins.filter(|&at| at == 0 || text[..at].ends_with('\n'));
        let (mut last, mut end) = (None, 0);
        for at in begins {
            // This object is nested in the last one.
            if at < end {
                continue;
            }
            let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
            last = values.next().and_then(Result::ok);
            end = at + values.byte_offset();
        }
        last
    };
    let value = whole.or_else(last)?;
    let number = match value.pointer(pointer)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_pointer() {
        let json = r#"{"end": {"sum": [{"bits_per_second": 9.3e8}, {"text": " 12 "}], "none": null}}"#;
        let of = |text: &str, pointer| number_in(text.as_bytes(), pointer);
        assert_eq!(of(json, "/end/sum/0/bits_per_second"), Some(9.3e8));
        assert_eq!(of(json, "/end/sum/1/text"), Some(12.0));
        assert_eq!(of(json, "/end/none"), None);
        assert_eq!(of(json, "/elsewhere"), None);
        assert_eq!(of(&format!("connecting\n{json}\nbye\n"), "/end/sum/0/bits_per_second"), Some(9.3e8));
        assert_eq!(of("no JSON", "/a"), None);
        for damaged in ["{\"a\": NaN}", "{\"a\": 1e999}", "{\"a\": 2"] {
            assert_eq!(of(&format!("{{\"a\": 1}}\n{damaged}\n"), "/a"), None, "{damaged}");
        }
        assert_eq!(of("{config}\n{\"a\": 1}\n{\"a\": 2}\n", "/a"), Some(2.0));
        let pretty = "ready\n{\n  \"rate\": 5,\n  \"per\": [\n{\"rate\": 3},\n    {\"rate\": 2}\n  ]\n}\n";
        assert_eq!(of(pretty, "/rate"), Some(5.0), "not a nested one");
        assert_eq!(number_in(b"\xef\xbb\xbf{\"a\": 1, \"b\": \"\xff\"}", "/a"), Some(1.0));
    }
}
