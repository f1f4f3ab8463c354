//! Long lines for a terminal, which would break them in the midst of words.

/// The text with its lines broken between words, so that they fit so many columns. What goes on stands below the text
/// of its line: right of a label, or of a list's mark.
pub(super) fn wrapped(text: &str, columns: usize) -> String {
    text.split('\n').map(|line| wrapped_line(line, columns)).collect::<Vec<_>>().join("\n")
}

fn wrapped_line(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let hang = hanging(line).min(columns / 2);
    let (mut broken, mut column) = (String::with_capacity(line.len() + 16), 0);
    for (number, word) in line.split(' ').enumerate() {
        let wide = width(word);
        if column > hang && wide > 0 && column + 1 + wide > columns {
            broken.truncate(broken.trim_end().len());
            broken += "\n";
            broken += &" ".repeat(hang);
            column = hang;
        } else if number > 0 {
            broken.push(' ');
            column += 1;
        }
        broken += word;
        column += wide;
    }
    broken
}

/// The column in which a line's text begins.
fn hanging(line: &str) -> usize {
    let indent = width(line) - width(line.trim_start());
    let text = line.trim_start();
    match text.find("  ") {
        Some(gap) if gap < 20 => indent + width(text) - width(text[gap..].trim_start()),
        _ => indent + 2,
    }
}

/// Columns that text takes; sequences that set colours take none.
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
        let told = wrapped("Requests     25,000 scheduled, 25,000 sent\n  - too late by far\nshort", 32);
        assert_eq!(
            told,
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
