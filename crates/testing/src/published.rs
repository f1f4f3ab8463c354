//! Checks files of the documentation that the code generates.

use std::{
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// Serializes writing, because several tests of a program may write parts of the same file.
static WRITING: Mutex<()> = Mutex::new(());

/// Compares a file below `docs` with the text that the code makes from the file's present text. If `UPDATE_DOCS` is
/// set, as by `make docs`, writes the file instead.
///
/// # Panics
/// When the file differs.
pub fn assert_published(file: &str, wanted: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let present = fs::read_to_string(&path).unwrap_or_default();
    let wanted = wanted(&present);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(&path, wanted).unwrap_or_else(|error| panic!("cannot write docs/{file}: {error}"));
    }
    assert!(present == wanted, "docs/{file}: run `make docs` and commit docs");
}

/// Like [`assert_published`], for the part of a file between the comments "`part`: written by `make docs`" and "end of
/// `part`".
///
/// # Panics
/// When the part differs, or the file has no such comments.
pub fn assert_part_published(file: &str, part: &str, wanted: &str) {
    let (begin, end) =
        (format!("<!-- {part}: written by `make docs` -->\n"), format!("<!-- end of {part} -->"));
    assert_published(file, |text| {
        let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("docs/{file} has no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("docs/{file} has no {end}"));
        format!("{before}{begin}{wanted}{end}{after}")
    });
}
