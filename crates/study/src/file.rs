//! A study file: TOML that says what is measured, where, under which loads, and what must hold.
//!
//! All mistakes are found in one go, each with its line and column: every setting of the study is put together
//! as it will be run, a search at both of its ends, before anything is started. The keys are in `docs/study.md`.
//!
//! * [`read`]: text to [`Study`].
//! * [`StudyFile::setup`](crate::StudyFile::setup): what one setting needs at one load.
//! * [`schema`]: the file's JSON Schema, for editors.
//! * [`parse_bound`]: the bound of a goal, also for command lines.

mod audits;
mod checks;
mod command;
mod describe;
mod factors;
mod goals;
mod ground;
mod kind;
mod length;
mod levels;
mod outline;
mod overrides;
mod places;
mod programs;
mod schema;
mod searches;
mod targets;
mod trying;
mod wiring;
mod workload;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use load::Host;
use settings::{Mistake, Reader};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

pub use goals::parse_bound;
pub use schema::schema;

use self::{ground::Ground, levels::Levels, outline::Outline, overrides::Overrides};
use crate::study::{Setup, Study, StudyFile, Take, Wanted};

/// A study file's text, and all else that decides what its settings are.
#[derive(Clone)]
pub struct Document {
    name: String,
    text: String,
    overrides: Vec<(String, String)>,
    host: Host,
}

/// Reads a study file's text. `name` is the file's path, as it is told in mistakes; files that the study names by
/// relative paths lie beside it. `overrides` are pairs of a factor and its levels (`connections`, `50,100`) or of a
/// key and its value (`trial.repeats`, `3`), which take the place of the file's. `host` is this machine.
///
/// # Errors
/// Every mistake, in the order of the file, those of the overrides behind it.
pub fn read(
    name: &str,
    text: &str,
    overrides: &[(String, String)],
    host: &Host,
) -> Result<Study, Vec<Mistake>> {
    let document =
        Document { name: name.to_owned(), text: text.to_owned(), overrides: overrides.to_vec(), host: *host };
    document.parsed(|reader, tree| {
        let outline = Outline::read(reader, tree);
        trying::study(reader, &document, tree, &outline)
    })
}

impl Document {
    /// The folder that relative paths begin at.
    fn folder(&self) -> PathBuf {
        let beside = Path::new(&self.name).parent().unwrap_or(Path::new(""));
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        std::path::absolute(beside).unwrap_or_else(|_| beside.to_owned())
    }

    /// Lets `then` read the document with the overrides in their places, unless it is no TOML.
    fn parsed<T>(
        &self,
        then: impl for<'d> FnOnce(&mut Reader<'d>, &'d DeTable<'d>) -> Option<T>,
    ) -> Result<T, Vec<Mistake>> {
        let overrides = Overrides::new(&self.text, &self.overrides);
        let mut reader = Reader::new(&self.name, &self.text);
        let document = reader.document(&self.text);
        if reader.has_mistakes() {
            // What is guessed behind a mistake in TOML itself would only confuse.
            return match reader.end(()) {
                Err(mistakes) => Err(mistakes),
                Ok(()) => Err(Vec::new()),
            };
        }
        let tree = overrides.put(&mut reader, document.into_inner());
        let read = then(&mut reader, &tree);
        ended(reader, read)
    }
}

impl StudyFile for Document {
    fn each_setup(&self, study: &Study, wanted: &mut Wanted<'_>, take: &mut Take<'_>) {
        let _: Result<(), _> = self.parsed(|reader, tree| {
            let outline = Outline::read(reader, tree);
            let ground = Ground::new(reader, self, tree, &outline);
            for (number, load) in wanted {
                let setting = &study.settings[number];
                let levels = Levels::of(&outline.factors, &setting.levels, &ground.folder);
                // The mistakes of each are told without those of the others.
                let mut reader = reader.clone();
                let setup = ground.setup(&mut reader, &levels, load.filter(|_| setting.searched));
                if !take(number, ended(reader, setup).map(|setup| titled(setup, study))) {
                    break;
                }
            }
            Some(())
        });
    }

    fn masked_text(&self) -> String {
        let mut text = self.text.clone();
        let mut reader = Reader::new(&self.name, &self.text);
        let document = Spanned::new(0..0, DeValue::Table(reader.document(&self.text).into_inner()));
        let mut places = Vec::new();
        // What a text of the file stands for, whatever escapes it is written with. JSON's texts are TOML's too.
        places::each_text(&document, &mut |value, written| {
            let masked = secrets::mask(written);
            if masked != written {
                places.push((value.span(), format!("{}", serde_json::Value::from(masked.as_ref()))));
            }
        });
        places.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        places.into_iter().for_each(|(span, masked)| text.replace_range(span, &masked));
        // And what comments say.
        secrets::mask(&text).into_owned()
    }

    fn overrides(&self) -> &[(String, String)] {
        &self.overrides
    }
}

/// Ends with what was read, or with the mistakes: who finds nothing to give has told why.
fn ended<T>(mut reader: Reader<'_>, read: Option<T>) -> Result<T, Vec<Mistake>> {
    if read.is_none() && !reader.has_mistakes() {
        reader.mistake(0..0, "this study cannot be read");
    }
    reader.end(read).map(|read| read.expect("without it there is a mistake"))
}

/// The title that was masked or given otherwise since.
fn titled(setup: Setup, study: &Study) -> Setup {
    Setup { lab: setup.lab.map(|lab| lab::Plan { title: study.title.clone(), ..lab }), ..setup }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("name", &self.name)
            .field("overrides", &self.overrides)
            .finish_non_exhaustive()
    }
}
