mod drawn;
mod files;

use std::process::Command;

use super::*;
use crate::machine::Way;

/// A program in a folder that runs a shell script. A shell writes it: a file that this process has open for writing
/// cannot be run meanwhile, and another thread may pass it to a process of its own.
pub(super) fn program(folder: &Path, script: &str) -> String {
    let path = folder.join("asked");
    let mut write = Command::new("sh");
    write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 700 \"$1\"", "sh"]);
    assert!(write.arg(&path).arg(script).status().unwrap().success());
    path.to_str().unwrap().to_owned()
}

/// A machine in one line: name, groups, arguments of ssh, the user that the agent becomes.
fn shown(machine: &Machine) -> String {
    let way = match &machine.way {
        Way::Here => "here".to_owned(),
        Way::Pool(pool) => pool.to_string(),
        Way::Ssh { login, arguments } => {
            let words = arguments.iter().map(|word| word.to_string_lossy().into_owned());
            words.chain([login.to_string()]).collect::<Vec<_>>().join(" ")
        }
    };
    let becomes = machine.become_user.as_ref().map(|user| format!(" as {user}")).unwrap_or_default();
    format!("{} ({}) {way}{becomes}", machine.name, machine.groups.join(" "))
}

fn of(tree: Result<Tree, Vec<Mistake>>) -> Result<Vec<Machine>, Vec<String>> {
    let tree = tree.map_err(|mistakes| told("f", mistakes))?;
    machines("f", &merged("f", &tree)?)
}

fn of_ini(text: &str) -> Result<Vec<Machine>, Vec<String>> {
    of(ini::read(text))
}

fn of_yaml(text: &str) -> Result<Vec<Machine>, Vec<String>> {
    of(document::read(text).and_then(|document| yaml::read(document.as_deref())))
}

/// Checks a truth table: inventories and their machines.
fn check(read: fn(&str) -> Result<Vec<Machine>, Vec<String>>, table: &[(&str, &[&str])]) {
    for (text, right) in table {
        let machines: Vec<String> = read(text).unwrap().iter().map(shown).collect();
        assert_eq!(machines, *right, "{text}");
    }
}

/// Checks refusals: how the first message begins.
fn check_refused(read: fn(&str) -> Result<Vec<Machine>, Vec<String>>, table: &[(&str, &str)]) {
    for (text, words) in table {
        let why = read(text).unwrap_err();
        assert!(why[0].starts_with(words), "{text}\n{why:?}");
    }
}

/// Machines and groups of "How to build your inventory" and of the plugin `ini` in Ansible's documentation.
#[test]
fn ini_files_name_machines_and_groups() {
    check(
        of_ini,
        &[
            (
                "mail.example.com\n\n[webservers]\nfoo.example.com\n\n[dbservers]\none.example.com\nfoo.example.com\n",
                &[
                    "mail.example.com (ungrouped) mail.example.com",
                    "foo.example.com (dbservers webservers) foo.example.com",
                    "one.example.com (dbservers) one.example.com",
                ],
            ),
            (
                "# all\n; of them\n[web]  # ours\nweb[01:03:2]:2222 # two\n\n[db]\ndb-[a:b].x\n",
                &[
                    "web01 (web) -p 2222 web01",
                    "web03 (web) -p 2222 web03",
                    "db-a.x (db) db-a.x",
                    "db-b.x (db) db-b.x",
                ],
            ),
            // Groups of groups, in any order, and a machine that several of them contain.
            (
                "[usa:children]\neast\nwest # both\n[east]\na\n[west]\na\nb\n[west:children]\nfar\n[far]\nc\n",
                &["a (east usa west) a", "b (usa west) b", "c (far usa west) c"],
            ),
            // A machine in another group is not in `ungrouped`, and does not get its variables.
            (
                "a\nb\n[web]\nb\n[all]\nc\n[ungrouped:vars]\nansible_user=u\n",
                &["a (ungrouped) u@a", "b (web) b", "c (ungrouped) u@c"],
            ),
            // A port counts where the machine is named first.
            ("a:1\nb\n[web]\na:2\nb:2\n[::1]:3\n", &["a (web) -p 1 a", "b (web) b", "::1 (web) -p 3 ::1"]),
            ("[web]\nme@web1:22\n", &["me@web1 (web) -p 22 me@web1"]),
        ],
    );
}

