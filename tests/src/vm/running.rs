//! A running machine, and its results.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use testing::PATIENCE;

use crate::{
    process::{Launch, Process},
    temporary::TemporaryFolder,
};

/// The beginning of the last line of the output. The script's exit status follows.
const STATUS: &str = "vm-exit-status ";

/// Number of the console's last lines in an error.
const CONSOLE_LINES: usize = 40;

/// A machine that is running its script. It is killed on drop.
#[derive(Debug)]
pub struct RunningVm {
    process: Process,
    // Dropped after the process, which has files in it.
    folder: TemporaryFolder,
    release: String,
}

/// The results of a script that ran to its end in a machine.
#[derive(Debug)]
pub struct Ran {
    /// The script's exit status.
    pub code: i32,
    /// The script's standard output and standard error, in the order of writing.
    pub output: String,
    /// The output of the kernel and its first process on the console.
    pub console: String,
    /// The kernel's release, as in `6.1.0-56-amd64`.
    pub release: String,
    /// Time of the run by the host's clock, including the boot.
    pub wall: Duration,
}

impl RunningVm {
    /// A machine whose console and output go to files with these names in the folder.
    pub(super) fn new(process: Process, folder: TemporaryFolder, release: String) -> Self {
        Self { process, folder, release }
    }

    /// The script's output so far.
    pub fn output(&self) -> String {
        lossy(&self.folder.path().join("output"))
    }

    /// The end of the console and the script's output, for an error's message.
    pub fn said(&self) -> String {
        said(&lossy(&self.folder.path().join("console")), &self.output())
    }

    /// Whether the machine is still running.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Gives the machine real-time priority: it then goes on whatever else runs outside, like hardware. One
    /// that works for more than a second keeps all other programs out, and the kernel then stops it for their share of 50 ms. Only root can
    /// do this.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_real_time(&self) -> Result<()> {
        let pid = self.process.pid().to_string();
        let done = Launch::new("chrt").words("--all-tasks --rr --pid 40").arg(pid).run(PATIENCE)?;
        ensure!(done.code == Some(0), "no other priority for the machine: {}", done.stderr);
        Ok(())
    }

    /// Kills the machine, like a power cut: nothing in it notices.
    ///
    /// # Errors
    /// If it does not end.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE)?.context("the machine does not go")?;
        Ok(())
    }

    /// Waits until the machine has switched itself off.
    ///
    /// # Errors
    /// If that takes longer than `timeout`, or if the machine crashes before the script has ended. The error has its output.
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
    /// The output of a successful script.
    ///
    /// # Errors
    /// If its exit status was not 0. The error has all output.
    pub fn succeeded(&self) -> Result<&str> {
        if self.code != 0 {
            bail!("the script's exit status was {}; {}", self.code, said(&self.console, &self.output));
        }
        Ok(&self.output)
    }
}

/// Splits the output into the text before its last line and the exit status in that line.
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
