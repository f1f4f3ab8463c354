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
/// What is said last, for those who did not say otherwise.
const LATE_OPTIONS: [&str; 3] = ["ServerAliveInterval=15", "ServerAliveCountMax=3", "ConnectTimeout=30"];

/// How a machine is reached.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    host: Host,
    /// Options for `ssh`, as the user gave them.
    options: Vec<OsString>,
}

impl Login {
    pub(crate) fn new(host: Host, options: Vec<OsString>) -> Self {
        Self { host, options }
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
        let quiet = if is_quiet { &["BatchMode=yes"][..] } else { &[] };
        self.command(control, "ControlMaster=yes", quiet, &["-s"], "sftp")
    }

    /// Another SFTP channel of the connection at `control`.
    pub(crate) fn channel(&self, control: &Path) -> Command {
        self.command(control, "ControlMaster=no", &NO_OTHER_WAY, &["-s"], "sftp")
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
        for option in LATE_OPTIONS {
            command.args(["-o", option]);
        }
        if let Some(port) = self.host.port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(flags).args(["--", &self.host.login, remote]);
        // It ends with its standard input. Killed in the middle of a login, it would leave what the user's own start files had begun.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// `ssh` falls back to a login of its own where a connection refuses another channel. This one cannot.
const NO_OTHER_WAY: [&str; 3] = ["BatchMode=yes", "ProxyJump=none", "ProxyCommand=false"];