/// From "How variables are merged" in Ansible's documentation: all, parent, child, machine; then priority; then the name.
#[test]
fn the_most_specific_variable_prevails() {
    check(
        of_ini,
        &[
            (
                "[web]\nhost1\nhost2 ansible_port=222 # inline\n[web:vars]\nansible_user=web\n[web:children]\napache\nnginx\n\
                 [apache]\ntomcat1\ntomcat2 ansible_user=own\n[nginx]\njenkins1\n[nginx:vars]\nansible_user = inner\n\
                 [all:vars]\nansible_user = outer\nansible_port = 22 # decimal\n",
                &[
                    "host1 (web) -p 22 web@host1",
                    "host2 (web) -p 222 web@host2",
                    "tomcat1 (apache web) -p 22 web@tomcat1",
                    "tomcat2 (apache web) -p 22 own@tomcat2",
                    "jenkins1 (nginx web) -p 22 inner@jenkins1",
                ],
            ),
            ("[b]\nw\n[a]\nw\n[a:vars]\nansible_user=a\n[b:vars]\nansible_user=b\n", &["w (a b) b@w"]),
            (
                "[b]\nw\n[a]\nw\n[a:vars]\nansible_user=a\nansible_group_priority=10\n[b:vars]\nansible_user=b\n",
                &["w (a b) a@w"],
            ),
            // Depth goes before priority, and the longest way to a group counts.
            (
                "[z:children]\na\n[a]\nw\n[z:vars]\nansible_user=z\nansible_group_priority=10\n[a:vars]\nansible_user=a\n",
                &["w (a z) a@w"],
            ),
            (
                "[z]\nw\n[a]\nw\n[y:children]\na\n[z:vars]\nansible_user=z\n[a:vars]\nansible_user=a\n",
                &["w (a y z) a@w"],
            ),
            // The later name of one setting prevails, also over that of the machine.
            ("w ansible_user=u\n[all:vars]\nansible_ssh_user=v\n", &["w (ungrouped) v@w"]),
            (
                "w ansible_ssh_host=b ansible_host=a ansible_ssh_port=2 ansible_port=1\n",
                &["w (ungrouped) -p 2 b"],
            ),
            // None makes a variable unset.
            ("w ansible_user=None\n[all:vars]\nansible_user=u\n", &["w (ungrouped) w"]),
            // Later lines prevail.
            ("w ansible_user=u\n[web]\nw ansible_user=v\n", &["w (web) v@w"]),
            // Ansible gives variables of a machine to the group of the same name.
            ("[web]\nweb ansible_user=u\nother\n", &["web (web) u@web", "other (web) u@other"]),
        ],
    );
}

#[test]
fn connections_are_those_of_ansible() {
    const JUMP: &str = "-o ProxyCommand=ssh -W %h:%p gw";
    check(
        of_ini,
        &[
            (
                "w ansible_ssh_common_args='-o ProxyCommand=\"ssh -W %h:%p gw\"' ansible_ssh_extra_args=-v\n",
                &[&format!("w (ungrouped) {JUMP} -v w")],
            ),
            (
                "w\n[all:vars]\nansible_ssh_common_args='-o ProxyCommand=\"ssh -W %h:%p gw\"'\n",
                &[&format!("w (ungrouped) {JUMP} w")],
            ),
            (
                "w\n[all:vars]\nansible_ssh_common_args=-o ProxyCommand=\"ssh -W %h:%p gw\"\n",
                &[&format!("w (ungrouped) {JUMP} w")],
            ),
            (
                "w ansible_ssh_private_key_file=\"~/my key\" ansible_user=\"'007'\"\n",
                &["w (ungrouped) -i ~/my key 007@w"],
            ),
            ("w ansible_host=fe80::1%eth0 ansible_connection=smart\n", &["w (ungrouped) fe80::1%eth0"]),
            ("w ansible_connection=ansible.builtin.ssh ansible_user=\"\"\n", &["w (ungrouped) w"]),
            (
                "localhost ansible_connection=local ansible_password=x ansible_host=y\n",
                &["localhost (ungrouped) here"],
            ),
            ("w ansible_become=yes\n", &["w (ungrouped) w as root"]),
            (
                "w ansible_become=True ansible_become_user=db ansible_become_method=sudo\n",
                &["w (ungrouped) w as db"],
            ),
            ("w ansible_become=1 ansible_become_flags='-H -S -n'\n", &["w (ungrouped) w as root"]),
            // Without `ansible_become`, only plays become another user.
            ("w ansible_become_user=db ansible_become_password=x\n", &["w (ungrouped) w"]),
            ("w ansible_become=no ansible_become_method=su\n", &["w (ungrouped) w"]),
            // What changes nothing here.
            (
                "w ansible_python_interpreter=/usr/bin/python3 ansible_pipelining=true ansible_ssh_timeout=3 x={{y}}\n",
                &["w (ungrouped) w"],
            ),
            ("w ansible_ssh_executable=/usr/bin/ssh ansible_host_key_checking=True\n", &["w (ungrouped) w"]),
        ],
    );
}

