//! The variables of Ansible that decide how to log in to a machine, and which user the agent becomes there.
//!
//! They are those of the plugins `ssh`, `local` and `sudo` (`ansible-doc -t connection ssh`, `ansible-doc -t become sudo`).
//! All others change nothing here: they are for other plugins, for copies (`sftp`, `scp`), for Python on the machine, or
//! are limits of time and repetitions.

/// Names for one setting. Of those that are set, Ansible obeys the last.
pub(super) type Names = &'static [&'static str];

pub(super) const CONNECTION: Names = &["ansible_connection"];
pub(super) const ADDRESS: Names = &["ansible_host", "ansible_ssh_host"];
pub(super) const PORT: Names = &["ansible_port", "ansible_ssh_port"];
pub(super) const USER: Names = &["ansible_user", "ansible_ssh_user"];
pub(super) const KEY_FILE: Names = &["ansible_private_key_file", "ansible_ssh_private_key_file"];
pub(super) const COMMON_ARGUMENTS: Names = &["ansible_ssh_common_args"];
pub(super) const EXTRA_ARGUMENTS: Names = &["ansible_ssh_extra_args"];
pub(super) const BECOME: Names = &["ansible_become"];
pub(super) const BECOME_METHOD: Names = &["ansible_become_method"];
/// Our own: the machine's address in studies.
pub(super) const STUDY_ADDRESS: Names = &["proofload_address"];
pub(super) const BECOME_USER: Names = &["ansible_become_user", "ansible_sudo_user"];

/// The priority of a group: the higher it is, the later its variables replace those of other groups.
pub(super) const PRIORITY: &str = "ansible_group_priority";

const OBEYED: [Names; 12] = [
    CONNECTION,
    ADDRESS,
    PORT,
    USER,
    KEY_FILE,
    COMMON_ARGUMENTS,
    EXTRA_ARGUMENTS,
    BECOME,
    BECOME_METHOD,
    BECOME_USER,
    STUDY_ADDRESS,
    &[PRIORITY],
];

/// Variables that proofload does not obey.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) names: Names,
    /// Values, in lower case, that ask for what happens anyway.
    pub(super) harmless: &'static [&'static str],
    /// The next step.
    pub(super) instead: &'static str,
}

/// What a login over ssh would have to obey.
pub(super) const OF_SSH: &[Refused] = &[
    Refused {
        names: &["ansible_password", "ansible_ssh_pass", "ansible_ssh_password"],
        harmless: &[],
        instead: "proofload gives ssh no password; install a key with `ssh-copy-id`, and remove the variable",
    },
    Refused {
        names: &[
            "ansible_private_key",
            "ansible_ssh_private_key",
            "ansible_private_key_passphrase",
            "ansible_ssh_private_key_passphrase",
        ],
        harmless: &[],
        instead: "proofload gives ssh no key; load it with `ssh-add`, or name its file in ansible_ssh_private_key_file",
    },
    Refused {
        names: &["ansible_ssh_args", "ansible_ssh_pkcs11_provider"],
        harmless: &[],
        instead: "proofload takes no options of ssh from it; write them into ansible_ssh_common_args",
    },
    Refused {
        names: &["ansible_ssh_executable"],
        harmless: &["ssh", "/usr/bin/ssh"],
        instead: "proofload runs the `ssh` of the PATH; put the program there, and remove the variable",
    },
    Refused {
        names: &["ansible_host_key_checking", "ansible_ssh_host_key_checking"],
        harmless: &["true", "yes", "on", "1"],
        instead: "log in once with `ssh`, which then knows the machine's key, and remove the variable",
    },
    Refused {
        names: &["ansible_shell_type"],
        harmless: &["sh"],
        instead: "the agent needs a POSIX shell on the machine; remove the variable where the login has one",
    },
];

/// What becoming another user would have to obey.
pub(super) const OF_SUDO: &[Refused] = &[
    Refused {
        names: &["ansible_become_pass", "ansible_become_password", "ansible_sudo_pass"],
        harmless: &[],
        instead: "`sudo -n` asks for no password; allow that by NOPASSWD in the machine's sudoers, and remove the variable",
    },
    Refused {
        names: &[
            "ansible_become_exe",
            "ansible_become_flags",
            "ansible_sudo_exe",
            "ansible_sudo_flags",
            "ansible_sudo_chdir",
        ],
        harmless: &["sudo", "/usr/bin/sudo", "-h -s -n", "-h -s", "-h", "-n"],
        instead: "the agent becomes a user by `sudo -n`, without other options; remove the variable",
    },
];

/// Whether a variable is obeyed or refused. All others are ignored.
pub(super) fn matters(name: &str) -> bool {
    let refused = OF_SSH.iter().chain(OF_SUDO).map(|refused| refused.names);
    OBEYED.into_iter().chain(refused).any(|names| names.contains(&name))
}
