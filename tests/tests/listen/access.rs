//! Who may post, and over what: TLS, tokens, passwords.

use std::fs;

use anyhow::{Result, ensure};
use proofload_tests::{process::Launch, temporary::TemporaryFolder};
use rustix::process::Signal;
use testing::PATIENCE;

use super::{
    EVENT,
    running::{Running, curl},
};

#[test]
fn tls_answers_and_takes_a_new_certificate_on_sighup() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    certificate(&folder)?;
    let mut listen = Running::start_in(folder, "--tls-cert cert.pem --tls-key key.pem --path stored/x.log")?;
    let port = listen.address.rsplit(':').next().unwrap_or_default().to_owned();
    let url = format!("https://localhost:{port}/a");
    let post = |listen: &Running| {
        let trust = listen.folder.file("cert.pem");
        let body = ["--cacert", &trust, "-H", "Content-Type: application/json", "--data-binary", EVENT];
        curl(&url, &body, &format!("--resolve localhost:{port}:127.0.0.1"))
    };
    ensure!(post(&listen)?.status == 204);
    certificate(&listen.folder)?;
    ensure!(post(&listen).is_err(), "the old certificate is trusted as the new one");
    listen.process.signal(Signal::HUP);
    listen.wait_for("reloaded")?;
    ensure!(post(&listen)?.status == 204);
    fs::write(listen.folder.path().join("key.pem"), "no key")?;
    listen.process.signal(Signal::HUP);
    listen.wait_for("not reloaded")?;
    ensure!(post(&listen)?.status == 204, "the certificate that works must stay");
    let (_, text) = listen.stored("x.log")?;
    ensure!(text.lines().count() == 3, "{text}");
    Ok(())
}

/// A certificate for localhost that vouches for itself, and its key.
fn certificate(folder: &TemporaryFolder) -> Result<()> {
    let (key, certificate) = (folder.file("key.pem"), folder.file("cert.pem"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
                 -addext subjectAltName=DNS:localhost";
    let made =
        Launch::new("openssl").words(words).args(["-keyout", &key, "-out", &certificate]).run(PATIENCE)?;
    ensure!(made.code == Some(0), "{made:?}");
    Ok(())
}

#[test]
fn only_those_with_a_secret_may_post() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    fs::write(folder.path().join("tokens"), "# ours\nabc.def\n")?;
    fs::write(folder.path().join("users"), "ann:se:cret\n")?;
    let words = "--bearer-token-file tokens --basic-auth-file users --path stored/x.log";
    let listen = Running::start_in(folder, words)?;
    for (words, status) in [
        ("", 401),
        ("--oauth2-bearer abc", 401),
        ("-u ann:secret", 401),
        ("-u ann:se:cret", 204),
        ("--oauth2-bearer abc.def", 204),
    ] {
        let answer = listen.post("/a", EVENT, words)?;
        ensure!(answer.status == status, "{words}: {answer:?}");
        ensure!((status == 401) == answer.header("WWW-Authenticate").is_some(), "{answer:?}");
    }
    ensure!(listen.process.stderr().contains("travel in plain text"), "{}", listen.process.stderr());
    ensure!(!listen.process.stderr().contains("abc.def"), "a secret is told");
    Ok(())
}
