//! Values that a user gave: parsed once, and shown as written.

use std::{
    fmt::{self, Debug, Display},
    ops::Deref,
    str::FromStr,
    sync::OnceLock,
    time::Duration,
};

use record::units::{parse_count, parse_rate, parse_ratio, parse_time};
use settings::options::{error_text, whole};

/// Maximum number of users, requests, connections and the like.
const MAX_COUNT: u64 = 1_000_000_000_000;

/// A value and its text as written. The text is parsed once, when the value is first needed, because a file that it names may be
/// readable only once. The plan reports the mistake of an invalid text with all others.
///
/// Two values are equal if their texts are equal.
#[derive(Clone)]
pub struct Typed<T> {
    written: String,
    value: OnceLock<Result<T, String>>,
}

impl<T> Typed<T> {
    /// A value that the program sets.
    pub fn set(value: T) -> Self
    where
        T: Display,
    {
        Self { written: value.to_string(), value: OnceLock::from(Ok(value)) }
    }

    /// The value.
    ///
    /// # Errors
    /// The mistake, if the text is invalid.
    pub fn value(&self) -> Result<&T, &str>
    where
        T: FromStr<Err: Display>,
    {
        let value = self.value.get_or_init(|| self.written.parse().map_err(error_text));
        value.as_ref().map_err(String::as_str)
    }
}

impl<T> From<&str> for Typed<T> {
    fn from(text: &str) -> Self {
        Self { written: text.to_owned(), value: OnceLock::new() }
    }
}

impl<T> Deref for Typed<T> {
    type Target = str;

    /// The text.
    fn deref(&self) -> &str {
        &self.written
    }
}

impl<T> PartialEq for Typed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl<T> Eq for Typed<T> {}

impl<T> Debug for Typed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.written, f)
    }
}

/// Defines the types of values. Each has an inner type, a rule that parses its text, and a format.
macro_rules! values {
    ($($(#[doc = $doc:literal])+ $name:ident($inner:ty): $read:expr, $show:literal;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let read: fn(&str) -> Result<$inner, String> = $read;
                read(text).map(Self)
            }
        }

        impl Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $show, self.0)
            }
        }
    )+};
}

values! {
    /// How many: 1 to 10^12.
    Count(u64): |text| match parse_count(text).map_err(error_text)? {
        0 => Err("0 is too few; give at least 1".to_owned()),
        count @ 1..=MAX_COUNT => Ok(count),
        _ => Err(format!("'{text}' is too large; give at most 10^12")),
    }, "{}";
    /// A rate per second, above 0.
    Rate(f64): |text| match parse_count(text.strip_suffix("/s").unwrap_or(text)) {
        Ok(0) => Err(format!("'{text}' must be above 0: a rate per second such as 500, 5k or 1.5M")),
        _ => parse_rate(text).map_err(error_text),
    }, "{}";
    /// A share, from 0 to 1.
    Ratio(f64): |text| parse_ratio(text).map_err(error_text), "{}";
    /// A time.
    Time(Duration): |text| parse_time(text).map_err(error_text), "{:?}";
    /// A time within which something must end, above 0.
    TimeLimit(Duration): |text| match parse_time(text).map_err(error_text)? {
        Duration::ZERO => Err("0 would fail every request; give a time such as 30s".to_owned()),
        limit => Ok(limit),
    }, "{:?}";
}

/// A whole number from 0 to `MOST`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpTo<const MOST: u64>(pub u32);

impl<const MOST: u64> FromStr for UpTo<MOST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        whole(text, 0..=MOST).map(Self)
    }
}
