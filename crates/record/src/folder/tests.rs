use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use serde_json::json;

use super::*;
use crate::testing::{entry, plan};

fn create(path: &Path) -> Result<ResultFolder> {
    Place::of(path)?.make()
}

/// A result folder of one test, removed at its end.
struct Temporary(PathBuf, #[expect(dead_code, reason = "removes the folder on drop")] tempfile::TempDir);

impl Temporary {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self(folder.path().join("result"), folder)
    }

    /// A folder with a plan, an environment and this number of trials.
    fn with_trials(trials: u64) -> (Self, ResultFolder) {
        let temporary = Self::new();
        let folder = create(&temporary.0).unwrap();
        let environment = Environment { schema: environment::SCHEMA.to_owned(), ..Environment::default() };
        folder.write_environment(&environment, &plan("one")).unwrap();
        folder.write_plan(&plan("one")).unwrap();
        let mut journal = folder.journal().unwrap();
        (1..=trials).for_each(|index| journal.append(&entry(index)).unwrap());
        (temporary, folder)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

fn result(trials: u64, ending: Ending) -> StudyResult {
    StudyResult {
        schema: RESULT_SCHEMA.to_owned(),
        ending,
        started_unix_s: 1.0,
        elapsed_s: 2.0,
        resumed: 0,
        trials,
        void_trials: 0,
        outcomes: Vec::new(),
        proofs: Vec::new(),
        warnings: Vec::new(),
    }
}

#[test]
fn what_was_written_is_read() {
    let (temporary, folder) = Temporary::with_trials(2);
    folder.append_link(&json!({"schema": LINK_SCHEMA, "link": "a"})).unwrap();
    assert!(folder.read().unwrap().result.is_none() && folder.result().unwrap().is_none());
    folder.write_result(&result(2, Ending::Finished)).unwrap();
    folder.write_study_file("title = \"one\"").unwrap();
    let contents = ResultFolder::open(&temporary.0).unwrap().read().unwrap();
    assert_eq!((contents.plan, folder.plan().unwrap()), (plan("one"), plan("one")));
    assert_eq!(contents.environment, folder.environment().ok());
    assert!(contents.environment.is_some());
    assert_eq!(contents.trials, [entry(1), entry(2)]);
    assert_eq!(folder.trials().unwrap(), contents.trials);
    assert_eq!(contents.result, Some(result(2, Ending::Finished)));
    assert_eq!(folder.result().unwrap(), contents.result);
    assert_eq!(temporary.text("study.toml"), "title = \"one\"");
    assert_eq!(folder.path(), temporary.0);
}

#[test]
fn a_folder_holds_one_study() {
    let (temporary, _) = Temporary::with_trials(0);
    let is_taken = |path| matches!(create(path), Err(FolderError::AlreadyHoldsResult { .. }));
    assert!(is_taken(&temporary.0), "it has a plan");
    fs::remove_file(temporary.0.join(PLAN)).unwrap();
    assert!(!is_taken(&temporary.0), "it has no plan and no trial");
    let missing = ResultFolder::open(&temporary.0).unwrap_err();
    assert!(matches!(missing, FolderError::NotAResultFolder { missing: PLAN, .. }), "{missing}");
    temporary.write(TRIALS, "x");
    assert!(is_taken(&temporary.0), "it has a trial");
}

#[test]
fn a_folder_with_other_files_is_left_alone() {
    let temporary = Temporary::new();
    fs::create_dir_all(&temporary.0).unwrap();
    temporary.write("notes.txt", "mine");
    let refused = create(&temporary.0).unwrap_err().to_string();
    assert!(refused.contains("is not empty: notes.txt is in it"), "{refused}");
    fs::remove_file(temporary.0.join("notes.txt")).unwrap();
    assert!(create(&temporary.0).is_ok());
}

#[test]
fn a_result_within_another_whose_run_was_killed_before_its_plan_is_begun_again() {
    let (temporary, folder) = Temporary::with_trials(0);
    let (inner, is_begun) = folder.within("proof").unwrap();
    assert!(!is_begun && inner.path() == temporary.0.join("proof"));
    for name in ["environment.json", "study.toml.partial"] {
        temporary.write(&format!("proof/{name}"), "{}");
    }
    let (inner, is_begun) = folder.within("proof").unwrap();
    assert!(!is_begun);
    inner.write_plan(&plan("one")).unwrap();
    assert!(folder.within("proof").unwrap().1);
    fs::remove_file(temporary.0.join("proof").join(PLAN)).unwrap();
    temporary.write("proof/notes.txt", "mine");
    assert!(folder.within("proof").is_err());
}

#[test]
fn a_folder_stays_the_one_that_was_made_and_no_link_in_it_is_followed() {
    let (temporary, folder) = Temporary::with_trials(1);
    let outside = temporary.0.with_file_name("outside");
    fs::write(&outside, "secret").unwrap();
    for name in ["report.html", "report.html.partial", "links.jsonl", "output"] {
        symlink(&outside, temporary.0.join(name)).unwrap();
    }
    folder.write("report.html", "ours").unwrap();
    assert!(folder.append_link(&json!({"schema": LINK_SCHEMA})).is_err());
    assert!(folder.write_bytes("output/1/a.out", b"x").is_err());
    fs::remove_file(temporary.0.join("output")).unwrap();
    folder.write_bytes("output/1/a.out", b"x").unwrap();
    folder.write_bytes("output/1/a.out", b"y").unwrap();
    assert_eq!(
        (temporary.text("report.html"), temporary.text("output/1/a.out")),
        ("ours".into(), "y".into())
    );
    assert_eq!(fs::read(&outside).unwrap(), b"secret");
    // After a rename, nothing is written to the folder that took the old path.
    let moved = temporary.0.with_file_name("moved");
    fs::rename(&temporary.0, &moved).unwrap();
    fs::create_dir(&temporary.0).unwrap();
    folder.write("later", "ours").unwrap();
    assert!(moved.join("later").exists() && !temporary.0.join("later").exists());
}

#[test]
fn a_folder_is_made_only_where_nobody_else_can_replace_it() {
    let base = tempfile::tempdir().unwrap();
    let place = base.path().join("place");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir(&place).unwrap();
    for (bits, is_sound) in [(0o755, true), (0o775, true), (0o1777, true), (0o777, false)] {
        mode(&place, bits);
        let made = create(&place.join(format!("{bits:o}/deep/result")));
        assert_eq!(made.is_ok(), is_sound, "{bits:o}: {made:?}");
        let refused = made.err().map_or(String::new(), |error| error.to_string());
        assert!(is_sound || refused.contains("could rename") && refused.contains("--out"), "{refused}");
    }
    mode(&place, 0o755);
    // An empty folder of this user with the permissions of umask 002, opened through a link.
    let own = place.join("own");
    fs::create_dir(&own).unwrap();
    mode(&own, 0o775);
    symlink(&own, place.join("link")).unwrap();
    let folder = create(&place.join("link")).unwrap();
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o755);
    folder.write_plan(&plan("one")).unwrap();
    // A run continues in a folder that umask 002 made writable for a group.
    mode(&own, 0o775);
    assert!(Place::of(&own).and_then(|place| place.resume()).is_ok());
    assert!(Place::of(&place.join("none")).and_then(|place| place.resume()).is_err());
}

#[test]
fn folders_that_are_made_at_once_get_names_of_their_own() {
    let base = tempfile::tempdir().unwrap();
    let place = Place::of(&base.path().join("results/limit")).unwrap();
    let runs: Vec<_> = (0..8)
        .map(|_| {
            let place = place.clone();
            std::thread::spawn(move || place.make_free().unwrap().path().to_owned())
        })
        .collect();
    let mut names: Vec<_> = runs.into_iter().map(|run| run.join().unwrap()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 8, "{names:?}");
}

#[test]
fn as_root_a_folder_of_another_user_is_neither_taken_nor_made_in() {
    let base = tempfile::tempdir().unwrap();
    let theirs = base.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(61_234), None).unwrap();
    for path in [theirs.clone(), theirs.join("result")] {
        let refused = create(&path).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 61234"), "{refused}");
    }
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
}

