//! Mistakes and notes with their positions in a file.

use settings::Mistake;

/// Collects mistakes and notes about a text.
#[derive(Debug)]
pub(super) struct Mistakes<'t> {
    file: &'t str,
    text: &'t str,
    found: Vec<(usize, String)>,
    notes: Vec<(usize, String)>,
}

impl<'t> Mistakes<'t> {
    /// Creates an empty collection. `file` is the file's name for messages.
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        Self { file, text, found: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn add(&mut self, at: usize, message: impl Into<String>) {
        self.found.push((at, message.into()));
    }

    /// Adds a note on a parameter without effect.
    pub(super) fn note(&mut self, at: usize, message: impl Into<String>) {
        self.notes.push((at, message.into()));
    }

    pub(super) fn has_any(&self) -> bool {
        !self.found.is_empty()
    }

    /// All mistakes, in the order of the text.
    pub(super) fn sorted(&self) -> Vec<Mistake> {
        self.located(&self.found)
    }

    /// All notes, in the order of the text.
    pub(super) fn notes(&self) -> Vec<Mistake> {
        self.located(&self.notes)
    }

    fn located(&self, list: &[(usize, String)]) -> Vec<Mistake> {
        let mut located: Vec<Mistake> = list.iter().map(|(at, message)| self.locate(*at, message)).collect();
        located.sort();
        located.dedup();
        located
    }

    fn locate(&self, at: usize, message: &str) -> Mistake {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        Mistake {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
            message: message.to_owned(),
        }
    }
}
