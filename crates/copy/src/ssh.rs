//! The system's `ssh`, which brings the user's configuration, keys, agent, known hosts and jump hosts.

use std::{ffi::OsString, path::Path, process::Stdio};

use tokio::process::Command;

use crate::Host;

/// What the first connection is told, so that nothing of the user's configuration bends a copy: not a tunnel, not another
/// master, not a command of its own. What stands first is what counts.
const OWN_OPTIONS: [&str; 7] = [
    "ControlPersist=no",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "ForwardAgent=no",
    "ForwardX11=no",
];
/// What is said for those who did not say otherwise, behind what `ssh -G` shows of them: the command line stands before their files.
const LATE_OPTIONS: [(&str, &str); 2] =
    [("serveraliveinterval 0", "ServerAliveInterval=15"), ("connecttimeout none", "ConnectTimeout=30")];

/// How a machine is reached.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    host: Host,
    /// Options for `ssh`, as the user gave them.
    options: Vec<OsString>,
    late_options: Vec<&'static str>,
}

impl Login {
    /// A login that says nothing for the user.
    pub(crate) fn of(host: Host, options: Vec<OsString>) -> Self {
        Self { host, options, late_options: Vec::new() }
    }

    /// Asks `ssh` for what the user's configuration says.
    pub(crate) async fn new(host: Host, options: Vec<OsString>) -> Self {
        let mut login = Self::of(host, options);
        let mut command = Command::new("ssh");
        command.arg("-G").args(&login.options).args(["--", &login.host.login]);
        let shown = command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).output().await;
        // What hinders ssh from telling is seen when it logs in.
        let shown = shown.map(|output| output.stdout).unwrap_or_default();
        login.late_options = late_options(&String::from_utf8_lossy(&shown));
        login
    }

    pub(crate) fn name(&self) -> &str {
        &self.host.login
    }

    /// All that tells this login from another.
    pub(crate) fn words(&self) -> String {
        format!("{}\0{:?}\0{:?}", self.host.login, self.host.port, self.options)
    }

    /// A connection of its own with an SFTP channel. Later channels find it at `control`. Asks nobody anything if `is_quiet`.
    pub(crate) fn connection(&self, control: &Path, is_quiet: bool) -> Command {
        // What it says in the end tells whether somebody has to be asked.
        let quiet = if is_quiet { &["BatchMode=yes", "LogLevel=ERROR"][..] } else { &[] };
        let mut command = self.command(control, "ControlMaster=yes", quiet, &["-s"], "sftp");
        if is_quiet {
            leave_terminal(&mut command);
        }
        command
    }

    /// Another SFTP channel of the connection at `control`.
    pub(crate) fn channel(&self, control: &Path) -> Command {
        let mut command = self.command(control, "ControlMaster=no", &NO_OTHER_WAY, &["-s"], "sftp");
        leave_terminal(&mut command);
        command
    }

    /// A shell over the connection at `control`.
    pub(crate) fn shell(&self, control: &Path) -> Command {
        let mut command = self.command(control, "ControlMaster=no", &NO_OTHER_WAY, &[], "exec sh");
        // A shell whose complaints nobody takes would be killed by them.
        command.stderr(Stdio::null());
        command
    }

    fn command(&self, control: &Path, master: &str, own: &[&str], flags: &[&str], remote: &str) -> Command {
        let mut command = Command::new("ssh");
        command.args(["-T", "-x", "-a", "-S"]).arg(control);
        for option in [master].iter().chain(own).chain(&OWN_OPTIONS) {
            command.args(["-o", option]);
        }
        command.args(&self.options);
        for option in &self.late_options {
            command.args(["-o", option]);
        }
        if let Some(port) = self.host.port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(flags).args(["--", &self.host.login, remote]);
        // It ends with its standard input.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Has a program without the user's terminal. It outlives Ctrl-C, so that parts can be removed over it. And the `ssh` to a jump host,
/// which hears nothing of this one's BatchMode, cannot ask: several connections would ask at the same time.
fn leave_terminal(command: &mut Command) {
    command.env("SSH_ASKPASS_REQUIRE", "never");
    // SAFETY: between fork and exec, only setsid(2) is called, which is safe there (signal-safety(7)).
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
}

/// The options for which the user's configuration, as `ssh -G` shows it, says nothing else.
fn late_options(shown: &str) -> Vec<&'static str> {
    let says_else = |usual: &str| {
        let key = usual.split_inclusive(' ').next().unwrap_or(usual);
        shown.lines().any(|line| line.starts_with(key) && line != usual)
    };
    LATE_OPTIONS.iter().filter(|(usual, _)| !says_else(usual)).map(|(_, option)| *option).collect()
}

/// `ssh` falls back to a login of its own where a connection refuses another channel. This one cannot.
const NO_OTHER_WAY: [&str; 3] = ["BatchMode=yes", "ProxyJump=none", "ProxyCommand=false"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_configured_is_left_to_ssh() {
        let both = ["ServerAliveInterval=15", "ConnectTimeout=30"];
        assert_eq!(late_options("user me\nserveraliveinterval 0\nconnecttimeout none\n"), both);
        assert_eq!(late_options(""), both);
        assert_eq!(late_options("serveraliveinterval 240\nconnecttimeout none\n"), both[1..]);
        assert!(late_options("connecttimeout 120\nserveraliveinterval 240\n").is_empty());
    }
}
