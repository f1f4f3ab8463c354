//! Placeholders in the texts of a study: factors, targets, hosts, folders.

use std::ops::Range;

use settings::Reader;
pub(super) use settings::placeholders::{
    Piece, expand, for_each_text, names, pieces, substitute, substitute_in_value,
};

/// Whether a factor or a target can have this name; reports a mistake if it cannot.
pub(super) fn check_name(reader: &mut Reader<'_>, name: &str, at: &Range<usize>) -> bool {
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

/// Placeholder for the folder in which a target's process stores its files. The folder is only known once the process starts.
pub(super) const TARGET_FOLDER: &str = "target_folder";
