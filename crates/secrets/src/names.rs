//! Recognizes headers and query parameters that hold a secret by their names.

/// Words that mark a secret at any position in a name: `X-Auth-Token`, `client_secret`.
const WORDS: [&str; 17] = [
    "authorization",
    "cookie",
    "cookie2",
    "cookies",
    "token",
    "jwt",
    "bearer",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "passwort",
    "credential",
    "credentials",
    "signature",
    "apikey",
    "hmac",
];
/// Words that mark a secret only at the end of a name: `X-Auth-Key`, not `Key-Count`.
const LAST_WORDS: [&str; 6] = ["auth", "key", "pass", "pwd", "pat", "sid"];
/// Endings of the names of secrets without separators.
const SUFFIXES: [&str; 14] = [
    "apikey",
    "accesskey",
    "accesskeyid",
    "authkey",
    "privatekey",
    "secretkey",
    "accesstoken",
    "authtoken",
    "idtoken",
    "refreshtoken",
    "csrftoken",
    "clientsecret",
    "sessionid",
    "sessid",
];
/// Names without separators that look like those of secrets but are not.
const NOT_SECRET: [&str; 16] = [
    "idempotencykey",
    "secwebsocketkey",
    "surrogatekey",
    "cachekey",
    "xcachekey",
    "partitionkey",
    "sortkey",
    "routingkey",
    "rowkey",
    "publickey",
    "pagetoken",
    "nexttoken",
    "nextpagetoken",
    "continuationtoken",
    "xcontinuationtoken",
    "synctoken",
];
/// Minimum length, in characters, of a secret in the query parameter `key`. Shorter values are often lookup keys.
const MIN_KEY_CHARACTERS: usize = 16;

/// Whether a header of this name holds a secret.
pub fn is_secret_header(name: &str) -> bool {
    let words = words(name);
    let Some(last) = words.last() else { return false };
    let joined = words.concat();
    !NOT_SECRET.contains(&joined.as_str())
        // The path of a secret's file is not a secret.
        && !["file", "path"].contains(&last.as_str())
        && (words.iter().any(|word| WORDS.contains(&word.as_str()))
            || LAST_WORDS.contains(&last.as_str())
            || SUFFIXES.iter().any(|end| joined.ends_with(end)))
}

/// Whether a query parameter of this name and value holds a secret.
pub(crate) fn is_secret_parameter(name: &str, value: &str) -> bool {
    match name.to_ascii_lowercase().as_str() {
        "key" => value.chars().count() >= MIN_KEY_CHARACTERS,
        "sig" => true,
        _ => is_secret_header(name),
    }
}

/// The words of a name in lower case. Non-alphanumeric characters separate words, and a capital after a lower-case
/// letter begins a new word.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (before.is_ascii_lowercase() && c.is_ascii_uppercase()) {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric() {
            words.last_mut().expect("there is always one").push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "Cookie",
            "X-Api-Key",
            "X-APIKEY",
            "X-Auth-Token",
            "Private-Token",
            "X-Vault-Token",
            "Ocp-Apim-Subscription-Key",
            "X-Amz-Security-Token",
            "X-Hub-Signature-256",
            "X-Auth",
            "X-Session-Id",
            "X-Client-Secret",
            "X-CSRF-Token",
            "accessToken",
        ] {
            assert!(is_secret_header(name), "{name}");
        }
        for name in [
            "api_key",
            "apikey",
            "access_token",
            "sig",
            "signature",
            "X-Amz-Signature",
            "token",
            "password",
            "pwd",
            "client_secret",
            "accessToken",
            "AWSAccessKeyId",
            "jsessionid",
        ] {
            assert!(is_secret_parameter(name, "x"), "{name}");
        }
        assert!(is_secret_parameter("key", "AIzaSyA1234567890"));
    }

    #[test]
    fn other_names_stay_open() {
        for name in [
            "Host",
            "Accept",
            "User-Agent",
            "X-Request-Id",
            "Content-Type",
            "Idempotency-Key",
            "Sec-WebSocket-Key",
            "Keep-Alive",
            "X-Forwarded-For",
            "Cache-Control",
            "Origin",
            "ETag",
            "X-Author",
            "bearer_token_file",
            "WWW-Authenticate",
            "",
        ] {
            assert!(!is_secret_header(name), "{name}");
        }
        for name in
            ["page", "page_token", "nextPageToken", "max_tokens", "sort_key", "q", "id", "author", "keyword"]
        {
            assert!(!is_secret_parameter(name, "x"), "{name}");
        }
        assert!(!is_secret_parameter("key", "user-17"));
    }
}