#[test]
fn what_cannot_be_obeyed_is_refused() {
    check_refused(
        of_ini,
        &[
            ("w ansible_password=x\n", "f:1: ansible_password of w: proofload gives ssh no password;"),
            (
                "[g]\na\nb\nc\n[g:vars]\nansible_ssh_pass={{ secret }}\n",
                "f:6: ansible_ssh_pass of a and 2 other machines: ",
            ),
            (
                "w ansible_connection=docker\n",
                "f:1: ansible_connection of w: proofload has no connection 'docker'; ",
            ),
            ("w ansible_ssh_executable=/opt/ssh\n", "f:1: ansible_ssh_executable of w: "),
            ("w ansible_ssh_args=-4\n", "f:1: ansible_ssh_args of w: "),
            ("w ansible_host_key_checking=false\n", "f:1: ansible_host_key_checking of w: log in once"),
            ("w ansible_shell_type=powershell\n", "f:1: ansible_shell_type of w: "),
            ("w ansible_become=1 ansible_become_pass=x\n", "f:1: ansible_become_pass of w: `sudo -n` asks"),
            (
                "w ansible_become=1 ansible_become_method=su\n",
                "f:1: ansible_become_method of w: the agent cannot use 'su'",
            ),
            ("w ansible_become=1 ansible_become_flags=-i\n", "f:1: ansible_become_flags of w: "),
            ("w ansible_become=maybe\n", "f:1: ansible_become of w: 'maybe' is neither true nor false"),
            (
                "w ansible_become=1 ansible_become_user=-x\n",
                "f:1: ansible_become_user of w: '-x' is not a valid user name",
            ),
            ("w\nx ansible_port=70000\n", "f:2: ansible_port of x: '70000' is not a port"),
            ("w ansible_port=0x16\n", "f:1: ansible_port of w: Ansible reads it as a number"),
            ("w ansible_host='{{ ip }}'\n", "f:1: ansible_host of w: it is a template"),
            ("w ansible_host=a:22\n", "f:1: ansible_host of w: 'a:22' is not an address"),
            ("w ansible_host=[::1]\n", "f:1: ansible_host of w: it is a list"),
            ("w ansible_user=-x\n", "f:1: w: '-x@w' begins with '-'"),
            ("w ansible_ssh_common_args=\"'\"\n", "f:1: ansible_ssh_common_args of w: a quote is not closed"),
            ("a\\;b\n", "f:1: a;b: 'a;b' has characters"),
        ],
    );
}

#[test]
fn mistakes_of_ini_files_are_told_with_their_lines() {
    check_refused(
        of_ini,
        &[
            ("w[1:3\n", "f:1: '[' has no ']'"),
            ("[w\n", "f:1: '[' has no ']'"),
            ("[a b]\n", "f:1: this is not a heading;"),
            ("[a:child]\n", "f:1: '[a:child]' is not a heading; did you mean 'children'?"),
            ("w\n[a:children]\nb\n", "f:3: the group 'b' is declared nowhere"),
            ("w\n[a:vars]\nx=1\n", "f:2: the group 'a' is declared nowhere"),
            ("[a:children]\nb c\n", "f:2: expected the name of one group"),
            ("w\n[all:vars]\nx\n", "f:3: expected NAME=VALUE"),
            ("w ansible_password=my secret\n", "f:1: word 3 of this line is not NAME=VALUE"),
            ("w x='\n", "f:1: a quote is not closed"),
            ("all:\n", "f:1: 'all:' ends in ':', as in YAML"),
            ("---\n", "f:1: '---' begins a YAML file"),
            ("[a:children]\nb\n[b:children]\na\n", "f:4: the group 'a', which is in 'b', contains it"),
            ("[a]\nw\n[a:vars]\nansible_group_priority=x\n", "f:4: ansible_group_priority is 'x'"),
            ("", "f: it names no machine"),
            ("[a]\n", "f: it names no machine"),
        ],
    );
    let all = of_ini("a x\n[b c]\nd e\n[f:vars]\ng\n").unwrap_err();
    let lines: Vec<&str> = all.iter().map(|why| &why[..4]).collect();
    assert_eq!(lines, ["f:1:", "f:2:", "f:4:", "f:5:"]);
    let many = of_ini(&"a x\n".repeat(1_000)).unwrap_err();
    assert!(many.len() == 101 && many[100].contains("more mistakes"), "{many:?}");
}

