//! The OpenSSH server, sshd, and the files that clients need to log in.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use super::{KnownProgram, ProgramContext, Sshd, words};
use crate::{
    keys::{Key, KeyType, key_table},
    plan::known::SshdConfig,
    private::SSHD_FOLDER,
};

/// Values of the key `config`, in the order of [`SshdConfig`].
const CONFIGS: [&str; 2] = ["wide", "debian"];

const WIDE: &str = "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
    PermitRootLogin prohibit-password\nUseDNS no\nMaxStartups 100:30:200\nMaxSessions 100\n\
    Subsystem sftp internal-sftp\n";

/// The settings of `/etc/ssh/sshd_config` in Debian's openssh-server, and two defaults of sshd that matter to
/// measurements.
const DEBIAN: &str = "UsePAM yes\nKbdInteractiveAuthentication no\nX11Forwarding yes\nPrintMotd no\n\
    AcceptEnv LANG LC_*\nMaxStartups 10:30:100\nMaxSessions 10\n\
    Subsystem sftp /usr/lib/openssh/sftp-server\n";
/// Files that [`DEBIAN`] needs, each with its Debian package.
const DEBIAN_FILES: [(&str, &str); 2] =
    [("/usr/lib/openssh/sftp-server", "openssh-sftp-server"), ("/etc/pam.d/sshd", "openssh-server")];

const SSH_CONFIG: &str = "ssh_config";

impl KnownProgram for Sshd {
    const NAME: &'static str = "sshd";
    const PORT: u16 = 22;
    const KEYS: &'static [Key<Self>] = key_table! {
        /// wide allows 100 sessions and 200 connections that are not logged in yet; debian is as Debian
        /// delivers it
        "config", KeyType::Choice(&CONFIGS, |sshd, index| sshd.config = [SshdConfig::Wide, SshdConfig::Debian][index]);
    };
    const WRITTEN_FILES: &'static [&'static str] = &[SSH_CONFIG];

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        if context.rootless {
            return Err(io::Error::other(
                "sshd must change users, which is impossible in a user namespace of one user; run the lab as root",
            ));
        }
        // sshd refuses to start without this folder, which the Debian package creates. A host whose folder is private has it.
        let host = &context.plan.hosts[context.process.host];
        let is_private = host.private.iter().any(|folder| Path::new(SSHD_FOLDER).starts_with(folder));
        if !is_private && !Path::new(SSHD_FOLDER).is_dir() {
            let why = format!("sshd needs the folder {SSHD_FOLDER}: mkdir -m 755 {SSHD_FOLDER}");
            return Err(io::Error::other(why));
        }
        let needed = if self.config == SshdConfig::Debian { &DEBIAN_FILES[..] } else { &[] };
        if let Some((file, package)) = needed.iter().find(|(file, _)| !Path::new(file).exists()) {
            let why = format!(
                "config = \"debian\" needs {file} (Debian: {package}); install it or leave config out"
            );
            return Err(io::Error::other(why));
        }
        ["host_key", "client_key"].into_iter().try_for_each(|name| make_key(&context.folder.join(name)))?;
        let keys = context.folder.join("authorized_keys");
        fs::copy(context.folder.join("client_key.pub"), &keys)?;
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o600))?;
        // The user's own files stay unchanged. StrictModes is off, because it might reject the folder of these keys.
        let text = format!(
            "Port {}\nListenAddress 0.0.0.0\n{}HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             PermitUserRC no\n{}",
            context.known.port,
            if context.has_ipv6() { "ListenAddress ::\n" } else { "" },
            context.folder.join("host_key").display(),
            keys.display(),
            if self.config == SshdConfig::Debian { DEBIAN } else { WIDE },
        );
        let file = context.write("sshd_config", &text)?;
        add_client_config(context)?;
        // sshd executes itself again, so its path must be absolute.
        let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"]
            .into_iter()
            .find(|p| Path::new(p).exists());
        let program =
            program.ok_or_else(|| io::Error::other("sshd is not installed (Debian: openssh-server)"))?;
        Ok(words(&[program, "-D", "-e", "-f", &file]))
    }
}

fn make_key(file: &Path) -> io::Result<()> {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::other(format!("cannot run ssh-keygen: {error}; is it installed?")))?;
    if !made.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).trim().to_owned()));
    }
    Ok(())
}

/// Adds this server to the lab's `ssh_config` under the name of its host, the name of its process and its address.
/// Clients that use this file neither read nor write the user's own files.
fn add_client_config(context: &ProgramContext<'_>) -> io::Result<()> {
    let name = &context.process.name;
    let address = context.plan.address_of(context.process.host).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let host_key = fs::read_to_string(context.folder.join("host_key.pub"))?;
    let known_hosts = context.write("known_hosts", &format!("{name} {host_key}"))?;
    let section = format!(
        "Host {host} {name} {address}\n  HostName {address}\n  HostKeyAlias {name}\n  Port {port}\n  User root\n  \
         IdentityFile \"{key}\"\n  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile \"{known_hosts}\"\n  \
         GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  UpdateHostKeys no\n  BatchMode yes\n",
        host = context.plan.hosts[context.process.host].name,
        port = context.known.port,
        key = context.folder.join("client_key").display(),
    );
    let file = context.run_folder.join(SSH_CONFIG);
    // ssh uses the first match, so the section of the server started last comes first.
    let others = fs::read_to_string(&file).unwrap_or_default();
    fs::write(&file, section + &others)
}
