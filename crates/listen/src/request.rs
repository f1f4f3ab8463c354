//! Evaluates the head of a request. All refusals that the head allows happen here, before the body is read.

use events::{Encoding, EventTime, Inflater, Kind, Mode, Rules};
use form_urlencoded as form;
use http1::{Framing, RequestHead};
use segments::Level;

use crate::{
    Compat, RequestFields,
    answer::{AnswerContext, Page, Reply, level_by_name},
    incoming::IncomingRequest,
    members::add_members,
    pages,
    refusal::{MAX_TAG_BYTES, Refusal},
    routes::{fluentd_tag_of, tag_of},
    shared::Shared,
};

/// Methods that Fluentd's parser (http_parser.rb) accepts, except those that [`method`] matches by name.
const METHODS: &str = "DELETE HEAD CONNECT TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK BIND REBIND UNBIND ACL \
                       REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE PATCH PURGE MKCALENDAR LINK \
                       UNLINK";

const AUTHORIZATION: &str = "Authorization";

/// The headers that the listener uses, except those that the HTTP parser handles.
#[derive(Default)]
struct Headers<'h> {
    hosts: u32,
    /// A header that must be unique but occurs twice. Another program that reads the request, such as a proxy, may use
    /// the other value.
    repeated: Option<&'static str>,
    authorization: Option<&'h [u8]>,
    content_type: Option<&'h [u8]>,
    content_encoding: Option<&'h [u8]>,
    expects_other: bool,
    ack: Option<&'h [u8]>,
    idempotency_key: Option<&'h [u8]>,
    origin: Option<&'h [u8]>,
    requested_method: Option<&'h [u8]>,
    requested_headers: Option<&'h [u8]>,
}

/// Evaluates a head into `incoming`. Sets `incoming.reply` if the request can be answered without its body. `peer` is
/// the client's address, and `admin` tells whether the request came to the admin port.
#[inline]
pub(crate) fn read_head<'a>(
    head: &RequestHead<'_>,
    incoming: &mut IncomingRequest<'a>,
    shared: &'a Shared,
    admin: bool,
    peer: impl FnOnce() -> String,
    now_ns: u64,
) {
    let headers = Headers::read(head);
    incoming.context = AnswerContext {
        close: !head.keep_alive,
        http10: head.minor_version == 0,
        is_head: head.method == "HEAD",
        names_level: headers.ack.is_some(),
        origin: None,
    };
    incoming.expects_continue = head.expect_continue;
    incoming.reply = check_head(head, &headers, incoming, shared, admin, peer, now_ns).err();
}

