use http1::ResponseReader;
use record::{Request, RequestPlan, RowOrder, ScriptPlan, StatusSet, StepAction, StepPlan, TextRequest};

use super::*;
use crate::{Numbering, ScriptMistake};

fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> RequestPlan {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let host = ("Host".to_owned(), "h:80".to_owned());
    let headers = std::iter::once(host).chain(headers).collect();
    let request = Request { method: method.to_owned(), target: target.to_owned(), headers, body: Vec::new() };
    RequestPlan::new(TextRequest::written(&request).unwrap(), StatusSet::success())
}

fn step(name: &str, request: RequestPlan) -> StepPlan {
    StepPlan { at_most: 3, ..StepPlan::once(name, request.into()) }
}

fn get(name: &str) -> StepPlan {
    step(name, request("GET", &format!("/{name}"), &[]))
}

fn script(steps: Vec<StepPlan>) -> ScriptPlan {
    ScriptPlan { steps, ..ScriptPlan::default() }
}

/// Runs one iteration. `answers` has the answer to the n-th request, head and body. Returns the heads of the requests, and
/// whether a step failed.
fn iteration(plan: &ScriptPlan, answers: &[&str]) -> (Vec<String>, bool) {
    let (sent, has_failed, _) = iteration_with_cause(plan, answers);
    (sent, has_failed)
}

/// Same as `iteration`, and returns the cause of the last failure.
fn iteration_with_cause(plan: &ScriptPlan, answers: &[&str]) -> (Vec<String>, bool, String) {
    let mut cause = String::new();
    let script = Script::new(plan, true, false).unwrap();
    let mut state = WorkerState::new(1, (0, 1), Numbering::new(0, 1));
    let mut user = User::new(&script, 1);
    assert!(user.begin(&script, &mut state));
    let mut sent = Vec::new();
    loop {
        let mut out = Vec::new();
        user.render(&script, &mut state, &mut out);
        let text = String::from_utf8(out).unwrap();
        sent.push(text.replace("Host: h:80\r\n", "").replace(" HTTP/1.1", "").trim_end().to_owned());
        let answer = answers.get(sent.len() - 1).copied().unwrap_or("200 OK\r\n\r\n");
        if answer == "lost" {
            user.failed(&script);
        } else {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let bytes = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let mut reader = ResponseReader::default();
            let fed = reader.feed(bytes.as_bytes(), false, &mut user.sink(&script)).unwrap();
            user.answered(&script, &fed.done.unwrap(), &state);
            cause = user.cause().map_or(cause, str::to_owned);
        }
        if let Advance::Ended { has_failed, .. } = user.advance(&script) {
            return (sent, has_failed, cause);
        }
    }
}

#[test]
fn a_login_is_used_and_renewed() {
    let mut login = request("POST", "/login", &[]);
    login.take.push(("token".to_owned(), "json:$.token".to_owned()));
    login.take.push(("times".to_owned(), "json:$.times".to_owned()));
    let mut work = request("GET", "/work", &[("Authorization", "Bearer {{token}}")]);
    work.expect = "200,401".parse().unwrap();
    let again = StepPlan { only_if: Some("status == 401".to_owned()), ..step("again", login.clone()) };
    let group = StepPlan {
        repeat: Some("times".to_owned()),
        does: StepAction::Group { steps: vec![step("work", work), again] },
        ..get("group")
    };
    let plan = script(vec![step("login", login), group]);
    let token = |n: u32| format!("200 OK\r\n\r\n{{\"token\": \"t{n}\", \"times\": 3}}");
    let answers = [&token(1), "200 OK\r\n\r\n", "401 No\r\n\r\n", &token(2), "200 OK\r\n\r\n"];
    let (sent, has_failed) = iteration(&plan, &answers);
    let heads: Vec<String> =
        sent.iter().map(|head| head.replace("\r\n", " ").replace("Authorization: Bearer ", "")).collect();
    let length = "POST /login Content-Length: 0";
    assert_eq!(heads, [length, "GET /work t1", "GET /work t1", length, "GET /work t2"]);
    assert!(!has_failed);
}

