//! `proofload copy` from outside: over a real sshd in a lab, and over Debian's sftp-server alone.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::{
        ffi::OsStringExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use proofload_tests::{
    lab::{Labs, SshdFolder},
    process::Finished,
};
use serde_json::Value;
use testing::PATIENCE;

use super::*;

mod hostile;
mod others;
mod places;
mod shells;

/// In the place of `ssh`: Debian's server without a shell, and without the extensions of OpenSSH.
const BARE_SERVER: &str =
    "case \"$*\" in *' sftp') exec /usr/lib/openssh/sftp-server -P fsync,posix-rename,limits;; esac; exit 1";
/// The same with everything, and with a shell.
const FULL_SERVER: &str =
    "case \"$*\" in *' sftp') exec /usr/lib/openssh/sftp-server;; *' exec sh') exec sh;; esac; exit 1";

/// Permissions, time of the last change, and contents or what a link points to, by path.
type Tree = BTreeMap<OsString, (u32, i64, Vec<u8>)>;

/// What there is below a folder.
fn tree(folder: &Path) -> Result<Tree> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            let known = fs::symlink_metadata(&path)?;
            let contents = match () {
                () if known.is_symlink() => fs::read_link(&path)?.into_os_string().into_vec(),
                () if known.is_file() => fs::read(&path)?,
                () => Vec::new(),
            };
            let name = path.strip_prefix(folder)?.as_os_str().to_owned();
            if known.is_dir() {
                folders.push(path);
            }
            // No server sets the times of a link itself.
            let modified_s = if known.is_symlink() { 0 } else { known.mtime() };
            all.insert(name, (known.mode(), modified_s, contents));
        }
    }
    Ok(all)
}

/// Files of all kinds of names and sizes.
fn make_tree(folder: &Path) -> Result<()> {
    let names: [&[u8]; 8] =
        [b"a b", b"-rf", b"new\nline", b"\xff\xfe", b"quote'\"$(x)", b"*", &[b'n'; 255], b".hidden"];
    fs::create_dir_all(folder.join("deep/er"))?;
    fs::create_dir(folder.join("empty folder"))?;
    for (number, name) in names.iter().enumerate() {
        let path = folder.join("deep").join(OsString::from_vec(name.to_vec()));
        fs::write(&path, vec![number as u8; 1 + 1_000 * number])?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + number as u32))?;
    }
    fs::write(folder.join("deep/er/nothing"), "")?;
    let large: Vec<u8> = (0..9_500_000_u32).map(|at| (at / 7) as u8).collect();
    fs::write(folder.join("large"), &large)?;
    let sparse = fs::File::create(folder.join("sparse"))?;
    sparse.set_len(20_000_000)?;
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 10_000_000)?;
    let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    sparse.set_times(old)?;
    Ok(())
}

/// Whether what was written there was compared with what was read here.
fn is_verified(file: &Value) -> bool {
    file["verified"] == "by_checksum" || file["verified"] == "read_back"
}

/// A place with a source, whose `ssh` is a script.
struct Place {
    labs: Labs,
    path: String,
}

impl Place {
    fn new(ssh: &str) -> Result<Self> {
        let labs = Labs::new()?;
        let path = labs.with_ssh(ssh)?;
        Ok(Self { labs, path })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.labs.path(name).into()
    }

    fn copy(&self, words: &[&str]) -> Result<(Finished, Value)> {
        let json = self.labs.path("report.json");
        let launch = self
            .labs
            .command("copy -q --json")?
            .arg(&json)
            .args(words.iter().copied())
            .env("PATH", &self.path);
        let finished = launch.run(PATIENCE)?;
        let report = fs::read_to_string(&json).ok().and_then(|text| serde_json::from_str(&text).ok());
        let _ = fs::remove_file(json);
        Ok((finished, report.unwrap_or_default()))
    }
}

