//! The segments of tags, as one thread knows them.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use segments::{Key, KeyError, Store};

/// Tags remembered at the most. Tags come from clients: their number must be bounded.
const MOST: usize = 4096;

/// The segments of tags, as one thread knows them.
#[derive(Debug)]
pub(crate) struct Keys {
    known: HashMap<Box<str>, Arc<Key>>,
    /// The path asks for members of events: a key is good for one event only.
    by_field: bool,
}

impl Keys {
    /// None known yet; `by_field` says whether paths depend on more than tag and time.
    pub fn new(by_field: bool) -> Self {
        Self { known: HashMap::new(), by_field }
    }

    /// Whether a key that was good for one event of a tag is good for another at that time.
    #[inline]
    pub fn holds(&self, key: &Key, seconds: i64) -> bool {
        !self.by_field && key.slice().is_none_or(|slice| slice.contains(&seconds))
    }

    /// The key of an event.
    pub fn key<'r>(
        &mut self,
        store: &Store,
        tag: &str,
        seconds: i64,
        fields: &dyn Fn(&str) -> Option<Cow<'r, str>>,
    ) -> Result<Arc<Key>, KeyError> {
        if self.by_field {
            return store.key(tag, seconds, fields);
        }
        if let Some(key) = self.known.get(tag).filter(|key| self.holds(key, seconds)) {
            return Ok(Arc::clone(key));
        }
        let key = store.key(tag, seconds, fields)?;
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(tag.into(), Arc::clone(&key));
        Ok(key)
    }
}
