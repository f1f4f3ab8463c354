use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    time::SystemTime,
};

use super::*;

/// Answers like the program. It is larger than what a pipe holds.
const FAKE: &str = "#!/bin/sh
case \"$*\" in 'agent --check') exit 0 ;; 'agent --stdio') echo \"agent in $(pwd)\"; cat ;; esac
exit
";
const FAKE_BYTES: usize = 150_000;
const SHELLS: [&[&str]; 4] = [&["sh"], &["dash"], &["bash"], &["busybox", "sh"]];

/// A machine with folders of its own for all places.
struct Place {
    root: tempfile::TempDir,
    home: PathBuf,
    /// Programs that are found before those of this machine.
    programs: PathBuf,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for name in [at("home"), at("programs"), at("var/tmp"), at("dev/shm"), at("run/user").join(uid())] {
            fs::create_dir_all(name).unwrap();
        }
        Self { home: at("home"), programs: at("programs"), root }
    }

    /// A fake program, with a text of its own.
    fn program(&self, text: &str, name: &str) -> Program {
        let path = self.root.path().join(name);
        let padding = format!("# {name}\n").repeat(FAKE_BYTES / (name.len() + 3));
        fs::write(&path, format!("{text}{padding}")).unwrap();
        Program::read(&path).unwrap()
    }

    /// A shell in place of `ssh`.
    fn shell(&self, words: &[&str]) -> Shell<'static> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("HOME", &self.home);
        let mut shell = Shell::open(command, "me@far".to_owned(), testing::PATIENCE, &NEVER).unwrap();
        let root = self.root.path().display();
        let mut script = shell.script.replace("\nPATH=", &format!("\nPATH={root}/programs:"));
        for folder in ["/var/tmp/", "/run/user/", "/dev/shm/"] {
            script = script.replace(&format!("\"{folder}"), &format!("\"{root}{folder}"));
        }
        shell.script = script.into();
        shell
    }

    fn start(&self, program: &Program) -> Result<(bool, PathBuf), String> {
        agent(self.shell(&["sh"]), program, "", "")
    }

    fn var_tmp(&self) -> PathBuf {
        self.root.path().join(format!("var/tmp/proofload-{}", uid()))
    }

    fn cache(&self) -> PathBuf {
        self.home.join(".cache/proofload")
    }

    /// A folder in the cache for this version of the program.
    fn version(&self, sha256: &str) -> PathBuf {
        let version = self.cache().join(sha256);
        fs::create_dir_all(&version).unwrap();
        for folder in [&self.cache(), &version] {
            fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
        }
        version
    }

    /// A program that is found in place of this machine's. Another process writes it: descriptors of this one could be
    /// inherited by children of other tests, and what is open for writing is not executed.
    fn replace(&self, name: &str, text: &str) {
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 700 \"$0\"";
        let written = Command::new("sh").args(["-c", write]).arg(self.programs.join(name)).arg(text).status();
        assert!(written.unwrap().success());
    }
}

/// Starts the agent and exchanges a line with it. Returns whether the program was copied, and the agent's folder.
fn agent(shell: Shell<'_>, program: &Program, user: &str, at: &str) -> Result<(bool, PathBuf), String> {
    let mut started = shell.into_agent(program, user, at)?;
    started.input.write_all(b"ping\n").unwrap();
    drop(started.input);
    let mut said = String::new();
    started.output.read_to_string(&mut said).unwrap();
    let Peer::Child(mut child, _) = started.peer else { panic!("{said}") };
    assert!(child.wait().unwrap().success(), "{said}");
    let folder = said.strip_prefix("agent in ").and_then(|rest| rest.strip_suffix("\nping\n")).unwrap();
    Ok((started.has_copied, folder.into()))
}

