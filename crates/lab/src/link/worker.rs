//! The process of a link. It reads requests from standard input and writes answers to standard output, one JSON message
//! per line. It ends with its parent, and its interfaces disappear with it.

use std::io::{self, BufRead};

use processes::send_to_parent;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::{
    LinkError,
    certify::{Certificate, CertifyOptions, certify},
    counters::Counters,
    emulator::Emulator,
    namespace::End,
    spec::{Direction, LinkSpec, Shape},
};

/// A request of the parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Creates the link. This is the first request and is sent once.
    Create {
        spec: Box<LinkSpec>,
        a: Box<End>,
        b: Box<End>,
    },
    Set {
        direction: Direction,
        shape: Box<Shape>,
    },
    Down,
    Up,
    ForgetLongestAbsence,
    Counters,
    Certify(CertifyOptions),
}

/// The worker's answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Ready,
    Done,
    Counters(Box<[Counters; 2]>),
    Certificate(Box<Certificate>),
    Failed(String),
}

/// Runs one link until the parent is gone.
///
/// # Errors
/// When an answer cannot be written.
pub fn work() -> io::Result<()> {
    // Linux always accepts this request. If it did not, the end of standard input would still end the process.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut lines = io::stdin().lock().lines();
    let mut link: Option<Emulator> = None;
    while let Some(Ok(line)) = lines.next() {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => {
                handle(request, &mut link).unwrap_or_else(|error| Answer::Failed(error.to_string()))
            }
            Err(error) => Answer::Failed(format!("'{line}' is not a request: {error}")),
        };
        send_to_parent(&answer)?;
    }
    Ok(())
}

fn handle(request: Request, link: &mut Option<Emulator>) -> Result<Answer, LinkError> {
    if let Request::Create { spec, a, b } = request {
        if link.is_some() {
            return Ok(Answer::Failed("there is already a link".to_owned()));
        }
        // The kernel lets a process enter a user namespace only while it has a single thread, as here.
        a.namespace.enter_user_namespace()?;
        *link = Some(Emulator::start(*spec, *a, *b)?);
        return Ok(Answer::Ready);
    }
    let Some(link) = link else { return Ok(Answer::Failed("there is no link yet".to_owned())) };
    Ok(match request {
        Request::Set { direction, shape } => {
            link.set(direction, *shape)?;
            Answer::Done
        }
        Request::Down => {
            link.down();
            Answer::Done
        }
        Request::Up => {
            link.up();
            Answer::Done
        }
        Request::ForgetLongestAbsence => {
            link.forget_longest_absence();
            Answer::Done
        }
        Request::Counters => Answer::Counters(Box::new(link.counters()?)),
        Request::Certify(options) => Answer::Certificate(Box::new(certify(link, &options)?)),
        Request::Create { .. } => Answer::Failed("not now".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Namespace;

    #[test]
    fn requests_survive_serialization() {
        let end = |pid| End {
            namespace: Namespace::Pid(pid),
            device: "link0".to_owned(),
            addresses: vec!["10.0.0.1/30".parse().unwrap()],
            mtu: 1_500,
        };
        let spec =
            Box::new(LinkSpec::symmetric(Shape { rate_bits_per_s: Some(1_000_000), ..Shape::default() }));
        for request in [
            Request::Create { spec, a: Box::new(end(1)), b: Box::new(end(2)) },
            Request::Set { direction: Direction::BToA, shape: Box::new(Shape::default()) },
            Request::Down,
            Request::ForgetLongestAbsence,
            Request::Certify(CertifyOptions::default()),
        ] {
            let line = serde_json::to_string(&request).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request, "{line}");
        }
        assert!(handle(Request::Up, &mut None).is_ok_and(|answer| matches!(answer, Answer::Failed(_))));
    }
}
