//! Checksums of chunks that match those of `cksum`, and hashes for names.
//!
//! `cksum` is in POSIX, and GNU's version is as fast as memory. SSH already protects the data in transit. These
//! checksums protect it on disks and in memory, where faults are random: one in 2^32 faulty chunks would not be
//! detected.

use std::{
    fmt::{self, Display},
    fs::File,
    io,
    os::unix::fs::FileExt,
};

use blake2::{Blake2b512, Digest};
use crc32fast::Hasher;

/// Block size of `dd` for `cksum`, in bytes. Offsets must be multiples of it.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;
/// Size of one read from a file, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// The hash of bytes, for use as a unique name.
pub(crate) fn of(bytes: &[u8]) -> String {
    hex(&Blake2b512::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksum of bytes. It is displayed in the form of `cksum`: the CRC and the number of bytes.
///
/// Unlike `crc32fast`, `cksum` processes the bits of a byte in the opposite order, starts with 0 and appends the
/// length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum {
    /// The register of the CRC, with its bits in the opposite order.
    register: u32,
    pub(crate) bytes: u64,
}

impl Sum {
    /// The checksum of bytes. The bytes are overwritten.
    pub(crate) fn of(bytes: &mut [u8]) -> Self {
        let mut sum = Self::default();
        sum.add(bytes);
        sum
    }

    fn add(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
        let mut hasher = Hasher::new_with_initial(!self.register);
        hasher.update(bytes);
        self.register = !hasher.finalize();
        self.bytes += bytes.len() as u64;
    }

    /// The checksum of a range of a file. The end of the file may end the range early.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn of_part(file: &File, offset: u64, length: u64) -> io::Result<Self> {
        let (mut sum, mut piece) = (Self::default(), vec![0; PIECE_BYTES.min(length as usize)]);
        while sum.bytes < length {
            let wanted = PIECE_BYTES.min((length - sum.bytes) as usize);
            match file.read_at(&mut piece[..wanted], offset + sum.bytes) {
                Ok(0) => break,
                Ok(read) => sum.add(&mut piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sum)
    }

    /// The checksum of the bytes of `self` followed by those of `other`, computed from both checksums alone.
    pub(crate) fn followed_by(self, other: Self) -> Self {
        let mut hasher = Hasher::new_with_initial_len(self.register, self.bytes);
        hasher.combine(&Hasher::new_with_initial_len(other.register, other.bytes));
        Self { register: hasher.finalize(), bytes: self.bytes + other.bytes }
    }
}

impl Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut length = self.bytes.to_le_bytes();
        let used = (u64::BITS - self.bytes.leading_zeros()).div_ceil(8) as usize;
        let mut whole = *self;
        whole.add(&mut length[..used]);
        write!(f, "{} {}", (!whole.register).reverse_bits(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn sums_are_those_of_cksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for length in [0, 1, 255, 256, 70_000, 1_000_003] {
            let bytes: Vec<u8> =
                (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let output = Command::new("cksum").stdin(File::open(&path).unwrap()).output().unwrap();
            let theirs = String::from_utf8(output.stdout).unwrap();
            let file = File::open(&path).unwrap();
            let whole = Sum::of_part(&file, 0, length as u64).unwrap();
            assert_eq!(whole.to_string(), theirs.trim());
            assert_eq!(Sum::of_part(&file, 0, 2_000_000).unwrap(), whole);
            assert_eq!(Sum::of(&mut bytes.clone()), whole);
            let (front, back) = bytes.split_at(length / 3);
            assert_eq!(Sum::of(&mut front.to_vec()).followed_by(Sum::of(&mut back.to_vec())), whole);
            let other = Sum::of_part(&file, 3, length as u64 / 2).unwrap();
            assert!(other != whole || length == 0);
        }
    }
}
