//! `--save`: writes the study that does what a command line says, and runs nothing.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf, absolute},
};

use load::{HttpOption, HttpWorkload, MachineLimits, OPTIONS};
use record::{LoadUnit, text::written_literally};
use secrets::{
    mask,
    mask::{mask_learned_text, secrets_in_url},
    names::is_secret_header,
};
use settings::{
    options::Kind,
    placeholders::{Piece, pieces},
};
use study::Study;

use crate::{
    exit::{Exit, Refusal, Result},
    output::{destination::Destination, standard},
};

/// A key of a study with its value, if it is given.
pub(super) type SavedKey = Option<(&'static str, String)>;

/// What a command line says, table by table.
pub(super) struct Saved {
    /// The title, which is masked when it is written.
    pub title: String,
    /// What else stands in no table, such as a budget.
    pub head: Vec<SavedKey>,
    /// What is sent. Its files are those of this folder.
    pub workload: HttpWorkload,
    /// The other tables, each with its heading.
    pub tables: Vec<(&'static str, Vec<SavedKey>)>,
}

/// A key whose value is written as on the command line.
pub(super) fn text(key: &'static str, value: Option<impl ToString>) -> SavedKey {
    value.map(|value| (key, bare_or_quoted(&value.to_string())))
}

/// A key whose value is a list.
pub(super) fn list(key: &'static str, values: &[impl ToString]) -> SavedKey {
    let quoted: Vec<String> = values.iter().map(|value| quoted(&value.to_string())).collect();
    (!quoted.is_empty()).then(|| (key, format!("[{}]", quoted.join(", "))))
}

/// A secret that a study does not have: the variable in its place, and what to set it to.
struct Hidden {
    variable: String,
    what: String,
}

impl Saved {
    /// Writes the study to `path`. `same` says whether a study that was read does what the command line does, besides its requests.
    ///
    /// # Errors
    /// When a study cannot say it, with every reason.
    pub(super) fn write(
        mut self,
        path: &Path,
        host: &MachineLimits,
        same: impl FnOnce(&Study) -> bool,
    ) -> Result<Exit> {
        let refuse = |why: &dyn std::fmt::Display| Refusal::one(format_args!("--save: {why}"));
        if self.workload.force || self.workload.fault.is_some() {
            return Err(refuse(&"a study has no --force: leave it out"));
        }
        if let Some(body) = self.workload.raw_body.take() {
            let text = String::from_utf8(body);
            let text =
                text.map_err(|_| refuse(&"the body is no text: write it to a file, and give --body @FILE"))?;
            self.workload.body = Some(written_literally(&text, &[]));
        }
        let folder = absolute(path).ok().and_then(|path| Some(path.parent()?.to_owned()));
        let own = std::env::current_dir().unwrap_or_default();
        let is_here = path == Path::new("-") || folder.as_deref() == Some(&*own);
        let here = in_folder(&self.workload, &own);
        if !is_here {
            self.workload = here.clone();
        }
        // Tried with its secrets: their variables need not be set yet.
        let name = folder.unwrap_or(own).join("STUDY.toml").display().to_string();
        let read = study::file::read(&name, &self.text(), &[], host);
        let read = read.map_err(|mistakes| {
            Refusal::new(
                mistakes
                    .iter()
                    .map(|mistake| format!("--save: a study cannot say this: {mistake}"))
                    .collect(),
            )
        })?;
        if !is_same(&read, here, host) || !same(&read) {
            return Err(refuse(&"a study cannot say this: it would do something else"));
        }
        let hidden = self.hide();
        let text = self.text();
        let fixed = without_templates(&text);
        if mask_learned_text(&fixed) != fixed {
            return Err(refuse(
                &"a secret would be written; keep it in a variable, and write ${NAME} in its place",
            ));
        }
        let output = Destination::open("--save", path).map_err(Refusal::one)?;
        let is_stdout = output.is_stdout();
        output.write(|file| file.write_all(text.as_bytes()))?;
        let names =
            hidden.iter().map(|Hidden { variable, what }| format!("set {variable} to {what} before it runs"));
        standard::note(names);
        if !is_stdout {
            standard::note([format!("wrote {0}; proofload run {0} does the same", path.display())]);
        }
        Ok(Exit::GoalsMet)
    }

    /// The study's text.
    fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "title = {}\nseed = {}", quoted(&mask(&self.title)), self.workload.seed);
        push_keys(&mut text, &self.head);
        text += "\n[workload.http]\n";
        let _ = writeln!(text, "url = {}", quoted(&in_study(&self.workload.url, true)));
        for option in OPTIONS {
            let values = (option.written)(&self.workload);
            if !values.is_empty() {
                let _ = writeln!(
                    text,
                    "# {}\n{} = {}",
                    option.spec.help,
                    option.spec.key,
                    value(option, &values)
                );
            }
        }
        for (heading, keys) in self.tables.iter().filter(|(_, keys)| keys.iter().any(Option::is_some)) {
            let _ = writeln!(text, "\n{heading}");
            push_keys(&mut text, keys);
        }
        text
    }

    /// Puts variables in the place of secrets.
    fn hide(&mut self) -> Vec<Hidden> {
        let mut hidden: Vec<Hidden> = Vec::new();
        let mut variable = |name: &str, what: String| {
            let is_fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            let name: String = name.chars().map(is_fit).collect();
            let same = hidden
                .iter()
                .filter(|other| other.variable.trim_end_matches(char::is_numeric) == name)
                .count();
            let variable = if same == 0 { name } else { format!("{name}{}", same + 1) };
            hidden.push(Hidden { variable: variable.clone(), what });
            format!("${{{variable}}}")
        };
        let workload = &mut self.workload;
        for url in std::iter::once(&mut workload.url).chain(&mut workload.proxy) {
            for (what, secret) in secrets_in_url(url) {
                let name = what.rsplit(' ').next().unwrap_or_default();
                if !is_filled_in(&secret) {
                    *url = url.replacen(&secret, &variable(name, what.clone()), 1);
                }
            }
        }
        for field in &mut workload.headers {
            let Some((name, value)) = field.split_once(':') else { continue };
            let is_secret = !name.starts_with('@') && (is_secret_header(name) || mask(field) != *field);
            if is_secret && !is_filled_in(value) && !value.trim().is_empty() {
                *field =
                    format!("{name}: {}", variable(name, format!("the value of the header field {name}")));
            }
        }
        let body = workload.body.as_deref();
        let body = body.filter(|body| mask(body) != *body && !is_filled_in(body) && !body.starts_with('@'));
        if let Some(bytes) = body.map(str::len) {
            workload.body = Some(variable("BODY", format!("the body of {bytes} bytes")));
        }
        hidden
    }
}

