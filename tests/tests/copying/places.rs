//! Where files come to: permissions of folders, depths, and what stands there already.

use super::*;

/// Permissions of what is in a folder, in octal digits, by name.
fn modes(folder: &Path) -> Result<BTreeMap<String, String>> {
    let entries = fs::read_dir(folder)?.flatten();
    entries
        .map(|entry| {
            let mode = fs::symlink_metadata(entry.path())?.mode() & 0o7777;
            Ok((entry.file_name().to_string_lossy().into_owned(), format!("{mode:o}")))
        })
        .collect()
}

#[test]
fn folders_have_the_permissions_that_scp_gives_them() -> Result<()> {
    let _shared = beside_others();
    let server = |umask: &str| format!("umask {umask}; {FULL_SERVER}");
    let place = Place::new(&server("027"))?;
    for (name, mode) in [("ro", 0o555), ("usual", 0o755), ("all", 0o1777), ("odd", 0o2750)] {
        fs::create_dir_all(place.at(&format!("source/{name}")))?;
        fs::set_permissions(place.at(&format!("source/{name}")), fs::Permissions::from_mode(mode))?;
        fs::write(place.at(&format!("source/{name}/file")), name)?;
    }
    let named =
        |modes: [(&str, &str); 4]| modes.map(|(name, mode)| (name.to_owned(), mode.to_owned())).into();
    // Up, the source's; down, as far as the umask allows, but for those that their owner could not fill.
    let up: BTreeMap<_, _> = named([("ro", "555"), ("usual", "755"), ("all", "1777"), ("odd", "750")]);
    let down: BTreeMap<_, _> = named([("ro", "555"), ("usual", "700"), ("all", "1700"), ("odd", "700")]);
    let source = place.labs.path("source");
    let copy = |from: &str, to: &str, umask: &str| -> Result<()> {
        let copy = place.labs.command("copy -rq")?.args([from, to]).env("PATH", &place.path);
        let script = format!("umask {umask}; exec \"$@\"");
        let finished = copy.under(["sh", "-c", &script, "sh"]).run(PATIENCE)?;
        ensure!(finished.code == Some(0), "{}", finished.stderr);
        Ok(())
    };
    copy(&source, &format!("any:{}", place.labs.path("up")), "022")?;
    ensure!(modes(&place.at("up"))? == up, "{:?}", modes(&place.at("up"))?);
    copy(&format!("any:{source}"), &place.labs.path("down"), "077")?;
    ensure!(modes(&place.at("down"))? == down, "{:?}", modes(&place.at("down"))?);
    // Those that are there keep what they have.
    for name in ["ro", "usual", "all", "odd"] {
        for end in ["up", "down"] {
            fs::set_permissions(place.at(&format!("{end}/{name}")), fs::Permissions::from_mode(0o710))?;
        }
    }
    copy(&format!("{source}/."), &format!("any:{}", place.labs.path("up")), "022")?;
    copy(&format!("any:{source}/."), &place.labs.path("down"), "077")?;
    for end in ["up", "down"] {
        let modes = modes(&place.at(end))?;
        ensure!(modes.values().all(|mode| mode == "710"), "{end} {modes:?}");
    }
    Ok(())
}

#[test]
fn the_report_replaces_no_file_of_the_copy() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(FULL_SERVER)?;
    for folder in ["source", "target/source"] {
        fs::create_dir_all(place.at(folder))?;
    }
    for name in ["source/a", "source/b"] {
        fs::write(place.at(name), "data")?;
    }
    let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
    let copy = |json: &str, from: &str, to: &str| {
        let launch = place.labs.command("copy -rq --json")?.args([json, from, to]).env("PATH", &place.path);
        launch.run(PATIENCE)
    };
    let (a, into) = (format!("{source}/a"), format!("{target}/source/a"));
    for (json, from, to) in [
        (&a, a.as_str(), format!("any:{target}/")),
        (&a, &source, format!("any:{target}/")),
        (&into, &format!("any:{source}"), format!("{target}/")),
    ] {
        let refused = copy(json, from, &to)?;
        let words = format!("{json} {from} {to}: {}", refused.stderr);
        ensure!(refused.code == Some(2) && refused.stderr.contains("or target of the copy"), "{words}");
        ensure!(fs::read(&a)? == b"data" && fs::read_dir(&target)?.count() == 1, "{words}");
    }
    let sound = copy(&format!("{target}/report"), &format!("any:{source}"), &format!("{target}/"))?;
    ensure!(sound.code == Some(0) && fs::read(&into)? == b"data", "{}", sound.stderr);
    Ok(())
}

