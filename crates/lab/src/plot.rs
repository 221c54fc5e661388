//! Charts as SVG: axes with units, a legend, nothing cut off, readable without colours.
//!
//! Series differ by dash and mark first, by colour second. Widths of texts are estimated from
//! above, as there is no font to measure; a label that does not fit on an axis is left out rather
//! than drawn over another one.

use crate::text;
use std::fmt::Write;

/// Height of a character and of a line of text, pixels.
const FONT: f64 = 12.0;
const LINE: f64 = 17.0;
/// The widest that a character is on average, pixels.
const CHAR: f64 = 7.3;
/// Length of a ticks' stroke, and space between things.
const TICK: f64 = 5.0;
const GAP: f64 = 6.0;
/// What a mark reaches beyond its point.
const MARK: f64 = 3.2;
/// Width of a legend's sample.
const SAMPLE: f64 = 34.0;
/// Marks along a line, at most.
const MARKS_MAX: usize = 7;

/// Ink, dash and mark of each series in turn.
const INKS: [&str; 6] = ["#000000", "#0b62a4", "#c14a00", "#00734f", "#8a2f74", "#6b6b6b"];
const DASHES: [&str; 6] = ["", "8 4", "2 3", "10 3 2 3", "5 2", "1 4"];

/// What an axis shows.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// Latencies in microseconds, by decades.
    Latency,
    /// Counts and rates, by decades.
    Count,
    /// Seconds, or any other number.
    Seconds,
    /// Parts of a whole, 0 to 1, in percent.
    Part,
    /// Milliseconds since 1970; the function writes seconds as `2026-11-21 10:43:58 UTC`.
    Clock(fn(i64) -> String),
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// A mark a point.
    Dots,
    /// Points joined, in order.
    Line,
}

/// Points under one name.
#[derive(Clone, Debug)]
pub struct Series {
    /// As the legend says.
    pub name: String,
    /// x and y. Those that are no numbers, or not positive on a latency's axis, are left out.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub draw: Draw,
}

/// A named range of x.
#[derive(Clone, Debug)]
pub struct Band {
    /// Start of the range.
    pub from: f64,
    /// End of the range.
    pub to: f64,
    /// Name of the range.
    pub name: String,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the x axis, with the unit where ticks have none.
    pub x_label: String,
    /// Beside the y axis.
    pub y_label: String,
    /// The x axis.
    pub x: Scale,
    /// The y axis.
    pub y: Scale,
    /// Range that x covers at least.
    pub x_range: Option<(f64, f64)>,
    /// The series to draw.
    pub series: Vec<Series>,
    /// What is behind it.
    pub bands: Vec<Band>,
    /// Width of the whole, pixels.
    pub width: f64,
    /// Height of the area in which points are, pixels.
    pub plot_height: f64,
}

impl Chart {
    /// The SVG element.
    pub fn svg(&self) -> String {
        Drawing::new(self).finish()
    }
}

/// An axis with its range: where a value is between 0 and 1.
struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
}

impl Scale {
    /// Whether it goes by decades: then there is nothing at 0 and below.
    fn by_decades(self) -> bool {
        matches!(self, Scale::Latency | Scale::Count)
    }
}

impl Axis {
    fn over(scale: Scale, values: impl Iterator<Item = f64>, at_least: Option<(f64, f64)>) -> Axis {
        let usable = values.filter(|v| v.is_finite() && (!scale.by_decades() || *v > 0.0));
        let all = usable.chain(at_least.into_iter().flat_map(|(a, b)| [a, b]));
        let range = all.fold(None, |range: Option<(f64, f64)>, v| {
            Some(range.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
        });
        let (from, to) = match (scale, range) {
            (Scale::Part, _) => (0.0, 1.0),
            (Scale::Latency | Scale::Count, None) => (1.0, 1000.0),
            (Scale::Latency | Scale::Count, Some((low, high))) => decades(low, high),
            (_, None) => (0.0, 1.0),
            (_, Some((low, high))) if low == high => (low - 1.0, high + 1.0),
            (_, Some(range)) => range,
        };
        Axis { scale, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Latency | Scale::Count => (value / self.from).log10() / (self.to / self.from).log10(),
            _ => (value - self.from) / (self.to - self.from),
        }
    }

    /// Values with their texts, at most `max` of them.
    fn ticks(&self, max: usize) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Latency | Scale::Count => {
                let count = (self.to / self.from).log10().round() as usize;
                let step = (count + 1).div_ceil(max.max(2));
                let decade = |i: usize| self.from * 10f64.powi(i as i32);
                let text = |at: f64| match self.scale {
                    Scale::Count => short_count(at),
                    _ => short_latency(at),
                };
                (0..=count).step_by(step).map(decade).map(|at| (at, text(at))).collect()
            }
            Scale::Part => {
                let step = if max >= 6 { 20 } else { 50 };
                (0..=100).step_by(step).map(|p| (f64::from(p) / 100.0, format!("{p} %"))).collect()
            }
            Scale::Seconds => {
                let step = nice_step((self.to - self.from) / max.max(1) as f64);
                self.multiples(step).map(|at| (at, plain(at))).collect()
            }
            Scale::Clock(utc) => {
                let step = clock_step((self.to - self.from) / 1000.0 / max.max(1) as f64);
                self.multiples(step * 1000.0).map(|at| (at, clock_text(utc, at, step))).collect()
            }
        }
    }

    fn multiples(&self, step: f64) -> impl Iterator<Item = f64> {
        let (first, last) = ((self.from / step).ceil() as i64, (self.to / step).floor() as i64);
        (first..=last).map(move |i| i as f64 * step)
    }
}

