//! The JSON Schema of a balancer's file, for completion and checks in editors. The program does not contain it; it is
//! published in `docs/schema`.

use serde_json::{Value, json};
use settings::{
    options::OptionSpec,
    schema::{properties, table, text, whole_number},
};
use testing::assert_published;

use super::{
    Config,
    keys::{BALANCER, CHECK, CheckKeys, SERVER, SIZES, VIP},
};

/// The schema, in draft 7, which TOML plugins of editors support.
fn schema() -> Value {
    let mut properties = properties(BALANCER);
    let device = text("What clients' frames come by; the servers are on its segment.", "eth0");
    let tables = described(of(SIZES, json!({}), &[]), "Sizes of the kernel's tables.");
    let vips = json!({ "type": "array", "minItems": 1, "items": of(VIP, vip(), &["address"]) });
    let vips = described(vips, "Addresses that clients connect to.");
    for (key, value) in [("device", device), ("tables", tables), ("vips", vips)] {
        properties.insert(key.to_owned(), value);
    }
    let mut schema =
        described(table(properties.into(), &["device", "vips"]), "A balancer with direct server return.");
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("proofload balance");
    schema
}

fn described(mut schema: Value, what: &str) -> Value {
    schema["description"] = json!(what);
    schema
}

/// The schema of a table with the keys of these rows and further keys.
fn of<T>(rows: &[OptionSpec<T>], more: Value, required: &[&str]) -> Value {
    let mut keys = properties(rows);
    keys.extend(more.as_object().cloned().unwrap_or_default());
    table(keys.into(), required)
}

/// The keys of a VIP that no row defines.
fn vip() -> Value {
    let server = json!({ "address": text("Its own address on the segment.", "192.168.16.1") });
    let servers = json!({ "type": "array", "items": of(SERVER, server, &["address"]) });
    json!({
        "address": text("IPv4 or IPv6.", "192.168.16.100"),
        "port": whole_number(1, "Its port.", 80),
        "ports": {
            "type": ["array", "string"], "items": { "type": "integer" }, "pattern": "^all$",
            "description": "Its ports, or all that no other VIP of the address has.", "examples": [[80, 443], "all"]
        },
        "check": described(of(CHECK, json!({}), &[]), "How servers are checked, through the VIP."),
        "servers": described(servers, "Its servers."),
    })
}

#[test]
fn the_published_schema_is_that_of_this_code() {
    let wanted = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    assert_published("schema/balance.schema.json", |_| wanted);
}

#[test]
fn the_schema_has_the_keys_that_the_reader_takes() {
    let file = "device = \"eth0\"\nnone = 1\ntables = { none = 1 }\n[[vips]]\naddress = \"10.0.0.9\"\nport = 80\nnone = 1\n\
                check = { none = 1 }\n[[vips.servers]]\naddress = \"10.0.0.1\"\nnone = 1\n";
    let mistakes = Config::read("f", file).unwrap_err();
    let schema = schema();
    let places = ["/tables", "", "/vips/items/check", "/vips/items/servers/items", "/vips/items"];
    let mut taken: Vec<Vec<String>> = mistakes.iter().map(|mistake| known(&mistake.message)).collect();
    let mut described: Vec<Vec<String>> = places.iter().map(|place| keys(&schema, place)).collect();
    taken.sort();
    described.sort();
    assert_eq!(taken, described);
}

/// The known keys in the message of a mistake.
fn known(message: &str) -> Vec<String> {
    let list = message.split("known here: ").nth(1).unwrap_or_default().trim_end_matches(')');
    let mut keys: Vec<String> = list.split(", ").map(str::to_owned).collect();
    keys.sort();
    keys
}

/// The keys of a table of the schema.
fn keys(schema: &Value, place: &str) -> Vec<String> {
    let step = |at: &Value, name: &str| {
        if name == "items" { at["items"].clone() } else { at["properties"][name].clone() }
    };
    let found =
        place.split('/').filter(|name| !name.is_empty()).fold(schema.clone(), |at, name| step(&at, name));
    let mut keys: Vec<String> = found["properties"].as_object().unwrap().keys().cloned().collect();
    keys.sort();
    keys
}

/// Checks that each example is a valid value and that each default changes nothing.
fn hold<T: Clone>(rows: &[OptionSpec<T>], usual: &T, are_equal: impl Fn(&T, &T) -> bool) {
    for row in rows {
        if !row.example.is_empty() {
            (row.apply)(&mut usual.clone(), &[row.example]).unwrap();
        }
        let mut changed = usual.clone();
        if !row.default.is_empty() {
            (row.apply)(&mut changed, &[row.default]).unwrap();
        }
        assert!(are_equal(&changed, usual), "{}", row.key);
    }
}

#[test]
fn defaults_and_examples_are_values() {
    let file = "device = \"eth0\"\n[[vips]]\naddress = \"10.0.0.9\"\nport = 80\n[[vips.servers]]\naddress = \"10.0.0.1\"\n";
    let config = Config::read("f", file).unwrap();
    hold(BALANCER, &config, |a, b| a == b);
    hold(SIZES, &config.sizes, |a, b| a == b);
    hold(VIP, &config.vips[0], |a, b| a == b);
    hold(SERVER, &config.vips[0].servers[0], |a, b| a == b);
    hold(CHECK, &CheckKeys::default(), |a, b| a.check == b.check);
}
