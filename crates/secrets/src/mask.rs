//! Texts without what is secret in them.
//!
//! A text is masked by the names in it (`Authorization: …`, `?api_key=…`, `http://user:password@host`), and by the
//! values that this process has learned, in all the forms in which they travel: whatever repeats a secret is masked,
//! also a target's log.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
    ops::Range,
    sync::{Arc, PoisonError, RwLock},
};

use aho_corasick::{AhoCorasick, Input, MatchKind};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;

use crate::{
    forms::forms,
    names::{is_secret_header, is_secret_parameter},
    reference,
};

/// What stands in the place of a secret.
pub const MASK: &str = "***";

/// Shorter values are masked where their names tell, and not wherever they stand: they stand everywhere.
const LEAST_BYTES: usize = 4;
/// Values that are shorter are masked as whole words only.
const WORD_BYTES: usize = 8;
/// The name of a user that is as long may be a token (`https://TOKEN:x-oauth-basic@…`).
const TOKEN_BYTES: usize = 16;
/// What ends a URL in a text.
const URL_ENDS: [char; 8] = ['"', '\'', '`', '<', '>', '\\', ' ', '\n'];

/// What this process has learned: texts, and what is shown in their place.
#[derive(Default)]
struct Known {
    shown: BTreeMap<String, String>,
    /// Finds them; made anew when something is learned.
    finder: Option<Arc<Finder>>,
}

struct Finder {
    automaton: AhoCorasick,
    shown: Vec<String>,
}

static KNOWN: RwLock<Known> = RwLock::new(Known { shown: BTreeMap::new(), finder: None });

/// Learns a secret: from now on it is masked wherever it stands, in every form in which it travels.
pub fn learn(secret: &str) {
    if secret.len() < LEAST_BYTES || secret == MASK {
        return;
    }
    if secret.contains('\n') {
        // Logs are masked line by line. A shorter line stands everywhere.
        secret.lines().filter(|line| line.len() >= WORD_BYTES).for_each(learn);
    }
    let mut guard = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let known = &mut *guard;
    for form in forms(secret) {
        // One that is shown by its variable stays so.
        if let Entry::Vacant(vacant) = known.shown.entry(form) {
            vacant.insert(MASK.to_owned());
            known.finder = None;
        }
    }
}

/// Learns what is shown in the place of a whole text, such as a URL or a header field.
pub fn learn_text(text: &str, shown: &str) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if text != shown && known.shown.get(text).is_none_or(|known| known != shown) {
        known.shown.insert(text.to_owned(), shown.to_owned());
        known.finder = None;
    }
}

/// Learns what a header field that holds a secret has in it: the value, the part behind `Bearer` and the like, the
/// password of `Basic`, the values of cookies.
pub fn learn_header(name: &str, value: &str) {
    learn(value);
    if let Some((scheme, rest)) = value.split_once(' ') {
        learn(rest.trim());
        let decoded = STANDARD.decode(rest.trim()).ok().and_then(|pair| String::from_utf8(pair).ok());
        if let (true, Some(pair)) = (scheme.eq_ignore_ascii_case("basic"), decoded) {
            learn_pair(&pair);
        }
    }
    if name.to_ascii_lowercase().starts_with("cookie") {
        for (_, cookie) in value.split(';').filter_map(|cookie| cookie.split_once('=')) {
            // Short ones are settings, such as a language.
            if cookie.trim().len() >= WORD_BYTES {
                learn(cookie.trim());
            }
        }
    }
}

/// Learns what is secret in a variable of a process's environment: all of it where its name tells, else what a text
/// shows by itself, such as the password in a URL.
pub fn learn_variable(name: &str, value: &str) {
    if is_secret_header(name) {
        // `ALLOW_EMPTY_PASSWORD=true` is a setting, and names of variables stay as they are.
        if !["true", "false"].contains(&value) && !reference::is_only(value) {
            learn(value);
        }
    } else if mask(value) != value {
        learn_url(value);
        learn_text(value, &mask(value));
    }
}

/// Learns `user:password`. The user's name alone is a secret where there is no password, or where it is as long as a
/// token.
pub fn learn_pair(pair: &str) {
    let (user, password) = pair.split_once(':').unwrap_or((pair, ""));
    learn(pair);
    learn(password);
    if password.is_empty() || user.len() >= TOKEN_BYTES {
        learn(user);
    }
}

