//! The segments of tags, as one thread knows them.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use segments::{Key, KeyError, Store};

/// Tags remembered at the most. Tags come from clients: their number must be bounded.
const MAX_TAGS: usize = 4096;

/// The segments of tags, as one thread knows them.
#[derive(Debug)]
pub(crate) struct KeyCache {
    known: HashMap<Box<str>, Arc<Key>>,
    /// Members of events that the path asks for: where there are some, a key is good for one event only.
    members: Vec<String>,
    last: Option<LastKey>,
}

/// The last key of a path that asks for members, and for what.
#[derive(Debug)]
struct LastKey {
    tag: Box<str>,
    values: Vec<Option<String>>,
    key: Arc<Key>,
}

impl KeyCache {
    /// None known yet, of paths that ask for these members besides tag and time.
    pub(crate) fn new(members: Vec<String>) -> Self {
        Self { known: HashMap::new(), members, last: None }
    }

    /// Whether a key that was good for one event of a tag is good for another at that time.
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

    /// Making a key takes most of the time of a small event, and events of one body are often of one file.
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

/// Whether a key's file is that of a time.
#[inline]
fn covers_time(key: &Key, seconds: i64) -> bool {
    key.slice().is_none_or(|slice| slice.contains(&seconds))
}
