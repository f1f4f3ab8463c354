//! A thread's cache of segment keys.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use segments::{Key, KeyError, Store};

/// Maximum number of cached tags. Limited, because clients choose the tags.
const MAX_TAGS: usize = 4096;

/// A thread's segment keys, by tag.
#[derive(Debug)]
pub(crate) struct KeyCache {
    known: HashMap<Box<str>, Arc<Key>>,
    /// Members of events that the path template uses. If there are any, the key depends on the event.
    members: Vec<String>,
    last: Option<LastKey>,
}

/// The last key for a path template with members, and the values that it was made from.
#[derive(Debug)]
struct LastKey {
    tag: Box<str>,
    values: Vec<Option<String>>,
    key: Arc<Key>,
}

impl KeyCache {
    /// Creates an empty cache for a path template that uses these members in addition to tag and time.
    pub(crate) fn new(members: Vec<String>) -> Self {
        Self { known: HashMap::new(), members, last: None }
    }

    /// Whether a known key is also valid for another event with the same tag and this time.
    #[inline]
    pub(crate) fn is_valid_for(&self, key: &Key, seconds: i64) -> bool {
        self.members.is_empty() && covers_time(key, seconds)
    }

    /// The segment key for an event, cached or new.
    pub(crate) fn key<'r>(
        &mut self,
        store: &Store,
        tag: &str,
        seconds: i64,
        fields: &dyn Fn(&str) -> Option<Cow<'r, str>>,
    ) -> Result<Arc<Key>, KeyError> {
        if let Some(key) = self.fitting(tag, seconds, fields) {
            return Ok(Arc::clone(key));
        }
        let key = store.key(tag, seconds, fields)?;
        if !self.members.is_empty() {
            let values = self.members.iter().map(|name| fields(name).map(Cow::into_owned)).collect();
            self.last = Some(LastKey { tag: tag.into(), values, key: Arc::clone(&key) });
            return Ok(key);
        }
        if self.known.len() >= MAX_TAGS {
            self.known.clear();
        }
        self.known.insert(tag.into(), Arc::clone(&key));
        Ok(key)
    }

    /// A cached key that is valid for the event. With members, only the last key is cached. That helps, because creating
    /// a key takes most of the time of a small event, and events of one body often share a file.
    fn fitting<'r>(
        &self,
        tag: &str,
        seconds: i64,
        fields: &dyn Fn(&str) -> Option<Cow<'r, str>>,
    ) -> Option<&Arc<Key>> {
        if self.members.is_empty() {
            return self.known.get(tag).filter(|key| covers_time(key, seconds));
        }
        let LastKey { tag: last_tag, values, key } = self.last.as_ref()?;
        let is_same = |(name, value): (&String, &Option<String>)| fields(name).as_deref() == value.as_deref();
        let fits =
            **last_tag == *tag && covers_time(key, seconds) && self.members.iter().zip(values).all(is_same);
        fits.then_some(key)
    }
}

/// Whether the key's file is for this time.
#[inline]
fn covers_time(key: &Key, seconds: i64) -> bool {
    key.slice().is_none_or(|slice| slice.contains(&seconds))
}