/// Learns the user info and the secret parameters of a URL as it is sent, and how the URL is shown.
pub fn learn_url(url: &str) {
    learn_text(url, &mask_url(url));
    if let Some(user_info) = user_info(url, url.find("://").map_or(0, |at| at + 3)) {
        let user_info = &url[user_info];
        learn(user_info);
        learn_pair(&percent_decode_str(user_info).decode_utf8_lossy());
    }
    for (_, value) in parameters(url) {
        learn(&url[value.clone()]);
        learn(&percent_decode_str(&url[value]).decode_utf8_lossy());
    }
}

/// The secrets of a URL as it is sent: what each is, and its value.
pub fn in_url(url: &str) -> Vec<(String, String)> {
    let user_info = user_info(url, url.find("://").map_or(0, |at| at + 3));
    let user_info = user_info.map(|place| ("the URL's user info".to_owned(), url[place].to_owned()));
    let parameters = parameters(url).into_iter();
    let parameters =
        parameters.map(|(name, place)| (format!("the query parameter {name}"), url[place].to_owned()));
    user_info.into_iter().chain(parameters).collect()
}

/// Whether nothing has been learned.
pub fn knows_nothing() -> bool {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).shown.is_empty()
}

fn finder() -> Option<Arc<Finder>> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if known.finder.is_some() || known.shown.is_empty() {
        return known.finder.clone();
    }
    drop(known);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let found = known.shown.iter().filter(|(text, _)| text.len() >= LEAST_BYTES);
    let (texts, shown): (Vec<&String>, Vec<String>) =
        found.map(|(text, shown)| (text, shown.clone())).unzip();
    let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
    let automaton = automaton.expect("some hundred texts are no more than it takes");
    known.finder = Some(Arc::new(Finder { automaton, shown }));
    known.finder.clone()
}

/// Learns a word of the command line that may be a URL without a scheme: `user:password@host`.
pub fn learn_word(word: &str) {
    let is_url = |word: &str| {
        let user_info = user_info(word, 0).map(|place| &word[place]);
        user_info.is_some_and(|user_info| user_info.contains(':') && !user_info.contains("//"))
    };
    if is_url(word) {
        learn_url(word);
    }
}

/// What is shown in the place of a text, if that whole text was learned: `Bearer ${TOKEN}` for what it stood for.
pub fn shown_for(text: &str) -> Option<String> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).shown.get(text).cloned()
}

/// The text without secrets: by their names, and by the values that were learned.
pub fn mask(text: &str) -> Cow<'_, str> {
    let mut masked = Cow::Borrowed(text);
    for find in [user_infos, parameters_shown, headers] {
        let found = find(&masked);
        if !found.is_empty() {
            masked = Cow::Owned(put(&masked, found));
        }
    }
    match mask_learned(masked.as_bytes()) {
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        Cow::Borrowed(_) => masked,
    }
}

/// A URL without its secrets; its scheme may be missing.
pub fn mask_url(url: &str) -> String {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let user_info = user_info(url, authority).filter(|place| !reference::is_only(&url[place.clone()]));
    let masked = put(url, user_info.into_iter().collect());
    let found = parameters_shown(&masked);
    put(&masked, found)
}

/// The value of a header field as it is shown.
pub fn mask_header(name: &str, value: &str) -> String {
    match shown_for(value) {
        Some(shown) if !is_secret_header(name) || reference::is_only(&shown) => shown,
        _ if is_secret_header(name) && !reference::is_only(value) => MASK.to_owned(),
        _ => mask_learned_text(value),
    }
}

/// The text without the values that were learned.
pub fn mask_learned_text(text: &str) -> String {
    String::from_utf8_lossy(&mask_learned(text.as_bytes())).into_owned()
}

/// Bytes, of a log or of a body, without the values that were learned.
pub fn mask_learned(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Some(finder) = finder() else { return Cow::Borrowed(bytes) };
    let is_word = |at: Option<&u8>| at.is_some_and(u8::is_ascii_alphanumeric);
    let mut masked = Vec::new();
    let (mut kept, mut at) = (0, 0);
    while let Some(found) = finder.automaton.find(Input::new(bytes).range(at..)) {
        let is_within_word = found.start().checked_sub(1).is_some_and(|before| is_word(bytes.get(before)))
            || is_word(bytes.get(found.end()));
        if found.len() < WORD_BYTES && is_within_word {
            at = found.start() + 1;
            continue;
        }
        masked.extend_from_slice(&bytes[kept..found.start()]);
        masked.extend_from_slice(finder.shown[found.pattern().as_usize()].as_bytes());
        (kept, at) = (found.end(), found.end());
    }
    if kept == 0 {
        return Cow::Borrowed(bytes);
    }
    masked.extend_from_slice(&bytes[kept..]);
    Cow::Owned(masked)
}

