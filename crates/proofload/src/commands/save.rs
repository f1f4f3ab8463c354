//! `--save`: writes the study that is equivalent to a command line, without running it.

use std::{
    fmt::{Display, Write as _},
    path::{Path, absolute},
};

use load::{HttpOption, HttpWorkload, MachineLimits, OPTIONS};
use percent_encoding::percent_decode_str;
use record::{LoadUnit, printable::printable, text as request_text, text::written_literally};
use secrets::{
    mask,
    mask::{authority, mask_header, secrets_in_url},
    mask_url,
    names::is_secret_header,
    reference::percent_encoded,
};
use settings::{
    Mistake,
    options::{Kind, OptionSpec},
    placeholders::{Piece, names, pieces},
};
use study::Study;

use crate::{
    exit::{Exit, Refusal, Result},
    output::{destination::Destination, standard},
};

/// A key of a study and its value as TOML; `None` if the option is not given.
pub(super) type SavedKey = Option<SavedValue>;

/// A key and its value as TOML.
pub(super) struct SavedValue {
    key: &'static str,
    value: String,
    /// The comment above the key; empty for none.
    help: &'static str,
}

/// The study that is equivalent to a command line, table by table.
pub(super) struct Saved {
    /// The title. Secrets in it are masked when it is written.
    pub title: String,
    /// Keys before the first table, such as a budget.
    pub head: Vec<SavedKey>,
    /// The workload. Its relative paths start at the current folder.
    pub workload: HttpWorkload,
    /// The other tables with their headings.
    pub tables: Vec<(&'static str, Vec<SavedKey>)>,
}

/// A key whose value is copied from the command line.
pub(super) fn text(key: &'static str, value: Option<impl ToString>) -> SavedKey {
    value.map(|value| SavedValue { key, value: bare_or_quoted(&value.to_string()), help: "" })
}

pub(super) fn list(key: &'static str, values: &[impl ToString]) -> SavedKey {
    let quoted: Vec<String> = values.iter().map(|value| quoted(&value.to_string())).collect();
    (!quoted.is_empty()).then(|| SavedValue { key, value: format!("[{}]", quoted.join(", ")), help: "" })
}

/// A key with a number, given as TOML text.
pub(super) fn number_of(key: &'static str, value: String) -> SavedKey {
    Some(SavedValue { key, value, help: "" })
}

/// The key of a given option, with the option's help as the comment.
pub(super) fn row<T>((spec, values): &(&'static OptionSpec<T>, Vec<String>)) -> SavedKey {
    let value = toml_value(spec.kind, values.iter().cloned());
    Some(SavedValue { key: spec.key, value, help: spec.help })
}

/// A secret that the study omits.
struct Hidden {
    variable: String,
    what: String,
}

fn refused(why: impl Display) -> Refusal {
    Refusal::one(format_args!("--save: {why}"))
}

impl Saved {
    /// Writes the study to `path`. `same` checks that the study, once it is read back, equals the command line in
    /// everything except its requests.
    ///
    /// # Errors
    /// All reasons why a study cannot express the command line.
    pub(super) fn write(
        mut self,
        path: &Path,
        host: &MachineLimits,
        same: impl FnOnce(&Study) -> bool,
    ) -> Result<Exit> {
        if self.workload.force || self.workload.fault.is_some() {
            return Err(refused("a study has no --force: leave it out"));
        }
        if let Some(body) = self.workload.raw_body.take() {
            let why = "the body in curl's command is not text: write it to a file, and give the URL, -H and --body @FILE instead of --curl";
            let text = String::from_utf8(body).map_err(|_| refused(why))?;
            self.workload.body = Some(written_literally(&text, &[]));
        }
        let folder = absolute(path).ok().and_then(|path| Some(path.parent()?.to_owned()));
        let own = std::env::current_dir().unwrap_or_default();
        // A symbolic link may lead to another folder, so paths are resolved then too.
        let is_here = path == Path::new("-") || (folder.as_deref() == Some(&*own) && !path.is_symlink());
        let here = in_folder(&self.workload, &own);
        if !is_here {
            self.workload = here.clone();
        }
        // Reads the text back while it still contains the secrets, because the variables may not be set yet.
        let name = folder.unwrap_or(own).join("STUDY.toml").display().to_string();
        let text = self.text();
        let read = study::file::read(&name, &text, &[], host).map_err(|mistakes| {
            let key = |line: usize| {
                let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
                line.split_once(" = ").map_or("the study", |(key, _)| key)
            };
            let told = |mistake: &Mistake| {
                format!("--save: a study file cannot hold this: {}: {}", key(mistake.line), mistake.message)
            };
            Refusal::new(mistakes.iter().map(told).collect())
        })?;
        if !is_same(&read, here, host) || !same(&read) {
            return Err(refused("a study file cannot hold this: its requests or its load would differ"));
        }
        let hidden = self.hide();
        self.check_secrets()?;
        let text = self.text();
        let output = Destination::open("--save", path).map_err(Refusal::one)?;
        let is_stdout = output.is_stdout();
        output.write(|file| file.write_all(text.as_bytes()))?;
        standard::note(hidden.iter().map(|Hidden { variable, what }| format!("set {variable} to {what}")));
        if !is_stdout {
            let then = if hidden.is_empty() { "" } else { " once the variables are set" };
            standard::note([format!("wrote {0}; proofload run {0} does the same{then}", path.display())]);
        }
        Ok(Exit::GoalsMet)
    }

    /// The study as TOML.
    fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "title = {}\nseed = {}", quoted(&mask(&self.title)), self.workload.seed);
        push_keys(&mut text, &self.head);
        text += "\n[workload.http]\n";
        let _ = writeln!(text, "url = {}", quoted(&in_study(&self.workload.url, true)));
        for option in OPTIONS {
            let values = (option.written)(&self.workload);
            if !values.is_empty() {
                let value = value(option, &values);
                push_keys(
                    &mut text,
                    &[Some(SavedValue { key: option.spec.key, value, help: option.spec.help })],
                );
            }
        }
        for (heading, keys) in self.tables.iter().filter(|(_, keys)| keys.iter().any(Option::is_some)) {
            let _ = writeln!(text, "\n{heading}");
            push_keys(&mut text, keys);
        }
        text
    }

