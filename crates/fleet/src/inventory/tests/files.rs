//! Which files are read, and which Ansible is asked for.

use std::fs;

use super::*;

#[test]
fn a_file_is_yaml_by_its_name_or_its_first_line() {
    for (path, text, right) in [
        ("hosts.yml", "web", true),
        ("hosts.yaml", "web", true),
        ("hosts.json", "web", true),
        ("hosts.ini", "all:", false),
        ("hosts", "[web]\n", false),
        ("hosts", "web1\n", false),
        ("hosts", "web1 x={\n", false),
        ("hosts", "[::1]:22\n[web]:\n", false),
        ("hosts", "", false),
        ("hosts", "# ours\n\nall: # of them\n", true),
        ("hosts.prod", "---\n", true),
        ("/dev/fd/63", "{\"all\": 1}", true),
    ] {
        assert_eq!(is_yaml(Path::new(path), text), right, "{path} {text}");
    }
}

#[test]
fn what_only_ansible_reads_is_asked_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.yml");
    let json = r#"{"_meta": {"hostvars": {"w": {"ansible_user": "asked"}}}, "web": {"hosts": ["w"]}}"#;
    let program = program(folder.path(), &format!("echo '{json}'"));
    let read = |path: &Path| {
        let machines = read_with(&program, path).map_err(|why| why.join("\n"))?;
        Ok::<_, String>(machines.iter().map(shown).collect::<Vec<_>>().join(", "))
    };
    let asked = Ok("w (web) asked@w".to_owned());
    let plain = "web: {hosts: {w: }}";

    fs::write(&file, plain).unwrap();
    assert_eq!(read(&file), Ok("w (web) w".to_owned()));
    assert_eq!(read(folder.path()), asked);
    for text in ["plugin: aws_ec2\n", "#!/bin/sh\n", "$ANSIBLE_VAULT;1.1;AES256\n3132\n"] {
        fs::write(&file, text).unwrap();
        assert_eq!(read(&file), asked, "{text}");
    }
    fs::write(&file, plain).unwrap();
    for (beside, is_asked) in [
        ("group_vars/other.yml", false),
        ("host_vars/w~", false),
        ("group_vars/web.yml", true),
        ("host_vars/w", true),
    ] {
        let beside = folder.path().join(beside);
        fs::create_dir_all(beside.parent().unwrap()).unwrap();
        fs::write(&beside, "").unwrap();
        assert_eq!(read(&file) == asked, is_asked, "{beside:?}");
        let missing = read_with("/nowhere/ansible-inventory", &file);
        if is_asked {
            let why = missing.unwrap_err().join("\n");
            assert!(why.contains(beside.to_str().unwrap()) && why.contains("not installed"), "{why}");
        }
        fs::remove_file(&beside).unwrap();
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(read(&file), asked);
    let why = read_with("/nowhere/ansible-inventory", &file).unwrap_err().join("\n");
    assert!(why.contains("it is executable") && why.contains("chmod -x"), "{why}");
}

#[test]
fn files_without_end_and_missing_ones_are_refused() {
    for (path, words) in [
        ("/nowhere/hosts", "cannot read /nowhere/hosts: No such file"),
        ("/dev/zero", "cannot read /dev/zero: it holds more than"),
        ("/dev/null", "/dev/null: it names no machine"),
    ] {
        let why = read(Path::new(path)).unwrap_err();
        assert!(why[0].starts_with(words), "{why:?}");
    }
}
