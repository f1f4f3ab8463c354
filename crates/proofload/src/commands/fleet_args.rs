//! The options that let other machines make the load, shared by the commands that run trials.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::Args;
use fleet::{FleetOptions, Machine, Machines, Pool, inventory};

use super::pool_args::PoolArgs;
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Heading of the options in the help.
pub(super) const HEADING: &str = "Other machines";
/// The options that name machines. Other options need one of them.
pub(super) const ELSEWHERE: &str = "elsewhere";

/// Which machines make the load, and how.
#[derive(Debug, Default, Args)]
pub(crate) struct FleetArgs {
    /// Let other machines make the load, over ssh: root@c1,root@c2:2222, or machines and groups of an Ansible inventory,
    /// inventory.yml:clients, or agents that wait at a NATS server, nats://HOST/POOL; each gets its share, and the results are
    /// merged
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', group = ELSEWHERE, help_heading = HEADING)]
    pub on: Vec<String>,
    /// Run as root on these machines, by sudo without a password
    #[arg(long, requires = ELSEWHERE, help_heading = HEADING)]
    pub r#become: bool,
    /// Weight of a machine, such as c1=2; the weights of the others follow from their processors; repeatable
    #[arg(long, value_name = "NAME=WEIGHT", requires = ELSEWHERE, help_heading = HEADING)]
    pub share: Vec<String>,
    /// Folder on the machines for this program [default: the first that works of ~/.cache/proofload, /var/tmp, /run/user, /dev/shm]
    #[arg(long, value_name = "FOLDER", requires = ELSEWHERE, help_heading = HEADING)]
    pub remote_path: Option<String>,
    /// Number of machines that may be lost: later trials run on the others
    #[arg(long, value_name = "N", default_value_t = 0, requires = ELSEWHERE, help_heading = HEADING)]
    pub allow_lost: usize,
    #[command(flatten)]
    pub pool: PoolArgs,
}

impl FleetArgs {
    /// The machines that --on names. Does not log in to them.
    ///
    /// # Errors
    /// All mistakes in the options and the inventories.
    pub(crate) fn machines(&self) -> Result<Vec<Machine>> {
        self.named("--on", &self.on)
    }

    /// The machines that these words of an option name. Does not log in to them.
    ///
    /// # Errors
    /// All mistakes in the words and the inventories.
    pub(super) fn named(&self, option: &str, words: &[String]) -> Result<Vec<Machine>> {
        let (mut machines, mut mistakes) = (Vec::new(), Vec::new());
        for text in with_servers(words) {
            match self.machines_of(&text) {
                // A machine may be in several of the named groups; a login that is given twice is refused later.
                Ok(named) => named.into_iter().for_each(|machine| {
                    if machine.groups.is_empty() || !machines.contains(&machine) {
                        machines.push(machine);
                    }
                }),
                Err(more) => mistakes.extend(more.into_iter().map(|why| format!("{option}: {why}"))),
            }
        }
        if self.r#become {
            machines.iter_mut().for_each(|machine| {
                machine.become_user.get_or_insert_with(|| "root".to_owned());
            });
        }
        if mistakes.is_empty() { Ok(machines) } else { Err(Refusal::new(mistakes)) }
    }

    fn machines_of(&self, text: &str) -> std::result::Result<Vec<Machine>, Vec<String>> {
        if is_broker(text) {
            let options = self.pool.options();
            if !options.has_keys() {
                return Err(vec![format!("{text}: {}", fleet::NO_KEYS)]);
            }
            return Machine::waiting_in(Pool::connect(text, &options).map_err(|why| vec![why])?);
        }
        named(text)
    }

    fn options(&self) -> Result<FleetOptions> {
        let (mut shares, mut mistakes) = (Vec::new(), Vec::new());
        for text in &self.share {
            let pair = text.rsplit_once('=').and_then(|(name, weight)| {
                Some((name.to_owned(), weight.parse().ok().filter(|weight| (1..=1_000).contains(weight))?))
            });
            match pair {
                Some(pair) => shares.push(pair),
                None => mistakes.push(format!(
                    "--share: '{text}' is not NAME=WEIGHT, such as c1=2; a weight is 1 to 1000"
                )),
            }
        }
        if !mistakes.is_empty() {
            return Err(Refusal::new(mistakes));
        }
        Ok(FleetOptions { remote_path: self.remote_path.clone(), shares, allow_lost: self.allow_lost })
    }

    /// Connects the machines, and prints what is known about each; `None` without --on. The inner error is the exit status after
    /// an interrupt.
    ///
    /// # Errors
    /// All mistakes, or the reason for each machine that cannot take part.
    pub(crate) fn connect(
        &self,
        stop: &Arc<AtomicBool>,
        quiet: bool,
    ) -> Result<std::result::Result<Option<Arc<Machines>>, Exit>> {
        if self.on.is_empty() {
            if self.pool.is_given() {
                return Err(Refusal::one(
                    "--on nats://HOST/POOL is missing: --fleet-key, --agent-keys, --nats-creds and --nats-ca are for agents of a broker",
                ));
            }
            return Ok(Ok(None));
        }
        Ok(self.connect_to(self.machines()?, stop, quiet)?.map(Some))
    }

    /// Connects these machines, and prints what is known about each. The inner error is the exit status after an interrupt.
    ///
    /// # Errors
    /// All mistakes in the options, or the reason for each machine that cannot take part.
    pub(super) fn connect_to(
        &self,
        machines: Vec<Machine>,
        stop: &Arc<AtomicBool>,
        quiet: bool,
    ) -> Result<std::result::Result<Arc<Machines>, Exit>> {
        let machines = match Machines::connect(machines, self.options()?, stop) {
            Ok(machines) => machines,
            Err(_) if stop.load(Ordering::Relaxed) => {
                return Ok(Err(standard::interrupted_before_start()));
            }
            Err(why) => return Err(Refusal::new(why)),
        };
        if !quiet {
            for line in machines.description() {
                standard::print_to_stderr(format_args!("proofload: {line}"));
            }
        }
        Ok(Ok(Arc::new(machines)))
    }
}