#[test]
fn a_failure_ends_the_iteration_unless_it_may_go_on() {
    let mut second = request("GET", "/b", &[]);
    second.checks.push("text:fine".to_owned());
    let plan = |goes_on| {
        let second = RequestPlan { goes_on_after_failure: goes_on, ..second.clone() };
        script(vec![get("a"), step("b", second), get("c")])
    };
    for answer in ["200 OK\r\n\r\nbad", "500 No\r\n\r\nfine", "lost"] {
        let (sent, has_failed) = iteration(&plan(false), &["200 OK\r\n\r\n", answer]);
        assert_eq!((sent.len(), has_failed), (2, true), "{answer}");
        let (sent, has_failed) = iteration(&plan(true), &["200 OK\r\n\r\n", answer]);
        assert_eq!((sent.len(), has_failed), (3, true), "{answer}");
    }
    assert!(!iteration(&plan(false), &["200 OK\r\n\r\n", "200 OK\r\n\r\nit is fine"]).1);
}

#[test]
fn steps_repeat_by_number_and_by_condition() {
    let repeat = |text: &str| StepPlan { repeat: Some(text.to_owned()), ..get("a") };
    assert_eq!(iteration(&script(vec![repeat("3"), get("b")]), &[]).0.len(), 4);
    let polls = StepPlan { repeat_while: Some("status == 202 or status == 204".to_owned()), ..get("a") };
    let plan = script(vec![polls, get("b")]);
    let busy = "202 Wait\r\n\r\n";
    assert_eq!(iteration(&plan, &[busy]).0, ["GET /a", "GET /a", "GET /b"]);
    assert_eq!(iteration(&plan, &[busy; 9]).0.len(), 4, "at most three runs");
    let never = StepPlan { repeat: Some("0".to_owned()), ..get("b") };
    assert_eq!(iteration(&script(vec![get("a"), never]), &[]).0.len(), 1);
}

#[test]
fn a_value_that_is_no_number_fails_the_request_that_gave_it() {
    let mut first = request("GET", "/a", &[]);
    first.take.push(("times".to_owned(), "json:$".to_owned()));
    let again = StepPlan { repeat: Some("times".to_owned()), ..get("b") };
    let plan = script(vec![step("a", first), again, get("c")]);
    for (times, sent, has_failed) in
        [("2", 4, false), ("0", 2, false), ("\"many\"", 1, true), ("-1", 1, true), ("2.5", 1, true)]
    {
        let (requests, failed) = iteration(&plan, &[&format!("200 OK\r\n\r\n{times}")]);
        assert_eq!((requests.len(), failed), (sent, has_failed), "{times}");
    }
    let script = Script::new(&plan, true, false).unwrap();
    let mut state = WorkerState::new(1, (0, 1), Numbering::new(0, 1));
    let mut user = User::new(&script, 1);
    assert!(user.begin(&script, &mut state));
    user.render(&script, &mut state, &mut Vec::new());
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n1e99";
    let fed = ResponseReader::default().feed(answer, false, &mut user.sink(&script)).unwrap();
    let outcome = user.answered(&script, &fed.done.unwrap(), &state);
    assert_eq!(outcome, Outcome::Failed(ErrorClass::Value));
    assert_eq!(user.cause(), Some("step 'a': 'times' is not a number of repetitions"));
}