#[test]
fn a_tree_comes_over_a_real_sshd_and_back_as_it_is() -> Result<()> {
    let _shared = beside_others();
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    // Root's own start files have no part in it.
    let lab = "[hosts]\nclient = {}\nserver = {}\n[[links]]\nname = \"wire\"\nbetween = [\"client\", \"server\"]\n\
               delay = \"3ms\"\n[[processes]]\non = \"server\"\nrun = \"sshd\"\nconfig = \"debian\"\n\
               args = [\"-o\", \"SetEnv=HOME=/nonexistent\"]\n";
    let (running, _) = labs.up(&labs.file("lab.toml", lab)?)?;
    let said = running.stdout();
    let folder =
        said.lines().find_map(|line| line.strip_prefix("files and logs in ")).context("no folder")?;
    let source = labs.path("source");
    make_tree(Path::new(&source))?;
    symlink("large", Path::new(&source).join("link"))?;
    fs::create_dir_all(labs.path("up"))?;
    let program = binary()?.display().to_string();
    let copy = |from: &str, to: &str, json: &str| -> Result<Value> {
        let words =
            format!("lab shell client -- {program} copy -F {folder}/ssh_config -rpq --links --json {json}");
        let finished = labs.command(&words)?.args([from, to]).run(PATIENCE)?;
        ensure!(finished.code == Some(0), "{}{}", finished.stdout, finished.stderr);
        Ok(serde_json::from_str(&fs::read_to_string(json)?)?)
    };
    let up = copy(&source, &format!("server:{}", labs.path("up")), &labs.path("up.json"))?;
    let down =
        copy(&format!("server:{}", labs.path("up/source")), &labs.path("down"), &labs.path("down.json"))?;
    labs.down(running)?;
    let truth = tree(Path::new(&source))?;
    for (copied, report) in [("up/source", &up), ("down", &down)] {
        ensure!(tree(Path::new(&labs.path(copied)))? == truth, "{copied} differs");
        let files = report["files"].as_array().context("no files")?;
        ensure!(files.len() == 11, "{report:#}");
        // A file that ends with a hole is read back before it has its size, and any where the shell there is slow.
        ensure!(files.iter().all(is_verified), "{report:#}");
    }
    // Holes stay holes.
    ensure!(fs::metadata(labs.path("down/sparse"))?.blocks() * 512 < 2_000_000, "the hole was filled");
    Ok(())
}

#[test]
fn a_server_without_shell_and_extensions_is_served_as_well() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(BARE_SERVER)?;
    let source = place.at("source");
    make_tree(&source)?;
    // What is there is replaced.
    fs::create_dir_all(place.at("up/deep"))?;
    fs::write(place.at("up/large"), "old")?;
    fs::write(place.at("up/deep/a b"), "old")?;
    let [from, up, down] = ["source/", "up", "down"].map(|name| place.labs.path(name));
    fs::rename(place.at("up"), place.at("up-source"))?;
    fs::create_dir(&up)?;
    fs::rename(place.at("up-source"), place.at("up/source"))?;
    let (finished, report) = place.copy(&["-rp", &from, &format!("any:{up}")])?;
    ensure!(finished.code == Some(0), "{}{report:#}", finished.stderr);
    let (finished, report_down) = place.copy(&["-rp", &format!("any:{up}/source"), &down])?;
    ensure!(finished.code == Some(0), "{}{report_down:#}", finished.stderr);
    let truth = tree(&source)?;
    ensure!(tree(&place.at("up/source"))? == truth && tree(Path::new(&down))? == truth, "a tree differs");
    let all = |report: &Value, how: &str| {
        report["files"].as_array().is_some_and(|files| files.iter().all(|file| file["verified"] == how))
    };
    ensure!(all(&report, "read_back") && all(&report_down, "here_only"), "{report:#}{report_down:#}");
    Ok(())
}