/// Whole decades around a range, two at least.
fn decades(low: f64, high: f64) -> (f64, f64) {
    let (from, to) = (low.log10().floor(), high.log10().ceil());
    (10f64.powf(from), 10f64.powf(to.max(from + 2.0)))
}

/// A latency that is a power of ten.
fn short_latency(us: f64) -> String {
    text::latency(us).replace(".00", "").replace(".0", "")
}

/// A count that is a power of ten: `0.1`, `10`, `10k`, `1M`.
fn short_count(count: f64) -> String {
    match count {
        c if c < 999.5 => plain(c),
        c if c < 999_999.5 => format!("{}k", plain((c / 1e3).round())),
        c => format!("{}M", plain((c / 1e6).round())),
    }
}

fn plain(value: f64) -> String {
    // No `-0`, and no more digits than a step has.
    format!("{}", (value * 1e6).round() / 1e6 + 0.0)
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|f| f * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}

/// A step that people divide time by, at least `least` seconds.
fn clock_step(least: f64) -> f64 {
    const STEPS: [f64; 17] = [
        1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10_800.0, 21_600.0, 43_200.0,
        86_400.0, 172_800.0, 604_800.0,
    ];
    STEPS.into_iter().find(|step| *step >= least).unwrap_or_else(|| (least / 604_800.0).ceil() * 604_800.0)
}

fn clock_text(utc: fn(i64) -> String, at_ms: f64, step: f64) -> String {
    let secs = (at_ms / 1000.0) as i64;
    let text = utc(secs);
    let part = match step {
        step if step < 60.0 => text.get(11..19),
        _ if secs % 86_400 == 0 => text.get(5..10),
        _ => text.get(11..16),
    };
    part.unwrap_or(&text).to_string()
}

/// Where things are, and what was drawn so far.
struct Drawing<'a> {
    chart: &'a Chart,
    x: Axis,
    y: Axis,
    left: f64,
    top: f64,
    plot_width: f64,
    out: String,
}

impl<'a> Drawing<'a> {
    fn new(chart: &'a Chart) -> Drawing<'a> {
        let points = || chart.series.iter().flat_map(|s| s.points.iter());
        let ends = chart.bands.iter().flat_map(|band| [band.from, band.to]);
        let x = Axis::over(chart.x, points().map(|p| p.0).chain(ends), chart.x_range);
        let y = Axis::over(chart.y, points().map(|p| p.1), None);
        let widest = y.ticks(20).iter().map(|(_, text)| width(text)).fold(0.0, f64::max);
        let left = LINE + GAP + widest + GAP + TICK;
        let rows = if chart.bands.is_empty() { 0.0 } else { 2.0 };
        let top = LINE + GAP + rows * LINE;
        // Half of the last tick's text is to the right of the axis.
        let plot_width = chart.width - left - 5.0 * CHAR;
        Drawing { chart, x, y, left, top, plot_width, out: String::new() }
    }

    fn finish(mut self) -> String {
        self.bands();
        self.axes();
        for (index, series) in self.chart.series.iter().enumerate() {
            self.series(index, series);
        }
        let title = self.chart.title.clone();
        self.text(self.left, LINE - 4.0, "start", "t", &title);
        let height = self.legend();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" aria-label=\"{}\" \
             viewBox=\"0 0 {} {height}\" width=\"{}\" height=\"{height}\">\n{}</svg>\n",
            escape(&self.chart.title),
            self.chart.width,
            self.chart.width,
            self.out
        )
    }