#[test]
fn a_failure_tells_its_step_and_its_cause() {
    let mut first = request("GET", "/a", &[]);
    first.expect = StatusSet::acknowledged();
    first.take.push(("token".to_owned(), "json:$.token".to_owned()));
    let plan = ScriptPlan { redirects: 1, ..script(vec![step("login", first)]) };
    let to = |location: &str| format!("302 Found\r\nLocation: {location}\r\n\r\n");
    let found = "200 OK\r\n\r\n{\"token\": 1}".to_owned();
    for (answers, cause) in [
        (vec!["200 OK\r\n\r\n{}".to_owned()], "step 'login': the answer has nothing to take as 'token'"),
        (
            vec![to("http://other/")],
            "step 'login': a redirect to another host, port or scheme is not followed",
        ),
        (vec![to("/b"), to("/c")], "step 'login': more redirects than --redirects allows"),
        (vec!["404 No\r\n\r\n".to_owned()], ""),
        (vec![to("/b"), found], ""),
    ] {
        let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
        let (_, has_failed, told) = iteration_with_cause(&plan, &answers);
        assert_eq!(told, cause, "{answers:?}");
        assert_eq!(has_failed, !answers.last().unwrap().starts_with("200 OK\r\n\r\n{\"token"), "{answers:?}");
    }
}

#[test]
fn kept_cookies_follow_ones_own_in_one_field() {
    let own = request("GET", "/b", &[("cookie", "theme=dark")]);
    let plan = ScriptPlan { cookies: true, ..script(vec![step("a", own.clone()), step("b", own)]) };
    let (sent, _) = iteration(&plan, &["200 OK\r\nSet-Cookie: s=1\r\n\r\n"]);
    assert_eq!(sent, ["GET /b\r\ncookie: theme=dark", "GET /b\r\ncookie: theme=dark; s=1"]);
}

#[test]
fn cookies_and_redirects_are_followed_on_the_same_host() {
    let plan = ScriptPlan {
        cookies: true,
        redirects: 2,
        ..script(vec![step("a", request("POST", "/a/b", &[])), get("c")])
    };
    let answers = [
        "302 Found\r\nLocation: ../d?x=1#y\r\nSet-Cookie: s=1; Path=/\r\n\r\n",
        "307 Again\r\nLocation: http://h:80/e\r\n\r\n",
        "302 Found\r\nLocation: /too-many\r\n\r\n",
    ];
    let (sent, has_failed) = iteration(&plan, &answers);
    let sent: Vec<String> = sent.iter().map(|head| head.replace("\r\n", " ")).collect();
    let cookie = "Cookie: s=1";
    assert_eq!(
        sent,
        [
            "POST /a/b Content-Length: 0".to_owned(),
            format!("GET /d?x=1 {cookie}"),
            format!("POST /e {cookie} Content-Length: 0"),
            format!("GET /c {cookie}"),
        ]
    );
    assert!(!has_failed);
    for elsewhere in ["http://other/", "https://h:80/", "//other/", "http://h:800/"] {
        let answer = format!("302 Found\r\nLocation: {elsewhere}\r\n\r\n");
        assert_eq!(iteration(&plan, &[&answer]).0.len(), 2, "{elsewhere}");
    }
}

#[test]
fn a_value_cannot_break_a_request() {
    let mut first = request("GET", "/a", &[]);
    first.take.push(("evil".to_owned(), "json:$".to_owned()));
    let second = request("GET", "/b/{{evil}}?q={{evil|url}}", &[("X", "{{evil}}")]);
    let plan = script(vec![step("a", first), step("b", second)]);
    let (sent, has_failed) = iteration(&plan, &["200 OK\r\n\r\n\"x\\r\\nY: 1 é\""]);
    assert_eq!(sent[1], "GET /b/x%0D%0AY:%201%20%C3%A9?q=x%0D%0AY%3A%201%20%C3%A9\r\nX: x  Y: 1 é");
    assert!(has_failed, "the header was not sent as asked");
}

