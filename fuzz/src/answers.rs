//! Reads any bytes as the answers to two steps of a session that take values from them in every way: the next request must
//! be the same however the bytes were cut, and be one request with the header fields that were asked for.
//!
//! Input: three bytes with the sizes of the pieces less one, repeated, and the bytes of the answers.

use std::sync::LazyLock;

use http1::ResponseReader;
use record::{Request, RequestPlan, ScriptPlan, StatusSet, StepPlan, TextRequest};
use script::{Advance, Numbering, Script, User, WorkerState};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let takes = [
        ("j", "json:$.a[?(@.b > 1)].c"),
        ("h", "header:A"),
        ("c", "cookie:s"),
        ("r", "regex:a(.*)b"),
        ("b", "body"),
        ("s", "status"),
    ];
    let all = "{{j}} {{h}} {{c}} {{r|json}} {{s}}";
    let request = |target: &str| Request {
        method: "POST".to_owned(),
        target: target.to_owned(),
        headers: vec![("Host".to_owned(), "h".to_owned()), ("X".to_owned(), all.to_owned())],
        body: b"{{b}}".to_vec(),
    };
    let plan = |target: &str| RequestPlan {
        checks: vec!["no-text:nothing".to_owned(), "size:>= 0".to_owned()],
        take: takes.map(|(name, place)| (name.to_owned(), place.to_owned())).to_vec(),
        goes_on_after_failure: true,
        ..RequestPlan::new(
            TextRequest::written(&request(target)).unwrap(),
            "200-999".parse::<StatusSet>().unwrap(),
        )
    };
    let step = |target: &str| StepPlan::once(target, plan(target).into());
    let steps = vec![step("/a/b"), step("/{{h}}?{{c|url}}"), step("/{{r}}/{{j|base64}}")];
    let plan = ScriptPlan { steps, cookies: true, redirects: 2, ..ScriptPlan::default() };
    Script::new(&plan, true, false).unwrap()
});

/// Panics when a promise is broken; false for bytes that say nothing.
pub(super) fn check(data: &[u8]) -> bool {
    let Some((sizes, answers)) = data.split_first_chunk::<3>() else { return false };
    let sizes = sizes.map(|size| usize::from(size) + 1);
    let whole = requests(answers, &[answers.len().max(1)]);
    assert_eq!(requests(answers, &sizes), whole);
    assert_eq!(requests(answers, &[1]), whole);
    for request in &whole {
        is_one_request(request);
    }
    true
}

/// The requests that are sent while these answers come in pieces of these sizes.
fn requests(answers: &[u8], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut state = WorkerState::new(1, (0, 1), Numbering::new(0, 1));
    let mut user = User::new(&SCRIPT, 1);
    let (mut sent, mut reader, mut rest) = (Vec::new(), ResponseReader::default(), answers);
    assert!(user.begin(&SCRIPT, &mut state));
    let mut sizes = sizes.iter().cycle();
    loop {
        let mut bytes = Vec::new();
        user.render(&SCRIPT, &mut state, &mut bytes);
        sent.push(bytes);
        let response = loop {
            let piece = &rest[..rest.len().min(*sizes.next().unwrap())];
            match reader.feed(piece, false, &mut user.sink(&SCRIPT)) {
                _ if piece.is_empty() => break None,
                Ok(fed) => {
                    rest = &rest[fed.used..];
                    if let Some(response) = fed.done {
                        break Some(response);
                    }
                }
                Err(_) => break None,
            }
        };
        match response {
            Some(response) => {
                let _ = user.answered(&SCRIPT, &response, &state);
            }
            None => return sent,
        }
        if let Advance::Ended { .. } = user.advance(&SCRIPT) {
            return sent;
        }
    }
}

fn is_one_request(request: &[u8]) {
    let end = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = &request[..end];
    let lines: Vec<&[u8]> = head.split(|&byte| byte == b'\n').collect();
    assert_eq!(lines[0].iter().filter(|&&byte| byte == b' ').count(), 2, "{request:?}");
    assert!(lines.iter().all(|line| !line[..line.len().saturating_sub(1)].contains(&b'\r')), "{request:?}");
    let is_own = |line: &&&[u8]| {
        [&b"Host: "[..], b"X: ", b"Cookie: ", b"Content-Length: "].iter().any(|name| line.starts_with(name))
    };
    assert_eq!(lines[1..].iter().filter(is_own).count(), lines.len() - 1, "{request:?}");
    let length = lines.iter().find_map(|line| line.strip_prefix(b"Content-Length: "));
    let length = length.map_or(0, |text| std::str::from_utf8(text).unwrap().trim().parse::<usize>().unwrap());
    assert_eq!(length, request.len() - end - 4);
}
