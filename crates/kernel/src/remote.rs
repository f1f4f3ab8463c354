//! Reads a remote host over the system's `ssh`. Nothing is installed on the host: a shell reads commands from its
//! standard input and ends when that is closed.

mod session;
mod source;
pub mod ss;

use std::{
    fmt, io,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use session::LastWords;
use session::Session;
pub(crate) use source::Shell;

use crate::{leftovers::Leftover, source::OwnConnection, ssh::Login};

/// Maximum wait for a host's first answer, which includes the connection and the login, possibly through jump hosts.
const LOGIN_WAIT: Duration = Duration::from_secs(20);
/// Maximum wait for any other answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The address of a remote host, in the form `[NAME=][USER@]HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Name of the host; by default the whole given text.
    pub name: String,
    given: String,
    login: Login,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

impl Destination {
    /// What `ssh` logs in to.
    pub fn login(&self) -> &Login {
        &self.login
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, place) = text.split_once('=').unwrap_or((text, text));
        let (user, host) = place.rsplit_once('@').map_or((None, place), |(user, host)| (Some(user), host));
        // Only an IPv6 address has several colons: [::1]:22, or ::1 with the default port.
        let (host, port) = match (host.strip_prefix('['), host.rsplit_once(':')) {
            (Some(host), _) => host.split_once(']').unwrap_or((host, "no end")),
            (None, Some((before, port))) if !before.contains(':') => (before, port),
            _ => (host, ""),
        };
        let port = match port.trim_start_matches(':') {
            "" => Ok(None),
            port => port.parse().map(Some),
        };
        let is_word = |word: &str| {
            !word.is_empty()
                && !word.starts_with('-')
                && !word.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        let login = port.ok().and_then(|port| Login::new(user, host, port).ok());
        match login.filter(|_| is_word(name) && user.is_none_or(is_word)) {
            Some(login) => Ok(Self { name: name.to_owned(), given: text.to_owned(), login }),
            None => Err(format!(
                "'{text}' is not a host to log in to; write [NAME=]USER@HOST[:PORT], such as admin@web1"
            )),
        }
    }
}

/// A remote host to which this program is logged in.
#[derive(Debug)]
pub struct Remote {
    destination: Destination,
    session: Mutex<Option<Session>>,
    own: Mutex<Option<OwnConnection>>,
}

impl Remote {
    /// Logs in.
    ///
    /// # Errors
    /// A message with the reason and with advice for the user.
    pub fn connect(destination: Destination) -> Result<Self, String> {
        let session = Session::open(&destination, LOGIN_WAIT).map_err(|why| {
            format!(
                "cannot observe {}: {why}; `ssh {} true` must work without a password",
                destination.name, destination.login
            )
        })?;
        let looking = Mutex::new(Some(session.own));
        Ok(Self { destination, session: Mutex::new(Some(session)), own: looking })
    }

    /// The name of the host.
    pub fn name(&self) -> &str {
        &self.destination.name
    }

    /// The `ssh` with which this program observes the host.
    pub(crate) fn own(&self) -> Option<OwnConnection> {
        *lock(&self.own)
    }

    /// Counts the leftovers of ended connections on the host. Leaves out the ports that they keep, because listing
    /// these would load the host.
    ///
    /// # Errors
    /// If the host does not answer or does not report them.
    pub fn leftovers(&self) -> io::Result<Vec<Leftover>> {
        self.with_shell(|mut shell| shell.leftovers())
    }

    /// Calls `work` with the host's shell. If the connection was lost, logs in again once.
    ///
    /// # Errors
    /// If the host does not answer. Also the errors of `work`, after which the host counts as lost.
    pub(crate) fn with_shell<T>(&self, work: impl FnOnce(Shell<'_>) -> io::Result<T>) -> io::Result<T> {
        let mut place = lock(&self.session);
        let mut session = match place.take() {
            Some(session) => session,
            None => Session::open(&self.destination, ANSWER_WAIT).map_err(io::Error::other)?,
        };
        *lock(&self.own) = Some(session.own);
        let done = work(Shell::new(&mut session))?;
        *place = Some(session);
        Ok(done)
    }
}

/// Locks a mutex. Poisoning is ignored: a thread that panics leaves no incomplete change behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_those_of_ssh() {
        let read = |text: &str| text.parse::<Destination>().map(|to| (to.name.clone(), to.login.to_string()));
        for (text, name, words) in [
            ("admin@web1", "admin@web1", "admin@web1"),
            ("web=admin@web1:2222", "web", "-p 2222 admin@web1"),
            ("alias", "alias", "alias"),
            ("a@[::1]:22", "a@[::1]:22", "-p 22 a@::1"),
            ("a@::1", "a@::1", "a@::1"),
            ("a@b@web1", "a@b@web1", "a@b@web1"),
        ] {
            assert_eq!(read(text), Ok((name.to_owned(), words.to_owned())));
        }
        for text in [
            "",
            "@web1",
            "a@",
            "a@web1:x",
            "a@web1:70000",
            "-oProxyCommand=x",
            "n=-x",
            "=a@b",
            "a b",
            "a@[::1",
            "a@`id`",
            "n=a'b@web1",
            "x=$(id)",
        ] {
            assert!(read(text).is_err_and(|why| why.contains("USER@HOST")), "{text}");
        }
    }
}
