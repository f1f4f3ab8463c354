//! What is wrong with a body, and where.

/// Why a body is refused. Its `Display` is one line for the client: place and what was expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Mistake {
    /// What kind of answer it asks for.
    pub kind: MistakeKind,
    /// Line of the body (of a form: of the field's decoded value), from 1.
    pub line: usize,
    /// Byte of that line, from 1.
    pub column: usize,
    /// Byte of the body (of a form: of the field's decoded value), from 0.
    pub byte: usize,
    /// What was expected.
    pub message: String,
}

/// What kind of answer a [`Mistake`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MistakeKind {
    /// The body is not what it says it is (400).
    Malformed,
    /// A form, or a body Fluentd would look into, without the parameter that holds the record (400).
    MissingParameter,
    /// More records than one body may have (413).
    TooManyRecords,
    /// A kind of body that is not read (415).
    Unsupported,
}

impl Mistake {
    /// A mistake at `byte` of `text`, counting lines before it.
    pub(crate) fn at(text: &[u8], byte: usize, message: impl Into<String>) -> Mistake {
        let byte = byte.min(text.len());
        let before = &text[..byte];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let (column, message) = (byte - line_start + 1, message.into());
        Mistake { kind: MistakeKind::Malformed, line, column, byte, message }
    }

    pub(crate) fn of_kind(self, kind: MistakeKind) -> Mistake {
        Mistake { kind, ..self }
    }
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            MistakeKind::Malformed | MistakeKind::TooManyRecords => {
                write!(f, "line {}, column {} (byte {}): {}", self.line, self.column, self.byte, self.message)
            }
            MistakeKind::MissingParameter | MistakeKind::Unsupported => f.write_str(&self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_from_one_and_bytes_from_zero() {
        let position = |byte| {
            let mistake = Mistake::at(b"ab\ncd\n", byte, "x");
            (mistake.line, mistake.column, mistake.byte)
        };
        assert_eq!(position(0), (1, 1, 0));
        assert_eq!(position(2), (1, 3, 2));
        assert_eq!(position(3), (2, 1, 3));
        assert_eq!(position(6), (3, 1, 6));
        assert_eq!(position(99), (3, 1, 6));
    }
}
