//! Fingerprints of secrets: the same secret in the same folder has the same, and from a fingerprint a secret can only
//! be guessed.
//!
//! PBKDF2 with HMAC-SHA-256, 100,000 rounds, salted: a guess costs some 50 ms of a processor, and nothing that was
//! computed for another folder helps. That keeps drawn secrets (tokens, keys) safe, and not a password that is among
//! the first million anybody would try.

use std::num::NonZeroU32;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use ring::{
    pbkdf2,
    rand::{SecureRandom, SystemRandom},
};

const ROUNDS: NonZeroU32 = NonZeroU32::new(100_000).expect("it is not 0");
const BYTES: usize = 16;

/// A salt, drawn anew.
///
/// # Errors
/// When this machine gives no random numbers.
pub fn salt() -> Result<String, String> {
    let mut salt = [0; BYTES];
    let drawn = SystemRandom::new().fill(&mut salt);
    drawn
        .map_err(|_| "this machine gives no random numbers, which fingerprints of secrets need".to_owned())?;
    Ok(BASE64.encode(salt))
}

/// The fingerprint of a secret, in base64. `what` says what it is, so that the same word at two places cannot be seen
/// to be the same.
pub fn of(salt: &str, what: &str, secret: &str) -> String {
    let mut print = [0; BYTES];
    let salt = format!("{salt} {what}");
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, salt.as_bytes(), secret.as_bytes(), &mut print);
    BASE64.encode(print)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_depends_on_all_it_is_of() {
        let print = of("salt", "header Cookie", "secret");
        assert_eq!(print, of("salt", "header Cookie", "secret"));
        for other in [
            of("other", "header Cookie", "secret"),
            of("salt", "header X-Api-Key", "secret"),
            of("salt", "header Cookie", "Secret"),
        ] {
            assert_ne!(print, other);
        }
        assert_ne!(salt().unwrap(), salt().unwrap());
    }
}
