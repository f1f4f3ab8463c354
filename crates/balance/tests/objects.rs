//! Checks that the committed BPF objects match their sources.

use std::{fs, process::Command};

#[test]
fn the_committed_programs_are_those_of_their_sources() {
    let folder = tempfile::tempdir().unwrap();
    let bpf = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");
    let build = format!("{bpf}/build.sh");
    let built = Command::new(&build).arg(folder.path()).status().unwrap();
    assert!(built.success(), "`make setup-test` installs what {build} needs");
    let version = Command::new("clang").arg("--version").output().unwrap().stdout;
    if !String::from_utf8_lossy(&version).contains("clang version 14.0.6") {
        return testing::skipped("bytes of l2dsr", "other versions of clang make other bytes");
    }
    for name in ["l2dsr_cls.bpf.o", "l2dsr_xdp.bpf.o"] {
        let built = fs::read(folder.path().join(name)).unwrap();
        assert!(built == fs::read(format!("{bpf}/{name}")).unwrap(), "run {build} and commit what it made");
    }
}
