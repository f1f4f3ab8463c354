//! The header fields of a workload, and its secrets.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use percent_encoding::percent_decode_str;
use record::{Text, TextPart};
use secrets::{MASK, mask, mask_url, names::is_secret_header, reference};
use url::Url;

use super::{
    HttpWorkload, StepText,
    text::{Mistakes, is_token, read_target, read_text},
};

/// A header field as it is sent.
pub(super) struct HeaderField {
    pub(super) name: String,
    pub(super) value: Text,
    /// Whether its value is secret: by its name, or because it comes from a variable or a file.
    is_secret: bool,
}

impl HttpWorkload {
    /// The header fields, including those of files. From this call on, their secrets are masked everywhere.
    pub(super) fn header_fields(&self, mistakes: &mut Mistakes) -> Vec<HeaderField> {
        let mut fields = Vec::new();
        for (index, header) in self.headers.iter().enumerate() {
            match header.strip_prefix('@') {
                Some(path) => fields.extend(read_header_file(path, mistakes)),
                None => match parse_header(header) {
                    Ok(field) => fields.push(field),
                    // The message does not quote the text, which may hold a secret.
                    Err(why) => mistakes.add("headers", format!("field {}: {why}", index + 1)),
                },
            }
        }
        if let Some(content_type) = &self.content_type {
            let is_given = |field: &HeaderField| field.name.eq_ignore_ascii_case("content-type");
            let field = match fields.iter().any(is_given) {
                true => Err("there is also a Content-Type header: leave out one of them".to_owned()),
                false => parse_header(&format!("Content-Type: {content_type}")),
            };
            fields.extend(mistakes.read("content_type", field.map(Some)));
        }
        fields
    }

    /// The workload's secrets: for each, a name and the value as sent. [`HttpWorkload::plan`] reports mistakes.
    pub fn secrets(&self) -> Vec<(String, String)> {
        let fields = self.header_fields(&mut Mistakes::default()).into_iter().filter(|field| field.is_secret);
        let mut secrets: Vec<_> =
            fields.map(|field| (format!("the header {}", field.name), field.value.shown())).collect();
        let steps = self.steps.iter().flat_map(StepText::all);
        secrets.extend(steps.flat_map(|step| &step.headers).filter_map(|header| {
            let field = parse_header(header).ok().filter(|field| field.is_secret)?;
            Some((format!("the header {}", field.name), field.value.shown()))
        }));
        let sent = |url: &str| read_target(url).map(|text| text.shown()).unwrap_or_default();
        let (url, proxy) = (sent(&self.url), sent(self.proxy.as_deref().unwrap_or_default()));
        secrets.extend(mask::secrets_in_url(&url));
        let of_proxy = mask::secrets_in_url(&proxy).into_iter();
        secrets.extend(of_proxy.map(|(name, value)| (format!("{name} of the proxy"), value)));
        let texts = [
            ("the URL", Some(&self.url), url),
            ("the proxy", self.proxy.as_ref(), proxy),
            ("the body", self.body.as_ref(), String::new()),
        ];
        for (name, text, sent) in texts {
            let Some(text) = text.filter(|text| reference::has_reference(text)) else { continue };
            let sent_text = || read_text(text).map(|text| text.shown()).unwrap_or_default();
            secrets.push((name.to_owned(), if sent.is_empty() { sent_text() } else { sent }));
        }
        secrets
    }

    /// The workload with its secrets masked, for output.
    pub fn masked(&self) -> Self {
        let headers = masked_all(&self.headers);
        let steps = self.steps.iter().map(StepText::masked).collect();
        let proxy = self.proxy.as_deref().map(mask_url);
        Self { url: mask_url(&self.url), proxy, headers, steps, ..self.clone() }
    }
}

impl StepText {
    /// The step and the steps within it.
    pub(super) fn all(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        Box::new(std::iter::once(self).chain(self.steps.iter().flat_map(Self::all)))
    }

