//! Files with the credentials of clients. Secrets are not options, because every user can read a command line.

use std::path::Path;

use ::secrets::reference::{Lines, read_lines};
use listen::Credential;
use record::input::each_line;

/// Parses a line of a file with secrets. The error must not contain the line.
pub(super) type Reader = fn(&str) -> Result<Credential, &'static str>;

/// The secrets in a file.
#[derive(Debug)]
pub(super) struct Secrets {
    pub credentials: Vec<Credential>,
    /// A warning about the file itself.
    pub warning: Option<String>,
}

/// Reads a file with one secret per line. Skips empty lines and lines that begin with `#`.
///
/// # Errors
/// Names the file and every invalid line by number; the text of a line stays out of the message, because it is a secret.
pub(super) fn read(path: &Path, read_line: Reader) -> Result<Secrets, String> {
    let Lines { lines, warning } = read_lines(path)?;
    let credentials = each_line(path.display(), lines, |line| read_line(&line?).map_err(str::to_owned))?;
    if credentials.is_empty() {
        return Err(format!("{} has no token or password: add at least one", path.display()));
    }
    Ok(Secrets { credentials, warning })
}

/// Parses a bearer token.
pub(super) fn bearer(line: &str) -> Result<Credential, &'static str> {
    // The characters of `b64token` in RFC 6750.
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    if line.chars().all(is_valid) {
        Ok(Credential::Bearer(line.to_owned()))
    } else {
        Err("a token has only letters, digits and -._~+/=")
    }
}

/// Parses `NAME:PASSWORD`.
pub(super) fn basic(line: &str) -> Result<Credential, &'static str> {
    let (user, password) = line.split_once(':').ok_or("expected NAME:PASSWORD")?;
    if user.is_empty() || password.is_empty() {
        return Err("neither the name nor the password may be empty");
    }
    if ["$2y$", "$2b$", "$2a$", "$apr1$", "$5$", "$6$", "{SHA}"].iter().any(|hash| password.starts_with(hash))
    {
        return Err(
            "hashed passwords are not supported; write the password itself into a file that only this user can read",
        );
    }
    Ok(Credential::Basic { user: user.to_owned(), password: password.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn read_text(text: &str, mode: u32, line: Reader) -> Result<Secrets, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        read(&path, line)
    }

    #[test]
    fn secrets_are_read_line_by_line() {
        let secrets = read_text("# who\n\nabc\n d.e= \n", 0o600, bearer).unwrap();
        assert!(secrets.warning.is_none());
        assert!(secrets.credentials == [Credential::Bearer("abc".into()), Credential::Bearer("d.e=".into())]);
        let secrets = read_text("ann:a:b\n", 0o644, basic).unwrap();
        assert!(secrets.warning.unwrap().contains("chmod o-r"));
        assert!(secrets.credentials == [Credential::Basic { user: "ann".into(), password: "a:b".into() }]);
    }

    #[test]
    fn mistakes_name_the_line_and_keep_the_secret() {
        for (text, line, why) in [
            ("ok\nse cret", bearer as Reader, ":2: a token has"),
            ("secret", basic, ":1: expected NAME:PASSWORD"),
            ("secret:", basic, "may be empty"),
            ("a b\nok\nc d", bearer, ":3: a token has"),
            ("ann:a\n\nbob\n:b", basic, ":4: neither the name"),
            // A lone carriage return, the line end of classic Mac OS, would turn the file into one user with a long
            // password.
            ("ann:secret\rbob:pw\n", basic, ":1: it has a control character"),
            ("ann:sec\u{b}ret\n", basic, ":1: it has a control character"),
            ("\u{feff}\u{feff}ann:secret\n", basic, ":1: it has a control character or a byte order mark"),
            ("ann:sec\u{1}ret\nbob\n", basic, ":1: it has a control character"),
            ("ann:sec\u{1}ret\nbob\n", basic, ":2: expected NAME:PASSWORD"),
            ("a\u{1}\nok\na b\n", bearer, ":3: a token has"),
            ("ann:$2y$05$secret", basic, "hashed passwords"),
            ("# secret", bearer, "has no token or password"),
        ] {
            let error = read_text(text, 0o600, line).unwrap_err();
            assert!(
                error.contains(why) && !error.replace("proofload-secrets", "").contains("secret\n"),
                "{error}"
            );
            assert!(!error.contains("$2y$05$") && !error.contains("se cret"), "{error}");
        }
    }
}
