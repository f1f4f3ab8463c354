//! Remembers logins over long paths that needed no prompt. The next copy begins several such logins together.

use std::rc::Rc;

use files::Folder;

use crate::{hash, ssh::Login};

/// Whether a login with certain options needed no prompt the last time.
#[derive(Debug, Default)]
pub(crate) struct PasswordlessLogins(Option<(Rc<Folder>, String)>);

impl PasswordlessLogins {
    /// Stores the fact in this state folder. Without a folder, nothing is remembered.
    pub(crate) fn of(folder: Option<Rc<Folder>>, login: &Login) -> Self {
        let name = hash::of(login.words().as_bytes());
        Self(folder.map(|folder| (folder, format!("{}.quiet", &name[..32]))))
    }

    /// Whether the last login needed no prompt.
    pub(crate) fn is_known(&self) -> bool {
        self.0.as_ref().is_some_and(|(folder, name)| folder.has(name))
    }

    /// Remembers whether the login needed no prompt. Without write access, nothing is remembered.
    pub(crate) fn learn(&self, is_passwordless: bool) {
        let Some((folder, name)) = &self.0 else { return };
        let _ = if is_passwordless { folder.create(name, 0o600).map(drop) } else { folder.remove(name) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::open_state;

    #[test]
    fn what_was_learned_of_a_login_is_known_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let passwordless = |machine: &str, options: &[&str]| {
            let host = kernel::ssh::Login::new(None, machine, None).unwrap();
            let options = options.iter().map(Into::into).collect();
            let folder = open_state(&folder.path().join("copy")).unwrap();
            PasswordlessLogins::of(Some(folder), &Login::of(host, options))
        };
        assert!(!passwordless("far", &[]).is_known());
        passwordless("far", &[]).learn(true);
        assert!(passwordless("far", &[]).is_known());
        assert!(!passwordless("far", &["-i", "key"]).is_known() && !passwordless("near", &[]).is_known());
        passwordless("far", &[]).learn(false);
        assert!(!passwordless("far", &[]).is_known());
        assert!(!PasswordlessLogins::default().is_known());
    }
}
