//! How to log in to a machine, and which user the agent becomes there, from the variables of an inventory.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv6Addr},
};

use kernel::ssh::Login;

use super::{
    tree::Merged,
    values::Value,
    variables::{
        ADDRESS, BECOME, BECOME_METHOD, BECOME_USER, COMMON_ARGUMENTS, CONNECTION, EXTRA_ARGUMENTS, KEY_FILE,
        Names, OF_SSH, OF_SUDO, PORT, Refused, STUDY_ADDRESS, USER,
    },
    words,
};
use crate::machine::{Machine, Way};

const TEMPLATE: &str =
    "it is a template, which only playbooks fill in (`ansible-inventory` does not); write the value itself";

/// What is wrong with a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fault {
    /// The line; 0 if unknown.
    pub(super) line: usize,
    /// The variable; none for the name of the machine.
    variable: Option<&'static str>,
    what: String,
}

impl Fault {
    /// The fault in words, of `count` machines, one of which is `machine`.
    pub(super) fn of(&self, machine: &str, count: usize) -> String {
        let Self { variable, what, .. } = self;
        let variable = variable.map(|variable| format!("{variable} of ")).unwrap_or_default();
        let more = match count {
            0 | 1 => String::new(),
            2 => " and another machine".to_owned(),
            _ => format!(" and {} other machines", count - 1),
        };
        format!("{variable}{machine}{more}: {what}")
    }
}

/// A machine of an inventory.
///
/// # Errors
/// All faults of its variables.
pub(super) fn machine(of: &Merged<'_>) -> Result<Machine, Vec<Fault>> {
    let mut reader = Reader { of, faults: Vec::new() };
    let way = reader.way();
    let become_user = reader.become_user();
    let address = reader.study_address();
    match way {
        Some(way) if reader.faults.is_empty() => {
            let groups = of.groups.iter().map(|group| (*group).to_owned()).collect();
            Ok(Machine { name: of.name.to_owned(), groups, address, way, become_user })
        }
        _ => Err(reader.faults),
    }
}

/// The variables of a machine, and the faults found in them.
struct Reader<'m> {
    of: &'m Merged<'m>,
    faults: Vec<Fault>,
}

/// A variable that is set.
#[derive(Debug, Clone, Copy)]
struct Given<'m> {
    variable: &'static str,
    line: usize,
    text: &'m str,
}

impl<'m> Reader<'m> {
    fn way(&mut self) -> Option<Way> {
        if let Some(given) = self.given(CONNECTION) {
            match given.text.strip_prefix("ansible.builtin.").unwrap_or(given.text) {
                "local" => return Some(Way::Here),
                "ssh" | "smart" => {}
                other => {
                    let what = format!("proofload has no connection '{other}'; write ssh or local");
                    return self.fault(given, what);
                }
            }
        }
        self.refuse(OF_SSH);
        let login = self.login();
        let mut arguments: Vec<OsString> = Vec::new();
        if let Some(file) = self.given(KEY_FILE).filter(Given::has_text) {
            arguments.extend(["-i", file.text].map(OsString::from));
        }
        for names in [COMMON_ARGUMENTS, EXTRA_ARGUMENTS] {
            let Some(given) = self.given(names) else { continue };
            match words::split(given.text, false) {
                Ok(words) => {
                    let words = words.into_iter().filter(|word| !word.trim().is_empty());
                    arguments.extend(words.map(OsString::from));
                }
                Err(why) => {
                    let _: Option<()> = self.fault(given, format!("{why}; write it as for a shell"));
                }
            }
        }
        Some(Way::Ssh { login: login?, arguments })
    }

    fn study_address(&mut self) -> Option<IpAddr> {
        let given = self.given(STUDY_ADDRESS).filter(Given::has_text)?;
        match given.text.parse() {
            Ok(address) => Some(address),
            Err(_) => self.fault(given, format!("'{}' is not an address such as 10.0.0.3", given.text)),
        }
    }

