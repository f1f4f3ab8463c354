//! A machine that runs, and what it leaves.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use testing::PATIENCE;

use crate::{process::Process, temporary::TemporaryFolder};

/// What the last line of the output starts with; the script's exit status follows.
const STATUS: &str = "vm-exit-status ";

/// The console's last lines that an error shows.
const CONSOLE_LINES: usize = 40;

/// A machine that runs its script. It is killed when this is dropped.
#[derive(Debug)]
pub struct RunningVm {
    process: Process,
    // Dropped after the process, which has files in it.
    folder: TemporaryFolder,
    release: String,
}

/// A script that ran in a machine to its end.
#[derive(Debug)]
pub struct Ran {
    /// The script's exit status.
    pub code: i32,
    /// All the script wrote, standard output and standard error as they came.
    pub output: String,
    /// What the kernel and its first process said on the console.
    pub console: String,
    /// The kernel's release, as in `6.1.0-56-amd64`.
    pub release: String,
    /// How long it took out here, boot included.
    pub wall: Duration,
}

impl RunningVm {
    /// One whose console and output go to files of these names in a folder.
    pub(super) fn new(process: Process, folder: TemporaryFolder, release: String) -> Self {
        Self { process, folder, release }
    }

    /// What the script wrote so far.
    pub fn output(&self) -> String {
        lossy(&self.folder.path().join("output"))
    }

    /// The end of the console and what the script wrote, for an error's message.
    pub fn said(&self) -> String {
        said(&lossy(&self.folder.path().join("console")), &self.output())
    }

    /// Whether the machine is still there.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Ends it as a cut of the power would: nothing in it learns of it.
    ///
    /// # Errors
    /// When it does not go.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE)?.context("the machine does not go")?;
        Ok(())
    }

    /// Waits until it has switched itself off.
    ///
    /// # Errors
    /// When that takes longer than `timeout`, and when it broke down before the script had ended; with
    /// what it said.
    pub fn finish(self, timeout: Duration) -> Result<Ran> {
        let Self { process, folder, release } = self;
        let (console, output) = (folder.path().join("console"), folder.path().join("output"));
        let finished = process.finish(timeout);
        let console = lossy(&console);
        let finished = finished.with_context(|| said(&console, &lossy(&output)))?;
        let all = lossy(&output);
        let Some((output, code)) = parted(&all) else {
            bail!("the machine ended before its script did; {}\n{}", said(&console, &all), finished.stderr);
        };
        Ok(Ran { code, output: output.to_owned(), console, release, wall: finished.wall })
    }
}

impl Ran {
    /// The output of a script that succeeded.
    ///
    /// # Errors
    /// When its exit status was not 0; with all that was said.
    pub fn succeeded(&self) -> Result<&str> {
        if self.code != 0 {
            bail!("the script's exit status was {}; {}", self.code, said(&self.console, &self.output));
        }
        Ok(&self.output)
    }
}

/// The output without its last line, and the exit status in that line.
fn parted(output: &str) -> Option<(&str, i32)> {
    let (before, status) = output.rsplit_once(STATUS)?;
    Some((before, status.trim_end().parse().ok()?))
}

fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn said(console: &str, output: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let tail = lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n");
    format!("the script wrote:\n{output}\nthe end of the console:\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_exit_status() {
        assert_eq!(parted("a\nvm-exit-status 7\n"), Some(("a\n", 7)));
        assert_eq!(parted("no newlinevm-exit-status 0\n"), Some(("no newline", 0)));
        assert_eq!(parted("vm-exit-status 3\nvm-exit-status 4\n"), Some(("vm-exit-status 3\n", 4)));
        assert_eq!(parted("killed in the middle vm-exit-sta"), None);
    }
}
