//! `proofload serve` as an API under test: TLS, pages, and the record that a test compares with.

use std::fs;

use anyhow::{Result, ensure};
use proofload_tests::{Proofload, Serve, process::Launch, temporary::TemporaryFolder};
use serde_json::{Value, json};
use testing::PATIENCE;

/// What curl prints, with which status it ends.
fn curl(words: &str) -> Result<(Option<i32>, String)> {
    let finished = Launch::new("curl").words("-sS --max-time 300").words(words).run(PATIENCE)?;
    Ok((finished.code, finished.stdout))
}

#[test]
fn a_user_s_way_through_an_api_is_in_the_record() -> Result<()> {
    for (scheme, secure) in [("http", ""), ("https", "--tls --tls-ca-out CA")] {
        let folder = TemporaryFolder::new()?;
        let (record, ca) = (folder.file("requests.jsonl"), folder.file("ca.pem"));
        let secure = secure.replace("CA", &ca);
        let serve = Serve::start(&format!("--pages --token-lifetime 1h --record {record} {secure}"))?;
        let base = format!("{scheme}://{}", serve.addresses()[0]);
        let trust = if secure.is_empty() { String::new() } else { format!("--cacert {ca}") };
        let (status, login) = curl(&format!("{trust} -d user=ann&password=p {base}/login"))?;
        ensure!(status == Some(0), "{login}");
        let token = serde_json::from_str::<Value>(&login)?["token"].as_str().unwrap_or_default().to_owned();
        let (_, private) = curl(&format!("{trust} --oauth2-bearer {token} {base}/private/a"))?;
        ensure!(serde_json::from_str::<Value>(&private)?["user"] == "ann", "{private}");
        ensure!(curl(&format!("{trust} -L {base}/redirect/2"))?.1.contains("\"redirects_left\":0"));
        // The record is whole when the program has ended.
        let report = serve.stop()?;
        let text = fs::read_to_string(&record)?;
        let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        ensure!(report.requests == 5 && lines.len() == 5, "{lines:#?}");
        let targets: Vec<_> = lines.iter().map(|line| line["target"].as_str().unwrap_or_default()).collect();
        ensure!(
            targets == ["/login", "/private/a", "/redirect/2", "/redirect/1", "/redirect/0"],
            "{targets:?}"
        );
        ensure!(lines[0]["body"] == "user=ann&password=p", "{}", lines[0]);
        let header = json!(["Authorization", format!("Bearer {token}")]);
        ensure!(lines[1]["headers"].as_array().is_some_and(|all| all.contains(&header)), "{}", lines[1]);
        let connections: Vec<_> = lines.iter().map(|line| line["connection"].as_u64()).collect();
        ensure!(connections == [1, 2, 3, 3, 3].map(Some), "{connections:?}");
    }
    Ok(())
}

#[test]
fn a_wrong_certificate_is_wrong_for_curl() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let ca = folder.file("ca.pem");
    // curl: 60 is a certificate that is not trusted.
    for (words, status) in [("", 0), ("--tls-fault expired", 60), ("--tls-fault unknown-ca", 60)] {
        let serve = Serve::start(&format!("--tls --tls-ca-out {ca} {words}"))?;
        let url = format!("https://{}/", serve.addresses()[0]);
        let (code, _) = curl(&format!("--cacert {ca} {url}"))?;
        ensure!(code == Some(status), "{words}: {code:?}");
        ensure!(serve.stop()?.requests == u64::from(status == 0));
    }
    Ok(())
}

#[test]
fn files_that_cannot_be_used_are_refused_with_their_option() -> Result<()> {
    for (words, part) in [
        ("--cert /no/cert.pem --key /no/key.pem", "/no/cert.pem: cannot be read"),
        ("--tls --client-ca /no/ca.pem", "/no/ca.pem: cannot be read"),
        ("--tls --tls-ca-out /no/ca.pem", "/no/ca.pem: cannot be written"),
        ("--record /no/requests.jsonl", "--record: /no/requests.jsonl: cannot be written"),
    ] {
        let output = Proofload::new(&format!("serve --listen 127.0.0.1:0 {words}"))?.run()?;
        ensure!(output.code == Some(2) && output.stderr.contains(part), "{words}: {output:?}");
    }
    Ok(())
}
