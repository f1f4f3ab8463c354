//! What a plan needs that other machines do not have.

use load::FieldMistake;
use record::HttpPlan;

/// The parts of a plan that only this machine can carry out.
pub fn only_here(plan: &HttpPlan) -> Vec<FieldMistake> {
    const NOT_SENT: &str =
        "its file is not sent to other machines; leave it out, or make the load on this machine";
    const NOT_WRITTEN: &str =
        "other machines do not write it; leave it out, or make the load on this machine";
    let (script, tls) = (plan.script.as_ref(), plan.tls.as_ref());
    let checks = [
        (
            "unix_socket",
            plan.connection.unix_socket.is_some(),
            "it is a socket of this machine; make the load here",
        ),
        ("feeders", script.is_some_and(|script| !script.feeders.is_empty()), NOT_SENT),
        ("log", script.is_some_and(|script| script.log.is_some()), NOT_WRITTEN),
        ("receipts", plan.events.as_ref().is_some_and(|events| events.receipts.is_some()), NOT_WRITTEN),
        ("cacert", tls.is_some_and(|tls| tls.authorities.is_some()), NOT_SENT),
        ("cert", tls.is_some_and(|tls| tls.certificate.is_some()), NOT_SENT),
    ];
    let needed = checks.into_iter().filter(|(_, is_needed, _)| *is_needed);
    needed.map(|(field, _, why)| FieldMistake { field, message: why.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use record::{FeederPlan, RowOrder, ScriptPlan, TlsPlan};

    use super::*;

    #[test]
    fn files_of_this_machine_are_named() {
        assert!(only_here(&HttpPlan::default()).is_empty());
        let feeders = vec![FeederPlan { file: "users.csv".to_owned(), order: RowOrder::Once }];
        let tls = TlsPlan { certificate: Some(PathBuf::from("client.pem")), ..TlsPlan::default() };
        let plan = HttpPlan {
            script: Some(ScriptPlan { feeders, ..ScriptPlan::default() }),
            tls: Some(tls),
            ..HttpPlan::default()
        };
        let fields: Vec<_> = only_here(&plan).into_iter().map(|mistake| mistake.field).collect();
        assert_eq!(fields, ["feeders", "cert"]);
    }
}