    fn at_x(&self, value: f64) -> f64 {
        self.left + self.x.place(value).clamp(0.0, 1.0) * self.plot_width
    }

    fn at_y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.place(value).clamp(0.0, 1.0)) * self.chart.plot_height
    }

    fn bottom(&self) -> f64 {
        self.top + self.chart.plot_height
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// Every other band is grey; names take two rows in turn, as far as there is room.
    fn bands(&mut self) {
        let mut free = [0.0; 2];
        for (index, band) in self.chart.bands.iter().enumerate() {
            let (from, to) = (self.at_x(band.from), self.at_x(band.to));
            let fill = if index % 2 == 0 { "#e9e9e9" } else { "#f4f4f4" };
            let (top, height) = (self.top, self.chart.plot_height);
            let _ = writeln!(
                self.out,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\" fill=\"{fill}\"/>",
                (to - from).max(1.0)
            );
            let (row, half) = (index % 2, width(&band.name) / 2.0);
            let end = self.left + self.plot_width + 5.0 * CHAR - half;
            let middle = ((from + to) / 2.0).clamp(half, end.max(half));
            if middle - half >= free[row] {
                free[row] = middle + half + GAP;
                let y = self.top - 5.0 - (1 - row) as f64 * LINE;
                self.text(middle, y, "middle", "l", &band.name);
            }
        }
    }

    fn axes(&mut self) {
        let (left, right, bottom) = (self.left, self.left + self.plot_width, self.bottom());
        for (value, text) in self.y.ticks((self.chart.plot_height / (1.6 * LINE)) as usize) {
            let y = self.at_y(value);
            let _ = writeln!(
                self.out,
                "<path class=\"grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/><path class=\"axis\" d=\"M{:.1} {y:.1}h{TICK}\"/>",
                left - TICK
            );
            self.text(left - TICK - GAP, y + FONT / 3.0, "end", "l", &text);
        }
        let most = match self.chart.x {
            Scale::Clock(_) => 10.0,
            Scale::Latency | Scale::Count => 6.5,
            _ => 8.0,
        };
        for (value, text) in self.x.ticks((self.plot_width / (most * CHAR)) as usize) {
            let x = self.at_x(value);
            let _ = writeln!(
                self.out,
                "<path class=\"grid\" d=\"M{x:.1} {:.1}V{bottom}\"/><path class=\"axis\" d=\"M{x:.1} {bottom}v{TICK}\"/>",
                self.top
            );
            self.text(x, bottom + TICK + FONT + 1.0, "middle", "l", &text);
        }
        let _ =
            writeln!(self.out, "<path class=\"axis\" d=\"M{left:.1} {:.1}V{bottom}H{right:.1}\"/>", self.top);
        let (x_label, y_label) = (self.chart.x_label.clone(), escape(&self.chart.y_label));
        self.text(left + self.plot_width / 2.0, bottom + TICK + FONT + LINE + 1.0, "middle", "l", &x_label);
        let (x, y) = (FONT, self.top + self.chart.plot_height / 2.0);
        let _ = writeln!(
            self.out,
            "<text class=\"l\" text-anchor=\"middle\" transform=\"translate({x} {y}) rotate(-90)\">{y_label}</text>"
        );
    }

    fn series(&mut self, index: usize, series: &Series) {
        let usable = |(x, y): &(f64, f64)| {
            let shown = |scale: Scale, v: f64| v.is_finite() && (!scale.by_decades() || v > 0.0);
            shown(self.chart.x, *x) && shown(self.chart.y, *y)
        };
        let place = |(x, y): &(f64, f64)| (self.at_x(*x), self.at_y(*y));
        let points: Vec<(f64, f64)> = series.points.iter().filter(|p| usable(p)).map(place).collect();
        let (look, name) = (Look::of(index), escape(&series.name));
        let _ =
            writeln!(self.out, "<g class=\"series\" data-name=\"{name}\" data-points=\"{}\">", points.len());
        look.draw(&mut self.out, series.draw, &points);
        self.out.push_str("</g>\n");
    }

    /// Below all; gives the height of the whole.
    fn legend(&mut self) -> f64 {
        let mut y = self.bottom() + TICK + FONT + LINE + GAP;
        if self.chart.series.len() < 2 && self.chart.series.iter().all(|s| s.name.is_empty()) {
            return y;
        }
        let mut x = self.left;
        y += LINE;
        for (index, series) in self.chart.series.iter().enumerate() {
            let wide = SAMPLE + MARK + GAP + width(&series.name) + 2.0 * GAP;
            if x > self.left && x + wide > self.chart.width {
                x = self.left;
                y += LINE;
            }
            let middle = y - FONT / 3.0;
            let sample: &[(f64, f64)] = match series.draw {
                Draw::Line => &[(x, middle), (x + SAMPLE / 2.0, middle), (x + SAMPLE, middle)],
                Draw::Dots => &[(x + 8.0, middle), (x + SAMPLE / 2.0, middle), (x + SAMPLE - 8.0, middle)],
            };
            Look::of(index).draw(&mut self.out, series.draw, sample);
            self.text(x + SAMPLE + MARK + GAP, y, "start", "l", &series.name);
            x += wide;
        }
        y + GAP
    }
}

