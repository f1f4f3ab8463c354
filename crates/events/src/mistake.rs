//! Mistakes in bodies, with their positions.

/// Why a body is refused. `Display` gives the client one line: the position, and the input expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Mistake {
    /// The kind, which determines the status of the answer.
    pub kind: MistakeKind,
    /// Line in the body, from 1. In a form, line in the field's decoded value.
    pub line: usize,
    /// Byte in the line, from 1.
    pub column: usize,
    /// Byte in the body, from 0. In a form, byte in the field's decoded value.
    pub byte: usize,
    /// The input that was expected at this position.
    pub message: String,
}

/// The kind of a [`Mistake`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MistakeKind {
    /// The body violates its declared format (400).
    Malformed,
    /// A form, or a body in Fluentd's mode, lacks the parameter that contains the records (400).
    MissingParameter,
    /// The body has too many records (413).
    TooManyRecords,
    /// The format is unsupported (415).
    Unsupported,
}

impl Mistake {
    /// A mistake at `byte` in `text`. Determines its line and column.
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
    fn lines_count_from_one_and_bytes_from_zero() {
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
