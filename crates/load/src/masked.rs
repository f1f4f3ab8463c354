//! A trial's record with its secrets masked.

use record::{HttpPlan, Request, StepAction, StepPlan, Text, TextRequest, Trial};
use secrets::{mask, reference};

/// Members of the record that proofload writes itself, so they hold no secret.
const OWN: [&str; 5] = ["schema", "proofload_version", "code", "times", "percentile"];

/// Masks the learned secrets in all texts of a trial, and its command.
pub(crate) fn masked_trial(mut trial: Trial) -> Trial {
    trial.command.iter_mut().for_each(|word| *word = mask(word).into_owned());
    mask::mask_record(trial, &OWN)
}

/// Masks the secrets in a plan: those that the names of fields reveal, and the learned ones.
pub(crate) fn masked(plan: HttpPlan) -> HttpPlan {
    let url = secrets::mask_url(&plan.url);
    let is_public = url == plan.url && !reference::has_reference(&url);
    let mut request = masked_request(plan.request);
    if !is_public {
        request.target = target_of(&url);
    }
    let mut script = plan.script;
    script.iter_mut().for_each(|script| mask_steps(&mut script.steps));
    let mut connection = plan.connection;
    for (name, value) in connection.tunnel.iter_mut().flat_map(|tunnel| &mut tunnel.headers) {
        *value = mask::mask_header(name, value);
    }
    HttpPlan { url, request, script, connection, ..plan }
}

fn masked_request(request: Request) -> Request {
    let headers = request.headers.into_iter().map(|(name, value)| {
        let shown = mask::mask_header(&name, &value);
        (name, shown)
    });
    Request { headers: headers.collect(), body: mask::mask_learned(&request.body).into_owned(), ..request }
}

fn mask_steps(steps: &mut [StepPlan]) {
    for step in steps {
        match &mut step.does {
            StepAction::Request(plan) => {
                let TextRequest { target, headers, body, .. } = &mut plan.request;
                mask_text(target, secrets::mask_url);
                headers.iter_mut().for_each(|(name, value)| {
                    mask_text(value, |value| mask::mask_header(name, value));
                });
                mask_text(body, mask::mask_learned_text);
            }
            StepAction::Group { steps } => mask_steps(steps),
        }
    }
}

/// Masks a text. If that changes it, only the masked words are kept.
fn mask_text(text: &mut Text, masked: impl Fn(&str) -> String) {
    let shown = text.shown();
    let masked = masked(&shown);
    if masked != shown {
        *text = Text::of_record(&masked);
    }
}

/// Path and query of a URL that may be masked or contain variables, which a URL parser would refuse.
fn target_of(url: &str) -> String {
    let rest = &url[mask::authority(url)..];
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => rest[at..].to_owned(),
        Some(at) => format!("/{}", &rest[at..]),
        None => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HttpWorkload, MachineLimits};

    fn plan(url: &str, headers: &[&str]) -> HttpPlan {
        let headers = headers.iter().map(|header| (*header).to_owned()).collect();
        HttpWorkload { url: url.to_owned(), headers, ..HttpWorkload::default() }
            .plan(&MachineLimits::EXAMPLE)
            .unwrap()
    }

    #[test]
    fn secrets_are_sent_and_not_recorded() {
        let headers = ["X-Api-Key: k1", "Accept: text/html", "X-Request-Id: 7"];
        let sent = plan("http://ann:p%40ss@127.0.0.1:1/a?page=2&token=t1", &headers);
        assert_eq!(sent.request.target, "/a?page=2&token=t1");
        assert!(
            sent.request.headers.contains(&("Authorization".to_owned(), "Basic YW5uOnBAc3M=".to_owned()))
        );
        let kept = masked(sent);
        assert_eq!(kept.url, "http://***@127.0.0.1:1/a?page=2&token=***");
        assert_eq!(kept.request.target, "/a?page=2&token=***");
        let value = |name: &str| kept.request.headers.iter().find(|(n, _)| n == name).unwrap().1.as_str();
        assert_eq!(["Authorization", "X-Api-Key"].map(value), ["***", "***"]);
        assert_eq!(["Host", "Accept", "X-Request-Id"].map(value), ["127.0.0.1:1", "text/html", "7"]);
    }

    #[test]
    fn a_plan_without_secrets_is_unchanged() {
        let public = plan("127.0.0.1:1/a%20b/?page=2#x", &["Accept: text/html"]);
        assert_eq!(masked(public.clone()), public);
    }
}
