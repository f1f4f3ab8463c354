//! Formats of bodies, determined by the content type.

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// JSON: one object, an array of objects, or one object per line.
    Json,
    /// NDJSON: one object per line.
    Ndjson,
    /// A percent-encoded form with a field `json` or `ndjson`; also the format of query strings.
    Form,
    /// A multipart form with a field `json` or `ndjson` and this boundary.
    Multipart(Boundary),
    /// Lines of text, each of which is a record.
    Raw,
    /// MessagePack, which is not supported.
    Msgpack,
    /// Any other format; none is supported.
    Other,
}

/// How strictly bodies are read, and how their formats are determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Any mistake refuses the whole body.
    #[default]
    Strict,
    /// Like strict, but formats are determined as in Fluentd's `in_http`, and records are rewritten as in its
    /// `out_file`.
    Fluentd,
    /// Like Fluentd with `<parse> @type json`: every body is a JSON text, regardless of its content type.
    FluentdJson,
}

impl Mode {
    /// Whether the mode follows Fluentd.
    pub(crate) fn is_fluentd(self) -> bool {
        self != Mode::Strict
    }
}

/// The boundary of a multipart body: 1 to 70 bytes (RFC 2046, 5.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Boundary {
    bytes: [u8; Boundary::MAX_BYTES],
    len: u8,
}

impl Kind {
    /// The format of a body with this `Content-Type`. Without the header, strict mode expects JSON, and Fluentd's modes
    /// know no format. Fluentd compares only the start of the value, case-sensitively. It supports
    /// `application/csp-report` since 1.17.
    pub fn of_content_type(content_type: Option<&[u8]>, mode: Mode) -> Kind {
        match (mode, content_type) {
            (Mode::Strict, None) | (Mode::FluentdJson, _) => Kind::Json,
            (Mode::Strict, Some(value)) => strict_kind(value),
            (Mode::Fluentd, None) => Kind::Other,
            (Mode::Fluentd, Some(value)) => fluentd_kind(value),
        }
    }

    /// Whether [`crate::read`] supports the format. If not, a listener need not receive the body.
    pub fn is_supported(self) -> bool {
        !matches!(self, Kind::Msgpack | Kind::Other)
    }
}

impl Boundary {
    const MAX_BYTES: usize = 70;

    /// Creates a boundary; `None` if `bytes` is empty or too long.
    pub fn new(bytes: &[u8]) -> Option<Boundary> {
        let mut boundary = Boundary { bytes: [0; Boundary::MAX_BYTES], len: u8::try_from(bytes.len()).ok()? };
        if bytes.is_empty() {
            return None;
        }
        boundary.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(boundary)
    }

    /// The boundary without the two hyphens that precede it in a body.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Boundary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Boundary({})", self.as_bytes().escape_ascii())
    }
}

fn strict_kind(value: &[u8]) -> Kind {
    let mut parts = value.split(|&byte| byte == b';');
    let media_type = parts.next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    match media_type.as_slice() {
        b"" | b"application/json" | b"application/csp-report" | b"text/json" => Kind::Json,
        b"application/x-ndjson"
        | b"application/ndjson"
        | b"application/jsonl"
        | b"application/x-jsonlines"
        | b"application/json-lines" => Kind::Ndjson,
        b"application/x-www-form-urlencoded" => Kind::Form,
        b"multipart/form-data" => {
            let boundary = parts.find_map(|parameter| {
                let parameter = parameter.trim_ascii();
                let (name, value) = parameter.split_at_checked(b"boundary=".len())?;
                name.eq_ignore_ascii_case(b"boundary=").then(|| unquoted(value))
            });
            boundary.and_then(Boundary::new).map_or(Kind::Other, Kind::Multipart)
        }
        b"text/plain" => Kind::Raw,
        b"application/msgpack" | b"application/x-msgpack" | b"application/vnd.msgpack" => Kind::Msgpack,
        other if other.starts_with(b"application/") && other.ends_with(b"+json") => Kind::Json,
        _ => Kind::Other,
    }
}

fn fluentd_kind(value: &[u8]) -> Kind {
    const MULTIPART: &[u8] = b"multipart/form-data; boundary=";
    if let Some(boundary) = value.strip_prefix(MULTIPART) {
        return Boundary::new(unquoted(boundary)).map_or(Kind::Other, Kind::Multipart);
    }
    let known: [(&[u8], Kind); 5] = [
        (b"application/x-www-form-urlencoded", Kind::Form),
        (b"application/json", Kind::Json),
        (b"application/csp-report", Kind::Json),
        (b"application/msgpack", Kind::Msgpack),
        (b"application/x-ndjson", Kind::Ndjson),
    ];
    known.into_iter().find(|(prefix, _)| value.starts_with(prefix)).map_or(Kind::Other, |(_, kind)| kind)
}

/// A parameter's value without its quotes, if it has any.
pub(crate) fn unquoted(value: &[u8]) -> &[u8] {
    let value = value.trim_ascii();
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str, mode: Mode) -> Kind {
        Kind::of_content_type(Some(value.as_bytes()), mode)
    }

    #[test]
    fn content_types_are_read_with_parameters_and_in_any_case() {
        for (value, kind) in [
            ("application/json", Kind::Json),
            ("Application/JSON; charset=utf-8", Kind::Json),
            ("application/cloudevents+json", Kind::Json),
            ("application/x-ndjson ;charset=utf-8", Kind::Ndjson),
            ("application/x-www-form-urlencoded", Kind::Form),
            ("text/plain", Kind::Raw),
            ("application/msgpack", Kind::Msgpack),
            ("image/png", Kind::Other),
            ("multipart/form-data", Kind::Other),
        ] {
            assert_eq!(of(value, Mode::Strict), kind, "{value}");
        }
        let quoted = of("multipart/form-data; charset=x; Boundary=\"a b\"", Mode::Strict);
        assert_eq!(quoted, Kind::Multipart(Boundary::new(b"a b").expect("three bytes")));
        assert_eq!(Kind::of_content_type(None, Mode::Strict), Kind::Json);
    }

    #[test]
    fn fluentd_compares_the_beginning() {
        assert_eq!(of("application/json-patch", Mode::Fluentd), Kind::Json);
        assert_eq!(of("application/JSON", Mode::Fluentd), Kind::Other);
        assert_eq!(of("text/plain", Mode::Fluentd), Kind::Other);
        assert_eq!(Kind::of_content_type(None, Mode::Fluentd), Kind::Other);
        let boundary = Boundary::new(b"xyz").expect("three bytes");
        assert_eq!(of("multipart/form-data; boundary=xyz", Mode::Fluentd), Kind::Multipart(boundary));
    }

    #[test]
    fn a_boundary_has_1_to_70_bytes() {
        assert_eq!(Boundary::new(b""), None);
        assert_eq!(Boundary::new(&[b'x'; 71]), None);
        assert_eq!(Boundary::new(&[b'x'; 70]).expect("70").as_bytes(), [b'x'; 70]);
    }
}
