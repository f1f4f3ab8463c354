//! Checks of a configuration beyond what its types guarantee.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Compat, Config, Credential, refusal::MAX_TAG_BYTES};

/// Upper bound of [`segments::Config::sync_delay`].
const MAX_SYNC_DELAY: Duration = Duration::from_secs(10);

impl Config {
    /// Checks the settings. `handed` is the number of passed-in listening sockets.
    ///
    /// # Errors
    /// All mistakes, each with the option and its allowed values.
    pub fn check(&self, handed: usize) -> Result<(), Vec<String>> {
        let mut mistakes = Vec::new();
        let mut must = |holds: bool, mistake: &str| {
            if !holds {
                mistakes.push(mistake.to_owned());
            }
        };
        let Self { limits, timeouts, .. } = self;
        must(handed > 0 || !self.listen.is_empty(), "no address to listen on: give one with --listen");
        must((1..=1024).contains(&self.threads), "--threads must be 1 to 1024");
        must(self.backlog > 0, "--backlog must be at least 1");
        must(limits.body_bytes > 0, "--max-body must be at least 1 byte");
        must(limits.inflated_bytes > 0, "--max-inflated must be at least 1 byte");
        must(
            limits.budget_bytes >= limits.body_bytes && limits.budget_bytes >= limits.inflated_bytes,
            "--budget must be at least --max-body and --max-inflated, because it must hold the largest body: \
             raise --budget or lower the others",
        );
        must((1024..=1 << 20).contains(&limits.head_bytes), "--max-head must be 1 KiB to 1 MiB");
        must(limits.connections != Some(0), "--max-connections must be at least 1");
        must(limits.requests_per_connection != Some(0), "--max-requests must be at least 1");
        must(matches!(limits.overload_status, 429 | 503), "--overload-status must be 429 or 503");
        let times = [timeouts.head, timeouts.body, timeouts.idle, timeouts.store, timeouts.drain];
        must(
            times.iter().all(|time| !time.is_zero()),
            "no timeout may be zero: --head-timeout, --body-timeout, --idle-timeout, --store-timeout, \
             --drain-timeout",
        );
        let year = Duration::from_secs(366 * 24 * 3600);
        must(
            times.iter().chain([&limits.idempotency_window]).all(|time| *time <= year),
            "timeouts and --idempotency-window may be at most a year",
        );
        must(
            self.store.sync_delay <= MAX_SYNC_DELAY && self.store.sync_delay < timeouts.store,
            "--sync-delay must be at most 10 s and shorter than --store-timeout, because answers wait for it: lower \
             --sync-delay or raise --store-timeout",
        );
        must(timeouts.body_bytes_per_s > 0, "--body-rate must be at least 1 byte a second");
        for credential in &self.credentials {
            match credential {
                Credential::Bearer(token) => must(
                    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()),
                    "--bearer-token-file: a token must be printable ASCII without spaces",
                ),
                Credential::Basic { user, .. } => {
                    must(!user.contains(':'), "--basic-auth-file: a user name must not contain a colon")
                }
            }
        }
        must(
            self.request_fields == crate::RequestFields::default()
                || matches!(self.compat, Compat::Fluentd { .. }),
            "--add-http-headers, --add-query-params and --add-remote-addr need --compat fluentd",
        );
        let prefix_bytes = self.tag_prefix.as_ref().map_or(0, String::len);
        must(prefix_bytes <= MAX_TAG_BYTES / 2, "--tag-prefix must be at most 512 bytes long");
        let folder = self.store.template.folder();
        must(
            !is_same_folder(&self.store.state, folder),
            "--state must not be the folder of the stored files: one of them could have the name of the journal. \
             Leave --state out, or name another folder",
        );
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }
}

/// Whether two paths lead to the same folder. The folder need not exist.
fn is_same_folder(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| -> PathBuf {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let found = path.canonicalize().or_else(|_| std::path::absolute(path));
        found.unwrap_or_else(|_| path.to_owned())
    };
    whole(one) == whole(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_has_a_folder_that_no_file_lies_in() {
        let folder = tempfile::TempDir::new().unwrap();
        let template = format!("{}/${{tag}}", folder.path().display()).parse().unwrap();
        let mut config = Config::new(segments::Config::new(template));
        assert_eq!(config.check(0), Ok(()));
        for other in ["other", ".proofload", "not/there"] {
            config.store.state = folder.path().join(other);
            assert_eq!(config.check(0), Ok(()), "{other}");
        }
        for same in ["", ".", "./."] {
            config.store.state = folder.path().join(same);
            let mistakes = config.check(0).unwrap_err();
            assert!(mistakes[0].contains("--state"), "{same}: {mistakes:?}");
        }
        let not_there = folder.path().join("not/there");
        assert!(is_same_folder(&not_there, &folder.path().join("./not//there/")));
    }

    #[test]
    fn a_group_commit_does_not_wait_longer_than_its_clients() {
        let mut config = Config::new(segments::Config::new("x/${tag}".parse().unwrap()));
        for (delay_ms, store_ms, is_sound) in [
            (0, 1, true),
            (4_999, 5_000, true),
            (5_000, 5_000, false),
            (10_000, 30_000, true),
            (10_001, 30_000, false),
        ] {
            config.store.sync_delay = Duration::from_millis(delay_ms);
            config.timeouts.store = Duration::from_millis(store_ms);
            let told = config.check(0).err().unwrap_or_default();
            let is_told = told.iter().any(|mistake| mistake.contains("--sync-delay"));
            assert_eq!(is_told, !is_sound, "{delay_ms} {store_ms} {told:?}");
        }
    }

    #[test]
    fn mistakes_name_the_options() {
        let template = "x/${tag}".parse().unwrap();
        let mut config = Config::new(segments::Config::new(template));
        config.limits.budget_bytes = config.limits.inflated_bytes - 1;
        config.tag_prefix = Some("p".repeat(513));
        let mistakes = config.check(0).unwrap_err();
        let names = ["--budget must be at least --max-body and --max-inflated", "--tag-prefix"];
        for name in names {
            assert!(mistakes.iter().any(|mistake| mistake.contains(name)), "{name} in {mistakes:?}");
        }
    }
}
