//! Imports a configuration of LVS: the output of `ipvsadm-save`, or command lines of `ipvsadm`.

mod options;

use std::net::SocketAddr;

use settings::Mistake;

use self::options::{Command, Given, Word, parse};
use crate::{
    Check, CheckKind, Config, Persistence, Schedule, Server, Vip, WhenAllDown, WhenServerDies,
    config::{ALL_PORTS, MAX_WEIGHT},
};

/// The time of LVS for `-p` without a time.
const PERSISTENCE: std::time::Duration = std::time::Duration::from_secs(300);

/// A scheduler of LVS, described by the schedule that replaces it here.
enum Scheduler {
    /// Round robin, with or without weights.
    Turns { is_weighted: bool },
    /// A hash of the source address, and of the source port if the named flag is set.
    Hash { with_port: &'static str },
}

impl Config {
    /// Converts a table of ipvsadm. Messages call the file `file`; clients' frames arrive on `device`. A VIP for all
    /// ports gets no health check, because the table does not say which port to check.
    ///
    /// # Errors
    /// All lines that this balancer cannot implement, each with an alternative.
    pub fn import_ipvsadm(file: &str, text: &str, device: &str) -> Result<Self, Vec<Mistake>> {
        let mut table = Table { config: Self::new(device), ..Table::default() };
        for (line, text) in lines(text) {
            let words = options::words(&text);
            if words.is_empty() {
                continue;
            }
            let read = parse(&words).and_then(|given| table.apply(&given));
            let add = |(column, message)| {
                table.mistakes.push(Mistake { file: file.to_owned(), line, column, message })
            };
            read.err().into_iter().flatten().for_each(add);
        }
        if table.mistakes.is_empty() {
            let problems = table.config.problems().into_iter();
            table.mistakes.extend(problems.map(|problem| Mistake {
                file: file.to_owned(),
                line: 1,
                column: 1,
                message: problem.why,
            }));
        }
        if table.mistakes.is_empty() { Ok(table.config) } else { Err(table.mistakes) }
    }
}

/// Splits a text into numbered lines. A backslash at the end of a line joins it with the next one.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let (part, continues) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => *last = format!("{last} {part}"),
            None => lines.push((at + 1, part.to_owned())),
        }
        goes_on = continues;
    }
    lines
}

/// The configuration after the lines so far.
#[derive(Debug)]
struct Table {
    config: Config,
    /// For each VIP, whether the weights of its servers count.
    is_weighted: Vec<bool>,
    mistakes: Vec<Mistake>,
}

impl Default for Table {
    fn default() -> Self {
        Self { config: Config::new(""), is_weighted: Vec::new(), mistakes: Vec::new() }
    }
}

/// Column and message of each mistake in a line.
type Wrong = Vec<(usize, String)>;

