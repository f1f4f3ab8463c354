//! Other users of the two machines, who change what lies where a copy comes by.

use super::{
    hostile::{contents, kill_with_chunks},
    *,
};

/// Moments at which a server does what a script says: the numbers of requests.
const OPEN: u8 = 3;
const READ: u8 = 5;
const WRITE: u8 = 6;
const MKDIR: u8 = 14;

impl Place {
    /// A server that runs `script` in this place before the first request of a kind. Its `$1` is the process of the copy.
    fn acting(request: u8, script: &str) -> Result<Self> {
        let place = Self::hostile(&format!("act-{request}"), "", true)?;
        place.labs.file("act", &format!("cd {}\n{script}", place.labs.path("")))?;
        Ok(place)
    }
}

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::symlink_metadata(path)?.mode() & 0o7777)
}

/// The only part in a folder.
fn part(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    entries.find(|path| path.to_string_lossy().ends_with(".part")).context("there is no part")
}

#[test]
fn a_source_that_becomes_a_pipe_holds_nobody() -> Result<()> {
    let _shared = beside_others();
    for bytes in [3_000_000, 1_000] {
        // Once all sources were listed, and before the first is opened.
        let place = Place::acting(MKDIR, "rm source/b && mkfifo source/b")?;
        fs::create_dir(place.at("source"))?;
        for name in ["source/a", "source/b"] {
            fs::write(place.at(name), contents(bytes))?;
        }
        let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
        let (finished, _) = place.copy(&["-r", &source, &format!("any:{target}")])?;
        let words = format!("{bytes}: {:?} {}", finished.code, finished.stderr);
        ensure!(finished.code == Some(1) && finished.stderr.contains("source/b: cannot read"), "{words}");
        ensure!(finished.stderr.contains("is a FIFO"), "{words}");
        ensure!(fs::read(place.at("target/a"))? == contents(bytes), "what is sound is not there: {words}");
        ensure!(!place.has_parts("target")?, "{words}");
    }
    Ok(())
}

#[test]
fn a_folder_that_becomes_a_pipe_or_a_link_keeps_what_it_leads_to() -> Result<()> {
    let _shared = beside_others();
    for (what, is_up) in [
        ("mkfifo to/t/sub", false),
        ("ln -s ../../elsewhere to/t/sub", false),
        ("ln -s ../../elsewhere to/t/sub", true),
    ] {
        let request = if is_up { WRITE } else { READ };
        let place = Place::acting(request, &format!("mv to/t/sub gone && {what}"))?;
        for folder in ["from/t/sub", "to", "elsewhere"] {
            fs::create_dir_all(place.at(folder))?;
        }
        fs::set_permissions(place.at("from/t/sub"), fs::Permissions::from_mode(0o755))?;
        fs::set_permissions(place.at("elsewhere"), fs::Permissions::from_mode(0o700))?;
        fs::write(place.at("from/t/file"), "file")?;
        let [from, to] = ["from/t", "to"].map(|name| place.labs.path(name));
        let ends = if is_up { [from, format!("any:{to}")] } else { [format!("any:{from}"), to] };
        let (finished, _) = place.copy(&["-rp", &ends[0], &ends[1]])?;
        let words = format!("{what} {is_up}: {:?} {}", finished.code, finished.stderr);
        ensure!(place.at("gone").exists(), "nobody acted: {words}");
        ensure!(
            finished.code == Some(0) && finished.stderr.contains("to/t/sub: cannot set times"),
            "{words}"
        );
        ensure!(mode(&place.at("elsewhere"))? == 0o700, "{words}");
        ensure!(fs::read(place.at("to/t/file"))? == b"file", "{words}");
        // Where nobody acts any more, all is as it was.
        fs::remove_file(place.at("to/t/sub"))?;
        let (finished, _) = place.copy(&["-rp", &ends[0], &ends[1]])?;
        ensure!(finished.code == Some(0) && finished.stderr.is_empty(), "{words} {}", finished.stderr);
        ensure!(tree(&place.at("from"))? == tree(&place.at("to"))?, "a tree differs");
    }
    Ok(())
}

#[test]
fn files_of_a_folder_that_becomes_a_link_come_nowhere_else() -> Result<()> {
    let _shared = beside_others();
    // Before its part is made.
    let place = Place::acting(OPEN, "mv to/t/sub gone && ln -s ../../elsewhere to/t/sub")?;
    for folder in ["from/t/sub", "to", "elsewhere"] {
        fs::create_dir_all(place.at(folder))?;
    }
    fs::write(place.at("from/t/sub/file"), contents(1_000))?;
    let [from, to] = ["from/t", "to"].map(|name| place.labs.path(name));
    let (finished, _) = place.copy(&["-r", &format!("any:{from}"), &to])?;
    ensure!(finished.code == Some(1), "{}", finished.stderr);
    ensure!(fs::read_dir(place.at("elsewhere"))?.count() == 0, "{}", finished.stderr);
    Ok(())
}

