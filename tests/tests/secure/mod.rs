//! HTTP over TLS, against nginx and openssl.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Result, ensure};
use proofload_tests::{
    Nginx, NginxOptions, Proofload, Trial,
    nginx::Secure,
    process::{Launch, Process},
    temporary::TemporaryFolder,
};
use record::{ErrorClass, ResultFolder, TrialEntry};
use testing::{PATIENCE, until};

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
    let trial = output.unanswered()?;
    ensure!(trial.errors.of(ErrorClass::TlsUnknownIssuer) == 20, "{}", output.described());
    ensure!(output.stderr.contains("no trusted authority issued"), "{}", output.described());
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
    until("openssl listens", || TcpStream::connect(address).is_ok());
    let url = "https://localhost/";
    let words = format!("-c 1 -n 10 --no-keepalive --connect-to {address} --cacert {authority}");
    let output = run(url, &words)?;
    let trial = output.unanswered()?;
    ensure!(trial.errors.of(ErrorClass::TlsClientRequired) == 10, "{}", output.described());
    let certificate = format!("--cert {} --key {}", file("cert.pem"), file("key.pem"));
    completed(&run(url, &format!("{words} {certificate}"))?, 10)?;
    Ok(())
}

/// An OpenSSL server, with a key and a certificate that these arguments of `openssl` make.
struct Certified {
    _server: Process,
    address: SocketAddr,
}

impl Certified {
    fn start(folder: &TemporaryFolder, key: &str, certificate: &str, serving: &str) -> Result<Self> {
        let (key_file, file) = (folder.file("key.pem"), folder.file("cert.pem"));
        let request = folder.file("request.pem");
        for line in [
            format!("genpkey {key} -out {key_file}"),
            format!("req -new -key {key_file} -subj /CN=localhost -out {request}"),
            format!("x509 -req -in {request} -signkey {key_file} -days 9 {certificate} -out {file}"),
        ] {
            let made = Launch::new("openssl").words(&line).run(PATIENCE)?;
            ensure!(made.code == Some(0), "openssl {line}: {}", made.stderr);
        }
        let address = own_address()?;
        let line = format!("s_server -quiet -www -cert {file} -key {key_file} -accept {address} {serving}");
        let server = Launch::new("openssl").words(&line).start()?;
        until("openssl listens", || TcpStream::connect(address).is_ok());
        Ok(Self { _server: server, address })
    }
}

#[test]
fn insecure_takes_every_certificate_that_curl_takes() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let extensions = folder.file("extensions");
    std::fs::write(&extensions, "basicConstraints=CA:TRUE\n1.2.3.4=critical,ASN1:NULL\n")?;
    let (p256, rsa) = ("-algorithm EC -pkeyopt ec_paramgen_curve:P-256", "-algorithm RSA -pkeyopt");
    let (third, weak) = (format!("-extfile {extensions}"), "-cipher DEFAULT@SECLEVEL=0");
    for (key, certificate, serving) in [
        (p256.to_owned(), "", ""),
        (p256.to_owned(), "", "-tls1_2"),
        (p256.to_owned(), third.as_str(), ""),
        (format!("{rsa} rsa_keygen_bits:1024"), "", weak),
        (format!("{rsa} rsa_keygen_bits:1024"), "", &format!("{weak} -tls1_2")),
        ("-algorithm EC -pkeyopt ec_paramgen_curve:P-521".to_owned(), third.as_str(), ""),
        ("-algorithm ED448".to_owned(), "", ""),
        ("-algorithm ED448".to_owned(), "", "-tls1_2"),
        ("-algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048".to_owned(), "", ""),
    ] {
        let server = Certified::start(&folder, &key, certificate, serving)?;
        let words = format!("-c 1 -n 3 --no-keepalive --connect-to {}", server.address);
        let output = run("https://localhost/", &format!("{words} --insecure"))?;
        completed(&output, 3)?;
        let trusting = format!("{words} --cacert {}", folder.file("cert.pem"));
        let output = run("https://localhost/", &trusting)?;
        ensure!(output.code != Some(0), "{key}: it is not checked: {}", output.described());
    }
    Ok(())
}

#[test]
fn a_handshake_that_is_refused_is_not_blamed_on_the_ciphers_alone() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let p256 = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";
    for (key, serving) in [
        (p256, "-groups P-521"),
        (p256, "-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA"),
        ("-algorithm EC -pkeyopt ec_paramgen_curve:P-521", "-tls1_2"),
        ("-algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048", "-tls1_2"),
    ] {
        let server = Certified::start(&folder, key, "", serving)?;
        let words = format!("-c 1 -n 3 --insecure --connect-to {}", server.address);
        let output = run("https://localhost/", &words)?;
        ensure!(output.unanswered()?.errors.of(ErrorClass::TlsCipher) == 3, "{}", output.described());
        let told = "no cipher suite, key exchange or signature scheme in common";
        ensure!(output.stderr.contains(told), "{}", output.described());
    }
    Ok(())
}

#[test]
fn files_of_clients_that_cannot_be_used_name_their_option_and_fault() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let server = Certified::start(&folder, "-algorithm EC -pkeyopt ec_paramgen_curve:P-256", "", "")?;
    let (key, cert) = (folder.file("key.pem"), folder.file("cert.pem"));
    let encrypted = folder.file("encrypted.pem");
    let line = format!("pkey -in {key} -aes256 -passout pass:secret -out {encrypted}");
    ensure!(Launch::new("openssl").words(&line).run(PATIENCE)?.code == Some(0), "{line}");
    let words =
        |key: &str| format!("-c 1 -n 3 --insecure --connect-to {} --cert {cert} --key {key}", server.address);
    for (key, told) in [
        (&encrypted, "--key: ".to_owned() + &encrypted + ": the private key is encrypted; decrypt it with"),
        (&key, format!("--cert: {cert}: it cannot be used: it is of X.509 version 1")),
    ] {
        let output = run("https://localhost/", &words(key))?;
        ensure!(output.code == Some(2) && output.stderr.contains(&told), "{told}: {}", output.described());
    }
    let p521 = "-algorithm EC -pkeyopt ec_paramgen_curve:P-521";
    let _server = Certified::start(&folder, p521, "", "")?;
    let output = run("https://localhost/", &words(&key))?;
    let told = format!("--key: {key}: keys of this kind or length are not supported");
    ensure!(output.code == Some(2) && output.stderr.contains(&told), "{}", output.described());
    Ok(())
}
