//! Tunings: settings of the kernel that stay changed until they are restored.

use std::{fs, io, path::PathBuf};

use crate::{
    Change, Error, Folder, Network, Setting,
    clean::{journals, remove_unfinished_journals},
    journal::{self, JournalContent, boot_id},
};

/// The result of [`restore`].
#[derive(Debug, Default)]
pub struct Restored {
    /// The settings that have their former values.
    pub settings: Vec<Setting>,
    /// The settings that somebody else has set since. They are left, and not looked at again.
    pub foreign: Vec<Error>,
    /// Failures; the next call tries again.
    pub failures: Vec<Error>,
    /// Number of settings that were tuned in other network namespaces, and can be restored only there.
    pub elsewhere: usize,
}

/// Gives the settings that were tuned in this network namespace the values from before the first tuning. The caller holds the
/// lock of the folder, which is that of tunings.
///
/// # Errors
/// When the folder or the namespace cannot be read. What cannot be restored is in the result.
pub fn restore(folder: &Folder) -> Result<Restored, Error> {
    let mut tunings = Tunings::read(folder)?;
    let (elsewhere, foreign) = (tunings.elsewhere, std::mem::take(&mut tunings.foreign));
    let mut restored = Restored { elsewhere, foreign, ..Restored::default() };
    // Backwards, because the kernel may allow a value only with that of another setting.
    for setting in tunings.settings.into_iter().rev() {
        match setting.put_back() {
            Ok(()) => restored.settings.push(setting),
            Err(error @ Error::Foreign { .. }) => restored.foreign.push(error),
            Err(error) => restored.failures.push(error),
        }
    }
    if restored.failures.is_empty() {
        // A journal that stays lists values that the settings have: the next call changes nothing.
        tunings.done.into_iter().for_each(|path| drop(fs::remove_file(path)));
    }
    restored.failures.append(&mut tunings.failures);
    remove_unfinished_journals(folder);
    Ok(restored)
}

/// The settings that are tuned in this network namespace, each with its value before the first tuning and after the last.
/// `folder` is that of all journals.
///
/// # Errors
/// When the folder or the namespace cannot be read.
pub fn tuned(folder: &Folder) -> Result<Vec<Setting>, Error> {
    // A look makes no folder.
    match folder.has_tunings() {
        true => Tunings::read(&folder.of_tunings()?).map(|tunings| tunings.settings),
        false => Ok(Vec::new()),
    }
}

/// All tunings of this network namespace as one.
#[derive(Default)]
struct Tunings {
    /// In the order in which they were first changed.
    settings: Vec<Setting>,
    /// The journals of this network namespace.
    done: Vec<PathBuf>,
    /// What somebody else has set between two tunings.
    foreign: Vec<Error>,
    failures: Vec<Error>,
    elsewhere: usize,
}

impl Tunings {
    fn read(folder: &Folder) -> Result<Self, Error> {
        let unknown = |error: io::Error| Error::Folder {
            path: folder.path().to_owned(),
            why: format!("cannot tell what belongs to this network namespace: {error}"),
        };
        let own = Network::own().map_err(unknown)?;
        let mut tunings = Self::default();
        let mut found = Vec::new();
        for path in journals(folder)? {
            match journal::read(&path) {
                Ok(Some(content)) => found.push((path, content)),
                Ok(None) => {}
                Err(error) => tunings.failures.push(error),
            }
        }
        found.sort_by_key(|(_, content)| content.header.opened_ns);
        for (path, content) in found {
            tunings.add(path, content, own);
        }
        Ok(tunings)
    }

    fn add(&mut self, path: PathBuf, content: JournalContent, own: Network) {
        let settings = content.open.into_iter().filter_map(|change| match change {
            Change::Setting(setting) => Some(setting),
            _ => None,
        });
        // A restart of the machine sets all settings anew.
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            settings.filter(|_| content.header.boot == boot_id()).partition(|setting| setting.network == own);
        self.elsewhere += elsewhere.len();
        match content.damage {
            Some(damage) => self.failures.push(damage),
            None if elsewhere.is_empty() => self.done.push(path),
            None => {}
        }
        here.into_iter().for_each(|setting| self.chain(setting));
    }

    /// Adds a setting that an earlier tuning may have changed, too. What somebody else wrote between the two is its former value.
    fn chain(&mut self, later: Setting) {
        let Some(earlier) = self.settings.iter_mut().find(|earlier| earlier.path == later.path) else {
            return self.settings.push(later);
        };
        if earlier.after.as_ref().is_some_and(|after| *after != later.before) {
            let before = std::mem::replace(&mut earlier.before, later.before.clone());
            self.foreign.push(Error::Foreign { path: later.path, now: later.before, before });
        }
        earlier.after = later.after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Journal;

    struct Scratch {
        temporary: tempfile::TempDir,
        folder: Folder,
    }

    impl Scratch {
        fn new() -> Self {
            let temporary = tempfile::tempdir().unwrap();
            let folder = Folder::at(temporary.path().join("journals")).unwrap().of_tunings().unwrap();
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

        /// Tunes as far as `steps` goes: recorded, written, read back.
        fn tune(&self, name: &str, value: &str, steps: u32) {
            let journal = Journal::open(&self.folder, "tuning", "").unwrap();
            let path = self.path(name);
            let before = Setting::read(&path).unwrap();
            let mut setting = Setting { path, before, after: None, network: Network::own().unwrap() };
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
        // Between two tunings, too.
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
        let setting = Setting { path, before: "1".to_owned(), after: None, network };
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
        scratch.folder.lock().unwrap();
    }
}
