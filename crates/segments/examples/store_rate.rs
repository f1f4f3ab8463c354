//! What one port of a store takes on this disk: `cargo run --release -p segments --example store_rate -- FOLDER`.

use std::{
    error::Error,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use segments::{Batch, Config, Key, Level, Part, Port, Store};

const RUN: Duration = Duration::from_secs(3);

/// What is submitted: so many parts of so many bytes a batch, and so many batches at once.
struct Load {
    level: Level,
    part_bytes: usize,
    parts: usize,
    keys: usize,
    in_flight: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("the first argument is an empty folder")?);
    println!(
        "level     bytes/part  parts/batch  keys  batches at once |  parts/s    MB/s  syncs/s  p50 us  p99 us"
    );
    for (level, part_bytes, parts, keys, in_flight) in [
        (Level::Written, 150, 1, 1, 64),
        (Level::Written, 150, 64, 1, 4),
        (Level::Written, 150, 64, 64, 4),
        (Level::Written, 1100, 64, 1, 4),
        (Level::Written, 15_000, 64, 1, 4),
        (Level::Synced, 150, 1, 1, 1),
        (Level::Synced, 150, 64, 1, 4),
        (Level::Synced, 150, 64, 16, 4),
        (Level::Synced, 1100, 64, 1, 16),
    ] {
        run(&folder, &Load { level, part_bytes, parts, keys, in_flight })?;
    }
    Ok(())
}

fn run(folder: &std::path::Path, load: &Load) -> Result<(), Box<dyn Error>> {
    let template = format!("{}/${{tag}}", folder.display()).parse()?;
    let (store, mut ports, _) = Store::open(Config::new(template), 1)?;
    let keys: Result<Vec<_>, _> =
        (0..load.keys).map(|number| store.key(&format!("rate{number}"), 0, &|_| None)).collect();
    let (count, took) = submit_and_drain(&mut ports[0], &keys?, load)?;
    let statistics = store.statistics();
    store.close()?;
    for number in 0..load.keys {
        std::fs::remove_file(folder.join(format!("rate{number}.log")))?;
    }
    let per_s = count as f64 / took.as_secs_f64();
    println!(
        "{:9} {:10} {:12} {:5} {:16} | {per_s:8.0} {:7.1} {:8.0} {:7} {:7}",
        format!("{:?}", load.level).to_lowercase(),
        load.part_bytes,
        load.parts,
        load.keys,
        load.in_flight,
        per_s * load.part_bytes as f64 / 1e6,
        statistics.syncs as f64 / took.as_secs_f64(),
        statistics.sync_us.p50,
        statistics.sync_us.p99,
    );
    Ok(())
}

fn submit_and_drain(
    port: &mut Port,
    keys: &[Arc<Key>],
    load: &Load,
) -> Result<(usize, Duration), Box<dyn Error>> {
    let mut line = vec![b'x'; load.part_bytes];
    line[load.part_bytes - 1] = b'\n';
    let begin = Instant::now();
    let (mut submitted, mut answered) = (0, 0);
    let mut done = Vec::new();
    while begin.elapsed() < RUN || answered < submitted {
        while begin.elapsed() < RUN && submitted - answered + load.parts <= load.in_flight * load.parts {
            let mut batch = Batch { data: port.spare_buffer(), parts: Vec::with_capacity(load.parts) };
            for number in 0..load.parts {
                let start = batch.data.len();
                batch.data.extend_from_slice(&line);
                let key = keys[number % keys.len()].clone();
                batch.parts.push(Part { token: 0, key, range: start..batch.data.len(), level: load.level });
            }
            submitted += load.parts;
            port.submit(batch);
        }
        let wait = Timespec { tv_sec: 1, tv_nsec: 0 };
        poll(&mut [PollFd::new(&port.fd(), PollFlags::IN)], Some(&wait))?;
        port.drain(&mut done);
        for done in done.drain(..) {
            done.result.map_err(|failure| failure.to_string())?;
            answered += 1;
        }
    }
    Ok((answered, begin.elapsed()))
}
