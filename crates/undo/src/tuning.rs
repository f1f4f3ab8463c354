//! Tunings: settings of the kernel that stay changed until a restore.

use std::io;

use crate::{
    Change, Error, Folder, Network, Setting,
    clean::remove_unfinished_journals,
    folder::journals,
    journal::{self, JournalContent, boot_id},
};

/// The result of [`restore`].
#[derive(Debug, Default)]
pub struct Restored {
    /// The settings that have their former values again, without those whose files are gone.
    pub settings: Vec<Setting>,
    /// The settings that another program has changed since the tuning. They keep their values, and later calls ignore
    /// them.
    pub foreign: Vec<Error>,
    /// Failures. The next call tries again.
    pub failures: Vec<Error>,
    /// Number of settings tuned in other network namespaces, where alone they can be restored.
    pub elsewhere: usize,
}

/// Restores the settings that were tuned in this network namespace to their values before the first tuning. The caller
/// must have locked `folder`, the folder of tunings.
///
/// # Errors
/// If the folder or the namespace cannot be read. The result lists the settings that could not be restored.
pub fn restore(folder: &Folder) -> Result<Restored, Error> {
    let mut tunings = Tunings::read(folder)?;
    let (elsewhere, foreign) = (tunings.elsewhere, std::mem::take(&mut tunings.foreign));
    let failures = std::mem::take(&mut tunings.failures);
    let mut restored = Restored { elsewhere, foreign, failures, ..Restored::default() };
    // The order is reversed, because the kernel may accept a value only together with a certain value of another
    // setting.
    for setting in tunings.settings.into_iter().rev() {
        let is_changed = setting.is_changed();
        match setting.put_back() {
            Ok(()) if is_changed => restored.settings.push(setting),
            Ok(()) => {}
            Err(error @ Error::Foreign { .. }) => restored.foreign.push(error),
            Err(error) => restored.failures.push(error),
        }
    }
    // The kernel may have changed a setting when a later one was restored, so all are restored again.
    for setting in &restored.settings {
        restored.failures.extend(Setting { after: None, ..setting.clone() }.put_back().err());
    }
    if restored.failures.is_empty() {
        // Journals are removed from the newest to the oldest. A later tuning records the value of an earlier tuning as
        // the former value, so a journal is correct only together with all earlier ones.
        for name in tunings.done.into_iter().rev() {
            if folder.held().remove(name).is_err() {
                break;
            }
            #[cfg(test)]
            crate::testing::step();
        }
    }
    remove_unfinished_journals(folder);
    Ok(restored)
}

/// The settings tuned in this network namespace, each with its value before the first and after the last tuning.
/// `folder` is the folder of all journals, which contains that of tunings.
///
/// # Errors
/// If the folder or the namespace cannot be read.
pub fn tuned(folder: &Folder) -> Result<Vec<Setting>, Error> {
    // A read must not create the folder of tunings.
    match folder.has_tunings() {
        true => Tunings::read(&folder.of_tunings()?).map(|mut tunings| {
            tunings.settings.retain(Setting::is_changed);
            tunings.settings
        }),
        false => Ok(Vec::new()),
    }
}

/// All tunings of this network namespace, merged into one.
#[derive(Default)]
struct Tunings {
    /// The settings, in the order of their first change.
    settings: Vec<Setting>,
    /// The journals of this network namespace.
    done: Vec<String>,
    /// Settings that another program changed between two tunings.
    foreign: Vec<Error>,
    failures: Vec<Error>,
    elsewhere: usize,
}

impl Tunings {
    fn read(folder: &Folder) -> Result<Self, Error> {
        let unknown = |error: io::Error| Error::Folder {
            path: folder.path().to_owned(),
            why: format!("cannot determine which settings belong to this network namespace: {error}"),
        };
        let own_network = Network::own().map_err(unknown)?;
        let mut tunings = Self::default();
        let mut found = Vec::new();
        for name in journals(folder)? {
            match journal::read(folder, &name) {
                Ok(Some(content)) => found.push((name, content)),
                Ok(None) => {}
                Err(error) => tunings.failures.push(error),
            }
        }
        found.sort_by_key(|(_, content)| content.header.opened_ns);
        for (name, content) in found {
            tunings.add(name, content, own_network);
        }
        Ok(tunings)
    }