#[test]
fn folders_go_down_as_deep_as_they_go_up() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(FULL_SERVER)?;
    let deep = format!("source{}", "/d".repeat(300));
    fs::create_dir_all(place.at(&deep))?;
    fs::write(place.at(&format!("{deep}/leaf")), "leaf")?;
    let [source, up, down] = ["source", "up", "down"].map(|name| place.labs.path(name));
    for (from, to, end) in [(source, format!("any:{up}"), "up"), (format!("any:{up}"), down, "down")] {
        let (finished, _) = place.copy(&["-r", &from, &to])?;
        ensure!(finished.code == Some(0), "{}", finished.stderr);
        ensure!(fs::read(place.at(&deep.replacen("source", end, 1)).join("leaf"))? == b"leaf", "{end}");
    }
    Ok(())
}

#[test]
fn a_dry_run_looks_where_files_would_come_to() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(FULL_SERVER)?;
    for folder in ["source/d/e", "target/source/a", "elsewhere"] {
        fs::create_dir_all(place.at(folder))?;
    }
    for name in ["source/a", "source/b", "source/d/c", "source/d/e/f"] {
        fs::write(place.at(name), name)?;
    }
    symlink(place.at("elsewhere"), place.at("target/source/d"))?;
    let [source, target, new] = ["source", "target", "new"].map(|name| place.labs.path(name));
    for is_up in [true, false] {
        let ends = |target: &str| {
            if is_up {
                [source.clone(), format!("any:{target}")]
            } else {
                [format!("any:{source}"), target.to_owned()]
            }
        };
        for option in ["-rn", "-r"] {
            let [from, to] = ends(&target);
            let (finished, report) = place.copy(&[option, &from, &to])?;
            let words = format!("{is_up} {option} {}{report:#}", finished.stderr);
            ensure!(finished.code == Some(1), "{words}");
            let files = report["files"].as_array().context("files")?;
            let failed = files.iter().filter(|file| file["error"].is_string()).count();
            ensure!((files.len(), failed) == (4, 3), "{words}");
            ensure!(finished.stderr.contains("target/source/d: cannot make the folder"), "{words}");
            ensure!(finished.stderr.contains("source/a exists and is not a regular file"), "{words}");
            ensure!(place.at("target/source/b").exists() == (option == "-r"), "{words}");
        }
        fs::remove_file(place.at("target/source/b"))?;
        // Where nothing stands, nothing is refused, and nothing made.
        let [from, to] = ends(&new);
        let (finished, _) = place.copy(&["-rn", &from, &to])?;
        ensure!(finished.code == Some(0) && !place.at("new").exists(), "{is_up} {}", finished.stderr);
    }
    Ok(())
}

#[test]
fn a_folder_that_cannot_be_written_to_and_a_name_of_two_lines_are_named() -> Result<()> {
    let _shared = beside_others();
    let place = Place::hostile("deny", "", false)?;
    fs::write(place.at("source"), "x")?;
    let [source, missing] = ["source", "of two\nlines"].map(|name| place.labs.path(name));
    fs::create_dir(place.at("to"))?;
    let (finished, _) = place.copy(&[&source, &missing, &format!("any:{}", place.labs.path("to"))])?;
    ensure!(finished.code == Some(1), "{}", finished.stderr);
    for words in ["Permission denied'; its folder must be writable", "of two\\nlines: No such file"] {
        ensure!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
    }
    Ok(())
}
