use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::Path,
    process::Stdio,
};

use super::*;

fn shell() -> Command {
    let mut command = Command::new("sh");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    command
}

#[test]
fn a_shell_whose_dd_waits_for_a_fifo_ends_with_its_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // A `dd` without `iflag`, like that of busybox. It finds a FIFO instead of the file.
        let dd = "#!/bin/sh\ncase $1 in iflag=*) exit 1 ;; esac\nrm -f FILE && mkfifo FILE && touch FILE.there\nexec cat FILE\n";
        let file = at("file");
        std::fs::write(at("dd"), dd.replace("FILE", &file.display().to_string())).unwrap();
        std::fs::set_permissions(at("dd"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(&file, "x").unwrap();
        // Like a server, this starts the shell in a new session and waits for it.
        let mut server = Command::new("sh");
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        server.args(["-c", "exec 3<&0; setsid sh <&3 3<&- & echo $! >\"$0\"; wait"]).arg(at("pid")).env("PATH", path);
        server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let hasher = Rc::new(Hasher::start(server).await.unwrap());
        let hash = spawn_local({
            let (hasher, file) = (Rc::clone(&hasher), file.clone());
            async move { hasher.hash(file.as_os_str().as_bytes(), None).await }
        });
        let until = async |what: &dyn Fn() -> bool| {
            while !what() {
                sleep(LOOK_AGAIN).await;
            }
        };
        until(&|| file.with_extension("there").exists()).await;
        let shell = std::fs::read_to_string(at("pid")).unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", shell.trim())).unwrap_or_default();
        let parent = stat().rsplit(' ').nth(48).unwrap().to_owned();
        assert!(std::process::Command::new("kill").args(["-KILL", &parent]).status().unwrap().success());
        // The output ends only when all processes that have it open are gone.
        assert_eq!(timeout(Duration::from_secs(300), hash).await.unwrap().unwrap(), None);
        until(&|| stat().is_empty() || stat().contains(") Z ")).await;
    });
}

#[test]
fn a_shell_hashes_files_of_any_name() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let folder = tempfile::tempdir().unwrap();
        let hasher = Hasher::start(shell()).await.unwrap();
        let contents: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 1_000) as u8).collect();
        for name in ["a", "a b", "a'b", "a\nb", "-a", "$(x)", "a\\b", "\u{e9}"] {
            let path = folder.path().join(OsStr::from_bytes(name.as_bytes()));
            std::fs::write(&path, &contents).unwrap();
            let path = path.as_os_str().as_bytes();
            assert_eq!(
                hasher.hash(path, None).await,
                Some(Sum::of(&mut contents.clone()).to_string()),
                "{name}"
            );
            let part = Some((2 << 20, 2 << 20));
            let of_part = Sum::of(&mut contents[2 << 20..4 << 20].to_vec()).to_string();
            assert_eq!(hasher.hash(path, part).await, Some(of_part), "{name}");
        }
        assert_eq!(hasher.hash(b"/no/such/file", None).await, None);
        // A file of another type than a regular file does not block the shell.
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for other in [fifo.as_path(), folder.path(), Path::new("/dev/null")] {
            for part in [None, Some((0, 5))] {
                assert_eq!(hasher.hash(other.as_os_str().as_bytes(), part).await, None, "{other:?}");
            }
        }
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        assert!(hasher.hash(empty.as_os_str().as_bytes(), None).await.is_some());
        let mut none = Command::new("false");
        none.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        assert!(Hasher::start(none).await.is_none());
    });
}
