//! Events and folders for the unit tests of this crate.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use record::receipt::Numbering;

/// An event as it is sent.
pub(crate) fn event(numbering: &Numbering, client: u32, number: u32) -> String {
    let mut event = Vec::new();
    numbering.append(&mut event);
    let at = numbering.front().len();
    numbering.number(&mut event[at..at + 24], client, number);
    String::from_utf8(event).expect("a template is text")
}

/// A temporary folder with a folder for receipts and one for files.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    /// Creates the folders.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("proofload-audit-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("receipts")).unwrap();
        fs::create_dir_all(path.join("files")).unwrap();
        Self(path)
    }

    /// Writes a file into the folder.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
