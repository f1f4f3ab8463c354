//! Keys that prove who a controller or an agent is: Ed25519, one pair for each.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    str::FromStr,
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use files::{Folder, Trust};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};
use rustix::process::{getegid, geteuid, getgroups};
use rustls::{
    crypto::ring::sign::any_eddsa_type,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use crate::names;

/// Maximum size of a file with keys or credentials, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The bytes before an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A public key. As text: `ed25519:` and 32 bytes in base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// A pair of keys.
#[derive(Clone)]
pub struct Key {
    public: PublicKey,
    pub(crate) certified: Arc<CertifiedKey>,
}

/// Which key each agent has: the lines `NAME KEY` of a file, in which `*` in NAME stands for any characters, and `#`
/// begins a comment.
#[derive(Debug, Clone, Default)]
pub struct AgentKeys(Vec<(glob::Pattern, PublicKey)>);

impl Key {
    /// Makes a new key in a new file (PKCS#8 in PEM, mode 0600).
    ///
    /// # Errors
    /// When the file exists already, or cannot be written.
    pub fn create(path: &Path) -> Result<Self, String> {
        let cannot = |why: &dyn fmt::Display| format!("cannot make a key in {}: {why}", path.display());
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|error| cannot(&error))?;
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            BASE64_STANDARD.encode(&pkcs8)
        );
        let written = create_private(path, pem.as_bytes());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                cannot(&"the name is taken; choose another, or use the key that is there")
            }
            _ => cannot(&error),
        })?;
        Self::of(pkcs8.as_ref()).map_err(|why| cannot(&why))
    }

    /// Reads a key. Links are followed; the file that they lead to is checked.
    ///
    /// # Errors
    /// When the file cannot be read, is not an Ed25519 key in PKCS#8, or can be read or changed by other users.
    pub fn read(path: &Path) -> Result<Self, String> {
        let cannot = |why: &dyn fmt::Display| format!("cannot read the key {}: {why}", path.display());
        let pem = read_private(path).map_err(|error| cannot(&error))?;
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(&pem)
            .map_err(|_| cannot(&"it has no private key in PKCS#8 (PEM)"))?;
        Self::of(pkcs8.secret_pkcs8_der()).map_err(|why| cannot(&why))
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    fn of(pkcs8: &[u8]) -> Result<Self, String> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8)
            .map_err(|error| format!("it is not an Ed25519 key: {error}"))?;
        let public = <[u8; 32]>::try_from(pair.public_key().as_ref()).map_err(|error| error.to_string())?;
        let key =
            any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.to_vec())).map_err(|error| error.to_string())?;
        let spki = CertificateDer::from([&SPKI_PREFIX[..], &public].concat());
        Ok(Self { public: PublicKey(public), certified: Arc::new(CertifiedKey::new(vec![spki], key)) })
    }
}

impl fmt::Debug for Key {
    /// Shows only the public key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Key").field(&self.public).finish()
    }
}

impl PublicKey {
    /// The key in a SubjectPublicKeyInfo.
    pub(crate) fn of_spki(spki: &[u8]) -> Option<Self> {
        spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok().map(Self)
    }
}

impl FromStr for PublicKey {
    type Err = String;

    /// # Errors
    /// When the text is not a public key.
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.strip_prefix("ed25519:").and_then(|text| BASE64_STANDARD.decode(text).ok());
        let key = bytes.and_then(|bytes| bytes.try_into().ok());
        key.map(Self).ok_or_else(|| {
            format!("{text:?} is not a public key: write ed25519:BASE64, as the agent prints it")
        })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ed25519:{}", BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl AgentKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read, other users may write to it, or lines are wrong; the error names all of these lines.
    pub fn read(path: &Path) -> Result<Self, String> {
        let cannot =
            |why: &dyn fmt::Display| format!("cannot read the agents' keys in {}: {why}", path.display());
        let bytes = read_trusted(path, 0o022).map_err(|error| cannot(&error))?;
        let text = std::str::from_utf8(&bytes).map_err(|error| cannot(&error))?;
        Self::parse(text).map_err(|mistakes| {
            mistakes
                .iter()
                .map(|(line, why)| format!("{}:{line}: {why}", path.display()))
                .collect::<Vec<_>>()
                .join("\n")
        })
    }

