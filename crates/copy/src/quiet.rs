//! Machines at the end of a long path whose logins asked nobody anything: the next time several logins begin at once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{hash, ssh::Login};

/// What is remembered of one way to log in.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Option<PathBuf>);

impl Quiet {
    /// What a folder says; without one, nothing is known.
    pub(crate) fn of(folder: Option<&Path>, login: &Login) -> Self {
        let name = hash::of(login.words().as_bytes());
        Self(folder.map(|folder| folder.join(format!("{}.quiet", &name[..32]))))
    }

    /// Whether the last login was quiet.
    pub(crate) fn is_known(&self) -> bool {
        self.0.as_ref().is_some_and(|path| path.exists())
    }

    /// A login was quiet, or it was not. Whoever cannot write there will not know.
    pub(crate) fn learn(&self, is_quiet: bool) {
        let Some(path) = &self.0 else { return };
        if !is_quiet {
            let _ = fs::remove_file(path);
        } else if !path.exists() {
            let _ = path.parent().map(fs::create_dir_all);
            let _ = fs::write(path, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;

    #[test]
    fn what_was_learned_of_a_login_is_known_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let quiet = |machine: &str, options: &[&str]| {
            let host = Host { login: machine.to_owned(), port: None };
            let options = options.iter().map(Into::into).collect();
            Quiet::of(Some(&folder.path().join("copy")), &Login::of(host, options))
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
