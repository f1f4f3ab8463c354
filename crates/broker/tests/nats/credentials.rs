//! A server's operator, an account and a user, as `nsc` makes them (NATS JWT, version 2).

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use data_encoding::BASE32_NOPAD;
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
};

/// Credentials of a user, and the part of a server's configuration that accepts them.
pub(crate) struct Credentials {
    pub(crate) config: String,
    /// The file of the user.
    pub(crate) file: String,
    pub(crate) seed: String,
}

impl Credentials {
    pub(crate) fn new() -> Self {
        let (operator, account, user) = (Signer::new('O'), Signer::new('A'), Signer::new('U'));
        let operator_jwt = operator.sign(&operator, r#""nats":{"type":"operator","version":2}"#);
        let limits = r#""subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1"#;
        let account_jwt = operator
            .sign(&account, &format!(r#""nats":{{"limits":{{{limits}}},"type":"account","version":2}}"#));
        let user_jwt = account.sign(
            &user,
            r#""nats":{"pub":{},"sub":{},"subs":-1,"data":-1,"payload":-1,"type":"user","version":2}"#,
        );
        let config = format!(
            "operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload: {{ {}: {account_jwt} }}",
            account.public
        );
        let file = format!(
            "-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            user.seed
        );
        Self { config, file, seed: user.seed }
    }
}

struct Signer {
    pair: ring::signature::Ed25519KeyPair,
    public: String,
    seed: String,
}

impl Signer {
    /// `kind`: the letter with which its public key begins.
    fn new(kind: char) -> Self {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).unwrap();
        let pair = ring::signature::Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
        let prefix = match kind {
            'O' => 14 << 3,
            'A' => 0,
            _ => 20 << 3,
        };
        let public = ring::signature::KeyPair::public_key(&pair).as_ref().to_vec();
        Self {
            pair,
            public: encoded([vec![prefix], public].concat()),
            seed: encoded([vec![18 << 3 | prefix >> 5, (prefix & 31) << 3], seed.to_vec()].concat()),
        }
    }

    fn sign(&self, about: &Self, claims: &str) -> String {
        let body = |id: &str| {
            format!(
                r#"{{"jti":"{id}","iat":1700000000,"iss":"{}","name":"test","sub":"{}",{claims}}}"#,
                self.public, about.public
            )
        };
        let id = BASE32_NOPAD.encode(digest(&SHA256, body("").as_bytes()).as_ref());
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#), encode(&body(&id)));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

/// With the checksum (CRC-16/XMODEM), in base32.
fn encoded(mut bytes: Vec<u8>) -> String {
    let mut crc = 0_u16;
    for byte in &bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    bytes.extend(crc.to_le_bytes());
    BASE32_NOPAD.encode(&bytes)
}