fn check_head<'a>(
    head: &RequestHead<'_>,
    headers: &Headers<'_>,
    incoming: &mut IncomingRequest<'a>,
    shared: &'a Shared,
    admin: bool,
    peer: impl FnOnce() -> String,
    now_ns: u64,
) -> Result<(), Reply<'static>> {
    let refused = |refusal| Err(Reply::Refused(refusal));
    // Only proofload checks the Host header; Fluentd does not.
    let strict = shared.config.compat == Compat::None;
    if strict && (headers.hosts > 1 || (headers.hosts == 0 && head.minor_version > 0)) {
        incoming.context.close = true;
        return refused(Refusal::Host);
    }
    // Fluentd uses the last value of a repeated header. It checks no credentials, so `Authorization` must be unique in
    // its dialect too.
    if let Some(name) = headers.repeated.filter(|&name| strict || name == AUTHORIZATION) {
        return refused(Refusal::Repeated(name));
    }
    let (path, query) = split(head.target);
    match head.method {
        "POST" | "PUT" => {}
        _ => method(head.method, path, headers, incoming, shared, admin)?,
    }
    if admin {
        return refused(Refusal::Method);
    }
    if !shared.authenticator.accepts(headers.authorization) {
        return refused(Refusal::Unauthorized);
    }
    let config = &shared.config;
    let prefix = config.tag_prefix.as_deref();
    match config.compat {
        Compat::None => match tag_of(path, prefix, &mut incoming.tag) {
            Ok(true) => {}
            Ok(false) => return refused(Refusal::NoTag),
            Err(segment) => return refused(Refusal::TagEscape(segment.to_owned())),
        },
        Compat::Fluentd { .. } => {
            fluentd_tag_of(path, prefix, &mut incoming.tag);
            fluentd(path, query, headers, incoming, shared)?;
        }
    }
    if incoming.tag.len() > MAX_TAG_BYTES {
        return refused(Refusal::LongTag(incoming.tag.len()));
    }
    if config.tags.as_ref().is_some_and(|tags| !tags.matches(&incoming.tag)) {
        return refused(Refusal::TagNotStored);
    }
    if headers.expects_other {
        return refused(Refusal::Expectation);
    }
    incoming.level = level(headers.ack, path, shared).map_err(Reply::Refused)?;
    set_media_type(headers, incoming, shared).map_err(Reply::Refused)?;
    if let Some(key) = headers.idempotency_key.filter(|_| shared.idempotency.is_enabled()) {
        match std::str::from_utf8(key) {
            Ok(key) if key.is_ascii() && (1..=255).contains(&key.len()) => {
                incoming.idempotency_key = Some(key.to_owned());
            }
            _ => return refused(Refusal::IdempotencyKey),
        }
    }
    if !query.is_empty() {
        incoming.time = time(query, &config.rules).map_err(Reply::Refused)?;
    }
    if config.request_fields != RequestFields::default() {
        add_members(head, query, peer, config.request_fields, &mut incoming.extra_members);
    }
    if let Some(refusal) = shared.breaker.refusal(&shared.store, now_ns) {
        return refused(refusal);
    }
    incoming.reserve_for_body(head.framing, &config.limits, shared.budget.free()).map_err(Reply::Refused)?;
    if let (Framing::Length(bytes), None) = (head.framing, &incoming.inflater) {
        // Reserved at once, because growing the buffer in steps would copy it.
        incoming.body.reserve(bytes.min(64 * 1024) as usize);
    }
    Ok(())
}

impl<'h> Headers<'h> {
    #[inline]
    fn read(head: &RequestHead<'h>) -> Self {
        let mut read = Self::default();
        for header in head.headers {
            let (name, value) = (header.name, header.value);
            // Lengths are compared first, because that excludes most names.
            let (field, once) = match name.len() {
                4 if name.eq_ignore_ascii_case("host") => {
                    read.hosts += 1;
                    continue;
                }
                6 if name.eq_ignore_ascii_case("expect") => {
                    let is_other = |element: &[u8]| !element.eq_ignore_ascii_case(b"100-continue");
                    read.expects_other |= http1::list(value).any(is_other);
                    continue;
                }
                6 if name.eq_ignore_ascii_case("origin") => (&mut read.origin, ""),
                12 if name.eq_ignore_ascii_case("content-type") => (&mut read.content_type, ""),
                13 if name.eq_ignore_ascii_case("authorization") => (&mut read.authorization, AUTHORIZATION),
                13 if name.eq_ignore_ascii_case("proofload-ack") => (&mut read.ack, ""),
                15 if name.eq_ignore_ascii_case("idempotency-key") => {
                    (&mut read.idempotency_key, "Idempotency-Key")
                }
                16 if name.eq_ignore_ascii_case("content-encoding") => {
                    (&mut read.content_encoding, "Content-Encoding")
                }
                29 if name.eq_ignore_ascii_case("access-control-request-method") => {
                    (&mut read.requested_method, "")
                }
                30 if name.eq_ignore_ascii_case("access-control-request-headers") => {
                    (&mut read.requested_headers, "")
                }
                _ => continue,
            };
            let is_repeated = field.replace(value).is_some() && !once.is_empty();
            if is_repeated && read.repeated != Some(AUTHORIZATION) {
                read.repeated = Some(once);
            }
        }
        read
    }
}

