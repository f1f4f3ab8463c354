//! Settings for addresses, security and the machine.

use listen::Accept;
use record::units::parse_cpus;

use super::{Kind, OptionSpec, address, choice, count, error_text, path};

const ADDRESSES: &str = "Addresses";
const SECURITY: &str = "Security";
const MACHINE: &str = "Machine";

const ACCEPT: &[&str] = &["reuseport", "shared"];

pub(super) const SETTINGS: &[OptionSpec] = settings::option_table! {
    /// Address and port to listen on; repeatable; port 0 is any free one. Sockets from systemd replace the default
    "listen", Kind::List, "ADDR:PORT", ADDRESSES, "127.0.0.1:9880", "0.0.0.0:9880 [::1]:9880",
        |builder, values| {
            builder.config.listen = values.iter().map(|text| address(text)).collect::<Result<_, _>>()?;
            builder.has_explicit_addresses = true;
        };
    /// Separate address for /health and /metrics, which all addresses serve
    "admin", Kind::Text, "ADDR:PORT", ADDRESSES, "", "127.0.0.1:9881",
        |builder, values| builder.config.admin = Some(address(values[0])?);
    /// Accept queue of each listening socket; the kernel allows at most net.core.somaxconn
    "backlog", Kind::Count(1), "N", ADDRESSES, "4096", "128",
        |builder, values| builder.config.backlog = count(values[0], 1)?;
    /// Accept queues: one per thread (reuseport) or one for all threads (shared)
    "accept", Kind::Choice(ACCEPT), "reuseport|shared", ADDRESSES, "reuseport", "shared",
        |builder, values| builder.config.accept = choice(values[0], ACCEPT, &[Accept::ReusePort, Accept::Shared])?;
    /// Certificate chain in PEM, the listener's certificate first; reloaded on SIGHUP
    "tls_cert", Kind::Text, "FILE", SECURITY, "", "/etc/proofload/cert.pem",
        |builder, values| builder.certificates = Some(path(values[0])?);
    /// Private key of the certificate in PEM
    "tls_key", Kind::Text, "FILE", SECURITY, "", "/etc/proofload/key.pem",
        |builder, values| builder.key = Some(path(values[0])?);
    /// File with the bearer tokens that clients may use, one per line
    "bearer_token_file", Kind::Text, "FILE", SECURITY, "", "/etc/proofload/tokens",
        |builder, values| builder.bearer_tokens = Some(path(values[0])?);
    /// File with the NAME:PASSWORD pairs that clients may use, one per line
    "basic_auth_file", Kind::Text, "FILE", SECURITY, "", "/etc/proofload/users",
        |builder, values| builder.basic_users = Some(path(values[0])?);
    /// Threads, each with connections of its own
    "threads", Kind::Count(1), "N", MACHINE, "1", "2",
        |builder, values| builder.config.threads = count(values[0], 1)?;
    /// Processors to pin the threads to, such as 0,2-3
    "cpus", Kind::Text, "LIST", MACHINE, "", "0,2-3",
        |builder, values| builder.config.cpus = parse_cpus(values[0]).map_err(error_text)?;
};
