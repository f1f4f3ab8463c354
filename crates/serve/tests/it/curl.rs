//! Runs curl as an independent client.

use std::{
    net::SocketAddr,
    process::{Command, Output},
};

/// A URL with the target's numeric address.
pub(crate) fn url(scheme: &str, address: SocketAddr, path: &str) -> String {
    format!("{scheme}://{address}{path}")
}

/// Runs curl with these arguments.
pub(crate) fn curl(arguments: &[&str]) -> Output {
    let patience = testing::PATIENCE.as_secs().to_string();
    let common = ["--silent", "--show-error", "--max-time", &patience, "--noproxy", "*"];
    Command::new("curl").args(common).args(arguments).output().expect("curl is installed")
}

/// Runs curl, which must succeed, and returns its output.
pub(crate) fn text(arguments: &[&str]) -> String {
    let output = curl(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs curl and returns its exit status: 0, or the kind of failure (curl(1), EXIT CODES).
pub(crate) fn status(arguments: &[&str]) -> Option<i32> {
    curl(arguments).status.code()
}
