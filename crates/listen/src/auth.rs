//! Authentication of clients.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use subtle::{Choice, ConstantTimeEq};

use crate::Credential;

/// The accepted values of `Authorization`.
#[derive(Debug)]
pub(crate) struct Authenticator {
    tokens: Vec<Vec<u8>>,
    users: Vec<Vec<u8>>,
}

impl Authenticator {
    /// Accepts these credentials. If there are none, accepts every request.
    pub(crate) fn new(credentials: &[Credential]) -> Self {
        let mut authenticator = Self { tokens: Vec::new(), users: Vec::new() };
        for credential in credentials {
            match credential {
                Credential::Bearer(token) => authenticator.tokens.push(token.clone().into_bytes()),
                Credential::Basic { user, password } => {
                    authenticator.users.push(BASE64.encode(format!("{user}:{password}")).into_bytes());
                }
            }
        }
        authenticator
    }

    /// Whether to accept a request with this value of `Authorization`. The time taken does not reveal which part of a
    /// secret was correct, but it may reveal the lengths of the secrets.
    pub(crate) fn accepts(&self, authorization: Option<&[u8]>) -> bool {
        if self.tokens.is_empty() && self.users.is_empty() {
            return true;
        }
        let Some(value) = authorization else { return false };
        let Some(space) = value.iter().position(|&byte| byte == b' ') else { return false };
        let (scheme, rest) = value.split_at(space);
        let secret = rest.trim_ascii();
        let known = match scheme {
            scheme if scheme.eq_ignore_ascii_case(b"bearer") => &self.tokens,
            scheme if scheme.eq_ignore_ascii_case(b"basic") => &self.users,
            _ => return false,
        };
        // Compares with every secret, so that the time does not reveal which one matches.
        known.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(secret)).into()
    }

    /// The value of `WWW-Authenticate` in a 401 (RFC 9110, 11.6.1).
    pub(crate) fn challenge(&self) -> &'static str {
        match (self.tokens.is_empty(), self.users.is_empty()) {
            (false, false) => "Bearer realm=\"proofload\", Basic realm=\"proofload\"",
            (true, _) => "Basic realm=\"proofload\"",
            (false, true) => "Bearer realm=\"proofload\"",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_a_secret_may_post() {
        let authenticator = Authenticator::new(&[
            Credential::Bearer("abc".into()),
            Credential::Basic { user: "Aladdin".into(), password: "open sesame".into() },
        ]);
        // The `Basic` value comes from RFC 7617, 2.
        for right in ["Bearer abc", "bearer  abc ", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="] {
            assert!(authenticator.accepts(Some(right.as_bytes())), "{right}");
        }
        for wrong in ["Bearer ab", "Bearer abcd", "Basic abc", "abc", "Bearer", "Basic QWxhZGRpbg=="] {
            assert!(!authenticator.accepts(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!authenticator.accepts(None));
        assert!(Authenticator::new(&[]).accepts(None));
    }
}
