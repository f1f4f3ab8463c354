//! Helpers for the tests of several modules.

/// Runs a test again in a new process that `unshare` starts with these options. In that process, returns false.
pub(crate) fn is_run_again(test: &str, options: &[&str]) -> bool {
    const INSIDE: &str = "KERNEL_TEST_IS_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let own = std::env::current_exe().unwrap();
    let mut inside = std::process::Command::new("unshare");
    let inside = inside.args(options).arg(own).args([test, "--exact"]).env(INSIDE, "1");
    let output = inside.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

/// Fails without root. For tests whose names begin with `as_root`.
pub(crate) fn need_root() {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root, "root is needed: make test leaves this out without root");
}
