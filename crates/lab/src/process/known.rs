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
        KnownKind::Listen => listen(known, folder, program)?,
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
            Self::Listen => "listen",
        }
    }

    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Nginx, Self::Haproxy, Self::Sshd, Self::Iperf3, Self::Serve, Self::Listen];

    /// The port it listens on unless told otherwise.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Nginx | Self::Haproxy => 80,
            Self::Sshd => 22,
            Self::Iperf3 => 5201,
            Self::Serve => 8080,
            Self::Listen => 9880,
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
    let (shared, location) = match known.log_bodies {
        true => nginx_log(&store(known, folder)?, folder),
        false => (String::new(), "location = / { return 200 \"ok\\n\"; }".to_owned()),
    };
    let text = format!(
        "daemon off;\n{user}\nworker_processes {workers};\nworker_rlimit_nofile 20000;\npid {temporary}/nginx.pid;\n\
         error_log stderr warn;\nevents {{ worker_connections 16384; }}\nhttp {{\n  access_log off;\n  \
         server_tokens off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000000000;\n  \
         default_type application/octet-stream;\n  client_body_temp_path {temporary}/body;\n  \
         proxy_temp_path {temporary}/proxy;\n  fastcgi_temp_path {temporary}/fastcgi;\n  \
         uwsgi_temp_path {temporary}/uwsgi;\n  scgi_temp_path {temporary}/scgi;\n{shared}  server {{\n    \
         listen {port} backlog={backlog} reuseport;\n    root {root};\n    {location}\n  }}\n}}\n",
        workers = known.workers,
        port = known.port,
        backlog = known.backlog.unwrap_or(4096),
    );
    let file = write(folder, "nginx.conf", &text)?;
    // -e: nginx opens its built-in error log before it has read a line.
    Ok(words(&["nginx", "-e", "stderr", "-p", &temporary.to_string(), "-c", &file]))
}

/// What makes nginx a data listener. It reads the body of a request only to pass it on, so it asks a second server of its
/// own, which answers 204 without being given the body. The line is written after the answer.
fn nginx_log(store: &Path, folder: &Path) -> (String, String) {
    let socket = format!("unix:{}/answer.sock", folder.display());
    let shared = format!(
        "  log_format bodies escape=none '$request_body';\n  client_body_buffer_size 1m;\n  \
         client_max_body_size 1m;\n  client_body_in_single_buffer on;\n  \
         upstream answer {{ server {socket}; keepalive 64; keepalive_requests 1000000000; }}\n  \
         server {{ listen {socket} backlog=4096; return 204; }}\n"
    );
    let location = format!(
        "location / {{\n      access_log {store}/bodies.log bodies;\n      proxy_pass http://answer;\n      \
         proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      proxy_method GET;\n      \
         proxy_pass_request_body off;\n      proxy_set_header Content-Length \"\";\n    }}",
        store = store.display()
    );
    (shared, location)
}

fn listen(known: &Known, folder: &Path, program: &Path) -> io::Result<Vec<String>> {
    let address = format!("0.0.0.0:{}", known.port);
    let mut command = words(&[&program.display().to_string(), "listen", "--listen", &address]);
    // A configuration says itself where files go.
    let says_where = |arg: &String| {
        ["--path", "--import", "--config"].iter().any(|option| {
            arg.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    };
    if !known.args.iter().any(says_where) {
        let path = store(known, folder)?.join("${tag}.%Y-%m-%d.log");
        command.extend(["--path".to_owned(), path.display().to_string()]);
    }
    if let Some(backlog) = known.backlog {
        command.extend(["--backlog".to_owned(), backlog.to_string()]);
    }
    Ok(command)
}

/// The folder that a data listener stores in.
fn store(known: &Known, folder: &Path) -> io::Result<PathBuf> {
    let store = known.store.clone().unwrap_or_else(|| folder.join("stored"));
    fs::create_dir_all(&store)?;
    Ok(store)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn known(kind: KnownKind) -> Known {
        Known {
            kind,
            port: 9880,
            files: Vec::new(),
            log_bodies: false,
            backlog: Some(128),
            store: None,
            workers: 1,
            backends: Vec::new(),
            args: Vec::new(),
        }
    }

    fn command(known: &Known) -> (String, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let words = set_up(known, &folder.path().join("own"), Path::new("/bin/proofload"), false).unwrap();
        (words.join(" "), folder)
    }

    #[test]
    fn a_listener_stores_where_it_is_told_to() {
        let (words, folder) = command(&known(KnownKind::Listen));
        let stored = folder.path().join("own/stored");
        let path = format!("--path {}/${{tag}}.%Y-%m-%d.log", stored.display());
        assert_eq!(words, format!("/bin/proofload listen --listen 0.0.0.0:9880 {path} --backlog 128"));
        assert!(stored.is_dir());

        let elsewhere = folder.path().join("elsewhere");
        let (words, _folder) = command(&Known { store: Some(elsewhere.clone()), ..known(KnownKind::Listen) });
        assert!(words.contains(&format!("--path {}/", elsewhere.display())) && elsewhere.is_dir(), "{words}");

        for own in ["--path=/x", "--import", "--config"] {
            let known = Known { args: vec![own.to_owned(), "y".to_owned()], ..known(KnownKind::Listen) };
            let (words, _folder) = command(&known);
            assert!(!words.contains("/stored/") && words.ends_with(&format!("{own} y")), "{words}");
        }
    }

    #[test]
    fn nginx_is_a_listener_if_asked_for() {
        let text = |log_bodies| {
            let (_, folder) = command(&Known { log_bodies, ..known(KnownKind::Nginx) });
            fs::read_to_string(folder.path().join("own/nginx.conf")).unwrap()
        };
        let (plain, listener) = (text(false), text(true));
        assert!(plain.contains("listen 9880 backlog=128 reuseport") && plain.contains("return 200"));
        assert!(!plain.contains("request_body"));
        assert!(listener.contains("/own/stored/bodies.log bodies;") && !listener.contains("return 200"));
    }
}
