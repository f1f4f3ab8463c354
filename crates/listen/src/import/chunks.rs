//! `<buffer>`: the keys that decide which lines share a file.

use std::time::Duration;

use super::{mistakes::Mistakes, section::Section, syntax::Directive, values};

/// Default of `timekey`: a day.
const DEFAULT_TIMEKEY: Duration = Duration::from_secs(86_400);
/// The lengths of time slices that time placeholders can express: a second, a minute, an hour, a day.
const TIMEKEYS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(3_600), DEFAULT_TIMEKEY];

/// The settings of `<buffer>` that assign lines to files.
pub(super) struct Chunks {
    keys: Vec<String>,
    timekey: Option<Duration>,
    /// Whether time slices are in UTC.
    pub(super) utc: bool,
}

impl Chunks {
    /// Reads a `<buffer>`; without one, `out_file`'s defaults apply.
    pub(super) fn read(directive: Option<&Directive>, mistakes: &mut Mistakes<'_>) -> Self {
        let Some(directive) = directive else {
            return Self { keys: vec!["time".to_owned()], timekey: Some(DEFAULT_TIMEKEY), utc: false };
        };
        let mut section = Section::of(directive, mistakes);
        let keys = values::list(section.argument());
        let keys = keys.map_err(|why| section.add(why)).unwrap_or_default();
        let has_time = keys.iter().any(|key| key == "time");
        let timekey = timekey(&mut section, has_time);
        let in_utc = section.flag("timekey_use_utc").unwrap_or(false);
        let zone = section.read("timekey_zone", |zone| match zone {
            "+00:00" | "+0000" | "UTC" | "Etc/UTC" | "Z" => Ok(()),
            _ => Err(format!(
                "'{zone}': slices of time are in UTC or in the time zone of this process; set TZ={zone} for this process"
            )),
        });
        without_effect(&mut section);
        section.finish();
        Self {
            timekey: has_time.then_some(timekey.unwrap_or(DEFAULT_TIMEKEY)),
            keys,
            utc: in_utc || zone.is_some(),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// The time placeholders that Fluentd appends to a path that has none.
    pub(super) fn time_format(&self) -> &'static str {
        match self.timekey.map(|timekey| timekey.as_secs()) {
            None => "",
            Some(0..60) => "%Y%m%d%H%M%S",
            Some(60..3_600) => "%Y%m%d%H%M",
            Some(3_600..86_400) => "%Y%m%d%H",
            Some(_) => "%Y%m%d",
        }
    }

    /// Refuses placeholders that Fluentd would refuse or would expand differently from proofload.
    pub(super) fn check_placeholders(&self, path: &str) -> Result<(), String> {
        self.check_keys(path)?;
        self.check_times(path)
    }

    /// Refuses placeholders that are not among the keys of `<buffer>`, as Fluentd does.
    fn check_keys(&self, path: &str) -> Result<(), String> {
        let mut rest = path;
        while let Some((_, behind)) = rest.split_once("${") {
            let (name, after) = behind.split_once('}').ok_or("'${' is not closed by '}'")?;
            rest = after;
            let key = name.split('[').next().unwrap_or(name);
            if key == "chunk_id" {
                return Err("${chunk_id}: there are no chunks here".to_owned());
            }
            if !self.has(key) {
                return Err(format!(
                    "${{{name}}} needs {key} among the keys of <buffer>, such as <buffer {key},time>"
                ));
            }
        }
        Ok(())
    }

    /// Refuses time placeholders finer than the time slice. Fluentd expands them to the start of the slice; proofload
    /// uses each line's time.
    fn check_times(&self, path: &str) -> Result<(), String> {
        let Some(timekey) = self.timekey.filter(|timekey| TIMEKEYS.contains(timekey)) else { return Ok(()) };
        let mut letters = path.split('%').skip(1).map(|behind| behind.chars().next());
        while let Some(letter) = letters.next() {
            let (wanted, unit_s) = match letter {
                // `%%` is a literal percent sign; the next piece is text.
                None => {
                    letters.next();
                    continue;
                }
                Some('S') => ("1s", 1),
                Some('M') => ("1m", 60),
                Some('H') => ("1h", 3_600),
                Some(_) => continue,
            };
            if timekey.as_secs() > unit_s {
                let letter = letter.unwrap_or_default();
                return Err(format!(
                    "%{letter} changes within a slice of time of this timekey, so files would be divided differently \
                     than by Fluentd; use timekey {wanted}, or take %{letter} out of the path"
                ));
            }
        }
        Ok(())
    }
}

/// Reads the length of a time slice.
fn timekey(section: &mut Section<'_, '_, '_>, has_time: bool) -> Option<Duration> {
    let parameter = section.take("timekey")?;
    let timekey = values::time(&parameter.value)
        .map_err(|why| section.mistakes.add(parameter.at, format!("timekey: {why}")));
    let timekey = timekey.ok()?;
    if !has_time {
        section.mistakes.note(
            parameter.at,
            "timekey has no effect, here as in Fluentd: the keys of <buffer> do not include time",
        );
    } else if timekey < TIMEKEYS[0] {
        section.mistakes.add(parameter.at, "timekey: a slice of time lasts at least 1s");
    } else if !TIMEKEYS.contains(&timekey) {
        section.mistakes.add(
            parameter.at,
            format!(
                "timekey: '{}': files would be divided differently than by Fluentd; use 1s, 1m, 1h or 1d",
                parameter.value
            ),
        );
    }
    Some(timekey)
}

fn without_effect(section: &mut Section<'_, '_, '_>) {
    section.common();
    section
        .without_effect(&["@type", "type", "path"], "there are no buffers: lines go to their file at once");
    section.without_effect(
        &[
            "flush_mode",
            "flush_interval",
            "flush_at_shutdown",
            "flush_thread_count",
            "flush_thread_interval",
            "flush_thread_burst_interval",
            "delayed_commit_timeout",
            "slow_flush_log_threshold",
            "timekey_wait",
        ],
        "lines are in their file when the request is answered",
    );
    section.without_effect(
        &[
            "chunk_limit_size",
            "chunk_limit_records",
            "chunk_full_threshold",
            "total_limit_size",
            "queue_limit_length",
            "queued_chunks_limit_size",
            "overflow_action",
        ],
        "--budget bounds the bytes in flight; requests beyond it are refused",
    );
    section.without_effect(
        &[
            "retry_forever",
            "retry_timeout",
            "retry_max_times",
            "retry_type",
            "retry_wait",
            "retry_exponential_backoff_base",
            "retry_max_interval",
            "retry_randomize",
            "retry_secondary_threshold",
            "disable_chunk_backup",
        ],
        "a request that cannot be stored is refused, and the client retries",
    );
    section.without_effect(&["compress"], "the compress of the <match> applies");
}

#[cfg(test)]
mod tests {
    use crate::import::fluentd;