impl Table {
    fn apply(&mut self, given: &Given<'_>) -> Result<(), Wrong> {
        let at = given.command_at;
        let mut wrong = given.wrong.clone();
        if given.command == Command::Clear {
            self.config.vips.clear();
            self.is_weighted.clear();
            return if wrong.is_empty() { Ok(()) } else { Err(wrong) };
        }
        let Some(service) = given.service else {
            if wrong.is_empty() {
                wrong.push((at, "the service is missing; give one, such as -t 192.168.16.100:80".to_owned()));
            }
            return Err(wrong);
        };
        let found = self
            .config
            .vips
            .iter()
            .position(|vip| (vip.address, vip.ports[0]) == (service.ip(), service.port()));
        // A line with a mistake still adds its service or server, so that later lines are understood and only their own
        // mistakes are reported.
        match (given.command, found) {
            (Command::AddService, None) => {
                let (vip, is_weighted) = self.vip(given, service, &mut wrong);
                self.config.vips.push(vip);
                self.is_weighted.push(is_weighted);
            }
            (Command::AddService, Some(_)) => {
                wrong.push((at, format!("{service} is added twice; -E changes it")));
            }
            (_, None) => {
                wrong.push((at, format!("{service} is not added: no line above has -A -t {service}")));
            }
            (Command::EditService, Some(found)) => {
                let (vip, is_weighted) = self.vip(given, service, &mut wrong);
                let servers = std::mem::take(&mut self.config.vips[found].servers);
                self.config.vips[found] = Vip { servers, ..vip };
                self.is_weighted[found] = is_weighted;
            }
            (Command::DeleteService, Some(found)) => {
                self.config.vips.remove(found);
                self.is_weighted.remove(found);
            }
            (_, Some(found)) => self.server(given, service, found, &mut wrong),
        }
        wrong.sort_by_key(|(column, _)| *column);
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// The service in a line, and whether the weights of its servers count.
    fn vip(&self, given: &Given<'_>, service: SocketAddr, wrong: &mut Wrong) -> (Vip, bool) {
        let no_scheduler = "-s is missing, so LVS uses wlc (least connections), which this balancer lacks; give -s wrr with -x, or -s mh";
        let scheduler_is = match &given.scheduler {
            Some(scheduler) => scheduler_of(scheduler).map_err(|why| (scheduler.column, why)),
            None => Err((given.command_at, no_scheduler.to_owned())),
        };
        let scheduler_is = scheduler_is.unwrap_or_else(|why| {
            wrong.push(why);
            Scheduler::Turns { is_weighted: true }
        });
        let is_flagged =
            |flag: &str| given.flags.is_some_and(|flags| flags.split(',').any(|word| word.trim() == flag));
        let (schedule, persistence, is_weighted) = match scheduler_is {
            Scheduler::Turns { is_weighted } => {
                let persistence = given
                    .persistence
                    .map_or(Persistence::Off, |time| Persistence::For(time.unwrap_or(PERSISTENCE)));
                (Schedule::RoundRobin, persistence, is_weighted)
            }
            // A hash of the source address always keeps the flows of a source together, so -p changes nothing.
            Scheduler::Hash { with_port } => {
                let is_of_flow = is_flagged(with_port) && given.persistence.is_none();
                (Schedule::Ring, if is_of_flow { Persistence::Off } else { Persistence::Source }, true)
            }
        };
        let mut vip = Vip {
            address: service.ip(),
            ports: vec![service.port()],
            schedule,
            persistence,
            when_all_down: WhenAllDown::default(),
            when_server_dies: WhenServerDies::default(),
            check: Check::default(),
            servers: Vec::new(),
        };
        if service.port() == ALL_PORTS {
            vip.check.kind = CheckKind::None;
        }
        (vip, is_weighted)
    }

    /// Adds, changes or deletes the server in a line.
    fn server(&mut self, given: &Given<'_>, service: SocketAddr, found: usize, wrong: &mut Wrong) {
        let Some((address, port, column)) = given.server else {
            if wrong.is_empty() {
                let missing = "the server is missing; give one, such as -r 172.16.0.101:80".to_owned();
                wrong.push((given.command_at, missing));
            }
            return;
        };
        if port.is_some_and(|port| port != service.port()) {
            wrong.push((
                column,
                format!(
                    "the server's port differs from that of {service}: packets reach servers unchanged, so they must listen on the port of the VIP"
                ),
            ));
        }
        let mut server = Server::new(address);
        // Round robin without weights ignores all weights except 0, which drains a server.
        server.weight = match given.weight {
            Some(weight) if self.is_weighted[found] => weight,
            weight => weight.unwrap_or(1).min(1),
        };
        server.max_connections = given.most.filter(|most| *most > 0);
        server.resume_connections =
            given.resume.filter(|resume| *resume > 0 && server.max_connections.is_some());
        let servers = &mut self.config.vips[found].servers;
        let known = servers.iter().position(|known| known.address == address);
        match (given.command, known) {
            (Command::AddServer, Some(_)) => {
                wrong.push((column, format!("{address} is added twice; -e changes it")));
            }
            (Command::AddServer, None) => servers.push(server),
            (_, None) => {
                let why = format!("{address} is not added: no line above has -a -t {service} -r {address}");
                wrong.push((column, why));
            }
            (Command::EditServer, Some(known)) => servers[known] = server,
            (_, Some(known)) => {
                servers.remove(known);
            }
        }
    }
}

fn scheduler_of(name: &Word<'_>) -> Result<Scheduler, String> {
    let nearest = match name.text {
        "rr" => return Ok(Scheduler::Turns { is_weighted: false }),
        "wrr" => return Ok(Scheduler::Turns { is_weighted: true }),
        "sh" => return Ok(Scheduler::Hash { with_port: "sh-port" }),
        "mh" => return Ok(Scheduler::Hash { with_port: "mh-port" }),
        "lc" | "wlc" | "sed" | "nq" => {
            "it cannot choose by the number of connections: the nearest is wrr with thresholds (-x)"
        }
        "lblc" | "lblcr" | "dh" => "it has no locality- or destination-based schedule: the nearest is mh",
        "fo" | "ovf" => {
            "it has no failover or overflow schedule: the nearest is wrr, where health checks take out servers that are down"
        }
        "twos" => "the nearest is wrr",
        _ => "it knows rr, wrr, sh and mh",
    };
    Err(format!("the scheduler {} is not known to this balancer; {nearest}", name.text))
}

#[cfg(test)]
mod tests;