#[test]
fn weights_decide_how_often_a_step_is_drawn() {
    let weighted = |name: &str, weight| StepPlan { weight, ..get(name) };
    let plan =
        ScriptPlan { weighted: true, ..script(vec![weighted("a", 1), weighted("b", 0), weighted("c", 3)]) };
    let script = Script::new(&plan, true, false).unwrap();
    let mut state = WorkerState::new(1, (0, 1), Numbering::new(0, 1));
    let mut user = User::new(&script, 1);
    let mut drawn = [0_u32; 3];
    for _ in 0..4_000 {
        assert!(user.begin(&script, &mut state));
        drawn[user.step()] += 1;
        assert!(matches!(user.advance(&script), Advance::Ended { has_failed: false, .. }));
    }
    assert!(drawn[1] == 0 && drawn[0].abs_diff(1_000) < 110, "{drawn:?}");
}

#[test]
fn values_are_found_in_every_part_of_an_answer() {
    let mut first = request("GET", "/a", &[]);
    for (name, place) in [
        ("h", "header:X-Id"),
        ("c", "cookie:s"),
        ("r", "regex:name=\"(\\w+)\""),
        ("j", "json:$.list[?(@.n > 1)].id"),
        ("s", "status"),
    ] {
        first.take.push((name.to_owned(), place.to_owned()));
    }
    for check in [
        "json:$.list[0].n = 1",
        "header:x-id != 8",
        "cookie:s",
        "size:> 10B",
        "no-text:error",
        "regex:\"id\": ?7",
    ] {
        first.checks.push(check.to_owned());
    }
    let plan =
        script(vec![step("a", first), step("b", request("GET", "/{{h}}/{{c}}/{{r}}/{{j}}/{{s}}", &[]))]);
    let body = "{\"list\": [{\"n\": 1}, {\"n\": 2, \"id\": 7}], \"html\": \"name=\\\"\"} name=\"me\"";
    let json_only = "{\"list\": [{\"n\": 1, \"x\": \"\"}, {\"n\": 2, \"id\": 7}], \"y\": \"name=\"}";
    let answer = |body: &str| format!("200 OK\r\nX-Id: 9\r\nSet-Cookie: s=abc; Path=/\r\n\r\n{body}");
    // A body that is not JSON has no value at a JSON path.
    assert!(iteration(&plan, &[&answer(body)]).1);
    assert!(iteration(&plan, &[&answer(json_only)]).1, "the expression does not match");
    let mut first = request("GET", "/a", &[]);
    first.take.push(("r".to_owned(), "regex:name=(\\w+)".to_owned()));
    first.take.push(("j".to_owned(), "json:$.list[?(@.n > 1)].id".to_owned()));
    first.take.push(("h".to_owned(), "header:X-Id".to_owned()));
    first.take.push(("c".to_owned(), "cookie:s".to_owned()));
    first.take.push(("s".to_owned(), "status".to_owned()));
    let plan =
        script(vec![step("a", first), step("b", request("GET", "/{{h}}/{{c}}/{{r}}/{{j}}/{{s}}", &[]))]);
    let body = "{\"list\": [{\"n\": 1}, {\"n\": 2, \"id\": 7}], \"y\": \"name=me\"}";
    assert_eq!(
        iteration(&plan, &[&answer(body)]),
        (vec!["GET /a".to_owned(), "GET /9/abc/me/7/200".to_owned()], false)
    );
}

#[test]
fn a_body_that_cannot_be_read_proves_nothing() {
    let holds = |check: &str, answer: &str| {
        let mut only = request("GET", "/a", &[]);
        only.checks.push(check.to_owned());
        !iteration(&script(vec![step("a", only)]), &[answer]).1
    };
    let (json, page) = ("200 OK\r\n\r\n{\"error\": null, \"id\": 7}", "200 OK\r\n\r\n<h1>failed</h1>");
    let corrupt = "200 OK\r\nContent-Encoding: gzip\r\n\r\nno gzip at all";
    for (check, answer, as_said) in [
        ("json:$.error = null", json, true),
        ("json:$.id = null", json, false),
        ("json:$.id != 8", json, true),
        ("json:$.other != 8", json, true),
        ("json:$.id != 8", page, false),
        ("no-text:error", page, true),
        ("no-text:error", corrupt, false),
        ("text:gzip", corrupt, false),
        ("size:14B", corrupt, true),
        ("no-text:error", "200 OK\r\nContent-Encoding: br\r\n\r\nsomething", false),
        ("no-text:error", "200 OK\r\nContent-Encoding: identity\r\n\r\nsomething", true),
        ("no-text:error", "200 OK\r\nContent-Encoding: gzip\r\n\r\n", true),
    ] {
        assert_eq!(holds(check, answer), as_said, "{check} of {answer}");
    }
}

