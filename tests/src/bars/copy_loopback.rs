//! The cost of a copy if no path limits it, compared with scp using the same cipher.

use anyhow::Result;

use super::{Bar, By, Outcome, Runs, Scale};
use crate::copying::{CopyPath, Way};

pub(super) const BAR: Bar = Bar {
    name: "copy-loopback",
    what: "on loopback, `copy` takes no more time and processor time for a GB than scp with --no-verify --no-fsync, and 1.5 of them by \
           default, up and down: medians of the ratios within 7 pairs of 2 GB, aes128-gcm, from and to memory",
    full_seconds: 200,
    decided_by: By::Times,
    run,
};

const CIPHER: &str = "-c aes128-gcm@openssh.com";

fn run(scale: Scale) -> Result<Outcome> {
    let (bytes, pairs) = scale.pick((200_000_000, 1), (2_000_000_000, 7));
    let path = CopyPath::up(None, "", "", 3 * bytes)?;
    path.make("file", bytes)?;
    let mut outcome = Outcome::default();
    for (way, direction) in [(Way::Up, "up"), (Way::Down, "down")] {
        for (name, options, most) in [("bare", "--no-verify --no-fsync", 1.0), ("default", "", 1.5)] {
            let (mut wall, mut cpu) = (Runs::default(), Runs::default());
            for pair in 0..pairs {
                let ours = || path.copy(&format!("{CIPHER} {options}"), way, "file", "copy");
                let scp = || path.scp(CIPHER, way, "file", "copy");
                // Alternate the order, because the second one may find a quieter machine.
                let (ours, scp) = if pair % 2 == 0 {
                    let ours = ours()?;
                    (ours, scp()?)
                } else {
                    let scp = scp()?;
                    (ours()?, scp)
                };
                wall.push(ours.wall_s / scp.wall_s);
                cpu.push(ours.cpu_s / scp.cpu_s);
            }
            // In a small copy, the login takes a large share of the time, and other programs may disturb it, so the bound is wider.
            let most = scale.pick(3.0, most);
            outcome.time().at_most(&format!("{direction}_{name}_wall_ratio"), &wall, most, "");
            outcome.time().at_most(&format!("{direction}_{name}_cpu_ratio"), &cpu, most, "");
        }
    }
    path.down()?;
    Ok(outcome)
}
