//! The observer that audits each trial: compares the events that the target acknowledged with the events that it stored.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use record::{AuditResult, Purpose, Trial, VoidReason, VoidRule};

use crate::{
    evidence::Evidence,
    observer::{Observation, Observer, TrialContext},
    stop_reason::{Result, StopReason},
    study::Audit,
    testbed::{has_target_folder, substitute_target_folder},
};

/// Interval between audits while a target may still write.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Observer for Evidence {
    fn after(&mut self, context: &mut TrialContext<'_>, _: &Trial) -> Result<Observation> {
        let Some(asked) = &context.setup.audit else { return Ok(Observation::default()) };
        let receipts = self.receipts_path(context.number);
        let (audit, doubt) = match audit(asked, &receipts, &context.testbed.stored_folders, context.stop) {
            // The user stopped the study before the audit could conclude.
            Ok(None) => return Err(StopReason::Stopped),
            Ok(Some(audit)) => {
                let doubt = doubt(&audit);
                (Some(audit), doubt)
            }
            Err(why) => (None, Some(why)),
        };
        let is_clean = doubt.is_none() && audit.as_ref().is_some_and(AuditResult::is_clean);
        let keep_receipts = matches!(context.purpose, Purpose::Repeat | Purpose::Confirm);
        self.audited(context.number, is_clean, keep_receipts).map_err(StopReason::Failed)?;
        let void = |why| VoidReason {
            rule: VoidRule::Unaudited,
            evidence: format!("the stored files could not be compared with the acknowledgements: {why}"),
        };
        Ok(Observation { audit, void_reasons: doubt.map(void).into_iter().collect(), ..Default::default() })
    }
}

/// Audits a trial. While an acknowledged event is missing, reads the files again until the flush time has passed. Returns `None` if the
/// user stops the study first, because the target may still write the missing events. The error says why the audit cannot conclude.
fn audit(
    asked: &Audit,
    receipts: &Path,
    stored: &[PathBuf],
    stop: &AtomicBool,
) -> Result<Option<AuditResult>, String> {
    let options = audit::AuditOptions {
        receipts: vec![receipts.to_owned()],
        files: patterns(asked, stored),
        level: None,
    };
    let started = Instant::now();
    loop {
        let result = audit::audit(&options).map_err(|error| error.to_string());
        // If log rotation renames a file while the audit looks for it, the next reading finds it.
        let is_done = result.as_ref().is_ok_and(|result| result.lost == 0 && result.torn == 0);
        if is_done || started.elapsed() >= asked.flush {
            return result.map(Some);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL.min(asked.flush.saturating_sub(started.elapsed())));
    }
}

/// The patterns of files. A pattern with the placeholder of the target's folder appears once for each folder in which the target's
/// processes store events.
fn patterns(asked: &Audit, stored: &[PathBuf]) -> Vec<String> {
    let in_folders = |pattern: &String| {
        if !has_target_folder(pattern) {
            return vec![pattern.clone()];
        }
        stored.iter().map(|folder| substitute_target_folder(pattern, &literal(folder))).collect()
    };
    asked.files.iter().flat_map(in_folders).collect()
}

fn literal(folder: &Path) -> PathBuf {
    let text = folder.display().to_string();
    let escape = |c: char| if "*?[]".contains(c) { format!("[{c}]") } else { c.to_string() };
    text.chars().map(escape).collect::<String>().into()
}

/// The reason why an audit cannot conclude, if any.
fn doubt(audit: &AuditResult) -> Option<String> {
    if audit.is_conclusive() {
        return None;
    }
    let missing = &audit.incomplete;
    Some(if missing.is_empty() { "there are no receipts".to_owned() } else { missing.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_that_is_stopped_early_has_no_result() {
        let missing = std::env::temp_dir().join("no-such-receipts");
        let stop = AtomicBool::new(true);
        let asked = |flush| Audit { files: vec!["/no-such-file".to_owned()], flush };
        assert!(audit(&asked(Duration::from_secs(60)), &missing, &[], &stop).unwrap().is_none());
        // Without a flush time, there is no second reading.
        assert!(audit(&asked(Duration::ZERO), &missing, &[], &stop).is_err());
    }

    #[test]
    fn patterns_are_repeated_for_every_process() {
        let files = vec!["{target_folder}/**/*.log".to_owned(), "/var/log/x".to_owned()];
        let asked = Audit { files, flush: Duration::ZERO };
        let stored = ["/r/a[1]".into(), "/r/b".into()];
        assert_eq!(patterns(&asked, &stored), ["/r/a[[]1[]]/**/*.log", "/r/b/**/*.log", "/var/log/x"]);
    }
}
