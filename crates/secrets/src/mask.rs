//! Masks secrets in texts.
//!
//! Secrets are found by names (`Authorization: …`, `?api_key=…`, `http://user:password@host`) and by the values that
//! this process has learned, in all their encodings. A secret is therefore masked even if a target's log repeats it.

mod whole;

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
    encodings::encodings,
    names::{is_secret_header, is_secret_parameter},
    pieces::is_reference_only,
};

pub use crate::encodings::authority;
pub use whole::mask_record;

/// The text that replaces a secret.
pub const MASK: &str = "***";

/// Minimum length of learned values, in bytes. Shorter values occur in too many texts, so they are masked only by their
/// names.
const MIN_BYTES: usize = 4;
/// Learned values shorter than this, in bytes, are masked only as whole words.
const MIN_SUBSTRING_BYTES: usize = 8;
/// Minimum length of a user name that may be a token (`https://TOKEN:x-oauth-basic@…`), in bytes.
const MIN_TOKEN_BYTES: usize = 16;
/// Characters that end a URL in a text.
const URL_ENDS: [char; 8] = ['"', '\'', '`', '<', '>', '\\', ' ', '\n'];

/// The learned texts and their replacements.
#[derive(Default)]
struct Learned {
    replacements: BTreeMap<String, String>,
    /// Finds the learned texts. Learning another text resets it, and the next search builds it again.
    finder: Option<Arc<Finder>>,
}

struct Finder {
    automaton: AhoCorasick,
    replacements: Vec<String>,
}

static LEARNED: RwLock<Learned> = RwLock::new(Learned { replacements: BTreeMap::new(), finder: None });

/// Learns a secret. From now on, all its encodings are masked.
pub fn learn(secret: &str) {
    if secret.len() < MIN_BYTES || secret == MASK {
        return;
    }
    if secret.contains('\n') {
        // Logs are masked line by line, so each line of a secret counts as a secret. Shorter lines occur in too many
        // texts.
        secret.lines().filter(|line| line.len() >= MIN_SUBSTRING_BYTES).for_each(learn);
    }
    let mut guard = LEARNED.write().unwrap_or_else(PoisonError::into_inner);
    let learned = &mut *guard;
    // A value such as `%20%20` decodes to blanks, which occur everywhere.
    for form in encodings(secret).into_iter().filter(|form| form.trim().len() >= MIN_BYTES) {
        // A value that is already shown as the name of its variable keeps that replacement.
        if let Entry::Vacant(vacant) = learned.replacements.entry(form) {
            vacant.insert(MASK.to_owned());
            learned.finder = None;
        }
    }
}

/// Learns the path and query in a variable's value that follows the text `before` in a URL, if a host precedes them.
/// Requests, logs and reports show path and query without the rest of the value.
pub fn learn_place(before: &str, value: &str) {
    let url = format!("{before}{value}");
    let Some(place) = url[authority(&url)..].find(['/', '?']) else { return };
    let place = &url[before.len().max(authority(&url) + place)..];
    for place in [place, place.split('#').next().unwrap_or_default()] {
        let (path, query) = place.split_once('?').unwrap_or((place, ""));
        [place, path, query].into_iter().for_each(learn);
    }
}

/// All learned texts with their replacements. Another process that receives them calls [`learn_text`] for each.
pub fn learned() -> Vec<(String, String)> {
    let learned = LEARNED.read().unwrap_or_else(PoisonError::into_inner);
    learned.replacements.iter().map(|(text, shown)| (text.clone(), shown.clone())).collect()
}

/// Learns the replacement of a whole text, such as a URL or a header field.
pub fn learn_text(text: &str, shown: &str) {
    let mut learned = LEARNED.write().unwrap_or_else(PoisonError::into_inner);
    if text != shown && learned.replacements.get(text).is_none_or(|learned| learned != shown) {
        learned.replacements.insert(text.to_owned(), shown.to_owned());
        learned.finder = None;
    }
}

