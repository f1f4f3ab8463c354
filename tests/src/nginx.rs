//! A real nginx with one worker on one processor, configured to be as fast as possible.

use std::{
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use testing::PATIENCE;
use testing::http::{Answer, exchange};

use crate::{
    machine,
    process::{Launch, Process, children_of},
    temporary::TemporaryFolder,
};

/// Settings of an nginx.
#[derive(Debug, Clone)]
pub struct Options {
    /// The processor to run on; none for any.
    pub core: Option<u32>,
    /// Requests on a connection before nginx closes it.
    pub keepalive_requests: u64,
    /// Maximum number of connections. The hard limit of open files may lower it.
    pub connections: u64,
    /// Whether and how nginx also answers over TLS, at a separate address.
    pub secure: Option<Secure>,
}

impl Default for Options {
    fn default() -> Self {
        Self { core: None, keepalive_requests: 1_000_000_000, connections: 24_000, secure: None }
    }
}

/// The TLS settings of nginx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secure {
    /// TLS 1.2 and 1.3; sessions can be resumed.
    Usual,
    /// TLS 1.3 with one cipher suite and one key exchange; every handshake is a full one.
    Fixed,
}

/// A running nginx with its configuration in a separate folder. It answers `/` with 13 bytes from memory, `/64k` with a file of 64 KiB,
/// `/length` with the request's `Content-Length`, and `/204` with nothing, whatever the request's body.
#[derive(Debug)]
pub struct Nginx {
    // Dropped in this order: nginx ends before its folder is removed.
    process: Process,
    folder: TemporaryFolder,
    address: SocketAddr,
    secure_address: Option<SocketAddr>,
}

impl Nginx {
    /// Starts nginx on a free port and waits until it answers.
    ///
    /// # Errors
    /// If nginx is not installed or does not answer. The error has nginx's error log.
    pub fn start(options: &Options) -> Result<Self> {
        let program = machine::program("nginx").context("nginx is missing: apt-get install nginx-light")?;
        let program = program.display().to_string();
        // Another process may take the port before nginx binds it, so try several times.
        let mut last = None;
        for _attempt in 0..5 {
            match Self::start_once(&program, options) {
                Ok(nginx) => return Ok(nginx),
                Err(error) if format!("{error:#}").contains("Address already in use") => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.expect("only a lost port leads here")).context("five ports in turn were taken by others")
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The URL of a path on this server over TLS. The certificate, for 127.0.0.1 and localhost, has a P-256 key.
    ///
    /// # Panics
    /// If nginx was started without TLS.
    pub fn secure_url(&self, path: &str) -> String {
        format!("https://{}{path}", self.secure_address.expect("nginx was started with TLS"))
    }

    /// The file with the certificate of the authority that issued nginx's certificate.
    pub fn authority_file(&self) -> String {
        self.folder.file("ca.pem")
    }

    /// The contents of its error log.
    pub fn error_log(&self) -> String {
        error_log(&self.folder, &self.process)
    }

    /// Processor time that its worker has used so far, in seconds, with a resolution of 10 ms.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn cpu_s(&self) -> Result<f64> {
        let workers = children_of(self.process.pid());
        ensure!(!workers.is_empty(), "nginx has no worker");
        workers.into_iter().map(machine::process_cpu_s).sum()
    }

    fn start_once(program: &str, options: &Options) -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        let address = free_address()?;
        fs::create_dir(folder.path().join("www"))?;
        for (name, bytes) in [("1k", 1_024), ("64k", 65_536)] {
            fs::write(folder.path().join("www").join(name), vec![b'x'; bytes])?;
        }
        let file = folder.file("nginx.conf");
        let secure_address = options.secure.map(|_| free_address()).transpose()?;
        if secure_address.is_some() {
            write_certificate(&folder)?;
        }
        fs::write(&file, configuration(options, address, secure_address))?;
        let mut launch = Launch::new(program).args(["-e", "stderr", "-p", &folder.file(""), "-c", &file]);
        if let Some(core) = options.core {
            launch = launch.on_core(core);
        }
        let mut process = launch.start()?;
        let answers = |answer: Answer| answer.body == b"Hello, World!";
        let is_up = || exchange(address, b"GET / HTTP/1.0\r\n\r\n").is_ok_and(answers);
        let up = process.find("it answers", PATIENCE, |_| is_up().then_some(()));
        up.with_context(|| format!("nginx on {address}; its log:\n{}", error_log(&folder, &process)))?;
        Ok(Self { process, folder, address, secure_address })
    }
}

