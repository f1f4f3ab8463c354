//! Requests from the writer to the syncer, and from the syncer to the compressor.

use std::{path::PathBuf, sync::Arc};

use crate::{
    answers::PendingAnswer,
    file::{Progress, SegmentFile},
    inode::Inode,
};

/// A request of the writer.
#[derive(Debug)]
pub(crate) enum Request {
    /// Sync a file, then answer the parts. If no parts wait, the sync still limits the bytes that recovery must read.
    Sync { file: Arc<SegmentFile>, progress: Progress, waiting: Vec<PendingAnswer> },
    /// Sync a closed segment. `ended` means that it will not be opened again.
    Close { file: Arc<SegmentFile>, progress: Progress, ended: bool },
    /// Record that an already closed segment has ended.
    End(PackJob),
}

/// A segment that must be packed.
#[derive(Debug, Clone)]
pub(crate) struct PackJob {
    pub id: u64,
    pub path: PathBuf,
    pub inode: Inode,
    /// Whether the packed file already has its final name, so that only the plain file must be removed.
    pub renamed: bool,
}
