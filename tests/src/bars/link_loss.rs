//! A link loses what it was asked to, and certifies it.

use anyhow::Result;

use super::{Bar, Outcome, Scale};
use crate::link::LinkedHosts;

/// The bar.
pub(super) const BAR: Bar = Bar {
    name: "link-loss",
    what: "of a million packets 0.09 to 0.11 % are lost where 0.1 % is asked for, each way; none where none is",
    full_seconds: 45,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    // Four standard deviations of the smaller number are 0.03 %.
    let (packets, distance) = scale.pick((200_000_u64, 0.03), (1_000_000, 0.01));
    let mut outcome = Outcome::default();
    for (name, loss, percent) in [("random", "0.1%", 0.1), ("none", "0", 0.0)] {
        let options = format!(
            "--rate 1gbit --delay 5ms --loss {loss} --certify --certify-packets {packets} --certify-delay 1s"
        );
        let report = LinkedHosts::start(&options)?.stop()?;
        for direction in ["a_to_b", "b_to_a"] {
            let measured = &report["certificate"][direction];
            let lost = measured["loss_ratio"].as_f64().unwrap_or(1.0) * 100.0;
            let distance = if percent > 0.0 { distance } else { 0.0 };
            outcome.near(&format!("{name}_{direction}_percent"), lost, percent, distance, "");
            outcome.equal(
                &format!("{name}_{direction}_sent"),
                measured["loss_sent"].as_u64().unwrap_or(0),
                packets,
                "asked for",
            );
        }
        outcome.note(format!("certificate: {}", report["certificate"]["reasons"]));
    }
    Ok(outcome)
}
