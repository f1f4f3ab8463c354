//! The body that results from curl's options for data and forms.

mod form;

use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use record::input;

use self::form::Part;
use super::super::table::{Translated, header_name};

/// The characters that `--data-urlencode` escapes: all but the unreserved ones of RFC 3986, 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The data and the parts of forms given so far.
#[derive(Debug, Default)]
pub(super) struct Body {
    data: Option<Vec<u8>>,
    is_json: bool,
    parts: Vec<Part>,
    upload: Option<Upload>,
    query: Vec<u8>,
    has_file: bool,
}

/// The media type of a form with several parts.
const FORM: &str = "multipart/form-data";
/// Maximum length in bytes of a body that is shown in the equivalent command.
const MAX_SHOWN_BYTES: usize = 2_000;

#[derive(Debug)]
struct Upload {
    name: String,
    bytes: Vec<u8>,
}

/// A body that is ready to be sent.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) bytes: Vec<u8>,
    /// The content type that curl would send; `None` if none.
    pub(super) content_type: Option<String>,
}

impl Body {
    /// Adds the data of an option; ignores other options.
    ///
    /// # Errors
    /// If a file cannot be read, or the option would start a second body.
    pub(super) fn add(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "data" | "data-ascii" => match value.strip_prefix('@') {
                Some(path) => {
                    let mut bytes = read(path)?;
                    bytes.retain(|byte| !b"\r\n\0".contains(byte));
                    self.append(&bytes, true);
                }
                None => self.append(value.as_bytes(), true),
            },
            "data-raw" => self.append(value.as_bytes(), true),
            "data-binary" => self.append(&text_or_file(value)?, true),
            "data-urlencode" => self.append(&encoded(value)?, true),
            "json" => {
                self.append(&text_or_file(value)?, false);
                self.is_json = true;
            }
            "url-query" => {
                let text = value
                    .strip_prefix('+')
                    .map_or_else(|| encoded(value), |raw| Ok(raw.as_bytes().to_vec()))?;
                append(&mut self.query, &text);
            }
            "form" => self.parts.push(Part::parse(value)?),
            "form-string" => self.parts.push(Part::literal(value)?),
            "upload-file" => {
                let name = Path::new(value).file_name().map_or_else(String::new, |name| {
                    percent_encode(name.as_encoded_bytes(), ESCAPED).to_string()
                });
                self.upload = Some(Upload { name, bytes: read(if value == "." { "-" } else { value })? });
            }
            _ => return Ok(()),
        }
        self.has_file |= !["data-raw", "form-string"].contains(&option) && value.contains(['@', '<']);
        let kinds = [self.data.is_some(), !self.parts.is_empty(), self.upload.is_some()];
        match kinds.into_iter().filter(|is_given| *is_given).count() {
            0 | 1 => Ok(()),
            _ => Err("data, a form and a file are different bodies: leave out all but one".to_owned()),
        }
    }

    /// The URL with all data added to its query, as with `-G`.
    pub(super) fn in_query(&self, url: &str) -> String {
        let mut query = self.data.clone().unwrap_or_default();
        append(&mut query, &self.query);
        with_query(url, &query)
    }

    /// The URL with the query of `--url-query`. If its path is empty or ends in a slash, adds the name of the uploaded
    /// file.
    pub(super) fn beside_query(&self, url: &str) -> String {
        let url = with_query(url, &self.query);
        let Some(upload) = &self.upload else { return url };
        let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        let has_path = path[secrets::mask::authority(path)..].contains('/');
        match path {
            _ if !has_path => format!("{path}/{}{query}", upload.name),
            path if path.ends_with('/') => format!("{path}{}{query}", upload.name),
            _ => url,
        }
    }

    /// The body as text for a command line; `None` if it is long, is not UTF-8, or comes from a file.
    pub(super) fn shown(&self, body: &[u8]) -> Option<String> {
        let is_of_file = self.has_file || self.upload.is_some();
        let text = String::from_utf8(body.to_vec()).ok();
        text.filter(|text| !is_of_file && text.len() <= MAX_SHOWN_BYTES)
    }

    /// The body, if any option gave one.
    pub(super) fn finish(&self) -> Option<Finished> {
        if let Some(upload) = &self.upload {
            return Some(Finished { bytes: upload.bytes.clone(), content_type: None });
        }
        if !self.parts.is_empty() {
            let (bytes, boundary) = form::multipart(&self.parts);
            return Some(Finished { bytes, content_type: Some(format!("{FORM}; boundary={boundary}")) });
        }
        let kind = if self.is_json { "json" } else { "x-www-form-urlencoded" };
        let content_type = Some(format!("application/{kind}"));
        self.data.clone().map(|bytes| Finished { bytes, content_type })
    }

    fn append(&mut self, bytes: &[u8], is_joined: bool) {
        // curl adds the separator even after an empty piece.
        if is_joined && let Some(data) = &mut self.data {
            data.push(b'&');
        }
        self.data.get_or_insert_default().extend_from_slice(bytes);
    }
}

