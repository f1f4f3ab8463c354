//! Drives the `proofload` binary from outside, against targets whose behaviour is known, and holds
//! what it says against that truth.
//!
//! Everything runs on loopback addresses, ends within a bounded time, and dies with the process that
//! started it. Nothing here links the code under test: only the command line and the JSON are known.

pub mod balanced;
pub mod bars;
pub mod copying;
pub mod disturbance;
pub mod faulty_disk;
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

pub use bars::{Bar, Outcome, Scale};
pub use nginx::{Nginx, Options as NginxOptions};
pub use proofload::{Output, Proofload, Trial};
pub use serve::{Serve, ServeReport};
pub use vm::Vm;

/// The repository's root.
pub fn repository() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package lies in a folder of the repository")
}
