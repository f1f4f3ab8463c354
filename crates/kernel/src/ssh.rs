//! The system's `ssh`: its destinations and all of its command lines.

use std::{
    ffi::OsString,
    fmt,
    net::{IpAddr, SocketAddr},
    process::Command,
};

/// Options of every `ssh`. They keep the user's configuration from adding anything to a login: no tunnels, no agent
/// that root on the host could use, no other command. They precede the user's options, because `ssh` uses the first
/// value of an option.
pub const OWN_OPTIONS: [&str; 6] = [
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "ForwardAgent=no",
    "ForwardX11=no",
];

/// The user and host that `ssh` logs in to. Commands in a user's configuration, such as `ProxyCommand`, may contain
/// them, so they must not have characters that are special to a shell. Names that OpenSSH refuses from 9.6 on are
/// refused with every version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Login {
    name: String,
    port: Option<u16>,
}

impl Login {
    /// Checks a user, if given, and a host or an alias from the user's configuration.
    ///
    /// # Errors
    /// If a name is empty or one that OpenSSH refuses. The error is a message for the user.
    pub fn new(user: Option<&str>, host: &str, port: Option<u16>) -> Result<Self, String> {
        let is_odd = |c: char| "'`\";&<>|(){}".contains(c) || c.is_control();
        let is_of_host = |c: char| !is_odd(c) && !"$\\".contains(c) && !c.is_whitespace();
        let is_of_user = |user: &str| {
            let has_option = user.split(char::is_whitespace).skip(1).any(|word| word.starts_with('-'));
            !user.contains(is_odd) && !has_option && !user.ends_with('\\')
        };
        let name = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
        if host.is_empty() || user == Some("") {
            return Err("the machine has no name".to_owned());
        }
        if name.starts_with('-') || host.starts_with('-') {
            return Err(format!("'{name}' begins with '-', which ssh would take for an option"));
        }
        if host.contains(|c| !is_of_host(c)) || user.is_some_and(|user| !is_of_user(user)) {
            return Err(format!("'{}' has characters that no host or user name has", name.escape_debug()));
        }
        Ok(Self { name, port })
    }

    /// `HOST` or `USER@HOST`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port; none if none was given.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// An `ssh` that logs in. `flags` are flags of the program, `options` are in the form of ssh_config, `given` are
    /// the user's arguments for `ssh`, and the user's arguments override the options `late`. Runs the command `remote`,
    /// or with the flag `-s` the subsystem of this name.
    pub fn command(
        &self,
        flags: &[OsString],
        options: &[OsString],
        (given, late): (&[OsString], &[&str]),
        remote: &str,
    ) -> Command {
        let mut command = Command::new("ssh");
        command.args(["-T", "-x", "-a"]).args(flags);
        let own = OWN_OPTIONS.iter().map(OsString::from);
        for option in options.iter().cloned().chain(own) {
            command.arg("-o").arg(option);
        }
        command.args(given);
        command.args(late.iter().flat_map(|option| ["-o", option]));
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(["--", &self.name, remote]);
        command
    }

    /// An `ssh` that does not log in but prints the settings that result from these options and the user's
    /// configuration.
    pub fn shown_command(&self, given: &[OsString]) -> Command {
        let mut command = Command::new("ssh");
        command.arg("-G").args(given).args(["--", &self.name]);
        command
    }
}

impl fmt::Display for Login {
    /// The arguments of `ssh` with which a user logs in.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(formatter, "-p {port} {}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

/// The two ends in `SSH_CONNECTION`: address and port of the client, then of the server.
pub fn ends(connection: &str) -> Option<(SocketAddr, SocketAddr)> {
    let words: Vec<&str> = connection.split_whitespace().collect();
    let end = |at: usize| -> Option<SocketAddr> {
        let address: IpAddr = words.get(at)?.split('%').next()?.parse().ok()?;
        Some(SocketAddr::new(address, words.get(at + 1)?.parse().ok()?))
    };
    Some((end(0)?, end(2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_own_connection_are_those_that_sshd_tells() {
        let connection = ends("10.0.0.1 4711 fe80::1%eth0 22").unwrap();
        assert_eq!(connection, ("10.0.0.1:4711".parse().unwrap(), "[fe80::1]:22".parse().unwrap()));
        assert_eq!(ends(""), None);
    }

    #[test]
    fn names_are_those_that_openssh_takes() {
        for (user, host) in [
            (None, "web1"),
            (Some("me"), "::1"),
            (Some("DOMAIN\\me"), "web-1.example.org"),
            (Some("me@home"), "web1"),
            (Some("$me"), "web1%eth0"),
            (Some("a b"), "\u{f6}"),
        ] {
            let login = Login::new(user, host, None).unwrap();
            assert_eq!(login.name(), user.map_or(host.to_owned(), |user| format!("{user}@{host}")));
        }
        let odd = ["'", "`", "\"", ";", "&", "<", ">", "|", "(", ")", "{", "}", "\n", "\u{1b}"];
        for sign in odd {
            assert!(Login::new(None, &format!("a{sign}b"), None).is_err(), "{sign:?}");
            assert!(Login::new(Some(&format!("a{sign}b")), "web1", None).is_err(), "{sign:?}");
        }
        for host in ["", "-oProxyCommand=x", "$(id)", "a$b", "a\\b", "a b", "a\tb"] {
            assert!(Login::new(None, host, None).is_err(), "{host:?}");
        }
        for user in ["", "-x", "a -oProxyCommand=x", "a\\"] {
            assert!(Login::new(Some(user), "web1", None).is_err(), "{user:?}");
        }
        assert!(Login::new(Some("me"), "-x", None).is_err());
    }

    #[test]
    fn no_login_takes_more_along_than_it_needs() {
        let login = Login::new(Some("me"), "far", Some(2222)).unwrap();
        let [flags, given] = [["-s"], ["-vForwardAgent=yes"]].map(|words| words.map(OsString::from));
        let command =
            login.command(&flags, &["BatchMode=yes".into()], (&given, &["ConnectTimeout=30"]), "sftp");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let words = words.join(" ");
        let at = |part: &str| words.find(part).unwrap_or_else(|| panic!("{part} is not in {words}"));
        for option in ["ForwardAgent=no", "PermitLocalCommand=no", "RemoteCommand=none", "RequestTTY=no"] {
            assert!(at(option) < at("-vForwardAgent=yes"), "{words}");
        }
        assert!(at("-vForwardAgent=yes") < at("ConnectTimeout=30"), "{words}");
        assert!(words.starts_with("-T -x -a -s ") && words.ends_with("-p 2222 -- me@far sftp"), "{words}");
    }
}
