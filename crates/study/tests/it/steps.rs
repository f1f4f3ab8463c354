//! Sessions: steps, templates and feeders of a workload.

use load::MachineLimits;
use record::{RowOrder, StepAction};
use study::Study;

use crate::HOST;

fn read(steps: &str) -> Result<Study, Vec<String>> {
    let factors = if steps.contains("{kind}") { "[factors]\nkind = [\"a\", \"b\"]\n" } else { "" };
    let text = format!("[targets.api]\nurl = \"http://127.0.0.1:1/\"\n{factors}[workload.http]\n{steps}");
    study::file::read("study.toml", &text, &[], &HOST)
        .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
}

#[test]
fn steps_are_read_with_what_they_share() {
    let study = read(
        r#"
        headers = ["Accept: x", "X-All: {{counter}}"]
        expect = "2xx"
        cookies = true
        redirects = 3
        [[workload.http.steps]]
        name = "log in"
        request = "POST /login/{kind}?q=ä b"
        body = '{"user": "{{user}}"}'
        take = { token = "json:$.token" }
        [[workload.http.steps]]
        repeat = 5
        steps = [
            { request = "/items/{{token}}", headers = "accept: y", expect = ["200,404", "text:fine"], pause = "exp:10ms" },
            { request = "DELETE /items", if = "status == 404", on_failure = "go-on" },
        ]
        "#,
    )
    .unwrap();
    let setup = study.setup(0, None).unwrap();
    let workload = setup.workload.http().unwrap();
    let plan = workload.plan(&MachineLimits::EXAMPLE).unwrap();
    let script = plan.script.unwrap();
    assert!(script.cookies && script.redirects == 3 && !script.weighted);
    let mut requests = Vec::new();
    script.for_each_request(&mut |step, request| {
        let fields: Vec<&str> = request.request.headers.iter().map(|(name, _)| name.as_str()).collect();
        requests.push((
            format!("{}: {} {}", step.name, request.request.method, request.request.target.shown()),
            format!("{} {} {}", request.expect, request.checks.join(","), request.goes_on_after_failure),
            fields.join(","),
        ));
    });
    let expected = [
        ("log in: POST /login/a?q=%C3%A4%20b", "2xx  false", "Host,User-Agent,Accept,X-All"),
        (
            "GET /items/{{token}}: GET /items/{{token}}",
            "200,404 text:fine false",
            "Host,User-Agent,X-All,accept",
        ),
        ("DELETE /items: DELETE /items", "2xx  true", "Host,User-Agent,Accept,X-All"),
    ];
    assert_eq!(requests, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
    let StepAction::Group { steps } = &script.steps[1].does else { panic!("it is a group") };
    assert!(steps[0].pause.is_some() && script.steps[1].repeat.as_deref() == Some("5"));
    let study = study.describe().to_string();
    assert!(study.contains("steps log in → a group"), "{study}");
}

#[test]
fn a_template_in_the_url_stays_and_the_rest_is_encoded() {
    let plan = |path: &str| {
        let study = read(&format!("path = \"{path}\"\n"))?;
        let setup = study.setup(0, None).unwrap();
        let plan = setup.workload.http().unwrap().plan(&MachineLimits::EXAMPLE).unwrap();
        let mut targets = Vec::new();
        plan.script.iter().for_each(|script| {
            script.for_each_request(&mut |_, request| targets.push(request.request.target.shown()));
        });
        Ok::<_, Vec<String>>((plan.request.target, targets))
    };
    let (target, targets) = plan("/a b/{{random 1 9}}?x={{string 3|url}}&y={kind}").unwrap();
    assert_eq!(target, "/a%20b/{{random 1 9}}?x={{string 3|url}}&y=a");
    assert_eq!(targets, [target]);
    assert!(plan("/{{'x'").unwrap_err()[0].contains("'{{' without '}}'"));
    assert_eq!(plan("/plain").unwrap(), ("/plain".to_owned(), Vec::new()), "it needs no script");
}

#[test]
fn mistakes_in_steps_name_the_step_and_the_key() {
    let refused = |steps: &str, wanted: &str| {
        let mistakes = read(steps).unwrap_err();
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted} in {mistakes:#?}");
        assert!(mistakes.iter().all(|mistake| mistake.starts_with("study.toml:")), "{mistakes:#?}");
    };
    refused("steps = [{ name = \"x\" }]", "step 'x', request: it is missing");
    refused("steps = [{ request = \"items\" }]", "step 1, request: 'items' is not a path");
    refused(
        "steps = [{ request = \"/a\", on_failure = \"retry\" }]",
        "on_failure: 'retry' is neither end nor go-on",
    );
    refused("steps = [{ request = \"/a\", reqest = \"/b\" }]", "reqest");
    refused("steps = [{ request = \"/{{tokn}}\" }]", "nothing has the name 'tokn'");
    refused("steps = [{ request = \"/a\", weight = 2 }, { request = \"/b\" }]", "step 2 has no 'weight'");
    refused("steps = [{ request = \"/a\", if = \"status == 1\" }]", "an iteration must begin with a request");
    refused(
        "steps = [{ steps = [{ request = \"/a\" }], take = { a = \"body\" } }]",
        "a group sends no request",
    );
    refused("steps = [{ request = \"/a\" }]\nbody = \"x\"", "with steps, each step has its own");
    refused("steps = [{ request = \"/a\" }]\npipeline = 4", "pipeline: it needs requests that are all alike");
    refused("expect = [\"200\", \"201\"]", "expect: statuses are given twice");
    refused("feeders = \"no-such.csv\"", "cannot read");
}

#[test]
fn rows_that_run_out_are_for_users() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("u.csv");
    std::fs::write(&file, "id\n1\n2\n").unwrap();
    let feeders = |order: &str, more: &str| {
        let text = format!("feeders = \"{},{order}\"\npath = \"/{{{{id}}}}\"\n{more}", file.display());
        read(&text).map(|study| {
            let setup = study.setup(0, None).unwrap();
            setup.workload.http().unwrap().plan(&MachineLimits::EXAMPLE).unwrap().script.unwrap().feeders[0]
                .order
        })
    };
    assert_eq!(feeders("once", "users = 9"), Ok(RowOrder::Once));
    assert!(
        feeders("once", "rate = 9").unwrap_err()[0].contains("an open load needs a row for every arrival")
    );
    assert_eq!(feeders("per-user", "users = 2"), Ok(RowOrder::PerUser));
    assert!(feeders("per-user", "users = 3").unwrap_err()[0].contains("has 2 rows for 3 users"));
}
