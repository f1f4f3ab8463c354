//! Secrets in URLs, and in those that a URL holds within its query.

use std::ops::Range;

use percent_encoding::percent_decode_str;

use super::{
    is_url_end, learn, learn_pair, learn_text, mask_learned_text, parameter_spans, parameters, replace_spans,
};
use crate::reference;

/// Learns path and query of the value of a variable that stands behind the text `before` in a URL, if it holds them behind a host: they
/// are sent, logged and named apart from it.
pub fn learn_place(before: &str, value: &str) {
    let url = format!("{before}{value}");
    let start = authority(&url);
    let Some(place) = url[start..].find(['/', '?']) else { return };
    let place = &url[before.len().max(start + place)..];
    for place in [place, place.split('#').next().unwrap_or_default()] {
        let (path, query) = place.split_once('?').unwrap_or((place, ""));
        [place, path, query].into_iter().for_each(learn);
    }
}

/// Learns the user info and the secret parameters of a URL and of those within its query, and the replacement of the whole URL.
pub fn learn_url(url: &str) {
    learn_text(url, &mask_url(url));
    for user_info in user_infos(url) {
        learn(&url[user_info.clone()]);
        learn_pair(&percent_decode_str(&url[user_info]).decode_utf8_lossy());
    }
    for (_, value) in parameters(url) {
        learn(&url[value.clone()]);
        learn(&percent_decode_str(&url[value]).decode_utf8_lossy());
    }
    encoded_urls(url).iter().for_each(|url| learn_url(url));
}

/// The URLs that stand percent-encoded within the query of one.
pub(super) fn encoded_urls(url: &str) -> Vec<String> {
    let decoded = url.split(['?', '&', ';', '#', '=']).filter(|part| part.contains('%'));
    let decoded = decoded.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned());
    decoded.filter(|part| part.contains("://") || part.contains('?')).collect()
}

/// The secrets in a URL, each with its description and value.
pub fn secrets_in_url(url: &str) -> Vec<(String, String)> {
    let user_info = user_infos(url).map(|span| ("the URL's user info".to_owned(), url[span].to_owned()));
    let parameters = parameters(url).into_iter();
    let parameters =
        parameters.map(|(name, span)| (format!("the query parameter {name}"), url[span].to_owned()));
    let encoded = encoded_urls(url).into_iter().flat_map(|url| secrets_in_url(&url));
    user_info.chain(parameters).chain(encoded).collect()
}

/// Masks the secrets of a URL; the scheme may be missing.
pub fn mask_url(url: &str) -> String {
    let url = mask_learned_text(url);
    let user_infos = user_infos(&url).filter(|span| !reference::is_reference_only(&url[span.clone()]));
    let masked = replace_spans(&url, user_infos.collect());
    let found = parameter_spans(&masked);
    replace_spans(&masked, found)
}

/// Where the authority of a URL begins, of which the scheme may be missing: only what stands before the first `:`, `/`, `?`
/// or `#` names one (RFC 3986, 3.1).
pub fn authority(url: &str) -> usize {
    match url.find([':', '/', '?', '#']) {
        Some(at) if url[at..].starts_with("://") => at + 3,
        _ => 0,
    }
}

/// The span of the user info in the authority that starts at `authority`.
pub(super) fn user_info(text: &str, authority: usize) -> Option<Range<usize>> {
    let rest = &text[authority..];
    let end = rest.find(|c: char| "/?#".contains(c) || is_url_end(c)).unwrap_or(rest.len());
    rest[..end].rfind('@').map(|at| authority..authority + at)
}

/// The spans of the user info in a text's URLs.
pub(super) fn user_infos_within(text: &str) -> impl Iterator<Item = Range<usize>> {
    let authorities = text.match_indices("://").map(|(at, _)| at + 3);
    authorities.filter_map(|authority| user_info(text, authority))
}

/// The spans of the user info in a URL, of which the scheme may be missing, and in those within its query.
fn user_infos(url: &str) -> impl Iterator<Item = Range<usize>> {
    let own = Some(authority(url)).filter(|&start| start == 0).and_then(|start| user_info(url, start));
    own.into_iter().chain(user_infos_within(url))
}
