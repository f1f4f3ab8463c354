//! Wraps long lines at spaces, because a terminal would break them inside words.

/// Wraps the lines of a text at spaces to fit `columns`. Indents continuation lines to the start of the line's text,
/// after a label or a list marker.
pub(super) fn wrapped(text: &str, columns: usize) -> String {
    text.split('\n').map(|line| wrapped_line(line, columns)).collect::<Vec<_>>().join("\n")
}

fn wrapped_line(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let indent = text_column(line).min(columns / 2);
    let (mut broken, mut column) = (String::with_capacity(line.len() + 16), 0);
    for (number, word) in line.split(' ').enumerate() {
        let word_width = width(word);
        if column > indent && word_width > 0 && column + 1 + word_width > columns {
            broken.truncate(broken.trim_end().len());
            broken += "\n";
            broken += &" ".repeat(indent);
            column = indent;
        } else if number > 0 {
            broken.push(' ');
            column += 1;
        }
        broken += word;
        column += word_width;
    }
    broken
}

/// The column where the text of a line starts, after its indentation, label or list marker.
fn text_column(line: &str) -> usize {
    let indent = width(line) - width(line.trim_start());
    let text = line.trim_start();
    match text.find("  ") {
        Some(gap) if gap < 20 => indent + width(text) - width(text[gap..].trim_start()),
        _ => indent + 2,
    }
}

/// Number of terminal columns of a text. Colour sequences occupy none.
fn width(text: &str) -> usize {
    let mut parts = text.split('\u{1b}');
    let plain = parts.next().map_or(0, |part| part.chars().count());
    plain + parts.map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_below_their_text() {
        let text = wrapped("Requests     25,000 scheduled, 25,000 sent\n  - too late by far\nshort", 32);
        assert_eq!(
            text,
            "Requests     25,000 scheduled,\n             25,000 sent\n  - too late by far\nshort"
        );
        assert_eq!(wrapped("  - too late by far", 14), "  - too late\n    by far");
    }

    #[test]
    fn colours_take_no_columns_and_long_words_stay_whole() {
        assert_eq!(wrapped("\u{1b}[1mbold\u{1b}[0m text", 9), "\u{1b}[1mbold\u{1b}[0m text");
        assert_eq!(
            wrapped("see https://example.net/long here", 10),
            "see\n  https://example.net/long\n  here"
        );
    }
}
