//! Helpers for the tests of several modules. Most of them record the state of a folder after each step, which is the
//! state after a kill at that step.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The files of a folder and of its subfolders, with their contents.
pub(crate) type State = BTreeMap<PathBuf, Vec<u8>>;

thread_local! {
    static WATCHED: RefCell<Option<(PathBuf, Vec<State>)>> = const { RefCell::new(None) };
}

/// Runs `run`. Returns the states of a folder after each step.
pub(crate) fn watch(folder: &Path, run: impl FnOnce()) -> Vec<State> {
    WATCHED.set(Some((folder.to_owned(), Vec::new())));
    run();
    WATCHED.take().map_or_else(Vec::new, |(_, states)| states)
}

/// Records the state of the watched folder after a change on disk.
pub(crate) fn step() {
    WATCHED.with_borrow_mut(|watched| {
        if let Some((folder, states)) = watched {
            states.push(state(folder));
        }
    });
}

/// The current state of a folder.
pub(crate) fn state(folder: &Path) -> State {
    let mut state = State::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => state.extend(self::state(&path)),
            false => drop(state.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    state
}

/// Restores an earlier state of a folder.
pub(crate) fn set(folder: &Path, former: &State) {
    state(folder).keys().for_each(|path| fs::remove_file(path).unwrap());
    former.iter().for_each(|(path, content)| fs::write(path, content).unwrap());
}

/// Gives only this thread the user `nobody`, who may not inspect the first process.
pub(crate) fn become_nobody() {
    let nobody = rustix::process::Uid::from_raw(65_534);
    let done = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
    done.expect("root is needed: make test leaves this out without root");
}