#[test]
fn a_link_in_the_target_leads_nowhere_else() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(FULL_SERVER)?;
    fs::create_dir_all(place.at("source/folder"))?;
    fs::write(place.at("source/folder/new"), "new")?;
    fs::write(place.at("source/file"), "new")?;
    fs::create_dir_all(place.at("target/source"))?;
    fs::create_dir(place.at("victim"))?;
    fs::write(place.at("victim/file"), "old")?;
    symlink(place.at("victim"), place.at("target/source/folder"))?;
    let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
    for (from, to) in [(format!("any:{source}"), target.clone()), (source, format!("any:{target}"))] {
        let _ = fs::remove_file(place.at("target/source/file"));
        symlink(place.at("victim/file"), place.at("target/source/file"))?;
        let (finished, _) = place.copy(&["-r", &from, &to])?;
        let words = format!("{from} {to}: {}", finished.stderr);
        ensure!(finished.code == Some(1) && finished.stderr.contains("cannot make the folder"), "{words}");
        ensure!(fs::read(place.at("target/source/file"))? == b"new", "the link was not replaced: {words}");
        ensure!(
            fs::read(place.at("victim/file"))? == b"old" && !place.at("victim/new").exists(),
            "written through a link: {words}"
        );
    }
    Ok(())
}

#[test]
fn what_cannot_be_copied_is_named_and_the_rest_is_there() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(FULL_SERVER)?;
    let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
    fs::create_dir_all(place.at("source/folder"))?;
    fs::create_dir(&target)?;
    fs::write(place.at("source/good"), "good")?;
    symlink("..", place.at("source/folder/loop"))?;
    symlink("nowhere", place.at("source/dangling"))?;
    let (finished, report) = place.copy(&["-r", &source, &format!("any:{target}")])?;
    ensure!(finished.code == Some(1), "{}", finished.stderr);
    let files = report["files"].as_array().context("files")?;
    for words in ["folder/loop: a link leads back", "dangling: No such file"] {
        ensure!(finished.stderr.contains(words), "{words} is not named: {}", finished.stderr);
        let (name, why) = words.split_once(": ").context("two parts")?;
        let has =
            |file: &Value, key: &str, part: &str| file[key].as_str().is_some_and(|text| text.contains(part));
        let is_listed = files.iter().any(|file| has(file, "source", name) && has(file, "error", why));
        ensure!(is_listed, "{report:#}");
    }
    ensure!(fs::read(place.at("target/source/good"))? == b"good", "what is sound was not copied");
    // No device takes the place of a file, nor a file that of a device.
    let null = place.labs.path("null");
    let made = Launch::new("mknod").words(&format!("{null} c 1 3")).run(PATIENCE)?;
    ensure!(made.code == Some(0), "{made:?}");
    let (finished, _) = place.copy(&[&format!("{source}/good"), &format!("any:{null}")])?;
    ensure!(
        finished.code == Some(2) && finished.stderr.contains("is not a regular file"),
        "{}",
        finished.stderr
    );
    ensure!(!fs::metadata(null)?.is_file(), "the device was replaced");
    for (words, expected) in [
        ([source.as_str(), target.as_str()], "are both on this machine; use cp"),
        (["a:x", "b:y"], "write ./NAME for a file of this machine whose name has a colon"),
        (["-oProxyCommand=x:y", "."], "begins with '-'"),
        ([source.as_str(), "any:/no/such/folder/"], "is not a folder"),
        ([source.as_str(), "any:/no/such/file"], "in a folder that does not exist"),
    ] {
        let (finished, _) = place.copy(&["--", words[0], words[1]])?;
        ensure!(
            finished.code == Some(2) && finished.stderr.contains(expected),
            "{words:?}: {}",
            finished.stderr
        );
    }
    let refused = Place::new("echo 'me@any: Permission denied (publickey).' >&2; exit 255")?;
    let (finished, _) = refused.copy(&[&source, "any:x"])?;
    ensure!(finished.code == Some(2) && finished.stderr.contains("Permission denied"), "{}", finished.stderr);
    Ok(())
}

