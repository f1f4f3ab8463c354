//! Bodies to lines.

use std::{
    ops::Range,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use events::{Count, EventTime, Liner, Record, Rules, Scratch, Zone};
use segments::{Key, Store};

use crate::{Config, flight::Flight, keys::Keys, refusal::Refusal};

/// Lines of one request that go to one segment.
#[derive(Debug)]
pub(super) struct Run {
    pub key: Arc<Key>,
    pub range: Range<usize>,
}

/// Writes the records of bodies as lines.
#[derive(Debug)]
pub(super) struct Renderer {
    rules: Rules,
    /// For requests that give all their records a time.
    timed_rules: Rules,
    liner: Liner,
    scratch: Scratch,
    keys: Keys,
    /// Of the last request.
    pub runs: Vec<Run>,
    /// A record with what its request adds.
    line: String,
    now: Option<EventTime>,
}

impl Renderer {
    /// As configured.
    pub fn new(config: &Config) -> Self {
        let zone = if config.store.utc { Zone::Utc } else { Zone::Local };
        Self {
            rules: config.rules.clone(),
            timed_rules: Rules { time_key: None, ..config.rules.clone() },
            liner: Liner::new(config.format.clone(), zone),
            scratch: Scratch::default(),
            keys: Keys::new(
                config.store.template.fields().next().is_some()
                    || config.store.symlink.as_ref().is_some_and(|link| link.fields().next().is_some()),
            ),
            runs: Vec::new(),
            line: String::new(),
            now: None,
        }
    }

    /// Time has passed: events get a new one.
    pub fn forget_time(&mut self) {
        self.now = None;
    }

    /// Appends the lines of a body to `data`, and says in [`Renderer::runs`] where each belongs. On a refusal
    /// `data` is as before.
    pub fn render(
        &mut self,
        store: &Store,
        flight: &Flight<'_>,
        data: &mut Vec<u8>,
    ) -> Result<Count, Refusal> {
        let start = data.len();
        self.runs.clear();
        let now = *self.now.get_or_insert_with(now);
        let Self { liner, scratch, keys, runs, line, .. } = self;
        let given = flight.time.map(|time| if time.is_zero() { now } else { time });
        let rules = if given.is_some() { &self.timed_rules } else { &self.rules };
        let mut trouble = None;
        let mut take = |record: Record<'_>| {
            if trouble.is_some() {
                return;
            }
            let time = given.or(record.time).unwrap_or(now);
            let known = runs.last().is_some_and(|run: &Run| keys.holds(&run.key, time.seconds));
            if !known {
                let field = |name: &str| events::field(record.text, name);
                match keys.key(store, &flight.tag, time.seconds, &field) {
                    Ok(key) if runs.last().is_some_and(|run| run.key == key) => {}
                    Ok(key) => runs.push(Run { key, range: data.len()..data.len() }),
                    Err(error) => return trouble = Some(Refusal::Unnameable(error.to_string())),
                }
            }
            if flight.added.is_empty() || !record.is_json {
                liner.write(data, time, &flight.tag, &record);
            } else {
                add(record.text, &flight.added, line);
                liner.write(data, time, &flight.tag, &Record { text: line, ..record });
            }
            if let Some(run) = runs.last_mut() {
                run.range.end = data.len();
            }
        };
        // Fluentd takes records from the query too, where the body holds none.
        let (body, kind) = match flight.kind {
            events::Kind::Other if !flight.query.is_empty() => (flight.query.as_bytes(), events::Kind::Form),
            kind => (&flight.body[..], kind),
        };
        let read = events::read(body, kind, rules, scratch, &mut take).map_err(Refusal::Malformed);
        match trouble.map_or(read, Err) {
            Ok(count) => {
                gather(data, start, runs);
                Ok(count)
            }
            Err(refusal) => {
                data.truncate(start);
                runs.clear();
                Err(refusal)
            }
        }
    }
}

fn now() -> EventTime {
    // A clock before 1970 is one that was never set.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EventTime { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

/// Writes an object with more members at its end.
fn add(object: &str, added: &str, line: &mut String) {
    let open = object.strip_suffix('}').unwrap_or(object);
    line.clear();
    line.push_str(open);
    // An empty object takes the first member without a comma.
    line.push_str(if open.trim_end().ends_with('{') { &added[1..] } else { added });
    line.push('}');
}

/// Puts the lines of one segment together, in their order, so that each segment gets one part.
fn gather(data: &mut Vec<u8>, start: usize, runs: &mut Vec<Run>) {
    if runs.len() < 2 {
        return;
    }
    let lines = data.split_off(start);
    let mut scattered = std::mem::take(runs);
    // Stable, so that lines of one segment keep their order.
    scattered.sort_by(|a, b| a.key.path().cmp(b.key.path()));
    for run in scattered {
        let from = data.len();
        data.extend_from_slice(&lines[run.range.start - start..run.range.end - start]);
        match runs.last_mut().filter(|last| last.key == run.key) {
            Some(last) => last.range.end = data.len(),
            None => runs.push(Run { key: run.key, range: from..data.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_added_behind_those_that_are_there() {
        let mut line = String::new();
        add(r#"{"a":1}"#, r#","b":2"#, &mut line);
        assert_eq!(line, r#"{"a":1,"b":2}"#);
        add("{ }", r#","b":2"#, &mut line);
        assert_eq!(line, r#"{ "b":2}"#);
    }
}