    /// All texts of the workload with their keys.
    fn texts(&self) -> Vec<(&'static str, String)> {
        let of = |option: &'static HttpOption| {
            (option.written)(&self.workload).into_iter().map(|text| (option.spec.key, text))
        };
        let options = OPTIONS.iter().flat_map(of);
        std::iter::once(("url", self.workload.url.clone())).chain(options).collect()
    }

    /// Replaces secrets by variables: whole values of header fields, and those parts of a URL that a variable's value
    /// would reproduce exactly after encoding.
    fn hide(&mut self) -> Vec<Hidden> {
        let used = self.texts().into_iter().map(|(_, text)| text).collect();
        let mut variables = Variables { used, hidden: Vec::new() };
        let HttpWorkload { url, proxy, headers, body, .. } = &mut self.workload;
        variables.hide_in_url("URL", url);
        proxy.iter_mut().for_each(|proxy| variables.hide_in_url("proxy", proxy));
        if let Some(body) = body.as_mut().filter(|body| !body.starts_with('@')) {
            // A variable can replace only values that it can hold and that are sent as written.
            variables.hide_parameters("body", body, |secret| {
                !secret.contains(['{', '\0']) && secret.trim() == secret
            });
        }
        for field in headers.iter_mut().filter(|field| !field.starts_with('@')) {
            let Some((name, value)) = field.split_once(':') else { continue };
            let value = value.trim();
            if value.is_empty() || !(is_secret_header(name) || mask(field) != *field) {
                continue;
            }
            let hidden = if fixed(value, "").1 {
                variables.put(name, format!("the value of the header field {name}, as it is sent"))
            } else if name.eq_ignore_ascii_case("cookie") {
                value.split("; ").map(|cookie| variables.hide_cookie(cookie)).collect::<Vec<_>>().join("; ")
            } else {
                continue;
            };
            *field = format!("{name}: {hidden}");
        }
        variables.hidden
    }

    /// Refuses texts that still contain a secret, by the rules that mask all other output. Such secrets are next to a
    /// template, have another encoding or occur twice.
    fn check_secrets(&self) -> Result {
        let told = self.texts().into_iter().filter(|(key, text)| {
            // Treats templates like references to variables, which are not secret.
            let (shown, _) = fixed(text, "${T}");
            match (*key, shown.split_once(':')) {
                ("url" | "proxy", _) => mask_url(&shown) != shown,
                ("headers", Some((name, value))) => mask_header(name, value.trim()) != value.trim(),
                _ => mask(&shown) != shown,
            }
        });
        let why = "the study file would contain a secret: put it into a variable, and write ${NAME} instead";
        let told: Vec<String> = told.map(|(key, _)| format!("--save: {key}: {why}")).collect();
        if told.is_empty() { Ok(()) } else { Err(Refusal::new(told)) }
    }
}

