//! Fingerprints of secrets. Within one folder, equal secrets have equal fingerprints. Guessing is the only way to find
//! the secret of a fingerprint.
//!
//! PBKDF2 with HMAC-SHA-256, 100,000 iterations, salted: a guess takes about 50 ms of processor time, and guesses for
//! one folder do not help with another. This protects random secrets (tokens, keys), but not one of the million most
//! common passwords.

use std::num::NonZeroU32;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use ring::{
    pbkdf2,
    rand::{SecureRandom, SystemRandom},
};

const ITERATIONS: NonZeroU32 = NonZeroU32::new(100_000).expect("it is not 0");
const BYTES: usize = 16;

/// Draws a random salt.
///
/// # Errors
/// When the system provides no random numbers.
pub fn draw_salt() -> Result<String, String> {
    let mut salt = [0; BYTES];
    let drawn = SystemRandom::new().fill(&mut salt);
    drawn.map_err(|_| {
        "this system provides no random numbers, which fingerprints of secrets need".to_owned()
    })?;
    Ok(BASE64.encode(salt))
}

/// The fingerprint of a secret, in base64. `what` names the use of the secret, so that equal secrets with different
/// uses have different fingerprints.
pub fn derive(salt: &str, what: &str, secret: &str) -> String {
    let mut fingerprint = [0; BYTES];
    let salt = format!("{salt} {what}");
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        ITERATIONS,
        salt.as_bytes(),
        secret.as_bytes(),
        &mut fingerprint,
    );
    BASE64.encode(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_depends_on_all_it_is_of() {
        let fingerprint = derive("salt", "header Cookie", "secret");
        assert_eq!(fingerprint, derive("salt", "header Cookie", "secret"));
        for other in [
            derive("other", "header Cookie", "secret"),
            derive("salt", "header X-Api-Key", "secret"),
            derive("salt", "header Cookie", "Secret"),
        ] {
            assert_ne!(fingerprint, other);
        }
        assert_ne!(draw_salt().unwrap(), draw_salt().unwrap());
    }
}
