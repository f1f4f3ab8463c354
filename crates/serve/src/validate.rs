//! Validates a configuration.

use record::Distribution;
use rustix::thread::CpuSet;

use crate::{Config, Misbehaviour, Stall, TlsFault};

/// Maximum size of a body in bytes: 1 TiB.
const MAX_BODY_BYTES: u64 = 1 << 40;
/// Maximum number of threads.
const MAX_THREADS: u32 = 1_024;

impl Config {
    /// Checks everything that does not depend on the machine.
    ///
    /// # Errors
    /// All mistakes, each with the allowed values.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mut mistakes = Vec::new();
        let mut refuse_if = |wrong: bool, mistake: String| {
            if wrong {
                mistakes.push(mistake);
            }
        };

        refuse_if(self.listen.is_empty(), "no address to listen on; give at least one".to_owned());
        for (i, address) in self.listen.iter().enumerate() {
            let twice = address.port() != 0 && self.listen[..i].contains(address);
            refuse_if(twice, format!("{address} is listened on twice; leave one out"));
        }
        let body_bytes = self.body.len();
        refuse_if(
            body_bytes > MAX_BODY_BYTES,
            format!("a body of {body_bytes} bytes is too large; use at most {MAX_BODY_BYTES} (1 TiB)"),
        );
        refuse_if(
            self.chunk_bytes == Some(0),
            "chunks of 0 bytes would end the body; use at least 1 byte".to_owned(),
        );
        for (what, status) in [("status", self.status), ("error status", self.error_status)] {
            refuse_if(
                !(200..=599).contains(&status),
                format!("{what} {status} is not the status of a final answer; use 200 to 599"),
            );
        }
        refuse_if(self.backlog == 0 || i32::try_from(self.backlog).is_err(), {
            format!("a backlog of {} is not possible; use 1 to {}", self.backlog, i32::MAX)
        });
        refuse_if(
            self.keepalive_requests == Some(0),
            "a connection must carry at least 1 request (keepalive requests)".to_owned(),
        );
        refuse_if(
            self.keepalive_timeout_ns == Some(0),
            "a keepalive timeout of 0 would close every connection; use more, or leave it out".to_owned(),
        );
        refuse_if(
            !(1..=MAX_THREADS).contains(&self.threads),
            format!("{} threads are not possible; use 1 to {MAX_THREADS}", self.threads),
        );
        for cpu in &self.cpus {
            refuse_if(
                *cpu as usize >= CpuSet::MAX_CPU,
                format!("there is no processor {cpu}; use 0 to {}", CpuSet::MAX_CPU - 1),
            );
        }
        refuse_if(
            self.duration_ns == Some(0),
            "a duration of 0 serves no request; use more, or leave it out".to_owned(),
        );

        if let Some(tls) = &self.tls {
            let is_made = tls.files.is_none();
            let ordered = tls.min <= tls.max;
            let mut refuse = |wrong: bool, mistake: &str| {
                if wrong {
                    mistakes.push(mistake.to_owned());
                }
            };
            refuse(!ordered, "the earliest TLS version is later than the latest; swap them");
            refuse(
                !is_made && tls.ca_out.is_some(),
                "no authority is made for your own certificate; leave out --tls-ca-out",
            );
            refuse(
                !is_made && tls.fault.is_some_and(TlsFault::is_of_certificate),
                "this TLS fault needs a certificate that the target makes; leave out your own certificate",
            );
            refuse(
                is_made && self.reuse_port,
                "each process would make its own certificate; give one with its key, or use threads",
            );
            refuse(
                tls.client_ca.is_some() && tls.fault == Some(TlsFault::ClientCert),
                "the TLS fault client-cert uses its own authority; leave out --client-ca",
            );
        }
        if self.reuse_port && self.pages.is_some() {
            mistakes.push("each process would have its own tokens for its pages; use threads".to_owned());
        }
        if self.reuse_port && self.record.is_some() {
            mistakes.push("each process would overwrite the record of the others; use threads".to_owned());
        }
        mistakes.extend(distribution_mistake("delay", &self.delay));
        if let Some(capacity) = &self.capacity {
            if capacity.servers == 0 {
                mistakes.push("a capacity of 0 serves no request; use at least 1".to_owned());
            }
            mistakes.extend(distribution_mistake("service time", &capacity.service_time));
        }
        mistakes.extend(self.stall.and_then(stall_mistake));
        mistakes.extend(misbehave_mistakes(&self.misbehave));
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }
}