/// From the examples of the plugin `yaml` in Ansible's documentation.
#[test]
fn yaml_files_say_the_same() {
    check(
        of_yaml,
        &[
            (
                "all:\n  hosts:\n    mail:\n  children:\n    web:\n      hosts:\n        foo:\n          ansible_port: 2222\n        'bar[1:2]':\n      \
                 vars:\n        ansible_user: me\n    db:\n      hosts: foo\n",
                &[
                    "mail (ungrouped) mail",
                    "foo (db web) -p 2222 me@foo",
                    "bar1 (web) me@bar1",
                    "bar2 (web) me@bar2",
                ],
            ),
            // Groups need not be within `all`, and need no content.
            (
                "web:\n  children:\n    inner:\n    empty: null\ninner:\n  hosts:\n    w: {ansible_become: yes}\n",
                &["w (inner web) w as root"],
            ),
            (
                "base: &base\n  vars: &me {ansible_user: me, ansible_port: 1}\nweb:\n  hosts: {w: {<<: *me, ansible_port: 2}}\n\
                 db:\n  <<: *base\n  hosts: {d: }\n",
                &["w (web) -p 2 me@w", "d (db) -p 1 me@d"],
            ),
            (
                "{\"web\": {\"hosts\": {\"w\": {\"ansible_host\": \"10.0.0.1\", \"ansible_port\": 22, \"ansible_become\": true}}}}",
                &["w (web) -p 22 10.0.0.1 as root"],
            ),
            (
                "all:\n  hosts:\n    w:\n      ansible_user: ~\n      password: !vault |\n        $ANSIBLE_VAULT;1.1;AES256\n        31\n  \
                 vars: {ansible_user: me, list: [1, 2]}\n",
                &["w (ungrouped) w"],
            ),
        ],
    );
    check_refused(
        of_yaml,
        &[
            ("", "f: it names no machine"),
            ("web:\n", "f: it names no machine"),
            ("[]\n", "f:1: expected groups"),
            ("all:\n  hosts:\n    - w\n", "f:3: expected machines, each with a colon"),
            ("all:\n  host:\n    w:\n", "f:2: unknown key 'host'; did you mean 'hosts'?"),
            ("all:\n  hosts:\n    w: 22\n", "f:3: expected variables"),
            ("all:\n  vars:\n    ansible_group_priority: x\n", "f:3: ansible_group_priority is 'x'"),
            ("all:\n  hosts:\n    w:\n    w:\n", "f:4: 'w' occurs here a second time"),
            ("all:\n  hosts:\n    'w[1:':\n", "f:3: '[' has no ']'"),
            (
                "a:\n  children:\n    b:\n      children:\n        a:\n",
                "f:5: the group 'a', which is in 'b', contains it",
            ),
            (
                "all:\n  hosts:\n    w:\n      ansible_host: !vault |\n        $ANSIBLE_VAULT;1.1;AES256\n        31\n",
                "f:4: ansible_host of w: ansible-vault has encrypted it",
            ),
            (
                "all:\n  hosts:\n    w:\n      ansible_user: 007\n",
                "f:4: ansible_user of w: Ansible reads it as a number",
            ),
            ("all:\n  hosts:\n    w:\n      ansible_user: [me]\n", "f:4: ansible_user of w: it is a list"),
        ],
    );
}

#[test]
fn machines_are_chosen_by_name_or_group() {
    let machines = of_ini("alone\n[web]\na\nb\n[site:children]\nweb\n").unwrap();
    let names = |pattern: Option<&str>| {
        let chosen = select(&machines, pattern)?;
        Ok::<_, String>(chosen.into_iter().map(|machine| machine.name).collect::<Vec<_>>().join(" "))
    };
    for (pattern, right) in [
        (None, "alone a b"),
        (Some("all"), "alone a b"),
        (Some("web"), "a b"),
        (Some("site"), "a b"),
        (Some("b"), "b"),
        (Some("ungrouped"), "alone"),
    ] {
        assert_eq!(names(pattern), Ok(right.to_owned()));
    }
    let why = names(Some("wbe")).unwrap_err();
    assert!(why.contains("'wbe'; did you mean 'web'?") && why.contains("(groups: all, site, "), "{why}");
    assert!(names(Some("web:b")).is_err());
}