    fn parse(text: &str) -> Result<Self, Vec<(usize, String)>> {
        let (mut keys, mut mistakes) = (Self::default(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let read = match words[..] {
                [] => continue,
                [name, _] if !names::is_pattern(name) => Err(format!("{name:?} is not a valid name")),
                [name, _] if keys.0.iter().any(|(known, _)| known.as_str() == name) => {
                    Err(format!("{name} already has a key"))
                }
                [name, key] => key
                    .parse()
                    .and_then(|key| Ok((glob::Pattern::new(name).map_err(|error| error.to_string())?, key))),
                _ => Err("expected NAME KEY".to_owned()),
            };
            match read {
                Ok(row) => keys.0.push(row),
                Err(why) => mistakes.push((index + 1, why)),
            }
        }
        if mistakes.is_empty() { Ok(keys) } else { Err(mistakes) }
    }

    /// The key of an agent: the one in the first line whose NAME matches.
    pub fn of(&self, name: &str) -> Option<PublicKey> {
        self.0.iter().find(|(pattern, _)| pattern.matches(name)).map(|row| row.1)
    }
}

/// Reads a file that holds a secret.
///
/// # Errors
/// When the file cannot be read, or other users can read or change it.
pub(crate) fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    read_trusted(path, 0o077)
}

fn read_trusted(path: &Path, forbidden: u32) -> io::Result<Vec<u8>> {
    let file = files::open(path)?;
    let about = file.metadata()?;
    // Root may give a file to a user through one of the user's groups, as Kubernetes gives secrets to pods.
    let is_given = about.uid() == 0 && !geteuid().is_root() && is_own_group(about.gid());
    let forbidden = if is_given { forbidden & !0o040 } else { forbidden };
    if !files::is_owned(&about) {
        return Err(io::Error::other(format!("it belongs to user {}", about.uid())));
    }
    if about.mode() & forbidden != 0 {
        return Err(io::Error::other("other users can read or change it: set its mode to 600"));
    }
    let mut bytes = Vec::new();
    let size = File::take(file, MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if size as u64 > MAX_FILE_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

fn is_own_group(group: u32) -> bool {
    let others = getgroups().unwrap_or_default();
    getegid().as_raw() == group || others.iter().any(|other| other.as_raw() == group)
}

fn create_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = Folder::open(parent, Trust::Anybody)?;
    let mut file = folder.create(name, 0o600)?;
    let written = file.write_all(contents).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(folder.remove(name)))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn keys_are_made_once_and_read_back_only_if_they_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = Key::create(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(Key::read(&path).unwrap().public(), key.public());
        assert!(Key::create(&path).unwrap_err().contains("is taken"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(Key::create(&link).is_err() && !folder.path().join("elsewhere").exists());
        assert!(!format!("{key:?}").contains("PRIVATE"));
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(Key::read(&path).unwrap_err().contains("set its mode to 600"));
        }
        for text in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let path = folder.path().join("wrong");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(Key::read(&path).is_err());
        }
    }

    #[test]
    fn public_keys_are_text() {
        let folder = tempfile::tempdir().unwrap();
        let key = Key::create(&folder.path().join("key")).unwrap().public();
        assert_eq!(key.to_string().parse(), Ok(key));
        for text in ["", "ed25519:", "ed25519:AAAA", "rsa:x", "ed25519:!"] {
            assert!(text.parse::<PublicKey>().unwrap_err().contains("not a public key"));
        }
    }

    #[test]
    fn the_first_line_that_means_an_agent_has_its_key() {
        let [one, two] = [1, 2].map(|byte| PublicKey([byte; 32]));
        let keys = AgentKeys::parse(&format!("# keys\n\nweb-1 {one} # the first\nweb-* {two}\n")).unwrap();
        assert_eq!([keys.of("web-1"), keys.of("web-22"), keys.of("db")], [Some(one), Some(two), None]);
        let mistakes = AgentKeys::parse(&format!("a\nb x\nc {one}\nc {two}\nd? {one}\n")).unwrap_err();
        assert_eq!(mistakes.iter().map(|mistake| mistake.0).collect::<Vec<_>>(), [1, 2, 4, 5]);
    }
}
