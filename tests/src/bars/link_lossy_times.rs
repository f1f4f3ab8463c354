//! Behind a lost packet, the time of an answer lasts until its bytes can be read, even if the kernel received its last bytes earlier.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use testing::{PATIENCE, http::exchange};

use super::{Bar, By, Outcome, Scale};
use crate::{
    link::LinkedHosts,
    proofload::{binary, parse_trial},
};

pub(super) const BAR: Bar = Bar {
    name: "link-lossy-times",
    what: "over a link that loses packets the share of answers that take longer than a lost packet's recovery is that of \
           a plain client beside it, within 4 standard deviations; nothing is taken for the generator's absence",
    full_seconds: 40,
    decided_by: By::Times,
    run,
};

const TARGET: &str = "10.255.255.2:8080";
/// A round trip for the connection, one for the answer, and half of one more. Only requests that lost a packet take longer.
const RECOVERED_MS: u64 = 250;
const CLIENTS: usize = 50;
/// Largest share of the trial that may count as absence. When proofload took holes in the data for absences, it was a third. A virtual
/// processor alone may wake up 10 ms late.
const MOST_AWAY_SHARE: f64 = 0.15;

fn run(scale: Scale) -> Result<Outcome> {
    let seconds = scale.pick(6, 30);
    let linked = LinkedHosts::start("--rate 1gbit --delay 50ms --loss 1%")?;
    let own = binary()?.display().to_string();
    let mut serve = linked.inside(1, &own).words(&format!("serve --listen {TARGET} --body 12KiB")).start()?;
    serve.says("listening on", PATIENCE)?;
    let plain = linked.within(0, move || plain_clients(seconds))?;
    let words = format!("http http://{TARGET}/ -u {CLIENTS} --no-keepalive -d {seconds}s -t 1 --json -");
    let output = linked.inside(0, &own).words(&words).run(Duration::from_secs(seconds + 30))?;
    let trial = parse_trial(&output.stdout).with_context(|| output.stderr.clone())?;
    let truth_ms = plain.join().map_err(|_| anyhow!("a plain client panicked"))??;
    drop(serve);

    let mut outcome = Outcome::default();
    let beyond = truth_ms.iter().filter(|&&ms| ms > RECOVERED_MS).count() as f64;
    let (count, share) = (truth_ms.len() as f64, beyond / truth_ms.len() as f64);
    let times = &trial.response_time.observed;
    let own_count = times.count() as f64;
    let own_share = 1.0 - times.count_up_to_ns(RECOVERED_MS * 1_000_000) as f64 / own_count;
    let deviation = (share * (1.0 - share) * (1.0 / count + 1.0 / own_count)).sqrt();
    outcome.time().near("recovered_percent", own_share * 100.0, share * 100.0, 400.0 * deviation, " %");
    outcome.time().figure("plain_recovered", beyond, ">= 30, or nothing is tested", beyond >= 30.0);
    let away = trial.away.total_s / trial.measured_s;
    outcome.time().figure("away", format!("{:.2} %", away * 100.0), "<= 15 %", away <= MOST_AWAY_SHARE);
    outcome.note(format!(
        "{own_count} answers, {count} of plain clients; p99 {:.0} ms; {} absences, the longest {:.1} ms",
        times.quantile_ns(0.99) as f64 / 1e6,
        trial.away.times,
        trial.away.longest_s * 1e3
    ));
    Ok(outcome)
}

/// The times of answers, from the first packet of their connection, in milliseconds.
fn plain_clients(seconds: u64) -> Result<Vec<u64>> {
    let address: SocketAddr = TARGET.parse()?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let client = move || -> Result<Vec<u64>> {
        let mut times_ms = Vec::new();
        while Instant::now() < until {
            let begun = Instant::now();
            let answer = exchange(address, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            times_ms.push(begun.elapsed().as_millis() as u64);
            ensure!(answer.body.len() == 12 << 10, "{} bytes", answer.body.len());
        }
        Ok(times_ms)
    };
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(client)).collect();
    let times = clients.into_iter().map(|client| client.join().map_err(|_| anyhow!("a client panicked"))?);
    Ok(times.collect::<Result<Vec<_>>>()?.concat())
}
