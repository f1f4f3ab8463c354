use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use super::*;

#[test]
fn nothing_leaves_the_folder_and_no_link_is_followed() {
    let place = tempfile::tempdir().unwrap();
    let [inside, outside] = ["inside", "outside"].map(|name| place.path().join(name));
    fs::create_dir(&inside).unwrap();
    fs::write(&outside, "secret").unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    symlink(place.path(), inside.join("up")).unwrap();
    let folder = Folder::open(&inside, Trust::OwnersOnly).unwrap();
    for name in ["link", "up/outside", "../outside", "/etc/passwd"] {
        assert!(folder.file(name, OFlags::RDONLY).is_err(), "{name}");
        assert!(folder.create(name, 0o600).is_err(), "{name}");
    }
    folder.replace("link", 0o600, b"ours").unwrap();
    assert_eq!(fs::read(&outside).unwrap(), b"secret");
    assert_eq!(fs::read(inside.join("link")).unwrap(), b"ours");
    assert!(folder.remove("../outside").is_err() || outside.exists());
    // After the rename, the descriptor still refers to the folder that was checked.
    let moved = place.path().join("moved");
    fs::rename(&inside, &moved).unwrap();
    folder.create("new", 0o600).unwrap();
    assert!(moved.join("new").exists() && folder.has("new") && !folder.has("other"));
}

#[test]
fn folders_and_files_of_others_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("kept");
    let folder = Folder::make(&path, Trust::Private).unwrap();
    drop(folder.create("file", 0o600).unwrap());
    assert!(folder.kept("file", OFlags::RDONLY).is_ok());
    fs::hard_link(path.join("file"), path.join("second")).unwrap();
    assert!(folder.kept("file", OFlags::RDONLY).unwrap_err().to_string().contains("second hard link"));
    fs::remove_file(path.join("second")).unwrap();
    fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(folder.kept("file", OFlags::RDONLY).unwrap_err().to_string().contains("other users"));

    assert!(!folder.is_shared().unwrap());
    for (mode, is_private, is_owners) in [(0o755, false, true), (0o775, false, false), (0o1777, false, false)]
    {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Folder::open(&path, Trust::Private).is_ok(), is_private, "{mode:o}");
        assert_eq!(Folder::open(&path, Trust::OwnersOnly).is_ok(), is_owners, "{mode:o}");
        assert!(Folder::open(&path, Trust::Anybody).is_ok());
    }
    assert!(folder.is_shared().unwrap());
    symlink(&path, place.path().join("link")).unwrap();
    assert!(Folder::open(&place.path().join("link"), Trust::OwnersOnly).is_err());
}

#[test]
fn a_new_folder_is_new_and_an_own_one_is_taken() {
    let place = tempfile::tempdir().unwrap();
    // With a umask of 002, the user's group may write to the user's new folders.
    let path = place.path().join("a");
    drop(Folder::make_new(&path).unwrap());
    assert_eq!(Folder::make_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o2775)).unwrap();
    let folder = Folder::take(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o2755);
    assert!(folder.names().unwrap().is_empty());
    drop(folder.create("x", 0o600).unwrap());
    assert_eq!(folder.names().unwrap(), ["x"]);
    symlink(&path, place.path().join("link")).unwrap();
    assert!(Folder::take(&place.path().join("link")).is_err());
    assert!(Folder::make_new(&place.path().join("link")).is_err());
}

#[test]
fn as_root_another_users_folder_and_file_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("kept");
    let folder = Folder::make(&path, Trust::Private).unwrap();
    drop(folder.create("file", 0o600).unwrap());
    std::os::unix::fs::chown(path.join("file"), Some(61_234), None).unwrap();
    assert!(folder.kept("file", OFlags::RDONLY).unwrap_err().to_string().contains("belongs to user 61234"));
    std::os::unix::fs::chown(&path, Some(61_234), None).unwrap();
    assert!(Folder::take(&path).unwrap_err().to_string().contains("belongs to user 61234"));
    for trust in [Trust::Private, Trust::OwnersOnly] {
        assert!(Folder::open(&path, trust).unwrap_err().to_string().contains("belongs to user 61234"));
    }
}
