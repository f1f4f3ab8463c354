//! Tables, figures and notes.

use maud::{Markup, html};

use crate::{plot::Chart, text};

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// What the row is about.
    Name,
    /// A figure.
    Number,
    /// A word or two, never broken.
    Word,
    /// Some words.
    Short,
    /// A sentence.
    Long,
}

/// A table. Each row has as many cells as there are columns.
pub(super) fn table(caption: &str, columns: &[(Column, &str)], rows: &[Vec<String>]) -> Markup {
    let class = |column: Column| match column {
        Column::Name => "name",
        Column::Number => "n",
        Column::Word => "word",
        Column::Short => "short",
        Column::Long => "long",
    };
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead {
                    tr { @for (column, head) in columns { th class=(class(*column)) scope="col" { (head) } } }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for ((column, _), cell) in columns.iter().zip(row) {
                                @if *column == Column::Name { th.name scope="row" { (cell) } }
                                @else { td class=(class(*column)) { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A chart with its caption.
pub(super) fn figure(chart: &Chart, caption: Markup) -> Markup {
    figure_of(chart.svg(), caption)
}

/// A picture with its caption.
pub(super) fn figure_of(picture: Markup, caption: Markup) -> Markup {
    html! {
        figure {
            div.wide { (picture) }
            figcaption { (caption) }
        }
    }
}

/// What is there for those who want it.
pub(super) fn details(summary: &str, body: Markup) -> Markup {
    html! { details { summary { (summary) } (body) } }
}

/// As many of `all` as `most`, each by `one`: the first few open, the others folded, and a note of those left out.
/// `more` is what the folded ones are called, `what` one of those left out.
pub(super) fn folded<T>(
    all: &[T],
    (open, most): (usize, usize),
    (more, what): (&str, &str),
    one: impl Fn(&T) -> Markup,
) -> Markup {
    let shown = all.len().min(most);
    let (open, folded) = all[..shown].split_at(shown.min(open));
    html! {
        @for item in open { (one(item)) }
        @if !folded.is_empty() {
            @let summary = format!("{} more", text::counted(folded.len(), more).replace("searchs", "searches"));
            (details(&summary, html! { @for item in folded { (one(item)) } }))
        }
        (left_out(shown, all.len(), what))
    }
}

/// What was left out, if anything was.
pub(super) fn left_out(shown: usize, all: usize, what: &str) -> Markup {
    html! {
        @if shown < all {
            p.note { "Of " (text::counted(all, what)) " the first " (shown) " are shown, to keep this page \
             small; the result folder has all of them." }
        }
    }
}
