//! Changes to a copy of a result folder.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use record::{Ending, ResultFolder};

pub(super) const PLAN: &str = "plan.json";
pub(super) const ENVIRONMENT: &str = "environment.json";
pub(super) const TRIALS: &str = "trials.jsonl";
pub(super) const RESULT: &str = "result.json";

pub(super) fn put(copy: &Path, name: &str, text: &str) -> Result<()> {
    Ok(fs::write(copy.join(name), text)?)
}

pub(super) fn take(copy: &Path, name: &str) -> Result<()> {
    Ok(fs::remove_file(copy.join(name))?)
}

pub(super) fn foreign(copy: &Path, beside: &Path, from: &str, name: &str) -> Result<()> {
    fs::copy(beside.join(from).join(name), copy.join(name))?;
    Ok(())
}

pub(super) fn pipe(copy: &Path, name: &str) -> Result<()> {
    take(copy, name)?;
    ensure!(Command::new("mkfifo").arg(copy.join(name)).status()?.success(), "no pipe could be made");
    Ok(())
}

pub(super) fn device(copy: &Path, name: &str) -> Result<()> {
    take(copy, name)?;
    Ok(symlink("/dev/zero", copy.join(name))?)
}

pub(super) fn edit(copy: &Path, name: &str, change: impl FnOnce(&str) -> String) -> Result<()> {
    let text = fs::read_to_string(copy.join(name))?;
    let changed = change(&text);
    ensure!(changed != text, "nothing was changed");
    put(copy, name, &changed)
}

pub(super) fn file_lines(folder: &Path) -> Result<Vec<String>> {
    Ok(fs::read_to_string(folder.join(TRIALS))?.lines().map(str::to_owned).collect())
}

pub(super) fn lines(copy: &Path, change: impl FnOnce(&mut Vec<String>)) -> Result<()> {
    let mut lines = file_lines(copy)?;
    change(&mut lines);
    edit(copy, TRIALS, |_| lines.iter().map(|line| format!("{line}\n")).collect())
}

pub(super) fn cut(text: &str, bytes: usize) -> String {
    text[..text.len() - bytes].to_owned()
}

/// The text, with another first digit in the value after `key`.
pub(super) fn digit(text: &str, key: &str) -> String {
    let at = text.find(key).map_or(0, |at| at + key.len());
    let other = if text[at..].starts_with('7') { "8" } else { "7" };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

/// Makes the folder look as if the study had ended in this way after this many trials.
pub(super) fn half(copy: &Path, ending: Ending, trials: u64) -> Result<()> {
    let folder = ResultFolder::open(copy)?;
    let mut result = folder.read()?.result.context("it is finished")?;
    lines(copy, |lines| lines.truncate(trials as usize))?;
    (result.ending, result.trials) = (ending, trials);
    Ok(folder.write_result(&result)?)
}

pub(super) fn half_finished(copy: &Path) -> Result<()> {
    let all = file_lines(copy)?;
    half(copy, Ending::Finished, 3)?;
    lines(copy, |lines| lines.push(all[3].clone()))
}

/// A record without its checksum.
pub(super) fn unsealed(text: &str) -> String {
    format!("{{{}", &text[SEAL..])
}

/// A changed record with a matching checksum, as if another version had written it.
pub(super) fn resealed(text: &str, from: &str, to: &str) -> String {
    sealed(&text[SEAL..].replace(from, to))
}

/// Length of the part of a record that the checksum does not cover, in bytes.
pub(super) const SEAL: usize = "{\"crc32c\":\"00000000\",".len();

/// A complete record, made from everything after its checksum. Computes CRC-32C bit by bit (RFC 3720), with no code shared with proofload.
pub(in crate::bars::study_folders) fn sealed(rest: &str) -> String {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |sum, _| (sum >> 1) ^ if sum & 1 == 1 { 0x82F6_3B78 } else { 0 })
    });
    let sum = rest.bytes().fold(u32::MAX, |sum, byte| (sum >> 8) ^ table[usize::from(sum as u8 ^ byte)]);
    format!("{{\"crc32c\":\"{:08x}\",{rest}", !sum)
}
