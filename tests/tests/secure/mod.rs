//! HTTP over TLS, against nginx and openssl.

use anyhow::{Result, ensure};
use proofload_tests::{
    Nginx, NginxOptions, Proofload, Trial, nginx::Secure, process::Launch, temporary::TemporaryFolder,
};
use record::{ErrorClass, ResultFolder, TrialEntry};
use testing::until;

use super::{beside_others, completed, own_address, run};

fn nginx() -> Result<Nginx> {
    Nginx::start(&NginxOptions { secure: Some(Secure::Usual), ..Default::default() })
}

/// The handshakes of a trial, and those that resumed a session.
fn handshakes(trial: &Trial) -> (u64, u64) {
    (trial.counts.handshakes, trial.counts.handshakes_resumed)
}

#[test]
fn nginx_answers_over_tls_on_kept_and_new_connections() -> Result<()> {
    let _shared = beside_others();
    let nginx = nginx()?;
    let trusting = format!("--cacert {} -t 1", nginx.authority_file());
    for (path, body_bytes) in [("/", 13), ("/64k", 65_536)] {
        let url = nginx.secure_url(path);
        let output = run(&url, &format!("-c 4 -n 400 {trusting}"))?;
        let trial = completed(&output, 400)?;
        ensure!(trial.counts.received_body_bytes == 400 * body_bytes, "{}", output.described());
        ensure!(handshakes(trial) == (4, 0) && trial.handshake_time.count() == 4, "{}", output.described());
        let output = run(&url, &format!("-c 4 -n 200 --no-keepalive {trusting}"))?;
        ensure!(handshakes(completed(&output, 200)?) == (200, 196), "{}", output.described());
        let output = run(&url, &format!("-c 4 -n 200 --no-keepalive --no-resumption {trusting}"))?;
        ensure!(handshakes(completed(&output, 200)?) == (200, 0), "{}", output.described());
    }
    let output = run(&nginx.secure_url("/"), &format!("-n 20 --tls-max 1.2 {trusting}"))?;
    let sessions = &completed(&output, 20)?.tls_sessions;
    ensure!(sessions.keys().all(|session| session.starts_with("TLS 1.2 ")), "{sessions:?}");
    ensure!(output.stdout.contains("handshakes, none resumed"), "{}", output.described());
    Ok(())
}

#[test]
fn an_untrusted_certificate_is_told_first_and_can_be_ignored() -> Result<()> {
    let _shared = beside_others();
    let nginx = nginx()?;
    let url = nginx.secure_url("/");
    let output = run(&url, "-c 2 -n 20")?;
    let trial = output.counted(1)?;
    ensure!(trial.errors.of(ErrorClass::TlsUnknownIssuer) == 20, "{}", output.described());
    ensure!(output.stdout.contains("no trusted authority issued"), "{}", output.described());
    completed(&run(&url, "-c 2 -n 20 --insecure")?, 20)?;
    Ok(())
}

#[test]
fn the_largest_rate_of_a_service_over_tls_is_searched() -> Result<()> {
    let _shared = beside_others();
    let (nginx, folder) = (nginx()?, TemporaryFolder::new()?);
    let words = format!(
        "limit rate --errors 1% --max 200 --trial 200ms --drain 5m --repeats 1 --cacert {} --out {} -q",
        nginx.authority_file(),
        folder.file("result")
    );
    let output = Proofload::new(&words)?.arg(&nginx.secure_url("/")).run()?;
    // Also a trial that is void has shaken hands.
    let trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    let handshakes = |entry: &TrialEntry| entry.trial.http().map_or(0, |http| http.counts.handshakes);
    ensure!(trials.iter().any(|entry| handshakes(entry) > 0), "{}", output.described());
    Ok(())
}

#[test]
fn openssl_refuses_clients_without_a_certificate() -> Result<()> {
    let _shared = beside_others();
    // Its files are those of a server.
    let nginx = nginx()?;
    let authority = nginx.authority_file();
    let file = |name: &str| authority.replace("ca.pem", name);
    let address = own_address()?;
    let server = Launch::new("openssl").args(["s_server", "-quiet", "-www", "-Verify", "1"]).args([
        "-accept",
        &address.to_string(),
        "-CAfile",
        &authority,
        "-cert",
        &file("cert.pem"),
        "-key",
        &file("key.pem"),
    ]);
    let _server = server.start()?;
    until("openssl listens", || std::net::TcpStream::connect(address).is_ok());
    let url = "https://localhost/";
    let words = format!("-c 1 -n 10 --no-keepalive --connect-to {address} --cacert {authority}");
    let output = run(url, &words)?;
    let trial = output.counted(1)?;
    ensure!(trial.errors.of(ErrorClass::TlsClientRequired) == 10, "{}", output.described());
    let certificate = format!("--cert {} --key {}", file("cert.pem"), file("key.pem"));
    completed(&run(url, &format!("{words} {certificate}"))?, 10)?;
    Ok(())
}
