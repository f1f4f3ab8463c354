//! Finds the field with the records in a multipart form (RFC 7578).

use memchr::memmem;

use crate::{
    Boundary, Mistake, Mode,
    form::{Fields, RecordField},
    kind::unquoted,
};

/// Finds the field with the records. Skips parts without a name. Fluentd's modes require a line break after the last
/// boundary, because Fluentd does.
pub(crate) fn find_records(
    body: &[u8],
    boundary: &Boundary,
    mode: Mode,
    value: &mut Vec<u8>,
) -> Result<Option<RecordField>, Mistake> {
    let mut fields = Fields::default();
    let mut parts = Parts::new(body, boundary);
    for part in &mut parts {
        if let Some((name, content)) = name_and_content(part) {
            fields.add(name, content)?;
        }
    }
    let Some((kind, content)) = fields.records else { return Ok(None) };
    let is_whole = parts.rest.starts_with(if mode.is_fluentd() { b"--\r\n" } else { b"--" });
    if !is_whole {
        // A form without its end may lack records.
        return Err(Mistake::at(body, body.len(), "expected the boundary that ends the form"));
    }
    value.clear();
    value.extend_from_slice(content);
    let time = fields.time.map(|time| String::from_utf8_lossy(time).into_owned());
    Ok(Some(RecordField { kind, time }))
}

/// Iterates over the parts between the boundaries.
struct Parts<'a> {
    rest: &'a [u8],
    /// The bytes between two parts: a line break, two hyphens and the boundary.
    delimiter: memmem::Finder<'static>,
}

impl<'a> Parts<'a> {
    fn new(body: &'a [u8], boundary: &Boundary) -> Parts<'a> {
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        // At the start of the body, the first boundary has no line break before it.
        let rest = match body.strip_prefix(&delimiter[2..]) {
            Some(rest) => rest,
            None => memmem::find(body, &delimiter).map_or(&[][..], |at| &body[at + delimiter.len()..]),
        };
        Parts { rest, delimiter: memmem::Finder::new(&delimiter).into_owned() }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // A line break follows the boundary; two hyphens follow the last one.
        if self.rest.starts_with(b"--") {
            return None;
        }
        let line_end = memmem::find(self.rest, b"\r\n")?;
        // Includes the line break in the part, because a part without headers starts with an empty line.
        let part = &self.rest[line_end..];
        let end = self.delimiter.find(part)?;
        self.rest = &part[end + self.delimiter.needle().len()..];
        Some(&part[..end])
    }
}

/// Name and content of a part; `None` if it has no name.
fn name_and_content(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let head_end = memmem::find(part, b"\r\n\r\n")?;
    let (head, content) = (&part[..head_end], &part[head_end + 4..]);
    let name = head.split(|&byte| byte == b'\n').find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let is_disposition = line[..colon].trim_ascii().eq_ignore_ascii_case(b"content-disposition");
        is_disposition.then(|| parameter_name(&line[colon + 1..])).flatten()
    })?;
    Some((name, content))
}

/// The parameter `name` of a Content-Disposition header's value.
fn parameter_name(disposition: &[u8]) -> Option<&[u8]> {
    disposition
        .split(|&byte| byte == b';')
        .find_map(|parameter| parameter.trim_ascii().strip_prefix(b"name=").map(unquoted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn found(body: &str) -> Option<(Kind, String, Option<String>)> {
        let mut value = b"old".to_vec();
        let found = find_records(
            body.as_bytes(),
            &Boundary::new(b"xx").expect("two bytes"),
            Mode::Strict,
            &mut value,
        )
        .ok()??;
        Some((found.kind, String::from_utf8(value).expect("the tests are UTF-8"), found.time))
    }

    #[test]
    fn the_records_are_found_among_other_parts() {
        let body = "a preamble\r\n--xx\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nv\r\n--xx \r\n\
                    content-disposition: form-data; filename=\"a\"; name=\"json\"\r\nContent-Type: text/x\r\n\r\n\
                    {\"a\":\r\n1}\r\n--xx\r\n\r\nno name\r\n--xx\r\nContent-Disposition: form-data; name=time\r\n\r\n\
                    12\r\n--xx--\r\n";
        assert_eq!(found(body), Some((Kind::Json, "{\"a\":\r\n1}".to_owned(), Some("12".to_owned()))));
        let body = "--xx\r\nContent-Disposition: form-data; name=\"ndjson\"\r\n\r\n{}\r\n--xx--";
        assert_eq!(found(body), Some((Kind::Ndjson, "{}".to_owned(), None)));
    }

    #[test]
    fn an_incomplete_part_is_ignored() {
        assert_eq!(found("--xx\r\nContent-Disposition: form-data; name=\"json\"\r\n\r\n{}"), None);
        assert_eq!(found("--xx\r\nContent-Disposition: form-data; name=\"json\"\r\n--xx--"), None);
        assert_eq!(found("--xx--\r\n"), None);
        assert_eq!(found(""), None);
    }
}
