//! Draws a lab as SVG: links are horizontal bars, hosts are boxes below them.

use std::fmt::Write;

use super::{describe, program_text};
use crate::plan::{Link, Plan};

const WIDTH: usize = 150;
const GAP: usize = 20;
const LINE: usize = 16;
const MARGIN: usize = 30;
/// Vertical distance between the bars of two links.
const BAR: usize = 44;
const TOP: usize = 60;

/// Draws the plan as SVG.
pub fn svg(plan: &Plan) -> String {
    let column = |host: usize| MARGIN + host * (WIDTH + GAP);
    let bar = |link: usize| TOP + link * BAR;
    let hosts_top = TOP + plan.links.len() * BAR + LINE;
    let boxes: Vec<Vec<String>> = (0..plan.hosts.len()).map(|host| lines(plan, host)).collect();
    let tallest = boxes.iter().map(Vec::len).max().unwrap_or(1);
    let height = hosts_top + (tallest + 2) * LINE + MARGIN;
    let width = (column(plan.hosts.len()) + MARGIN).max(600);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"28\" font-size=\"18\">{}</text>\n",
        escape(if plan.title.is_empty() { "lab" } else { &plan.title })
    );
    for (number, link) in plan.links.iter().enumerate() {
        draw_link(&mut out, link, bar(number), hosts_top, &|host| {
            // A host with several links has several vertical lines, which are side by side.
            let position = plan.ends_of(host).position(|(other, _)| other.name == link.name).unwrap_or(0);
            column(host) + 20 + position * 24 % (WIDTH - 30)
        });
    }
    for (host, lines) in boxes.iter().enumerate() {
        let (x, tall) = (column(host), (lines.len() + 1) * LINE);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<g><rect x=\"{x}\" y=\"{hosts_top}\" width=\"{WIDTH}\" height=\"{tall}\" rx=\"4\" fill=\"#f4f7fa\" \
             stroke=\"#345\"/>"
        );
        for (number, line) in lines.iter().enumerate() {
            let y = hosts_top + (number + 1) * LINE;
            let weight = if number == 0 { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(out, "<text x=\"{}\" y=\"{y}\"{weight}>{}</text>", x + 8, escape(line));
        }
        out += "</g>\n";
    }
    out + "</svg>\n"
}

fn draw_link(out: &mut String, link: &Link, y: usize, hosts_top: usize, x: &dyn Fn(usize) -> usize) {
    let columns: Vec<usize> = link.ends.iter().map(|end| x(end.host)).collect();
    let first = columns.iter().copied().min().unwrap_or(MARGIN);
    let last = columns.iter().copied().max().unwrap_or(MARGIN);
    let _ = writeln!(
        out,
        "<g stroke=\"#27608c\" stroke-width=\"2\"><line x1=\"{first}\" y1=\"{y}\" x2=\"{last}\" y2=\"{y}\"/>"
    );
    for column in columns {
        let _ = writeln!(out, "<line x1=\"{column}\" y1=\"{y}\" x2=\"{column}\" y2=\"{hosts_top}\"/>");
    }
    let label = format!("{}: {}", link.name, describe(link));
    let _ = writeln!(out, "</g><text x=\"{first}\" y=\"{}\">{}</text>", y - 6, escape(&label));
}

/// The lines of text in a host's box.
fn lines(plan: &Plan, host: usize) -> Vec<String> {
    let mut lines = vec![plan.hosts[host].name.clone()];
    lines.extend(plan.ends_of(host).map(|(_, end)| format!("{} {}", end.device, end.address)));
    lines.extend(plan.hosts[host].loopback.iter().map(|address| format!("lo {address}")));
    let processes = plan.processes.iter().filter(|process| process.host == host);
    lines.extend(processes.map(|process| program_text(&process.program).chars().take(22).collect()));
    lines
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
