//! A user's cookies (RFC 6265) of one host.

use jiff::{civil::DateTime, fmt::rfc2822, tz::TimeZone};

/// Maximum number of cookies of a user, as in browsers.
const MAX_COOKIES: usize = 180;

/// A user's cookies. All requests of a trial go to one host, so a cookie's domain is checked only when the cookie is set.
#[derive(Debug, Default, Clone)]
pub(crate) struct Cookies {
    all: Vec<Cookie>,
}

#[derive(Debug, Clone)]
struct Cookie {
    name: Box<[u8]>,
    value: Box<[u8]>,
    path: Box<[u8]>,
    secure: bool,
    /// Expiry, in seconds since 1970.
    ends_s: i64,
}

impl Cookies {
    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// Sets a cookie from the value of a `Set-Cookie` field. The answer is to `target` at `origin`, such as
    /// `http://host:80`. `now_s`: seconds since 1970.
    pub(crate) fn set(&mut self, field: &[u8], origin: &[u8], target: &[u8], now_s: i64) {
        let mut parts = field.split(|&byte| byte == b';');
        let Some(pair) = parts.next() else { return };
        let Some(equals) = pair.iter().position(|&byte| byte == b'=') else { return };
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        // A folded field contains line ends, which would end the next request's field (RFC 6265, 5.2, ignores such cookies).
        if name.is_empty() || field.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return;
        }
        let (mut path, mut secure, mut ends_s, mut ends_by_age_s) = (None, false, i64::MAX, None);
        for attribute in parts {
            let (name, value) = match attribute.iter().position(|&byte| byte == b'=') {
                Some(at) => (attribute[..at].trim_ascii(), attribute[at + 1..].trim_ascii()),
                None => (attribute.trim_ascii(), &b""[..]),
            };
            let text = || std::str::from_utf8(value).ok();
            if name.eq_ignore_ascii_case(b"path") && value.starts_with(b"/") {
                path = Some(value);
            } else if name.eq_ignore_ascii_case(b"domain") && !is_of_domain(host_of(origin), value) {
                return;
            } else if name.eq_ignore_ascii_case(b"secure") {
                secure = true;
            } else if name.eq_ignore_ascii_case(b"max-age") {
                let age_s = text().and_then(|text| text.parse::<i64>().ok());
                ends_by_age_s = age_s.map(|age_s| now_s.saturating_add(age_s));
            } else if name.eq_ignore_ascii_case(b"expires") {
                ends_s = text().and_then(end_of).unwrap_or(i64::MAX);
            }
        }
        let path = path.unwrap_or_else(|| default_path(target));
        self.all.retain(|cookie| &*cookie.name != name || &*cookie.path != path);
        // Max-Age takes precedence over Expires.
        let ends_s = ends_by_age_s.unwrap_or(ends_s);
        if ends_s > now_s && self.all.len() < MAX_COOKIES {
            self.all.push(Cookie {
                name: name.into(),
                value: value.into(),
                path: path.into(),
                secure,
                ends_s,
            });
        }
    }

    /// Appends the cookies of a request to `target`: `before`, then the cookies with `; ` between them. Returns whether
    /// there are any. `now_s`: seconds since 1970.
    pub(crate) fn write(
        &self,
        target: &[u8],
        is_secure: bool,
        now_s: i64,
        before: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let path = path_of(target);
        let fits = |cookie: &&Cookie| {
            (is_secure || !cookie.secure) && covers(&cookie.path, path) && cookie.ends_s > now_s
        };
        let mut fitting: Vec<&Cookie> = self.all.iter().filter(fits).collect();
        // Longer paths first; the sort is stable, so that earlier cookies come first.
        fitting.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        for (number, cookie) in fitting.iter().enumerate() {
            out.extend_from_slice(if number > 0 { b"; " } else { before });
            out.extend_from_slice(&cookie.name);
            out.push(b'=');
            out.extend_from_slice(&cookie.value);
        }
        !fitting.is_empty()
    }
}

/// The time of `Expires`, in seconds since 1970, in one of HTTP's three formats (RFC 9110, 5.6.7).
fn end_of(text: &str) -> Option<i64> {
    if let Ok(at) = rfc2822::parse(&text.replace('-', " ")) {
        return Some(at.timestamp().as_second());
    }
    let text = text.trim_end_matches("GMT").trim();
    let at = ["%A, %d-%b-%y %H:%M:%S", "%a %b %e %H:%M:%S %Y"]
        .into_iter()
        .find_map(|form| DateTime::strptime(form, text).ok())?;
    at.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp().as_second())
}

/// The host of an origin. It may contain templates if the user wrote the Host field; their values are unknown.
fn host_of(origin: &[u8]) -> &[u8] {
    let at = origin.windows(3).position(|bytes| bytes == b"://").map_or(0, |at| at + 3);
    let authority = &origin[at..];
    let end = if authority.starts_with(b"[") { b']' } else { b':' };
    authority
        .split_inclusive(|&byte| byte == end)
        .next()
        .map_or(authority, |host| host.strip_suffix(b":").unwrap_or(host))
}

