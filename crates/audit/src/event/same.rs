//! Compares sent and stored values regardless of their notation.

use serde_json::{Number, Value};

use super::reading::number_text;

/// Maximum number of digits. 2^-1074, the smallest double, has 767 significant digits.
const MAX_DIGITS: usize = 800;

/// Whether a receiver that parses `sent` and rewrites it could have written `stored`. Both must have been read with the
/// same [`super::reading::Numbers`].
pub(super) fn is_same(sent: &Value, stored: &Value) -> bool {
    match (sent, stored) {
        (Value::Number(a), Value::Number(b)) => a == b || whole(a).is_some_and(|a| whole(b) == Some(a)),
        (Value::String(a), Value::String(b)) => {
            a == b || number_text(a).zip(number_text(b)).is_some_and(|(a, b)| is_same_number(a, b))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The exact integer value of a number. Not converted to a double, in which 2^53 and 2^53 + 1 would be equal.
fn whole(number: &Number) -> Option<i128> {
    let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    integer.or_else(|| {
        let double = number.as_f64().filter(|double| double.fract() == 0.0 && double.abs() < 1e30);
        double.map(|double| double as i128)
    })
}

/// Whether two texts are the same number: the same decimal or, if the number was sent with a fraction or an exponent,
/// its double rounded to the number of stored digits. Other digits do not count as the same, even if a wrong last digit
/// gives the same double.
fn is_same_number(sent: &str, stored: &str) -> bool {
    let (Some(a), Some(b)) = (Decimal::parse(sent), Decimal::parse(stored)) else { return sent == stored };
    if a == b {
        return true;
    }
    let (Ok(double), Ok(other)) = (sent.parse::<f64>(), stored.parse::<f64>()) else { return false };
    if !sent.contains(['.', 'e', 'E']) || double != other || b.digits.len() > MAX_DIGITS {
        return false;
    }
    let behind_first = b.digits.len().saturating_sub(1);
    Decimal::parse(&format!("{double:.behind_first$e}")) == Some(b)
}

/// A decimal number: its digits, and the power of ten of the last one.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    /// Digits without leading and trailing zeros; empty for zero.
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Parses a JSON number; `None` if the exponent is out of range.
    fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let written = [whole, fraction].concat();
        let digits = written.trim_end_matches('0');
        let dropped = (written.len() - digits.len()) as i64 - fraction.len() as i64;
        let exponent = exponent.parse::<i64>().ok()?.checked_add(dropped)?;
        let digits = digits.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits, exponent: 0 });
        }
        Some(Self { is_negative: text.starts_with('-'), digits, exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::reading::Numbers, *};

    fn same(sent: &str, stored: &str) -> bool {
        let numbers = Numbers::needed_for(&serde_json::from_str(sent).unwrap());
        let read = |json: &str| numbers.read(json.as_bytes()).unwrap();
        is_same(&read(sent), &read(stored))
    }

    #[test]
    fn a_number_may_change_its_notation_but_not_its_value() {
        for (sent, stored) in [
            ("10", "10.0"),
            ("10", "1e1"),
            ("1.50", "1.5"),
            ("1e3", "1000.0"),
            ("1.0", "1"),
            ("0.3", "0.29999999999999999"),
            ("0.1", "0.1000000000000000055511151231257827"),
            ("1.2345678901234567890", "1.2345678901234567"),
            ("-0.0", "0"),
            ("18446744073709551617", "18446744073709551617.0"),
            ("[1.5,{\"a\":2}]", "[1.50,{\"a\":2.0}]"),
        ] {
            assert!(same(sent, stored), "{sent} {stored}");
        }
        for (sent, stored) in [
            ("9007199254740993", "9007199254740992"),
            ("9007199254740993", "9007199254740992.0"),
            ("18446744073709551615", "18446744073709551614"),
            ("18446744073709551617", "18446744073709551618"),
            ("123456789012345678901234567890", "1.2345678901234568e29"),
            ("0.30000000000000004", "0.30000000000000005"),
            ("1.2345678901234567890", "1.2345678901234567891"),
            ("1", "-1"),
            ("1.5", "\"1.5\""),
            ("[1.5]", "[1,5]"),
            ("1e5", "1e6"),
        ] {
            assert!(!same(sent, stored), "{sent} {stored}");
        }
        // A double needs far fewer digits, so such a text is refused instead of being built.
        assert!(!same("0.3", &format!("0.3{}1", "0".repeat(70_000))));
    }
}