#[test]
fn mistakes_name_their_step_and_key() {
    let mut bad = request("GET", "/{{nothing}}", &[("A", "{{random}}")]);
    bad.checks.push("xpath://a".to_owned());
    bad.take.push(("counter".to_owned(), "json:$".to_owned()));
    bad.take.push(("fine".to_owned(), "json:$$".to_owned()));
    let bad = StepPlan {
        only_if: Some("what == 1".to_owned()),
        repeat: Some("many".to_owned()),
        ..step("bad", bad)
    };
    let plan = ScriptPlan {
        feeders: vec![record::FeederPlan { file: "/nowhere.csv".to_owned(), order: RowOrder::InOrder }],
        ..script(vec![get("a"), bad])
    };
    let mistakes = Script::new(&plan, true, false).unwrap_err();
    let found: Vec<(&str, &str)> =
        mistakes.iter().map(|ScriptMistake { step, key, .. }| (&**step, *key)).collect();
    for wanted in [("", "feeders"), ("bad", "take"), ("bad", "headers"), ("bad", "expect")] {
        assert!(found.contains(&wanted), "{wanted:?} in {mistakes:#?}");
    }
    // Unknown names are no mistakes if a file is unreadable, because the file may define them.
    assert!(!found.iter().any(|(_, key)| ["url", "if", "repeat"].contains(key)), "{mistakes:#?}");
    let plan = ScriptPlan { feeders: Vec::new(), ..plan };
    let mistakes = Script::new(&plan, true, false).unwrap_err();
    for key in ["url", "if", "repeat", "take", "expect"] {
        assert!(
            mistakes.iter().any(|mistake| (&*mistake.step, mistake.key) == ("bad", key)),
            "{key}: {mistakes:#?}"
        );
    }
    let first = StepPlan { only_if: Some("status == 401".to_owned()), ..get("a") };
    assert_eq!(Script::new(&script(vec![first]), true, false).unwrap_err()[0].key, "if");
}

