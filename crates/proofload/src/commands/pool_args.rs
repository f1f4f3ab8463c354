//! The options for machines that have dialled out to a broker.

use std::path::PathBuf;

use clap::Args;
use fleet::PoolOptions;

use super::fleet_args::HEADING;

/// How the broker is reached, and how this controller and the agents are proved.
#[derive(Debug, Default, Args)]
pub(crate) struct PoolArgs {
    /// File with the credentials for the broker of nats:// (.creds)
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub nats_creds: Option<PathBuf>,
    /// File with the certificates of the authorities that vouch for the broker
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub nats_ca: Option<PathBuf>,
    /// File with the key that proves this controller to agents; `proofload fleet key FILE` makes one
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub fleet_key: Option<PathBuf>,
    /// File with a line NAME KEY for each agent; a NAME may have *
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub agent_keys: Option<PathBuf>,
}

impl PoolArgs {
    /// Whether any of the options is given.
    pub(crate) fn is_given(&self) -> bool {
        [&self.nats_creds, &self.nats_ca, &self.fleet_key, &self.agent_keys].iter().any(|file| file.is_some())
    }

    pub(crate) fn options(&self) -> PoolOptions {
        PoolOptions {
            credentials: self.nats_creds.clone(),
            authorities: self.nats_ca.clone(),
            key: self.fleet_key.clone(),
            agent_keys: self.agent_keys.clone(),
        }
    }
}
