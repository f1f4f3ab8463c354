//! Study files, from text to setups, without starting anything.

mod audits;
mod broken;
mod overrides;
mod random;
mod settings;
mod shipped;
mod steps;

use std::{fs, path::PathBuf};

use load::MachineLimits;
use study::Study;

/// A machine that is the same in every run.
const HOST: MachineLimits = MachineLimits::EXAMPLE;

/// The TOML files of a folder, relative to this crate's manifest.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Reads a study that has no mistakes.
fn read(text: &str) -> Study {
    study::file::read("folder/test.toml", text, &[], &HOST).unwrap_or_else(|mistakes| {
        panic!("{}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

/// The mistakes of a study, without the file's name.
fn mistakes(text: &str) -> Vec<String> {
    mistakes_with(text, &[])
}

/// The mistakes of a study with overrides.
fn mistakes_with(text: &str, overrides: &[(&str, &str)]) -> Vec<String> {
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let mistakes = study::file::read("f", text, &overrides, &HOST).err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().trim_start_matches("f:").to_owned()).collect()
}
