//! Where the broker is, and the credentials for it.

use std::{fmt, path::PathBuf, str::FromStr};

use url::Url;

use crate::names;

/// One or more servers of a broker, and the pool whose machines are used: `nats://HOST[:PORT][,HOST[:PORT]…][/POOL]`,
/// or `tls://…`, which refuses a server without TLS. The default pool is `default`, the default port is 4222.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    pub(crate) servers: Vec<Url>,
    pub(crate) pool: String,
}

/// How the broker is reached.
#[derive(Debug, Clone)]
pub struct Access {
    /// The address of the broker.
    pub address: BrokerAddress,
    /// A file with the JWT and the seed of a user (`.creds`). No other user may read it.
    pub credentials: Option<PathBuf>,
    /// A file with the certificates (PEM) of the authorities that may vouch for the broker, in place of the system's. With
    /// such a file, a server without TLS is refused.
    pub authorities: Option<PathBuf>,
}

impl BrokerAddress {
    /// The name of the pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }
}

impl FromStr for BrokerAddress {
    type Err = String;

    /// # Errors
    /// When the text is not such an address, or contains a login. The message never contains what precedes an `@`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('@') {
            return Err(
                "the address of a broker must not contain a login, because every user of the machine could see it: leave out \
                 everything up to the `@`, and give a file of credentials"
                    .to_owned(),
            );
        }
        let refused = |why: &str| format!("{text}: {why}; write nats://HOST[:PORT][,HOST[:PORT]][/POOL]");
        let mut address = Self { servers: Vec::new(), pool: "default".to_owned() };
        let (scheme, _) = text.split_once("://").ok_or_else(|| refused("has no scheme"))?;
        if !["nats", "tls"].contains(&scheme) {
            return Err(refused("its scheme is neither nats nor tls"));
        }
        let mut pool = None;
        for server in text.split(',') {
            let is_whole = server.contains("://");
            let server = if is_whole { server.to_owned() } else { format!("{scheme}://{server}") };
            let mut url = Url::parse(&server).map_err(|error| refused(&error.to_string()))?;
            if url.scheme() != scheme {
                return Err(refused("its servers have different schemes"));
            }
            if url.host_str().is_none_or(str::is_empty) || url.query().is_some() || url.fragment().is_some() {
                return Err(refused("has a server without a host, or with a query or a fragment"));
            }
            let path = url.path().trim_matches('/').to_owned();
            if !path.is_empty() && pool.replace(path.clone()).is_some_and(|other| other != path) {
                return Err(refused("its servers have different pools"));
            }
            url.set_path("");
            address.servers.push(url);
        }
        if let Some(pool) = pool {
            names::check_pool(&pool).map_err(|why| refused(&why))?;
            address.pool = pool;
        }
        Ok(address)
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.servers.iter().map(|url| url.as_str().trim_end_matches('/')).collect();
        write!(formatter, "{}/{}", servers.join(","), self.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, shown) in [
            ("nats://broker", "nats://broker/default"),
            ("tls://broker:4443/", "tls://broker:4443/default"),
            ("nats://a:1,b:2/load", "nats://a:1,nats://b:2/load"),
            ("nats://a/load,nats://[::1]:4222/load", "nats://a,nats://[::1]:4222/load"),
        ] {
            let address: BrokerAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse::<BrokerAddress>().unwrap(), address);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_no_login_is_shown() {
        for text in [
            "",
            "broker:4222",
            "ws://a",
            "nats://",
            "nats://a,tls://b",
            "nats://a/b.c",
            "nats://a/x,nats://b/y",
            "nats://a/>",
            "nats://a?x",
            "nats://a,",
            "nats://a:99999",
            "nats://a/*",
        ] {
            let why = text.parse::<BrokerAddress>().unwrap_err();
            assert!(why.contains("write nats://HOST"), "{why}");
        }
        for text in ["nats://me:geheim@a", "nats://geheim@a", "nats://a,me:geheim@b/x", "geheim@a"] {
            let why = text.parse::<BrokerAddress>().unwrap_err();
            assert!(!why.contains("geheim") && why.contains("credentials"), "{why}");
        }
    }
}