/// Whether a value refers to a variable or is made anew for each request.
fn is_filled_in(value: &str) -> bool {
    value.contains("${") || value.contains("{{")
}

/// What stays the same in every request.
fn without_templates(text: &str) -> String {
    let mut parts = text.split("{{");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once("}}").map_or(part, |(_, rest)| rest));
    std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n")
}

/// Whether a study's trials of its smallest load are those of this workload.
fn is_same(study: &Study, mut workload: HttpWorkload, host: &MachineLimits) -> bool {
    let load = study.search.as_ref().map(|search| search.min);
    let Ok(setup) = study.setup(0, load) else { return false };
    let Some(read) = setup.workload.http() else { return false };
    workload.seed = read.seed;
    if let Some(search) = &study.search {
        // A search sets these.
        let of_read = read.clone();
        workload.duration = of_read.duration;
        match search.unit {
            LoadUnit::Users => workload.users = of_read.users,
            LoadUnit::Connections => workload.connections = of_read.connections,
            _ => workload.rate = of_read.rate,
        }
    }
    let (Ok(own), Ok(mut of_read)) = (workload.plan(host), read.plan(host)) else { return false };
    // A URL may be written in two ways that are one; the run of events is drawn.
    of_read.url.clone_from(&own.url);
    if let (Some(own), Some(of_read)) = (&own.events, &mut of_read.events) {
        of_read.run = own.run;
    }
    own == of_read
}

/// The workload with the paths that a study resolves from its own folder.
fn in_folder(workload: &HttpWorkload, folder: &Path) -> HttpWorkload {
    let mut resolved = workload.clone();
    for option in OPTIONS.iter().filter(|option| option.is_file || option.names_files) {
        let place = |path: &str| PathBuf::from(folder).join(path).display().to_string();
        let values = (option.written)(workload).into_iter().map(|value| match value.strip_prefix('@') {
            Some(path) if option.names_files && path != "-" => format!("@{}", place(path)),
            None if option.is_file => place(&value),
            _ => value,
        });
        let values: Vec<String> = values.collect();
        if !values.is_empty() {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            // Values are stored as text, so storing them cannot fail.
            let _ = (option.spec.apply)(&mut resolved, &values);
        }
    }
    resolved
}

fn push_keys(text: &mut String, keys: &[SavedKey]) {
    for (key, value) in keys.iter().flatten() {
        let _ = writeln!(text, "{key} = {value}");
    }
}

/// The value of an option in a study.
fn value(option: &HttpOption, values: &[String]) -> String {
    let texts = values.iter().map(|value| in_study(value, option.is_text));
    match option.spec.kind {
        Kind::Flag => "true".to_owned(),
        Kind::On => "false".to_owned(),
        Kind::List => format!("[{}]", texts.map(|text| quoted(&text)).collect::<Vec<_>>().join(", ")),
        _ => bare_or_quoted(&texts.collect::<String>()),
    }
}

/// A text that a study reads as this one: braces around a name are no placeholder there.
fn in_study(text: &str, is_text: bool) -> String {
    let written = |piece| match piece {
        Piece::Name(name) if is_text => format!("{{{{\"{{\"}}}}{name}}}"),
        Piece::Name(name) => format!("{{{{{name}}}}}"),
        Piece::Escaped(name) => format!("{{{{{name}}}}}"),
        Piece::Text(text) => text.to_owned(),
    };
    pieces(text).into_iter().map(written).collect()
}

/// A whole number as it is, and any other text in quotes.
fn bare_or_quoted(text: &str) -> String {
    let is_number = !text.is_empty() && text.len() < 16 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_number && (text == "0" || !text.starts_with('0'));
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// A text in quotes: strings of JSON are strings of TOML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
