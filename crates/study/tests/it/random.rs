//! Reads random texts, which must never cause a panic.

use proptest::{prelude::*, sample::Index};

use crate::{HOST, files};

/// Pieces of TOML and of studies, from which texts are composed.
const PIECES: [&str; 28] = [
    "[",
    "]",
    "{",
    "}",
    "\"",
    "=",
    ",",
    "\n",
    "#",
    "0",
    "-1",
    "9e99",
    "\"{target}\"",
    "\"{{x}}\"",
    "\"{",
    "true",
    "[targets.x]",
    "[[goals]]",
    "[search]",
    "when = { mode = 1 }",
    "count = 3",
    "1979-05-27",
    "\u{e4}",
    "'''",
    ".",
    "search = true",
    "url = \"http://{x}/\"",
    "\"\"",
];

fn read(text: &str) {
    if let Err(mistakes) = study::file::read("f", text, &[], &HOST) {
        assert!(!mistakes.is_empty());
        let lines = text.matches('\n').count() + 1;
        assert!(mistakes.iter().all(|mistake| (1..=lines).contains(&mistake.line) && mistake.column > 0));
    }
}

/// The text of a shipped study.
fn sound() -> impl Strategy<Value = String> {
    let texts: Vec<String> = files("../../studies").into_iter().map(|(_, text)| text).collect();
    any::<Index>().prop_map(move |index| index.get(&texts).clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        read(&text);
    }

    #[test]
    fn no_override_panics(key in "[a-z.]{0,12}|trial\\.repeats|target|rate|search\\.max", value in "\\PC{0,12}") {
        let text = files("../../studies").remove(0).1;
        let _ = study::file::read("f", &text, &[(key, value)], &HOST);
    }

    #[test]
    fn no_change_of_a_shipped_study_panics(
        text in sound(),
        changes in prop::collection::vec((any::<Index>(), any::<Index>(), 0..PIECES.len(), 0..3_u8), 1..6),
    ) {
        let mut text = text;
        for (at, to, piece, kind) in changes {
            let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
            let (at, to) = (*at.get(&places), *to.get(&places));
            let (from, to) = (at.min(to), at.max(to).min(at.min(to) + 40));
            let to = (to..=text.len()).find(|&to| text.is_char_boundary(to)).unwrap_or(text.len());
            match kind {
                0 => text.insert_str(from, PIECES[piece]),
                1 => text.replace_range(from..to, ""),
                _ => text.replace_range(from..to, PIECES[piece]),
            }
            if text.is_empty() {
                break;
            }
        }
        read(&text);
    }
}
