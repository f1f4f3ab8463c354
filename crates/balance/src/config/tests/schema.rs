//! The JSON Schema of a balancer's file, which editors use for completion and checks. It is not part of the program, but published in
//! `docs/schema`.

use serde_json::{Value, json};
use settings::schema::{choice, flag, table, text, time, whole_number};
use testing::assert_published;

use super::Config;

/// The schema, in draft 7, which the TOML plugins of editors know.
fn schema() -> Value {
    let tables = json!({
        "flows": whole_number(1, "Connections that are remembered.", 262_144),
        "pending": whole_number(1, "Connections whose handshake is remembered.", 65_536),
        "sources": whole_number(1, "Source addresses that are remembered.", 65_536),
        "fragments": whole_number(1, "Datagrams whose fragments are remembered.", 16_384),
    });
    let properties = json!({
        "device": text("What clients' frames come by; the servers are on its segment.", "eth0"),
        "hook": choice("Where frames are taken: from packets of the kernel, or in the driver.", &["auto", "cls", "xdp"]),
        "answer_arp": flag("Whether the VIPs are put on the device and announced.", true),
        "seed": whole_number(0, "Part of all hashes; balancers of a failover pair have the same.", 42),
        "handshake": time("How long a handshake may take.", "3s"),
        "remember_per_second": whole_number(0, "New connections that are remembered per second, at the most.", 50_000),
        "idle_timeout": time("For how long a connection without packets is remembered.", "15m"),
        "closing_timeout": time("For how long a connection that is closing is remembered.", "2m"),
        "metrics": text("Address and port of figures for Prometheus.", "127.0.0.1:9100"),
        "tables": described(table(tables, &[]), "Sizes of the kernel's tables."),
        "vips": described(
            json!({ "type": "array", "minItems": 1, "items": table(vip(), &["address"]) }),
            "Addresses that clients connect to."
        ),
    });
    let mut schema =
        described(table(properties, &["device", "vips"]), "A balancer with direct server return.");
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("proofload balance");
    schema
}

fn described(mut schema: Value, what: &str) -> Value {
    schema["description"] = json!(what);
    schema
}

fn vip() -> Value {
    json!({
        "address": text("IPv4 or IPv6.", "192.168.16.100"),
        "port": whole_number(1, "Its port.", 80),
        "ports": {
            "type": ["array", "string"], "items": { "type": "integer" }, "pattern": "^all$",
            "description": "Its ports, or all that no other VIP of the address has.", "examples": [[80, 443], "all"]
        },
        "schedule": choice("By a hash of the client's address and port, or by turns.", &["maglev", "round-robin", "mh", "sh", "rr", "wrr"]),
        "persistence": text("What goes to one server: connections of a source address, or all for this time after the last one.", "5m"),
        "when_all_down": choice("Whether frames are dropped when no server is up, or go as if all were up.", &["drop", "all"]),
        "when_server_dies": choice("Whether connections of a dead server go to others, or wait for it.", &["move", "hold"]),
        "check": described(table(check(), &[]), "How servers are checked, through the VIP."),
        "servers": described(json!({ "type": "array", "items": table(server(), &["address"]) }), "Its servers."),
    })
}

fn check() -> Value {
    json!({
        "kind": choice("What is asked of a server.", &["tcp", "http", "https", "none"]),
        "path": text("What is asked for.", "/health"),
        "host": text("The field Host; the VIP unless given.", "www.example.com"),
        "status": { "type": ["string", "integer"], "description": "Status or range that is good.", "examples": ["200-399"] },
        "port": whole_number(1, "Port; the VIP's first one unless given.", 80),
        "interval": time("Time from one check to the next.", "2s"),
        "timeout": time("Longest time for an answer.", "1s"),
        "jitter": { "type": ["string", "number"], "description": "Share by which intervals vary.", "examples": ["10%"] },
        "rise": whole_number(1, "Good checks in turn until a server is up.", 2),
        "fall": whole_number(1, "Bad checks in turn until a server is down.", 3),
    })
}

fn server() -> Value {
    json!({
        "address": text("Its own address on the segment.", "192.168.16.1"),
        "name": text("What it is called.", "web1"),
        "weight": whole_number(0, "Its share of new connections, relative to others.", 1),
        "max_connections": whole_number(1, "New connections go elsewhere from this number on.", 1_000),
        "resume_connections": whole_number(1, "They come again below this number.", 750),
        "drain": flag("Whether it gets no new connections.", false),
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

/// The known keys that a mistake lists.
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
