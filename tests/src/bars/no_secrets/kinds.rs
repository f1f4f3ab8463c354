//! The secrets to search for, and the forms in which they may appear.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

/// The name of a secret in this test, the secret, and the form in which the target receives it.
pub(in crate::bars) type Kind = (&'static str, &'static str, Heard);

pub(in crate::bars) enum Heard {
    /// Unchanged.
    Plain,
    /// In base64, after this user name.
    Basic(&'static str),
    /// In the URL, encoded like this.
    Encoded(&'static str),
}

pub(in crate::bars) const KINDS: [Kind; 13] = [
    ("user info of the URL", "pa@ss/URL-INFO-1", Heard::Basic("ann")),
    ("?api_key=", "key/QUERY-2", Heard::Encoded("key%2FQUERY-2")),
    ("?access_token=", "token&QUERY-3", Heard::Encoded("token%26QUERY-3")),
    ("?sig=", "sign=QUERY-4", Heard::Encoded("sign%3dQUERY-4")),
    ("Proxy-Authorization", "PROXY-SECRET-5", Heard::Basic("proxy")),
    ("Cookie", "COOKIE-SECRET-6", Heard::Plain),
    ("X-Api-Key", "APIKEY-SECRET-7", Heard::Plain),
    ("X-Auth-Token", "TOKEN-SECRET-8", Heard::Plain),
    ("-H @FILE", "FILE-SECRET-9", Heard::Plain),
    ("${NAME}", "ENV\"SECRET/10", Heard::Plain),
    ("Authorization: Bearer", "BEARER-SECRET-11", Heard::Plain),
    ("Authorization: Basic", "BASIC-SECRET-12", Heard::Basic("bob")),
    ("a URL in ${NAME}", "PATH-SECRET-13", Heard::Plain),
];

/// The form in which the target receives a secret.
pub(in crate::bars) fn heard_of((_, secret, heard): &Kind) -> String {
    match heard {
        Heard::Plain => (*secret).to_owned(),
        Heard::Basic(user) => BASE64.encode(format!("{user}:{secret}")),
        Heard::Encoded(text) => (*text).to_owned(),
    }
}

/// All forms in which a secret may appear.
pub(in crate::bars) fn forms(kind: &Kind) -> BTreeSet<String> {
    let secret = kind.1;
    let encoded: String = secret
        .bytes()
        .map(|byte| match byte {
            b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let base64 = BASE64.encode(secret);
    [
        secret.to_owned(),
        secret.replace('"', "\\\""),
        secret.replace('"', "&quot;").replace('&', "&amp;"),
        encoded.replace("%2F", "%2f").replace("%3D", "%3d"),
        encoded,
        base64.trim_end_matches('=').to_owned(),
        heard_of(kind),
    ]
    .into()
}
