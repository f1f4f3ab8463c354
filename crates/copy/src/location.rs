//! Locations of files, in the syntax of scp.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use kernel::ssh::Login;

/// A source or a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A path of this machine.
    Local(PathBuf),
    /// A path on another machine. It is relative to the home folder there unless it begins with `/`.
    Remote {
        /// The machine.
        host: Login,
        /// The path in the other machine's encoding; `.` if none was given.
        path: Vec<u8>,
    },
}

impl Location {
    /// Parses `PATH`, `[USER@]HOST:[PATH]`, `scp://[USER@]HOST[:PORT][/PATH]` or the same with `sftp://`. As in scp, a
    /// word with a `/` before its first colon is a path on this machine.
    /// colon makes it a path on this machine.
    ///
    /// # Errors
    /// A message for the user, if the machine's name is missing or the port is invalid.
    pub fn parse(word: &OsStr) -> Result<Self, String> {
        let bytes = word.as_bytes();
        for scheme in ["scp://", "sftp://"] {
            if let Some(rest) = bytes.strip_prefix(scheme.as_bytes()) {
                return url(rest).map_err(|why| format!("{}: {why}", word.display()));
            }
        }
        let Some(colon) = colon(bytes) else { return Ok(Self::Local(PathBuf::from(word))) };
        let (login, path) = (&bytes[..colon], &bytes[colon + 1..]);
        let host = checked_login(login, None).map_err(|why| format!("{}: {why}", word.display()))?;
        let path = below_home(path).map_err(|why| format!("{}: {why}", word.display()))?;
        Ok(Self::Remote { host, path })
    }

    /// The location in the form that is shown to the user.
    pub fn in_words(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Remote { host, path } => format!("{}:{}", host.name(), shown(path)),
        }
    }
}

/// Position of the colon between machine and path; none if the word is a path.
fn colon(bytes: &[u8]) -> Option<usize> {
    // An IPv6 address is in brackets and contains colons itself.
    let begin = match bytes.iter().position(|byte| *byte == b'[') {
        Some(0) => bytes.iter().position(|byte| *byte == b']')?,
        Some(at) if bytes[at - 1] == b'@' => bytes.iter().position(|byte| *byte == b']')?,
        _ => 0,
    };
    let end = bytes[begin..].iter().position(|byte| matches!(byte, b':' | b'/'))? + begin;
    (bytes[end] == b':' && end > 0).then_some(end)
}

fn url(rest: &[u8]) -> Result<Location, String> {
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (machine, path) = (&rest[..slash], rest.get(slash + 1..).unwrap_or_default());
    let (login, port) = match machine.iter().rposition(|byte| *byte == b':') {
        Some(at) if !machine[at..].contains(&b']') => {
            let port = str::from_utf8(&machine[at + 1..]).ok().and_then(|port| port.parse().ok());
            (
                &machine[..at],
                Some(
                    port.filter(|port| *port > 0)
                        .ok_or("the text after the colon is not a port (1 to 65535)")?,
                ),
            )
        }
        _ => (machine, None),
    };
    let path = below_home(&decoded(path)?)?;
    Ok(Location::Remote { host: checked_login(login, port)?, path })
}

/// Decodes a percent-encoded path: `%41` becomes `A`.
fn decoded(path: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes
            .push(byte.ok_or("in a URL, two hexadecimal digits must follow '%'; write %25 for a plain '%'")?);
        rest = &rest[2..];
    }
    Ok(bytes)
}

/// The path that scp would send: relative paths start in the home folder, so a leading `~/` is removed.
fn below_home(path: &[u8]) -> Result<Vec<u8>, String> {
    let path: &[u8] = match path {
        [b'~'] => &[],
        [b'~', b'/', below @ ..] => &below[below.iter().take_while(|byte| **byte == b'/').count()..],
        [b'~', ..] => {
            return Err("~USER is not supported; write the whole path, or ./~NAME for a name \
                        that begins with '~'"
                .to_owned());
        }
        path => path,
    };
    Ok(if path.is_empty() { b"." } else { path }.to_vec())
}

