//! `${NAME}` and `@FILE`: references to secrets, on a command line or in a study file.
//!
//! `${NAME}` is the value of the environment variable NAME; `$${` is the text `${`. Values are secrets and are masked
//! once they have been read. The caller decides where a value is used: this module never inserts it into a text.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use percent_encoding::utf8_percent_encode;
use record::input::{MARK, read_text};

use crate::{encodings::ESCAPED_CHARACTERS, mask};

pub use crate::pieces::{Piece, pieces};

/// Whether a text refers to a variable.
pub fn has_reference(text: &str) -> bool {
    pieces(text).is_ok_and(|pieces| pieces.iter().any(|(_, piece)| matches!(piece, Piece::Name(_))))
}

/// The percent-encoded form of a value that is valid at any position of a URL.
pub fn percent_encoded(value: &str) -> String {
    utf8_percent_encode(value, ESCAPED_CHARACTERS).to_string()
}

/// The value of a variable, without trailing line breaks, as in a shell's `$(…)`.
///
/// # Errors
/// When the variable is not set, empty, or not UTF-8.
pub fn variable(name: &str) -> Result<String, String> {
    let refuse = |what: &str| {
        Err(format!("the environment variable {name} {what}: set it, or write $${{ for the text ${{ itself"))
    };
    match env::var(name).as_deref().map(|value| value.trim_end_matches(['\r', '\n'])) {
        Ok("") => refuse("is empty"),
        Ok(value) => {
            mask::learn(value);
            Ok(value.to_owned())
        }
        Err(env::VarError::NotPresent) => refuse("is not set"),
        Err(env::VarError::NotUnicode(_)) => refuse("is not UTF-8"),
    }
}

/// The lines of a file that holds secrets.
#[derive(Debug, Clone)]
pub struct Lines {
    /// The lines with their numbers, from 1, without empty lines and comments (`#`). An unreadable line has an error
    /// instead of its text.
    pub lines: Vec<(usize, Result<String, String>)>,
    /// A warning about the file's permissions.
    pub warning: Option<String>,
}

/// Reads a file with one secret per line.
///
/// # Errors
/// When the file cannot be read; the message names the file and the reason.
pub fn read_lines(path: &Path) -> Result<Lines, String> {
    let refuse = |error| format!("cannot read {}: {error}", path.display());
    let text = read_text(path)?;
    let mode = fs::metadata(path).map_err(refuse)?.mode();
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let readable = |line: &str| match line.contains(|c: char| c == MARK || c.is_control() && c != '\t') {
        true => Err("it has a control character or a byte order mark; end lines with LF or CRLF".to_owned()),
        false => Ok(line.to_owned()),
    };
    Ok(Lines {
        lines: lines.map(|(number, line)| (number, readable(line))).collect(),
        warning: (mode & 0o004 != 0)
            .then(|| format!("all users of this machine can read {0}: run chmod o-r {0}", path.display())),
    })
}

/// Reads a file of secrets only once and keeps its lines, because a study must send the same secrets until its end, and
/// the file may be a pipe.
///
/// # Errors
/// As for [`read_lines`].
pub fn read_lines_once(path: &Path) -> Result<Lines, String> {
    static READ: Mutex<BTreeMap<PathBuf, Lines>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lines) = read.get(path) {
        return Ok(lines.clone());
    }
    let lines = read_lines(path)?;
    read.insert(path.to_owned(), lines.clone());
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_named_and_has_a_value() {
        // SAFETY: no other test of this crate writes the environment, and these names are read by this test only.
        unsafe {
            env::set_var("SECRETS_TEST_A", "p@ss/w?rd\r\n");
            env::set_var("SECRETS_TEST_EMPTY", "\n");
        }
        let parts = |text| pieces(text).unwrap().into_iter().map(|(_, piece)| piece).collect::<Vec<_>>();
        use Piece::{Name, Text};
        assert_eq!(parts("Bearer ${A}!"), [Text("Bearer "), Name("A"), Text("!")]);
        assert_eq!(parts("$${A} $5 $ {x}"), [Text(""), Text("${"), Text("A} $5 $ {x}")]);
        assert_eq!(variable("SECRETS_TEST_A").unwrap(), "p@ss/w?rd", "line ends at the end are cut");
        assert!(
            variable("SECRETS_TEST_UNSET").unwrap_err().contains("SECRETS_TEST_UNSET is not set: set it")
        );
        assert!(variable("SECRETS_TEST_EMPTY").unwrap_err().contains("is empty"));
        for bad in ["${", "${}", "${a b}", "${1}", "${a"] {
            assert!(pieces(bad).unwrap_err().contains("write $${"), "{bad}");
        }
    }
}