/// Learns the secrets in a header field: the value, the part after a scheme such as `Bearer`, the password of
/// `Basic`, the values of cookies and of parameters such as `token=`.
pub fn learn_header(name: &str, value: &str) {
    learn(value);
    if let Some((scheme, rest)) = value.split_once(' ') {
        learn(rest.trim());
        let decoded = STANDARD.decode(rest.trim()).ok().and_then(|pair| String::from_utf8(pair).ok());
        if let (true, Some(pair)) = (scheme.eq_ignore_ascii_case("basic"), decoded) {
            learn_pair(&pair);
        }
    }
    let is_cookie = name.to_ascii_lowercase().starts_with("cookie");
    let parts = value.split(if is_cookie { ';' } else { ',' });
    for (name, part) in parts.filter_map(|part| part.split_once('=')) {
        let part = part.trim().trim_matches('"');
        // A scheme may precede the first name. Short cookies are not learned, because they are settings, such as a
        // language.
        let name = name.rsplit(' ').next().unwrap_or_default();
        if is_secret_header(name) || (is_cookie && part.len() >= MIN_SUBSTRING_BYTES) {
            learn(part);
        }
    }
}

/// Learns the secrets in a variable of a process's environment: the whole value if the name indicates a secret,
/// otherwise the secrets recognized in the value, such as the password in a URL.
pub fn learn_variable(name: &str, value: &str) {
    if is_secret_header(name) {
        // `ALLOW_EMPTY_PASSWORD=true` is a setting, and references to variables may be shown.
        if !["true", "false"].contains(&value) && !is_reference_only(value) {
            learn(value);
        }
    } else if mask(value) != value || !encoded_urls(value).is_empty() {
        learn_url(value);
        learn_text(value, &mask(value));
    }
}

/// Learns `user:password`. The user name is also a secret if there is no password, or if the name is as long as a
/// token.
fn learn_pair(pair: &str) {
    let (user, password) = pair.split_once(':').unwrap_or((pair, ""));
    learn(pair);
    learn(password);
    if password.is_empty() || user.len() >= MIN_TOKEN_BYTES {
        learn(user);
    }
}

/// Learns the user info and the secret parameters of a URL, and of other URLs in its path and query. Also learns the
/// replacement of the whole URL.
pub fn learn_url(url: &str) {
    learn_text(url, &mask_url(url));
    for user_info in user_infos(url, Some(authority(url))) {
        learn(&url[user_info.clone()]);
        learn_pair(&percent_decode_str(&url[user_info]).decode_utf8_lossy());
    }
    for (_, at) in parameters(url) {
        [&url[at.clone()], &*percent_decode_str(&url[at]).decode_utf8_lossy()].into_iter().for_each(learn);
    }
    encoded_urls(url).iter().for_each(|url| learn_url(url));
}

/// The percent-encoded URLs within the path or the query of a URL.
fn encoded_urls(url: &str) -> Vec<String> {
    // Stops at a text without escapes, which decodes to itself.
    let decoded = url.split(['/', '?', '&', ';', '#', '=']).filter_map(|part| {
        let decode = |text: &str| {
            Some(percent_decode_str(text).decode_utf8_lossy().into_owned())
                .filter(|decoded| decoded.len() < text.len())
        };
        std::iter::successors(decode(part), |text| decode(text)).last()
    });
    let relative = |url: String| if url.starts_with("//") { format!("x:{url}") } else { url };
    decoded.map(relative).filter(|part| part.contains("://") || part.contains('?')).collect()
}

/// The secrets in a URL, each with its description and value.
pub fn secrets_in_url(url: &str) -> Vec<(String, String)> {
    let info = |span| ("the URL's user info".to_owned(), span);
    let parameter = |(name, span)| (format!("the query parameter {name}"), span);
    let infos = user_infos(url, Some(authority(url))).into_iter().map(info);
    let own = infos.chain(parameters(url).into_iter().map(parameter));
    let own = own.map(|(name, span)| (name, url[span].to_owned()));
    own.chain(encoded_urls(url).iter().flat_map(|url| secrets_in_url(url))).collect()
}