    /// The step with its secrets masked.
    fn masked(&self) -> Self {
        Self {
            headers: masked_all(&self.headers),
            body: self.body.as_deref().map(|body| mask(body).into_owned()),
            request: self.request.as_deref().map(|line| mask(line).into_owned()),
            steps: self.steps.iter().map(Self::masked).collect(),
            ..self.clone()
        }
    }
}

fn masked_all(headers: &[String]) -> Vec<String> {
    headers.iter().map(|header| mask(header).into_owned()).collect()
}

/// The Authorization field for a URL's user info: Basic authentication, as in curl.
pub(super) fn basic_auth_field(url: &Url) -> Result<Option<(String, String)>, &'static str> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user: Vec<u8> = percent_decode_str(url.username()).collect();
    if user.contains(&b':') {
        return Err("a user name with a colon cannot be sent as Basic authentication (RFC 7617)");
    }
    let password: Vec<u8> = percent_decode_str(url.password().unwrap_or_default()).collect();
    let pair = BASE64.encode([&user[..], b":", &password].concat());
    mask::learn_header("Authorization", &format!("Basic {pair}"));
    Ok(Some(("Authorization".to_owned(), format!("Basic {pair}"))))
}

/// Reads a file with one field per line, as curl's -H @FILE does. All fields count as secret.
fn read_header_file(path: &str, mistakes: &mut Mistakes) -> Vec<HeaderField> {
    let lines = match path {
        "" | "-" => Err("after @, give the path of a file with one header field per line".to_owned()),
        path => reference::read_lines_once(Path::new(path)),
    };
    let lines = mistakes.read("headers", lines.map(|lines| lines.lines));
    let mut fields = Vec::new();
    for (number, line) in lines {
        match line.as_deref().map_err(Clone::clone).and_then(split_header) {
            Ok((name, value)) => {
                mask::learn_header(name, value);
                mask::learn_text(value, MASK);
                fields.push(HeaderField {
                    name: name.to_owned(),
                    value: Text::literal(value),
                    is_secret: true,
                });
            }
            Err(why) => mistakes.add("headers", format!("{path}:{number}: {why}")),
        }
    }
    fields
}

/// Parses a field of a command line or a study file.
pub(super) fn parse_header(header: &str) -> Result<HeaderField, String> {
    let (name, written) = split_header(header)?;
    // A part of a secret is secret, too, so the message for a secret field does not quote its value.
    let has_secret_name = is_secret_header(name);
    let value = read_text(written).map_err(|why| match has_secret_name && written.contains("{{") {
        true => format!(
            "in the value of {name}, a '{{{{' has no '}}}}': write {{{{\"{{{{\"}}}} for the braces themselves"
        ),
        false => why,
    })?;
    let sent = value.shown();
    if !is_value(&sent) {
        return Err(format!("the value of {name} contains a line end, which a header field cannot carry"));
    }
    let has_variable = reference::has_reference(written);
    let is_secret = has_variable || has_secret_name;
    if is_secret {
        mask::learn_header(name, &sent);
    } else {
        // The value may hold a secret, such as a token in a URL.
        mask::learn_variable(name, &sent);
    }
    if is_secret && !has_variable {
        mask::learn_text(header, &format!("{name}: {}", mask::mask_header(name, &sent)));
    }
    let is_no_host = |part: &TextPart| match part {
        TextPart::Literal(literal) => literal.iter().any(|byte| b" \t/@?#".contains(byte)),
        TextPart::Template(_) => false,
    };
    if name.eq_ignore_ascii_case("host") && value.parts().iter().any(is_no_host) {
        return Err("Host names one host, such as example.org:8080".to_owned());
    }
    Ok(HeaderField { name: name.to_owned(), value, is_secret })
}

fn split_header(header: &str) -> Result<(&str, &str), String> {
    match header.split_once(':') {
        Some((name, value)) if is_token(name) && is_value(value) => Ok((name, value.trim())),
        _ => Err("not a name, a colon and a value such as 'Accept: text/html'".to_owned()),
    }
}

fn is_value(value: &str) -> bool {
    !value.contains(['\r', '\n', '\0'])
}