#[test]
fn an_incomplete_last_line_is_ignored_and_then_removed() {
    for (name, whole) in [(TRIALS, 2), (LINKS, 1)] {
        let (temporary, folder) = Temporary::with_trials(2);
        let link = json!({"schema": LINK_SCHEMA});
        folder.append_link(&link).unwrap();
        let before = temporary.text(name);
        temporary.write(name, &format!("{before}{{\"crc32c\":\"0"));
        assert_eq!(folder.read().unwrap().trials.len(), 2, "{name}");
        folder.journal().unwrap().append(&entry(3)).unwrap();
        folder.append_link(&link).unwrap();
        assert_eq!(folder.read().unwrap().trials.len(), 3, "{name}");
        let after = temporary.text(name);
        assert!(after.starts_with(&before) && after.lines().count() == whole + 1, "{name}: {after}");
    }
}

#[test]
fn two_runs_cannot_write_to_one_folder() {
    let (_temporary, folder) = Temporary::with_trials(0);
    let _first = folder.journal().unwrap();
    let refused = folder.journal().unwrap_err().to_string();
    assert!(refused.contains("another run is writing to it"), "{refused}");
}

#[test]
fn of_those_who_are_given_one_empty_folder_one_begins() {
    let temporary = Temporary::new();
    let [first, second, third] = [(); 3].map(|()| create(&temporary.0).unwrap());
    let journal = first.begin().unwrap();
    let refused = second.begin().unwrap_err().to_string();
    assert!(refused.contains("another run is writing to it"), "{refused}");
    // The first run wrote nothing, so another one may begin in the same folder.
    drop(journal);
    let mut journal = create(&temporary.0).and_then(|folder| folder.begin()).unwrap();
    first.write_plan(&plan("one")).unwrap();
    journal.append(&entry(1)).unwrap();
    drop(journal);
    assert!(matches!(third.begin(), Err(FolderError::AlreadyHoldsResult { .. })));
}

