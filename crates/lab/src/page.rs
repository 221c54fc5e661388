//! A self-contained HTML page: no script, no font, nothing from any network.

use crate::plot::{Chart, escape};
use std::fmt::Write;

const STYLE: &str = "
body { font: 15px/1.5 'DejaVu Sans', Verdana, sans-serif; color: #111; background: #fff; max-width: 1120px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse; font-size: 13px; margin: 0.8em 0 }
th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ccc; white-space: nowrap }
th { border-bottom: 2px solid #111 } .w { text-align: left } .b { font-weight: bold }
svg.chart { display: block; margin: 0.8em 0; max-width: 100% }
.many { display: flex; flex-wrap: wrap; gap: 0 12px } .many svg.chart { max-width: none }
svg text { font: 12px 'DejaVu Sans', Verdana, sans-serif; fill: #111 } svg .t { font-weight: bold }
.grid { stroke: #ccc; stroke-width: 0.5; fill: none } .axis { stroke: #111; fill: none }
.line { fill: none; stroke-width: 1.6 } .mark { fill: none; stroke-width: 1.1 } .dot { fill: none; stroke-width: 3; stroke-linecap: round }
.note { color: #444; font-size: 13px }
@media print { body { margin: 0; max-width: none } h2 { break-after: avoid } svg.chart { break-inside: avoid } }
";

/// Pixels between two charts of a drawing.
const BETWEEN: f64 = 12.0;

/// A page under construction.
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// An empty page with a title.
    pub fn new(title: &str) -> Page {
        Page { title: title.into(), body: format!("<h1>{}</h1>\n", escape(title)) }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
    }

    /// Adds a paragraph of text.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    /// Adds a paragraph in small print.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"note\">{}</p>", escape(text));
    }

    /// Adds a table. Its first `words` columns are flush left.
    pub fn table(&mut self, words: usize, head: &[&str], rows: &[Vec<String>]) {
        let cell = |tag: &str, (i, text): (usize, &str)| {
            let class = if i < words { " class=\"w\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", escape(text))
        };
        let head: String = head.iter().copied().enumerate().map(|c| cell("th", c)).collect();
        let _ = writeln!(self.body, "<table>\n<tr>{head}</tr>");
        for row in rows {
            let row: String = row.iter().map(String::as_str).enumerate().map(|c| cell("td", c)).collect();
            let _ = writeln!(self.body, "<tr>{row}</tr>");
        }
        self.body.push_str("</table>\n");
    }

    /// Adds a chart over the whole width.
    pub fn chart(&mut self, svg: &str) {
        self.body.push_str(svg);
    }

    /// Adds small charts side by side.
    pub fn charts(&mut self, svgs: &[String]) {
        let _ = writeln!(self.body, "<div class=\"many\">{}</div>", svgs.concat());
    }

    /// Returns the whole page.
    pub fn html(&self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n\
             <link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
            escape(&self.title),
            self.body
        )
    }
}

/// Puts charts one below the other in one SVG file.
pub fn drawing(title: &str, charts: &[Chart]) -> String {
    let (mut body, mut y, mut width) = (String::new(), 0.0, 0.0f64);
    for chart in charts {
        let svg = chart.svg();
        let _ = write!(body, "<g transform=\"translate(0 {y})\">{svg}</g>");
        (y, width) = (y + svg_height(&svg) + BETWEEN, width.max(chart.width));
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
        escape(title)
    )
}

/// Reads a chart's height from its SVG.
fn svg_height(svg: &str) -> f64 {
    let height = svg.split_once(" height=\"").and_then(|(_, rest)| rest.split_once('"'));
    height.and_then(|(height, _)| height.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Draw, Scale, Series};

    #[test]
    fn drawings_are_one_below_the_other() {
        let chart = Chart {
            title: "a".into(),
            x_label: "s".into(),
            y_label: "part".into(),
            x: Scale::Seconds,
            y: Scale::Part,
            x_range: None,
            series: vec![Series { name: "x".into(), points: vec![(0.0, 0.5)], draw: Draw::Line }],
            bands: Vec::new(),
            width: 500.0,
            plot_height: 100.0,
        };
        let height = svg_height(&chart.svg());
        assert!(height > 100.0);
        let both = drawing("a & b", &[chart.clone(), chart]);
        assert!(both.contains("<title>a &amp; b</title>") && both.contains("<style>"), "{both}");
        assert!(both.contains(&format!("translate(0 {})", height + BETWEEN)), "{both}");
    }

    #[test]
    fn what_people_called_things_is_only_text() {
        let mut page = Page::new("<script>alert(1)</script>");
        page.table(1, &["A", "B"], &[vec!["<b>".into(), "1".into()]]);
        let html = page.html();
        assert!(!html.contains("<script") && html.contains("&lt;b&gt;"), "{html}");
        assert!(!html.contains("http://") && !html.contains("https://"), "{html}");
    }
}
