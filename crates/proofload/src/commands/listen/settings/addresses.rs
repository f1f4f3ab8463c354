//! Where the listener listens, and with what.

use listen::Accept;
use record::units::parse_cpus;

use super::{Kind, Setting, address, choice, count, path, told};

const ADDRESSES: &str = "Addresses";
const SECURITY: &str = "Security";
const MACHINE: &str = "Machine";

const ACCEPT: &[&str] = &["reuseport", "shared"];

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "listen",
        kind: Kind::List,
        value_name: "ADDR:PORT",
        heading: ADDRESSES,
        help: "Address and port to listen on; repeatable; port 0 is any free one. Sockets handed in by systemd take its place",
        default: "127.0.0.1:9880",
        example: "0.0.0.0:9880 [::1]:9880",
        apply: |draft, values| {
            draft.config.listen = values.iter().map(|text| address(text)).collect::<Result<_, _>>()?;
            draft.listens_as_told = true;
            Ok(())
        },
    },
    Setting {
        key: "admin",
        kind: Kind::Text,
        value_name: "ADDR:PORT",
        heading: ADDRESSES,
        help: "Address of its own for /health and /metrics, which the others answer too",
        default: "",
        example: "127.0.0.1:9881",
        apply: |draft, values| {
            draft.config.admin = Some(address(values[0])?);
            Ok(())
        },
    },
    Setting {
        key: "backlog",
        kind: Kind::Count(1),
        value_name: "N",
        heading: ADDRESSES,
        help: "Accept queue of each listening socket; the kernel allows at most net.core.somaxconn",
        default: "4096",
        example: "128",
        apply: |draft, values| {
            draft.config.backlog = count(values[0], 1)?;
            Ok(())
        },
    },
    Setting {
        key: "accept",
        kind: Kind::Choice(ACCEPT),
        value_name: "reuseport|shared",
        heading: ADDRESSES,
        help: "Whether each thread has an accept queue of its own or all share one",
        default: "reuseport",
        example: "shared",
        apply: |draft, values| {
            draft.config.accept = choice(values[0], ACCEPT, &[Accept::ReusePort, Accept::Shared])?;
            Ok(())
        },
    },
    Setting {
        key: "tls_cert",
        kind: Kind::Text,
        value_name: "FILE",
        heading: SECURITY,
        help: "Certificates in PEM, the listener's own first; read anew on SIGHUP",
        default: "",
        example: "/etc/proofload/cert.pem",
        apply: |draft, values| {
            draft.certificates = Some(path(values[0])?);
            Ok(())
        },
    },
    Setting {
        key: "tls_key",
        kind: Kind::Text,
        value_name: "FILE",
        heading: SECURITY,
        help: "Private key of the certificate in PEM",
        default: "",
        example: "/etc/proofload/key.pem",
        apply: |draft, values| {
            draft.key = Some(path(values[0])?);
            Ok(())
        },
    },
    Setting {
        key: "bearer_token_file",
        kind: Kind::Text,
        value_name: "FILE",
        heading: SECURITY,
        help: "File with the tokens of those who may post, one a line",
        default: "",
        example: "/etc/proofload/tokens",
        apply: |draft, values| {
            draft.bearer_tokens = Some(path(values[0])?);
            Ok(())
        },
    },
    Setting {
        key: "basic_auth_file",
        kind: Kind::Text,
        value_name: "FILE",
        heading: SECURITY,
        help: "File with NAME:PASSWORD of those who may post, one a line",
        default: "",
        example: "/etc/proofload/users",
        apply: |draft, values| {
            draft.basic_users = Some(path(values[0])?);
            Ok(())
        },
    },
    Setting {
        key: "threads",
        kind: Kind::Count(1),
        value_name: "N",
        heading: MACHINE,
        help: "Threads, each with connections of its own",
        default: "1",
        example: "2",
        apply: |draft, values| {
            draft.config.threads = count(values[0], 1)?;
            Ok(())
        },
    },
    Setting {
        key: "cpus",
        kind: Kind::Text,
        value_name: "LIST",
        heading: MACHINE,
        help: "Processors to pin the threads to, such as 0,2-3",
        default: "",
        example: "0,2-3",
        apply: |draft, values| {
            draft.config.cpus = parse_cpus(values[0]).map_err(told)?;
            Ok(())
        },
    },
];
