//! Places in texts that stand for something else: factors, targets, hosts, folders.

use std::ops::Range;

use settings::Reader;
pub(super) use settings::places::{Piece, each_text, finished, names, pieces, replaced, replaced_within};

/// Whether a name of a factor or a target can stand in texts; a mistake if it cannot.
pub(super) fn is_name(reader: &mut Reader<'_>, name: &str, at: &Range<usize>) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let is_name =
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.len() <= 40 && name.chars().all(fits);
    if !is_name {
        let message =
            format!("'{name}' is not a name: up to 40 letters, digits, '-' and '_', a letter first");
        reader.mistake(at.clone(), message);
    }
    is_name
}

/// Stands for the folder that a target's process stores in, which is known when it is started.
pub(super) const TARGET_FOLDER: &str = "target_folder";
