//! Proofs: the results of raising the limits that verdicts name.

use record::{Proof, ProofFigure, Proven, study::quantities};

use crate::{Results, text};

/// A sentence for each proof, including those of limits that were not raised.
pub(crate) fn sentences(results: &Results) -> Vec<String> {
    results.result.iter().flat_map(|result| &result.proofs).map(|proof| sentence(results, proof)).collect()
}

fn sentence(results: &Results, proof: &Proof) -> String {
    let place = if proof.place.is_empty() { String::new() } else { format!(" of {}", proof.place) };
    let limit = format!("{}{place}", proof.cause.words());
    if proof.proven == Proven::NotTried {
        return format!("Not raised: {limit}. What may raise it: {}.", proof.change);
    }
    let unit = results.plan.search_of(proof.setting).map(|search| &search.unit);
    let at = proof.load.zip(unit).map_or_else(String::new, |(load, unit)| format!(" at {}", unit.show(load)));
    let found = match proof.proven {
        Proven::Moved => "it was the limit",
        Proven::NotMoved => "nothing improved, so it alone was not the limit",
        Proven::Undecided | Proven::NotTried => "not decided: too few valid trials",
    };
    let then = proof.then.as_ref().map_or_else(String::new, |words| format!("; then {words}"));
    let figures =
        if proof.figures.is_empty() { String::new() } else { format!(" ({})", figures(results, proof)) };
    format!("Raised {limit}{at} ({}): {found}{figures}{then}.", proof.change)
}

fn figures(results: &Results, proof: &Proof) -> String {
    let known = quantities(&results.plan);
    // If a figure shows that the limit moved, figures without a shown difference appear only in the JSON.
    let tells = |figure: &&ProofFigure| figure.is_shown || proof.proven != Proven::Moved;
    let shown = proof.figures.iter().filter(tells).map(|figure| {
        let words = known.iter().find(|quantity| quantity.name == figure.quantity);
        let words = words.map_or(figure.quantity.as_str(), |quantity| &quantity.words);
        let value = |value| text::quantity(&figure.quantity, value);
        let doubt = if figure.is_shown { "" } else { ", no difference shown" };
        format!("{words} {} → {}{doubt}", value(figure.before), value(figure.after))
    });
    shown.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use record::Cause;
    use testing::plans;

    use super::*;

    #[test]
    fn a_proof_says_what_was_raised_and_what_came_of_it() {
        let proof = |proven, figures| Proof {
            setting: 0,
            load: None,
            cause: Cause::AcceptQueue,
            place: "web".to_owned(),
            change: "somaxconn 65535".to_owned(),
            proven,
            figures,
            then: None,
        };
        let figure = ProofFigure {
            quantity: "throughput_per_s".to_owned(),
            before: 100.0,
            after: 250.0,
            is_shown: true,
        };
        let mut results = Results {
            plan: plans::study("a", Vec::new()),
            environment: None,
            trials: Vec::new(),
            result: Some(plans::result(Vec::new())),
            so_far: Vec::new(),
        };
        let proofs = vec![proof(Proven::Moved, vec![figure]), proof(Proven::NotTried, Vec::new())];
        results.result.as_mut().unwrap().proofs = proofs;
        assert_eq!(
            sentences(&results),
            [
                "Raised the accept queue of web (somaxconn 65535): it was the limit (throughput 100.0/s → 250.0/s).",
                "Not raised: the accept queue of web. What may raise it: somaxconn 65535.",
            ]
        );
    }
}
