//! Servers that lose answers, lie, or have little room, in front of Debian's sftp-server.

use super::*;

/// Stands between the client and the server. Arguments: what it does, a folder that remembers what was done once, and what follows for
/// the server.
const FILTER: &str = r#"
import glob, os, struct, subprocess, sys, threading, time
mode, folder = sys.argv[1:3]
server = subprocess.Popen(["/usr/lib/openssh/sftp-server"] + sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
asked = {}
lock = threading.Lock()
def string(text): return struct.pack(">I", len(text)) + text
def packets(stream):
    while head := stream.read(4): yield stream.read(struct.unpack(">I", head)[0])
def send(stream, packet): stream.write(string(packet)); stream.flush()
def answer(packet):
    with lock: send(sys.stdout.buffer, packet)
def once():
    try: os.mkdir(folder + "/once")
    except FileExistsError: return False
    return True
passed = 0
def passes(packet):
    global passed
    passed += len(packet)
    if mode == "brief" and passed > 8_000_000: once(); os._exit(0)
    # Stands still once chunks have arrived, until it is told to go.
    if mode == "stall" and not os.path.exists(folder + "/go") and has_chunks():
        while not os.path.exists(folder + "/go"): time.sleep(0.01)
        os._exit(0)
def has_chunks():
    journals = glob.glob(folder + "/.local/state/proofload/copy/*.journal")
    return any(open(journal).read().count("\n") >= 4 for journal in journals)
def strings(rest):
    found = []
    while len(rest) >= 4:
        end = 4 + struct.unpack(">I", rest[:4])[0]
        found.append(rest[4:end]); rest = rest[end:]
    return found
def is_naming(packet):
    posix = packet[0] == 200 and packet[9:].startswith(b"posix-rename")
    words = strings(packet[5:]) if packet[0] == 18 or posix else [b"", b""]
    return words[-2].endswith(b".part") and not words[-1].endswith(b".old")
def requests():
    for packet in packets(sys.stdin.buffer):
        if packet[0] != 1: asked[packet[1:5]] = packet
        if mode == "refuse-name" and is_naming(packet):
            answer(b"\x65" + packet[1:5] + struct.pack(">I", 4) + string(b"no") + string(b""))
            continue
        path = strings(packet[5:])[:1] if len(packet) > 9 else []
        is_forbidden = packet[0] == 17 and path[0].endswith(b"forbidden")
        sets = packet[0] in (9, 10) or packet[0] == 200 and packet[9:].startswith(b"lsetstat")
        if mode == "refuse" and (sets or is_forbidden):
            answer(b"\x65" + packet[1:5] + struct.pack(">I", 3) + string(b"Permission denied") + string(b""))
            continue
        if mode == "deny" and packet[0] == 3:
            answer(b"\x65" + packet[1:5] + struct.pack(">I", 3) + string(b"Permission denied") + string(b""))
            continue
        if mode == "replace" and packet[0] == 3 and path[0].endswith(b"source") and not once():
            try: os.replace(folder + "/new", path[0])
            except FileNotFoundError: pass
        while mode == "replace" and packet[0] == 5 and os.path.exists(folder + "/new"): time.sleep(0.01)
        # Somebody else does something at this moment.
        if mode == "act-%d" % packet[0] and once():
            subprocess.run(["sh", folder + "/act", str(os.getppid())], check=True)
        passes(packet)
        if mode == "die-before-name" and is_naming(packet) and once():
            server.stdin.close(); server.wait(); os._exit(0)
        send(server.stdin, packet)
    server.stdin.close()
threading.Thread(target=requests, daemon=True).start()
for packet in packets(server.stdout):
    request = asked.pop(packet[1:5], b"\0") if packet[0] != 2 else b"\0"
    if mode == "lose-name" and is_naming(request) and once(): os._exit(0)
    if packet[0] == 103 and mode in ("short", "long"):
        data = packet[9:]
        packet = packet[:5] + string(data[:max(1, len(data) // 2)] if mode == "short" else data + b"more")
    if packet[0] == 105 and mode in ("larger", "smaller") and packet[8] & 1 and packet[9:17] > struct.pack(">Q", 99000):
        size = struct.unpack(">Q", packet[9:17])[0] + (50000 if mode == "larger" else -50000)
        packet = packet[:9] + struct.pack(">Q", size) + packet[17:]
    if packet[0] == 104 and mode == "names" and request[0] == 12:
        odd = [b"", b"a/b", b"..", b"../../evil", b"/evil", b"nul\0nul"]
        more = b"".join(string(name) + string(b"") + struct.pack(">II", 4, 0o100644) for name in odd)
        packet = packet[:5] + struct.pack(">I", struct.unpack(">I", packet[5:9])[0] + len(odd)) + packet[9:] + more
    passes(packet)
    answer(packet)
"#;

impl Place {
    /// A server behind the filter; with a shell, if it is to have one.
    pub(super) fn hostile(mode: &str, server: &str, has_shell: bool) -> Result<Self> {
        let labs = Labs::new()?;
        let (filter, folder) = (labs.file("filter.py", FILTER)?, labs.path(""));
        let shell = match mode {
            // One that ends after some commands.
            "brief" => "*' exec sh') sed -u 40q | sh;;",
            _ if has_shell => "*' exec sh') exec sh;;",
            _ => "",
        };
        let path = labs.with_ssh(&format!(
            "case \"$*\" in *' sftp') exec python3 {filter} {mode} {folder} {server};; {shell} esac; exit 1"
        ))?;
        Ok(Self { labs, path })
    }

    pub(super) fn has_parts(&self, folder: &str) -> Result<bool> {
        let mut names = fs::read_dir(self.at(folder))?.flatten().map(|entry| entry.file_name());
        Ok(names.any(|name| name.to_string_lossy().contains(".part")))
    }
}

pub(super) fn contents(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at / 17) as u8).collect()
}

const WITHOUT_POSIX_RENAME: &str = "-P posix-rename";
const WITHOUT_EXTENSIONS: &str = "-P fsync,posix-rename,limits";

#[test]
fn a_name_whose_answer_is_lost_is_not_given_twice() -> Result<()> {
    let _shared = beside_others();
    for (mode, server) in [
        ("lose-name", ""),
        ("lose-name", WITHOUT_POSIX_RENAME),
        ("die-before-name", ""),
        ("die-before-name", WITHOUT_POSIX_RENAME),
    ] {
        // Two connections share the chunks of the large one.
        for bytes in [20_000_000, 1_000] {
            let place = Place::hostile(mode, server, false)?;
            fs::write(place.at("source"), contents(bytes))?;
            fs::create_dir(place.at("there"))?;
            fs::write(place.at("there/target"), "old")?;
            let [source, target] = ["source", "there/target"].map(|name| place.labs.path(name));
            let (finished, report) =
                place.copy(&["--connections", "2", &source, &format!("any:{target}")])?;
            let there: Vec<_> =
                fs::read_dir(place.at("there"))?.flatten().map(|entry| entry.file_name()).collect();
            let words = format!("{mode} {server} {bytes}: {there:?} {}{report:#}", finished.stderr);
            ensure!(finished.code == Some(0), "{words}");
            ensure!(fs::read(target)? == contents(bytes), "the target differs: {words}");
            ensure!(place.at("once").exists() && !place.has_parts("there")?, "{words}");
        }
    }
    Ok(())
}

#[test]
fn an_old_file_outlives_a_new_one_that_cannot_get_its_name() -> Result<()> {
    let _shared = beside_others();
    for bytes in [5_000_000, 1_000] {
        let place = Place::hostile("refuse-name", WITHOUT_POSIX_RENAME, false)?;
        fs::write(place.at("source"), contents(bytes))?;
        fs::create_dir(place.at("there"))?;
        fs::write(place.at("there/target"), "old")?;
        let [source, target] = ["source", "there/target"].map(|name| place.labs.path(name));
        let (finished, _) = place.copy(&["--no-resume", &source, &format!("any:{target}")])?;
        ensure!(
            finished.code == Some(1) && finished.stderr.contains("the server says 'no'"),
            "{}",
            finished.stderr
        );
        ensure!(fs::read(target)? == b"old" && !place.has_parts("there")?, "the old file is gone");
    }
    Ok(())
}

#[test]
fn what_a_server_reads_is_taken_for_what_it_is() -> Result<()> {
    let _shared = beside_others();
    // What is shorter than asked for is asked for again; what is not as it was listed fails.
    for (mode, has_shell, why) in [
        ("short", false, None),
        ("long", false, Some("wrong kind of answer")),
        ("larger", true, Some("the source changed")),
        ("smaller", true, Some("differs from the data read")),
    ] {
        for bytes in [5_000_000, 100_000] {
            let place = Place::hostile(mode, "", has_shell)?;
            fs::write(place.at("source"), contents(bytes))?;
            let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
            let (finished, _) = place.copy(&["--no-resume", &format!("any:{source}"), &target])?;
            let words = format!("{mode} {bytes}: {}", finished.stderr);
            match why {
                None => ensure!(finished.code == Some(0) && fs::read(target)? == contents(bytes), "{words}"),
                Some(why) => ensure!(
                    finished.code == Some(1) && finished.stderr.contains(why) && !place.at("target").exists(),
                    "{words}"
                ),
            }
            ensure!(!place.has_parts("")?, "{words}");
        }
    }
    Ok(())
}

#[test]
fn names_that_lead_elsewhere_are_left_out() -> Result<()> {
    let _shared = beside_others();
    let place = Place::hostile("names", "", false)?;
    fs::create_dir_all(place.at("source"))?;
    fs::write(place.at("source/good"), "good")?;
    fs::create_dir_all(place.at("a/b"))?;
    let [source, target] = ["source", "a/b/target"].map(|name| place.labs.path(name));
    let (finished, report) = place.copy(&["-r", &format!("any:{source}"), &target])?;
    ensure!(finished.code == Some(1), "{}", finished.stderr);
    for name in ["''", "'a/b'", "'../../evil'", "'/evil'", r"'nul\u{0}nul'"] {
        ensure!(
            finished.stderr.contains(&format!("a file {name}, which is not a valid file name")),
            "{}",
            finished.stderr
        );
    }
    let copied = |files: &Vec<Value>| files.iter().filter(|file| file["error"].is_null()).count();
    ensure!(report["files"].as_array().map(copied) == Some(1), "{report:#}");
    ensure!(fs::read(place.at("a/b/target/good"))? == b"good", "what is sound is not there");
    ensure!(tree(&place.at("a"))?.len() == 3, "something lies elsewhere");
    Ok(())
}

#[test]
fn a_server_that_opens_few_files_is_served_as_well() -> Result<()> {
    let _shared = beside_others();
    let place = Place::new(
        "ulimit -n 80; case \"$*\" in *' sftp') exec /usr/lib/openssh/sftp-server;; esac; exit 1",
    )?;
    fs::create_dir(place.at("source"))?;
    for number in 0..150 {
        fs::create_dir(place.at(&format!("source/folder-{number}")))?;
        // Large ones, of holes: each is opened on every channel that carries some of it.
        fs::File::create(place.at(&format!("source/folder-{number}/file")))?.set_len(2_100_000)?;
    }
    let source = place.labs.path("source");
    let (finished, _) = place.copy(&["-rp", &source, &format!("any:{}", place.labs.path("up"))])?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    let (finished, _) = place.copy(&["-rp", &format!("any:{source}"), &place.labs.path("down")])?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    let truth = tree(&place.at("source"))?;
    ensure!(tree(&place.at("up"))? == truth && tree(&place.at("down"))? == truth, "a tree differs");
    Ok(())
}

#[test]
fn a_source_that_another_file_replaces_is_never_mixed_with_it() -> Result<()> {
    let _shared = beside_others();
    // All channels but the first open the new file, and the first reads nothing before.
    let place = Place::hostile("replace", "", false)?;
    fs::write(place.at("source"), contents(20_000_000))?;
    fs::write(place.at("new"), vec![7; 20_000_000])?;
    let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    fs::File::options().write(true).open(place.at("new"))?.set_times(old)?;
    let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
    let (finished, report) = place.copy(&["--connections", "2", &format!("any:{source}"), &target])?;
    let words = format!("{}{report:#}", finished.stderr);
    ensure!(!place.at("new").exists(), "only one channel has opened the source: {words}");
    ensure!(finished.code == Some(1) && finished.stderr.contains("the source changed"), "{words}");
    ensure!(!place.at("target").exists() && !place.has_parts("")?, "{words}");
    Ok(())
}

#[test]
fn what_a_server_refuses_costs_nothing_else() -> Result<()> {
    let _shared = beside_others();
    let place = Place::hostile("refuse", "", false)?;
    fs::create_dir(place.at("source"))?;
    fs::create_dir(place.at("down"))?;
    for name in ["source/good", "source/large", "forbidden"] {
        fs::write(place.at(name), contents(if name.ends_with("large") { 5_000_000 } else { 1_000 }))?;
    }
    symlink("good", place.at("source/forbidden"))?;
    let [source, forbidden, down, up] =
        ["source", "forbidden", "down", "up"].map(|name| place.labs.path(name));
    let (finished, _) = place.copy(&["-r", &format!("any:{forbidden}"), &format!("any:{source}"), &down])?;
    ensure!(finished.code == Some(1), "{}", finished.stderr);
    for path in [&forbidden, &format!("{source}/forbidden")] {
        let words = format!("{path}: the server says 'Permission denied'");
        ensure!(finished.stderr.contains(&words), "{words} is not said: {}", finished.stderr);
    }
    ensure!(fs::read(place.at("down/source/large"))? == contents(5_000_000), "the rest is not there");
    ensure!(fs::read(place.at("down/source/good"))? == contents(1_000), "the rest is not there");
    // Attributes that it does not set are worth a warning, as to scp.
    fs::remove_file(place.at("source/forbidden"))?;
    let (finished, _) = place.copy(&["-rp", &source, &format!("any:{up}")])?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    ensure!(finished.stderr.contains("warning: ") && finished.stderr.contains("up/large: cannot set times"));
    ensure!(fs::read(place.at("up/large"))? == contents(5_000_000), "the large file is not there");
    Ok(())
}

#[test]
fn what_an_earlier_run_has_brought_is_not_taken_unseen_for_another_source() -> Result<()> {
    let _shared = beside_others();
    let place = Place::hostile("stall", WITHOUT_EXTENSIONS, false)?;
    fs::write(place.at("source"), contents(60_000_000))?;
    let [source, target] = [format!("any:{}", place.labs.path("source")), place.labs.path("target")];
    kill_with_chunks(&place, [&source, &target])?;
    let modified = fs::metadata(place.at("source"))?.modified()?;
    fs::write(place.at("source"), vec![7; 60_000_000])?;
    let times = fs::FileTimes::new().set_modified(modified);
    fs::File::options().write(true).open(place.at("source"))?.set_times(times)?;
    let (finished, report) = place.copy(&[&source, &target])?;
    ensure!(finished.code == Some(0), "{}{report:#}", finished.stderr);
    ensure!(fs::read(target)? == vec![7; 60_000_000], "old chunks are in the target: {report:#}");
    Ok(())
}

#[test]
fn a_hole_is_written_over_what_an_earlier_run_has_brought() -> Result<()> {
    let _shared = beside_others();
    let place = Place::hostile("stall", WITHOUT_EXTENSIONS, false)?;
    fs::write(place.at("source"), contents(60_000_000))?;
    let [source, target] = [place.labs.path("source"), format!("any:{}", place.labs.path("target"))];
    kill_with_chunks(&place, [&source, &target])?;
    let modified = fs::metadata(&source)?.modified()?;
    let hole = fs::File::create(&source)?;
    hole.set_len(60_000_000)?;
    hole.set_times(fs::FileTimes::new().set_modified(modified))?;
    let (finished, report) = place.copy(&["--no-verify", &source, &target])?;
    ensure!(finished.code == Some(0), "{}{report:#}", finished.stderr);
    ensure!(fs::read(place.at("target"))? == vec![0; 60_000_000], "old bytes are in the target: {report:#}");
    Ok(())
}

/// The journals of copies.
fn journals(place: &Place) -> Vec<PathBuf> {
    let state = fs::read_dir(place.at(".local/state/proofload/copy")).into_iter().flatten().flatten();
    let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal");
    state.map(|entry| entry.path()).filter(is_journal).collect()
}

/// Begins a copy by a server that stands still once chunks have arrived, and kills it then.
pub(super) fn kill_with_chunks(place: &Place, ends: [&String; 2]) -> Result<()> {
    let mut copy = place.labs.command("copy -q")?.args(ends).env("PATH", &place.path).start()?;
    let has_chunks = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.lines().count() >= 4);
    until("chunks have arrived", || journals(place).iter().any(has_chunks));
    copy.signal(Signal::KILL);
    copy.wait(PATIENCE)?.context("the copy does not end")?;
    Ok(fs::write(place.at("go"), "")?)
}

#[test]
fn a_copy_that_was_killed_goes_on_where_it_stopped() -> Result<()> {
    let _shared = beside_others();
    for is_up in [true, false] {
        let place = Place::hostile("stall", "", true)?;
        fs::write(place.at("source"), contents(60_000_000))?;
        let [source, target] = ["source", "target"].map(|name| place.labs.path(name));
        let [from, to] =
            if is_up { [source, format!("any:{target}")] } else { [format!("any:{source}"), target] };
        kill_with_chunks(&place, [&from, &to])?;
        ensure!(!place.at("target").exists(), "a part has the name of the whole");
        let (finished, report) = place.copy(&[&from, &to])?;
        ensure!(finished.code == Some(0), "{}{report:#}", finished.stderr);
        let resumed = report["files"][0]["resumed_bytes"].as_u64().unwrap_or(0);
        ensure!((8_000_000..60_000_000).contains(&resumed), "{report:#}");
        ensure!(fs::read(place.at("target"))? == contents(60_000_000), "the target differs");
        ensure!(journals(&place).is_empty() && !place.has_parts("")?, "a journal or a part is left");
    }
    Ok(())
}

#[test]
fn a_copy_outlives_connections_that_end_and_others_to_the_same_place() -> Result<()> {
    let _shared = beside_others();
    // Each channel carries a part: six of them less than the whole.
    let place = Place::hostile("brief", "", true)?;
    fs::write(place.at("source"), contents(60_000_000))?;
    let [source, target] = [place.labs.path("source"), format!("any:{}", place.labs.path("target"))];
    let start = || place.labs.command("copy -q")?.args([&source, &target]).env("PATH", &place.path).start();
    for copy in [start()?, start()?] {
        let finished = copy.finish(PATIENCE)?;
        ensure!(finished.code == Some(0), "{}", finished.stderr);
        ensure!(fs::read(place.at("target"))? == contents(60_000_000), "the target differs");
    }
    ensure!(place.at("once").exists(), "no connection has ended");
    let (finished, report) = place.copy(&[&format!("any:{source}"), &place.labs.path("down")])?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    ensure!(is_verified(&report["files"][0]), "{report:#}");
    ensure!(fs::read(place.at("down"))? == contents(60_000_000), "the target differs");
    ensure!(!place.has_parts("")?, "a part is left");
    Ok(())
}