fn error_log(folder: &TemporaryFolder, process: &Process) -> String {
    fs::read_to_string(folder.path().join("error.log")).unwrap_or_default() + &process.stderr()
}

/// An address of 127.0.0.1 with a port that is free at the moment.
///
/// # Errors
/// If no port is free.
pub fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?)
}

/// Writes the certificate of an authority, and a certificate that it issued with its key.
fn write_certificate(folder: &TemporaryFolder) -> Result<()> {
    let authority = tls::Authority::new("the authority of tests")?;
    let identity = authority.certify(&["localhost", "127.0.0.1"], tls::Validity::default())?;
    fs::write(folder.file("ca.pem"), authority.pem())?;
    fs::write(folder.file("cert.pem"), pem("CERTIFICATE", &identity.chain[0]))?;
    fs::write(folder.file("key.pem"), pem("PRIVATE KEY", identity.key.secret_der()))?;
    Ok(())
}

/// A section of a PEM file.
pub fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64.encode(der))
}

fn configuration(options: &Options, address: SocketAddr, secure_address: Option<SocketAddr>) -> String {
    let limit = machine::raise_descriptor_limit();
    // The listener, logs, epoll and the served file need some descriptors, too.
    let connections = options.connections.min(limit.saturating_sub(32)).max(64);
    let mut text = String::new();
    let offer = match options.secure {
        Some(Secure::Fixed) => {
            "ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256; ssl_ecdh_curve X25519; \
             ssl_session_tickets off; ssl_session_cache off;"
        }
        _ => "ssl_protocols TLSv1.2 TLSv1.3;",
    };
    let secure = secure_address.map_or(String::new(), |address| {
        format!(
            "listen {address} ssl backlog=65535;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        {offer}"
        )
    });
    // A worker of root's nginx would become the user nobody, who has no access to the folder.
    if rustix::process::geteuid().is_root() {
        text += "user root;\n";
    }
    write!(
        text,
        "daemon off;
worker_processes 1;
worker_rlimit_nofile {limit};
pid nginx.pid;
error_log error.log warn;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    keepalive_requests {keepalive_requests};
    keepalive_timeout 3600s;
    client_body_temp_path client_body;
    client_max_body_size 64m;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen {address} backlog=65535;
        {secure}
        default_type text/plain;
        root www;
        location = / {{ return 200 'Hello, World!'; }}
        location = /length {{ return 200 $content_length; }}
        location = /204 {{ return 204; }}
        location = /64k {{ sendfile on; tcp_nopush on; }}
    }}
}}
",
        keepalive_requests = options.keepalive_requests,
    )
    .expect("writing to a string cannot fail");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(nginx: &Nginx, request: &str) -> usize {
        exchange(nginx.address(), request.as_bytes()).unwrap().body.len()
    }

    #[test]
    fn it_answers_as_promised_and_is_gone_when_dropped() {
        let nginx = Nginx::start(&Options::default()).unwrap();
        assert_eq!(body_of(&nginx, "GET / HTTP/1.0\r\n\r\n"), 13);
        assert_eq!(body_of(&nginx, "GET /64k HTTP/1.0\r\n\r\n"), 65_536);
        assert_eq!(body_of(&nginx, "POST /length HTTP/1.0\r\nContent-Length: 12\r\n\r\nabcdefghijkl"), 2);
        assert_eq!(body_of(&nginx, "POST /204 HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"), 0);
        assert_eq!(nginx.error_log(), "");
        assert!(nginx.cpu_s().unwrap() >= 0.0);
        let (process, folder) = (format!("/proc/{}", nginx.process.pid()), nginx.folder.path().to_owned());
        drop(nginx);
        assert!(!fs::exists(process).unwrap() && !folder.exists());
    }
}
