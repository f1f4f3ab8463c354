use std::collections::BTreeSet;

use record::{Request, RequestPlan, ScriptPlan, StatusSet, StepPlan, TextRequest};

use super::*;
use crate::{Numbering, Script, User};

/// The renderings of a text for the first of two users, in several iterations.
fn rendered(text: &str, times: usize) -> Result<Vec<String>, String> {
    let request =
        Request { method: "POST".to_owned(), target: "/".to_owned(), headers: Vec::new(), body: text.into() };
    let mut request = RequestPlan::new(TextRequest::written(&request)?, StatusSet::success());
    request.take.push(("taken".to_owned(), "body".to_owned()));
    let step = StepPlan::once("a", request.into());
    let plan = ScriptPlan { steps: vec![step], ..ScriptPlan::default() };
    let script = Script::new(&plan, true, false).map_err(|mistakes| mistakes[0].message.clone())?;
    let mut state = WorkerState::new(7, (1, 3), Numbering::new(1, 3));
    state.set_now(1_800_000_000_123_456_789);
    let mut user = User::new(&script, 4);
    let body = |_| {
        assert!(user.begin(&script, &mut state));
        let mut out = Vec::new();
        user.render(&script, &mut state, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
        body.to_owned()
    };
    Ok((0..times).map(body).collect())
}

fn once(text: &str) -> String {
    rendered(text, 1).unwrap().remove(0)
}

#[test]
fn values_stand_where_they_are_named() {
    assert_eq!(rendered("{{counter}} {{user}} {{ iteration }}", 3).unwrap(), ["2 4 1", "5 4 2", "8 4 3"]);
    assert_eq!(once("{{time_s}} {{time_ms}} {{time_us}}"), "1800000000 1800000000123 1800000000123456");
    assert_eq!(once("{{time}} {{time %Y-%m-%d %H}}"), "2027-01-15T08:00:00.123Z 2027-01-15 08");
    assert_eq!(once("<{{taken}}> {{\"{{x}}\"}} {\"a\":{}}"), "<> {{x}} {\"a\":{}}");
}

#[test]
fn random_values_have_their_form_and_differ() {
    let all = rendered("{{random 3 5}} {{string 8}} {{hex 4}} {{uuid}}", 200).unwrap();
    let columns: Vec<BTreeSet<&str>> =
        (0..4).map(|n| all.iter().map(|text| text.split(' ').nth(n).unwrap()).collect()).collect();
    assert_eq!(columns[0], BTreeSet::from(["3", "4", "5"]));
    assert!(columns[1].iter().all(|text| text.len() == 8 && text.bytes().all(|b| b.is_ascii_alphanumeric())));
    assert!(columns[2].iter().all(|text| text.len() == 4 && u16::from_str_radix(text, 16).is_ok()));
    for uuid in &columns[3] {
        let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{uuid}");
        assert!(uuid.as_bytes()[14] == b'4' && b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
    }
    assert_eq!((columns[1].len(), columns[3].len()), (200, 200));
    assert_eq!(rendered("{{string 8}}", 3), rendered("{{string 8}}", 3), "the seed decides");
}

#[test]
fn encodings_fit_the_place() {
    let encoded = |encoding: Encoding| {
        let mut out = Vec::new();
        encoding.write("a b/\"é\n".as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(encoded(Encoding::Url), "a%20b%2F%22%C3%A9%0A");
    assert_eq!(encoded(Encoding::Json), "a b/\\\"é\\n");
    assert_eq!(encoded(Encoding::Base64), "YSBiLyLDqQo=");
}

#[test]
fn a_wrong_template_is_refused_with_what_is_known() {
    let refused = |text| rendered(text, 1).unwrap_err();
    assert!(refused("{{tokn}}").contains("nothing has the name 'tokn': feeders and steps give taken"));
    assert!(refused("a {{counter").contains("'{{' without '}}' in '{{counter'"));
    assert!(refused("{{random 5 3}}").contains("the smaller first"));
    assert!(refused("{{string}}").contains("needs a number of characters"));
    assert!(refused("{{user|xml}}").contains("'xml' is not an encoding"));
    assert!(refused("{{user 3}}").contains("takes no argument"));
    assert!(refused("{{time %!}}").contains("is not a format of strftime"));
}
