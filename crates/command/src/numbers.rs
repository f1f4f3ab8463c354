//! Numbers that programs write.

use serde_json::Value;

/// The number at a place of JSON (RFC 6901) in what a program wrote: all of it is JSON, or its last line that is an object.
/// A text that is a number counts as one.
pub fn number_in(output: &str, pointer: &str) -> Option<f64> {
    let whole = serde_json::from_str::<Value>(output).ok();
    let of_line = || {
        let mut lines = output.lines().rev().filter(|line| line.trim_start().starts_with('{'));
        lines.find_map(|line| serde_json::from_str::<Value>(line).ok())
    };
    let value = whole.or_else(of_line)?;
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
    fn a_number_is_found_at_its_place() {
        let json = r#"{"end": {"sum": [{"bits_per_second": 9.3e8}, {"text": " 12 "}], "none": null}}"#;
        assert_eq!(number_in(json, "/end/sum/0/bits_per_second"), Some(9.3e8));
        assert_eq!(number_in(json, "/end/sum/1/text"), Some(12.0));
        assert_eq!(number_in(json, "/end/none"), None);
        assert_eq!(number_in(json, "/elsewhere"), None);
        assert_eq!(
            number_in(&format!("connecting\n{json}\nbye\n"), "/end/sum/0/bits_per_second"),
            Some(9.3e8)
        );
        assert_eq!(number_in("no JSON", "/a"), None);
    }
}
