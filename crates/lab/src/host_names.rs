//! Maps the names in a file to hosts. A name stands for one host or for a group of hosts.

use std::collections::BTreeMap;

use settings::{Reader, Value, suggestion, values_of};

use crate::plan::Plan;

/// The hosts that the values of keys may name.
#[derive(Debug, Clone, Copy)]
pub struct HostNames<'a> {
    /// The plan that contains the hosts.
    pub plan: &'a Plan,
    /// The hosts of each name.
    pub groups: &'a HostGroups,
}

/// The hosts of each name in a file: one host, or all hosts of a group.
#[derive(Debug, Default)]
pub struct HostGroups {
    pub(crate) members: BTreeMap<String, Vec<usize>>,
}

impl HostGroups {
    /// Reads a name and returns its hosts. An unknown name is a mistake and has no hosts.
    pub(crate) fn read_host(&self, reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<usize> {
        let Some(name) = reader.text_such_as(value, "the name of a host in quotes") else {
            return Vec::new();
        };
        self.members_of(name).unwrap_or_else(|| {
            reader.mistake(value.span(), self.unknown_host(name));
            Vec::new()
        })
    }

    /// Reads a name or a list of names and returns its hosts. A repeated host is a mistake.
    pub fn read_hosts(&self, reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<usize> {
        let mut hosts = Vec::new();
        for value in values_of(value) {
            for host in self.read_host(reader, value) {
                if hosts.contains(&host) {
                    reader.mistake(value.span(), "a host is named twice here");
                } else {
                    hosts.push(host);
                }
            }
        }
        hosts
    }

    /// The hosts of a name; none if the name is unknown.
    pub fn members_of(&self, name: &str) -> Option<Vec<usize>> {
        self.members.get(name).cloned()
    }

    pub(crate) fn unknown_host(&self, name: &str) -> String {
        let hint = suggestion(name, self.members.keys().map(String::as_str));
        format!("there is no host '{name}'{hint}")
    }
}
