//! Runs the `proofload` binary from outside, against targets with known behaviour, and compares its reports with that truth.
//!
//! Everything runs on loopback addresses, ends within a bounded time, and dies with the process that started it. Nothing here links the
//! code under test; the tests use only the command line and the JSON.

pub mod balanced;
pub mod bars;
pub mod copying;
pub mod disturbance;
pub mod faulty_disk;
pub mod fleet_hosts;
pub mod held_target;
pub mod hog;
pub mod lab;
pub mod link;
pub mod listen;
pub mod machine;
pub mod mounts;
pub mod nbd;
pub mod nginx;
pub mod plain_server;
pub mod process;
pub mod proofload;
pub mod random;
pub mod recorder;
pub mod serve;
pub mod siege;
pub mod stats;
pub mod temporary;
pub mod vm;
pub mod witnessed_target;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use bars::{Bar, Outcome, Scale};
pub use nginx::{Nginx, Options as NginxOptions};
pub use proofload::{Output, Proofload, Trial};
pub use serve::{Serve, ServeReport};
pub use vm::Vm;

/// The Rust files below a folder, without build output.
///
/// # Panics
/// If a folder cannot be read.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut paths) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            if !path.ends_with("target") {
                paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files
}

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in a folder of the repository")
}