/// How a series looks.
struct Look {
    ink: &'static str,
    dash: &'static str,
    mark: usize,
}

impl Look {
    fn of(index: usize) -> Look {
        Look { ink: INKS[index % INKS.len()], dash: DASHES[index % DASHES.len()], mark: index % 5 }
    }

    fn draw(&self, out: &mut String, draw: Draw, points: &[(f64, f64)]) {
        let marked: Vec<(f64, f64)> = match draw {
            Draw::Dots => points.to_vec(),
            // The first series is a plain line; so every other one differs from it in two ways.
            Draw::Line if self.mark == 0 => Vec::new(),
            Draw::Line => spread(points, MARKS_MAX),
        };
        if draw == Draw::Line {
            let mut path = String::new();
            for (i, (x, y)) in points.iter().enumerate() {
                let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
            }
            let (ink, dash) = (self.ink, self.dash);
            let _ = writeln!(
                out,
                "<path class=\"line\" stroke=\"{ink}\" stroke-dasharray=\"{}\" d=\"{path}\"/>",
                if dash.is_empty() { "none" } else { dash }
            );
        }
        if marked.is_empty() {
            return;
        }
        let size = if draw == Draw::Line { MARK } else { 2.2 };
        let path: String = marked.iter().map(|(x, y)| self.mark(*x, *y, size)).collect();
        let class = if self.mark == 0 { "dot" } else { "mark" };
        let _ = writeln!(out, "<path class=\"{class}\" stroke=\"{}\" d=\"{path}\"/>", self.ink);
    }

    /// A dot, a cross, a square, a triangle or a plus.
    fn mark(&self, x: f64, y: f64, s: f64) -> String {
        let d = 2.0 * s;
        match self.mark {
            0 => format!("M{x:.1} {y:.1}h0"),
            1 => format!("M{:.1} {:.1}l{d} {d}m0 -{d}l-{d} {d}", x - s, y - s),
            2 => format!("M{:.1} {:.1}h{d}v{d}h-{d}z", x - s, y - s),
            3 => format!("M{x:.1} {:.1}l{s} {d}h-{d}z", y - s),
            _ => format!("M{:.1} {y:.1}h{d}m-{s} -{s}v{d}", x - s),
        }
    }
}

/// Some of the points, as far apart as they are.
fn spread(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let length = |a: &(f64, f64), b: &(f64, f64)| (a.0 - b.0).hypot(a.1 - b.1);
    let total: f64 = points.windows(2).map(|pair| length(&pair[0], &pair[1])).sum();
    let (mut chosen, mut along, mut next) = (vec![*first], 0.0, total / (most - 1) as f64);
    for pair in points.windows(2) {
        along += length(&pair[0], &pair[1]);
        if along >= next {
            chosen.push(pair[1]);
            next += total / (most - 1) as f64;
        }
    }
    if chosen.last() != Some(last) {
        chosen.push(*last);
    }
    chosen
}

/// The cumulative distribution of values: which part is at most x. A few hundred points at most, in
/// steps.
pub fn distribution(values: &[f64]) -> Vec<(f64, f64)> {
    let sorted = crate::stats::sorted(values);
    let count = sorted.len();
    let every = (count / 200).max(1);
    let mut points = Vec::new();
    let mut before = 0.0;
    for (i, value) in sorted.iter().enumerate() {
        // The tail is what this is about: all of it is drawn.
        if i % every == 0 || i + 40 >= count {
            let part = (i + 1) as f64 / count as f64;
            points.extend([(*value, before), (*value, part)]);
            before = part;
        }
    }
    points
}

