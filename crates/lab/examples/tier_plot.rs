//! `tier_plot SAMPLES.json DRAWING.svg PAGE.html`: what `bench/tier` measured, drawn: how fast a
//! writer writes, how long each of his writes takes, and how full the hot pool is, over time.
#![allow(clippy::disallowed_methods)]

use leeward_lab::page::{Page, drawing};
use leeward_lab::plot::{Band, Chart, Draw, Scale, Series, thin};
use serde::Deserialize;
use std::error::Error;
use std::fs;

/// Times in seconds since the writer began.
#[derive(Deserialize)]
struct Samples {
    title: String,
    /// When each write began, and how long it took in microseconds.
    writes: Vec<(f64, f64)>,
    /// Bytes written in a second, in MB.
    rate: Vec<(f64, f64)>,
    /// Which part of the hot pool was used, and which was not flushed.
    used: Vec<(f64, f64)>,
    unflushed: Vec<(f64, f64)>,
    /// What the cold pool alone took in a second, in MB.
    cold_rate: f64,
    /// When what happened began and ended.
    bands: Vec<(f64, f64, String)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [samples, svg, html] = &args[..] else {
        return Err("usage: tier_plot SAMPLES.json DRAWING.svg PAGE.html".into());
    };
    let samples: Samples = serde_json::from_slice(&fs::read(samples)?)?;
    let charts = charts(&samples);
    fs::write(svg, drawing(&samples.title, &charts))?;
    let mut page = Page::new(&samples.title);
    charts.iter().for_each(|chart| page.chart(&chart.svg()));
    fs::write(html, page.html())?;
    Ok(())
}

fn charts(samples: &Samples) -> [Chart; 3] {
    let end = samples.rate.last().map_or(1.0, |(at, _)| *at);
    let bands: Vec<Band> = samples
        .bands
        .iter()
        .map(|(from, to, name)| Band { from: *from, to: *to, name: name.clone() })
        .collect();
    let chart = |title: &str, y_label: &str, y: Scale, series: Vec<Series>| Chart {
        title: title.into(),
        x_label: "seconds since the writer began".into(),
        y_label: y_label.into(),
        x: Scale::Seconds,
        y,
        x_range: Some((0.0, end)),
        series,
        bands: bands.clone(),
        width: 900.0,
        plot_height: 200.0,
    };
    let line = |name: &str, points: Vec<(f64, f64)>| Series { name: name.into(), points, draw: Draw::Line };
    let cold = vec![(0.0, samples.cold_rate), (end, samples.cold_rate)];
    let dots =
        Series { name: "a write of 1 MiB".into(), points: thin(&samples.writes, 400), draw: Draw::Dots };
    [
        chart(
            "What the writer writes",
            "MB/s",
            Scale::Count,
            vec![line("written", samples.rate.clone()), line("what the cold pool takes by itself", cold)],
        ),
        chart("How long a write takes", "time", Scale::Latency, vec![dots]),
        chart(
            "The hot pool",
            "part of it",
            Scale::Part,
            vec![line("used", samples.used.clone()), line("not flushed yet", samples.unflushed.clone())],
        ),
    ]
}