/// Whether a host may set a cookie for a domain (RFC 6265, 5.1.3 and 5.3): its own domain, or a parent domain.
fn is_of_domain(host: &[u8], domain: &[u8]) -> bool {
    let domain = domain.strip_prefix(b".").unwrap_or(domain);
    if domain.is_empty() || memchr::memmem::find(host, b"{{").is_some() {
        return true;
    }
    let is_address = std::str::from_utf8(host).is_ok_and(|host| host.parse::<std::net::Ipv4Addr>().is_ok());
    let Some(at) = host.len().checked_sub(domain.len()) else { return false };
    let is_within = at == 0 || (host[at - 1] == b'.' && domain.contains(&b'.') && !is_address);
    is_within && host[at..].eq_ignore_ascii_case(domain)
}

fn path_of(target: &[u8]) -> &[u8] {
    target.split(|&byte| byte == b'?').next().unwrap_or_default()
}

/// The path of a cookie without a Path attribute: the directory of the request's path (RFC 6265, 5.1.4).
fn default_path(target: &[u8]) -> &[u8] {
    let path = path_of(target);
    match path.iter().rposition(|&byte| byte == b'/') {
        None | Some(0) => b"/",
        Some(at) => &path[..at],
    }
}

/// Whether a request's path is within a cookie's (RFC 6265, 5.1.4).
fn covers(cookie: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(cookie).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || cookie.ends_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_800_000_000;

    fn sent(fields: &[&str], target: &str, is_secure: bool) -> String {
        let mut cookies = Cookies::default();
        for field in fields {
            cookies.set(field.as_bytes(), b"http://shop.example.org:80", b"/shop/login?x=/y", NOW_S);
        }
        let mut out = Vec::new();
        if cookies.write(target.as_bytes(), is_secure, NOW_S + 60, b"Cookie: ", &mut out) {
            out.extend_from_slice(b"\r\n");
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cookies_go_back_where_they_belong() {
        assert_eq!(sent(&["a=1; Path=/", "b=2"], "/shop/item", false), "Cookie: b=2; a=1\r\n");
        assert_eq!(sent(&["a=1; Path=/", "b=2"], "/shopping", false), "Cookie: a=1\r\n");
        assert_eq!(sent(&["a=1; Path=/; Secure"], "/", false), "");
        assert_eq!(sent(&["a=1; Path=/; Secure"], "/", true), "Cookie: a=1\r\n");
        assert_eq!(sent(&["a=1; Path=/", "a=2; Path=/"], "/", false), "Cookie: a=2\r\n");
        assert_eq!(sent(&["a=1\r\n b: c; Path=/", "d; Path=/"], "/", false), "");
    }

    #[test]
    fn a_host_sets_cookies_for_itself_and_the_domains_it_is_in() {
        for (origin, domain, is_kept) in [
            ("http://shop.example.org", "shop.example.org", true),
            ("http://shop.example.org:81", ".Example.ORG", true),
            ("http://shop.example.org", "", true),
            ("http://shop.example.org", "other.org", false),
            ("http://shop.example.org", "op.example.org", false),
            ("http://shop.example.org", "org", false),
            ("http://localhost:8080", "localhost", true),
            ("http://10.0.0.1", "10.0.0.1", true),
            ("http://10.0.0.1", "0.0.1", false),
            ("http://[::1]:80", "[::1]", true),
            ("https://{{host}}", "example.org", true),
        ] {
            assert_eq!(
                is_of_domain(host_of(origin.as_bytes()), domain.as_bytes()),
                is_kept,
                "{origin} {domain}"
            );
            let mut cookies = Cookies::default();
            cookies.set(format!("a=1; Path=/; Domain={domain}").as_bytes(), origin.as_bytes(), b"/", NOW_S);
            assert_eq!(cookies.write(b"/", true, NOW_S, b"", &mut Vec::new()), is_kept, "{origin} {domain}");
        }
    }

    #[test]
    fn a_cookie_that_ends_is_deleted() {
        for end in [
            "Max-Age=0",
            "Expires=Wed, 21 Oct 2015 07:28:00 GMT",
            "expires=Wed, 21-Oct-2015 07:28:00 GMT",
            "Expires=Wednesday, 21-Oct-15 07:28:00 GMT",
            "Expires=Wed Oct 21 07:28:00 2015",
        ] {
            assert_eq!(sent(&["a=1; Path=/", &format!("a=; Path=/; {end}")], "/", false), "", "{end}");
        }
        assert_eq!(sent(&["a=1; Path=/; Max-Age=59"], "/", false), "", "it has ended meanwhile");
        assert_eq!(
            sent(&["a=1; Path=/; Max-Age=61; Expires=Wed, 21 Oct 2015 07:28:00 GMT"], "/", false),
            "Cookie: a=1\r\n"
        );
        assert_eq!(
            sent(&["a=1; Path=/; Expires=Wed, 21 Oct 2099 07:28:00 GMT"], "/", false),
            "Cookie: a=1\r\n"
        );
    }
}
