//! Command lines of other programs, and the request that each must send, from `tests/data/foreign-lines.txt`. The file
//! describes its own format.

use std::{fs, path::Path};

/// A command line of another program, and the expected result.
#[derive(Debug, Clone, Default)]
pub struct ForeignLine {
    /// The line as typed, with the actual host and the actual paths of its files.
    pub line: String,
    /// The request that it must send; `None` if proofload must refuse the line.
    pub sends: Option<SentRequest>,
    /// If the URL is `https`, the options of proofload that replace the program's TLS options.
    pub tls: String,
    /// Words of the refusal; empty if proofload accepts the line.
    pub refused: String,
}

/// A request, without the header fields that identify the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentRequest {
    /// The method.
    pub method: String,
    /// The target of the request line.
    pub target: String,
    /// Names in lower case and values, sorted; without the fields that `normal` removes.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl ForeignLine {
    /// The name of the program, which is the first word of the line.
    pub fn program(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// The line with `words` inserted before its URL, which is the last word.
    pub fn with(&self, words: &str) -> String {
        let (before, url) = self.line.rsplit_once(' ').expect("a line has a program and a URL");
        format!("{before} {words} {url}")
    }
}

impl SentRequest {
    /// The request in a form that can be compared: without User-Agent, Content-Length, Expect and `Connection: close`,
    /// and with a known boundary between the parts of a form.
    pub fn normal(mut self) -> Self {
        let boundary = self
            .headers
            .iter()
            .find_map(|(_, value)| value.split_once("boundary="))
            .map(|(_, text)| text.to_owned());
        for (name, value) in &mut self.headers {
            name.make_ascii_lowercase();
            if let Some(boundary) = &boundary {
                *value = value.replace(boundary, "BOUNDARY");
            }
        }
        if let Some(boundary) = boundary {
            self.body = String::from_utf8_lossy(&self.body).replace(&boundary, "BOUNDARY").into_bytes();
        }
        self.headers.retain(|(name, value)| {
            let is_close = name == "connection" && value.eq_ignore_ascii_case("close");
            !["user-agent", "content-length", "expect"].contains(&name.as_str()) && !is_close
        });
        self.headers.sort();
        self
    }
}

/// Reads the list for a service at `host`, which must include a port. Writes the files that the lines need into
/// `folder`.
///
/// # Panics
/// When the list does not have the format that it describes, or a file cannot be written.
pub fn read(text: &str, host: &str, folder: &Path) -> Vec<ForeignLine> {
    let port = host.rsplit_once(':').expect("the host has a port").1;
    let put_in = |text: &str| text.replace("HOST", host).replace("PORT", port);
    let blocks =
        text.split("\n\n").map(str::trim).filter(|block| !block.starts_with('#') && !block.is_empty());
    let read = |block: &str| {
        let mut found = ForeignLine::default();
        let mut sends = SentRequest::default();
        let mut is_goes_on = true;
        for line in block.lines() {
            if is_goes_on {
                let mark = if found.line.is_empty() { "" } else { "\n" };
                found.line = format!("{}{mark}{}", found.line, put_in(line));
                is_goes_on = line.ends_with('\\');
                continue;
            }
            let (key, value) = line.trim().split_once(": ").unwrap_or_else(|| panic!("no key in '{line}'"));
            match key {
                "from" => {}
                "file" => {
                    let (name, content) = value.split_once(": ").expect("a file has a name and content");
                    let path = folder.join(name);
                    fs::write(&path, unescaped(content)).unwrap();
                    found.line = found.line.replacen(name, &path.display().to_string(), 1);
                }
                "sends" => {
                    let (method, target) = value.split_once(' ').expect("a method and a target");
                    (sends.method, sends.target) = (method.to_owned(), target.to_owned());
                }
                "header" => {
                    let (name, value) = value.split_once(": ").expect("a header field");
                    sends.headers.push((name.to_ascii_lowercase(), put_in(value)));
                }
                "body" => sends.body = unescaped(value).into_bytes(),
                "tls" => found.tls = value.to_owned(),
                "refused" => found.refused = value.to_owned(),
                _ => panic!("'{key}' is not described"),
            }
        }
        if !sends.headers.iter().any(|(name, _)| name == "host") {
            sends.headers.push(("host".to_owned(), host.to_owned()));
        }
        sends.headers.sort();
        found.sends = found.refused.is_empty().then_some(sends);
        found
    };
    blocks.map(read).collect()
}

fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\r", "\r")
}
