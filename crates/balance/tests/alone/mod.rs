//! Tests that need root. Their names begin with `as_root`, so that `make test` can leave them out without root.

use std::process::Command;

/// This variable is set in the process that a test starts in separate namespaces.
const INSIDE: &str = "BALANCE_TEST_IS_INSIDE";

/// Runs the test of this name again in new namespaces, with a separate BPF file system and `/run`. All processes that
/// the test starts end with it.
pub(crate) fn run(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    assert!(rustix::process::geteuid().is_root(), "root is needed: make test leaves this out without root");
    let inside =
        "mount -t bpf bpf /sys/fs/bpf; mount -t tmpfs tmpfs /run; exec \"$0\" --exact \"$1\" --nocapture";
    let mut alone = Command::new("unshare");
    alone.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", inside]);
    let alone = alone.arg(std::env::current_exe().unwrap()).arg(name).env(INSIDE, "1");
    let output = alone.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
