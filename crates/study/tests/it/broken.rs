//! Broken studies: each is refused with exactly the mistakes in the file `.expected` of the same name.

use std::{fs, path::Path};

use crate::{HOST, files};

/// The beginning of the part of a message that only lists known names.
const LIST: &str = " (known here";

#[test]
fn all_mistakes_of_a_broken_study_are_reported_at_once() {
    let (mut all, mut with_several) = (0, 0);
    let files = files("tests/broken");
    for (path, text) in &files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let mistakes = study::file::read(name, text, &[], &HOST).expect_err(name);
        let found: Vec<String> = mistakes
            .iter()
            .map(|mistake| {
                assert_eq!(mistake.file, name);
                let message = mistake.message.split(LIST).next().unwrap_or_default();
                format!("{}:{}: {message}", mistake.line, mistake.column)
            })
            .collect();
        let expected = path.with_extension("expected");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&expected, found.join("\n") + "\n").unwrap();
        }
        assert_eq!(found, lines(&expected), "{name}");
        all += found.len();
        with_several += usize::from(found.len() > 1);
    }
    assert!(
        files.len() >= 30 && all >= 70 && with_several >= 8,
        "{} files, {all}, {with_several}",
        files.len()
    );
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}
