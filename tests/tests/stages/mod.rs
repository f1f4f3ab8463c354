//! `make test` runs every stage whatever fails, and says at the end what did.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use anyhow::{Result, ensure};
use proofload_tests::{
    process::{Finished, Launch},
    temporary::TemporaryFolder,
};

const TIMES: &str = "-Z unstable-options --report-time";

/// The stages with a `cargo` of which these subcommands fail; the tests print what a test program does.
fn stages(failing: &str) -> Result<Finished> {
    let folder = TemporaryFolder::new()?;
    let cargo = folder.path().join("cargo");
    let text = format!(
        r#"#!/bin/bash
echo "ran ${{PROOFLOAD_UNIT_TESTS:+of the crates: }}$*"
if [[ $1 == test && " {failing} " == *" test "* ]]; then
    printf 'failures:\n\n---- a::b stdout ----\nwhat it says\n\nfailures:\n    a::b\n\n'
    echo "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s"
elif [[ $1 == test ]]; then
    printf 'test c::quick ... ok <0.250s>\ntest c::slow ... what it prints\nok <61.500s>\n'
    echo "test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.1s"
fi
[[ " {failing} " != *" $1 "* ]]
"#
    );
    fs::write(&cargo, text)?;
    let nproc = folder.path().join("nproc");
    fs::write(&nproc, "#!/bin/bash\necho 2\n")?;
    for program in [cargo, nproc] {
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/test.sh");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    let launch = Launch::new(script.display().to_string()).arg("some-host").env("PATH", &path);
    launch.run(Duration::from_secs(20))
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
        from_outside(6, "--skip measured_ --skip paced_ --skip inventory_"),
        from_outside(4, "paced_"),
        from_outside(1, "measured_"),
    ];
    ensure!(ran == expected, "{ran:?}");
    let each = "  a::b\n      what it says\n";
    let end = format!(
        "failed stages: clippy build inventories unit-tests tests-of-crates examples-in-comments end-to-end paced-samples measured-samples\n{}\n\
         test result: FAILED. 24 passed; 8 failed; 0 ignored;",
        each.repeat(8)
    );
    ensure!(failed.stdout.contains(&end), "{}", failed.stdout);
    let sound = stages("")?;
    ensure!(sound.code == Some(0) && !sound.stdout.contains("failed stages"), "{sound:?}");
    ensure!(
        sound.stdout.contains("\ntest result: ok. 32 passed; 0 failed; 16 ignored; 0 measured;"),
        "{sound:?}"
    );
    ensure!(
        sound.stdout.contains("slowest tests:\n     61.5 s  c::slow\n     61.5 s  c::slow\n"),
        "{sound:?}"
    );
    ensure!(sound.stdout.contains("\ntest c::quick ... ok\n"), "times are told at the end only: {sound:?}");
    Ok(())
}
