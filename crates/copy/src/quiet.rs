//! Machines at the end of a long path whose logins asked nobody anything: the next time several logins begin at once.

use std::rc::Rc;

use files::Folder;

use crate::{hash, ssh::Login};

/// What is remembered of one way to log in.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Option<(Rc<Folder>, String)>);

impl Quiet {
    /// What a folder says; without one, nothing is known.
    pub(crate) fn of(folder: Option<Rc<Folder>>, login: &Login) -> Self {
        let name = hash::of(login.words().as_bytes());
        Self(folder.map(|folder| (folder, format!("{}.quiet", &name[..32]))))
    }

    /// Whether the last login was quiet.
    pub(crate) fn is_known(&self) -> bool {
        self.0.as_ref().is_some_and(|(folder, name)| folder.has(name))
    }

    /// A login was quiet, or it was not. Whoever cannot write there will not know.
    pub(crate) fn learn(&self, is_quiet: bool) {
        let Some((folder, name)) = &self.0 else { return };
        let _ = if is_quiet { folder.create(name, 0o600).map(drop) } else { folder.remove(name) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::open_state;

    #[test]
    fn what_was_learned_of_a_login_is_known_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let quiet = |machine: &str, options: &[&str]| {
            let host = kernel::ssh::Login::new(None, machine, None).unwrap();
            let options = options.iter().map(Into::into).collect();
            let folder = open_state(&folder.path().join("copy")).unwrap();
            Quiet::of(Some(folder), &Login::of(host, options))
        };
        assert!(!quiet("far", &[]).is_known());
        quiet("far", &[]).learn(true);
        assert!(quiet("far", &[]).is_known());
        assert!(!quiet("far", &["-i", "key"]).is_known() && !quiet("near", &[]).is_known());
        quiet("far", &[]).learn(false);
        assert!(!quiet("far", &[]).is_known());
        assert!(!Quiet::default().is_known());
    }
}
