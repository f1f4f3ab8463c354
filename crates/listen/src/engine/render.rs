//! Renders bodies as lines for the storage.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use events::{EventTime, LineWriter, Record, Rules, Scratch, Zone};
use segments::{Key, Store};

use super::line_budget::{LineBudget, SEGMENT_BYTES, overhead_bytes};
use crate::{Config, budget::Reservation, incoming::IncomingRequest, key_cache::KeyCache, refusal::Refusal};

/// Maximum number of segments per request; limited, because each segment opens a file.
const MAX_SEGMENTS: usize = 1_000;
/// Capacity in bytes to which the line buffer shrinks after a refused request.
const KEPT_BYTES: usize = 4 << 20;
/// Maximum bytes of a run of lines, unless it is a single line. One system call writes a run, so a failed write leaves
/// none of it in the file.
pub(super) const PIECE_BYTES: usize = segments::MAX_WRITE_BYTES;

/// Lines of one request that go to the same segment.
#[derive(Debug)]
pub(super) struct Run {
    pub key: Arc<Key>,
    pub range: Range<usize>,
    /// The run's number within its request. A repeat of the request gets the same numbers.
    pub number: usize,
}

/// Renders the records of bodies as lines.
#[derive(Debug)]
pub(super) struct Renderer {
    rules: Rules,
    /// The rules for requests that set one time for all their records.
    timed_rules: Rules,
    liner: LineWriter,
    scratch: Scratch,
    keys: KeyCache,
    /// The runs of the last request.
    pub runs: Vec<Run>,
    /// The segments of the last request if it has several.
    segments: HashSet<Arc<Key>>,
    /// Buffer for a record with its extra members.
    line: String,
    pub now: Option<EventTime>,
    /// The time for events without a time in the last request.
    pub time: EventTime,
}

impl Renderer {
    pub(super) fn new(config: &Config) -> Self {
        let zone = if config.store.utc { Zone::Utc } else { Zone::Local };
        Self {
            rules: config.rules.clone(),
            timed_rules: Rules { time_key: None, ..config.rules.clone() },
            liner: LineWriter::new(config.format.clone(), zone),
            scratch: Scratch::default(),
            keys: KeyCache::new(
                [Some(&config.store.template), config.store.symlink.as_ref()]
                    .into_iter()
                    .flatten()
                    .flat_map(|template| template.fields().map(str::to_owned))
                    .collect(),
            ),
            runs: Vec::new(),
            segments: HashSet::new(),
            line: String::new(),
            now: None,
            time: EventTime { seconds: 0, nanos: 0 },
        }
    }

    /// Starts a new round, in which events without a time get a new time.
    pub(super) fn forget_time(&mut self) {
        self.now = None;
    }

    /// The time of this round, for events without a time.
    pub(super) fn now(&mut self) -> EventTime {
        *self.now.get_or_insert_with(system_time)
    }