#[test]
fn what_is_read_of_a_result_is_not_written() {
    let (temporary, folder) = Temporary::with_trials(1);
    let records = RECORDS.map(|name| temporary.0.join(name));
    assert!(!records.iter().any(|path| files::is_read(path)), "its own run reads them too");
    drop(folder);
    ResultFolder::open(&temporary.0).unwrap().read().unwrap();
    assert!(files::claim("--html", &temporary.0.join(PLAN)).is_err());
    files::claim("--html", &temporary.0.join("report.html")).unwrap();
}

#[test]
fn records_that_do_not_belong_together_are_refused() {
    type Change = fn(&Temporary, &ResultFolder);
    let cases: [(&str, Change, &str); 10] = [
        (
            "another plan",
            |_, folder| folder.write_plan(&plan("two")).unwrap(),
            "environment.json: it belongs to another study",
        ),
        (
            "a link of another plan",
            |temporary, folder| {
                let (other, folder_of_other) = Temporary::with_trials(0);
                folder_of_other.write_plan(&plan("two")).unwrap();
                folder_of_other.append_link(&json!({"schema": LINK_SCHEMA})).unwrap();
                temporary.write(LINKS, &other.text(LINKS));
                assert!(folder.trials().is_ok());
            },
            "links.jsonl, line 1: it belongs to another study",
        ),
        (
            "a missing line",
            |temporary, _| {
                let text = temporary.text(TRIALS);
                temporary.write(TRIALS, &(text.lines().nth(1).unwrap().to_owned() + "\n"));
            },
            "trials.jsonl, line 1: it holds trial 2 instead of trial 1",
        ),
        (
            "a changed byte",
            |temporary, _| temporary.write(TRIALS, &temporary.text(TRIALS).replacen(":1,", ":2,", 1)),
            "trials.jsonl, line 1: its checksum is wrong",
        ),
        (
            "another schema",
            |temporary, _| temporary.write(PLAN, &temporary.text(PLAN).replace(PLAN_SCHEMA, "x/1")),
            "its schema is x/1",
        ),
        (
            "no record",
            |temporary, _| temporary.write(PLAN, &seal::seal("{\"a\":1}", &[])),
            "plan.json: missing field",
        ),
        (
            "no plan in a record of an earlier version",
            |temporary, _| temporary.write(LINKS, &(seal::seal("{\"a\":1}", &[]) + "\n")),
            "it does not name its plan",
        ),
        (
            "a result of more trials",
            |_, folder| folder.write_result(&result(3, Ending::Interrupted)).unwrap(),
            "it covers 3 trials, but trials.jsonl holds 2",
        ),
        (
            "a finished study that went on",
            |_, folder| folder.write_result(&result(1, Ending::Finished)).unwrap(),
            "the study finished with 1 trials, but trials.jsonl holds 2",
        ),
        (
            "a result of other trials",
            |_, folder| folder.write_result(&result(1, Ending::Interrupted)).unwrap(),
            "it covers other trials",
        ),
    ];
    for (name, change, words) in cases {
        let (temporary, folder) = Temporary::with_trials(2);
        change(&temporary, &folder);
        let refused = folder.read().unwrap_err().to_string();
        assert!(refused.contains(words), "{name}: {refused}");
    }
}

#[test]
fn a_result_may_cover_fewer_trials_if_the_study_went_on() {
    let (_temporary, folder) = Temporary::with_trials(1);
    folder.write_result(&result(1, Ending::Interrupted)).unwrap();
    folder.journal().unwrap().append(&entry(2)).unwrap();
    let contents = folder.read().unwrap();
    assert_eq!((contents.trials.len(), contents.result.unwrap().trials), (2, 1));
}

#[test]
fn what_cannot_be_read_is_no_missing_file() {
    let (temporary, folder) = Temporary::with_trials(1);
    for name in [ENVIRONMENT, TRIALS] {
        let _ = fs::remove_file(temporary.0.join(name));
        fs::create_dir(temporary.0.join(name)).unwrap();
        let refused = folder.read().unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("not a regular file"), "{refused}");
        fs::remove_dir(temporary.0.join(name)).unwrap();
    }
    let contents = folder.read().unwrap();
    assert!(contents.environment.is_none() && contents.trials.is_empty());
}
