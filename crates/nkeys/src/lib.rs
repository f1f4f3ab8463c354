//! Signs a NATS server's challenge with the seed from a file of credentials (`.creds`).
//!
//! It has the part of the crate `nkeys` 0.4 that `async-nats` uses, and replaces that crate in the workspace: the original
//! brings a second implementation of Ed25519 and twelve more crates, and the program already has ring's.

use std::fmt;

use data_encoding::BASE32_NOPAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// The five highest bits of a seed's first byte.
const SEED: u8 = 18 << 3;
/// The first byte of a user's public key, whose text therefore begins with `U`.
const USER: u8 = 20 << 3;
/// Length of a seed: two bytes for the kinds of key, 32 for the seed itself, two for the checksum.
const SEED_BYTES: usize = 36;

/// The keys of a user of a NATS server.
pub struct KeyPair(Ed25519KeyPair);

impl KeyPair {
    /// Reads a seed, such as `SUA…`.
    ///
    /// # Errors
    /// When the text is not the seed of a user, or its checksum is wrong.
    pub fn from_seed(seed: &str) -> Result<Self, Error> {
        let bytes = BASE32_NOPAD.decode(seed.as_bytes()).map_err(|_| Error("is not base32"))?;
        let bytes =
            <[u8; SEED_BYTES]>::try_from(bytes).map_err(|_| Error("does not have the length of a seed"))?;
        let (body, checksum) = bytes.split_at(SEED_BYTES - 2);
        if crc16(body).to_le_bytes() != checksum {
            return Err(Error("has a wrong checksum"));
        }
        let kind = (body[0] & 7) << 5 | body[1] >> 3;
        if body[0] & 0xf8 != SEED || kind != USER {
            return Err(Error("is not the seed of a user (`SU…`)"));
        }
        Ed25519KeyPair::from_seed_unchecked(&body[2..]).map(Self).map_err(|_| Error("is not a seed"))
    }

    /// The public key, such as `UA…`.
    pub fn public_key(&self) -> String {
        let mut bytes = vec![USER];
        bytes.extend_from_slice(self.0.public_key().as_ref());
        bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
        BASE32_NOPAD.encode(&bytes)
    }

    /// Signs these bytes.
    ///
    /// # Errors
    /// None; the original crate's function has an error.
    pub fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.sign(bytes).as_ref().to_vec())
    }
}

impl fmt::Debug for KeyPair {
    /// Shows only the public key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("KeyPair").field(&self.public_key()).finish()
    }
}

/// Why a seed is refused. The error does not contain the seed.
#[derive(Debug)]
pub struct Error(&'static str);

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the seed in the credentials {}", self.0)
    }
}

impl std::error::Error for Error {}

/// CRC-16/XMODEM, the checksum at the end of every NATS key.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that the documentation of async-nats and of nats-server shows.
    const SEED: &str = "SUAIO3FHUX5PNV2LQIIP7TZ3N4L7TX3W53MQGEIVYFIGA635OZCKEYHFLM";

    #[test]
    fn a_seed_gives_its_public_key_and_mistakes_are_named() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let pair = KeyPair::from_seed(SEED).unwrap();
        assert!(pair.public_key().starts_with('U') && pair.public_key().len() == 56);
        assert_eq!(pair.sign(b"nonce").unwrap().len(), 64);
        for (seed, why) in [
            ("", "length"),
            ("not base32!", "base32"),
            (&SEED.replace("IO", "IP"), "checksum"),
            (&pair.public_key(), "length"),
        ] {
            let refused = KeyPair::from_seed(seed).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(!format!("{pair:?}").contains(SEED));
    }
}