fn uid() -> String {
    rustix::process::getuid().as_raw().to_string()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_first_start_copies_and_the_second_does_not_in_any_shell() {
    for words in SHELLS {
        if Command::new(words[0]).args(["-c", "exit"]).stderr(Stdio::null()).status().is_err() {
            testing::skipped("starting an agent", &format!("{} is missing", words[0]));
            continue;
        }
        let place = Place::new();
        let program = place.program(FAKE, "fake");
        let folder = place.cache().join(&program.sha256);
        for has_copied in [true, false] {
            let started = agent(place.shell(words), &program, "", "");
            assert_eq!(started, Ok((has_copied, folder.clone())), "{words:?}");
        }
        assert_eq!(names(&folder), ["proofload"]);
        assert_eq!(fs::read(folder.join("proofload")).unwrap(), fs::read(&program.path).unwrap());
        for path in [&place.cache(), &folder, &folder.join("proofload")] {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
    }
}

#[test]
fn odd_names_and_start_up_files_are_no_hindrance() {
    let mut place = Place::new();
    place.home = place.home.join("a 'b\"\n$(x) `y`\\ *");
    fs::create_dir(&place.home).unwrap();
    let program = place.program(FAKE, "fake");
    let mut shell = place.shell(&["sh"]);
    shell.send(&b"printf 'hello from .profile'; set -euC; umask 000; CDPATH=/; IFS=/\n"[..]).unwrap();
    let started = agent(shell, &program, "", "");
    assert_eq!(started, Ok((true, place.cache().join(&program.sha256))));
    assert_eq!(mode(&place.cache()), 0o700);
    // The folder that was given.
    let given = place.home.join("it's");
    let started = agent(place.shell(&["sh"]), &program, "", given.to_str().unwrap());
    assert_eq!(started, Ok((true, given.join(&program.sha256))));
}

#[test]
fn planted_links_open_folders_and_other_files_are_passed_over() {
    type Plant = fn(&Place, &Program);
    let plants: [(&str, Plant); 5] = [
        ("a link to a folder", |place, _| symlink(place.root.path().join("own"), place.cache()).unwrap()),
        ("a link as a version", |place, program| {
            let version = place.version(&program.sha256);
            fs::remove_dir(&version).unwrap();
            symlink(place.root.path().join("own"), version).unwrap();
        }),
        ("an open folder", |place, _| {
            fs::create_dir(place.cache()).unwrap();
            fs::set_permissions(place.cache(), Permissions::from_mode(0o777)).unwrap();
        }),
        ("a FIFO", |place, _| {
            assert!(Command::new("mkfifo").arg(place.cache()).status().unwrap().success());
        }),
        ("a file", |place, _| fs::write(place.cache(), "x").unwrap()),
    ];
    for (what, plant) in plants {
        let place = Place::new();
        let program = place.program(FAKE, "fake");
        let own = place.root.path().join("own");
        for folder in [&own, &place.home.join(".cache")] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
        }
        plant(&place, &program);
        for has_copied in [true, false] {
            let started = place.start(&program);
            assert_eq!(started, Ok((has_copied, place.var_tmp().join(&program.sha256))), "{what}");
        }
        assert_eq!(names(&own), [""; 0], "{what}");
    }
}

#[test]
fn as_root_a_folder_of_another_user_is_passed_over() {
    let place = Place::new();
    let program = place.program(FAKE, "fake");
    place.version(&program.sha256);
    std::os::unix::fs::chown(place.cache(), Some(65_534), Some(65_534)).unwrap();
    assert_eq!(place.start(&program), Ok((true, place.var_tmp().join(&program.sha256))));
}

#[test]
fn only_a_file_with_the_checksum_is_executed() {
    type Plant = fn(&Path);
    let plants: [(&str, Plant); 4] = [
        ("another program", |path| {
            fs::write(path, "#!/bin/sh\necho evil\n").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        }),
        ("a folder", |path| fs::create_dir(path).unwrap()),
        ("a FIFO", |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())),
        ("a link", |path| symlink("/bin/sh", path).unwrap()),
    ];
    for (what, plant) in plants {
        let place = Place::new();
        let program = place.program(FAKE, "fake");
        let folder = place.version(&program.sha256);
        plant(&folder.join("proofload"));
        assert_eq!(place.start(&program), Ok((true, folder.clone())), "{what}");
        assert_eq!(names(&folder), ["proofload"], "{what}");
        assert!(fs::symlink_metadata(folder.join("proofload")).unwrap().is_file(), "{what}");
    }
}

