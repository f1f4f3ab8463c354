//! After a trial: what the target acknowledged, held against what it stored.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use record::{AuditResult, Purpose, Trial, VoidReason, VoidRule};

use crate::{
    evidence::Evidence,
    observer::{At, Observer, Seen},
    stand::{names_target_folder, put_target_folder},
    stop_reason::StopReason,
    study::Audit,
};

/// How often it is looked whether a target has written what it still owed.
const GLANCE: Duration = Duration::from_millis(100);

/// The observer that audits: what a target stored of what it acknowledged.
impl Observer for Evidence {
    fn after(&mut self, at: &mut At<'_>, _: &Trial) -> Result<Seen, StopReason> {
        let Some(asked) = &at.setup.audit else { return Ok(Seen::default()) };
        let receipts = self.receipts_of(at.number);
        let (audit, doubt) = match audit(asked, &receipts, at.stand.stored(), at.stop) {
            // The trial did not come to its end.
            Ok(None) => return Err(StopReason::Stopped),
            Ok(Some(audit)) => {
                let doubt = doubt(&audit);
                (Some(audit), doubt)
            }
            Err(why) => (None, Some(why)),
        };
        let is_clean = doubt.is_none() && audit.as_ref().is_some_and(AuditResult::is_clean);
        let is_worth_it = matches!(at.purpose, Purpose::Repeat | Purpose::Confirm);
        self.audited(at.number, is_clean, is_worth_it).map_err(StopReason::Failed)?;
        let void = |why| VoidReason {
            rule: VoidRule::Unaudited,
            evidence: format!("what was stored could not be held against what was acknowledged: {why}"),
        };
        Ok(Seen { audit, certain: doubt.map(void).into_iter().collect(), ..Seen::default() })
    }
}

/// The audit of a trial. A target may take its time to write: as long as something that it acknowledged is missing, and it
/// still has time, its files are read again. None if it still had time when this was to stop: what is missing then may
/// yet be written.
///
/// # Errors
/// Why nothing can be said.
fn audit(
    asked: &Audit,
    receipts: &Path,
    stored: &[PathBuf],
    stop: &AtomicBool,
) -> Result<Option<AuditResult>, String> {
    let patterns = patterns(asked, stored);
    let begun = Instant::now();
    loop {
        let result = audit_now(receipts, &patterns);
        let is_done = match &result {
            Ok(result) => result.lost == 0 && result.torn == 0,
            // A file that was rotated away while it was looked for is there under another name.
            Err(_) => false,
        };
        if is_done || begun.elapsed() >= asked.flush {
            return result.map(Some);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        thread::sleep(GLANCE.min(asked.flush.saturating_sub(begun.elapsed())));
    }
}

/// The patterns of files, once for each folder that the target's processes store in.
fn patterns(asked: &Audit, stored: &[PathBuf]) -> Vec<String> {
    let in_folders = |pattern: &String| match names_target_folder(pattern) {
        false => vec![pattern.clone()],
        true => stored.iter().map(|folder| put_target_folder(pattern, &literal(folder))).collect(),
    };
    asked.files.iter().flat_map(in_folders).collect()
}

/// A folder as a pattern of itself alone.
fn literal(folder: &Path) -> PathBuf {
    let text = folder.display().to_string();
    let escape = |c: char| if "*?[]".contains(c) { format!("[{c}]") } else { c.to_string() };
    text.chars().map(escape).collect::<String>().into()
}

/// Why an audit may not be believed, if it may not.
fn doubt(audit: &AuditResult) -> Option<String> {
    if audit.is_conclusive() {
        return None;
    }
    let missing = &audit.incomplete;
    Some(if missing.is_empty() { "there are no receipts".to_owned() } else { missing.join("; ") })
}

/// One reading of everything.
fn audit_now(receipts: &Path, patterns: &[String]) -> Result<AuditResult, String> {
    let order =
        audit::AuditOptions { receipts: vec![receipts.to_owned()], files: patterns.to_vec(), level: None };
    audit::audit(&order).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_was_not_given_its_time_is_not_judged() {
        let missing = std::env::temp_dir().join("no-such-receipts");
        let stop = AtomicBool::new(true);
        let asked = |flush| Audit { files: vec!["/no-such-file".to_owned()], flush };
        assert!(audit(&asked(Duration::from_secs(60)), &missing, &[], &stop).unwrap().is_none());
        // With no time to wait for, the reading counts.
        assert!(audit(&asked(Duration::ZERO), &missing, &[], &stop).is_err());
    }

    #[test]
    fn patterns_are_those_of_every_process() {
        let files = vec!["{target_folder}/**/*.log".to_owned(), "/var/log/x".to_owned()];
        let asked = Audit { files, flush: Duration::ZERO };
        let stored = ["/r/a[1]".into(), "/r/b".into()];
        assert_eq!(patterns(&asked, &stored), ["/r/a[[]1[]]/**/*.log", "/r/b/**/*.log", "/var/log/x"]);
    }
}