    /// Appends the lines of a body to `data` and returns the number of records. [`Renderer::runs`] has the segment of
    /// each run. Reserves budget while it makes lines, so that a small body cannot become more lines than the budget
    /// allows. `repeated` is the first request's time for events without a time, if this request is a repeat. On a
    /// refusal, `data` is unchanged.
    pub(super) fn render(
        &mut self,
        store: &Store,
        incoming: &IncomingRequest<'_>,
        repeated: Option<EventTime>,
        reservation: &mut Reservation<'_>,
        data: &mut Vec<u8>,
    ) -> Result<usize, Refusal> {
        let start = data.len();
        self.runs.clear();
        self.segments.clear();
        let now = repeated.unwrap_or_else(|| self.now());
        self.time = now;
        let request_time = incoming.time.map(|time| if time.is_zero() { now } else { time });
        let rules = if request_time.is_some() { &self.timed_rules } else { &self.rules };
        let mut lines = RequestLines {
            store,
            tag: &incoming.tag,
            extra_members: &incoming.extra_members,
            extra_by_name: events::members(&incoming.extra_members).collect(),
            request_time,
            now,
            liner: &mut self.liner,
            keys: &mut self.keys,
            runs: &mut self.runs,
            segments: &mut self.segments,
            line: &mut self.line,
            start,
            budget: LineBudget::new(reservation),
            refusal_found: None,
            data,
        };
        let (kind, body) = incoming.text();
        let read =
            events::read(body, kind, rules, &mut self.scratch, &mut |record: Record<'_>| lines.take(record));
        let read = read.map_err(Refusal::Malformed);
        match lines.refusal_found.map_or(read, Err) {
            Ok(records) => {
                group_by_segment(data, start, &mut self.runs);
                split_long_runs(data, &mut self.runs);
                Ok(records)
            }
            Err(refusal) => {
                data.truncate(start);
                if data.capacity() > KEPT_BYTES {
                    data.shrink_to(KEPT_BYTES);
                }
                self.runs.clear();
                Err(refusal)
            }
        }
    }

    /// Bytes counted for the last request in addition to its lines.
    pub(super) fn overhead_bytes(&self) -> u64 {
        overhead_bytes(self.runs.len())
    }
}

/// Makes the lines of one request from its records.
struct RequestLines<'w, 's, 'b> {
    store: &'w Store,
    tag: &'w str,
    /// A JSON object of members that every event gets; empty if there are none.
    extra_members: &'w str,
    extra_by_name: HashMap<&'w str, &'w str>,
    request_time: Option<EventTime>,
    now: EventTime,
    liner: &'w mut LineWriter,
    keys: &'w mut KeyCache,
    runs: &'w mut Vec<Run>,
    segments: &'w mut HashSet<Arc<Key>>,
    line: &'w mut String,
    data: &'w mut Vec<u8>,
    start: usize,
    budget: LineBudget<'s, 'b>,
    /// The reason to refuse the request, if any.
    refusal_found: Option<Refusal>,
}

impl RequestLines<'_, '_, '_> {
    #[inline]
    fn take(&mut self, record: Record<'_>) {
        // Without budget, further lines are only measured, to find out whether the request could ever fit.
        let only_measures = match &self.refusal_found {
            None => false,
            Some(Refusal::Budget) => true,
            Some(_) => return,
        };
        let time = self.request_time.or(record.time).unwrap_or(self.now);
        if !only_measures && let Err(refusal) = self.select_run(&record, time) {
            return self.refusal_found = Some(refusal);
        }
        let before = self.data.len();
        if self.extra_members.is_empty() || !record.is_json {
            self.liner.write(self.data, time, self.tag, &record);
        } else {
            write_with_members(record.text, self.extra_members, &self.extra_by_name, self.line);
            self.liner.write(self.data, time, self.tag, &Record { text: self.line, ..record });
        }
        let refusal = self.budget.reserve((self.data.len() - before) as u64).err();
        if only_measures {
            self.data.truncate(before);
        } else if let Some(run) = self.runs.last_mut() {
            run.range.end = self.data.len();
        }
        if refusal.is_some() {
            self.refusal_found = refusal;
            self.data.truncate(self.start);
        }
    }

    /// Starts a new run unless the last one has the record's segment.
    #[inline]
    fn select_run(&mut self, record: &Record<'_>, time: EventTime) -> Result<(), Refusal> {
        let last = self.runs.last();
        if last.is_some_and(|run| self.keys.is_valid_for(&run.key, time.seconds)) {
            return Ok(());
        }
        let field = |name: &str| record.field(name);
        let key = self.keys.key(self.store, self.tag, time.seconds, &field);
        let key = key.map_err(|error| Refusal::InvalidName(error.to_string()))?;
        if last.is_some_and(|run| run.key == key) {
            return Ok(());
        }
        let key = self.segment(key)?;
        let end = self.data.len();
        self.runs.push(Run { key, range: end..end, number: 0 });
        self.budget.reserve(size_of::<Run>() as u64)
    }

    /// The request's shared copy of a segment's key.
    fn segment(&mut self, key: Arc<Key>) -> Result<Arc<Key>, Refusal> {
        // Most requests have one segment, so the table is only filled for the second.
        let Some(first) = self.runs.first() else { return Ok(key) };
        if self.segments.is_empty() {
            self.segments.insert(Arc::clone(&first.key));
        }
        if let Some(known) = self.segments.get(&key) {
            return Ok(Arc::clone(known));
        }
        if self.segments.len() >= MAX_SEGMENTS {
            return Err(Refusal::ManySegments(MAX_SEGMENTS));
        }
        self.segments.insert(Arc::clone(&key));
        self.budget.reserve(SEGMENT_BYTES)?;
        Ok(key)
    }
}

