//! Draws a lab as text for terminals, as a Graphviz graph, or as SVG.

mod svg;

use std::fmt::Write;

use record::printable;
use settings::Network;

pub use svg::svg;

use crate::{
    link::{Driver, LinkSpec, Shape, text::show_rate},
    plan::{Link, LinkKind, Plan, Program},
};

/// Draws the plan as text: hosts with their interfaces and processes, then links.
pub fn text(plan: &Plan) -> String {
    let mut out = String::new();
    let title = if plan.title.is_empty() { "lab" } else { &plan.title };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", printable(title));
    for (index, host) in plan.hosts.iter().enumerate() {
        let _ = writeln!(out, "  {}", host.name);
        for (link, end) in plan.ends_of(index) {
            let _ = writeln!(out, "    {:<8} {}/{} on {}", end.device, end.address, link.prefix, link.name);
        }
        for address in &host.loopback {
            let _ = writeln!(out, "    lo       {address}/{}", Network::max_prefix(*address));
        }
        for route in &host.routes {
            let _ = writeln!(out, "    route    {route}");
        }
        for process in plan.processes.iter().filter(|process| process.host == index) {
            let _ = writeln!(out, "    runs     {}", printable(&program_text(&process.program)));
        }
    }
    for link in &plan.links {
        let names: Vec<&str> = link.ends.iter().map(|end| plan.hosts[end.host].name.as_str()).collect();
        let _ = writeln!(out, "  {}: {}: {}", link.name, describe(link), names.join(" "));
    }
    out
}

/// Draws the plan for Graphviz: `proofload lab graph --dot FILE | dot -Tpdf`.
pub fn dot(plan: &Plan) -> String {
    let mut out = String::from("graph lab {\n  node [shape=box];\n");
    for (index, host) in plan.hosts.iter().enumerate() {
        let _ = writeln!(out, "  h{index} [label=\"{}\"];", host.name);
    }
    for (number, link) in plan.links.iter().enumerate() {
        let label = format!("{}\\n{}", link.name, describe(link));
        if let (false, [a, b]) = (matches!(link.kind, LinkKind::Segment { .. }), &link.ends[..]) {
            let _ = writeln!(
                out,
                "  h{} -- h{} [label=\"{label}\", taillabel=\"{}\", headlabel=\"{}\"];",
                a.host, b.host, a.address, b.address
            );
            continue;
        }
        let _ = writeln!(out, "  s{number} [shape=ellipse, label=\"{label}\"];");
        for end in &link.ends {
            let _ = writeln!(out, "  h{} -- s{number} [taillabel=\"{}\"];", end.host, end.address);
        }
    }
    out + "}\n"
}

/// A short description of a link.
fn describe(link: &Link) -> String {
    let network = format!("{}/{}", link.network, link.prefix);
    match &link.kind {
        LinkKind::Segment { port_rate_bits_per_s: None } => format!("segment {network}"),
        LinkKind::Segment { port_rate_bits_per_s: rate } => {
            format!("segment {network} {} a port", show_rate(*rate))
        }
        LinkKind::Pair => format!("pair {network}"),
        LinkKind::Emulated(spec) => format!("{} {network} {}", driver(spec), describe_spec(spec)),
    }
}

fn driver(spec: &LinkSpec) -> &'static str {
    match spec.driver {
        Driver::Emulator => "emulated",
        Driver::Netem => "netem",
    }
}

fn describe_spec(spec: &LinkSpec) -> String {
    let (a_to_b, b_to_a) = (describe_shape(&spec.a_to_b), describe_shape(&spec.b_to_a));
    if a_to_b == b_to_a { a_to_b } else { format!("there {a_to_b}, back {b_to_a}") }
}

fn describe_shape(shape: &Shape) -> String {
    let delay = record::units::show_time_ns(shape.delay_ns);
    let mut text = format!("{}, {delay}", show_rate(shape.rate_bits_per_s));
    if shape.loss.ratio() > 0.0 {
        let _ = write!(text, ", loss {}%", shape.loss.ratio() * 100.0);
    }
    text
}

fn program_text(program: &Program) -> String {
    match program {
        Program::Known(known) => format!("{} on port {}", known.kind.name(), known.port),
        Program::Command(words) => secrets::mask(&words.join(" ")).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::file::parse;

    const FILE: &str = "title = \"t <&>\"\n[hosts]\na = { loopback = [\"9.9.9.9\"] }\nweb = { count = 3 }\n\
                        [[links]]\nbetween = [\"a\", \"web\"]\n[[links]]\nbetween = [\"a\", \"web1\"]\n\
                        delay = \"10ms\"\nrate = \"20mbit\"\n[[processes]]\non = \"web\"\nrun = \"nginx\"\n";

    #[test]
    fn every_host_link_and_address_is_in_every_picture() {
        let plan = parse("f", FILE).unwrap();
        for picture in [super::text(&plan), super::dot(&plan), super::svg(&plan)] {
            for part in ["web3", "10.1.0.4", "10.2.0.2", "20mbit, 10.0 ms", "link2"] {
                assert!(picture.contains(part), "{part} is not in\n{picture}");
            }
        }
        let svg = super::svg(&plan);
        assert!(svg.contains("t &lt;&amp;&gt;") && !svg.contains("<&>"));
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }
}
