//! HTTP over TLS against test servers: checks the class and the exact count of every failure, and every answer.

mod support;

use std::time::{Duration, SystemTime};

use load::{Count, HttpWorkload, Typed};
use record::{ErrorClass, HttpTrial};
use support::{Behaviour, Server, run};
use tls::{Authority, CIPHERS, Identity, Offer, Validity, Version};

const DAY: Duration = Duration::from_secs(86_400);
const USERS: u64 = 4;
const REQUESTS: u64 = 20;

/// An authority, and the folder with its certificate for clients.
struct Pki {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Pki {
    fn new() -> Self {
        let pki = Self { folder: tempfile::tempdir().unwrap(), authority: Authority::new("ours").unwrap() };
        std::fs::write(pki.file("ca.pem"), pki.authority.pem()).unwrap();
        pki
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn identity(&self) -> Identity {
        self.authority.certify(&["localhost", "127.0.0.1"], Validity::default()).unwrap()
    }

    fn offer(&self, offer: Offer, behaviour: Behaviour) -> Server {
        Server::start(behaviour, Some(offer.server(self.identity(), None).unwrap()))
    }

    fn certified(&self, names: &[&str], validity: Validity) -> Server {
        let identity = self.authority.certify(names, validity).unwrap();
        Server::start(Behaviour::Answers, Some(Offer::default().server(identity, None).unwrap()))
    }

    /// A workload that trusts the authority: four users with five requests each, on a new connection each.
    fn workload(&self, server: &Server) -> HttpWorkload {
        HttpWorkload {
            url: server.url(),
            users: Some(USERS.to_string().as_str().into()),
            loops: Some(Typed::set(Count(REQUESTS / USERS))),
            timeout: Some("10m".into()),
            no_keepalive: true,
            cacert: Some(self.file("ca.pem")),
            ..HttpWorkload::default()
        }
    }

    /// Writes a client's certificate and key, and returns their files.
    fn client(&self, authority: &Authority) -> (String, String) {
        let identity = authority.certify(&["a client"], Validity::default()).unwrap();
        let (certificate, key) = (self.file("client.pem"), self.file("client.key"));
        std::fs::write(&certificate, support::pem("CERTIFICATE", &identity.chain[0])).unwrap();
        std::fs::write(&key, support::pem("PRIVATE KEY", identity.key.secret_der())).unwrap();
        (certificate, key)
    }
}

/// Checks that all requests failed in one class, and that the description of the failure contains `words`.
fn all_failed(trial: &HttpTrial, class: ErrorClass, words: &str) {
    let errors: Vec<_> = trial.errors.iter().collect();
    assert_eq!(errors, [(class, REQUESTS)]);
    assert_eq!((trial.counts.failed, trial.counts.completed), (REQUESTS, 0));
    let told = trial.main_failure(1.0).unwrap_or_default();
    assert!(told.contains(words), "{told}");
}

fn all_completed(trial: &HttpTrial) {
    assert!(trial.errors.is_empty(), "{:?}", trial.errors);
    assert_eq!(trial.counts.completed, REQUESTS);
}

#[test]
fn certificates_fail_for_their_own_reasons() {
    let pki = Pki::new();
    let now = SystemTime::now();
    let past = Validity { from: now - 9 * DAY, until: now - DAY };
    let future = Validity { from: now + DAY, until: now + 9 * DAY };
    let localhost = ["localhost", "127.0.0.1"];
    let stranger = Authority::new("a stranger").unwrap();
    let unknown = stranger.certify(&localhost, Validity::default()).unwrap();
    let unknown = Server::start(Behaviour::Answers, Some(Offer::default().server(unknown, None).unwrap()));
    let client_only = support::certificate_for_clients();
    let trust = pki.file("clients.pem");
    std::fs::write(&trust, support::pem("CERTIFICATE", &client_only.chain[0])).unwrap();
    let client_only =
        Server::start(Behaviour::Answers, Some(Offer::default().server(client_only, None).unwrap()));
    for (server, class, words) in [
        (pki.certified(&localhost, past), ErrorClass::TlsExpired, "has expired"),
        (pki.certified(&localhost, future), ErrorClass::TlsNotYetValid, "not valid yet"),
        (
            pki.certified(&["other.example"], Validity::default()),
            ErrorClass::TlsWrongName,
            "127.0.0.1 (--sni",
        ),
        (
            pki.certified(&[], Validity::default()),
            ErrorClass::TlsWrongName,
            "for the name 127.0.0.1: it has no subjectAltName",
        ),
        (unknown, ErrorClass::TlsUnknownIssuer, "--cacert"),
    ] {
        all_failed(&run(&pki.workload(&server)), class, words);
        // A client that does not check certificates accepts all of them.
        let unchecked = HttpWorkload { insecure: true, cacert: None, ..pki.workload(&server) };
        all_completed(&run(&unchecked));
    }
    let bad = HttpWorkload { cacert: Some(trust), ..pki.workload(&client_only) };
    all_failed(
        &run(&bad),
        ErrorClass::TlsBadCertificate,
        "not valid: its extendedKeyUsage does not allow this use",
    );
}

#[test]
fn offers_without_anything_in_common_fail() {
    let pki = Pki::new();
    let old = pki.offer(Offer { max: Version::Tls12, ..Offer::default() }, Behaviour::Answers);
    let workload = HttpWorkload { tls_min: Some("1.3".to_owned()), ..pki.workload(&old) };
    all_failed(&run(&workload), ErrorClass::TlsVersion, "--tls-min");
    let one = pki.offer(Offer { ciphers: vec![CIPHERS[0]], ..Offer::default() }, Behaviour::Answers);
    let workload = HttpWorkload { ciphers: Some(CIPHERS[1].name.to_owned()), ..pki.workload(&one) };
    all_failed(&run(&workload), ErrorClass::TlsCipher, "--ciphers");
    let same = HttpWorkload { ciphers: Some(CIPHERS[0].name.to_owned()), ..pki.workload(&one) };
    let trial = run(&same);
    all_completed(&trial);
    let sessions: Vec<_> = trial.tls_sessions.into_iter().collect();
    assert_eq!(sessions, [(format!("TLS 1.3 {}", CIPHERS[0].name), REQUESTS)]);
}

#[test]
fn client_certificates_are_required_refused_and_accepted() {
    let pki = Pki::new();
    for max in [Version::Tls13, Version::Tls12] {
        let roots = pki.authority.roots().unwrap();
        let config = Offer { max, ..Offer::default() }.server(pki.identity(), Some(roots)).unwrap();
        let server = Server::start(Behaviour::Answers, Some(config));
        all_failed(&run(&pki.workload(&server)), ErrorClass::TlsClientRequired, "--cert");
        let (cert, key) = pki.client(&Authority::new("a stranger").unwrap());
        let refused = HttpWorkload { cert: Some(cert), key: Some(key), ..pki.workload(&server) };
        all_failed(&run(&refused), ErrorClass::TlsClientRefused, "refused the client certificate");
        let (cert, key) = pki.client(&pki.authority);
        let accepted = HttpWorkload { cert: Some(cert), key: Some(key), ..pki.workload(&server) };
        all_completed(&run(&accepted));
    }
}

#[test]
fn handshakes_that_break_off_fail() {
    let pki = Pki::new();
    for (behaviour, class, words) in [
        (Behaviour::PlainHttp, ErrorClass::NotTls, "http://"),
        (Behaviour::Closes, ErrorClass::TlsClosed, "during the TLS handshake"),
        (Behaviour::Resets, ErrorClass::TlsClosed, "during the TLS handshake"),
        (Behaviour::Silent, ErrorClass::TlsTimeout, "within 200"),
    ] {
        let server = Server::start(behaviour, None);
        let mut workload = pki.workload(&server);
        if behaviour == Behaviour::Silent {
            workload.timeout = Some("200ms".into());
        }
        let trial = run(&workload);
        all_failed(&trial, class, words);
        assert_eq!(
            (trial.counts.connections_opened, trial.counts.handshakes),
            (REQUESTS, 0),
            "{behaviour:?}"
        );
    }
}

#[test]
fn streams_that_break_are_told_from_those_that_end() {
    let pki = Pki::new();
    for (behaviour, class) in [
        (Behaviour::Garbage, ErrorClass::TlsDecrypt),
        (Behaviour::CutOffBody, ErrorClass::Truncated),
        (Behaviour::CutOffBeforeAnswer, ErrorClass::ClosedEarly),
    ] {
        let trial = run(&pki.workload(&pki.offer(Offer::default(), behaviour)));
        assert_eq!(trial.errors.iter().collect::<Vec<_>>(), [(class, REQUESTS)], "{behaviour:?}");
    }
    for behaviour in [Behaviour::Answers, Behaviour::EndsBody, Behaviour::CutOffAfterAnswer] {
        all_completed(&run(&pki.workload(&pki.offer(Offer::default(), behaviour))));
    }
}

#[test]
fn kept_connections_carry_bodies_of_every_form() {
    let pki = Pki::new();
    for (behaviour, body_bytes) in
        [(Behaviour::Answers, 5), (Behaviour::Large, 65_536), (Behaviour::Chunked, 65_536)]
    {
        let server = pki.offer(Offer::default(), behaviour);
        let trial = run(&HttpWorkload { no_keepalive: false, ..pki.workload(&server) });
        all_completed(&trial);
        assert_eq!(trial.counts.received_body_bytes, REQUESTS * body_bytes, "{behaviour:?}");
        assert_eq!((trial.counts.handshakes, trial.handshake_time.count()), (USERS, USERS));
        assert!(trial.counts.session_tickets >= USERS, "{:?}", trial.counts);
    }
    // More than the kernel takes at once, so that encrypted bytes wait for it.
    let server = pki.offer(Offer::default(), Behaviour::Answers);
    let body = Some("x".repeat(4 << 20));
    let trial = run(&HttpWorkload { no_keepalive: false, body, ..pki.workload(&server) });
    all_completed(&trial);
    assert!(trial.counts.sent_bytes > REQUESTS * (4 << 20));
}

#[test]
fn sessions_are_resumed_by_their_own_user_only() {
    let pki = Pki::new();
    for max in [Version::Tls13, Version::Tls12] {
        let server = pki.offer(Offer { max, ..Offer::default() }, Behaviour::Answers);
        let trial = run(&pki.workload(&server));
        all_completed(&trial);
        assert_eq!((trial.counts.handshakes, trial.counts.handshakes_resumed), (REQUESTS, REQUESTS - USERS));
        let trial = run(&HttpWorkload { no_resumption: true, ..pki.workload(&server) });
        assert_eq!((trial.counts.handshakes, trial.counts.handshakes_resumed), (REQUESTS, 0));
    }
}

#[test]
fn an_open_load_opens_its_pool_before_the_start() {
    let pki = Pki::new();
    let server = pki.offer(Offer::default(), Behaviour::Answers);
    let trial = run(&HttpWorkload {
        users: None,
        loops: None,
        no_keepalive: false,
        rate: Some("1k".into()),
        requests: Some("200".into()),
        connections: Some("8".into()),
        drain: Some("10m".into()),
        ..pki.workload(&server)
    });
    assert_eq!((trial.counts.completed, trial.counts.handshakes), (200, 8));
}

#[test]
fn mistakes_name_their_option() {
    let plan =
        |workload: HttpWorkload| workload.plan(&load::MachineLimits::read().unwrap()).unwrap_err().remove(0);
    let https =
        || HttpWorkload { url: "https://127.0.0.1:1/".to_owned(), insecure: true, ..HttpWorkload::default() };
    for (workload, field, words) in [
        (HttpWorkload { url: "127.0.0.1:1".to_owned(), ..https() }, "insecure", "https://"),
        (HttpWorkload { ciphers: Some("NULL".to_owned()), ..https() }, "ciphers", "TLS_AES_128_GCM_SHA256"),
        (HttpWorkload { tls_max: Some("1.1".to_owned()), ..https() }, "tls_max", "1.3"),
        (
            HttpWorkload { cacert: Some("/nowhere".to_owned()), insecure: false, ..https() },
            "cacert",
            "/nowhere",
        ),
        (HttpWorkload { key: Some("/nowhere".to_owned()), ..https() }, "key", "--cert"),
        (HttpWorkload { alpn: Some("h2".to_owned()), ..https() }, "alpn", "HTTP/2"),
        (HttpWorkload { sni: Some("a b".to_owned()), ..https() }, "sni", "'a b'"),
    ] {
        let mistake = plan(workload);
        assert_eq!(mistake.field, field, "{mistake:?}");
        assert!(mistake.message.contains(words), "{mistake:?}");
    }
}
