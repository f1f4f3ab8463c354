//! Descriptions of why the requests of a trial failed.

use crate::{
    HttpPlan,
    errors::{ErrorClass, ErrorCounts, Origin},
    trial::{HttpTrial, Measured, Trial},
    units::{show_count, show_time_ns},
};

impl Trial {
    /// The most frequent failure that the target or the network caused: `nothing listens at 127.0.0.1:1 (connection
    /// refused)`. `None` if there are no such failures.
    pub fn main_failure(&self) -> Option<String> {
        match &self.measured {
            Measured::Http(http) => http.main_failure(self.elapsed_s),
            Measured::Command(command) => command.failure(),
        }
    }

    /// Whether the trial measured requests but completed none.
    pub fn completed_nothing(&self) -> bool {
        self.http().is_some_and(|http| http.counts.completed == 0)
    }

    /// Whether more than half of the requests or programs failed.
    pub fn mostly_failed(&self) -> bool {
        match &self.measured {
            Measured::Http(http) => 2 * http.errors.total() > http.counts.scheduled,
            Measured::Command(command) => command.failed_ratio() > 0.5,
        }
    }
}

impl HttpTrial {
    /// Like [`Trial::main_failure`], for HTTP requests of a trial that took `elapsed_s` seconds.
    pub fn main_failure(&self, elapsed_s: f64) -> Option<String> {
        let HttpPlan { connection, timeout_ns, .. } = &self.plan;
        let to = connection.tunnel.as_ref().map_or("the target", |tunnel| &tunnel.to);
        // The proxy counts as part of the target only once its tunnel is open.
        let behind = |at: String| match &connection.tunnel {
            Some(_) => format!("{to} (through the proxy at {at})"),
            None => at,
        };
        let within = |part_ns: Option<u64>| show_time_ns(part_ns.unwrap_or(u64::MAX).min(*timeout_ns));
        let Some(class) = most_frequent(&self.errors).or_else(|| most_frequent(&self.connection_errors))
        else {
            let (at, waited) = (self.address(None), show_time_ns((elapsed_s * 1e9) as u64));
            let unanswered = self.counts.in_flight + self.counts.never_sent_busy > 0;
            return unanswered.then(|| match self.counts.connections_opened {
                0 => format!("no connection to {at} was established within {waited}"),
                _ => format!("{} left requests unanswered for up to {waited}", behind(at)),
            });
        };
        let deaf = connection.names.iter().find(|name| name.used.is_empty() && !name.errors.is_empty());
        if let Some(name) = deaf.filter(|_| class.is_connect() && self.counts.connections_opened == 0) {
            return Some(name.in_words());
        }
        let at = self.address(Some(class));
        let at = if class.is_connect() || class.is_proxy() { at } else { behind(at) };
        let cause = self.causes.get(&class).map(String::as_str);
        let because = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        let is_unchecked = self.plan.tls.as_ref().is_some_and(|tls| !tls.verify);
        Some(match class {
            ErrorClass::ConnectRefused if connection.unix_socket.is_some() => {
                format!(
                    "nothing listens at {at}, or its accept queue is full (the listener's backlog, net.core.somaxconn)"
                )
            }
            ErrorClass::ConnectRefused if connection.tunnel.is_some() => {
                format!("no proxy listens at {at} (connection refused)")
            }
            ErrorClass::ConnectRefused => format!("nothing listens at {at} (connection refused)"),
            ErrorClass::ConnectTimeout => {
                let timeout = within(connection.connect_timeout_ns);
                format!(
                    "no connection to {at} was established within {timeout}: nothing answers there, or its accept queue is full"
                )
            }
            ErrorClass::ProxyLogin => {
                format!(
                    "the proxy at {at} requires a login, or rejected the one it got; give --proxy http://USER:PASSWORD@{at}"
                )
            }
            ErrorClass::ProxyUnreachable => {
                format!("the proxy at {at} did not reach {to}; check whether something listens there")
            }
            ErrorClass::ProxyRefused => format!(
                "the proxy at {at} opened no tunnel to {to} (does it refuse the port or the name?); `curl -p -x http://{at} URL` \
                 shows its answer"
            ),
            ErrorClass::ProxyMalformed => {
                format!(
                    "the program that listens at {at} does not answer as an HTTP proxy; `curl -v -p -x http://{at} URL` shows its answer"
                )
            }
            ErrorClass::ProxyTimeout => {
                format!("the proxy at {at} opened no tunnel within {}", within(None))
            }
            ErrorClass::TlsExpired => {
                format!("the certificate of {at} has expired (--insecure skips this check)")
            }
            ErrorClass::TlsNotYetValid => {
                format!("the certificate of {at} is not valid yet; compare the clocks of both machines")
            }
            ErrorClass::TlsWrongName => {
                let name = self.plan.tls.as_ref().map_or("", |tls| &tls.server_name);
                format!("{at} has no certificate for the name {name}{because} (--sni sets another name)")
            }
            ErrorClass::TlsUnknownIssuer => format!(
                "no trusted authority issued the certificate of {at}; give its authority with --cacert, or --insecure"
            ),
            ErrorClass::TlsIsAuthority => format!(
                "the certificate of {at} is an authority's own (CA:TRUE, as `openssl req -x509` makes it), which is not a certificate of a \
                 server; --insecure skips this check"
            ),
            ErrorClass::TlsBadCertificate if is_unchecked => {
                format!("{at} has not proved that it has the key of its certificate{because}")
            }
            ErrorClass::TlsBadCertificate => {
                format!("the certificate of {at} is not valid{because} (--insecure skips this check)")
            }
            ErrorClass::TlsVersion => {
                format!("{at} has no TLS version in common with this plan (--tls-min, --tls-max)")
            }
            ErrorClass::TlsCipher => {
                format!(
                    "{at} has no cipher suite, key exchange or signature scheme in common with this plan; supported are ECDHE with AES-GCM \
                     or ChaCha20 (--ciphers), X25519, P-256 and P-384, and certificates with keys of RSA, P-256, P-384 or Ed25519"
                )
            }
            ErrorClass::TlsClientRequired => {
                format!("{at} requires a client certificate; give one with --cert and --key")
            }
            ErrorClass::TlsClientRefused => format!("{at} refused the client certificate (--cert)"),
            ErrorClass::NotTls => format!("{at} does not speak TLS; give the URL with http://"),
            ErrorClass::TlsClosed => format!("{at} closed or reset its connections during the TLS handshake"),
            ErrorClass::TlsTimeout => {
                let timeout = within(connection.handshake_timeout_ns);
                format!("{at} completed no TLS handshake within {timeout}")
            }
            ErrorClass::TlsDecrypt => format!("{at} sent bytes that cannot be decrypted"),
            ErrorClass::TlsOther => format!("{at} broke the TLS protocol, or sent a TLS alert"),
            ErrorClass::ConnectReset | ErrorClass::Reset => format!("{at} reset its connections"),
            ErrorClass::Unreachable => format!("there is no route to {at}"),
            ErrorClass::ClosedEarly => format!("{at} closed its connections without an answer"),
            ErrorClass::ClosedUnused => format!("{at} closed connections before they carried a request"),
            ErrorClass::Truncated => format!("{at} closed its connections before the end of an answer"),
            ErrorClass::Timeout => {
                format!("{at} gave no complete answer within {}", within(connection.answer_timeout_ns))
            }
            ErrorClass::Malformed | ErrorClass::Framing | ErrorClass::TooLarge | ErrorClass::Unsolicited => {
                format!("{at} does not answer in valid HTTP/1.1 ({})", cause.unwrap_or(class.meaning()))
            }
            ErrorClass::Check => {
                format!("an answer of {at} does not match --expect; `curl -i` shows an answer")
            }
            ErrorClass::Value if self.plan.script.as_ref().is_some_and(|script| !script.takes_values()) => {
                "a template's value contains a line end, which a header field cannot carry; write {{name|url}} to encode it".to_owned()
            }
            ErrorClass::Value => {
                format!("an answer of {at} lacks a value that a step takes{because}")
            }
            ErrorClass::Status => {
                let (unexpected, expect) = (self.unexpected(), &self.plan.expect);
                format!("{at} answered {unexpected}, not {expect} ({})", cause.unwrap_or("--expect"))
            }
            ErrorClass::Descriptors | ErrorClass::Ports | ErrorClass::Buffers | ErrorClass::LocalOther => {
                return None;
            }
        })
    }

