//! The histograms of a trial as an HdrHistogram log, for other programs.

use std::{
    io::{self, Write},
    time::{Duration, UNIX_EPOCH},
};

use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};
use record::Trial;

/// Writes a log in version 1.3 of the HdrHistogram format: one line per quantity, distinguished by its tag.
/// Values are nanoseconds; the column with the maximum is in milliseconds.
pub(crate) fn write(mut output: &mut dyn Write, trial: &Trial) -> io::Result<()> {
    let Some(http) = trial.http() else { return Ok(()) };
    let start = UNIX_EPOCH + Duration::from_secs_f64(trial.started_unix_s);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("proofload {}; values in nanoseconds", trial.proofload_version))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut output, &mut serializer)?;
    for (tag, histogram) in [
        ("response", &http.response_time.observed),
        ("response-censored", &http.response_time.censored),
        ("service", &http.service_time.observed),
        ("service-censored", &http.service_time.censored),
        ("connect", &http.connect_time),
        ("handshake", &http.handshake_time),
        ("first-byte", &http.first_byte_time),
        ("lateness", &http.lateness),
        ("own-lateness", &http.own_lateness),
    ] {
        let length = Duration::from_secs_f64(trial.elapsed_s);
        log.write_histogram(&*histogram.to_hdr(), Duration::ZERO, length, Tag::new(tag))
            .map_err(|e| io::Error::other(format!("{e:?}")))?;
    }
    Ok(())
}