/// Splits a target into path and query. The target may be a whole URL (RFC 9112, 3.2.2).
fn split(target: &str) -> (&str, &str) {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            rest.find(['/', '?']).map_or("/", |start| &rest[start..])
        }
        _ => target,
    };
    target.split_once('?').unwrap_or((target, ""))
}

/// Evaluates requests with methods other than POST and PUT.
#[cold]
fn method(
    method: &str,
    path: &str,
    headers: &Headers<'_>,
    incoming: &mut IncomingRequest<'_>,
    shared: &Shared,
    admin: bool,
) -> Result<(), Reply<'static>> {
    let fluentd = matches!(shared.config.compat, Compat::Fluentd { .. }) && !admin;
    match (method, path) {
        ("GET" | "HEAD", "/health") => Err(Reply::Page(pages::health(shared))),
        ("GET" | "HEAD", "/metrics") if admin || shared.authenticator.accepts(headers.authorization) => {
            Err(Reply::Page(pages::metrics(shared)))
        }
        ("GET" | "HEAD", "/metrics") => Err(Reply::Refused(Refusal::Unauthorized)),
        ("GET" | "HEAD", _) if admin => {
            let body = "this port serves /health and /metrics\n".to_owned();
            Err(Reply::Page(Page { status: 404, content_type: "text/plain", body }))
        }
        ("GET", _) if fluentd => Err(Reply::Nothing),
        ("OPTIONS", _) if fluentd => {
            let allowed = headers.requested_method.is_some_and(|method| method.eq_ignore_ascii_case(b"POST"));
            incoming.context.origin = allowed_origin(headers.origin, &shared.config.compat);
            let allowed = allowed && incoming.context.origin.is_some();
            let asked = headers.requested_headers.unwrap_or_default();
            let headers = allowed.then(|| String::from_utf8_lossy(asked).into_owned());
            Err(Reply::Preflight { headers })
        }
        // Fluentd treats all other methods that it knows like POST.
        _ if fluentd && METHODS.split(' ').any(|known| known == method) => {
            incoming.context.is_head = false;
            Ok(())
        }
        _ if fluentd => Err(Reply::Refused(Refusal::Http(http1::Error::BadMethod { at: 0 }))),
        _ => Err(Reply::Refused(Refusal::Method)),
    }
}

/// Makes the checks that Fluentd makes and proofload's own dialect does not.
fn fluentd(
    path: &str,
    query: &str,
    headers: &Headers<'_>,
    incoming: &mut IncomingRequest<'_>,
    shared: &Shared,
) -> Result<(), Reply<'static>> {
    let Compat::Fluentd { cors_allow_origins, .. } = &shared.config.compat else { return Ok(()) };
    if let Some(at) = invalid_uri_position(path, query) {
        return Err(Reply::Refused(Refusal::Http(http1::Error::BadTarget { at })));
    }
    if !cors_allow_origins.is_empty() {
        incoming.context.origin = allowed_origin(headers.origin, &shared.config.compat);
        if incoming.context.origin.is_none() {
            return Err(Reply::Refused(Refusal::Origin));
        }
    }
    incoming.query.push_str(query);
    Ok(())
}

/// The first position where a path or query violates RFC 3986. Fluentd refuses such targets, because Ruby does. A
/// leading `//` is a violation too, because it would start a host name.
fn invalid_uri_position(path: &str, query: &str) -> Option<usize> {
    let bad_escape = |text: &str| {
        text.match_indices('%').map(|(at, _)| at).find(|&at| {
            let digits = text.as_bytes().get(at + 1..at + 3);
            !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        })
    };
    let is_path_char = |c: char| c.is_ascii_alphanumeric() || "/%-._~!$&'()*+,;=:@".contains(c);
    path.starts_with("//")
        .then_some(0)
        .or_else(|| path.find(|c| !is_path_char(c)))
        .or_else(|| bad_escape(path))
        .or_else(|| bad_escape(query))
}

