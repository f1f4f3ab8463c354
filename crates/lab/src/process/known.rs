//! Programs that we know how to set up: their configuration is written into the lab's folder.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::plan::{Known, KnownKind, Ready};

/// The command line, after everything it needs has been written. `folder` is the process's own.
pub(crate) fn set_up(
    known: &Known,
    folder: &Path,
    program: &Path,
    rootless: bool,
) -> io::Result<Vec<String>> {
    fs::DirBuilder::new().mode(0o755).create(folder)?;
    let mut command = match known.kind {
        KnownKind::Nginx => nginx(known, folder, rootless)?,
        KnownKind::Haproxy => haproxy(known, folder)?,
        KnownKind::Sshd => sshd(known, folder, rootless)?,
        KnownKind::Iperf3 => {
            words(&["iperf3", "--server", "--forceflush", "--port", &known.port.to_string()])
        }
        KnownKind::Serve => {
            let listen = format!("0.0.0.0:{}", known.port);
            words(&[&program.display().to_string(), "serve", "--listen", &listen])
        }
    };
    command.extend(known.args.iter().cloned());
    Ok(command)
}

impl KnownKind {
    /// Its name in a lab file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Sshd => "sshd",
            Self::Iperf3 => "iperf3",
            Self::Serve => "serve",
        }
    }

    /// All of them.
    pub const ALL: [Self; 5] = [Self::Nginx, Self::Haproxy, Self::Sshd, Self::Iperf3, Self::Serve];

    /// The port it listens on unless told otherwise.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Nginx | Self::Haproxy => 80,
            Self::Sshd => 22,
            Self::Iperf3 => 5201,
            Self::Serve => 8080,
        }
    }
}

impl Known {
    /// When it counts as ready unless told otherwise. iperf3 takes a connection for the beginning of a test,
    /// so its output is looked at instead.
    pub fn ready(&self) -> Ready {
        match self.kind {
            KnownKind::Iperf3 => Ready::Log("Server listening".to_owned()),
            KnownKind::Serve => Ready::Log("listening on".to_owned()),
            _ => Ready::Tcp(None, self.port),
        }
    }
}

fn nginx(known: &Known, folder: &Path, rootless: bool) -> io::Result<Vec<String>> {
    let root = folder.join("files");
    fs::create_dir(&root)?;
    for (path, size) in &known.files {
        let file = root.join(path.trim_start_matches('/'));
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        // Zeros: a hole, which takes no room on the disk.
        File::create(&file)?.set_len(*size)?;
    }
    // Workers may not become another user in a user namespace of one user, and need not.
    let user = if rootless { "user root;\nmaster_process off;" } else { "user root;" };
    let (root, temporary) = (root.display(), folder.display());
    let text = format!(
        "daemon off;\n{user}\nworker_processes {workers};\nworker_rlimit_nofile 20000;\npid {temporary}/nginx.pid;\n\
         error_log stderr warn;\nevents {{ worker_connections 16384; }}\nhttp {{\n  access_log off;\n  \
         server_tokens off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000000000;\n  \
         default_type application/octet-stream;\n  client_body_temp_path {temporary}/body;\n  \
         proxy_temp_path {temporary}/proxy;\n  fastcgi_temp_path {temporary}/fastcgi;\n  \
         uwsgi_temp_path {temporary}/uwsgi;\n  scgi_temp_path {temporary}/scgi;\n  server {{\n    \
         listen {port} backlog=4096 reuseport;\n    root {root};\n    \
         location = / {{ return 200 \"ok\\n\"; }}\n  }}\n}}\n",
        workers = known.workers,
        port = known.port,
    );
    let file = write(folder, "nginx.conf", &text)?;
    // -e: nginx opens its built-in error log before it has read a line.
    Ok(words(&["nginx", "-e", "stderr", "-p", &temporary.to_string(), "-c", &file]))
}

fn haproxy(known: &Known, folder: &Path) -> io::Result<Vec<String>> {
    let mut text = format!(
        "global\n  nbthread {}\n  log stderr format raw local0 warning\n\
         defaults\n  mode http\n  log global\n  option dontlog-normal\n  timeout connect 5s\n  timeout client 60s\n  \
         timeout server 60s\n\
         frontend all\n  bind :{}\n  default_backend servers\n\
         backend servers\n  balance roundrobin\n",
        known.workers, known.port
    );
    for (name, address, port) in &known.backends {
        text += &format!("  server {name} {address}:{port}\n");
    }
    let file = write(folder, "haproxy.cfg", &text)?;
    Ok(words(&["haproxy", "-db", "-f", &file]))
}

fn sshd(known: &Known, folder: &Path, rootless: bool) -> io::Result<Vec<String>> {
    if rootless {
        return Err(io::Error::other(
            "sshd changes users, which a user namespace of one user does not let it: run the lab as root",
        ));
    }
    // Refuses to start without it; it belongs to the package, and stays.
    if !Path::new("/run/sshd").is_dir() {
        return Err(io::Error::other("sshd wants the folder /run/sshd: mkdir -m 755 /run/sshd"));
    }
    for name in ["host_key", "client_key"] {
        let file = folder.join(name);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                io::Error::other(format!("ssh-keygen cannot be run: {error}; is it installed?"))
            })?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).trim().to_owned()));
        }
    }
    let keys = folder.join("authorized_keys");
    fs::copy(folder.join("client_key.pub"), &keys)?;
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600))?;
    let text = format!(
        "Port {}\nListenAddress 0.0.0.0\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
         StrictModes no\nUseDNS no\nMaxStartups 100:30:200\nMaxSessions 100\n\
         Subsystem sftp internal-sftp\n",
        known.port,
        folder.join("host_key").display(),
        keys.display()
    );
    let file = write(folder, "sshd_config", &text)?;
    // It wants its own path to start itself again.
    let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"]
        .into_iter()
        .find(|p| Path::new(p).exists());
    let program =
        program.ok_or_else(|| io::Error::other("sshd is not installed (Debian: openssh-server)"))?;
    Ok(words(&[program, "-D", "-e", "-f", &file]))
}

fn write(folder: &Path, name: &str, text: &str) -> io::Result<String> {
    let path: PathBuf = folder.join(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}
