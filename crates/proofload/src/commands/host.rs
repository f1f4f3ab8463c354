//! `proofload host`: checks, changes and restores the kernel settings of this host, and shows kernel counters.

mod check;
mod restore;
mod tune;
mod watch;

use clap::{Args, Subcommand};
use kernel::tune::{LongPath, PROFILES, Profile};
use record::units::parse_time;
use undo::Folder;

use super::mistakes::Mistakes;
use crate::exit::{Exit, Refusal, Result};

/// Check and change the settings of this host's kernel, and watch what the kernel counts.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    Check(check::CheckArgs),
    Tune(tune::TuneArgs),
    Restore(restore::RestoreArgs),
    Watch(watch::WatchArgs),
}

/// A profile, and the path for which it sizes buffers.
#[derive(Debug, Clone, Args)]
struct ProfileArgs {
    /// What the settings are for: listen-many, long-fat, http-listener, ocean-copy, l2dsr-vs-proxy or max-rps
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Rate of the path, for profiles that size buffers, such as 1gbit
    #[arg(long, value_name = "RATE", requires = "rtt")]
    rate: Option<String>,
    /// Round-trip time of the path
    #[arg(long, value_name = "T", requires = "rate")]
    rtt: Option<String>,
}

/// The profile of kernel settings that the user requested.
#[derive(Clone, Copy)]
struct Asked {
    profile: &'static Profile,
    /// The network path for which the profile sizes buffers, if it does.
    path: Option<LongPath>,
}

pub(crate) fn run(arguments: &HostArgs) -> Result<Exit> {
    match &arguments.command {
        HostCommand::Check(arguments) => check::run(arguments),
        HostCommand::Tune(arguments) => tune::run(arguments),
        HostCommand::Restore(arguments) => restore::run(arguments),
        HostCommand::Watch(arguments) => watch::run(arguments),
    }
}

impl ProfileArgs {
    /// The requested profile; `None` if the user requested none or made a mistake, which is added to `m`.
    fn read(&self, m: &mut Mistakes) -> Option<Asked> {
        let rate = m.optional("--rate", self.rate.as_deref(), |text| {
            lab::link::text::parse_rate(text)?
                .ok_or_else(|| "the path needs a rate; give one such as 1gbit".to_owned())
        });
        let rtt = m.optional("--rtt", self.rtt.as_deref(), parse_time);
        let given = rate.zip(rtt);
        let Some(name) = &self.profile else {
            if self.rate.is_some() {
                m.add("--rate and --rtt size the buffers of a profile; add --profile long-fat");
            }
            return None;
        };
        let Some(profile) = Profile::named(name) else {
            let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
            m.add(format!("--profile: '{name}' is not a profile; the profiles are {}", names.join(", ")));
            return None;
        };
        if !profile.needs_path() {
            if self.rate.is_some() {
                m.add(format!("--rate and --rtt: {name} sizes no buffers; leave them out"));
            }
            return Some(Asked { profile, path: None });
        }
        let given =
            given.map(|(rate_bits_per_s, rtt)| LongPath { rate_bits_per_s, rtt_ns: rtt.as_nanos() as u64 });
        let Some(path) = given.or(profile.path) else {
            // An invalid rate or time has already been reported.
            if self.rate.is_none() {
                m.add(format!("--profile {name} sizes buffers by a path; add --rate 1gbit --rtt 228ms"));
            }
            return None;
        };
        if path.bdp_bytes() > MAX_BDP_BYTES {
            m.add("--rate and --rtt: buffers of more than 2 GiB do not fit a socket; give a smaller rate or time");
        }
        Some(Asked { profile, path: Some(path) })
    }
}

/// Largest bandwidth-delay product: the kernel keeps buffer sizes in 31 bits, and a buffer needs twice the product.
const MAX_BDP_BYTES: u64 = (i32::MAX / 2) as u64;

/// The folder of the journals that record changed kernel settings.
fn tunings() -> Result<Folder> {
    Folder::of_this_user().and_then(|folder| folder.of_tunings()).map_err(Refusal::one)
}