fn put(text: &str, mut places: Vec<Range<usize>>) -> String {
    places.sort_by_key(|place| place.start);
    let mut shown = String::new();
    let mut at = 0;
    for place in places.into_iter().filter(|place| !place.is_empty()) {
        if place.start >= at {
            shown += &text[at..place.start];
            shown += MASK;
            at = place.end;
        }
    }
    shown + &text[at..]
}

/// The user info of the authority that begins at `authority`.
fn user_info(text: &str, authority: usize) -> Option<Range<usize>> {
    let rest = &text[authority..];
    let end = rest.find(|c: char| "/?#".contains(c) || is_url_end(c)).unwrap_or(rest.len());
    rest[..end].rfind('@').map(|at| authority..authority + at)
}

fn is_url_end(c: char) -> bool {
    URL_ENDS.contains(&c) || c.is_whitespace()
}

fn user_infos(text: &str) -> Vec<Range<usize>> {
    let authorities = text.match_indices("://").map(|(at, _)| at + 3);
    let places = authorities.filter_map(|authority| user_info(text, authority));
    places.filter(|place| !reference::is_only(&text[place.clone()])).collect()
}

/// The names and the places of the values of secret query parameters.
fn parameters(text: &str) -> Vec<(&str, Range<usize>)> {
    let mut found = Vec::new();
    for (at, separator) in text.match_indices(['?', '&', ';', '#']) {
        let begin = at + separator.len();
        let rest = &text[begin..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.[]%".contains(c);
        let length = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        if length == 0 || !rest[length..].starts_with('=') {
            continue;
        }
        let value = begin + length + 1;
        let tail = &text[value..];
        let end = tail.find(|c: char| "&#;".contains(c) || is_url_end(c)).unwrap_or(tail.len());
        let name = percent_decode_str(&rest[..length]).decode_utf8_lossy();
        if is_secret_parameter(&name, &tail[..end]) {
            found.push((&rest[..length], value..value + end));
        }
    }
    found
}

fn parameters_shown(text: &str) -> Vec<Range<usize>> {
    let places = parameters(text).into_iter().map(|(_, place)| {
        // What ends a sentence is none of the URL's, where the value was not learned.
        let value = text[place.clone()].trim_end_matches([',', ')', '.', ':']);
        place.start..place.start + value.len()
    });
    places.filter(|place| !is_shown(&text[place.clone()])).collect()
}

/// Whether a value may stay: it is masked, or names a secret that stands elsewhere.
fn is_shown(value: &str) -> bool {
    value.starts_with(MASK) || reference::is_only(value)
}

/// The values of header fields such as `Authorization: …` in a text: to the end of the line or, of a field in quotes, of
/// the quotes.
fn headers(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (colon, _) in text.match_indices(':') {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let name = text[..colon].char_indices().rev().take_while(|(_, c)| is_name(*c)).last();
        let Some((begin, _)) = name else { continue };
        // A single word may be a word of a sentence.
        let name = &text[begin..colon];
        let is_field = name.contains(['-', '_'])
            || ["authorization", "cookie", "apikey"].contains(&name.to_ascii_lowercase().as_str());
        // An option in a message is none: `--auth-key: not a number`.
        if !is_field || name.starts_with("--") || !is_secret_header(name) {
            continue;
        }
        let quote = text[..begin].chars().next_back().filter(|c| ['"', '\'', '`'].contains(c));
        let rest = &text[colon + 1..];
        let skipped = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let mut escaped = false;
        let end = rest.find(|c: char| {
            let ends = c == '\n' || c == '\r' || (Some(c) == quote && !escaped);
            escaped = c == '\\' && !escaped;
            ends
        });
        let value = colon + 1 + skipped..colon + 1 + end.unwrap_or(rest.len()).max(skipped);
        if !is_shown(&text[value.clone()]) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests;
