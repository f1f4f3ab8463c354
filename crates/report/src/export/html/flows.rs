//! What programs sent and received over time, in chosen trials.

use maud::{Markup, html};
use record::{CommandTrial, Flow};

use super::{
    Page, Section,
    chosen::{Chosen, chosen},
    parts::folded,
};
use crate::{
    plot::{Axis, Chart, Layer, Line, Scale, short_number, short_seconds},
    text,
};

/// Trials that are shown at once; the others are folded.
const OPEN: usize = 12;
/// Directions that are drawn together; the others carried less.
const LINES: usize = 6;

pub(super) fn section(page: &Page) -> Option<Section> {
    let all: Vec<Chosen> = chosen(page).into_iter().filter(|chosen| programs(chosen).is_some()).collect();
    if all.is_empty() {
        return None;
    }
    let body = html! {
        p { "What went over the interfaces of the load's hosts, and over emulated links, while the programs ran. Of each \
         setting: the valid trial nearest to its median, and the first void one. Bytes on an interface are those that the \
         kernel counts, headers included; over a link they are bytes on the wire." }
        (folded(&all, (OPEN, page.limits.figures.max(OPEN)), ("trial", "chosen trial"), |chosen| one(page, chosen)))
    };
    Some(Section { anchor: "flows", heading: "Rate over time", body })
}

fn programs<'a>(chosen: &Chosen<'a>) -> Option<&'a CommandTrial> {
    chosen.entry.trial.command().filter(|trial| !trial.flows.is_empty())
}

fn one(page: &Page, chosen: &Chosen) -> Markup {
    let Some(trial) = programs(chosen) else { return html! {} };
    let void = chosen.entry.trial.validity.is_void();
    let mut flows: Vec<(&String, &Flow)> = trial.flows.iter().collect();
    flows.sort_by_key(|(_, flow)| std::cmp::Reverse(flow.bytes));
    let most = flows.iter().map(|(_, flow)| flow.bins.len()).max().unwrap_or(0);
    let together = most.div_ceil(page.limits.points.max(1)).max(1);
    let width_s = trial.bin_s * together as f64;
    let layers: Vec<Layer> = flows
        .iter()
        .take(LINES)
        .enumerate()
        .map(|(number, (name, flow))| {
            let rate =
                |bins: &[u64]| bins.iter().sum::<u64>() as f64 * 8.0 / (bins.len() as f64 * trial.bin_s);
            let points = flow.bins.chunks(together).enumerate().flat_map(|(place, bins)| {
                let (from_s, rate) = (place as f64 * width_s, rate(bins));
                [Some((from_s, rate)), Some((from_s + bins.len() as f64 * trial.bin_s, rate))]
            });
            Layer::Line(Line::new(page.text(name), format!("s{}", number % 6), points))
        })
        .collect();
    let rates = layers.iter().flat_map(|layer| match layer {
        Layer::Line(line) => line.points.iter().flatten().map(|(_, rate)| *rate).collect(),
        _ => Vec::new(),
    });
    let chart = Chart {
        title: "Bits per second".to_owned(),
        height: 150.0,
        y: Axis::new("bit/s", Scale::from_zero(rates.collect::<Vec<f64>>()), short_number),
        x: Axis::new(
            "time since the start",
            Scale::Linear { low: 0.0, high: (most as f64 * trial.bin_s).max(1e-3) },
            short_seconds,
        ),
        layers,
    };
    html! {
        h3 { "Trial " (chosen.entry.index) @if void { " (void)" } ": " bdi { (chosen.why) } }
        figure {
            div.wide { (chart.svg()) }
            figcaption {
                "Each step is " (text::seconds(width_s)) "."
                @if let Some(why) = trial.failure() { " " bdi { (page.text(&why)) } }
            }
        }
    }
}