#[test]
fn conditions_have_one_grammar() {
    let mut first = request("GET", "/a", &[]);
    for name in ["c", "d", "n", "m"] {
        first.take.push((name.to_owned(), format!("json:$.{name}")));
    }
    let plan = |condition: &str| {
        let second = StepPlan { only_if: Some(condition.to_owned()), ..get("b") };
        script(vec![step("a", first.clone()), second])
    };
    let answer = "200 OK\r\n\r\n{\"c\": \"abc\", \"d\": \"abc\", \"n\": 5, \"m\": 4}";
    for (condition, holds) in [
        ("c == d", true),
        ("c != d", false),
        ("n > m", true),
        ("m>n", false),
        ("n <= 5", true),
        ("c > n", false),
        ("status == 2xx", true),
        ("status == 4xx", false),
        ("status != 4xx", true),
        ("status == 404 or status == 200", true),
        ("c == 'abc' and n == 5", true),
        ("c == \"a and b\"", false),
        ("not c", false),
        ("c == true", false),
        ("n == 5.0e0 and m != -1", true),
        ("status != 0 and status != 599 and status < 600", true),
    ] {
        assert_eq!(iteration(&plan(condition), &[answer]).0.len() == 2, holds, "{condition}");
    }
    for (condition, why) in [
        ("status == 404 && y", "column 15: write 'and'"),
        ("status == ", "column 8: a value is missing"),
        ("status === 200", "column 8: '===' is not a comparison"),
        ("status <> 404", "column 8: '<>' is not a comparison"),
        ("status =~ 4", "column 8: '=~' is not a comparison"),
        ("c == d and status = 200", "column 19: '=' is not a comparison"),
        ("n == 01", "column 6: nothing has the name '01'"),
        ("n == +5", "column 6: nothing has the name '+5'"),
        ("n == 1.", "column 6: nothing has the name '1.'"),
        ("n == 1e400", "column 6: nothing has the name '1e400'"),
        ("n == 5 or status == 99999", "column 21: 99999 cannot be compared"),
        ("status == -1", "column 11: -1 cannot be compared"),
        ("status != 600", "column 11: 600 cannot be compared"),
        ("status >= 99", "column 11: 99 cannot be compared"),
        ("n < true", "column 5: true cannot be compared"),
        ("n <= null", "column 6: null cannot be compared"),
        ("status == 200 # x", "column 11: nothing has the name '200 # x'"),
        ("c == \"abc", "column 6: the quote \" is not closed"),
        ("n == 1,5", "column 6: nothing has the name '1,5'"),
        ("status == {{c}}", "column 11: write the name without braces"),
        ("c == abc", "write a text in quotes"),
        ("c == 4xx", "nothing has the name '4xx'"),
        ("status >= 4xx", "nothing has the name '4xx'"),
        ("counter == 1", "'counter' has a new value wherever"),
        ("c == d == n", "column 8: a second comparison"),
        ("'abc' == c", "column 1: \"abc\" is a text; a name is expected here"),
        ("c and", "column 6: a name is missing"),
        ("c and ", "column 7: a name is missing"),
        ("", "column 1: a name is missing"),
        ("and c", "column 1: a name is missing"),
        ("c or and d", "column 6: a name is missing"),
        ("== 401", "column 1: a name is missing"),
        ("not and c", "column 5: a name is missing"),
        ("(c)", "column 1: conditions have no parentheses"),
    ] {
        let mistakes = Script::new(&plan(condition), true, false).unwrap_err();
        assert!(mistakes[0].message.contains(why), "{condition}: {}", mistakes[0].message);
        assert_eq!((&*mistakes[0].step, mistakes[0].key), ("b", "if"));
    }
}

#[test]
fn an_expectation_is_one_comparison() {
    let checked = |check: &str| {
        let mut request = request("GET", "/a", &[]);
        request.checks.push(check.to_owned());
        Script::new(&script(vec![step("a", request)]), true, false)
    };
    for wrong in [
        "json:$.a <> 5",
        "json:$.a = 5 && x",
        "json:$.a === 5",
        "json:$.a =~ 5",
        "json:$.a = {{x}}",
        "json:$.a =",
        "header:A = \"x",
        "header:A: 1",
        "header:A B = 1",
        "cookie:a b",
        "text:\"x",
    ] {
        let mistakes = checked(wrong).unwrap_err();
        assert_eq!((&*mistakes[0].step, mistakes[0].key), ("a", "expect"), "{wrong}");
    }
    for sound in [
        "json:$.a = 5",
        "header: Content-Type = text/html; charset=x",
        "cookie:__Host-a",
        "json:$.a != ''",
        "text:5\" a",
    ] {
        assert!(checked(sound).is_ok(), "{sound}");
    }
}

#[test]
fn a_value_repeats_a_step_a_bounded_number_of_times() {
    let mut first = request("GET", "/a", &[]);
    first.take.push(("n".to_owned(), "json:$.n".to_owned()));
    let plan = script(vec![step("a", first), StepPlan { repeat: Some("n".to_owned()), ..get("b") }]);
    let sent = |n: u64| {
        let (sent, has_failed) = iteration(&plan, &[&format!("200 OK\r\n\r\n{{\"n\": {n}}}")]);
        (sent.len(), has_failed)
    };
    // The steps of these tests run at most three times.
    assert_eq!((sent(3), sent(4), sent(99_999_999_999_999)), ((4, false), (1, true), (1, true)));
}