/// Sets the content type of a body, unless the line sets it. A multipart type in the line gets the boundary.
pub(super) fn set_content_type(value: &str, translated: &mut Translated) {
    let is_type = |field: &&str| header_name(field).eq_ignore_ascii_case("content-type");
    let Some(own) = translated.headers().find(is_type).map(str::to_owned) else {
        return translated.add_header("Content-Type", value);
    };
    let Some(boundary) = value.strip_prefix(FORM) else { return };
    let (name, own_type) = own.split_once(':').unwrap_or((&own, ""));
    let own_type = own_type.trim();
    if own_type.to_ascii_lowercase().starts_with(FORM) && !own_type.contains("boundary") {
        translated.remove_headers(|field| field == own);
        translated.add_header(name, &format!("{own_type}{boundary}"));
    } else {
        let why = format!("-H '{name}: …': -F sets {FORM} with a boundary of its own: leave the field out");
        translated.mistakes.push(why);
    }
}

/// Appends a piece to a query. A `&` separates it from earlier text.
fn append(data: &mut Vec<u8>, bytes: &[u8]) {
    if !data.is_empty() && !bytes.is_empty() {
        data.push(b'&');
    }
    data.extend_from_slice(bytes);
}

fn with_query(url: &str, query: &[u8]) -> String {
    if query.is_empty() {
        return url.to_owned();
    }
    // A URL must be UTF-8, so any other query is percent-encoded.
    let query = match std::str::from_utf8(query) {
        Ok(text) => text.to_owned(),
        Err(_) => percent_encode(query, ESCAPED).to_string(),
    };
    let before_fragment = url.split('#').next().unwrap_or_default();
    let mark = if before_fragment.contains('?') { '&' } else { '?' };
    format!("{before_fragment}{mark}{query}")
}

/// Reads a file; `-` is standard input.
fn read(path: &str) -> Result<Vec<u8>, String> {
    input::read_body(Path::new(if path == "-" { "/dev/stdin" } else { path }))
}

fn text_or_file(value: &str) -> Result<Vec<u8>, String> {
    value.strip_prefix('@').map_or_else(|| Ok(value.as_bytes().to_vec()), read)
}

/// Parses a value of `--data-urlencode`: `content`, `=content`, `name=content`, `@file` or `name@file`.
fn encoded(value: &str) -> Result<Vec<u8>, String> {
    // In curl, `@` names a file only if the value has no `=`.
    let (name, content) = match value.find('=').or_else(|| value.find('@')) {
        Some(at) if value[at..].starts_with('=') => (&value[..at], value.as_bytes()[at + 1..].to_vec()),
        Some(at) => (&value[..at], read(&value[at + 1..])?),
        None => ("", value.as_bytes().to_vec()),
    };
    let mark = if name.is_empty() { "" } else { "=" };
    // curl writes a blank as a plus sign, as in HTML forms.
    let escaped = percent_encode(&content, ESCAPED).to_string().replace("%20", "+");
    Ok(format!("{name}{mark}{escaped}").into_bytes())
}
