//! Study files: TOML that defines the measurement, the hosts, the loads and the goals.
//!
//! Reading a file finds all mistakes at once, each with its line and column. It resolves every setting, a search at both of its ends,
//! before anything starts. `docs/study.md` documents the keys.
//!
//! * [`read`]: reads a [`Study`] from text.
//! * [`StudyFile::setup`](crate::StudyFile::setup): makes the setup of one setting at one load.
//! * [`unreachable`]: the reason why no trial could miss a goal; also for goals of command lines.
//! * [`parse_bound`], [`parse_goal`], [`goal_parts`]: the bound of a goal, a goal, and its parts, also of command lines.
//! * [`keys`]: the rows of `[search]` and `[trial]`, also for command lines.

mod actions;
mod audits;
mod balancers;
mod checks;
mod command;
mod describe;
mod factors;
mod goals;
pub mod keys;
mod kind;
mod left_out;
mod length;
mod levels;
mod origin;
mod outline;
mod overrides;
mod placeholders;
mod programs;
mod resolver;
mod routing;
mod searches;
mod steps;
mod targets;
#[cfg(test)]
mod tests;
mod tuning;
mod validate;
mod workload;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use load::MachineLimits;
use self_cell::self_cell;
use settings::{Mistake, Reader};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

pub use goals::{goal_parts, parse_bound, parse_goal, unreachable};

use self::{levels::Levels, outline::Outline, overrides::Overrides, resolver::Resolver};
use crate::{
    machines::Placement,
    study::{Setup, Source, Study, StudyFile, Take, Wanted},
};

/// The complete input of a study.
struct Input {
    /// The file's path.
    name: String,
    text: String,
    overrides: Overrides,
    host: MachineLimits,
    /// Which machines the hosts are; none if they are made in a lab.
    placement: Option<Placement>,
}

/// The parsed form of the input.
struct Parsed<'t> {
    /// Reports mistakes with their positions; already holds those of the overrides.
    reader: Reader<'t>,
    /// The file with the overrides applied.
    tree: DeTable<'t>,
}

self_cell!(
    /// A study file, parsed once for all its settings.
    struct Document {
        owner: Input,
        #[covariant]
        dependent: Parsed,
    }
);

/// Reads a study file's text. `name` is the file's path for mistakes; relative paths in the study start at its
/// folder. `overrides` are pairs of a factor and its levels (`connections`, `50,100`) or of a key and its value
/// (`trial.repeats`, `3`), which replace those of the file. `host` is this machine.
///
/// # Errors
/// Every mistake, in the order of the file, followed by those of the overrides.
pub fn read(
    name: &str,
    text: &str,
    overrides: &[(String, String)],
    host: &MachineLimits,
) -> Result<Study, Vec<Mistake>> {
    read_placed(name, text, overrides, host, None)
}

/// Like [`read`], for a study whose hosts are machines. `host` is one of those that make the load. An empty placement serves to
/// find out which hosts there are.
///
/// # Errors
/// Those of [`read`], and what machines cannot be.
pub fn read_placed(
    name: &str,
    text: &str,
    overrides: &[(String, String)],
    host: &MachineLimits,
    placement: Option<&Placement>,
) -> Result<Study, Vec<Mistake>> {
    let overrides = Overrides::new(text, overrides);
    let placement = placement.cloned();
    let input = Input { name: name.to_owned(), text: text.to_owned(), overrides, host: *host, placement };
    let document = Arc::new(Document::try_new(input, |input| {
        let mut reader = Reader::new(&input.name, &input.text);
        let tree = reader.document(&input.text).into_inner();
        if reader.has_mistakes() {
            // Broken TOML causes further mistakes, which would only confuse the user.
            return finish(reader, None);
        }
        let tree = input.overrides.apply(&mut reader, tree);
        Ok(Parsed { reader, tree })
    })?);
    let (input, Parsed { reader, tree }) = (document.borrow_owner(), document.borrow_dependent());
    let mut reader = reader.clone();
    let outline = Outline::read(&mut reader, tree);
    let study = validate::study(&mut reader, input, tree, &outline, Source::File(document.clone()));
    finish(reader, study)
}

impl Input {
    /// The folder at which relative paths start.
    fn folder(&self) -> PathBuf {
        let folder = Path::new(&self.name).parent().unwrap_or(Path::new(""));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
    }
}

impl StudyFile for Document {
    fn each_setup(&self, study: &Study, wanted: &mut Wanted<'_>, take: &mut Take<'_>) {
        let Parsed { reader, tree } = self.borrow_dependent();
        // Mistakes here were already reported when the study was read, so a copy of the reader collects and drops them.
        let outline = Outline::read(&mut reader.clone(), tree);
        let resolver = Resolver::new(&mut reader.clone(), self.borrow_owner(), tree, &outline);
        for (number, load) in wanted {
            let setting = &study.settings[number];
            let levels = Levels::of(&outline.factors, &setting.levels, &resolver.folder);
            // Each setting gets a copy of the reader, so that it reports only its own mistakes.
            let mut reader = reader.clone();
            let resolved = resolver.resolve(&mut reader, &levels, load.filter(|_| setting.searched));
            if !take(number, finish(reader, resolved).map(|resolved| with_title(resolved.setup, study))) {
                break;
            }
        }
    }

    fn masked_text(&self) -> String {
        let Input { name, text, .. } = self.borrow_owner();
        // Use the text as written, without the overrides.
        let document = Reader::new(name, text).document(text).into_inner();
        let document = Spanned::new(0..0, DeValue::Table(document));
        let mut masked_values = Vec::new();
        // Mask the values of strings, not their spelling, because the file may use escapes. JSON strings are valid TOML.
        placeholders::for_each_text(&document, &mut |value, written| {
            let masked = secrets::mask(written);
            if masked != written {
                masked_values.push((value.span(), format!("{}", serde_json::Value::from(masked.as_ref()))));
            }
        });
        masked_values.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        let mut text = text.clone();
        masked_values.into_iter().for_each(|(span, masked)| text.replace_range(span, &masked));
        // Comments may contain secrets too.
        secrets::mask(&text).into_owned()
    }

    fn overrides(&self) -> Vec<(&str, &str)> {
        self.borrow_owner().overrides.written()
    }
}

/// Returns what was read, or the mistakes.
fn finish<T>(mut reader: Reader<'_>, read: Option<T>) -> Result<T, Vec<Mistake>> {
    if read.is_none() && !reader.has_mistakes() {
        reader.mistake(0..0, "this study cannot be read");
    }
    reader.finish(read).map(|read| read.expect("a study that cannot be read has a mistake"))
}

/// Replaces the title of the setup by the study's, which may have been masked after the setup was made.
fn with_title(setup: Setup, study: &Study) -> Setup {
    Setup { lab: setup.lab.map(|lab| lab::Plan { title: study.title.clone(), ..lab }), ..setup }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("name", &self.borrow_owner().name)
            .field("overrides", &self.overrides())
            .finish_non_exhaustive()
    }
}
