//! The processes of a balancer.

use std::{collections::BTreeMap, fmt::Write, net::SocketAddr, time::Duration};

use super::{Balancer, BalancerKind, Details, Schedule};
use crate::{
    plan::{Flood, Known, KnownKind, Plan, Process, Program, Ready},
    program::{Balance, Haproxy},
};

/// Maximum number of bytes of a balancer's output that are kept.
const LOG_LIMIT_BYTES: u64 = 1 << 20;
/// Time that a balancer may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

impl Balancer {
    /// The processes that the balancer's kind needs, in a separate stage after all others.
    pub(super) fn make_processes(&self, plan: &Plan, details: &Details) -> Result<Vec<Process>, String> {
        let host = &plan.hosts[self.host].name;
        let process = |number: u32, program: Program, ready: Ready| Process {
            name: match number {
                0 => format!("{host}-{}", self.kind.name()),
                _ => format!("{host}-{}{}", self.kind.name(), number + 1),
            },
            host: self.host,
            program,
            environment: BTreeMap::new(),
            directory: None,
            may_end: ready == Ready::Exit,
            ready: Some(ready),
            ready_timeout: READY_TIMEOUT,
            log_limit_bytes: LOG_LIMIT_BYTES,
            flood: Flood::Truncate,
            descriptors: None,
            stage: plan.processes.iter().map(|process| process.stage + 1).max().unwrap_or(0),
        };
        let known =
            |kind: KnownKind| Program::Known(Known { kind, port: self.port, store: None, args: Vec::new() });
        Ok(match self.kind {
            BalancerKind::Direct => Vec::new(),
            BalancerKind::Haproxy => {
                let haproxy = KnownKind::Haproxy(self.haproxy(plan, details)?);
                let ready = || Ready::Tcp(Some(self.vip), self.port);
                (0..details.processes)
                    .map(|number| process(number, known(haproxy.clone()), ready()))
                    .collect()
            }
            BalancerKind::L2dsr => {
                let text = Some(self.l2dsr_configuration(plan, details)?);
                let balance = KnownKind::Balance(Balance { config: String::new(), text });
                let ready = balance.ready(self.port);
                vec![process(0, known(balance), ready)]
            }
            BalancerKind::Lvs => {
                let words = ["sh", "-ec", &self.lvs_commands(plan, details)?].map(str::to_owned);
                vec![process(0, Program::Command(words.to_vec()), Ready::Exit)]
            }
        })
    }

    fn haproxy(&self, plan: &Plan, details: &Details) -> Result<Haproxy, String> {
        let backend = |&server: &usize| {
            let name = plan.hosts[server].name.clone();
            let address = plan.shared_address(self.host, server, &|_| true);
            match address {
                Some(address) => Ok((name, address)),
                None => Err(format!("'{}' has no link to '{name}'", plan.hosts[self.host].name)),
            }
        };
        Ok(Haproxy {
            backends: self.servers.iter().map(backend).collect::<Result<_, _>>()?,
            backend_port: Some(details.server_port),
            workers: Some(self.threads),
            names: vec![self.vip],
            ..details.haproxy.clone()
        })
    }

    /// The configuration of `proofload balance`.
    fn l2dsr_configuration(&self, plan: &Plan, details: &Details) -> Result<String, String> {
        let Some(&first) = self.servers.first() else { return Err("there is no server".to_owned()) };
        let schedule = match details.schedule {
            Some(Schedule::RoundRobin) => "round-robin",
            Some(Schedule::Maglev) | None => "maglev",
        };
        let interval = details.haproxy.check_interval.unwrap_or(Duration::from_secs(2)).as_millis();
        let check = match details.haproxy.check {
            true => format!("{{ kind = \"tcp\", port = {}, interval = \"{interval}ms\" }}", self.port),
            false => "{ kind = \"none\" }".to_owned(),
        };
        let mut text = format!(
            "device = \"{}\"\n\n[[vips]]\naddress = \"{}\"\nports = [{}]\nschedule = \"{schedule}\"\ncheck = {check}\n",
            self.device(plan, first)?,
            self.vip,
            self.port
        );
        for &server in &self.servers {
            let address = self.neighbour(plan, self.host, server)?;
            let _ = write!(
                text,
                "\n[[vips.servers]]\nname = \"{}\"\naddress = \"{address}\"\n",
                plan.hosts[server].name
            );
            if let Some(most) = details.max_connections {
                let _ = writeln!(text, "max_connections = {most}");
            }
            if let Some(fewest) = details.resume_connections {
                let _ = writeln!(text, "resume_connections = {fewest}");
            }
        }
        Ok(text)
    }

    /// A shell script that sets up IPVS.
    fn lvs_commands(&self, plan: &Plan, details: &Details) -> Result<String, String> {
        let schedule = match details.schedule {
            // The hash includes the client's port, as with l2dsr.
            Some(Schedule::Maglev) => "mh -b mh-port",
            Some(Schedule::RoundRobin) | None => "rr",
        };
        let service = SocketAddr::new(self.vip, self.port);
        let mut text = format!("ipvsadm -A -t {service} -s {schedule}\n");
        for &server in &self.servers {
            let server = SocketAddr::new(self.neighbour(plan, self.host, server)?, self.port);
            let _ = write!(text, "ipvsadm -a -t {service} -r {server} -g");
            for (option, connections) in [("-x", details.max_connections), ("-y", details.resume_connections)]
            {
                if let Some(connections) = connections {
                    let _ = write!(text, " {option} {connections}");
                }
            }
            text.push('\n');
        }
        Ok(text)
    }
}