#[test]
fn habits_of_scp_and_rsync_mean_what_they_mean_there() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(FULL_SERVER)?;
    let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
    for folder in ["source/k", "source/deep/k", "target"] {
        fs::create_dir_all(place.at(folder))?;
    }
    for name in ["source/x[1]", "source/x1", "source/k/inner", "source/deep/k/inner", "source/deep/not_k"] {
        fs::write(place.at(name), name)?;
    }
    fs::set_permissions(place.at("source/x1"), fs::Permissions::from_mode(0o6751))?;
    let beyond = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1 << 33));
    fs::File::options().write(true).open(place.at("source/x1"))?.set_times(beyond)?;
    let names = || -> Result<Vec<String>> {
        let mut names: Vec<_> = tree(&place.at("target"))?.into_keys().collect();
        names.sort();
        fs::remove_dir_all(place.at("target"))?;
        fs::create_dir(place.at("target"))?;
        Ok(names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect())
    };
    // A pattern comes before a name in which only its writer sees one, and a backslash takes a sign for itself.
    for (words, expected) in [("x[1]", "x1"), (r"x\[1\]", "x[1]"), (r"k/inner\", "")] {
        let (finished, _) = place.copy(&[&format!("any:{source}/{words}"), &target])?;
        let copied = names()?;
        ensure!(copied.join(" ") == expected, "{words}: {copied:?} {}", finished.stderr);
    }
    // What a pattern means, and what stands behind it only where it is there; a source that is named twice is one.
    for (words, expected) in
        [("deep/k/inner", "inner"), ("*/inner", "inner"), ("*/no*", "not_k"), ("*/none", "")]
    {
        let source = format!("any:{source}/{words}");
        let (finished, _) = place.copy(&[&source, &source, &target])?;
        let copied = names()?;
        let is_there = finished.code == Some(i32::from(expected.is_empty()));
        ensure!(is_there && copied.join(" ") == expected, "{words}: {copied:?} {}", finished.stderr);
    }
    // One folder gets a new name that ends with '/', and one file does not.
    for (name, code) in [("source/k", 0), ("source/x1", 2)] {
        let new = format!("any:{target}/new/");
        let (finished, _) = place.copy(&["-r", &place.labs.path(name), &new])?;
        ensure!(finished.code == Some(code), "{name}: {}", finished.stderr);
        let expected: &[&str] = if code == 0 { &["new", "new/inner"] } else { &[] };
        ensure!(names()? == expected, "{name}");
    }
    for (word, answer) in [("-v", "ssh -v"), ("-O", "SFTP"), ("-3", "scp -3")] {
        let (finished, _) = place.copy(&[word, "any:a", "."])?;
        ensure!(finished.code == Some(2) && finished.stderr.contains(answer), "{word}: {}", finished.stderr);
    }
    place.copy(&[
        "-r",
        "--exclude",
        "k/",
        "--exclude",
        "./x*",
        &format!("{source}/."),
        &format!("any:{target}"),
    ])?;
    let copied = names()?;
    ensure!(copied == ["deep", "deep/not_k"], "{copied:?}");
    // No program of somebody becomes one that runs as whoever copies; and SFTP ends in 2106.
    for ends in
        [[format!("{source}/x1"), format!("any:{target}")], [format!("any:{source}/x1"), target.clone()]]
    {
        let (finished, report) = place.copy(&["-p", &ends[0], &ends[1]])?;
        let copied = fs::metadata(place.at("target/x1"))?;
        ensure!(finished.code == Some(0) && copied.mode() & 0o7777 == 0o751, "{:o}", copied.mode());
        if ends[1].starts_with("any:") {
            ensure!(copied.mtime() == i64::from(u32::MAX), "{}", copied.mtime());
            ensure!(
                report["warnings"][0].as_str().is_some_and(|text| text.contains("to 2106")),
                "{report:#}"
            );
        }
        names()?;
    }
    // What was copied is there, although nobody hears of it.
    let full =
        place.labs.command("copy --json /dev/full")?.args([format!("{source}/x1"), format!("any:{target}")]);
    let finished = full.env("PATH", &place.path).run(PATIENCE)?;
    ensure!(finished.code == Some(1) && names()? == ["x1"], "{:?} {}", finished.code, finished.stderr);
    let no_sftp = Place::new("echo 'subsystem request failed on channel 0' >&2; exit 255")?;
    let (finished, _) = no_sftp.copy(&[&format!("{source}/x1"), "any:x"])?;
    ensure!(finished.stderr.contains("sshd there has no SFTP"), "{}", finished.stderr);
    Ok(())
}
