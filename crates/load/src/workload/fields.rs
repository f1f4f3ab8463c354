//! The header fields of a workload, and its secrets.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use percent_encoding::percent_decode_str;
use secrets::{MASK, mask, mask_url, names::is_secret_header, reference};
use url::Url;

use super::{
    HttpWorkload,
    text::{Mistakes, expanded, is_token},
};

/// A header field as it is sent.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) value: String,
    /// Whether it is a secret: by its name, or because it was named and not written.
    is_secret: bool,
}

impl HttpWorkload {
    /// The fields, those of files among them. What is secret in them is known from now on.
    pub(super) fn fields(&self, mistakes: &mut Mistakes) -> Vec<Field> {
        let mut fields = Vec::new();
        for (index, header) in self.headers.iter().enumerate() {
            match header.strip_prefix('@') {
                Some(path) => fields.extend(fields_of(path, mistakes)),
                None => match written(header) {
                    Ok(field) => fields.push(field),
                    // Without the text: who forgot the colon may have written a secret.
                    Err(why) => mistakes.add("headers", format!("field {}: {why}", index + 1)),
                },
            }
        }
        fields
    }

    /// What is secret in it: what each is, and its value as it is sent. Mistakes are told by [`HttpWorkload::plan`].
    pub fn secrets(&self) -> Vec<(String, String)> {
        let fields = self.fields(&mut Mistakes::default()).into_iter().filter(|field| field.is_secret);
        let mut secrets: Vec<_> =
            fields.map(|field| (format!("the header {}", field.name), field.value)).collect();
        let url = reference::expand_url(&self.url).unwrap_or_default();
        secrets.extend(mask::secrets_in_url(&url));
        let named = [("the URL", Some(&self.url), url), ("the body", self.body.as_ref(), String::new())];
        for (what, text, sent) in named {
            let Some(text) = text.filter(|text| reference::has_reference(text)) else { continue };
            let sent = if sent.is_empty() { expanded(text).unwrap_or_default() } else { sent };
            secrets.push((what.to_owned(), sent));
        }
        secrets
    }

    /// The same workload as it may be written and printed.
    pub fn masked(&self) -> Self {
        let headers = self.headers.iter().map(|header| mask(header).into_owned()).collect();
        Self { url: mask_url(&self.url), headers, ..self.clone() }
    }
}

/// The field that a URL's user info makes: Basic authentication, as curl does it.
pub(super) fn of_user_info(url: &Url) -> Result<Option<(String, String)>, &'static str> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user: Vec<u8> = percent_decode_str(url.username()).collect();
    if user.contains(&b':') {
        return Err("a user's name with a colon cannot be sent as Basic authentication (RFC 7617)");
    }
    let password: Vec<u8> = percent_decode_str(url.password().unwrap_or_default()).collect();
    let pair = BASE64.encode([&user[..], b":", &password].concat());
    mask::learn_header("Authorization", &format!("Basic {pair}"));
    Ok(Some(("Authorization".to_owned(), format!("Basic {pair}"))))
}

/// The fields of a file, one a line, as curl's -H @FILE takes them.
fn fields_of(path: &str, mistakes: &mut Mistakes) -> Vec<Field> {
    let lines = match path {
        "" | "-" => Err("@ is followed by the path of a file with a header field a line".to_owned()),
        path => reference::read_lines_once(Path::new(path)),
    };
    let lines = mistakes.read("headers", lines.map(|lines| lines.lines));
    let mut fields = Vec::new();
    for (number, line) in lines {
        match parted(&line) {
            Ok((name, value)) => {
                mask::learn_header(name, value);
                mask::learn_text(value, MASK);
                fields.push(Field { name: name.to_owned(), value: value.to_owned(), is_secret: true });
            }
            Err(why) => mistakes.add("headers", format!("{path}:{number}: {why}")),
        }
    }
    fields
}

/// A field as it stands on a command line or in a study file.
fn written(header: &str) -> Result<Field, String> {
    let (name, written) = parted(header)?;
    let value = reference::expand(written)?.trim().to_owned();
    if !is_value(&value) {
        return Err("a line end stands in its value".to_owned());
    }
    let is_named = reference::has_reference(written);
    let is_secret = is_named || is_secret_header(name);
    if is_secret {
        mask::learn_header(name, &value);
    }
    if is_named {
        mask::learn_text(&value, written);
    } else if is_secret {
        mask::learn_text(header, &format!("{name}: {}", mask::mask_header(name, &value)));
    }
    Ok(Field { name: name.to_owned(), value, is_secret })
}

fn parted(header: &str) -> Result<(&str, &str), String> {
    match header.split_once(':') {
        Some((name, value)) if is_token(name) && is_value(value) => Ok((name, value.trim())),
        _ => Err("not a name, a colon and a value such as 'Accept: text/html'".to_owned()),
    }
}

fn is_value(value: &str) -> bool {
    !value.contains(['\r', '\n', '\0'])
}
