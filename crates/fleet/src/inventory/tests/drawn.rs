//! Inventories that proptest draws.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{of_ini, of_yaml};

/// A drawn inventory: for each group its variables and the groups within it; for each machine its variables and groups.
type Drawn = (Vec<(Vec<usize>, Vec<usize>)>, Vec<(Vec<usize>, Vec<usize>)>);

/// Variables, in a form that needs no quotes in YAML.
const SETTINGS: [(&str, &str); 13] = [
    ("ansible_user", "me"),
    ("ansible_user", "you"),
    ("ansible_ssh_user", "other"),
    ("ansible_port", "22"),
    ("ansible_ssh_port", "2222"),
    ("ansible_host", "10.0.0.1"),
    ("ansible_become", "yes"),
    ("ansible_become", "False"),
    ("ansible_become_user", "db"),
    ("ansible_ssh_common_args", "-o ProxyJump=gw -v"),
    ("ansible_connection", "local"),
    ("ansible_group_priority", "5"),
    ("other", "a b"),
];

fn settings_of(drawn: &[usize]) -> BTreeMap<&'static str, &'static str> {
    drawn.iter().map(|at| SETTINGS[*at]).collect()
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let entity = || (prop::collection::vec(0..SETTINGS.len(), 0..4), prop::collection::vec(0_usize..5, 0..3));
    (prop::collection::vec(entity(), 5), prop::collection::vec(entity(), 1..6))
}

fn as_ini((groups, machines): &Drawn) -> String {
    let mut text = String::new();
    for (at, (variables, _)) in machines.iter().enumerate() {
        text += &format!("h{at}");
        for (name, value) in settings_of(variables) {
            text += &format!(" {name}=\"{value}\"");
        }
        text += "\n";
    }
    for (group, (variables, within)) in groups.iter().enumerate() {
        text += &format!("[g{group}]\n");
        for (at, _) in machines.iter().enumerate().filter(|(_, (_, groups))| groups.contains(&group)) {
            text += &format!("h{at}\n");
        }
        text += &format!("[g{group}:children]\n");
        for child in within.iter().filter(|child| **child > group) {
            text += &format!("g{child}\n");
        }
        text += &format!("[g{group}:vars]\n");
        for (name, value) in settings_of(variables) {
            text += &format!("{name} = {value}\n");
        }
    }
    text
}

fn as_yaml((groups, machines): &Drawn) -> String {
    let mut text = "all:\n  hosts:\n".to_owned();
    for (at, (variables, _)) in machines.iter().enumerate() {
        text += &format!("    h{at}:\n");
        for (name, value) in settings_of(variables) {
            text += &format!("      {name}: {value}\n");
        }
    }
    for (group, (variables, within)) in groups.iter().enumerate() {
        text += &format!("g{group}:\n  hosts:\n");
        for (at, _) in machines.iter().enumerate().filter(|(_, (_, groups))| groups.contains(&group)) {
            text += &format!("    h{at}:\n");
        }
        text += "  children:\n";
        // A key may stand in a mapping only once.
        for child in within.iter().filter(|child| **child > group).collect::<BTreeSet<_>>() {
            text += &format!("    g{child}:\n");
        }
        text += "  vars:\n";
        for (name, value) in settings_of(variables) {
            text += &format!("    {name}: {value}\n");
        }
    }
    text
}

/// Lines that many inventories consist of, some with mistakes.
fn lines() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "[a]",
        "[a:children]",
        "[b:vars]",
        "[all:vars]",
        "[x:y]",
        "a",
        "b",
        "all",
        "a[1:3]:22",
        "w ansible_user='x y' ansible_port=1",
        "ansible_become=yes",
        "ansible_host={{ x }}",
        "all:",
        "  hosts:",
        "  children: &c",
        "    a: *c",
        "    w: {<<: *c}",
        "  vars: {ansible_port: 1}",
        "    - x",
        "---",
    ]);
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn an_inventory_is_the_same_in_both_formats(drawn in drawn()) {
        let (ini, yaml) = (as_ini(&drawn), as_yaml(&drawn));
        let machines = of_ini(&ini).unwrap();
        prop_assert_eq!(machines.len(), drawn.1.len());
        prop_assert_eq!(machines, of_yaml(&yaml).unwrap(), "{}\n{}", ini, yaml);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,80}", lines in lines()) {
        for text in [text, lines] {
            for read in [of_ini, of_yaml] {
                if let Err(mistakes) = read(&text) {
                    prop_assert!(mistakes.iter().all(|why| why.starts_with("f:")), "{:?}", mistakes);
                }
            }
        }
    }
}
