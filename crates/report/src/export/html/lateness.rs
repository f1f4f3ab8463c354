//! A chart of lateness: how late requests were sent, and the generator's share of it.

use maud::html;

use super::{
    Page, Section,
    parts::{figure, left_out},
};
use crate::{
    plot::{Axis, Chart, Layer, Points, Scale, Shape, short_time_us},
    reading::Reading,
};

pub(super) fn section(page: &Page) -> Option<Section> {
    if page.readings.is_empty() {
        return None;
    }
    let timed: Vec<&Reading> =
        page.readings.iter().filter(|reading| reading.lateness_p99_ns.is_some()).collect();
    let body = if timed.is_empty() {
        html! { p { "No trial had a schedule: in a closed load, each user sends when it is ready." } }
    } else {
        let shown = &timed[..timed.len().min(page.limits.trials)];
        let caption = html! {
            "The 99th percentile of lateness in each trial. Lateness is how much later than due a request was sent. It \
             includes waiting for a free connection, which is caused by the target. The generator's share is the part \
             in which a connection was free; a trial is void if it is too large."
        };
        html! {
            (figure(&chart(shown), caption))
            (left_out(shown.len(), timed.len(), "trial"))
        }
    };
    Some(Section { anchor: "lateness", heading: "Lateness", body })
}

fn chart(readings: &[&Reading]) -> Chart {
    let points = |name: &str, class: &str, shape, void: bool, of: fn(&Reading) -> Option<u64>| {
        let shown = readings.iter().filter(|reading| reading.void == void);
        let points = shown.filter_map(|reading| {
            let us = of(reading)? as f64 / 1e3;
            // A logarithmic axis has no zero, so draw at least 64 ns, the resolution of the histogram.
            Some((reading.index as f64, us.max(0.064), String::new()))
        });
        Points::new(name, class, shape, points)
    };
    let all = [
        points("lateness", "s0", Shape::Series(3), false, |r| r.lateness_p99_ns),
        points("generator's share", "s1 solid", Shape::Dot, false, |r| r.own_lateness_p99_ns),
        points("both, of void trials", "void", Shape::Void, true, |r| r.lateness_p99_ns),
        points("", "void", Shape::Void, true, |r| r.own_lateness_p99_ns),
    ];
    let layers: Vec<Layer> = all.into_iter().map(Layer::Points).collect();
    let scale = Scale::log(layers.iter().flat_map(Layer::ys).collect::<Vec<f64>>());
    let index = |reading: Option<&&Reading>| reading.map_or(0.0, |reading| reading.index as f64);
    Chart {
        title: "99th percentile of lateness, and of the generator's share of it, in each trial".to_owned(),
        height: 180.0,
        x: Axis::of_trials(index(readings.first()), index(readings.last())),
        y: Axis::new("lateness, p99", scale, short_time_us),
        layers,
    }
}
