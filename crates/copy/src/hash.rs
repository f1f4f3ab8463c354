//! Hashes of chunks, here and there.
//!
//! `b2sum` is part of GNU coreutils, and as fast as one core reads. SSH already guards what is on the wire; these hashes guard disks and memory.

use std::{fs::File, io, os::unix::fs::FileExt};

use blake2::{Blake2b512, Digest};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// The hash of bytes, as `b2sum` prints it.
pub(crate) fn of(bytes: &[u8]) -> String {
    hex(&Blake2b512::digest(bytes))
}

/// The hash of a part of a file. A file that ends before is hashed until its end.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn of_part(file: &File, offset: u64, length: u64) -> io::Result<String> {
    let (mut hash, mut piece) = (Blake2b512::new(), vec![0; PIECE_BYTES]);
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let wanted = PIECE_BYTES.min((end - at) as usize);
        match file.read_at(&mut piece[..wanted], at) {
            Ok(0) => break,
            Ok(read) => {
                hash.update(&piece[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hex(&hash.finalize()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn hashes_are_those_of_b2sum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 1_000_003]).unwrap();
        let output = Command::new("b2sum").arg(&path).output().unwrap();
        let theirs = String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap().to_owned();
        let file = File::open(&path).unwrap();
        assert_eq!(of_part(&file, 0, 1_000_003).unwrap(), theirs);
        assert_eq!(of_part(&file, 0, 2_000_000).unwrap(), theirs);
        assert_eq!(of_part(&file, 3, 1_000).unwrap(), of(&[7; 1_000]));
    }
}
