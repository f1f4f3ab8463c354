//! Reads any text as a study file, with overrides behind the first NUL, `KEY=VALUE` a line: nothing panics, mistakes
//! have places, and what is read can be set up, every setting of it, and described.

use load::MachineLimits;

const HOST: MachineLimits = MachineLimits {
    hard_descriptors: 20_000,
    ports: 28_232,
    available_memory_bytes: 1 << 33,
    ..MachineLimits::EXAMPLE
};
/// Settings that are set up; the others were put together while the study was read.
const SET_UP: usize = 20;

/// Panics when a promise is broken; false for bytes that say nothing.
pub(super) fn check(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let (text, overrides) = text.split_once('\0').unwrap_or((text, ""));
    if leaves_the_file(text) || leaves_the_file(overrides) {
        return false;
    }
    let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    let overrides: Vec<(String, String)> = overrides.lines().filter_map(pair).collect();
    match study::file::read("study.toml", text, &overrides, &HOST) {
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            let lines = text.matches('\n').count() + 1;
            for mistake in mistakes {
                assert!(mistake.column > 0 && mistake.line > 0, "{mistake}");
                assert!(mistake.file == "--set" || mistake.line <= lines, "{mistake}");
            }
        }
        Ok(study) => {
            assert!(study.describe().lines().count() <= 60);
            assert!(!study.settings.is_empty());
            for (number, setting) in study.settings.iter().enumerate().take(SET_UP) {
                let load = study.search.as_ref().filter(|_| setting.searched).map(|search| search.max);
                study.setup(number, load).expect("reading has tried it");
            }
        }
    }
    true
}

/// Whether files would be read or names be looked up: bodies `@FILE`, and URLs with the name of a machine.
fn leaves_the_file(text: &str) -> bool {
    let here = ["http://127.0.0.1", "http://{"];
    let is_here = |rest: &str| {
        let value = rest.trim_start_matches([' ', '=', '"']);
        here.iter().any(|here| value.starts_with(here))
    };
    text.contains('@') || text.contains('\\') || text.split("url").skip(1).any(|rest| !is_here(rest))
}
