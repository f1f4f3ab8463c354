//! Runs the system's `ssh`, which uses the user's configuration, keys, agent, known hosts and jump hosts.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    process::Stdio,
};

use kernel::ssh::{self, OWN_OPTIONS};
use tokio::process::Command;

use crate::shell::quoted;

/// Options that are set only if `ssh -G` shows that the user has not set them, because the command line takes
/// precedence over files.
const LATE_OPTIONS: [(&str, &str); 2] =
    [("serveraliveinterval 0", "ServerAliveInterval=15"), ("connecttimeout none", "ConnectTimeout=30")];

/// The login to a machine.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    to: ssh::Login,
    /// The user's options for `ssh`.
    options: Vec<OsString>,
    late_options: Vec<&'static str>,
    /// The jump hosts in the user's configuration and options.
    jumps: Option<String>,
}

impl Login {
    /// Creates a login without reading the user's configuration through `ssh`.
    pub(crate) fn of(to: ssh::Login, options: Vec<OsString>) -> Self {
        Self { to, options, late_options: Vec::new(), jumps: None }
    }

    /// Creates a login with the user's configuration as `ssh -G` prints it.
    pub(crate) async fn new(to: ssh::Login, options: Vec<OsString>) -> Self {
        let mut login = Self::of(to, options);
        let mut command = Command::from(login.to.shown_command(&login.options));
        let shown = command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).output().await;
        // If `ssh` fails here, its error appears again at the login.
        let shown = shown.map(|output| output.stdout).unwrap_or_default();
        let shown = String::from_utf8_lossy(&shown);
        login.late_options = late_options(&shown);
        login.jumps = shown.lines().find_map(|line| line.strip_prefix("proxyjump ")).map(str::to_owned);
        login
    }

    pub(crate) fn name(&self) -> &str {
        self.to.name()
    }

    /// The words that distinguish this login from others.
    pub(crate) fn words(&self) -> String {
        format!("{}\0{:?}\0{:?}", self.to.name(), self.to.port(), self.options)
    }

    /// A separate connection with an SFTP channel. Later channels use it through the socket `control`. With `is_quiet`,
    /// it never prompts.
    pub(crate) fn connection(&self, control: &Path, is_quiet: bool) -> Command {
        // The last message of `ssh` then shows whether it would have to prompt the user.
        let mut options = Vec::new();
        if is_quiet {
            options.extend(["BatchMode=yes", "LogLevel=ERROR"].map(OsString::from));
            options.extend(self.quiet_jump());
        }
        let mut command = self.command(control, "ControlMaster=yes", &options, "sftp");
        if is_quiet {
            ignore_interrupts(&mut command);
        }
        command
    }

    /// Another SFTP channel of the connection at `control`.
    pub(crate) fn channel(&self, control: &Path) -> Command {
        let mut command = self.command(control, "ControlMaster=no", &no_other_way(), "sftp");
        ignore_interrupts(&mut command);
        command
    }

    /// A shell over the connection at `control`.
    pub(crate) fn shell(&self, control: &Path) -> Command {
        let mut command = self.command(control, "ControlMaster=no", &no_other_way(), "exec sh");
        // Nothing reads the shell's standard error. If it were a closed pipe, SIGPIPE would kill the shell.
        command.stderr(Stdio::null());
        command
    }

    /// The connection over the last jump host, by an `ssh` that does not prompt. The `ssh` that ProxyJump starts does
    /// not inherit BatchMode, so each connection would ask for the same password.
    fn quiet_jump(&self) -> Option<OsString> {
        let jumps = self.jumps.as_ref()?;
        let (before, last) =
            jumps.rsplit_once(',').map_or((None, jumps.as_str()), |(before, last)| (Some(before), last));
        let config = self.options.iter().skip_while(|option| *option != "-F").nth(1);
        let mut words = b"ProxyCommand=ssh -o BatchMode=yes".to_vec();
        for option in OWN_OPTIONS {
            words.extend_from_slice(format!(" -o {option}").as_bytes());
        }
        for (flag, word) in [
            (" -F ", config.map(|config| config.as_bytes())),
            (" -J ", before.map(str::as_bytes)),
            (" -W '[%h]:%p' ", Some(format!("ssh://{last}").as_bytes())),
        ] {
            let Some(word) = word else { continue };
            words.extend_from_slice(flag.as_bytes());
            // In this option, ssh requires a literal '%' to be doubled.
            words.extend(quoted(word).iter().flat_map(|byte| vec![*byte; if *byte == b'%' { 2 } else { 1 }]));
        }
        Some(OsString::from_vec(words))
    }

    fn command(&self, control: &Path, master: &str, more: &[OsString], remote: &str) -> Command {
        let mut flags = vec![OsString::from("-S"), control.into()];
        flags.extend((remote == "sftp").then(|| "-s".into()));
        let own = [master, "ControlPersist=no"].map(OsString::from);
        let given = (&self.options[..], &self.late_options[..]);
        let mut command = Command::from(self.to.command(&flags, &[&own, more].concat(), given, remote));
        // `ssh` ends when its standard input is closed.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Makes `ssh` ignore Ctrl-C, which reaches all programs of a terminal: the connection is still needed to remove
/// partial files.
fn ignore_interrupts(command: &mut Command) {
    // SAFETY: between fork and exec, only signal(2) is called, which is safe there (signal-safety(7)).
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            Ok(())
        });
    }
}

/// The options that the user's configuration does not set, according to the output of `ssh -G`.
fn late_options(shown: &str) -> Vec<&'static str> {
    let says_else = |usual: &str| {
        let key = usual.split_inclusive(' ').next().unwrap_or(usual);
        shown.lines().any(|line| line.starts_with(key) && line != usual)
    };
    LATE_OPTIONS.iter().filter(|(usual, _)| !says_else(usual)).map(|(_, option)| *option).collect()
}

/// If a connection refuses another channel, `ssh` falls back to a separate login. These options prevent that.
fn no_other_way() -> [OsString; 3] {
    ["BatchMode=yes", "ProxyJump=none", "ProxyCommand=false"].map(OsString::from)
}

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

    #[test]
    fn a_jump_host_is_reached_by_an_ssh_that_asks_nobody() {
        let far = ssh::Login::new(None, "far", None).unwrap();
        let login = Login {
            jumps: Some("one,me@two:2222".to_owned()),
            ..Login::of(far, ["-F", "a'%b"].map(OsString::from).to_vec())
        };
        let words = login.quiet_jump().unwrap().into_string().unwrap();
        let end = r" -F 'a'\''%%b' -J 'one' -W '[%h]:%p' 'ssh://me@two:2222'";
        assert!(
            words.starts_with("ProxyCommand=ssh -o BatchMode=yes -o ") && words.ends_with(end),
            "{words}"
        );
        assert!(words.contains(" -o ForwardAgent=no ") && words.contains(" -o PermitLocalCommand=no "));
    }
}
