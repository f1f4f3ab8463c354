//! Shells of the other machine: such as see other files than SFTP does, are slow to start, or are none.

use super::{hostile::contents, *};

/// A shell in which the folder with the sources is another one.
const OTHER_ROOT: &str = "case \"$*\" in *' sftp') exec /usr/lib/openssh/sftp-server;; \
    *' exec sh') exec sed -u 's#/seen/#/other/#g' | sh;; esac; exit 1";

#[test]
fn a_shell_that_sees_other_files_than_sftp_is_believed_nothing() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(OTHER_ROOT)?;
    fs::create_dir(place.at("seen"))?;
    fs::create_dir(place.at("other"))?;
    // Of another size, of the same size, and in chunks.
    for (name, bytes, other_bytes) in [("a", 3, 10), ("b", 1_000, 1_000), ("c", 9_000_000, 9_000_000)] {
        fs::write(place.at(&format!("seen/{name}")), contents(bytes))?;
        fs::write(place.at(&format!("other/{name}")), vec![7; other_bytes])?;
        let [source, target] =
            [format!("seen/{name}"), format!("down-{name}")].map(|at| place.labs.path(&at));
        let (finished, report) = place.copy(&[&format!("any:{source}"), &target])?;
        let words = format!("{name}: {}{report:#}", finished.stderr);
        ensure!(finished.code == Some(0) && fs::read(&target)? == contents(bytes), "{words}");
        ensure!(report["files"][0]["verified"] == "here_only", "{words}");
        let why = report["no_checksum_because"].as_str().unwrap_or_default();
        ensure!(why.contains("the shell there and SFTP see different contents of"), "{words}");
        // Up over what the shell takes for another file: it is read back.
        let up = place.labs.path(&format!("seen/up-{name}"));
        fs::write(place.at(&format!("other/up-{name}")), "other")?;
        let (finished, report) = place.copy(&[&target, &format!("any:{up}")])?;
        let words = format!("{name}: {}{report:#}", finished.stderr);
        ensure!(finished.code == Some(0) && fs::read(&up)? == contents(bytes), "{words}");
        ensure!(report["files"][0]["verified"] == "read_back", "{words}");
    }
    Ok(())
}

#[test]
fn a_shell_that_does_not_start_is_not_waited_for_and_is_told_of() -> Result<()> {
    let _shared = beside_others();
    // Whoever reads back sooner than it answers does not wait for it.
    let slow =
        "case \"$*\" in *' sftp') exec /usr/lib/openssh/sftp-server;; *' exec sh') cat >&2;; esac; exit 1";
    for (ssh, why) in [(slow, "did not answer within"), (BARE_SERVER, "has no shell that can run cksum")] {
        let place = Place::new(ssh)?;
        fs::create_dir(place.at("source"))?;
        for name in ["source/small", "source/large"] {
            fs::write(place.at(name), contents(if name.ends_with("small") { 2_000_000 } else { 5_000_000 }))?;
        }
        let [source, up] = ["source", "up"].map(|name| place.labs.path(name));
        let (finished, report) = place.copy(&["-r", &source, &format!("any:{up}")])?;
        let words = format!("{why}: {}{report:#}", finished.stderr);
        ensure!(finished.code == Some(0) && tree(&place.at("up"))?.len() == 2, "{words}");
        let files = report["files"].as_array().context("files")?;
        ensure!(files.iter().all(|file| file["verified"] == "read_back"), "{words}");
        ensure!(report["no_checksum_because"].as_str().is_some_and(|text| text.contains(why)), "{words}");
    }
    // One that answers is believed, and nothing is told.
    let place = Place::new(FULL_SERVER)?;
    fs::write(place.at("source"), contents(5_000_000))?;
    let [source, up] = ["source", "up"].map(|name| place.labs.path(name));
    let (finished, report) = place.copy(&[&source, &format!("any:{up}")])?;
    ensure!(finished.code == Some(0) && is_verified(&report["files"][0]), "{report:#}");
    if report["files"][0]["verified"] == "by_checksum" {
        ensure!(report["no_checksum_because"].is_null(), "{report:#}");
    }
    Ok(())
}

#[test]
fn what_a_login_says_in_the_place_of_sftp_is_shown() -> Result<()> {
    let _shared = beside_others();
    for line in ["This account is currently not available.", "hello from .bashrc"] {
        let place = Place::new(&format!("echo '{line}'; exit 1"))?;
        fs::write(place.at("source"), "x")?;
        let (finished, _) = place.copy(&[&place.labs.path("source"), "any:x"])?;
        ensure!(finished.code == Some(2), "{}", finished.stderr);
        for words in [line, "nologin", "start-up files"] {
            ensure!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
        }
    }
    Ok(())
}
