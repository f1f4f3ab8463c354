//! Copies fill nine paths without any options.

use anyhow::Result;

use super::{Bar, By, Outcome, Scale, is_wanted};
use crate::copying::{CopyPath, Way};

pub(super) const BAR: Bar = Bar {
    name: "copy-paths",
    what: "10, 100, 300 ms × 10 Mbit/s, 100 Mbit/s, 1 Gbit/s: `copy` without flags carries ≥ 95 % of what TCP can, in the mean of \
           the seconds after its ramp",
    full_seconds: 420,
    decided_by: By::Times,
    run,
};

/// Time that the bytes alone take on the link, in seconds.
const SECONDS: f64 = 18.0;

fn run(scale: Scale) -> Result<Outcome> {
    let (rates, round_trips) = scale.pick((&[10][..], &[100][..]), (&[10, 100, 1_000], &[10, 100, 300]));
    let mut outcome = Outcome::default();
    for &rate in rates {
        for &round_trip in round_trips {
            let name = format!("{rate}mbit_{round_trip}ms");
            if !is_wanted(&name) {
                continue;
            }
            // Login and ramp-up come on top of this time.
            let bytes = (f64::from(rate) * 125_000.0 * scale.pick(SECONDS / 2.0, SECONDS)) as u64;
            let link = format!("delay = \"{}ms\"", f64::from(round_trip) / 2.0);
            let host = "tcp_rmem = \"64MB\", tcp_wmem = \"64MB\"";
            let path = CopyPath::up(Some(rate), host, &link, 3 * bytes)?;
            path.make("file", bytes)?;
            let copied = path.copy("", Way::Up, "file", "copy")?;
            let steady = copied.steady(path.goodput);
            path.down()?;
            let least = scale.pick(0.9, 0.95);
            outcome.time().figure(
                &format!("{name}_share"),
                format!("{:.3}", steady.mean),
                format!(">= {least} of TCP's goodput"),
                steady.mean >= least,
            );
            outcome.note(format!(
                "{rate} Mbit/s, {round_trip} ms: {:.1} s for {} MB; login {:.1} s, ramp {} s, {} steady seconds; \
                 {:.1} processor seconds; held back by {}",
                copied.wall_s,
                bytes / 1_000_000,
                copied.number("login_s"),
                steady.ramp_s,
                steady.seconds,
                copied.cpu_s,
                copied.report["held_back"]
            ));
        }
    }
    Ok(outcome)
}