/// Checks the user, the machine and the port. Removes the brackets around an IPv6 address.
fn checked_login(login: &[u8], port: Option<u16>) -> Result<Login, String> {
    let login = str::from_utf8(login).map_err(|_| "the name of the machine is not UTF-8".to_owned())?;
    let (user, name) = login.rsplit_once('@').map_or((None, login), |(user, name)| (Some(user), name));
    let name = name.trim_start_matches('[').trim_end_matches(']');
    Login::new(user, name, port)
        .map_err(|why| format!("{why}; write HOST:PATH, or ./NAME for a local file with a colon"))
}

/// A path for messages. Bytes that are not UTF-8 appear as `\xff`.
pub(crate) fn shown(path: &[u8]) -> String {
    let mut words = String::new();
    for chunk in path.utf8_chunks() {
        words += chunk.valid();
        chunk.invalid().iter().for_each(|byte| words += &format!("\\x{byte:02x}"));
    }
    if words.is_empty() { "''".to_owned() } else { words }
}

/// The bytes of a path as a name on this machine.
pub(crate) fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// The path of a name in a folder.
pub(crate) fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder {
        b"" => name.to_vec(),
        _ if folder.ends_with(b"/") => [folder, name].concat(),
        _ => [folder, b"/", name].concat(),
    }
}

/// The last component of a path; `None` if it is a folder without a name, such as `.`.
pub(crate) fn last_name(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let name = path[..end].rsplit(|byte| *byte == b'/').next()?;
    (!matches!(name, b"." | b"..")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(word: &str) -> Result<Location, String> {
        Location::parse(OsStr::new(word))
    }

    fn remote(login: &str, port: Option<u16>, path: &str) -> Result<Location, String> {
        let (user, name) = login.rsplit_once('@').map_or((None, login), |(user, name)| (Some(user), name));
        let host = Login::new(user, name, port).unwrap();
        Ok(Location::Remote { host, path: path.as_bytes().to_vec() })
    }

    #[test]
    fn names_in_words_differ_where_names_do() {
        assert_eq!(shown("a\u{f6}".as_bytes()), "a\u{f6}");
        assert_eq!(shown(b"non\xff\xfeutf"), "non\\xff\\xfeutf");
        assert_eq!(shown(b""), "''");
    }

    #[test]
    fn words_mean_what_they_mean_to_scp() {
        assert_eq!(parse("a/b:c"), Ok(Location::Local("a/b:c".into())));
        assert_eq!(parse("./a:b"), Ok(Location::Local("./a:b".into())));
        assert_eq!(parse(":a"), Ok(Location::Local(":a".into())));
        assert_eq!(parse("web:"), remote("web", None, "."));
        assert_eq!(parse("me@web:a b:c"), remote("me@web", None, "a b:c"));
        assert_eq!(parse("me@[fe80::1]:/x"), remote("me@fe80::1", None, "/x"));
        assert_eq!(parse("[::1]:x"), remote("::1", None, "x"));
        assert_eq!(parse("scp://me@web:22/a%20b"), remote("me@web", Some(22), "a b"));
        assert_eq!(parse("sftp://web//etc"), remote("web", None, "/etc"));
        assert_eq!(parse("scp://web"), remote("web", None, "."));
        assert_eq!(parse("web:~"), remote("web", None, "."));
        assert_eq!(parse("web:~//a/~b"), remote("web", None, "a/~b"));
        assert_eq!(parse("scp://web/~/"), remote("web", None, "."));
        assert_eq!(parse("web:./~b"), remote("web", None, "./~b"));
        for wrong in [
            "scp://web:x/a",
            "scp://web:0/",
            "@:a",
            "me@:a",
            "-oProxyCommand=x:a",
            "me@-x:a",
            "scp://web/%4",
            "web:~me/a",
            "$(id):a",
            "a'b:x",
            "me;x@web:a",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
