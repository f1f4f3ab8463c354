//! `--curl`: a command line of curl defines the request; proofload's own options define the load.

mod body;
mod options;
mod route;
pub(in crate::commands) mod shell;
mod url;
mod words;

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use load::{DEFAULT_TIMEOUT_NS, HttpWorkload, OPTIONS};
use record::input;

use self::{body::Body, url::checked_url, words::matches};
use super::table::{Given, Translated, Value, header_name, is_taken, same_line, unsendable, written_url};

/// A translated command line of curl: the request that it sends, and the options for sending it.
#[derive(Debug)]
pub(crate) struct CurlLine {
    url: String,
    translated: Translated,
    body: Option<Vec<u8>>,
    shown_body: Option<String>,
}

/// Maximum number of redirects that curl follows by default.
const CURL_REDIRECTS: &str = "50";
/// The encodings that Debian's build of curl requests with `--compressed`.
const COMPRESSED: &str = "deflate, gzip, br, zstd";

/// The Accept field that curl sends by default.
const ANY_TYPE: &str = "Accept: */*";

/// Translated options that proofload's own options may override, because the translation added them, not the user.
const SOFT: [&str; 1] = ["expect"];

impl CurlLine {
    /// Parses a command line from a text, from `@FILE`, or from standard input (`-` or `@-`).
    ///
    /// # Errors
    /// All mistakes and all refused options.
    pub(crate) fn read(text: &str) -> Result<Self, Vec<String>> {
        let path = match text {
            "-" | "@-" => Some("/dev/stdin"),
            _ => text.strip_prefix('@'),
        };
        let read = path.map(|path| input::read_text(Path::new(path))).transpose().map_err(|why| vec![why])?;
        let text = read.as_deref().unwrap_or(text).trim_start_matches('\u{feff}');
        Self::parse(&shell::split(text).map_err(|why| vec![why])?)
    }

    /// Parses the words of a command line; the first one is `curl`.
    ///
    /// # Errors
    /// As for [`CurlLine::read`].
    pub(crate) fn parse(words: &[String]) -> Result<Self, Vec<String>> {
        let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
        if !["curl", "curl.exe"].contains(&program) {
            return Err(vec!["the line does not begin with curl".to_owned()]);
        }
        let (matches, unknown) = matches(words)?;
        let given = Given::read(options::rows(), &matches);
        let urls = matches.get_many::<String>("URL").into_iter().flatten().map(String::as_str);
        let urls: Vec<&str> =
            urls.chain(given.iter().filter(|(row, _)| row.long == "url").map(|(_, url)| url)).collect();
        let mut translated = Translated::of(&given);
        let other = match urls.len() {
            0 => Some("the line has no URL".to_owned()),
            1 => None,
            // Extra words may be values of unknown options, so they are not reported separately.
            _ if !unknown.is_empty() => None,
            several => {
                Some(format!("the line has {several} URLs, but a trial has only one: leave out the others"))
            }
        };
        translated.mistakes.splice(0..0, unknown.into_iter().chain(other));
        let Some(url) = urls.last() else { return Err(translated.mistakes) };
        let url = checked_url(url, &given, &mut translated.mistakes);
        Self::translate(&url, &given, translated)
    }