#[test]
fn a_copy_that_is_cut_off_or_damaged_leaves_nothing() {
    let place = Place::new();
    let program = place.program(FAKE, "fake");
    let folder = place.cache().join(&program.sha256);
    let size = program.size_bytes.to_string();
    let sent = fs::read(&program.path).unwrap();
    let mut damaged = sent.clone();
    damaged[FAKE_BYTES / 2] ^= 1;
    for bytes in [&sent[..FAKE_BYTES / 2], &damaged[..]] {
        let mut shell = place.shell(&["sh"]);
        shell.call("start", &[&program.sha256, &size, &own_system(), "", ""]).unwrap();
        assert_eq!(shell.answer().unwrap(), "need");
        shell.send(bytes).unwrap();
        let Shell { mut child, input, mut output, mark, .. } = shell;
        drop(input);
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(said.trim(), format!("{mark} refused damaged"));
        assert_eq!(names(&folder), [""; 0]);
    }
    // What copies left whose shells were killed.
    for (name, age_s) in [("new-old", 2 * 86_400), ("new-recent", 60)] {
        fs::write(folder.join(name), "#!/bin/sh\n").unwrap();
        let written = SystemTime::now() - Duration::from_secs(age_s);
        File::options().write(true).open(folder.join(name)).unwrap().set_modified(written).unwrap();
    }
    assert_eq!(place.start(&program), Ok((true, folder.clone())));
    assert_eq!(names(&folder), ["new-recent", "proofload"]);
}

#[test]
fn a_program_that_runs_nowhere_is_left_nowhere() {
    let place = Place::new();
    let program = place.program("#!/bin/sh\necho no way >&2\nexit 3\n", "fake");
    let why = place.start(&program).unwrap_err();
    for part in ["does not run in it", ".cache/proofload (no way)", "/dev/shm/proofload-", "--remote-path"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // No room: each time, the shell has to take the whole program off its input.
    let program = place.program(FAKE, "fake");
    let shell = place.shell(&["sh", "-c", "ulimit -c 0; ulimit -f 16; exec sh"]);
    let why = agent(shell, &program, "", "").unwrap_err();
    assert_eq!(why.matches("not enough room").count(), 4, "{why}");
    for folder in
        [place.home.join(".cache"), place.root.path().join("var/tmp"), place.root.path().join("dev/shm")]
    {
        assert_eq!(names(&folder), [""; 0]);
    }
}

#[test]
fn the_last_two_versions_are_kept_and_those_that_run() {
    let place = Place::new();
    let [first, second, third] = ["first", "second", "third"].map(|name| place.program(FAKE, name));
    // A program that runs: a shell, which another process copies, as in `replace`.
    let running = place.version(&"a".repeat(64));
    let copied = Command::new("cp").args(["-L", "/bin/sh"]).arg(running.join("proofload")).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(running.join("proofload"));
    let mut runs = command.args(["-c", "read x"]).stdin(Stdio::piped()).spawn().unwrap();
    let used = |folder: &Path, at_s: u64| {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at_s);
        File::open(folder).unwrap().set_modified(at).unwrap();
    };
    used(&running, 1_000);
    for (at_s, program) in [(2_000, &first), (3_000, &second)] {
        place.start(program).unwrap();
        used(&place.cache().join(&program.sha256), at_s);
    }
    fs::create_dir(place.cache().join("of-the-user")).unwrap();
    place.start(&third).unwrap();
    let mut kept = vec!["a".repeat(64), second.sha256, third.sha256.clone(), "of-the-user".to_owned()];
    kept.sort();
    assert_eq!(names(&place.cache()), kept);
    drop(runs.stdin.take());
    runs.wait().unwrap();
    place.start(&third).unwrap();
    assert!(!running.exists());
}