/// Breaks a copy off, changes a replacement of its part, and runs the same copy again.
fn replace_part(is_up: bool, change: impl Fn(&Path) -> std::io::Result<()>) -> Result<()> {
    let place = Place::hostile("stall", "", true)?;
    fs::write(place.at("source"), contents(60_000_000))?;
    fs::create_dir(place.at("to"))?;
    let [source, target] = ["source", "to/target"].map(|name| place.labs.path(name));
    let [from, to] =
        if is_up { [source, format!("any:{target}")] } else { [format!("any:{source}"), target] };
    kill_with_chunks(&place, [&from, &to])?;
    // It has all that has arrived, but is not what the copy has left.
    let part = part(&place.at("to"))?;
    fs::rename(&part, place.at("to/old"))?;
    fs::copy(place.at("to/old"), &part)?;
    change(&part)?;
    let planted = fs::File::open(&part)?;
    fs::remove_file(place.at("to/old"))?;
    let (finished, report) = place.copy(&[&from, &to])?;
    let words = format!("{is_up} {}{report:#}", finished.stderr);
    ensure!(finished.code == Some(0) && report["files"][0]["resumed_bytes"] == 0, "{words}");
    let target = place.at("to/target");
    ensure!(fs::metadata(&target)?.ino() != planted.metadata()?.ino(), "{words}");
    ensure!(mode(&target)? == 0o644 && fs::read(target)? == contents(60_000_000), "{words}");
    ensure!(fs::read_dir(place.at("to"))?.count() == 1, "something is left: {words}");
    Ok(())
}

#[test]
fn a_part_that_anybody_may_write_to_is_not_taken_up() -> Result<()> {
    let _shared = beside_others();
    for is_up in [true, false] {
        replace_part(is_up, |part| fs::set_permissions(part, fs::Permissions::from_mode(0o666)))?;
    }
    Ok(())
}

#[test]
fn as_root_a_part_of_another_user_is_not_taken_up() -> Result<()> {
    let _shared = beside_others();
    for is_up in [true, false] {
        replace_part(is_up, |part| std::os::unix::fs::chown(part, Some(61_234), None))?;
    }
    Ok(())
}

#[test]
fn as_root_state_in_the_home_of_another_user_is_left_alone() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(FULL_SERVER)?;
    let state = place.at(".local/state/proofload/copy");
    fs::create_dir_all(&state)?;
    symlink(place.at("made"), state.join("id"))?;
    std::os::unix::fs::chown(&state, Some(61_234), None)?;
    fs::write(place.at("source"), contents(3_000_000))?;
    let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
    let (finished, _) = place.copy(&[&source, &format!("any:{target}")])?;
    ensure!(finished.code == Some(0) && fs::read(&target)? == contents(3_000_000), "{}", finished.stderr);
    ensure!(finished.stderr.contains("belongs to user 61234"), "{}", finished.stderr);
    ensure!(!place.at("made").exists() && fs::read_dir(&state)?.count() == 1, "{}", finished.stderr);
    Ok(())
}

#[test]
fn a_part_is_never_more_readable_than_what_it_replaces() -> Result<()> {
    let _shared = beside_others();
    for is_up in [true, false] {
        for bytes in [3_000_000, 1_000] {
            let request = if is_up { WRITE } else { READ };
            let place = Place::acting(request, "stat -c %a to/.proofload-*.part >seen")?;
            fs::create_dir(place.at("to"))?;
            for (name, mode) in [("source", 0o644), ("to/source", 0o600)] {
                fs::write(place.at(name), if mode == 0o644 { contents(bytes) } else { Vec::new() })?;
                fs::set_permissions(place.at(name), fs::Permissions::from_mode(mode))?;
            }
            let [source, target] = ["source", "to/"].map(|name| place.labs.path(name));
            let [from, to] =
                if is_up { [source, format!("any:{target}")] } else { [format!("any:{source}"), target] };
            let (finished, _) = place.copy(&[&from, &to])?;
            let words = format!("{is_up} {bytes}: {}", finished.stderr);
            ensure!(finished.code == Some(0), "{words}");
            ensure!(fs::read_to_string(place.at("seen"))? == "600\n", "{words}");
            ensure!(mode(&place.at("to/source"))? == 0o600, "{words}");
            ensure!(fs::read(place.at("to/source"))? == contents(bytes), "{words}");
        }
    }
    Ok(())
}

#[test]
fn the_next_run_removes_the_parts_of_one_that_was_killed() -> Result<()> {
    let _shared = beside_others();
    for is_up in [true, false] {
        let place = Place::acting(if is_up { WRITE } else { READ }, "ls -A to >names; kill -9 $1")?;
        fs::create_dir(place.at("to"))?;
        fs::write(place.at("source"), contents(1_000))?;
        let [source, target] = ["source", "to/"].map(|name| place.labs.path(name));
        let [from, to] =
            if is_up { [source, format!("any:{target}")] } else { [format!("any:{source}"), target] };
        let (finished, _) = place.copy(&[&from, &to])?;
        ensure!(finished.signal == Some(9) && place.has_parts("to")?, "{is_up} {finished:?}");
        let (finished, _) = place.copy(&[&from, &to])?;
        ensure!(finished.code == Some(0), "{is_up} {}", finished.stderr);
        let names: Vec<_> = fs::read_dir(place.at("to"))?.flatten().map(|entry| entry.file_name()).collect();
        ensure!(names == ["source"], "{is_up} {names:?}");
    }
    Ok(())
}
