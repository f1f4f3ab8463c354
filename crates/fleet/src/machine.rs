//! A machine of a fleet, and the way to it.

use std::{ffi::OsString, net::IpAddr};

use kernel::{remote::Destination, ssh::Login};

use crate::pool::{Pool, SharedPool};

/// One machine of a fleet, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name in messages and results; unique in an inventory.
    pub name: String,
    /// The groups that it is in, directly or through another group, sorted; without `all`.
    pub groups: Vec<String>,
    /// Its address in studies (`proofload_address`); `None` means the one that ssh reaches.
    pub address: Option<IpAddr>,
    /// The way to it.
    pub way: Way,
    /// The user that the agent becomes by `sudo -n`; `None` means that it remains the login's user.
    pub become_user: Option<String>,
}

/// The way to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// It is this machine, which needs no ssh.
    Here,
    /// Its agent waits at a broker.
    Pool(SharedPool),
    /// The system's `ssh`.
    Ssh {
        /// The user, the host and the port.
        login: Login,
        /// Further arguments of `ssh`, in order.
        arguments: Vec<OsString>,
    },
}

impl Machine {
    /// All agents that wait in a pool.
    ///
    /// # Errors
    /// The reason for each agent that waits and cannot take part; or that none waits.
    pub fn waiting_in(pool: Pool) -> Result<Vec<Self>, Vec<String>> {
        let names = pool.waiting()?;
        let way = Way::Pool(pool.into());
        let machine =
            |name| Self { name, groups: Vec::new(), address: None, way: way.clone(), become_user: None };
        Ok(names.into_iter().map(machine).collect())
    }

    /// A machine in the form `[NAME=][USER@]HOST[:PORT]`, which is in no group. Its name is the host's unless one is given.
    ///
    /// # Errors
    /// If the text has another form. The error is a message for the user.
    pub fn from_destination(text: &str) -> Result<Self, String> {
        let destination: Destination = text.parse()?;
        let login = destination.login().clone();
        let name = match text.contains('=') {
            true => destination.name,
            false => login.name().rsplit('@').next().unwrap_or_default().to_owned(),
        };
        let way = Way::Ssh { login, arguments: Vec::new() };
        Ok(Self { name, groups: Vec::new(), address: None, way, become_user: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_written_as_a_login() {
        let machine = Machine::from_destination("far=me@web1:2222").unwrap();
        let login = Login::new(Some("me"), "web1", Some(2222)).unwrap();
        assert_eq!(
            machine,
            Machine {
                name: "far".to_owned(),
                groups: Vec::new(),
                address: None,
                way: Way::Ssh { login, arguments: Vec::new() },
                become_user: None,
            }
        );
        let name = |text| Machine::from_destination(text).unwrap().name;
        assert_eq!([name("web1"), name("me@web1:22"), name("me@[::1]:22")], ["web1", "web1", "::1"]);
        assert!(Machine::from_destination("a b").unwrap_err().contains("USER@HOST"));
    }
}
