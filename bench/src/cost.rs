//! Processor time per request, and the throughput of a server with each generator.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::Result;
use proofload_tests::{
    Nginx,
    machine::{CoreTime, Cores},
    process::cpu_of_ended_children_s,
};

use crate::{
    figure::Figure,
    tool::{Body, Load, Tool},
};

/// A workload.
#[derive(Debug)]
pub(crate) struct Workload {
    /// The name. The figures are the processor time of the generator's process (`cpu-NAME`), of both processors
    /// (`cpu-NAME-both`), and the throughput (`rate-NAME`).
    pub name: &'static str,
    path: &'static str,
    body_bytes: usize,
    connections: u32,
    keepalive: bool,
    secure: bool,
}

const KEPT: Workload =
    Workload { name: "keepalive", path: "/", body_bytes: 0, connections: 64, keepalive: true, secure: false };
/// TLS 1.3 with TLS_AES_128_GCM_SHA256 and X25519, and a certificate with a P-256 key. No tool checks the certificate.
const SECURE: Workload = Workload { name: "https-keepalive", secure: true, ..KEPT };

/// The workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    KEPT,
    Workload { name: "post-200", body_bytes: 200, ..KEPT },
    Workload { name: "1k", path: "/1k", ..KEPT },
    Workload { name: "64k", path: "/64k", ..KEPT },
    Workload { name: "new-connection", connections: 32, keepalive: false, ..KEPT },
    SECURE,
    Workload { name: "https-64k", path: "/64k", ..SECURE },
    Workload { name: "https-new-connection", connections: 32, keepalive: false, ..SECURE },
];

/// The parameters of all runs.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    /// The server.
    pub nginx: &'a Nginx,
    /// The processors of the server and the generator.
    pub cores: Cores,
    /// The tools.
    pub tools: &'a [Tool],
    /// Number of rounds.
    pub rounds: u32,
}

/// The figures of a run.
#[derive(Debug, Clone, Copy)]
struct Cost {
    requests: u64,
    rate_per_s: f64,
    /// Processor time of the generator's process per request.
    process_us: f64,
    /// Busy time of both processors per request, of all processes.
    both_us: f64,
    server_busy_ratio: f64,
    generator_busy_ratio: f64,
    /// Share of a processor (the larger of both) that other processes used.
    others_ratio: f64,
}

/// Most attempts at a run that other processes disturb; the last one counts and is marked.
const ATTEMPTS: u32 = 3;
/// Share of a processor that other processes may use before a run is repeated. It is well above the resolution of
/// `/proc/stat` and the kernel's own work.
const DISTURBANCE_RATIO: f64 = 0.1;

