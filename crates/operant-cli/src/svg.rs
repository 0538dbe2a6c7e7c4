//! Line plots as SVG text that stands alone: no script, no font, no network.

use crate::format::number;
use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
/// Room for tick labels and titles, in SVG units.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 34.0;
/// Colours that stay apart for colour-blind eyes (M. Okabe and K. Ito, 2008).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#b8a800"];

/// The colour of the i-th series.
pub(crate) fn colour(i: usize) -> &'static str {
    COLOURS[i % COLOURS.len()]
}

/// One line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
    /// Half the height of a band around each point; none if empty, and none at a point where it is not a number.
    pub(crate) band: Vec<f64>,
}

impl Curve {
    /// A mean over several runs, with a band of its standard error.
    pub(crate) fn banded(name: String, colour: &'static str, points: &[(f64, f64, f64)]) -> Self {
        let band = points.iter().map(|point| point.2).collect();
        Self { name, colour, points: points.iter().map(|point| (point.0, point.1)).collect(), band }
    }

    /// Corners of the band: its upper edge, then the lower one backwards.
    fn corners(&self) -> Vec<(f64, f64)> {
        let edges = || self.points.iter().zip(&self.band).filter(|((_, y), half)| y.is_finite() && half.is_finite());
        let upper = edges().map(|((x, y), half)| (*x, y + half));
        let lower = edges().map(|((x, y), half)| (*x, y - half));
        upper.chain(lower.collect::<Vec<_>>().into_iter().rev()).collect()
    }
}

/// Lines over one axis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x_label: String,
    pub(crate) curves: Vec<Curve>,
    /// Upright lines: where, and what they mark.
    pub(crate) marks: Vec<(f64, String)>,
}

/// Text that HTML and SVG show as it is.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Round numbers that divide a range in about five.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= rough).unwrap_or(power * 10.0);
    let first = (low / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take_while(|tick| *tick <= high + step * 1e-9).take(12).collect()
}

/// A tick's number without zeros that say nothing: `200`, `80 k`, `0.005`.
fn label(tick: f64) -> String {
    let text = number(tick);
    let end = text.find([' ', 'e']).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let short = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{short}{unit}")
}

/// The range of numbers, never empty.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (0.0, 1.0);
    }
    let least = 1e-6 * high.abs().max(low.abs()).max(1e-6);
    if high - low > least { (low, high) } else { (low - 0.5 * low.abs().max(1e-3), high + 0.5 * high.abs().max(1e-3)) }
}

impl Plot {
    /// Whether there is anything to see.
    pub(crate) fn is_empty(&self) -> bool {
        self.curves.iter().all(|curve| curve.points.is_empty())
    }

    /// The plot as an `<svg>` element.
    pub(crate) fn svg(&self) -> String {
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        let (x_low, x_high) = range(all().map(|point| point.0));
        let corners: Vec<Vec<(f64, f64)>> = self.curves.iter().map(Curve::corners).collect();
        let (y_low, y_high) = range(all().chain(corners.iter().flatten()).map(|point| point.1));
        let x = |value: f64| LEFT + (value - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM);
        let bottom = HEIGHT - BOTTOM;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" data-y=\"{y_low} {y_high}\" data-rows=\"{TOP} {bottom}\" role=\"img\" aria-label=\"{0}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"18\">{0}</text>\n",
            escape(&self.title)
        );
        for tick in ticks(y_low, y_high) {
            let (at, right) = (y(tick), WIDTH - RIGHT);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                label(tick)
            );
        }
        for tick in ticks(x_low, x_high) {
            let at = HEIGHT - BOTTOM + 15.0;
            let _ = writeln!(
                svg,
                "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{at}\">{}</text>",
                x(tick),
                label(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 5.0,
            escape(&self.x_label)
        );
        for (at, text) in self.marks.iter().filter(|(at, _)| (x_low..=x_high).contains(at)) {
            let x = x(*at);
            let _ = writeln!(
                svg,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"><title>{}</title></line>",
                escape(text)
            );
        }
        for (Curve { colour, .. }, corners) in
            self.curves.iter().zip(&corners).filter(|(_, corners)| !corners.is_empty())
        {
            let path: Vec<String> = corners.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
            let _ = writeln!(svg, "<polygon class=\"band\" fill=\"{colour}\" points=\"{}\"/>", path.join(" "));
        }
        for Curve { name, colour, points, .. } in &self.curves {
            let path: Vec<String> =
                points.iter().filter(|p| p.1.is_finite()).map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
            let newest = points.last().map_or(f64::NAN, |point| point.1);
            let _ = writeln!(
                svg,
                "<polyline class=\"line\" stroke=\"{colour}\" points=\"{}\"><title>{} {}</title></polyline>",
                path.join(" "),
                escape(name),
                number(newest)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(-3.0, 7.0), [-2.0, 0.0, 2.0, 4.0, 6.0]);
        assert_eq!(ticks(0.0, 8.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        for (low, high) in [(1e-9, 2e-9), (-1e12, 1e12), (0.1, 0.1001)] {
            let ticks = ticks(low, high);
            assert!((2..=12).contains(&ticks.len()), "{low} {high}: {ticks:?}");
        }
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([0.0, 200.0, 80_000.0, 0.005, 3e-4, 1e15].map(label), ["0", "200", "80 k", "0.005", "3e-4", "1e15"]);
    }

    #[test]
    fn draws_points_where_they_belong() {
        let points = vec![(0.0, 0.0), (100.0, 10.0)];
        let plot = Plot {
            title: "a <b>".into(),
            x_label: "steps".into(),
            curves: vec![Curve { name: "x & y".into(), colour: colour(0), points, ..Curve::default() }],
            marks: vec![(50.0, "half".into()), (500.0, "outside".into())],
        };
        let svg = plot.svg();
        assert!(svg.contains("points=\"62.0,216.0 548.0,30.0\""), "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("x &amp; y 10.00"), "{svg}");
        assert!(svg.contains("x1=\"305.0\"") && !svg.contains("outside"), "{svg}");
    }

    #[test]
    fn bands_lie_around_their_line_and_widen_the_range() {
        let curve =
            Curve::banded("mean".into(), colour(0), &[(0.0, 0.0, 1.0), (100.0, 10.0, f64::NAN), (200.0, 10.0, 2.0)]);
        let svg = Plot { curves: vec![curve], ..Plot::default() }.svg();
        assert!(svg.contains("data-y=\"-1 12\""), "{svg}");
        assert!(
            svg.contains("<polygon class=\"band\"")
                && svg.contains("points=\"62.0,187.4 548.0,30.0 548.0,87.2 62.0,216.0\""),
            "{svg}"
        );
    }

    #[test]
    fn flat_and_empty_series_are_drawn_too() {
        for points in [vec![], vec![(5.0, 1.0)], vec![(0.0, 0.0), (1.0, 0.0)], vec![(0.0, f64::NAN)]] {
            let plot = Plot {
                curves: vec![Curve { name: "x".into(), colour: colour(1), points, ..Curve::default() }],
                ..Plot::default()
            };
            assert!(!plot.svg().contains("NaN,") && !plot.svg().contains("inf"), "{}", plot.svg());
        }
    }
}
