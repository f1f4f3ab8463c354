//! One thread's cache of segment keys.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use segments::{Key, KeyError, Store};

/// Maximum number of cached tags. Tags come from clients, so their number must be bounded.
const MAX_TAGS: usize = 4096;

/// The segments of tags, as one thread knows them.
#[derive(Debug)]
pub(crate) struct KeyCache {
    known: HashMap<Box<str>, Arc<Key>>,
    /// Members of events that the path template uses. If there are any, a key holds for one event only.
    members: Vec<String>,
    last: Option<LastKey>,
}

/// The last key of a path template with members, and what it was made from.
#[derive(Debug)]
struct LastKey {
    tag: Box<str>,
    values: Vec<Option<String>>,
    key: Arc<Key>,
}

impl KeyCache {
    /// An empty cache for a path template that uses these members besides tag and time.
    pub(crate) fn new(members: Vec<String>) -> Self {
        Self { known: HashMap::new(), members, last: None }
    }

    /// Whether a key of one event also holds for another event of the same tag at this time.
    #[inline]
    pub(crate) fn is_valid_for(&self, key: &Key, seconds: i64) -> bool {
        self.members.is_empty() && covers_time(key, seconds)
    }

    /// The key of an event.
    pub(crate) fn key<'r>(
        &mut self,
        store: &Store,
        tag: &str,
        seconds: i64,
        fields: &dyn Fn(&str) -> Option<Cow<'r, str>>,
    ) -> Result<Arc<Key>, KeyError> {
        if !self.members.is_empty() {
            return self.key_by_members(store, tag, seconds, fields);
        }
        if let Some(key) = self.known.get(tag).filter(|key| self.is_valid_for(key, seconds)) {
            return Ok(Arc::clone(key));
        }
        let key = store.key(tag, seconds, fields)?;
        if self.known.len() >= MAX_TAGS {
            self.known.clear();
        }
        self.known.insert(tag.into(), Arc::clone(&key));
        Ok(key)
    }

    /// Reuses the last key if it fits: making a key takes most of the time of a small event, and the events of a body
    /// often have the same file.
    fn key_by_members<'r>(
        &mut self,
        store: &Store,
        tag: &str,
        seconds: i64,
        fields: &dyn Fn(&str) -> Option<Cow<'r, str>>,
    ) -> Result<Arc<Key>, KeyError> {
        if let Some(LastKey { tag: last_tag, values, key }) = &self.last
            && **last_tag == *tag
            && covers_time(key, seconds)
            && self
                .members
                .iter()
                .zip(values)
                .all(|(name, value)| fields(name).as_deref() == value.as_deref())
        {
            return Ok(Arc::clone(key));
        }
        let key = store.key(tag, seconds, fields)?;
        let values = self.members.iter().map(|name| fields(name).map(Cow::into_owned)).collect();
        self.last = Some(LastKey { tag: tag.into(), values, key: Arc::clone(&key) });
        Ok(key)
    }
}

/// Whether a key's file covers this time.
#[inline]
fn covers_time(key: &Key, seconds: i64) -> bool {
    key.slice().is_none_or(|slice| slice.contains(&seconds))
}