/// The variables that replace the secrets of a study.
struct Variables {
    /// All texts of the workload, in which variable names may already occur.
    used: String,
    hidden: Vec<Hidden>,
}

impl Variables {
    /// Creates a variable with an unused name and returns a reference to it.
    fn put(&mut self, name: &str, what: String) -> String {
        let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name: String = name.chars().map(fit).collect();
        let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name };
        let is_free = |name: &String| {
            !self.used.contains(&format!("{{{name}}}"))
                && self.hidden.iter().all(|other| other.variable != *name)
        };
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let variable = std::iter::once(name.clone()).chain(numbered).find(is_free);
        let variable = variable.expect("numbers have no end");
        let reference = format!("${{{variable}}}");
        self.hidden.push(Hidden { variable, what });
        reference
    }

    /// Hides the user, the password and secret parameters in an option's URL.
    fn hide_in_url(&mut self, option: &str, url: &mut String) {
        let at = authority(url);
        let info = url[at..].split_once(['/', '?', '#']).map_or(&url[at..], |(authority, _)| authority);
        let pair = info.rsplit_once('@').and_then(|(info, _)| info.split_once(':'));
        if let Some((user, password)) = pair
            && has_one_encoding(user)
            && has_one_encoding(password)
        {
            let end = at + user.len() + 1 + password.len();
            let user =
                self.put(&format!("{option}_USER"), format!("the user's name in the {option}, decoded"));
            let password =
                self.put(&format!("{option}_PASSWORD"), format!("the password in the {option}, decoded"));
            url.replace_range(at..end, &format!("{user}:{password}"));
        }
        self.hide_parameters(&format!("{option}, decoded"), url, has_one_encoding);
    }

    /// Replaces a cookie's value by a variable, unless the value contains templates or variables.
    fn hide_cookie(&mut self, cookie: &str) -> String {
        match cookie.split_once('=').filter(|(_, value)| !value.is_empty() && fixed(value, "").1) {
            Some((name, _)) => {
                format!("{name}={}", self.put(name, format!("the cookie {name}, as it is sent")))
            }
            None => cookie.to_owned(),
        }
    }

    /// Hides secret parameters `name=value` in a text if `fits` accepts their values.
    fn hide_parameters(&mut self, option: &str, text: &mut String, fits: impl Fn(&str) -> bool) {
        for (what, secret) in secrets_in_url(text) {
            let Some(name) = what.strip_prefix("the query parameter ").filter(|_| fits(&secret)) else {
                continue;
            };
            let pair = format!("{name}={secret}");
            let is_whole = |(at, _): &(usize, &str)| {
                let behind = &text[at + pair.len()..];
                text[..*at].ends_with(['?', '&', ';', '#'])
                    && (behind.is_empty() || behind.starts_with(['&', ';', '#']))
            };
            if let Some(at) = text.match_indices(&pair).find(is_whole).map(|(at, _)| at + name.len() + 1) {
                let variable = self.put(name, format!("the {name} in the {option}"));
                text.replace_range(at..at + secret.len(), &variable);
            }
        }
    }
}

/// Whether the encoding of a part of a URL is the one that a variable's value would get there.
fn has_one_encoding(part: &str) -> bool {
    let decoded = percent_decode_str(part).decode_utf8();
    decoded.is_ok_and(|decoded| !decoded.is_empty() && percent_encoded(&decoded) == part)
}

/// The text that is sent, with `template` in place of each template. Also returns whether the text has neither templates
/// nor variables.
fn fixed(text: &str, template: &str) -> (String, bool) {
    let (mut fixed, mut is_all) = (String::new(), true);
    for (_, piece) in request_text::pieces(text).unwrap_or_default() {
        match piece {
            request_text::Piece::Plain(plain) => {
                is_all &= !plain.replace("$${", "").contains("${");
                fixed += plain;
            }
            request_text::Piece::Quoted(quoted) => fixed += &quoted.replace("${", "$${"),
            request_text::Piece::Template(_) => {
                is_all = false;
                fixed += template;
            }
        }
    }
    (fixed, is_all)
}

