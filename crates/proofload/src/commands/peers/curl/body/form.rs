//! Multipart forms (`-F`), as curl sends them.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use super::read;

/// A part of a multipart form.
#[derive(Debug)]
pub(super) struct Part {
    name: String,
    content: Vec<u8>,
    file_name: Option<String>,
    content_type: Option<String>,
}

impl Part {
    /// Parses `NAME=TEXT`, `NAME=@FILE` (sent as a file) or `NAME=<FILE` (sent as text), with `;type=` and `;filename=`.
    ///
    /// # Errors
    /// If a file cannot be read, or the value uses an unsupported feature.
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let (name, rest) = value.split_once('=').ok_or("it is not NAME=CONTENT")?;
        let (source, rest) = match rest.chars().next() {
            Some(mark @ ('@' | '<')) => (Some(mark), &rest[1..]),
            _ => (None, rest),
        };
        if rest.starts_with('(') && source.is_none() && name.is_empty() {
            return Err(
                "nested parts are not supported: write the body to a file, and give --data-binary @FILE"
                    .to_owned(),
            );
        }
        let (word, mut rest) = word(rest);
        let (mut content_type, mut file_name): (Option<String>, _) = (None, None);
        while let Some(after) = rest.strip_prefix(';') {
            let parameter = after.trim_start();
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let (value, following) = self::word(value);
            match key {
                "type" => content_type = Some(value),
                "filename" => file_name = Some(value),
                "headers" | "encoder" => {
                    return Err(format!("{key}= in a part is not supported: leave it out"));
                }
                // Any other key is a parameter of the media type, such as charset.
                _ => {
                    let media_type =
                        content_type.as_mut().ok_or_else(|| format!("'{key}' is not type= or filename="))?;
                    media_type.push_str(&format!("; {key}={value}"));
                }
            }
            rest = following;
        }
        let content = match source {
            Some(_) if rest.starts_with(',') => {
                return Err("several files in one part are not supported".to_owned());
            }
            Some(_) => read(&word)?,
            None => word.clone().into_bytes(),
        };
        if source == Some('@') && file_name.is_none() {
            let path = Path::new(&word);
            file_name =
                Some(path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()));
        }
        if source.is_some() && content_type.is_none() {
            let guessed = guessed_type(file_name.as_deref().unwrap_or(&word));
            content_type = match guessed {
                "" => file_name.is_some().then(|| "application/octet-stream".to_owned()),
                // text/plain is the default of a part that is not a file.
                "text/plain" if file_name.is_none() => None,
                guessed => Some(guessed.to_owned()),
            };
        }
        Ok(Self { name: name.to_owned(), content, file_name, content_type })
    }

    /// Parses `NAME=STRING`, in which no character is special.
    ///
    /// # Errors
    /// If there is no `=`.
    pub(super) fn literal(value: &str) -> Result<Self, String> {
        let (name, content) = value.split_once('=').ok_or("it is not NAME=STRING")?;
        let content = content.as_bytes().to_vec();
        Ok(Self { name: name.to_owned(), content, file_name: None, content_type: None })
    }

    fn write(&self, boundary: &str, into: &mut Vec<u8>) {
        let mut head = format!("--{boundary}\r\nContent-Disposition: form-data");
        if !self.name.is_empty() {
            head += &format!("; name=\"{}\"", escaped(&self.name));
        }
        if let Some(name) = &self.file_name {
            head += &format!("; filename=\"{}\"", escaped(name));
        }
        if let Some(content_type) = &self.content_type {
            head += &format!("\r\nContent-Type: {content_type}");
        }
        into.extend_from_slice(head.as_bytes());
        into.extend_from_slice(b"\r\n\r\n");
        into.extend_from_slice(&self.content);
        into.extend_from_slice(b"\r\n");
    }
}

/// The body of a form, and its boundary. The boundary is as long as curl's, occurs in no part, and is a hash, so that
/// equal parts give equal bodies.
pub(super) fn multipart(parts: &[Part]) -> (Vec<u8>, String) {
    let mut hasher = DefaultHasher::new();
    loop {
        parts.iter().for_each(|part| part.content.hash(&mut hasher));
        let boundary = format!("------------------------{:016x}", hasher.finish());
        let is_free =
            |part: &Part| !part.content.windows(boundary.len()).any(|window| window == boundary.as_bytes());
        if parts.iter().all(is_free) {
            let mut body = Vec::new();
            parts.iter().for_each(|part| part.write(&boundary, &mut body));
            body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
            return (body, boundary);
        }
    }
}

/// Splits off the first word of a text, which ends at `;` or, if it is quoted, at the closing quote.
fn word(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let (mut word, mut characters) = (String::new(), quoted.char_indices());
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (word, quoted[at + 1..].trim_start()),
            '\\' => word.extend(characters.next().map(|(_, c)| c)),
            c => word.push(c),
        }
    }
    // Without a closing quote, the opening one is part of the word.
    let end = text.find(';').unwrap_or(text.len());
    (text[..end].to_owned(), &text[end..])
}

/// Escapes a name for a quoted parameter in a part's header.
fn escaped(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// The media type that curl guesses from a file name extension; empty if it knows none.
fn guessed_type(name: &str) -> &'static str {
    let ending = Path::new(name).extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("gif") => "image/gif",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain",
        Some("htm" | "html") => "text/html",
        Some("pdf") => "application/pdf",
        Some("xml") => "application/xml",
        _ => "",
    }
}