fn system_time() -> EventTime {
    // A clock before 1970 was never set, so this returns 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EventTime { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

/// Writes an object with extra members. An extra member replaces a member of the same name, which the client may have
/// forged. The other extra members are appended.
fn write_with_members(object: &str, extra_members: &str, by_name: &HashMap<&str, &str>, line: &mut String) {
    let mut replaced = HashSet::new();
    line.clear();
    let mut push = |name: &str, value: &str| {
        line.push(if line.is_empty() { '{' } else { ',' });
        line.push_str(name);
        line.push(':');
        line.push_str(value);
    };
    for (name, value) in events::members(object) {
        push(
            name,
            by_name.get(name).map_or(value, |replacement| {
                replaced.insert(name);
                replacement
            }),
        );
    }
    events::members(extra_members)
        .filter(|(name, _)| !replaced.contains(name))
        .for_each(|(name, value)| push(name, value));
    line.push('}');
}

/// Sorts the lines by segment, so that each segment has one run.
fn group_by_segment(data: &mut Vec<u8>, start: usize, runs: &mut Vec<Run>) {
    if runs.len() < 2 {
        return;
    }
    let lines = data.split_off(start);
    let mut scattered = std::mem::take(runs);
    // The sort must be stable, because a segment's lines keep their order.
    scattered.sort_by(|a, b| a.key.path().cmp(b.key.path()));
    for run in scattered {
        let from = data.len();
        data.extend_from_slice(&lines[run.range.start - start..run.range.end - start]);
        match runs.last_mut().filter(|last| last.key == run.key) {
            Some(last) => last.range.end = data.len(),
            None => runs.push(Run { range: from..data.len(), ..run }),
        }
    }
}

/// Splits runs that are too long at line ends, and numbers all runs.
#[inline]
fn split_long_runs(data: &[u8], runs: &mut Vec<Run>) {
    if runs.iter().any(|run| run.range.len() > PIECE_BYTES) {
        for Run { key, mut range, .. } in std::mem::take(runs) {
            while range.len() > PIECE_BYTES {
                let begin = range.start;
                let most = begin + PIECE_BYTES;
                let end = memchr::memrchr(b'\n', &data[begin..most]).map(|at| begin + at + 1);
                let end = end.or_else(|| memchr::memchr(b'\n', &data[most..]).map(|at| most + at + 1));
                range.start = end.unwrap_or(range.end);
                runs.push(Run { key: Arc::clone(&key), range: begin..range.start, number: 0 });
            }
            if !range.is_empty() {
                runs.push(Run { key, range, number: 0 });
            }
        }
    }
    runs.iter_mut().enumerate().for_each(|(number, run)| run.number = number);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    /// Renders a body with a long tag. Returns the result and the capacity of the line buffer.
    fn rendered(template: &str, body: &str, budget: &Budget) -> (Result<usize, Refusal>, usize) {
        let folder = tempfile::TempDir::new().unwrap();
        let template = format!("{}/{template}", folder.path().display()).parse().unwrap();
        let config = Config::new(segments::Config::new(template));
        let (store, _ports, _) = Store::open(config.store.clone(), 1).unwrap();
        let mut incoming = IncomingRequest::new(budget.reservation());
        incoming.tag = "t".repeat(1_000);
        incoming.kind = events::Kind::Ndjson;
        incoming.body = body.into();
        let (mut reservation, mut data) = (budget.reservation(), Vec::new());
        let count = Renderer::new(&config).render(&store, &incoming, None, &mut reservation, &mut data);
        store.close().unwrap();
        (count, data.capacity())
    }

    #[test]
    fn a_small_body_does_not_become_more_lines_than_there_is_room_for() {
        let budget = Budget::new(8 << 20);
        let (count, _) = rendered("${tag}", &"{}\n".repeat(1_000), &budget);
        assert_eq!(count, Ok(1_000));
        // The lines would take 100 MB.
        let (count, capacity) = rendered("${tag}", &"{}\n".repeat(100_000), &budget);
        assert_eq!(count, Err(Refusal::ExceedsBudget(8 << 20)));
        assert!(capacity <= KEPT_BYTES, "{capacity}");
        // Other requests hold part of the budget and may release it, so the refusal is temporary.
        let mut others = budget.reservation();
        assert!(others.grow_to(7 << 20));
        let (count, capacity) = rendered("${tag}", &"{}\n".repeat(5_000), &budget);
        assert_eq!(count, Err(Refusal::Budget));
        assert!(capacity <= 3 << 20, "{capacity}");
        assert_eq!(
            rendered("${tag}", &"{}\n".repeat(100_000), &budget).0,
            Err(Refusal::ExceedsBudget(8 << 20))
        );
        assert_eq!(budget.used(), 7 << 20);
    }

    #[test]
    fn a_request_does_not_open_any_number_of_files() {
        let budget = Budget::new(64 << 20);
        let body = |kinds: usize| {
            let lines = (0..4 * kinds).map(|number| format!("{{\"kind\":{}}}\n", number % kinds));
            lines.collect::<String>()
        };
        assert_eq!(rendered("x-${kind}", &body(1_000), &budget).0, Ok(4_000));
        assert_eq!(rendered("x-${kind}", &body(1_001), &budget).0, Err(Refusal::ManySegments(1_000)));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_line_of_text_has_its_file_by_its_message() {
        let folder = tempfile::TempDir::new().unwrap();
        let template = format!("{}/${{message}}_${{a}}", folder.path().display()).parse().unwrap();
        let config = Config::new(segments::Config::new(template));
        let (store, _ports, _) = Store::open(config.store.clone(), 1).unwrap();
        let budget = Budget::new(1 << 20);
        let mut incoming = IncomingRequest::new(budget.reservation());
        incoming.kind = events::Kind::Raw;
        // Every line of a text body is text, even if it looks like JSON.
        incoming.body = b"one\n{\"a\":1}\n".to_vec();
        let mut renderer = Renderer::new(&config);
        renderer.render(&store, &incoming, None, &mut budget.reservation(), &mut Vec::new()).unwrap();
        let paths: Vec<&str> = renderer.runs.iter().map(|run| run.key.path()).collect();
        store.close().unwrap();
        assert_eq!(paths, ["one__missing", "{\"a\":1}__missing"]);
    }

    #[test]
    fn members_are_added_behind_those_that_are_there_and_over_those_of_the_same_name() {
        let mut line = String::new();
        let extra_members = r#"{"b":"x","c":["y"]}"#;
        for (object, expected) in [
            (r#"{"a":1}"#, r#"{"a":1,"b":"x","c":["y"]}"#),
            ("{}", extra_members),
            (r#"{"c":{"b":2},"a":1}"#, r#"{"c":["y"],"a":1,"b":"x"}"#),
            (r#"{"b":1,"c":2}"#, extra_members),
        ] {
            write_with_members(object, extra_members, &events::members(extra_members).collect(), &mut line);
            assert_eq!(line, expected);
        }
    }
}
