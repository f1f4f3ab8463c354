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
    sync::Arc,
};

use load::MachineLimits;
use self_cell::self_cell;
use settings::{Mistake, Reader};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

pub use goals::parse_bound;
pub use schema::schema;

use self::{ground::Ground, levels::Levels, outline::Outline, overrides::Overrides};
use crate::study::{Setup, Source, Study, StudyFile, Take, Wanted};

/// What a study file's settings are decided by.
struct Texts {
    /// The file's path.
    name: String,
    text: String,
    overrides: Overrides,
    host: MachineLimits,
}

/// What TOML reads of them.
struct Parsed<'t> {
    /// Tells mistakes at their places; it has noted those of the overrides.
    reader: Reader<'t>,
    /// The file with the overrides in their places.
    tree: DeTable<'t>,
}

self_cell!(
    /// A study file, which is parsed once.
    struct Document {
        owner: Texts,
        #[covariant]
        dependent: Parsed,
    }
);

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
    host: &MachineLimits,
) -> Result<Study, Vec<Mistake>> {
    let overrides = Overrides::new(text, overrides);
    let texts = Texts { name: name.to_owned(), text: text.to_owned(), overrides, host: *host };
    let document = Arc::new(Document::try_new(texts, |texts| {
        let mut reader = Reader::new(&texts.name, &texts.text);
        let tree = reader.document(&texts.text).into_inner();
        if reader.has_mistakes() {
            // What is guessed behind a mistake in TOML itself would only confuse.
            return ended(reader, None);
        }
        let tree = texts.overrides.put(&mut reader, tree);
        Ok(Parsed { reader, tree })
    })?);
    let (texts, Parsed { reader, tree }) = (document.borrow_owner(), document.borrow_dependent());
    let mut reader = reader.clone();
    let outline = Outline::read(&mut reader, tree);
    let study = trying::study(&mut reader, texts, tree, &outline, Source::File(document.clone()));
    ended(reader, study)
}

impl Texts {
    /// The folder that relative paths begin at.
    fn folder(&self) -> PathBuf {
        let beside = Path::new(&self.name).parent().unwrap_or(Path::new(""));
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        std::path::absolute(beside).unwrap_or_else(|_| beside.to_owned())
    }
}

impl StudyFile for Document {
    fn each_setup(&self, study: &Study, wanted: &mut Wanted<'_>, take: &mut Take<'_>) {
        let Parsed { reader, tree } = self.borrow_dependent();
        // What is wrong there was told when the study was read.
        let outline = Outline::read(&mut reader.clone(), tree);
        let ground = Ground::new(&mut reader.clone(), self.borrow_owner(), tree, &outline);
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
    }

    fn masked_text(&self) -> String {
        let Texts { name, text, .. } = self.borrow_owner();
        // As it was written, without the overrides.
        let document = Reader::new(name, text).document(text).into_inner();
        let document = Spanned::new(0..0, DeValue::Table(document));
        let mut places = Vec::new();
        // What a text of the file stands for, whatever escapes it is written with. JSON's texts are TOML's too.
        places::each_text(&document, &mut |value, written| {
            let masked = secrets::mask(written);
            if masked != written {
                places.push((value.span(), format!("{}", serde_json::Value::from(masked.as_ref()))));
            }
        });
        places.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        let mut text = text.clone();
        places.into_iter().for_each(|(span, masked)| text.replace_range(span, &masked));
        // And what comments say.
        secrets::mask(&text).into_owned()
    }

    fn overrides(&self) -> Vec<(&str, &str)> {
        self.borrow_owner().overrides.written()
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
            .field("name", &self.borrow_owner().name)
            .field("overrides", &self.overrides())
            .finish_non_exhaustive()
    }
}