    fn translate(url: &str, given: &Given, mut translated: Translated) -> Result<Self, Vec<String>> {
        let mut body = Body::default();
        // Done first, because a field of -H replaces the field that another option sets, whatever their order.
        for (_, field) in given.iter().filter(|(row, _)| row.long == "header") {
            set_header(field, &mut translated);
        }
        for (row, value) in given.iter() {
            body.add(row.long, value)
                .unwrap_or_else(|why| translated.mistakes.push(format!("--{}: {why}", row.long)));
        }
        for (place, (row, value)) in given.iter().enumerate() {
            // The last value of a repeated option counts.
            if !given.iter().skip(place + 1).any(|(later, _)| later.long == row.long) {
                set_option(row.long, value, &mut translated);
            }
        }
        if given.has("-L") || given.has("--location-trusted") {
            // In curl, -1 means no limit.
            let most = given.last("--max-redirs").filter(|most| *most != "-1").unwrap_or(CURL_REDIRECTS);
            translated.set("redirects", most);
        }
        set_connect_timeout(given, &mut translated);
        translated.notes.extend(silent_differences(given));
        // curl sends a form or a file as a body even with -G.
        let is_in_query =
            given.has("-G") && !["-T", "-F", "--form-string"].iter().any(|name| given.has(name));
        let url = if is_in_query { body.in_query(url) } else { body.beside_query(url) };
        let url = url.split('#').next().unwrap_or_default().to_owned();
        translated.mistakes.extend(unsendable(&url));
        let bodies = body;
        let body = if is_in_query { None } else { bodies.finish() };
        if body.is_some() && given.has("-r") {
            translated.mistakes.push(
                "-r: with a body, curl sends Content-Range, not Range: write that field with -H".to_owned(),
            );
        }
        let method = match (&body, given.has("-I"), given.has("-T")) {
            (_, true, _) => "HEAD",
            (_, _, true) => "PUT",
            (Some(_), ..) => "POST",
            _ => "GET",
        };
        translated.set_default("method", method);
        if given.has("-I") && body.is_some() {
            translated.mistakes.push("-I: HEAD has no body: leave out -I or the data".to_owned());
        }
        // A field of -H replaces or removes the field that curl adds.
        if given.has("--json") {
            add_header(&mut translated, "Accept", "application/json");
        }
        add_header(&mut translated, "Accept", "*/*");
        if let Some(content_type) = body.as_ref().and_then(|body| body.content_type.as_ref()) {
            body::set_content_type(content_type, &mut translated);
        }
        let cookies = given.iter().filter(|(row, value)| row.long == "cookie" && !value.is_empty());
        let cookies: Vec<&str> = cookies.map(|(_, value)| value).collect();
        if !cookies.is_empty() {
            add_header(&mut translated, "Cookie", &cookies.join(";"));
        }
        if translated.headers().any(|field| field.eq_ignore_ascii_case("host:")) {
            translated
                .mistakes
                .push("-H 'Host:': HTTP/1.1 needs the field: leave it out, or give it a value".to_owned());
        }
        translated.remove_headers(|field| field.strip_suffix(':') == Some(header_name(field)));
        route::set(&url, given, &mut translated);
        route::set_proxy(&url, given, &mut translated);
        let body = body.map(|body| body.bytes);
        let shown_body = body.as_ref().and_then(|body| bodies.shown(body));
        if translated.mistakes.is_empty() {
            Ok(Self { url, translated, body, shown_body })
        } else {
            Err(translated.mistakes)
        }
    }

    /// Notes for the user on the translation of the line.
    pub(crate) fn notes(&self) -> &[String] {
        &self.translated.notes
    }

    /// The equivalent `proofload http` command, after the words in `own`. `None` if the body cannot be written as text.
    pub(crate) fn same(&self, own: &[String]) -> Option<String> {
        let mut words = own.to_vec();
        if self.body.is_some() {
            words.extend(["--body".to_owned(), Value::Literal(self.shown_body.clone()?).written("body")?]);
        }
        words.extend(self.translated.words(&self.url));
        Some(same_line(&words))
    }

    /// Mistakes for proofload's options that repeat a part of the line. `options` are the names of the given options,
    /// `headers` the given header fields.
    pub(crate) fn conflicts(&self, has_url: bool, options: &[String], headers: &[String]) -> Vec<String> {
        let mut conflicts = Vec::new();
        if has_url {
            conflicts.push("URL: curl's command has one too: leave out one of them".to_owned());
        }
        for (name, _) in &self.translated.options {
            if *name != "header"
                && !SOFT.contains(name)
                && options.iter().any(|option| option == name)
                && *name != "method"
            {
                conflicts.push(format!("--{name}: curl's command sets this too: leave out one of them"));
            }
        }
        for name in ["method", "body", "events"] {
            if options.iter().any(|option| option == name) && (name == "method" || self.body.is_some()) {
                conflicts.push(format!("--{name}: curl's command sets the request: leave out one of them"));
            }
        }
        let of_line = |name: &&str| self.translated.has_header(name) && !self.is_curl_default(name);
        for name in headers.iter().map(|field| header_name(field)).filter(of_line) {
            conflicts.push(format!("--header: curl's command has {name} too: leave out one of them"));
        }
        conflicts
    }

    /// Whether curl adds this field by default, so that proofload's own field replaces it.
    pub(crate) fn is_curl_default(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case("accept") && self.translated.headers().any(|field| field == ANY_TYPE)
    }

    /// Stores the line's request in a workload.
    pub(crate) fn apply(&self, workload: &mut HttpWorkload) {
        workload.url = written_url(&self.url);
        workload.raw_body.clone_from(&self.body);
        for option in OPTIONS {
            let name = option.spec.flag();
            let given = self
                .translated
                .options
                .iter()
                .filter(|(given, _)| *given == name && is_taken(given, &self.url));
            let values = given.map(|(name, value)| value.written(name).unwrap_or_else(|| "true".to_owned()));
            let values: Vec<String> = values.collect();
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if !values.is_empty() {
                // Cannot fail, because options are stored as text; the plan reports invalid values.
                let _ = (option.spec.apply)(workload, &values);
            }
        }
    }
}