/// Whether anything has been learned.
pub fn has_learned() -> bool {
    !LEARNED.read().unwrap_or_else(PoisonError::into_inner).replacements.is_empty()
}

fn finder() -> Option<Arc<Finder>> {
    let learned = LEARNED.read().unwrap_or_else(PoisonError::into_inner);
    if learned.finder.is_some() || learned.replacements.is_empty() {
        return learned.finder.clone();
    }
    drop(learned);
    let mut learned = LEARNED.write().unwrap_or_else(PoisonError::into_inner);
    let found = || learned.replacements.iter().filter(|(text, _)| text.len() >= MIN_BYTES);
    let values =
        Finder::of(found().filter(|(_, shown)| *shown == MASK).map(|(text, _)| (text, MASK.to_owned())));
    // The replacement of a text may contain a value that was learned separately.
    let shown = |shown: &String| String::from_utf8_lossy(&values.masked(shown.as_bytes())).into_owned();
    learned.finder = Some(Arc::new(Finder::of(found().map(|(text, by)| (text, shown(by))))));
    learned.finder.clone()
}

impl Finder {
    fn of<'a>(replacements: impl Iterator<Item = (&'a String, String)>) -> Self {
        let (texts, replacements): (Vec<&String>, Vec<String>) = replacements.unzip();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
        Self { automaton: automaton.expect("some hundred texts are no more than it takes"), replacements }
    }

    fn masked<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let is_word = |at: Option<&u8>| at.is_some_and(u8::is_ascii_alphanumeric);
        let mut masked = Vec::new();
        let (mut kept, mut at) = (0, 0);
        while let Some(found) = self.automaton.find(Input::new(bytes).range(at..)) {
            let is_within_word =
                found.start().checked_sub(1).is_some_and(|before| is_word(bytes.get(before)))
                    || is_word(bytes.get(found.end()));
            if found.len() < MIN_SUBSTRING_BYTES && is_within_word {
                at = found.start() + 1;
                continue;
            }
            masked.extend_from_slice(&bytes[kept..found.start()]);
            masked.extend_from_slice(self.replacements[found.pattern().as_usize()].as_bytes());
            (kept, at) = (found.end(), found.end());
        }
        if kept == 0 {
            return Cow::Borrowed(bytes);
        }
        masked.extend_from_slice(&bytes[kept..]);
        Cow::Owned(masked)
    }
}

/// Learns an argument of the command line that may be a URL without a scheme: `user:password@host`.
pub fn learn_argument(word: &str) {
    let is_url = |word: &str| {
        let user_info = user_info(word, 0).map(|span| &word[span]);
        user_info.is_some_and(|user_info| user_info.contains(':') && !user_info.contains("//"))
    };
    if is_url(word) {
        learn_url(word);
    }
}

/// Masks secrets in a text by learned values and by names.
pub fn mask(text: &str) -> Cow<'_, str> {
    let mut masked = match mask_learned(text.as_bytes()) {
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        Cow::Borrowed(_) => Cow::Borrowed(text),
    };
    let user_infos: fn(&str) -> _ = |text| user_infos(text, None);
    for find in [user_infos, parameter_spans, header_spans] {
        let found = find(&masked);
        if !found.is_empty() {
            masked = Cow::Owned(replace_spans(&masked, found));
        }
    }
    masked
}

/// Masks the secrets of a URL; the scheme may be missing.
pub fn mask_url(url: &str) -> String {
    let url = mask_learned_text(url);
    let masked = replace_spans(&url, user_infos(&url, Some(authority(&url))));
    let found = parameter_spans(&masked);
    replace_spans(&masked, found)
}