/// Whether the study's trials at its smallest load equal those of the workload.
fn is_same(study: &Study, mut workload: HttpWorkload, host: &MachineLimits) -> bool {
    let load = study.search.as_ref().map(|search| search.min);
    let Ok(setup) = study.setup(0, load) else { return false };
    let Some(read) = setup.workload.http() else { return false };
    workload.seed = read.seed;
    if let Some(search) = &study.search {
        // The search determines these values, so they are not compared.
        workload.duration.clone_from(&read.duration);
        match search.unit {
            LoadUnit::Users => workload.users.clone_from(&read.users),
            LoadUnit::Connections => workload.connections.clone_from(&read.connections),
            _ => workload.rate.clone_from(&read.rate),
        }
    }
    let (Ok(own), Ok(mut of_read)) = (workload.plan(host), read.plan(host)) else { return false };
    // Ignores the URL's spelling and the random run ID of events.
    of_read.url.clone_from(&own.url);
    if let (Some(own), Some(of_read)) = (&own.events, &mut of_read.events) {
        of_read.run = own.run;
    }
    own == of_read
}

/// Resolves those paths of the workload that a study would resolve from the study's folder.
fn in_folder(workload: &HttpWorkload, folder: &Path) -> HttpWorkload {
    let mut resolved = workload.clone();
    for option in OPTIONS {
        let values: Vec<String> =
            (option.written)(workload).iter().map(|value| option.in_folder(value, folder)).collect();
        if !values.is_empty() {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            // Cannot fail, because options are stored as text; the plan reports invalid values.
            let _ = (option.spec.apply)(&mut resolved, &values);
        }
    }
    resolved
}

fn push_keys(text: &mut String, keys: &[SavedKey]) {
    for SavedValue { key, value, help } in keys.iter().flatten() {
        if !help.is_empty() {
            let _ = writeln!(text, "# {help}");
        }
        let _ = writeln!(text, "{key} = {value}");
    }
}

/// The value of an option in a study.
fn value(option: &HttpOption, values: &[String]) -> String {
    toml_value(option.spec.kind, values.iter().map(|value| in_study(value, option.is_text)))
}

/// A TOML value of this kind from texts, of which a list may have several.
pub(super) fn toml_value(kind: Kind, texts: impl Iterator<Item = String>) -> String {
    match kind {
        Kind::Flag => "true".to_owned(),
        Kind::On => "false".to_owned(),
        Kind::List => format!("[{}]", texts.map(|text| quoted(&text)).collect::<Vec<_>>().join(", ")),
        // Quoted, because a bare number is no valid time in most tables.
        Kind::Time => quoted(&texts.collect::<String>()),
        _ => bare_or_quoted(&texts.collect::<String>()),
    }
}

/// The text as written in a study. Escapes braces around a name, which would be a placeholder there.
fn in_study(text: &str, is_text: bool) -> String {
    let placeholders = |text: &str| {
        let written = |piece| match piece {
            Piece::Name(name) if is_text => format!("{{{{\"{{\"}}}}{name}}}"),
            Piece::Name(name) => format!("{{{{{name}}}}}"),
            Piece::Escaped(name) => format!("{{{{{{{name}}}}}}}"),
            Piece::Text(text) => text.to_owned(),
        };
        pieces(text).into_iter().map(written).collect::<String>()
    };
    if !is_text {
        return placeholders(text);
    }
    // A study does not resolve these escapes in file names, and file names contain no templates.
    if text.starts_with('@') {
        return text.to_owned();
    }
    let written = |(_, piece)| match piece {
        request_text::Piece::Plain(plain) => placeholders(plain),
        request_text::Piece::Quoted(quoted) if names(quoted).is_empty() => format!("{{{{\"{quoted}\"}}}}"),
        request_text::Piece::Quoted(quoted) => quoted.replace('{', "{{\"{\"}}"),
        request_text::Piece::Template(template) => format!("{{{{{template}}}}}"),
    };
    request_text::pieces(text)
        .map_or_else(|_| text.to_owned(), |pieces| pieces.into_iter().map(written).collect())
}

/// A whole number as it is; any other text as a TOML string.
fn bare_or_quoted(text: &str) -> String {
    let is_number = !text.is_empty() && text.len() < 16 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_number && (text == "0" || !text.starts_with('0'));
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// A TOML string. Uses JSON's syntax, which TOML shares, and escapes characters that terminals do not show.
fn quoted(text: &str) -> String {
    let is_shown = |c: char| printable(&c.to_string()) == c.to_string();
    let escaped = |c: char| if is_shown(c) { c.to_string() } else { format!("\\U{:08X}", u32::from(c)) };
    serde_json::Value::from(text).to_string().chars().map(escaped).collect()
}