#[cfg(test)]
impl CurlLine {
    /// The names of the TLS options in the line, as the user would type them.
    pub(super) fn tls_words(&self) -> String {
        let tls = self.translated.options.iter().filter(|(name, _)| super::table::TLS.contains(name));
        let words =
            tls.flat_map(|(name, value)| [format!("--{name}")].into_iter().chain(value.written(name)));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Sets a field of -H: `@FILE` is a file of fields, `Name;` an empty field, and `Name:` removes curl's default field.
fn set_header(written: &str, translated: &mut Translated) {
    if let Some(path) = written.strip_prefix('@') {
        return translated.put("header", Value::File(path.to_owned()));
    }
    match written.split_once(':') {
        None if written.ends_with(';') => translated.add_header(written.trim_end_matches(';'), ""),
        None => translated.notes.push("-H: curl sends no header field without a colon".to_owned()),
        Some((name, value)) if value.trim().is_empty() => translated.set("header", format!("{name}:")),
        // curl sends only the first of several Host fields.
        Some((name, _)) if name.eq_ignore_ascii_case("host") && translated.has_header(name) => {}
        // An invalid name, such as one with a blank, is refused when the request is planned.
        Some((name, value)) => translated.add_header(name, value.trim()),
    }
}

/// Translates the options that need more than a table row.
fn set_option(name: &str, value: &str, translated: &mut Translated) {
    let refuse =
        |translated: &mut Translated, why: &str| translated.mistakes.push(format!("--{name}: {why}"));
    match name {
        "user" => match value.contains(':') {
            true => add_header(translated, "Authorization", &format!("Basic {}", BASE64.encode(value))),
            false => refuse(translated, "curl would ask for the password: write USER:PASSWORD"),
        },
        "oauth2-bearer" => add_header(translated, "Authorization", &format!("Bearer {value}")),
        "user-agent" if !value.is_empty() => add_header(translated, "User-Agent", value),
        "referer" if value.trim_end_matches(";auto").is_empty() => {}
        "referer" => add_header(translated, "Referer", value.trim_end_matches(";auto")),
        "range" => {
            let to_the_end = if value.bytes().all(|byte| byte.is_ascii_digit()) { "-" } else { "" };
            add_header(translated, "Range", &format!("bytes={value}{to_the_end}"));
        }
        "compressed" => add_header(translated, "Accept-Encoding", COMPRESSED),
        "cert" if value.contains(':') && !Path::new(value).exists() => {
            refuse(
                translated,
                "leave out the password behind ':': encrypted keys are not read; decrypt the key first (openssl pkey)",
            );
        }
        "ipv4" => translated.set_family("0.0.0.0"),
        "ipv6" => translated.set_family("::"),
        "no-alpn" => translated.set("alpn", "none"),
        "cookie" if !value.is_empty() && !value.contains('=') => {
            refuse(
                translated,
                "cookie files are not read: write -b 'NAME=VALUE', or -H @FILE for a file with the field Cookie",
            );
        }
        "tlsv1.2" => translated.set("tls-min", "1.2"),
        "tlsv1.3" => translated.set("tls-min", "1.3"),
        "location" | "location-trusted" => {
            // A redirect must not count as a success in place of the page that it leads to.
            translated.set("expect", "2xx");
            translated.notes.push(
                "-L: redirects to the same host are followed; one to another host fails its request"
                    .to_owned(),
            );
        }
        _ => {}
    }
}

/// Notes on curl's defaults that differ from proofload's.
fn silent_differences(given: &Given) -> Vec<String> {
    let mut notes = Vec::new();
    let is_empty =
        |value: &str| value.trim_end_matches(':').eq_ignore_ascii_case("user-agent") || value.is_empty();
    if given.iter().any(|(row, value)| ["header", "user-agent"].contains(&row.long) && is_empty(value)) {
        notes.push("the field User-Agent is sent anyway, and names proofload".to_owned());
    }
    let variables = ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    if !given.has("-x")
        && let Some(variable) =
            variables.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    {
        notes.push(format!("curl would use the proxy in {variable}; proofload uses only that of -x"));
    }
    notes
}

/// Sets curl's time limit for connecting, which includes the TLS handshake. Ignores it if the limit for the whole
/// request is shorter.
fn set_connect_timeout(given: &Given, translated: &mut Translated) {
    let seconds = |text: &str| text.parse::<f64>().unwrap_or(0.0);
    let Some(connect) = given.last("--connect-timeout") else { return };
    let default_s = DEFAULT_TIMEOUT_NS as f64 / 1e9;
    let whole_s = given.last("-m").map_or(default_s, seconds);
    if seconds(connect) <= whole_s {
        for name in ["connect-timeout", "handshake-timeout"] {
            translated.set(name, connect);
        }
    } else if !given.has("-m") {
        translated.notes.push(format!(
            "--connect-timeout {connect} has no effect here: a whole request has {default_s} s, unless -m sets another time"
        ));
    }
}

/// Adds a field that curl sends by default, unless the line sets or removes it.
fn add_header(translated: &mut Translated, name: &str, value: &str) {
    if !translated.has_header(name) {
        translated.add_header(name, value);
    }
}

#[cfg(test)]
mod tests;
