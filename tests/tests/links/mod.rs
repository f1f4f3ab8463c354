//! `proofload link` from outside.

use super::*;

#[test]
fn a_link_obeys_while_it_runs() -> Result<()> {
    let _shared = beside_others();
    let orders = "set rate=20mbit delay=5ms\nset b-to-a loss=1%\ndown\nup\nsideways\ncounters\n";
    let mut link = LinkedHosts::start_with_orders("--rate 1gbit --delay 1ms", orders)?;
    link.program().says("b to a: ", PATIENCE)?;
    ensure!(link.program().stderr().contains("'sideways' is not a command"), "{}", link.program().stderr());
    let trips = link.round_trips(50, std::time::Duration::from_millis(3))?;
    // No machine makes a link quicker than it is told to be; at first, its packets took 1 ms.
    let quickest_ns = trips.quiet_ns.iter().chain(&trips.stolen_ns).min();
    ensure!(quickest_ns.is_some_and(|&ns| ns >= 9_900_000), "{trips:?}");
    let report = link.stop()?;
    let spec = &report["spec"];
    ensure!(
        spec["a_to_b"]["rate_bits_per_s"] == 20_000_000 && spec["b_to_a"]["delay_ns"] == 5_000_000,
        "{spec}"
    );
    ensure!(spec["a_to_b"]["loss"]["kind"] == "none" && spec["b_to_a"]["loss"]["ratio"] == 0.01, "{spec}");
    Ok(())
}

#[test]
fn a_link_dies_with_its_program() -> Result<()> {
    let _shared = beside_others();
    let mut link = LinkedHosts::start("--delay 1ms")?;
    for index in 0..2 {
        ensure!(link.interfaces(index)?.contains(&"link0".to_owned()), "no interface in host {index}");
    }
    link.program().signal(Signal::KILL);
    for index in 0..2 {
        let is_left = || link.interfaces(index).is_ok_and(|names| names.contains(&"link0".to_owned()));
        until(&format!("no interface is left in host {index}"), || !is_left());
    }
    Ok(())
}

#[test]
fn a_link_that_cannot_be_is_refused_with_every_mistake() -> Result<()> {
    let _shared = beside_others();
    let output = Proofload::new("link 1 2 --rate fast --loss 200% --back speed=1")?.run()?;
    ensure!(output.code == Some(2), "{}", output.described());
    for mistake in ["'fast'", "'200%'", "'speed'"] {
        ensure!(output.stderr.contains(mistake), "{mistake} is not named: {}", output.described());
    }
    let nowhere = Proofload::new("link no-such-host no-such-host --rate 1gbit")?.run()?;
    ensure!(nowhere.code == Some(2), "{}", nowhere.described());
    ensure!(nowhere.stderr.contains("/run/netns/no-such-host"), "{}", nowhere.described());
    Ok(())
}