/// Masks the value of a header field. The expanded value of `Bearer ${TOKEN}` is shown as `Bearer ${TOKEN}`, however
/// short it is.
pub fn mask_header(name: &str, value: &str) -> String {
    let learned = LEARNED.read().unwrap_or_else(PoisonError::into_inner).replacements.get(value).cloned();
    let shown = learned.map_or_else(|| mask(value).into_owned(), |shown| mask_learned_text(&shown));
    if is_secret_header(name) && !is_reference_only(&shown) { MASK.to_owned() } else { shown }
}

/// Masks the learned values in a text.
pub fn mask_learned_text(text: &str) -> String {
    String::from_utf8_lossy(&mask_learned(text.as_bytes())).into_owned()
}

/// Masks the learned values in bytes of a log or a body.
pub fn mask_learned(bytes: &[u8]) -> Cow<'_, [u8]> {
    finder().map_or(Cow::Borrowed(bytes), |finder| finder.masked(bytes))
}

fn replace_spans(text: &str, mut spans: Vec<Range<usize>>) -> String {
    spans.sort_by_key(|span| span.start);
    let mut shown = String::new();
    let mut at = 0;
    for span in spans.into_iter().filter(|span| !span.is_empty()) {
        if span.start >= at {
            shown += &text[at..span.start];
            shown += MASK;
            at = span.end;
        }
    }
    shown + &text[at..]
}

/// The span of the user info in the authority that starts at `authority`.
fn user_info(text: &str, authority: usize) -> Option<Range<usize>> {
    let rest = &text[authority..];
    let end = rest.find(|c: char| "/?#".contains(c) || is_url_end(c)).unwrap_or(rest.len());
    rest[..end].rfind('@').map(|at| authority..authority + at)
}

/// The spans of the user info in the URLs of a text. `own` is the start of an authority that is already known, if there
/// is one.
fn user_infos(text: &str, own: Option<usize>) -> Vec<Range<usize>> {
    let others = text.match_indices("//").filter(|(at, _)| text[..*at].ends_with([':', '=']));
    let others = others.map(|(at, _)| at + 2).filter(|at| Some(*at) != own);
    let spans = own.into_iter().chain(others).filter_map(|authority| user_info(text, authority));
    spans.filter(|span| !is_reference_only(&text[span.clone()])).collect()
}

fn is_url_end(c: char) -> bool {
    URL_ENDS.contains(&c) || c.is_whitespace()
}

/// The names of secret query parameters, and the spans of their values.
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

fn parameter_spans(text: &str) -> Vec<Range<usize>> {
    let spans = parameters(text).into_iter().map(|(_, span)| {
        // Punctuation at the end belongs to the sentence, not to the URL.
        let value = text[span.clone()].trim_end_matches([',', ')', '.', ':']);
        span.start..span.start + value.len()
    });
    spans.filter(|span| !may_be_shown(&text[span.clone()])).collect()
}

/// Whether a value may be shown, because it is masked or only a reference to a secret.
fn may_be_shown(value: &str) -> bool {
    let is_masked = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
    value.strip_prefix(MASK).is_some_and(is_masked) || is_reference_only(value)
}

/// The spans of the values of header fields in a text, such as `Authorization: …` or curl's `X-Api-Key;…`. A value ends
/// at the end of the line or, for a field in quotes, at the closing quote.
fn header_spans(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (colon, mark) in text.match_indices([':', ';']) {
        // A semicolon before a blank belongs to a sentence, not to a header field.
        if mark == ";" && text[colon + 1..].starts_with(|c: char| c.is_whitespace()) {
            continue;
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let name = text[..colon].char_indices().rev().take_while(|(_, c)| is_name(*c)).last();
        let Some((begin, _)) = name else { continue };
        // A single word before a colon may belong to a sentence.
        let name = &text[begin..colon];
        let is_field = name.contains(['-', '_'])
            || ["authorization", "cookie", "apikey"].contains(&name.to_ascii_lowercase().as_str());
        // An option in a message, such as `--auth-key: not a number`, is not a header field.
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
        if !may_be_shown(&text[value.clone()]) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests;