    /// The mistakes in a path and a `<buffer>`.
    fn told(path: &str, keys: &str, timekey: &str) -> Vec<String> {
        let text = format!(
            "<source>\n@type http\n</source>\n<match **>\n@type file\nappend\npath {path}\n<buffer {keys}>\n{timekey}\n</buffer>\n</match>"
        );
        let mistakes = fluentd("f", &text).err().unwrap_or_default();
        mistakes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn slices_are_those_that_placeholders_cut() {
        for timekey in ["1", "1s", "60s", "1m", "60m", "1h", "24h", "1d", "86400"] {
            assert_eq!(told("a", "time", &format!("timekey {timekey}")), [] as [&str; 0], "{timekey}");
        }
        for timekey in ["10m", "30s", "2d", "1.5", "12h"] {
            let told = told("a", "time", &format!("timekey {timekey}"));
            let wanted = format!(
                "f:9:1: timekey: '{timekey}': files would be divided differently than by Fluentd; use 1s, 1m, 1h or 1d"
            );
            assert_eq!(told, [wanted]);
        }
        assert_eq!(told("a", "tag", "timekey 10m"), [] as [&str; 0], "it has no effect in Fluentd either");
    }

    #[test]
    fn placeholders_are_not_finer_than_slices() {
        for (path, timekey) in [
            ("a.%Y%m%d", ""),
            ("a.%Y%m%d%%H", ""),
            ("a.%Y%m%d%H", "timekey 1h"),
            ("a.%Y%m%d%H%M", "timekey 1m"),
            ("a.%Y%m%d%H%M%S", "timekey 1s"),
        ] {
            assert_eq!(told(path, "time", timekey), [] as [&str; 0], "{path} {timekey}");
        }
        for (path, timekey, finer) in [
            ("a.%Y%m%d%H", "", "%H"),
            ("a.%Y%m%d%H%M", "timekey 1h", "%M"),
            ("a.%Y%m%d%H%M%S", "timekey 1m", "%S"),
            ("a.*/%H", "timekey 1d", "%H"),
        ] {
            let told = told(path, "time", timekey);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with(&format!("f:7:1: path: {finer} changes within a slice")), "{told:?}");
        }
    }
}
