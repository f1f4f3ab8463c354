//! Helpers that wait for the output of other processes.

use std::{fs, path::Path, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use testing::{PATIENCE, find};

use super::{KINDS, Search};
use crate::process::Process;

/// An nginx that logs what it receives.
pub(super) struct Listening {
    pub(super) _process: Process,
    pub(super) authority: String,
}

impl Listening {
    pub(super) fn open_url(&self) -> String {
        format!("http://{}/x?page=2", self.authority)
    }
}

impl Search {
    /// Tests programs that get a secret from their environment and print it.
    pub(super) fn programs(&mut self) -> Result<()> {
        let (file, out) = (self.folder.file("programs.toml"), self.out("programs"));
        let secret = KINDS[7].1;
        fs::write(
            &file,
            format!(
                "title = \"programs\"\n[workload.command]\nrun = \"echo $API_TOKEN; echo $API_TOKEN | base64; sleep 0.3; \
                 echo $API_TOKEN >&2; exit 1\"\nsetup = \"echo $API_TOKEN\"\nenv = {{ API_TOKEN = \"{secret}\" }}\n"
            ),
        )?;
        let running = self.call(["run", &file, "--out", &out], &[])?.start()?;
        // Search the arguments of processes, because every user can read them.
        for _ in 0..20 {
            for process in fs::read_dir("/proc")?.flatten() {
                let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
                self.look("the arguments of a process", &arguments);
            }
            thread::sleep(Duration::from_millis(20));
        }
        let output = self.ended(running)?;
        ensure!(output.stderr.contains("***") || output.stdout.contains("***"), "{}", output.described());
        let kept = fs::read_to_string(format!("{out}/output/1/command-0.out"))?;
        ensure!(kept.starts_with("***"), "what the program wrote is not kept, masked: {kept}");
        Ok(())
    }
}

/// Whether a folder has a file with this ending that contains a text.
pub(super) fn holds(folder: &Path, end: &str, text: &str) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).any(|path| {
        holds(&path, end, text)
            || path.display().to_string().ends_with(end)
                && fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
    })
}

pub(super) fn wait(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    find(PATIENCE, || is_so().then_some(())).with_context(|| format!("it did not come to this: {what}"))
}
