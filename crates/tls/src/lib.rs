//! TLS 1.2 and 1.3 on non-blocking streams, for clients and servers.
//!
//! A [`Session`] encrypts and decrypts; the caller owns the stream and waits for it. [`Failure`] tells why a session
//! cannot continue, in the classes that a load test must distinguish. [`Offer`] lists the versions and ciphers that a
//! side offers. [`Identity`] is a certificate with its key, read from files or created by an [`Authority`].
//!
//! ```
//! use std::{io::{Read, Write}, os::unix::net::UnixStream, sync::Arc};
//! use tls::{Authority, Offer, Session, Validity};
//!
//! let authority = Authority::new("example authority")?;
//! let identity = authority.certify(&["localhost"], Validity::default())?;
//! let server = Arc::new(Offer::default().server(identity, None)?);
//! let client = Offer::default().client_builder()?.with_root_certificates(authority.roots()?).with_no_client_auth();
//! let (mut near, mut far) = UnixStream::pair()?;
//! near.set_nonblocking(true)?;
//! far.set_nonblocking(true)?;
//!
//! let mut client = Session::client(Arc::new(client), "localhost".try_into()?)?;
//! let mut server = Session::server(server)?;
//! while !client.handshake(&mut near)? | !server.handshake(&mut far)? {}
//! client.send(&mut near, b"hello")?;
//! let mut buffer = [0; 4096];
//! assert_eq!(server.receive(&mut far, &mut buffer)?, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod authority;
mod failure;
mod files;
mod offer;
mod session;
mod unverified;

pub use self::files::{Identity, read_roots, read_system_roots};
pub use authority::{Authority, Validity};
pub use failure::{Failure, certificate_fault, identity_fault};
pub use offer::{CIPHERS, Cipher, ConfigError, Offer, Version};
pub use session::Session;
pub use unverified::AnyCertificate;