/// The machines that one word of --on names over ssh: a machine, or an inventory with a group or machine in it.
fn named(text: &str) -> std::result::Result<Vec<Machine>, Vec<String>> {
    let is_path = |text: &str| text.contains('/') || Path::new(text).extension().is_some();
    let (path, pattern) = match text.rsplit_once(':') {
        // An inventory may be a program, which must not be run by mistake because a machine has its name.
        _ if !is_path(text) && Path::new(text).exists() => {
            let message = format!(
                "'{text}' is a file here and may be a machine: write ./{text} for the inventory, or USER@{text} for the machine"
            );
            return Err(vec![message]);
        }
        _ if is_path(text) && Path::new(text).exists() => (text, None),
        Some((path, pattern)) if Path::new(path).exists() => (path, Some(pattern)),
        _ => return Machine::from_destination(text).map(|machine| vec![machine]).map_err(|why| vec![why]),
    };
    let all = inventory::read(Path::new(path))?;
    inventory::select(&all, pattern).map_err(|why| vec![why])
}
/// The words of --on. Commas separate words, and the servers of a broker as well: `nats://HOST1,HOST2/POOL` is one word again.
fn with_servers(words: &[String]) -> Vec<String> {
    let may_be_server = |word: &str| {
        !word.contains(['@', '='])
            && !word.contains("://")
            && !word.starts_with(['.', '/'])
            && !Path::new(word).exists()
    };
    let (mut joined, mut rest) = (Vec::new(), words);
    while let Some((word, behind)) = rest.split_first() {
        let names_no_pool = word.split_once("://").is_some_and(|(_, servers)| !servers.contains('/'));
        let servers = behind.iter().take_while(|word| may_be_server(word)).count();
        let last = behind[..servers].iter().position(|word| word.contains('/'));
        let more = last.filter(|_| is_broker(word) && names_no_pool).map_or(0, |last| last + 1);
        joined.push([std::slice::from_ref(word), &behind[..more]].concat().join(","));
        rest = &behind[more..];
    }
    joined
}

fn is_broker(word: &str) -> bool {
    word.starts_with("nats://") || word.starts_with("tls://")
}

#[cfg(test)]
mod server_tests {
    use super::*;

    #[test]
    fn the_servers_of_a_broker_are_one_word() {
        let joined =
            |text: &str| with_servers(&text.split(',').map(str::to_owned).collect::<Vec<_>>()).join(" ");
        assert_eq!(joined("nats://a:1,b:2,c/load,root@d,e"), "nats://a:1,b:2,c/load root@d e");
        assert_eq!(joined("nats://a/x,b,c/y"), "nats://a/x b c/y");
        assert_eq!(joined("nats://a,root@b,c/y"), "nats://a root@b c/y");
        assert_eq!(joined("nats://a,b,tls://c,d/x"), "nats://a b tls://c,d/x");
        assert_eq!(joined("nats://a,./inventory/x"), "nats://a ./inventory/x");
        assert_eq!(joined("a,b"), "a b");
    }
}
