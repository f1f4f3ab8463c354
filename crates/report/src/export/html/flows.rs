//! Charts of the traffic of programs over time, for representative trials.

use maud::{Markup, html};
use record::{CommandTrial, Flow, TrialEntry};

use super::{
    Page, Section,
    representative::{RepresentativeTrial, section_of_trials},
};
use crate::{
    plot::{Axis, Chart, Layer, Line, Scale, short_number, short_seconds},
    text,
};

/// Maximum number of trials shown unfolded.
const MAX_UNFOLDED: usize = 12;
/// Maximum number of lines in a chart; only those with the most bytes are drawn.
const MAX_LINES: usize = 6;

pub(super) fn section(page: &Page) -> Option<Section> {
    let introduction = "Traffic on the interfaces of the load's hosts and on emulated links while the programs ran, for the valid trial \
         nearest to the median of each setting and for the first void trial. On interfaces, bytes are counted by the kernel, \
         including headers; on links, they are bytes on the wire.";
    let texts = ("flows", "Rate over time", introduction);
    let counts = (MAX_UNFOLDED, page.limits.figures.max(MAX_UNFOLDED));
    section_of_trials(page, texts, counts, programs, |selected, trial| trial_chart(page, selected, trial))
}

fn programs(entry: &TrialEntry) -> Option<&CommandTrial> {
    entry.trial.command().filter(|trial| !trial.flows.is_empty())
}

fn trial_chart(page: &Page, selected: &RepresentativeTrial, trial: &CommandTrial) -> Markup {
    let void = selected.entry.trial.validity.is_void();
    let mut flows: Vec<(&String, &Flow)> = trial.flows.iter().collect();
    flows.sort_by_key(|(_, flow)| std::cmp::Reverse(flow.bytes));
    let bins = flows.iter().map(|(_, flow)| flow.bins.len()).max().unwrap_or(0);
    let together = bins.div_ceil(page.limits.points.max(1)).max(1);
    let width_s = trial.bin_s * together as f64;
    let layers: Vec<Layer> = flows
        .iter()
        .take(MAX_LINES)
        .enumerate()
        .map(|(number, (name, flow))| {
            let rate =
                |bins: &[u64]| bins.iter().sum::<u64>() as f64 * 8.0 / (bins.len() as f64 * trial.bin_s);
            let points = flow.bins.chunks(together).enumerate().flat_map(|(index, bins)| {
                let (from_s, rate) = (index as f64 * width_s, rate(bins));
                [Some((from_s, rate)), Some((from_s + bins.len() as f64 * trial.bin_s, rate))]
            });
            Layer::Line(Line::new(page.text(name), format!("s{}", number % 6), points))
        })
        .collect();
    let rates = layers.iter().flat_map(Layer::ys);
    let chart = Chart {
        title: "Bits per second".to_owned(),
        height: 150.0,
        y: Axis::new("bit/s", Scale::from_zero(rates.collect::<Vec<f64>>()), short_number),
        x: Axis::new(
            "time since the start",
            Scale::Linear { low: 0.0, high: (bins as f64 * trial.bin_s).max(1e-3) },
            short_seconds,
        ),
        layers,
    };
    html! {
        h3 { "Trial " (selected.entry.index) @if void { " (void)" } ": " bdi { (selected.why) } }
        figure {
            div.wide { (chart.svg()) }
            figcaption {
                "Each step is " (text::seconds(width_s)) "."
                @if let Some(why) = trial.failure() { " " bdi { (page.text(&why)) } }
            }
        }
    }
}
