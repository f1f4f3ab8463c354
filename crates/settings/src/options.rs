//! Tables of options: each option is defined once for command line, file, schema and documentation.

use std::{fmt::Display, net::SocketAddr, ops::RangeInclusive};

use record::units::{UnitError, parse_count};

use crate::suggestion::suggestion;

/// An option that sets a part of a `T`.
#[derive(Debug)]
pub struct OptionSpec<T> {
    /// Its key in the file. The command line uses hyphens in place of underscores.
    pub key: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Name of the value in the help.
    pub value_name: &'static str,
    /// Heading of its group in the help; empty without a group.
    pub heading: &'static str,
    /// Description.
    pub help: &'static str,
    /// The default, as a value or as a description; empty if there is none.
    pub default: &'static str,
    /// An example of a value; for [`Kind::List`] several values, separated by blanks.
    pub example: &'static str,
    /// Sets values in the `T`: one value, or any number of values for [`Kind::List`]. Called for a flag only if it
    /// differs from its default.
    pub apply: fn(&mut T, &[&str]) -> Result<(), String>,
    /// Its letter on the command line.
    pub short: Option<char>,
    /// Its name on the command line if it differs from the key; empty otherwise.
    pub flag: &'static str,
    /// The value of an option that the command line gives without a value; empty if the option needs a value.
    pub bare_value: &'static str,
}

/// Makes one [`OptionSpec`] from help, key, kind, name of the value, heading, default, example, the code that applies
/// the value, and optionally further fields.
#[macro_export]
macro_rules! option_spec {
    (
        [$($help:literal),+], $key:literal, $kind:expr, $value_name:literal, $heading:expr, $default:expr,
        $example:literal, |$to:ident, $values:pat_param| $put:expr $(, { $($more:tt)+ })?
    ) => {
        $crate::options::OptionSpec {
            key: $key,
            kind: $kind,
            value_name: $value_name,
            heading: $heading,
            help: concat!($($help),+).trim_ascii_start(),
            default: $default,
            example: $example,
            apply: |$to, $values| {
                $put;
                Ok(())
            },
            $($($more)+,)?
            ..$crate::options::OptionSpec::EMPTY
        }
    };
}

/// Makes a table of [`OptionSpec`]s. The doc comment before each option is its help.
#[macro_export]
macro_rules! option_table {
    ($(
        $(#[doc = $help:literal])+
        $key:literal, $kind:expr, $value_name:literal, $heading:expr, $default:expr, $example:literal,
        $({ $($more:tt)+ },)? |$to:ident, $values:pat_param| $put:expr;
    )+) => {
        &[$($crate::option_spec!(
            [$($help),+], $key, $kind, $value_name, $heading, $default, $example, |$to, $values| $put
            $(, { $($more)+ })?
        )),+]
    };
}

/// The kind of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A flag that is off by default; true or false in the file.
    Flag,
    /// A flag that is on by default: `--no-KEY` on the command line, false in the file.
    On,
    /// A whole number with a minimum.
    Count(u64),
    /// A number per second, above 0.
    Rate,
    /// A share: 0.02 or 2%.
    Share,
    /// A size in bytes.
    Size,
    /// A time.
    Time,
    /// A text.
    Text,
    /// Numbers and ranges of numbers, separated by commas.
    Numbers,
    /// One of several words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    List,
}

impl<T> OptionSpec<T> {
    /// A spec with empty fields. Each option replaces some of them.
    pub const EMPTY: Self = Self {
        key: "",
        kind: Kind::Text,
        value_name: "",
        heading: "",
        help: "",
        default: "",
        example: "",
        apply: |_, _| Ok(()),
        short: None,
        flag: "",
        bare_value: "",
    };

    /// Its name on the command line, without the leading hyphens.
    pub fn flag(&self) -> String {
        if !self.flag.is_empty() {
            return self.flag.to_owned();
        }
        let no = if self.kind == Kind::On { "no-" } else { "" };
        format!("{no}{}", self.key.replace('_', "-"))
    }

    /// Examples of values: several for a list.
    pub fn examples(&self) -> Vec<&'static str> {
        if self.kind == Kind::List { self.example.split_whitespace().collect() } else { vec![self.example] }
    }

    /// Description and default.
    pub fn help(&self) -> String {
        match self.default {
            "" => self.help.to_owned(),
            default => format!("{} [default: {default}]", self.help),
        }
    }
}

impl Kind {
    /// Regular expression of the value's text, without anchors; `None` if any text is allowed.
    pub fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Count(_) => Some("[0-9][0-9_.]*[kKM]?"),
            Self::Rate => Some("[0-9][0-9_.]*[kKM]?(/s)?"),
            Self::Share => Some("([0-9]+[.]?[0-9]*|[.][0-9]+) ?%?"),
            Self::Size => Some("[0-9][0-9_.]* ?(B|k|kB|KB|M|MB|G|GB|KiB|MiB|GiB)?"),
            Self::Time => Some("[0-9][0-9_.]* ?(ns|us|µs|ms|s|m|min|h)?"),
            Self::Flag | Self::On | Self::Text | Self::Numbers | Self::Choice(_) | Self::List => None,
        }
    }
}

/// Parses an address with its port.
///
/// # Errors
/// When the text is not an address.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "an address with its port, such as 127.0.0.1:8080 or [::1]:9880";
    text.parse().map_err(|_| UnitError::new(text, expected).to_string())
}

/// The element of `values` with the index that `text` has in `words`.
///
/// # Errors
/// When the text is not one of the words.
pub fn choice<T: Copy>(text: &str, words: &[&str], values: &[T]) -> Result<T, String> {
    let index = words.iter().position(|word| *word == text);
    let value = index.and_then(|index| values.get(index).copied());
    value.ok_or_else(|| {
        let hint = suggestion(text, words.iter().copied());
        format!("'{text}' is not known here{hint} (known: {})", words.join(", "))
    })
}

/// Parses a count that is at least `min` and fits its type.
///
/// # Errors
/// A description of the mistake in the text.
pub fn count<T: TryFrom<u64>>(text: &str, min: u64) -> Result<T, String> {
    let number = parse_count(text).map_err(error_text)?;
    if number < min {
        return Err(format!("{text} is too small; give at least {min}"));
    }
    T::try_from(number).map_err(|_| format!("{text} is too large"))
}

/// Parses a whole number that is within `bounds` and fits its type.
///
/// # Errors
/// When the text is not such a number.
pub fn whole<T: TryFrom<u64>>(text: &str, bounds: RangeInclusive<u64>) -> Result<T, String> {
    // A number of only digits is exact. A number with a unit is parsed as a floating-point number.
    let digits = text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
    let number = digits.or_else(|| parse_count(text).ok()).filter(|number| bounds.contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
        let shown = if is_number { text.to_owned() } else { format!("'{text}'") };
        format!("{shown} is not a whole number from {} to {}", bounds.start(), bounds.end())
    })
}

/// The text of an error.
pub fn error_text(error: impl Display) -> String {
    error.to_string()
}