impl Session<'_> {
    /// Runs every round, prints every run and the comparison. Returns whether all runs are usable.
    ///
    /// # Errors
    /// If the processor times cannot be read.
    pub(crate) fn measure(&self, workload: &Workload, seconds: u32) -> Result<bool> {
        let path = workload.path;
        let url = if workload.secure { self.nginx.secure_url(path) } else { self.nginx.url(path) };
        let body = (workload.body_bytes > 0).then(|| Body::new(workload.body_bytes)).transpose()?;
        let load = Load {
            url: &url,
            body: body.as_ref(),
            connections: workload.connections,
            keepalive: workload.keepalive,
            seconds,
            core: self.cores.generator,
        };
        println!("\n== {}: {} connections, {url}", workload.name, workload.connections);
        let mut usable: Vec<&Tool> = Vec::new();
        for tool in self.tools {
            match tool.launch(&load) {
                Some(launch) => {
                    println!("   {}", launch.shown());
                    usable.push(tool);
                }
                None => println!("   {} cannot do this", tool.name()),
            }
        }
        let mut figures = [
            Figure::new(format!("cpu-{}", workload.name), "us"),
            Figure::new(format!("cpu-{}-both", workload.name), "us"),
            Figure::more_is_better(format!("rate-{}", workload.name), "/s"),
        ];
        let (mut all_used, mut bound) = (true, Vec::new());
        for round in 0..self.rounds {
            for turn in 0..usable.len() {
                let tool = usable[(turn + round as usize) % usable.len()];
                let mut cost = None;
                for _attempt in 0..ATTEMPTS {
                    print!("   round {} {:<7}", round + 1, tool.name());
                    // Shown before the run, which takes seconds.
                    let _ = std::io::stdout().flush();
                    cost = self.run(tool, &load)?;
                    if cost.is_none_or(|cost| !cost.is_disturbed()) {
                        break;
                    }
                }
                all_used &= cost.is_some();
                let parts = [
                    cost.map(|cost| cost.process_us),
                    cost.map(|cost| cost.both_us),
                    cost.map(|cost| cost.rate_per_s),
                ];
                figures.iter_mut().zip(parts).for_each(|(figure, value)| figure.push(tool.name(), value));
                if cost.is_some_and(|cost| cost.is_generator_bound()) {
                    bound.push(tool.name());
                }
            }
        }
        for tool in usable {
            let runs = bound.iter().filter(|name| **name == tool.name()).count();
            if runs > 0 {
                println!("   {} was generator-bound in {runs} of {} runs", tool.name(), self.rounds);
            }
        }
        figures.iter().for_each(|figure| print!("{}", figure.lines()));
        Ok(all_used)
    }

    fn run(&self, tool: &Tool, load: &Load) -> Result<Option<Cost>> {
        let Some(launch) = tool.launch(load) else { return Ok(None) };
        let Cores { server, generator, .. } = self.cores;
        let (server_before, generator_before) = (CoreTime::of(server)?, CoreTime::of(generator)?);
        let (cpu_before, nginx_before) = (cpu_of_ended_children_s()?, self.nginx.cpu_s()?);
        let started = Instant::now();
        let finished = launch.run(Duration::from_secs(u64::from(load.seconds) + 60));
        let wall_s = started.elapsed().as_secs_f64();
        let cpu_s = cpu_of_ended_children_s()? - cpu_before;
        let nginx_s = self.nginx.cpu_s()? - nginx_before;
        let server = CoreTime::of(server)?.since(server_before);
        let generator = CoreTime::of(generator)?.since(generator_before);
        let counted = finished.and_then(|finished| {
            Ok((tool.requests(&finished)?, tool.rate_per_s(&finished)?, tool.remark(&finished)))
        });
        let (requests, rate_per_s, remark) = match counted {
            Ok(counted) => counted,
            Err(error) => {
                println!(" void: {error:#}");
                return Ok(None);
            }
        };
        let per_request = |seconds: f64| seconds * 1e6 / requests as f64;
        let cost = Cost {
            requests,
            rate_per_s,
            process_us: per_request(cpu_s),
            both_us: per_request(server.busy_s() + generator.busy_s()),
            server_busy_ratio: server.busy_ratio(),
            generator_busy_ratio: generator.busy_ratio(),
            others_ratio: (generator.busy_s() - cpu_s).max(server.busy_s() - nginx_s).max(0.0) / wall_s,
        };
        println!("{}{}", cost.shown(), remark.map_or_else(String::new, |remark| format!(", {remark}")));
        Ok(Some(cost))
    }
}

impl Cost {
    /// Whether the generator used its whole processor and the server did not: the rate is not the server's limit, but the
    /// cost per request is valid.
    fn is_generator_bound(&self) -> bool {
        self.generator_busy_ratio > 0.95 && self.server_busy_ratio < 0.9
    }

    fn is_disturbed(&self) -> bool {
        self.others_ratio > DISTURBANCE_RATIO
    }

    fn shown(&self) -> String {
        let mut text = format!(
            " {:>8} requests, {:.0}/s, {:.2} us process, {:.2} us both, generator {:.0} % busy, server {:.0} %",
            self.requests,
            self.rate_per_s,
            self.process_us,
            self.both_us,
            self.generator_busy_ratio * 100.0,
            self.server_busy_ratio * 100.0,
        );
        if self.is_generator_bound() {
            text += ", generator-bound";
        }
        if self.is_disturbed() {
            text += &format!(", DISTURBED: others used {:.0} % of a processor", self.others_ratio * 100.0);
        }
        text
    }
}
