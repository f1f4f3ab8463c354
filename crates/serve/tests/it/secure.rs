//! Tests of TLS: correct, with client certificates, and with every fault.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use serve::{Body, Config, Tls, TlsFault, TlsFiles};
use tempfile::TempDir;

use super::{
    curl::{curl, status, text, url},
    target::Target,
};

/// Starts a target with TLS. The string is the path of its authority's certificate.
fn start(config: Config, tls: Tls) -> (Target, TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let target = Target::start(Config { tls: Some(Tls { ca_out: Some(ca.clone()), ..tls }), ..config });
    (target, folder, ca.display().to_string())
}

/// A URL with the target's port and another name or address.
fn at(host: &str, target: &Target) -> String {
    format!("https://{host}:{}/", target.address.port())
}

#[test]
fn a_client_that_trusts_the_authority_is_answered() {
    let (target, _folder, ca) = start(Config::default(), Tls::default());
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        let words =
            ["--cacert", &ca, version, "--tls-max", &version[6..], &url("https", target.address, "/")];
        assert_eq!(text(&words), "proofload-ser");
    }
    assert_eq!(text(&["--cacert", &ca, &at("localhost", &target)]), "proofload-ser");
    // Exit statuses of curl: 60 for an untrusted certificate, 52 for an empty answer, 1 for HTTP/0.9.
    assert_eq!(status(&[&url("https", target.address, "/")]), Some(60));
    let plain = status(&[&url("http", target.address, "/")]);
    assert!(matches!(plain, Some(1 | 52 | 56)), "{plain:?}");
    let report = target.stop();
    let tls = report.tls.clone().unwrap();
    assert_eq!((report.answers, tls.handshakes, tls.resumed), (3, 3, 0));
    let failures = [("certificate_refused", 1), ("not_tls", 1)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(tls.failures, BTreeMap::from(failures));
}

#[test]
fn large_bodies_arrive_whole_whatever_their_framing() {
    for (bytes, chunk_bytes) in [(3_000_000, None), (3_000_000, Some(1_000)), (40_000, None)] {
        let (target, folder, ca) =
            start(Config { body: Body::Size(bytes), chunk_bytes, ..Config::default() }, Tls::default());
        // Two requests on one connection, the second with a body.
        let to = url("https", target.address, "/");
        let upload = "x".repeat(1_000_000);
        let file = folder.path().join("upload");
        fs::write(&file, &upload).unwrap();
        let words =
            ["--cacert", &ca, &to, "--next", "--cacert", &ca, "-s", "-T", &file.display().to_string(), &to];
        let got = text(&words);
        assert_eq!(got.len() as u64, 2 * bytes, "{chunk_bytes:?}");
        assert!(chunk_bytes.is_some() || got.starts_with(&"proofload-serve\n".repeat(bytes as usize / 16)));
        let report = target.stop();
        assert_eq!((report.answers, report.connections_accepted), (2, 1));
        assert!(report.request_bytes > 1_000_000 && report.response_bytes > 2 * bytes, "{report}");
    }
}

#[test]
fn later_sessions_resume_earlier_ones() {
    let config = Config { keepalive_requests: Some(1), ..Config::default() };
    let (target, _folder, ca) = start(config, Tls::default());
    let to = url("https", target.address, "/");
    assert_eq!(text(&["--cacert", &ca, &to, &to, &to]).len(), 39);
    let tls = target.stop().tls.unwrap();
    assert_eq!((tls.handshakes, tls.resumed), (3, 2));
}

#[test]
fn versions_are_those_that_were_asked_for() {
    let only = |version: &str| Tls {
        min: version.parse().unwrap(),
        max: version.parse().unwrap(),
        ..Tls::default()
    };
    for (version, other) in [("1.2", "1.3"), ("1.3", "1.2")] {
        let (target, _folder, ca) = start(Config::default(), only(version));
        let to = url("https", target.address, "/");
        assert_eq!(status(&["--cacert", &ca, &to]), Some(0));
        let (least, most) = (format!("--tlsv{other}"), other);
        assert_eq!(status(&["--cacert", &ca, &least, "--tls-max", most, &to]), Some(35), "{version}");
        assert_eq!(target.stop().tls.unwrap().failures["protocol_version"], 1);
    }
}

#[test]
fn every_fault_is_what_curl_says_it_is() {
    // Exit statuses of curl: 35 for a failed handshake, 56 for a failed read, 60 for an untrusted certificate.
    for (fault, codes, word) in [
        (TlsFault::Expired, &[60][..], "certificate has expired"),
        (TlsFault::NotYetValid, &[60], "certificate is not yet valid"),
        (TlsFault::WrongName, &[60], "subject name matches target"),
        (TlsFault::UnknownCa, &[60], "unable to get local issuer certificate"),
        (TlsFault::OldProtocol, &[35], "protocol version"),
        (TlsFault::NoCommonCipher, &[35], "handshake failure"),
        (TlsFault::ClientCert, &[35, 56], "certificate required"),
        (TlsFault::ResetInHandshake, &[35], "reset by peer"),
        (TlsFault::PlainHttp, &[35], "wrong version number"),
    ] {
        let (target, _folder, ca) = start(Config::default(), Tls { fault: Some(fault), ..Tls::default() });
        let output = curl(&["--cacert", &ca, &url("https", target.address, "/")]);
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(codes.contains(&output.status.code().unwrap()), "{fault}: {output:?}");
        assert!(said.contains(word), "{fault}: {said}");
        let report = target.stop();
        assert_eq!((report.requests, report.answers_by_status.contains_key(&200)), (0, false), "{fault}");
        assert_eq!(report.bad_requests, u64::from(fault == TlsFault::PlainHttp), "{fault}");
    }
}

#[test]
fn own_certificates_and_those_of_clients_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let made = |name: &str| -> (PathBuf, PathBuf) {
        let (key, certificate) = (file(&format!("{name}.key")), file(&format!("{name}.pem")));
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
                     -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE";
        let mut openssl = Command::new("openssl");
        openssl.args(words.split_whitespace()).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        assert!(openssl.output().unwrap().status.success(), "openssl makes a certificate");
        (certificate, key)
    };
    let ((certificates, key), (client, client_key)) = (made("own"), made("client"));
    let tls = Tls {
        files: Some(TlsFiles { certificates: certificates.clone(), key }),
        client_ca: Some(client.clone()),
        ..Tls::default()
    };
    let target = Target::start(Config { tls: Some(tls), ..Config::default() });
    let (to, trust) = (at("localhost", &target), certificates.display().to_string());
    let (client, client_key) = (client.display().to_string(), client_key.display().to_string());
    assert_eq!(text(&["--cacert", &trust, "--cert", &client, "--key", &client_key, &to]), "proofload-ser");
    let refused = status(&["--cacert", &trust, &to]);
    assert!(matches!(refused, Some(35 | 56)), "{refused:?}");
    assert_eq!(target.stop().tls.unwrap().failures["certificate_required"], 1);
}