/// At most three points for each of `bins` stretches of x, which ascend: the lowest, the median and
/// the highest.
pub fn thin(points: &[(f64, f64)], bins: usize) -> Vec<(f64, f64)> {
    if points.len() <= 3 * bins {
        return points.to_vec();
    }
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let bin = |x: f64| ((x - first) / (last - first).max(f64::MIN_POSITIVE) * bins as f64) as usize;
    let mut thinned = Vec::new();
    for group in points.chunk_by(|a, b| bin(a.0) == bin(b.0)) {
        let mut by_height = group.to_vec();
        by_height.sort_unstable_by(|a, b| a.1.total_cmp(&b.1));
        let mut kept = vec![by_height[0], by_height[by_height.len() / 2], by_height[by_height.len() - 1]];
        kept.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        kept.dedup();
        thinned.extend(kept);
    }
    thinned
}

fn width(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR
}

/// Text for HTML and SVG, also within quotes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: Vec<Series>) -> Chart {
        Chart {
            title: "a < b".into(),
            x_label: "seconds".into(),
            y_label: "latency".into(),
            x: Scale::Seconds,
            y: Scale::Latency,
            x_range: None,
            series,
            bands: vec![Band { from: 0.0, to: 5.0, name: "quiet".into() }],
            width: 600.0,
            plot_height: 200.0,
        }
    }

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.into(), points: points.to_vec(), draw: Draw::Line }
    }

    #[test]
    fn a_chart_has_series_units_and_a_legend() {
        let svg = chart(vec![
            series("one & two", &[(0.0, 10.0), (10.0, 2000.0)]),
            series("other", &[(0.0, 0.0), (f64::NAN, 5.0), (1.0, 50.0)]),
        ])
        .svg();
        assert_eq!(svg.matches("class=\"series\"").count(), 2);
        for word in
            ["a &lt; b", "one &amp; two", ">10 us<", ">10 ms<", ">quiet<", ">seconds<", "data-points=\"1\""]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.contains("stroke-dasharray=\"8 4\""), "the second is dashed");
    }

    #[test]
    fn nothing_to_draw_is_no_error() {
        let mut empty = chart(vec![series("", &[])]);
        empty.bands.clear();
        let svg = empty.svg();
        assert!(svg.contains("<svg") && !svg.contains("NaN"), "{svg}");
        assert!(chart(vec![series("x", &[(3.0, 7.0)])]).svg().contains("data-points=\"1\""));
    }

    #[test]
    fn axes_are_by_decades_and_nice_steps() {
        let axis = Axis::over(Scale::Latency, [30.0, 4000.0].into_iter(), None);
        let texts: Vec<String> = axis.ticks(10).into_iter().map(|t| t.1).collect();
        assert_eq!(texts, ["10 us", "100 us", "1 ms", "10 ms"]);
        assert!((axis.place(316.2) - 0.5).abs() < 0.001);
        let axis = Axis::over(Scale::Seconds, [0.0, 93.0].into_iter(), None);
        let texts: Vec<String> = axis.ticks(5).into_iter().map(|t| t.1).collect();
        assert_eq!(texts, ["0", "20", "40", "60", "80"]);
        assert_eq!(short_latency(10.0e6), "10 s");
        assert_eq!(short_latency(0.1), "100 ns");
    }

    #[test]
    fn clocks_have_times_and_dates() {
        let utc = |secs: i64| {
            format!("2026-11-21 {:02}:{:02}:{:02} UTC", secs / 3600 % 24, secs / 60 % 60, secs % 60)
        };
        assert_eq!(clock_text(utc, 3_661_000.0, 1.0), "01:01:01");
        assert_eq!(clock_text(utc, 3_660_000.0, 60.0), "01:01");
        assert_eq!(clock_text(utc, 86_400_000.0, 3600.0), "11-21");
        assert_eq!(clock_step(7.0), 10.0);
        assert_eq!(clock_step(1_000_000.0), 1_209_600.0);
    }

    #[test]
    fn distributions_end_at_one() {
        let points = distribution(&[3.0, 1.0, 2.0, 4.0]);
        assert_eq!(points.first(), Some(&(1.0, 0.0)));
        assert_eq!(points.last(), Some(&(4.0, 1.0)));
        let many: Vec<f64> = (0..10_000).map(f64::from).collect();
        let points = distribution(&many);
        assert!(points.len() < 600 && points.last() == Some(&(9999.0, 1.0)));
        assert!(distribution(&[]).is_empty());
    }

    #[test]
    fn thinning_keeps_the_extremes() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), f64::from(i % 97))).collect();
        let thinned = thin(&points, 100);
        assert!(thinned.len() <= 303);
        assert!(thinned.iter().any(|p| p.1 == 96.0) && thinned.iter().any(|p| p.1 == 0.0));
        assert!(thinned.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert_eq!(thin(&points[..5], 100), &points[..5]);
    }
}
