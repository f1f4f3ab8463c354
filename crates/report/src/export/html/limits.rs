//! Limits on the page's content, which keep the page small enough for mail.

/// Maximum numbers of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Settings in a table.
    pub settings: usize,
    /// Trials in a table or a figure.
    pub trials: usize,
    /// Charts of a kind.
    pub figures: usize,
    /// Points of a line in a chart.
    pub points: usize,
    /// Items of any other list.
    pub lines: usize,
    /// Characters of a text from outside, such as a name.
    pub text_chars: usize,
}

impl Limits {
    /// The limits to try first.
    pub(super) const FULL: Self =
        Self { settings: 240, trials: 600, figures: 12, points: 240, lines: 60, text_chars: 400 };
    /// The smallest limits; with them, no page is larger than 250 kB.
    const MIN: Self = Self { settings: 6, trials: 12, figures: 1, points: 24, lines: 4, text_chars: 48 };

    /// About half of each limit; `None` if the limits are already the smallest.
    pub(super) fn smaller(&self) -> Option<Self> {
        let min = Self::MIN;
        let smaller = Self {
            settings: (self.settings / 2).max(min.settings),
            trials: (self.trials / 2).max(min.trials),
            figures: (self.figures / 2).max(min.figures),
            points: (self.points / 2).max(min.points),
            lines: (self.lines / 2).max(min.lines),
            text_chars: (self.text_chars / 2).max(min.text_chars),
        };
        (smaller != *self).then_some(smaller)
    }
}
