//! Tables of options: what is said of an option once, for a command line, a file, its schema and its documentation.

use std::fmt::Display;

use record::units::parse_count;

/// One option, which puts what was written into a `T`.
#[derive(Debug)]
pub struct Setting<T> {
    /// Its name in the file; on the command line with hyphens.
    pub key: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What the value is called in the help.
    pub value_name: &'static str,
    /// Which options it stands with in the help; empty for those without a heading.
    pub heading: &'static str,
    /// What it is for.
    pub help: &'static str,
    /// What holds without it, as it would be written or in words; empty if that is nothing.
    pub default: &'static str,
    /// A value that says what one looks like; of [`Kind::List`] several, with blanks between them.
    pub example: &'static str,
    /// Puts values into the `T`: one, or as many as there are for [`Kind::List`]. A flag is only put there where it is
    /// not as it is by default.
    pub apply: fn(&mut T, &[&str]) -> Result<(), String>,
    /// Its letter on the command line.
    pub short: Option<char>,
    /// Its name on the command line where that is not the key's; empty otherwise.
    pub flag: &'static str,
    /// What it says on a command line without a value; empty if it needs one.
    pub bare: &'static str,
}

/// One [`Setting`] of a table: its help, key, kind, the value's name, heading, default, example, what puts values into
/// the `T`, and what else is to be said.
#[macro_export]
macro_rules! setting {
    (
        [$($help:literal),+], $key:literal, $kind:expr, $value_name:literal, $heading:expr, $default:expr,
        $example:literal, |$to:ident, $values:pat_param| $put:expr $(, { $($more:tt)+ })?
    ) => {
        $crate::options::Setting {
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
            ..$crate::options::Setting::PLAIN
        }
    };
}

/// A table of [`Setting`]s. Their help stands before them as a comment.
#[macro_export]
macro_rules! table {
    ($(
        $(#[doc = $help:literal])+
        $key:literal, $kind:expr, $value_name:literal, $heading:expr, $default:expr, $example:literal,
        $({ $($more:tt)+ },)? |$to:ident, $values:pat_param| $put:expr;
    )+) => {
        &[$($crate::setting!(
            [$($help),+], $key, $kind, $value_name, $heading, $default, $example, |$to, $values| $put
            $(, { $($more)+ })?
        )),+]
    };
}

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: it is there, or not. In the file true or false.
    Flag,
    /// The same of what is so by default: on the command line `--no-KEY`, in the file false.
    On,
    /// A whole number, at least so large.
    Count(u64),
    /// A number per second, above 0.
    Rate,
    /// A size in bytes.
    Size,
    /// A time.
    Time,
    /// A text.
    Text,
    /// Numbers, ranges of them, and lists of both.
    Numbers,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Several texts.
    List,
}

impl<T> Setting<T> {
    /// Of which nothing is said.
    pub const PLAIN: Self = Self {
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
        bare: "",
    };

    /// Its name on the command line, without the hyphens in front.
    pub fn flag(&self) -> String {
        if !self.flag.is_empty() {
            return self.flag.to_owned();
        }
        let no = if self.kind == Kind::On { "no-" } else { "" };
        format!("{no}{}", self.key.replace('_', "-"))
    }

    /// Values that say what one looks like: of a list several.
    pub fn examples(&self) -> Vec<&'static str> {
        if self.kind == Kind::List { self.example.split_whitespace().collect() } else { vec![self.example] }
    }

    /// What it is for, and what holds without it.
    pub fn help(&self) -> String {
        match self.default {
            "" => self.help.to_owned(),
            default => format!("{} [default: {default}]", self.help),
        }
    }

    /// The same of its key in a file.
    pub fn help_in_file(&self) -> String {
        match self.kind {
            Kind::On => format!("If false: {}{}", self.help[..1].to_lowercase(), &self.help[1..]),
            _ => self.help(),
        }
    }
}

impl Kind {
    /// What its texts look like, as a regular expression without its ends; none for any text.
    pub fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Count(_) => Some("[0-9][0-9_.]*[kKM]?"),
            Self::Rate => Some("[0-9][0-9_.]*[kKM]?(/s)?"),
            Self::Size => Some("[0-9][0-9_.]* ?(B|k|kB|KB|M|MB|G|GB|KiB|MiB|GiB)?"),
            Self::Time => Some("[0-9][0-9_.]* ?(ns|us|µs|ms|s|m|min|h)?"),
            Self::Flag | Self::On | Self::Text | Self::Numbers | Self::Choice(_) | Self::List => None,
        }
    }
}

/// A count that is not too small, and not too large for its type.
///
/// # Errors
/// What is wrong with the text.
pub fn count<T: TryFrom<u64>>(text: &str, least: u64) -> Result<T, String> {
    let number = parse_count(text).map_err(told)?;
    if number < least {
        return Err(format!("{text} is too small; at least {least}"));
    }
    T::try_from(number).map_err(|_| format!("{text} is too large"))
}

/// An error's text.
pub fn told(error: impl Display) -> String {
    error.to_string()
}