#[test]
fn only_own_copies_are_removed() {
    let place = Place::new();
    let program = place.program(FAKE, "fake");
    let other = place.root.path().join("other").join("b".repeat(64));
    fs::create_dir_all(&other).unwrap();
    fs::set_permissions(place.root.path().join("other"), Permissions::from_mode(0o700)).unwrap();
    let (_, folder) = place.start(&program).unwrap();
    fs::write(place.cache().join("notes"), "of the user").unwrap();
    symlink(place.root.path().join("other"), place.var_tmp()).unwrap();
    let in_memory = place.root.path().join(format!("dev/shm/proofload-{}", uid()));
    fs::create_dir_all(in_memory.join("c".repeat(64))).unwrap();
    fs::set_permissions(&in_memory, Permissions::from_mode(0o700)).unwrap();
    let removed = |place: &Place| {
        let mut shell = place.shell(&["sh"]);
        let removed = shell.remove_copies("", "");
        shell.end();
        removed.unwrap()
    };
    let folders = [folder, in_memory.join("c".repeat(64))].map(|folder| folder.display().to_string());
    assert_eq!(removed(&place), folders);
    assert_eq!(names(&place.cache()), ["notes"]);
    assert!(other.exists() && !in_memory.exists());
    assert_eq!(removed(&place), [""; 0]);
    assert!(fs::symlink_metadata(place.var_tmp()).unwrap().is_symlink());
}

#[test]
fn a_refusal_says_what_to_do() {
    let place = Place::new();
    let program = place.program(FAKE, "fake");
    let of = |user: &str| agent(place.shell(&["sh"]), &program, user, "");
    let refused = |user: &str, words: &str| {
        let why = of(user).unwrap_err();
        assert!(why.contains(words), "{words}: {why}");
    };
    place.replace("sudo", "echo 'sudo: a password is required' >&2; exit 1");
    refused("boss", "(sudo: a password is required); allow it with NOPASSWD");
    place.replace("sudo", "echo 65533");
    refused("boss", "become root, or log in as boss");
    place.replace("uname", "echo Plan9 z80");
    refused("", "the machine is Plan9 z80");
    assert_eq!((names(&place.home), names(&place.root.path().join("var/tmp"))), (vec![], vec![]));
    fs::remove_file(place.programs.join("uname")).unwrap();
    // A login that may become root.
    let sudo = "[ \"$1 $2 $3 $4\" = '-n -u boss --' ] || exit 9
        shift 4; [ \"$*\" = 'id -u' ] && exec echo 0; exec \"$@\"";
    place.replace("sudo", sudo);
    assert_eq!(of("boss"), Ok((true, place.cache().join(&program.sha256))));
    for path in ["opt", "", "/", "~/x", "/a\nb"] {
        assert!(checked(Some(path)).unwrap_err().contains("absolute path"), "{path:?}");
    }
    assert_eq!((checked(Some("/opt/x/")), checked(None)), (Ok("/opt/x"), Ok("")));
}

#[test]
fn a_login_that_fails_says_why() {
    let place = Place::new();
    let program = place.program(FAKE, "fake");
    for (login, words) in [
        (
            "echo 'ssh: connect to host far: Connection refused' >&2",
            "ssh: connect to host far: Connection refused",
        ),
        ("echo 'This account is not available.'", "This account is not available"),
        ("exit 255", "ssh has ended"),
    ] {
        let why = agent(place.shell(&["sh", "-c", login]), &program, "", "").unwrap_err();
        assert_eq!(why, format!("cannot log in: {words}; `ssh me@far true` must work without a password"));
    }
    // A login that says nothing, until the user stops it.
    let stop = AtomicBool::new(false);
    let silent = |wait| {
        let mut command = Command::new("sh");
        command.args(["-c", "exec sleep 600"]);
        Shell::open(command, "me@far".to_owned(), wait, &stop)
            .unwrap()
            .into_agent(&program, "", "")
            .map(drop)
            .unwrap_err()
    };
    let why = silent(Duration::ZERO);
    assert!(why.starts_with("cannot log in: no answer for 0 s"), "{why}");
    stop.store(true, Ordering::Relaxed);
    assert!(silent(testing::PATIENCE).starts_with("stopped"));
}

#[test]
fn the_own_program_is_read_whole() {
    let own = Program::own().unwrap();
    let size_bytes = fs::metadata(env::current_exe().unwrap()).unwrap().len();
    assert_eq!((own.size_bytes, own.sha256.len()), (size_bytes, 64));
    let empty = Program::read(Path::new("/dev/null")).unwrap();
    assert_eq!(empty.sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
