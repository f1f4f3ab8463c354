//! Places in texts that stand for something else: factors, targets, hosts, folders.

pub(super) use settings::places::{Piece, each_text, finished, names, pieces, replaced, replaced_within};

/// Stands for the folder that a target's process stores in, which is known when it is started.
pub(super) const TARGET_FOLDER: &str = "target_folder";
