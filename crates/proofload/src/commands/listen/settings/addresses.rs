//! Where the listener listens, and with what.

use listen::Accept;
use record::units::parse_cpus;

use super::{Kind, OptionSpec, address, choice, count, error_text, path};

const ADDRESSES: &str = "Addresses";
const SECURITY: &str = "Security";
const MACHINE: &str = "Machine";

const ACCEPT: &[&str] = &["reuseport", "shared"];

pub(super) const SETTINGS: &[OptionSpec] = settings::option_table! {
    /// Address and port to listen on; repeatable; port 0 is any free one. Sockets handed in by systemd take its place
    "listen", Kind::List, "ADDR:PORT", ADDRESSES, "127.0.0.1:9880", "0.0.0.0:9880 [::1]:9880",
        |draft, values| {
            draft.config.listen = values.iter().map(|text| address(text)).collect::<Result<_, _>>()?;
            draft.listens_as_told = true;
        };
    /// Address of its own for /health and /metrics, which the others answer too
    "admin", Kind::Text, "ADDR:PORT", ADDRESSES, "", "127.0.0.1:9881",
        |draft, values| draft.config.admin = Some(address(values[0])?);
    /// Accept queue of each listening socket; the kernel allows at most net.core.somaxconn
    "backlog", Kind::Count(1), "N", ADDRESSES, "4096", "128",
        |draft, values| draft.config.backlog = count(values[0], 1)?;
    /// Whether each thread has an accept queue of its own or all share one
    "accept", Kind::Choice(ACCEPT), "reuseport|shared", ADDRESSES, "reuseport", "shared",
        |draft, values| draft.config.accept = choice(values[0], ACCEPT, &[Accept::ReusePort, Accept::Shared])?;
    /// Certificates in PEM, the listener's own first; read anew on SIGHUP
    "tls_cert", Kind::Text, "FILE", SECURITY, "", "/etc/proofload/cert.pem",
        |draft, values| draft.certificates = Some(path(values[0])?);
    /// Private key of the certificate in PEM
    "tls_key", Kind::Text, "FILE", SECURITY, "", "/etc/proofload/key.pem",
        |draft, values| draft.key = Some(path(values[0])?);
    /// File with the tokens of those who may post, one a line
    "bearer_token_file", Kind::Text, "FILE", SECURITY, "", "/etc/proofload/tokens",
        |draft, values| draft.bearer_tokens = Some(path(values[0])?);
    /// File with NAME:PASSWORD of those who may post, one a line
    "basic_auth_file", Kind::Text, "FILE", SECURITY, "", "/etc/proofload/users",
        |draft, values| draft.basic_users = Some(path(values[0])?);
    /// Threads, each with connections of its own
    "threads", Kind::Count(1), "N", MACHINE, "1", "2",
        |draft, values| draft.config.threads = count(values[0], 1)?;
    /// Processors to pin the threads to, such as 0,2-3
    "cpus", Kind::Text, "LIST", MACHINE, "", "0,2-3",
        |draft, values| draft.config.cpus = parse_cpus(values[0]).map_err(error_text)?;
};
