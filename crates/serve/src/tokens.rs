//! Login tokens. Each identifies its login, and clients can neither forge nor change one.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::{hmac, rand::SystemRandom};

/// Issues and checks tokens. A token is `LOGIN.EXPIRY.USER.SEAL`: the number of its login, its expiry (nanoseconds of
/// CLOCK_MONOTONIC), the user's name and the HMAC in base64url.
#[derive(Debug)]
pub(crate) struct Tokens {
    key: hmac::Key,
    lifetime_ns: u64,
    logins: AtomicU64,
}

/// A successful login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Login {
    /// The login's number, starting at 1, unique within the target.
    pub number: u64,
    pub user: String,
    /// When the token expires, in nanoseconds of CLOCK_MONOTONIC.
    pub expires_ns: u64,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// This target did not issue the token.
    Invalid,
    /// The token has expired.
    Expired,
}

impl Tokens {
    /// Creates a random key, so tokens of other targets are invalid here.
    pub(crate) fn new(lifetime_ns: u64) -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self { key: key.expect("the kernel gives random bytes"), lifetime_ns, logins: AtomicU64::new(0) }
    }

    /// Logs in a user. Returns the login and its token.
    pub(crate) fn log_in(&self, user: &str, now_ns: u64) -> (Login, String) {
        let number = self.logins.fetch_add(1, Ordering::Relaxed) + 1;
        let login =
            Login { number, user: user.to_owned(), expires_ns: now_ns.saturating_add(self.lifetime_ns) };
        let told = format!("{number}.{}.{}", login.expires_ns, BASE64.encode(user));
        let seal = BASE64.encode(hmac::sign(&self.key, told.as_bytes()));
        (login, format!("{told}.{seal}"))
    }

    /// Verifies a token and returns its login.
    pub(crate) fn check(&self, token: &str, now_ns: u64) -> Result<Login, TokenError> {
        let login = self.read(token).ok_or(TokenError::Invalid)?;
        if login.expires_ns <= now_ns { Err(TokenError::Expired) } else { Ok(login) }
    }

    fn read(&self, token: &str) -> Option<Login> {
        let (told, seal) = token.rsplit_once('.')?;
        hmac::verify(&self.key, told.as_bytes(), &BASE64.decode(seal).ok()?).ok()?;
        let (number, rest) = told.split_once('.')?;
        let (expires_ns, user) = rest.split_once('.')?;
        let user = String::from_utf8(BASE64.decode(user).ok()?).ok()?;
        Some(Login { number: number.parse().ok()?, user, expires_ns: expires_ns.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_tells_its_login_until_it_expires(user in ".*", now in 0_u64..1 << 60, later in 0_u64..200) {
            let tokens = Tokens::new(100);
            let (login, token) = tokens.log_in(&user, now);
            prop_assert_eq!(&login.user, &user);
            prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)));
            let expected = if later < 100 { Ok(login) } else { Err(TokenError::Expired) };
            prop_assert_eq!(tokens.check(&token, now + later), expected);
            prop_assert_eq!(Tokens::new(100).check(&token, now), Err(TokenError::Invalid));
        }

        #[test]
        fn a_changed_token_is_invalid(user in "[a-z]{0,9}", at in any::<prop::sample::Index>(), byte in "[a-zA-Z0-9._-]") {
            let tokens = Tokens::new(100);
            let (_, token) = tokens.log_in(&user, 7);
            let at = at.index(token.len());
            let mut changed = token.clone();
            changed.replace_range(at..=at, &byte);
            prop_assert_eq!(tokens.check(&changed, 7).is_ok(), changed == token);
        }

        #[test]
        fn no_text_makes_a_panic(token in ".*") {
            prop_assert_eq!(Tokens::new(100).check(&token, 7), Err(TokenError::Invalid));
        }
    }
}