    fn add(&mut self, name: String, content: JournalContent, own_network: Network) {
        let settings = content.open.into_iter().filter_map(|change| match change {
            Change::Setting(setting) => Some(setting),
            _ => None,
        });
        // A reboot resets all settings, so those of an earlier boot are skipped.
        let (here, elsewhere): (Vec<_>, Vec<_>) = settings
            .filter(|_| content.header.boot == boot_id())
            .partition(|setting| setting.network == own_network);
        self.elsewhere += elsewhere.len();
        match content.damage {
            Some(damage) => self.failures.push(damage),
            None if elsewhere.is_empty() => self.done.push(name),
            None => {}
        }
        here.into_iter().for_each(|setting| self.chain(setting));
    }

    /// Adds a setting that an earlier tuning may have changed too. If another program wrote a value between the two
    /// tunings, that value becomes the former value. If the later tuning found the original value, a [`restore`] that
    /// was killed had written it.
    fn chain(&mut self, later: Setting) {
        let Some(earlier) = self.settings.iter_mut().find(|earlier| earlier.path == later.path) else {
            return self.settings.push(later);
        };
        let is_foreign = earlier.after.as_ref().is_some_and(|after| *after != later.before);
        if is_foreign && later.before != earlier.before {
            let before = std::mem::replace(&mut earlier.before, later.before.clone());
            self.foreign.push(Error::Foreign { path: later.path, now: later.before, before });
        }
        earlier.after = later.after;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;
    use crate::{Journal, testing as steps};

    struct Scratch {
        temporary: tempfile::TempDir,
        folder: Folder,
    }

    impl Scratch {
        fn new() -> Self {
            let temporary = tempfile::tempdir().unwrap();
            let folder = Folder::at(temporary.path().join("journals")).unwrap();
            let folder = folder.with_settings_in(temporary.path()).of_tunings().unwrap();
            let scratch = Self { temporary, folder };
            scratch.set("a", "1");
            scratch.set("b", "1");
            scratch
        }

        fn path(&self, name: &str) -> PathBuf {
            self.temporary.path().join(name)
        }

        fn set(&self, name: &str, value: &str) {
            Setting::write(&self.path(name), value).unwrap();
        }

        /// The values of `a` and `b`.
        fn values(&self) -> [String; 2] {
            ["a", "b"].map(|name| Setting::read(&self.path(name)).unwrap())
        }

        /// Makes the first `steps` steps of a tuning: record the change, write the value, record the value read back.
        fn tune(&self, name: &str, value: &str, steps: u32) {
            let journal = Journal::open(&self.folder, "tuning", "").unwrap();
            let path = self.path(name);
            let before = Setting::read(&path).unwrap();
            let mut setting =
                Setting { path, before, after: None, interface: None, network: Network::own().unwrap() };
            let entry = journal.record(Change::Setting(setting.clone())).unwrap();
            if steps > 1 {
                self.set(name, value);
            }
            if steps > 2 {
                setting.after = Some(value.to_owned());
                journal.revise([(entry, Change::Setting(setting))]).unwrap();
            }
            journal.keep();
        }
    }

    #[test]
    fn the_first_values_come_back_wherever_a_tuning_was_killed() {
        for steps in 1..=3 {
            let scratch = Scratch::new();
            scratch.tune("a", "2", 3);
            scratch.tune("b", "2", 3);
            scratch.tune("a", "3", steps);
            let restored = restore(&scratch.folder).unwrap();
            assert_eq!(restored.settings.len(), 2, "{restored:?}");
            assert_eq!(scratch.values(), ["1", "1"], "{steps}");
            let again = restore(&scratch.folder).unwrap();
            assert!(again.settings.is_empty() && again.failures.is_empty(), "{again:?}");
        }
    }

    /// The contents of the folders now and after a kill at each step of `run`.
    fn states(scratch: &Scratch, run: impl FnOnce()) -> Vec<steps::State> {
        let mut states = vec![steps::state(scratch.temporary.path())];
        states.extend(steps::watch(scratch.temporary.path(), run));
        states
    }

    #[test]
    fn the_first_values_come_back_wherever_tunings_and_restores_were_killed() {
        let restored = |scratch: &Scratch| {
            let restored = restore(&scratch.folder).unwrap();
            assert!(restored.foreign.is_empty() && restored.failures.is_empty(), "{restored:?}");
            assert_eq!(scratch.values(), ["1", "1"]);
        };
        let mut number = 0;
        for steps in 1..=3 {
            let scratch = Scratch::new();
            let path = scratch.temporary.path();
            let first = states(&scratch, || {
                scratch.tune("a", "2", 3);
                scratch.tune("b", "2", 3);
                scratch.tune("a", "3", steps);
                restored(&scratch);
            });
            for state in first {
                steps::set(path, &state);
                // The next restore is killed as well.
                for state in states(&scratch, || restored(&scratch)) {
                    number += 1;
                    steps::set(path, &state);
                    restored(&scratch);
                    assert_eq!(journals(&scratch.folder).unwrap().len(), 0);
                    // Another tuning follows the restore that was killed.
                    steps::set(path, &state);
                    scratch.tune("a", "4", 3);
                    restored(&scratch);
                }
            }
        }
        assert!(number > 60, "{number}");
    }

    #[test]
    fn a_journal_that_cannot_be_read_keeps_the_earlier_ones() {
        let scratch = Scratch::new();
        scratch.tune("a", "2", 3);
        scratch.tune("a", "3", 3);
        let mut all: Vec<_> = journals(&scratch.folder).unwrap();
        all.sort_by_key(|name| journal::read(&scratch.folder, name).unwrap().unwrap().header.opened_ns);
        let later = scratch.folder.path().join(&all[1]);
        let text = fs::read(&later).unwrap();
        fs::write(&later, "damaged").unwrap();
        scratch.set("a", "2");
        assert_eq!(restore(&scratch.folder).unwrap().failures.len(), 1);
        fs::write(&later, text).unwrap();
        scratch.set("a", "3");
        assert!(restore(&scratch.folder).unwrap().failures.is_empty());
        assert_eq!(scratch.values(), ["1", "1"]);
    }

    #[test]
    fn settings_that_are_gone_or_were_never_changed_are_not_listed() {
        let scratch = Scratch::new();
        scratch.tune("a", "2", 3);
        scratch.tune("b", "2", 1);
        fs::remove_file(scratch.path("a")).unwrap();
        let restored = restore(&scratch.folder).unwrap();
        assert!(restored.settings.is_empty() && restored.failures.is_empty(), "{restored:?}");
    }

    #[test]
    fn what_somebody_else_has_set_is_left_and_named_once() {
        let scratch = Scratch::new();
        scratch.tune("a", "2", 3);
        scratch.tune("b", "2", 3);
        scratch.set("a", "7");
        let restored = restore(&scratch.folder).unwrap();
        assert!(matches!(restored.foreign[..], [Error::Foreign { .. }]), "{restored:?}");
        assert_eq!(scratch.values(), ["7", "1"]);
        assert!(restore(&scratch.folder).unwrap().foreign.is_empty());
        // Another program writes between two tunings as well.
        scratch.tune("a", "8", 3);
        scratch.set("a", "9");
        scratch.tune("a", "10", 3);
        assert!(matches!(restore(&scratch.folder).unwrap().foreign[..], [Error::Foreign { .. }]));
        assert_eq!(scratch.values(), ["9", "1"]);
    }

    #[test]
    fn a_tuning_that_fails_is_undone_at_once() {
        let scratch = Scratch::new();
        let journal = Journal::open(&scratch.folder, "tuning", "").unwrap();
        let (path, network) = (scratch.path("a"), Network::own().unwrap());
        let setting = Setting { path, before: "1".to_owned(), after: None, interface: None, network };
        journal.record(Change::Setting(setting)).unwrap();
        scratch.set("a", "2");
        drop(journal);
        assert_eq!(scratch.values(), ["1", "1"]);
        assert!(restore(&scratch.folder).unwrap().settings.is_empty());
    }

    #[test]
    fn two_commands_do_not_tune_at_once() {
        let scratch = Scratch::new();
        let lock = scratch.folder.lock().unwrap();
        assert!(scratch.folder.lock().unwrap_err().to_string().contains("another command"));
        drop(lock);
        // A child process that another test has started shares the lock until its exec.
        scratch.folder.lock_within(testing::PATIENCE).unwrap();
    }
}