/// The mistake in a distribution, if any. Parsed distributions are valid, but others may not be, and drawing from an
/// invalid one would panic.
fn distribution_mistake(what: &str, distribution: &Distribution) -> Option<String> {
    match distribution {
        Distribution::Uniform { min_ns, max_ns } if min_ns > max_ns => {
            Some(format!("{what}: uniform from {min_ns} to {max_ns} ns; give the smaller bound first"))
        }
        Distribution::LogNormal { sigma, .. } if !(0.0..=10.0).contains(sigma) => {
            Some(format!("{what}: a log-normal sigma of {sigma} is out of range; use 0 to 10"))
        }
        Distribution::Empirical { values_ns } if values_ns.is_empty() => {
            Some(format!("{what}: no values to draw from; give at least one"))
        }
        _ => None,
    }
}

fn stall_mistake(stall: Stall) -> Option<String> {
    let Stall { every_ns, for_ns } = stall;
    if for_ns == 0 {
        Some("a stall of 0 has no effect; leave it out".to_owned())
    } else if for_ns >= every_ns {
        Some(format!(
            "a stall of {for_ns} ns in every {every_ns} ns never ends; make it shorter than its period"
        ))
    } else {
        None
    }
}

fn misbehave_mistakes(ratios: &[(Misbehaviour, f64)]) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (i, (kind, ratio)) in ratios.iter().enumerate() {
        if !(0.0..=1.0).contains(ratio) {
            mistakes.push(format!("misbehaviour {kind}: {ratio} is not a share; use 0 to 1"));
        }
        if ratios[..i].iter().any(|(earlier, _)| earlier == kind) {
            mistakes.push(format!(
                "misbehaviour {kind} is given twice; give it once, with the sum of the shares"
            ));
        }
    }
    let sum: f64 = ratios.iter().map(|(_, ratio)| ratio).sum();
    // Allows for rounding: shares such as nine ninths may sum to slightly more than 1.
    if sum > 1.0 + 1e-9 {
        mistakes.push(format!("the shares of misbehaviour sum to {sum}; lower them to a sum of at most 1"));
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{Body, Capacity, WhenFull};

    #[test]
    fn the_default_is_sound() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let config = Config {
            listen: vec![address, address],
            body: Body::Size(u64::MAX),
            chunk_bytes: Some(0),
            status: 101,
            delay: Distribution::Uniform { min_ns: 2, max_ns: 1 },
            capacity: Some(Capacity {
                servers: 0,
                service_time: Distribution::LogNormal { median_ns: 1, sigma: f64::NAN },
                queue: None,
                when_full: WhenFull::Reject,
            }),
            stall: Some(Stall { every_ns: 5, for_ns: 5 }),
            misbehave: vec![
                (Misbehaviour::Error, 0.7),
                (Misbehaviour::Reset, 0.7),
                (Misbehaviour::Reset, -1.0),
                (Misbehaviour::Close, f64::NAN),
            ],
            error_status: 600,
            backlog: 0,
            keepalive_requests: Some(0),
            keepalive_timeout_ns: Some(0),
            threads: 0,
            cpus: vec![100_000],
            duration_ns: Some(0),
            ..Config::default()
        };
        let mistakes = config.validate().unwrap_err();
        for part in [
            "listened on twice",
            "too large",
            "chunks of 0",
            "status 101",
            "error status 600",
            "backlog of 0",
            "at least 1 request",
            "keepalive timeout of 0",
            "0 threads",
            "processor 100000",
            "duration of 0",
            "delay: uniform",
            "capacity of 0",
            "service time: a log-normal",
            "never ends",
            "reset: -1",
            "reset is given twice",
            "close: NaN",
        ] {
            assert!(mistakes.iter().any(|m| m.contains(part)), "{part}: {mistakes:#?}");
        }
        assert_eq!(mistakes.len(), 18, "{mistakes:#?}");
    }

    #[test]
    fn shares_of_misbehaviour_sum_to_one_at_most() {
        let of = |misbehave| Config { misbehave, ..Config::default() }.validate();
        assert!(of(vec![(Misbehaviour::Error, 0.6), (Misbehaviour::Reset, 0.5)]).is_err());
        assert!(of(Misbehaviour::ALL.iter().map(|&kind| (kind, 1.0 / 9.0)).collect()).is_ok());
    }
}