/// The value of `Access-Control-Allow-Origin` for an origin; `None` if browsers may not post from it.
fn allowed_origin(origin: Option<&[u8]>, compat: &Compat) -> Option<Box<str>> {
    let Compat::Fluentd { cors_allow_origins, .. } = compat else { return None };
    if cors_allow_origins.iter().any(|allowed| allowed == "*") {
        return Some("*".into());
    }
    let origin = std::str::from_utf8(origin?).ok()?;
    let fits = |allowed: &String| match allowed.split_once('*') {
        None => allowed == origin,
        Some((start, end)) => {
            origin.len() >= start.len() + end.len() && origin.starts_with(start) && origin.ends_with(end)
        }
    };
    cors_allow_origins.iter().any(fits).then(|| origin.into())
}

#[inline]
fn level(ack: Option<&[u8]>, path: &str, shared: &Shared) -> Result<Level, Refusal> {
    match ack {
        None => Ok(shared.routes.level(path)),
        Some(name) => level_by_name(name.trim_ascii())
            .ok_or_else(|| Refusal::Ack(String::from_utf8_lossy(name).into_owned())),
    }
}

/// Evaluates the content type and encoding of the body.
fn set_media_type(
    headers: &Headers<'_>,
    incoming: &mut IncomingRequest<'_>,
    shared: &Shared,
) -> Result<(), Refusal> {
    let mode = shared.config.rules.mode;
    incoming.kind = Kind::of_content_type(headers.content_type, mode);
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    if mode == Mode::Strict && !incoming.kind.is_supported() {
        return Err(Refusal::ContentType(text(headers.content_type.unwrap_or_default())));
    }
    let Some(coding) = headers.content_encoding else { return Ok(()) };
    let refused = || Refusal::ContentEncoding(text(coding));
    // The header may list several encodings, which were applied in order. `identity` changes nothing, so it is ignored.
    let mut codings = http1::list(coding).filter(|coding| !coding.eq_ignore_ascii_case(b"identity"));
    let only = match (mode, codings.next(), codings.next()) {
        (Mode::Strict, Some(_), Some(_)) => return Err(refused()),
        (Mode::Strict, only, _) => only.unwrap_or_default(),
        _ => coding,
    };
    let encoding = Encoding::of_header(only, mode).ok_or_else(refused)?;
    incoming.coding = match encoding {
        Encoding::Identity => return Ok(()),
        Encoding::Gzip => "gzip",
        Encoding::Deflate | Encoding::Zlib => "deflate",
        Encoding::Zstd => "zstd",
    };
    incoming.inflater = Some(Inflater::new(encoding, shared.config.limits.inflated_bytes as usize));
    Ok(())
}

/// The time in the query; zero stands for now.
fn time(query: &str, rules: &Rules) -> Result<Option<EventTime>, Refusal> {
    let Some((_, value)) = form::parse(query.as_bytes()).find(|(name, _)| name == "time") else {
        return Ok(None);
    };
    let time = EventTime::of_parameter(&value, rules.mode, rules.zone);
    time.map(Some).map_err(|_| Refusal::Time(value.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_may_be_whole_urls() {
        assert_eq!(split("/a?b=1"), ("/a", "b=1"));
        assert_eq!(split("http://host:1/a/b?c"), ("/a/b", "c"));
        assert_eq!(split("http://host"), ("/", ""));
        assert_eq!(split("/a?b=http://x/"), ("/a", "b=http://x/"));
    }

    #[test]
    fn origins_fit_exactly_or_around_a_star() {
        let compat = Compat::Fluentd {
            cors_allow_origins: vec!["http://a".into(), "https://*.b".into()],
            cors_allow_credentials: false,
            empty_img: false,
            use_204: false,
        };
        let allowed = |origin: &str| allowed_origin(Some(origin.as_bytes()), &compat).is_some();
        assert!(allowed("http://a") && allowed("https://x.b") && allowed("https://.b"));
        assert!(!allowed("http://ab") && !allowed("https://b") && !allowed(""));
        assert!(allowed_origin(None, &compat).is_none());
    }
}