    /// Why nothing answered, if every request of the trial failed without an answer of the protocol. `None` if the
    /// target accepts requests and is silent: it may only be slow.
    pub fn never_answered(&self, elapsed_s: f64) -> Option<String> {
        let mut classes =
            self.errors.iter().chain(self.retried_errors.iter()).chain(self.connection_errors.iter());
        let waits =
            self.counts.in_flight + self.counts.never_sent_busy > 0 && self.counts.connections_opened > 0;
        let is_unanswered =
            self.counts.completed == 0 && !waits && classes.all(|(class, _)| class.is_no_answer());
        if is_unanswered { self.main_failure(elapsed_s) } else { None }
    }

    /// The unexpected statuses, with their counts if there are several.
    fn unexpected(&self) -> String {
        let unexpected = self.statuses.iter().filter(|(status, _)| !self.plan.expect.contains(**status));
        let unexpected: Vec<(u16, u64)> = unexpected.map(|(&status, &n)| (status, n)).collect();
        match &unexpected[..] {
            [(status, _)] => status.to_string(),
            several => {
                let each = several.iter().map(|(status, n)| format!("{status} ({} times)", show_count(*n)));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The address at which failures of this class occurred.
    fn address(&self, class: Option<ErrorClass>) -> String {
        match &self.plan.targets[..] {
            [] => match &self.plan.connection.unix_socket {
                Some(path) => path.display().to_string(),
                None => self.plan.url.clone(),
            },
            [only] => only.to_string(),
            [first, others @ ..] => {
                let failures = |errors: &ErrorCounts| class.map_or(0, |class| errors.of(class));
                let failed = self.failed_at.iter().map(|(at, errors)| (at, failures(errors)));
                let mut failed: Vec<_> = failed.filter(|(_, n)| *n > 0).collect();
                failed.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
                match failed[..] {
                    [(only, _)] => only.to_string(),
                    [(most, _), ..] => {
                        format!("{most} (and {} others of {} addresses)", failed.len() - 1, others.len() + 1)
                    }
                    [] => format!("one of {} addresses ({first}, …)", others.len() + 1),
                }
            }
        }
    }
}

/// The most frequent class of failure that this machine did not cause.
fn most_frequent(errors: &ErrorCounts) -> Option<ErrorClass> {
    let foreign = errors.iter().filter(|(class, n)| *n > 0 && class.origin() != Origin::Local);
    foreign.max_by_key(|(_, n)| *n).map(|(class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NamePlan, TlsPlan};

    #[test]
    fn what_never_answered_is_told_from_what_is_slow_or_refuses() {
        let failed = |classes: &[(ErrorClass, u64)]| {
            let mut http = HttpTrial::default();
            http.plan.url = "http://a/".to_owned();
            http.counts.connections_opened = 1;
            classes.iter().for_each(|(class, n)| http.errors.add(*class, *n));
            http
        };
        let refused = failed(&[(ErrorClass::ConnectRefused, 9), (ErrorClass::ConnectReset, 1)]);
        assert_eq!(
            refused.never_answered(1.0).as_deref(),
            Some("nothing listens at http://a/ (connection refused)")
        );
        for banner in [ErrorClass::Malformed, ErrorClass::Unsolicited] {
            assert!(failed(&[(banner, 2)]).never_answered(1.0).is_some());
        }
        let mut carried = refused.clone();
        carried.counts.completed = 1;
        let mut waits = refused.clone();
        waits.counts.in_flight = 1;
        let slow = failed(&[(ErrorClass::Timeout, 1), (ErrorClass::ConnectRefused, 9)]);
        let answered = failed(&[(ErrorClass::Status, 1), (ErrorClass::Reset, 9)]);
        for http in [carried, waits.clone(), slow, answered, failed(&[(ErrorClass::Ports, 1)]), failed(&[])] {
            assert_eq!(http.never_answered(1.0), None, "{:?}", http.errors);
        }
        // SYNs that nobody answered, in a trial shorter than the timeout.
        let mut silent = HttpTrial::default();
        silent.counts.never_sent_busy = 3;
        assert!(silent.never_answered(1.0).is_some());
    }

    #[test]
    fn the_most_frequent_failure_of_the_target_is_told_with_its_address() {
        let mut http = HttpTrial::default();
        http.plan.url = "http://a/".to_owned();
        http.plan.expect = "204".parse().unwrap();
        http.plan.timeout_ns = 2_000_000_000;
        let told = |http: &HttpTrial| http.main_failure(3.0).unwrap_or_default();
        assert_eq!(told(&http), "", "nothing failed");
        http.counts.in_flight = 1;
        assert_eq!(told(&http), "no connection to http://a/ was established within 3.00 s");
        (http.counts.in_flight, http.counts.never_sent_busy, http.counts.connections_opened) = (0, 1, 1);
        assert_eq!(told(&http), "http://a/ left requests unanswered for up to 3.00 s");
        http.connection_errors.add(ErrorClass::ClosedUnused, 9);
        assert_eq!(told(&http), "http://a/ closed connections before they carried a request");
        http.plan.targets.push("127.0.0.1:1".parse().unwrap());
        http.errors.add(ErrorClass::ConnectRefused, 2);
        http.errors.add(ErrorClass::Reset, 1);
        http.errors.add(ErrorClass::Ports, 3);
        assert_eq!(told(&http), "nothing listens at 127.0.0.1:1 (connection refused)");
        http.plan.targets.push("127.0.0.1:2".parse().unwrap());
        http.errors.add(ErrorClass::Timeout, 4);
        assert_eq!(told(&http), "one of 2 addresses (127.0.0.1:1, …) gave no complete answer within 2.00 s");
        let at = |http: &mut HttpTrial, port: u16, class, n| {
            http.failed_at.entry(([127, 0, 0, 1], port).into()).or_default().add(class, n);
        };
        at(&mut http, 1, ErrorClass::Timeout, 4);
        at(&mut http, 2, ErrorClass::Status, 3);
        http.errors.add(ErrorClass::Status, 5);
        http.statuses.extend([(204, 7), (500, 4)]);
        assert_eq!(told(&http), "127.0.0.1:2 answered 500, not 204 (--expect)");
        http.statuses.insert(404, 1_000);
        assert!(
            told(&http).contains("answered 404 (1,000 times), 500 (4 times), not 204"),
            "{}",
            told(&http)
        );
    }

    #[test]
    fn what_is_known_beyond_the_class_is_told() {
        let told = |class: ErrorClass, cause: &str, verify: bool| {
            let mut http = HttpTrial::default();
            http.plan.url = "http://a/".to_owned();
            http.plan.tls = Some(TlsPlan { verify, server_name: "n".to_owned(), ..TlsPlan::default() });
            http.errors.add(class, 1);
            http.causes.insert(class, cause.to_owned());
            http.main_failure(1.0).unwrap_or_default()
        };
        for (class, words) in [
            (ErrorClass::Framing, "HTTP/1.1 (C)"),
            (ErrorClass::Status, " (C)"),
            (ErrorClass::Value, "a step takes: C"),
            (ErrorClass::TlsWrongName, "for the name n: C (--sni"),
            (ErrorClass::TlsBadCertificate, "is not valid: C (--insecure"),
        ] {
            let told = told(class, "C", true);
            assert!(told.contains(words), "{told}");
        }
        // The message does not advise an option that was already given.
        assert!(!told(ErrorClass::TlsBadCertificate, "C", false).contains("--insecure"));
    }

    #[test]
    fn a_name_of_which_no_address_accepts_tells_of_each() {
        let (one, two) = ("[::1]:80".parse().unwrap(), "127.0.0.1:80".parse().unwrap());
        let mut http = HttpTrial::default();
        http.plan.targets = vec![one];
        let errors = [one, two].map(|address| (address, "refused".to_owned())).into();
        let name =
            NamePlan { name: "a:80".to_owned(), addresses: vec![one, two], errors, ..NamePlan::default() };
        http.plan.connection.names = vec![name];
        http.errors.add(ErrorClass::ConnectRefused, 1);
        let all = "no address of a:80 accepts a connection: [::1]:80 (refused), 127.0.0.1:80 (refused)";
        assert_eq!(http.main_failure(1.0).as_deref(), Some(all));
        http.counts.connections_opened = 1;
        let first = "nothing listens at [::1]:80 (connection refused)";
        assert_eq!(http.main_failure(1.0).as_deref(), Some(first), "it accepted meanwhile");
    }

    #[test]
    fn a_trial_failed_mostly_if_more_than_half_of_its_requests_did() {
        let failed = |errors: u64| {
            let mut http = HttpTrial::default();
            http.counts.scheduled = 30;
            http.errors.add(ErrorClass::Reset, errors);
            crate::testing::trial_of(Measured::Http(Box::new(http))).mostly_failed()
        };
        assert_eq!([0, 15, 16, 30].map(failed), [false, false, true, true]);
    }

    #[test]
    fn only_a_trial_of_requests_completes_nothing() {
        let requests = |completed: u64| {
            let mut http = HttpTrial::default();
            http.counts.completed = completed;
            crate::testing::trial_of(Measured::Http(Box::new(http))).completed_nothing()
        };
        assert_eq!([0, 1].map(requests), [true, false]);
    }

    #[test]
    fn each_failure_of_a_target_is_told_and_none_of_this_machine() {
        for &class in ErrorClass::ALL {
            let mut errors = ErrorCounts::default();
            errors.add(class, 1);
            let http = HttpTrial { errors, ..HttpTrial::default() };
            assert_eq!(http.main_failure(1.0).is_some(), class.origin() != Origin::Local, "{class}");
        }
    }
}
