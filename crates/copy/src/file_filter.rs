//! Selects the files to copy: expands patterns in paths of the other machine and applies filters.

use std::{cell::Cell, rc::Rc};

use glob::Pattern;
use sftp::Request;
use tokio::{sync::Semaphore, task::spawn_local};

use crate::{
    channel::Channel,
    error::{Error, Result},
    location::below,
    remote::{ASKED_AT_ONCE, LISTINGS, MAX_ITEMS},
};

/// The selection of files below the sources, and the treatment of links.
#[derive(Debug, Clone, Default)]
pub struct FileFilter {
    /// Copies folders with their contents.
    pub recursive: bool,
    /// Copies links as links, not the files and folders that they lead to.
    pub links: bool,
    /// If not empty, only files that match one of these patterns are copied, by name or by path below the source.
    pub include: Vec<Pattern>,
    /// Files and folders that match one of these patterns are left out.
    pub exclude: Vec<Pattern>,
    /// Folders that match one of these patterns are left out.
    pub exclude_folders: Vec<Pattern>,
}

impl FileFilter {
    /// Whether the filters select the file or folder with this path below its source.
    pub(crate) fn has(&self, relative: &[u8], is_folder: bool) -> bool {
        let words = String::from_utf8_lossy(relative);
        let name = words.rsplit('/').next().unwrap_or_default();
        let is_one =
            |patterns: &[Pattern]| patterns.iter().any(|one| one.matches(name) || one.matches(&words));
        let is_excluded = is_one(&self.exclude) || is_folder && is_one(&self.exclude_folders);
        !is_excluded && (is_folder || self.include.is_empty() || is_one(&self.include))
    }
}

/// The paths of the other machine that match a pattern. A plain path matches itself.
///
/// # Errors
/// If the connection is lost.
pub(crate) async fn expand(channel: &Rc<Channel>, words: &[u8]) -> Result<Vec<Vec<u8>>> {
    if !words.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\')) {
        return Ok(vec![words.to_vec()]);
    }
    let paths = matching(channel, words).await?;
    // As in scp, a file whose name looks like a pattern can be given without escaping.
    if paths.is_empty() && Error::unless_lost(channel.lstat(words).await)?.is_ok_and(|known| known.is_some())
    {
        return Ok(vec![words.to_vec()]);
    }
    Ok(paths)
}

async fn matching(channel: &Rc<Channel>, words: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut paths = vec![if words.starts_with(b"/") { b"/".to_vec() } else { Vec::new() }];
    let left = Rc::new(Cell::new(MAX_ITEMS));
    let at_once = Rc::new(Semaphore::new(LISTINGS));
    let (mut has_pattern, mut ends_in_pattern) = (false, false);
    for part in words.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let text = unescaped(&String::from_utf8_lossy(part));
        let Some(pattern) = Pattern::new(&text).ok().filter(|_| text.contains(['*', '?', '['])) else {
            let part = if part.contains(&b'\\') { plain(part) } else { part.to_vec() };
            paths.iter_mut().for_each(|path| *path = below(path, &part));
            ends_in_pattern = false;
            continue;
        };
        (has_pattern, ends_in_pattern) = (true, true);
        let mut more = Vec::new();
        let mut listings = Vec::new();
        for path in paths {
            let (channel, left, at_once) = (Rc::clone(channel), Rc::clone(&left), Rc::clone(&at_once));
            listings.push(spawn_local(async move {
                let _turn = at_once.acquire().await;
                let folder = if path.is_empty() { b"." } else { &path[..] };
                let listed = channel.list(folder, &left).await;
                (path, listed)
            }));
        }
        for listing in listings {
            let (path, listed) = listing.await.map_err(|error| Error::Lost(error.to_string()))?;
            // If the path is not a folder, or this user may not list it, nothing in it matches.
            let Ok((names, _)) = Error::unless_lost(listed)? else { continue };
            let is_meant = |name: &[u8]| {
                (name[0] != b'.' || part[0] == b'.') && pattern.matches(&String::from_utf8_lossy(name))
            };
            more.extend(names.iter().filter(|(name, _)| is_meant(name)).map(|(name, _)| below(&path, name)));
        }
        more.sort();
        paths = more;
    }
    // The rest of the path may not exist in every folder that the pattern matches.
    if has_pattern && !ends_in_pattern {
        paths = those_there(channel, paths).await?;
    }
    Ok(paths)
}

/// The paths that exist on the other machine.
async fn those_there(channel: &Channel, paths: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let mut there = Vec::new();
    for some in paths.chunks(ASKED_AT_ONCE) {
        let asked = some.iter().map(|path| channel.begin(&Request::Lstat(path)));
        for (path, asked) in some.iter().zip(asked.collect::<Result<Vec<_>>>()?) {
            if Error::unless_lost(asked.known().await)?.is_ok_and(|known| known.is_some()) {
                there.push(path.clone());
            }
        }
    }
    Ok(there)
}

/// Removes each backslash that makes the next character literal.
fn plain(words: &[u8]) -> Vec<u8> {
    let mut signs = words.iter();
    let mut plain = Vec::new();
    while let Some(sign) = signs.next() {
        plain.push(if *sign == b'\\' { *signs.next().unwrap_or(sign) } else { *sign });
    }
    plain
}

/// Replaces a backslash and the next character with that character in brackets, which this pattern library takes
/// literally.
fn unescaped(pattern: &str) -> String {
    let mut letters = pattern.chars();
    let mut text = String::new();
    while let Some(letter) = letters.next() {
        match (letter, letters.clone().next()) {
            // These characters would negate the set if they were in brackets.
            ('\\', Some(sign @ ('!' | '^'))) => {
                letters.next();
                text.push(sign);
            }
            ('\\', Some(sign)) => {
                letters.next();
                text.extend(['[', sign, ']']);
            }
            _ => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_after_a_backslash_is_no_pattern() {
        let matches = |words: &str, name: &str| Pattern::new(&unescaped(words)).unwrap().matches(name);
        assert!(matches(r"x\[1\]", "x[1]") && !matches(r"x\[1\]", "x1"));
        assert!(matches(r"a\*\?", "a*?") && !matches(r"a\*\?", "abc"));
        assert!(matches(r"\!a*", "!abc") && matches("x[1]", "x1"));
        assert_eq!((plain(br"\!a\\"), plain(br"a\")), (br"!a\".to_vec(), br"a\".to_vec()));
    }

    #[test]
    fn a_slash_at_the_end_of_a_pattern_means_folders() {
        let patterns = |words: &[&str]| words.iter().map(|word| Pattern::new(word).unwrap()).collect();
        let choice = FileFilter {
            exclude: patterns(&["*.tmp"]),
            exclude_folders: patterns(&["k"]),
            ..FileFilter::default()
        };
        assert!(choice.has(b"k", false) && !choice.has(b"k", true) && !choice.has(b"a/k", true));
        assert!(!choice.has(b"a.tmp", false) && !choice.has(b"a.tmp", true));
    }
}
