//! The server's first packet: its protocol version and the extensions that it offers.

use crate::{Error, fields::Fields};

/// The protocol version of this crate.
pub(crate) const VERSION: u32 = 3;

/// An extension for which this crate has requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extension {
    /// `limits@openssh.com`: maximum sizes of packets, READs and WRITEs.
    Limits,
    /// `fsync@openssh.com`: writes a file to the disk.
    Fsync,
    /// `posix-rename@openssh.com`: a rename that atomically replaces an existing file.
    PosixRename,
    /// `lsetstat@openssh.com`: sets attributes of a path itself, even if it is a link.
    Lsetstat,
}

impl Extension {
    /// All known extensions.
    pub const ALL: [Extension; 4] =
        [Extension::Limits, Extension::Fsync, Extension::PosixRename, Extension::Lsetstat];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Extension::Limits => "limits@openssh.com",
            Extension::Fsync => "fsync@openssh.com",
            Extension::PosixRename => "posix-rename@openssh.com",
            Extension::Lsetstat => "lsetstat@openssh.com",
        }
    }
}

/// The known extensions that a server offers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Server {
    /// The version of each extension, in the order of [`Extension::ALL`].
    versions: [Option<u32>; Extension::ALL.len()],
}

impl Server {
    /// Whether the server offers version 1 of an extension, the only version that this crate supports.
    pub fn has(&self, extension: Extension) -> bool {
        self.versions[extension as usize] == Some(1)
    }
}

/// The VERSION packet.
#[derive(Clone, Debug)]
pub struct Version<'a> {
    /// Pairs of strings, already checked by [`Version::read`].
    pairs: Fields<'a>,
}

impl<'a> Version<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut fields = Fields::new("VERSION", bytes);
        let version = fields.u32("version")?;
        if version != VERSION {
            return Err(Error::OtherVersion { version });
        }
        let pairs = fields.clone();
        while !fields.rest().is_empty() {
            pair(&mut fields)?;
        }
        Ok(Version { pairs })
    }

    /// Name and data of every extension, in the server's order. In OpenSSH, the data is a version in decimal digits.
    pub fn extensions(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut pairs = self.pairs.clone();
        std::iter::from_fn(move || pair(&mut pairs).ok())
    }

    /// The known extensions that the server offers. If the server names one several times, the last one counts.
    pub fn server(&self) -> Server {
        let mut server = Server::default();
        for (name, data) in self.extensions() {
            if let Some(known) = Extension::ALL.iter().find(|known| known.name().as_bytes() == name) {
                server.versions[*known as usize] =
                    std::str::from_utf8(data).ok().and_then(|data| data.parse().ok());
            }
        }
        server
    }
}

fn pair<'a>(fields: &mut Fields<'a>) -> Result<(&'a [u8], &'a [u8]), Error> {
    Ok((fields.string("extension name")?, fields.string("extension data")?))
}
