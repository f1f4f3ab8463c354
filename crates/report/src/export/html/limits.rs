//! How much of a study the page shows, so that it stays small enough to be sent by mail.

/// Most of each thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Settings in a table.
    pub settings: usize,
    /// Trials in a table or a figure.
    pub trials: usize,
    /// Figures of a kind.
    pub figures: usize,
    /// Points of a line.
    pub points: usize,
    /// Lines of any other list.
    pub lines: usize,
    /// Characters of a foreign text.
    pub text_chars: usize,
}

impl Limits {
    /// Where a page begins.
    pub(super) const FULL: Self =
        Self { settings: 240, trials: 600, figures: 12, points: 240, lines: 60, text_chars: 400 };
    /// Where it ends: with these no study makes a page of even a quarter of a megabyte.
    const LEAST: Self = Self { settings: 6, trials: 12, figures: 1, points: 24, lines: 4, text_chars: 48 };

    /// About half of everything; none if it cannot be less.
    pub(super) fn smaller(&self) -> Option<Self> {
        let least = Self::LEAST;
        let smaller = Self {
            settings: (self.settings / 2).max(least.settings),
            trials: (self.trials / 2).max(least.trials),
            figures: (self.figures / 2).max(least.figures),
            points: (self.points / 2).max(least.points),
            lines: (self.lines / 2).max(least.lines),
            text_chars: (self.text_chars / 2).max(least.text_chars),
        };
        (smaller != *self).then_some(smaller)
    }
}
