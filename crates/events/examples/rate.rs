//! How many records a core reads and renders: `cargo run --release -p events --example rate`

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use events::{EventTime, Kind, LineFormat, LineWriter, Rules, Scratch, Zone, read};

const EVENT: &str = concat!(
    r#"{"board_id":10,"playtime":5,"minimum_play":"Y","timestamp":"2019-11-12T10:00:01Z","#,
    r#""user_id":1,"interest":100}"#
);
const BATCH: usize = 100;
const MEASURE: Duration = Duration::from_millis(300);
/// The best of so many measurements is shown: what disturbs only makes them worse.
const REPEATS: usize = 5;

fn main() {
    let ndjson = format!("{EVENT}\n").repeat(BATCH);
    let array = format!("[{}]", vec![EVENT; BATCH].join(","));
    let pretty = format!("[{}]", vec![EVENT.replace(',', ",\n  "); BATCH].join(",\n"));
    let form = format!("json={}", EVENT.replace('"', "%22"));
    let fluentd = Rules::fluentd();
    let timed = Rules { time_key: Some("timestamp".to_owned()), keep_time_key: false, ..Rules::default() };
    let strict = Rules::default();
    println!("{} bytes an event, {BATCH} a batch, out_file lines with time and tag", EVENT.len());
    for (name, body, kind, rules) in [
        ("single", EVENT, Kind::Json, &strict),
        ("ndjson", &ndjson, Kind::Ndjson, &strict),
        ("ndjson as json", &ndjson, Kind::Json, &strict),
        ("array", &array, Kind::Json, &strict),
        ("array, over lines", &pretty, Kind::Json, &strict),
        ("raw lines", &ndjson, Kind::Raw, &strict),
        ("form, single", &form, Kind::Form, &strict),
        ("ndjson, time key", &ndjson, Kind::Ndjson, &timed),
        ("fluentd, single", EVENT, Kind::Json, &fluentd),
        ("fluentd, ndjson", &ndjson, Kind::Ndjson, &fluentd),
    ] {
        let best = (0..REPEATS).map(|_| records_per_s(body.as_bytes(), kind, rules)).fold(0.0, f64::max);
        println!("{name:20} {:7.2} M records/s {:7.0} ns a record", best / 1e6, 1e9 / best);
    }
}

fn records_per_s(body: &[u8], kind: Kind, rules: &Rules) -> f64 {
    let mut writer = LineWriter::new(LineFormat::OutFile { time: true, tag: true }, Zone::Local);
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    let now = EventTime { seconds: 1_578_905_529, nanos: 0 };
    let (mut records, start) = (0, Instant::now());
    while start.elapsed() < MEASURE {
        for _ in 0..50 {
            out.clear();
            let mut sink = |record: events::Record<'_>| {
                writer.write(&mut out, record.time.unwrap_or(now), "http_listener_test", &record);
            };
            let count = read(body, kind, rules, &mut scratch, &mut sink).expect("the bodies above are good");
            records += count;
            black_box(&out);
        }
    }
    records as f64 / start.elapsed().as_secs_f64()
}
