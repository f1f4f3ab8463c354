//! `make test` runs every stage whatever fails, and says at the end what did.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Result, ensure};
use proofload_tests::{
    process::{Finished, Launch},
    temporary::TemporaryFolder,
};
use testing::PATIENCE;

const TIMES: &str = "-Z unstable-options --report-time";

/// The stages with a `cargo` of which these subcommands fail; the tests print what a test program does, and leave a folder.
fn stages(failing: &str) -> Result<Finished> {
    let folder = TemporaryFolder::new()?;
    let left = folder.file("left");
    let cargo = format!(
        r#"echo "ran ${{PROOFLOAD_UNIT_TESTS:+of the crates: }}$*"
if [[ $1 == test && " {failing} " == *" test "* ]]; then
    printf 'failures:\n\n---- a::b stdout ----\nwhat it says\n\nfailures:\n    a::b\n\n'
    echo "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s"
    [[ $* != *inventory_* ]] || echo "group left" >{left}
elif [[ $1 == test ]]; then
    printf 'test c::quick ... ok <0.250s>\ntest c::slow ... what it prints\nok <61.500s>\n'
    echo "test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.1s"
    echo "void accepted: a trial: late" >>$PROOFLOAD_TEST_NOTES
fi
[[ " {failing} " != *" $1 "* ]]"#
    );
    for (name, text) in [
        ("cargo", cargo.as_str()),
        ("nproc", "echo 2"),
        ("sleep", ""),
        ("inventory.sh", &format!("echo mount; cat {left} 2>/dev/null")),
        ("loop-cost.sh", "echo ran loop-cost $*"),
        ("check-placement.sh", "echo ran placement"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/bash\n{text}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/test.sh");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    let launch = Launch::new(script.display().to_string()).arg("some-host").env("PATH", &path);
    launch.env("TEST_SCRIPTS", &folder.file("")).run(PATIENCE)
}

#[test]
fn a_failing_stage_does_not_hide_the_others() -> Result<()> {
    let failed = stages("clippy test")?;
    ensure!(failed.code == Some(1), "{failed:?}");
    let ran: Vec<&str> = failed.stdout.lines().filter_map(|line| line.strip_prefix("ran ")).collect();
    let test = |words: &str| format!("test --workspace --no-fail-fast --target some-host {words}");
    let of_the_crates = |words: &str| format!("of the crates: {}", test(words));
    let from_outside = |threads: u32, which: &str| {
        test(&format!("--test end_to_end -- {TIMES} --test-threads={threads} {which}"))
    };
    let expected = [
        "fmt --all --check".to_owned(),
        "clippy --workspace --all-targets --target some-host -- -D warnings".to_owned(),
        test("--tests --no-run"),
        from_outside(1, "inventory_"),
        of_the_crates(&format!("--lib --bins -- {TIMES}")),
        of_the_crates(&format!("--test [!e]* -- {TIMES}")),
        of_the_crates("--doc"),
        of_the_crates(&format!("--test end_to_end -- {TIMES} --test-threads=2 in_a_vm_")),
        from_outside(6, "--skip inventory_ --skip in_a_vm_"),
        "loop-cost check".to_owned(),
        "placement".to_owned(),
    ];
    ensure!(ran == expected, "{ran:?}");
    let each = "  a::b\n      what it says\n";
    let end = format!(
        "failed stages: clippy build inventories unit-tests tests-of-crates examples-in-comments virtual-machines \
         end-to-end nothing-left\n{}\n\
         test result: FAILED. 21 passed; 7 failed; 0 ignored;",
        each.repeat(7)
    );
    ensure!(failed.stdout.contains(&end), "{}", failed.stdout);
    ensure!(failed.stdout.contains("on this machine:\n  + group left\n"), "{}", failed.stdout);
    let sound = stages("")?;
    ensure!(sound.code == Some(0) && !sound.stdout.contains("failed stages"), "{sound:?}");
    ensure!(
        sound.stdout.contains("\ntest result: ok. 28 passed; 0 failed; 14 ignored; 0 measured;"),
        "{sound:?}"
    );
    let told = "\nvoid accepted: 7 times\n      7 late\nskipped: 0 times\n";
    ensure!(sound.stdout.contains(told), "{}", sound.stdout);
    ensure!(
        sound.stdout.contains("slowest tests:\n     61.5 s  c::slow\n     61.5 s  c::slow\n"),
        "{sound:?}"
    );
    ensure!(sound.stdout.contains("\ntest c::quick ... ok\n"), "times are told at the end only: {sound:?}");
    Ok(())
}
