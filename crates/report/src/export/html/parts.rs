//! Building blocks of the page: tables, figures and notes.

use maud::{Markup, html};

use crate::{plot::Chart, text};

/// How a column is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// The name of the row.
    Name,
    /// A number.
    Number,
    /// A word or two, without line breaks.
    Word,
    /// Some words.
    Short,
    /// A sentence.
    Long,
}

/// The columns of a table of numbers: one for the rows' names, and the number columns after it.
pub(super) fn numbers<'h>(name: &'h str, heads: &[&'h str]) -> Vec<(Column, &'h str)> {
    let heads = heads.iter().map(|head| (Column::Number, *head));
    std::iter::once((Column::Name, name)).chain(heads).collect()
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

/// Content that stays folded until the reader opens it.
pub(super) fn details(summary: &str, body: Markup) -> Markup {
    html! { details { summary { (summary) } (body) } }
}

/// Renders up to `max` of `all` items: the first ones unfolded, the others folded, and a note if some are left out.
/// `folded_name` and `item_name` name an item in the summary of the folded ones and in the note.
pub(super) fn folded<T>(
    all: &[T],
    (max_unfolded, max): (usize, usize),
    (folded_name, item_name): (&str, &str),
    render: impl Fn(&T) -> Markup,
) -> Markup {
    let shown = all.len().min(max);
    let (unfolded, folded) = all[..shown].split_at(shown.min(max_unfolded));
    html! {
        @for item in unfolded { (render(item)) }
        @if !folded.is_empty() {
            @let summary = format!("{} more", text::counted(folded.len(), folded_name).replace("searchs", "searches"));
            (details(&summary, html! { @for item in folded { (render(item)) } }))
        }
        (left_out(shown, all.len(), item_name))
    }
}

/// A note if some items are left out.
pub(super) fn left_out(shown: usize, all: usize, what: &str) -> Markup {
    html! {
        @if shown < all {
            p.note { "The first " (shown) " of " (text::counted(all, what)) " are shown, to keep this page \
             small; the result folder has all of them." }
        }
    }
}