    fn login(&mut self) -> Option<Login> {
        let address = self.given(ADDRESS);
        let user = self.given(USER).filter(Given::has_text).map(|user| user.text);
        let port = self.port();
        let host = address.map_or(self.of.name, |address| address.text);
        let is_ipv6 = host.split('%').next().is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
        let login = if host.contains(':') && !is_ipv6 {
            Err(format!(
                "'{host}' is not an address; write the port into ansible_port, and IPv6 without brackets"
            ))
        } else {
            Login::new(user, host, port)
        };
        let at = address.map_or((self.of.line, None), |address| (address.line, Some(address.variable)));
        login.map_err(|what| self.faults.push(Fault { line: at.0, variable: at.1, what })).ok()
    }

    fn port(&mut self) -> Option<u16> {
        let given = self.given(PORT)?;
        match given.text.trim().parse() {
            Ok(port) if port > 0 => Some(port),
            _ => self.fault(given, format!("'{}' is not a port; write a number from 1 to 65535", given.text)),
        }
    }

    fn become_user(&mut self) -> Option<String> {
        let given = self.given(BECOME)?;
        match given.text.trim().to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "on" | "1" => {}
            "false" | "f" | "no" | "n" | "off" | "0" => return None,
            _ => return self.fault(given, format!("'{}' is neither true nor false; write one", given.text)),
        }
        if let Some(method) = self.given(BECOME_METHOD)
            && !["sudo", "ansible.builtin.sudo"].contains(&method.text)
        {
            return self.fault(method, format!("the agent cannot use '{}'; write sudo", method.text));
        }
        self.refuse(OF_SUDO);
        let Some(user) = self.given(BECOME_USER).filter(Given::has_text) else {
            return Some("root".to_owned());
        };
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        if user.text.starts_with('-') || user.text.contains(is_odd) {
            return self.fault(user, format!("'{}' is not a valid user name", user.text.escape_debug()));
        }
        Some(user.text.to_owned())
    }

    /// The one of these variables that Ansible obeys, if one is set.
    fn given(&mut self, names: Names) -> Option<Given<'m>> {
        let of = self.of;
        let (variable, setting) = names.iter().rev().find_map(|variable| {
            let setting = of.variables.get(*variable).filter(|setting| setting.value != Value::Null)?;
            Some((*variable, *setting))
        })?;
        let given = |text| Given { variable, line: setting.line, text };
        match &setting.value {
            Value::Text(text) if text.contains("{{") || text.contains("{%") => {
                self.fault(given(text), TEMPLATE.to_owned())
            }
            Value::Text(text) => Some(given(text)),
            Value::Other(why) => self.fault(given(""), (*why).to_owned()),
            Value::Null => None,
        }
    }

    /// Refuses variables that ask for something other than what happens.
    fn refuse(&mut self, refused: &[Refused]) {
        for Refused { names, harmless, instead } in refused {
            for variable in names.iter().copied() {
                let Some(setting) = self.of.variables.get(variable) else { continue };
                let is_harmless = match &setting.value {
                    Value::Null => true,
                    Value::Text(text) => {
                        text.is_empty() || harmless.contains(&text.to_ascii_lowercase().as_str())
                    }
                    Value::Other(_) => false,
                };
                if !is_harmless {
                    let (line, what) = (setting.line, (*instead).to_owned());
                    self.faults.push(Fault { line, variable: Some(variable), what });
                }
            }
        }
    }

    /// Adds a fault and returns `None` in place of what was read.
    fn fault<T>(&mut self, given: Given<'_>, what: String) -> Option<T> {
        self.faults.push(Fault { line: given.line, variable: Some(given.variable), what });
        None
    }
}

impl Given<'_> {
    /// Ansible treats these variables as unset if they are empty.
    fn has_text(&self) -> bool {
        !self.text.is_empty()
    }
}
