//! `proofload balance stats` and `proofload balance top`.

use std::{
    path::PathBuf,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use balance::Statistics;
use clap::Args;

use super::{WhichArgs, client, table};
use crate::{
    exit::{Exit, Refusal},
    output::{destination::Destination, standard},
};

/// Time between two updates of `top`.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Show what the running balancer has counted, by VIP and server.
///
/// Active connections are those of the last sweep, whose age is shown; all else is counted since the tables were made.
#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    /// Write all of it as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    which: WhichArgs,
}

/// Show the same with rates, anew each second, until Ctrl-C.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    which: WhichArgs,
}

/// Prints the statistics once.
pub(super) fn stats(arguments: &StatsArgs) -> Result<Exit, Refusal> {
    let destination = Destination::open_optional("--json", arguments.json.as_deref())?;
    let statistics = client::statistics(&client::find(&arguments.which)?)?;
    match destination {
        Some(destination) => destination.write_json(&statistics)?,
        None => standard::print_wrapped(&table::text(&statistics, None))?,
    }
    Ok(Exit::GoalsMet)
}

/// Prints the statistics every [`INTERVAL`] until a signal.
pub(super) fn top(arguments: &TopArgs) -> Result<Exit, Refusal> {
    let (instance, stop) = (client::find(&arguments.which)?, crate::stop::on_signal()?);
    let mut before: Option<(Instant, Statistics)> = None;
    let is_terminal = standard::columns(std::io::stdout()).is_some();
    loop {
        let now = (Instant::now(), client::statistics(&instance)?);
        let rates = before.as_ref().map(|(at, statistics)| (statistics, (now.0 - *at).as_secs_f64()));
        // Moves the cursor to the top left and clears the screen.
        let clear = if is_terminal { "\u{1b}[H\u{1b}[2J" } else { "" };
        standard::print_coloured(&format!("{clear}{}", table::text(&now.1, rates)))?;
        let next = now.0 + INTERVAL;
        before = Some(now);
        while Instant::now() < next {
            if stop.load(Ordering::Relaxed) {
                return Ok(Exit::Interrupted);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}
