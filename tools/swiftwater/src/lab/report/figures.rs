//! Drawings of the results: rates by message size, and runs over time.

use serde_json::{Value, json};

use super::{Row, strsctp};
use crate::lab::live::trace::{Measure, Trace, TraceCurve, is_path};
use crate::plot::{
    Axis, Chart, Color, Curve, CurveStyle, Form, Marker, Scale, bytes_text, escape, mbits_text, number_text,
    seconds_text,
};

/// Size of a drawing of a run.
const WIDTH: f64 = 680.0;
/// Width of a chart by message size, which has many curves.
const WIDE: f64 = 1080.0;
const HEIGHT: f64 = 190.0;
/// Height of a line of the legend.
const LEGEND_LINE: f64 = 17.0;
/// Headroom above the largest value.
const HEADROOM: f64 = 1.06;
/// Minimum number of sizes for a chart.
const SIZES_MIN: usize = 3;
/// Colours of the curves of a drawing, in turn.
const COLORS: [Color; 8] = [
    Color::Blue,
    Color::Vermilion,
    Color::Green,
    Color::Violet,
    Color::Ochre,
    Color::Magenta,
    Color::Cyan,
    Color::Ink,
];
/// Shapes of the points of one drawing, in turn. Curves of one colour have different ones.
const MARKERS: [Marker; 4] = [Marker::Circle, Marker::Square, Marker::Diamond, Marker::Up];
/// Number of runs of an experiment beyond which those of each case are folded.
const RUNS_SHOWN: usize = 60;

/// A drawing of a run: its quantity, title, unit and labels.
type Drawing = (Measure, &'static str, &'static str, fn(f64) -> String);

/// The drawings that share one time axis.
const MEASURES: [Drawing; 5] = [
    (Measure::Rate, "Delivered", "Mbit/s", mbits_text),
    (Measure::Transfer, "Delivered since the beginning", "bytes", bytes_text),
    (Measure::Window, "Congestion windows", "bytes", bytes_text),
    (Measure::RoundTrip, "Round-trip time", "ms", ms_text),
    (Measure::Queue, "Bytes that wait at the line to the server", "bytes", bytes_text),
];

/// Returns a time in seconds as milliseconds.
fn ms_text(seconds: f64) -> String {
    number_text(seconds * 1e3)
}

/// Returns a chart of the rates by message size for each group of cases that differ in the size alone, if it has enough sizes:
/// each transport on so many paths is a curve.
pub(super) fn by_size(rows: &[(usize, &Row)]) -> String {
    let mut kinds: Vec<(String, Vec<SizeCurve>)> = Vec::new();
    for (_, row) in rows {
        let Some((kind, name, published, point)) = point_by_size(row) else { continue };
        let place = kinds.iter().position(|(other, _)| *other == kind).unwrap_or(kinds.len());
        if place == kinds.len() {
            kinds.push((kind, Vec::new()));
        }
        let curves = &mut kinds[place].1;
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(SizeCurve { name, published, points: vec![point] }),
        }
    }
    kinds.into_iter().filter_map(|(kind, curves)| chart_by_size(&kind, curves)).collect()
}

/// Rates by message size.
struct SizeCurve {
    name: String,
    published: bool,
    points: Vec<(f64, f64)>,
}

/// Returns the case of a row without the size, the name of its curve, whether it was published, and its point.
fn point_by_size(row: &Row) -> Option<(String, String, bool, (f64, f64))> {
    if strsctp::is_per_message(row) {
        return None;
    }
    let number = |key: &str| row.get(key).and_then(Value::as_f64);
    let word = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    let (bytes, rate) = (number("message_bytes")?, number("bits_per_s")?);
    let kind = word("case").replace(&format!(", {bytes} bytes"), "");
    let published = row.get("published") == Some(&Value::Bool(true));
    let paths = match word("used_paths") {
        "" => String::new(),
        paths => format!(", {paths}"),
    };
    let mode =
        if published && !word("mode").is_empty() { format!(" {}", word("mode")) } else { String::new() };
    Some((kind, format!("{}{mode}{paths}", word("transport")), published, (bytes, rate)))
}

fn chart_by_size(kind: &str, mut curves: Vec<SizeCurve>) -> Option<String> {
    curves.retain(|curve| curve.points.len() >= SIZES_MIN);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let sizes = points().map(|(size, _)| *size);
    let (least, most) = (sizes.clone().reduce(f64::min)?, sizes.reduce(f64::max)?);
    let highest = points().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let height = (HEIGHT * 2.0).max(LEGEND_LINE * (curves.len() + 4) as f64);
    let drawn = curves.into_iter().enumerate().map(|(number, curve)| {
        let SizeCurve { name, published, points } = curve;
        let style = style(number);
        let words =
            points.iter().map(|(size, rate)| format!("{name}, {size} bytes: {:.2} Mbit/s", rate / 1e6));
        let words = words.collect();
        let form = if published { Form::Limit } else { Form::Marked };
        Curve { words, ..Curve::new(&name, style, form, points) }
    });
    let chart = Chart {
        name: format!("Delivered by message size: {kind}"),
        width: WIDE,
        height,
        x: Axis::new(Scale::Logarithmic(2.0), least, most, "bytes of a message", number_text),
        y: Axis::new(Scale::Linear, 0.0, highest * HEADROOM, "Mbit/s", mbits_text),
        curves: drawn.collect(),
        rule: None,
    };
    Some(format!(
        "<figure class=\"wide\"><h3>{}</h3><figcaption>Delivered by message size, over these paths; broken lines were published</figcaption>{}</figure>\n",
        escape(kind),
        chart.svg()
    ))
}

/// Returns the style of a curve with markers, by its number.
fn style(number: usize) -> CurveStyle {
    CurveStyle::new(COLORS[number % COLORS.len()], MARKERS[(number + number / COLORS.len()) % MARKERS.len()])
}

/// Returns a figure for each run: its drawings on one time axis, and the values under the pointer. Many are folded by case.
pub(super) fn over_time(traces: &[&Trace]) -> String {
    let drawn = |traces: &[&Trace]| traces.iter().map(|trace| figure(trace)).collect::<String>();
    if traces.len() <= RUNS_SHOWN {
        return drawn(traces);
    }
    let cases = traces.chunk_by(|one, other| one.case == other.case);
    let folded = cases.map(|of_case| {
        let (case, count) = (escape(&of_case[0].case), of_case.len());
        let runs = if count == 1 { "run" } else { "runs" };
        format!(
            "<details><summary>{case}: {count} {runs}</summary><div class=\"figures\">{}</div></details>\n",
            drawn(of_case)
        )
    });
    folded.collect()
}

fn figure(trace: &Trace) -> String {
    let trace = &with_transfer(trace);
    let end_s = trace.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0).fold(1e-3, f64::max);
    let drawings: String = MEASURES.iter().map(|measure| drawing(trace, measure, end_s)).collect();
    let told = told(trace, end_s);
    let (left, width) = Chart::plot_span(WIDTH);
    let data = json!({"end_s": end_s, "left": left, "width": width, "curves": told}).to_string();
    format!(
        "<figure data-run=\"{}\"><h3>{}, {}: {}</h3>{drawings}<output>Point at a drawing to read its values.</output></figure>\n",
        escape(&data),
        escape(&trace.transport),
        format_args!("{} {}", if trace.paths == 1 { "path" } else { "paths" }, escape(&trace.used_paths)),
        escape(&trace.case)
    )
}

/// Returns the curves whose values the page tells under the pointer, the published ones last.
fn told(trace: &Trace, end_s: f64) -> Vec<Value> {
    let told = |measure: Measure, name: &str, points: &[(f64, f64)]| {
        let points: Vec<[f64; 2]> = points.iter().map(|&(at_s, value)| [at_s, value]).collect();
        json!({"measure": measure, "name": name, "points": points})
    };
    let own = trace.curves.iter().map(|curve| told(curve.measure, &curve.name, &curve.points));
    let has = |measure| trace.curves.iter().any(|curve| curve.measure == measure);
    let rates = published(trace, end_s).into_iter().map(|curve| (Measure::Rate, curve));
    let transfers = published_transfers(trace).into_iter().map(|curve| (Measure::Transfer, curve));
    let published = rates.chain(transfers).filter(|(measure, _)| has(*measure));
    let published =
        published.map(|(measure, curve)| told(measure, &format!("{}, published", curve.name), &curve.points));
    own.chain(published).collect()
}

/// Returns a trace with the bytes since the beginning, if a program was published with runs of several lengths.
fn with_transfer(trace: &Trace) -> Trace {
    let mut trace = trace.clone();
    let lengths = |name: &str| trace.published.iter().filter(|(other, ..)| other == name).count();
    if trace.published.iter().any(|(name, ..)| lengths(name) > 1)
        && let Some(rate) = trace.curves.iter().find(|curve| curve.measure == Measure::Rate)
    {
        let (mut since_s, mut bytes) = (0.0, 0.0);
        let sum = |&(at_s, bits_per_s): &(f64, f64)| {
            bytes += bits_per_s * (at_s - since_s) / 8.0;
            since_s = at_s;
            (at_s, bytes)
        };
        let points = rate.points.iter().map(sum).collect();
        trace.curves.push(TraceCurve { measure: Measure::Transfer, name: rate.name.clone(), points });
    }
    trace
}

fn drawing(trace: &Trace, (measure, title, unit, text): &Drawing, end_s: f64) -> String {
    let own: Vec<&TraceCurve> = trace.curves.iter().filter(|curve| curve.measure == *measure).collect();
    let title = if *measure == Measure::Rate { rate_title(&own) } else { title };
    let mut curves: Vec<Curve> = own
        .iter()
        .map(|curve| {
            let style = CurveStyle::line(color_of(trace, &curve.name));
            Curve::new(&curve.name, style, Form::Line, curve.points.clone())
        })
        .collect();
    if curves.is_empty() {
        return String::new();
    }
    let mut most = highest(&curves);
    match measure {
        Measure::Rate => {
            let published = published(trace, end_s);
            most = highest_of_interest(&curves, &published);
            let beyond = beyond(&curves, most);
            curves.extend(published);
            curves.extend(beyond);
        }
        Measure::Transfer => {
            curves.extend(published_transfers(trace));
            most = highest(&curves);
        }
        Measure::Window | Measure::RoundTrip | Measure::Queue => {}
    }
    let y = Axis::new(Scale::Linear, 0.0, (most * HEADROOM).max(1e-9), unit, *text);
    let x = Axis::new(Scale::Linear, 0.0, end_s, "", seconds_text);
    let chart = Chart { name: title.to_owned(), width: WIDTH, height: HEIGHT, x, y, curves, rule: None };
    format!("<figcaption>{title}</figcaption>{}", chart.svg())
}

/// Returns the title of a drawing of rates: beside that of the run it may have those of its lines, or of another flow.
fn rate_title(curves: &[&TraceCurve]) -> &'static str {
    let others = curves.get(1..).unwrap_or_default();
    match others.first() {
        None => "Delivered",
        Some(_) if others.iter().all(|curve| is_path(&curve.name)) => "Delivered, and what each line took",
        Some(_) => "Delivered, by this flow and by the one beside it",
    }
}

/// Returns the colour of the curves with this name, which is the same in all drawings of a run, so that a path keeps its colour.
fn color_of(trace: &Trace, name: &str) -> Color {
    let mut names: Vec<&str> = Vec::new();
    for curve in &trace.curves {
        if !names.contains(&&curve.name[..]) {
            names.push(&curve.name);
        }
    }
    let number = names.iter().position(|other| *other == name).unwrap_or_default();
    COLORS[number % COLORS.len()]
}

/// Returns marks at the edge of a drawing, for values that it cuts off.
fn beyond(curves: &[Curve], most: f64) -> Option<Curve> {
    let cut = curves.iter().flat_map(|curve| &curve.points).filter(|(_, value)| *value > most * HEADROOM);
    let mut points: Vec<(f64, f64)> = cut.map(|&(at_s, _)| (at_s, most * HEADROOM)).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let style = CurveStyle::line(Color::Vermilion);
    (!points.is_empty()).then(|| Curve::new("beyond the axis", style, Form::Points, points))
}

/// Returns the published rates as broken lines: each program's over the lengths of its runs, or over the whole figure if it had
/// one.
fn published(trace: &Trace, end_s: f64) -> Vec<Curve> {
    let mut curves = published_curves(trace, |_, bits_per_s| bits_per_s);
    for curve in &mut curves {
        if let [(_, rate)] = curve.points[..] {
            curve.points = vec![(0.0, rate), (end_s, rate)];
        }
    }
    curves
}

/// Returns the published transfers as broken lines from the beginning.
fn published_transfers(trace: &Trace) -> Vec<Curve> {
    let mut curves = published_curves(trace, |seconds, bits_per_s| bits_per_s * seconds / 8.0);
    curves.iter_mut().for_each(|curve| curve.points.insert(0, (0.0, 0.0)));
    curves
}

/// Returns a broken line for each published program, over the lengths of its runs.
fn published_curves(trace: &Trace, value: fn(f64, f64) -> f64) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (name, seconds, bits_per_s) in &trace.published {
        let point = (*seconds, value(*seconds, *bits_per_s));
        if let Some(curve) = curves.iter_mut().find(|curve| curve.name == *name) {
            curve.points.push(point);
            continue;
        }
        let style = CurveStyle::line([Color::Grey, Color::Ink][curves.len() % 2]);
        curves.push(Curve::new(name, style, Form::Limit, vec![point]));
    }
    curves
}

/// Returns the highest rate that a figure shows. Data that waited for a lost packet is delivered at once when the packet comes:
/// meaningless peaks would flatten the rest.
fn highest_of_interest(own: &[Curve], published: &[Curve]) -> f64 {
    let without_peaks = 2.0 * usual(&own[0]).max(highest(&own[1..]));
    highest(own).min(without_peaks).max(highest(published))
}

fn highest(curves: &[Curve]) -> f64 {
    curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).fold(0.0, f64::max)
}

/// Returns the median of a curve's points at which something was delivered: a flow whose line goes down may be silent for most of
/// the time.
fn usual(curve: &Curve) -> f64 {
    let values: Vec<f64> = curve.points.iter().map(|point| point.1).filter(|value| *value > 0.0).collect();
    crate::stats::median(&values).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::lab::live::trace::ROUND_TRIP_NAME;
    use crate::plot::LEGEND_CHARACTERS;

    use super::*;

    #[test]
    fn a_figure_shows_published_rates_whole_and_single_peaks_cut() {
        let curve = |rates: &[f64]| {
            let points = rates.iter().zip(1..).map(|(rate, at)| (f64::from(at), *rate)).collect();
            Curve::new("", CurveStyle::line(Color::Grey), Form::Line, points)
        };
        let own = [curve(&[30.0, 31.0, 400.0, 29.0, 30.0])];
        assert_eq!(highest_of_interest(&own, &[]), 60.0);
        assert_eq!(highest_of_interest(&own, &[curve(&[93.8])]), 93.8);
        let marks = beyond(&own, 60.0).expect("a peak is cut");
        assert_eq!((marks.form, marks.points), (Form::Points, vec![(3.0, 60.0 * HEADROOM)]));
        assert!(beyond(&own, 400.0).is_none());
    }

    #[test]
    fn a_flow_that_is_silent_most_of_the_time_has_room_for_what_it_delivers() {
        let points =
            (0..26).map(|at_s| (f64::from(at_s), if at_s < 10 { 10e6 + 4e5 * f64::from(at_s) } else { 0.0 }));
        let curve = |points| Curve::new("", CurveStyle::line(Color::Blue), Form::Line, points);
        let (own, published) = ([curve(points.collect())], curve(vec![(0.0, 1.06e6), (26.0, 1.06e6)]));
        let most = highest_of_interest(&own, &[published]);
        assert!(beyond(&own, most).is_none(), "{most}");
    }

    #[test]
    fn the_pointer_reads_published_curves_too() {
        let told = told(&with_transfer(&trace()), 1.0);
        let names: Vec<_> = told.iter().map(|one| (&one["measure"], &one["name"])).collect();
        let of = |measure: &str| {
            let of = names.iter().filter(|(other, _)| *other == measure);
            of.filter_map(|(_, name)| name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of("rate"), ["delivered", "lksctp, published", "tcp, published"]);
        assert_eq!(of("transfer"), ["delivered", "lksctp, published", "tcp, published"]);
        assert_eq!(of("queue"), ["path 1"]);
        let lksctp = told.iter().find(|one| one["name"] == "lksctp, published").expect("told");
        assert_eq!(lksctp["points"], json!([[0.0, 5e5], [1.0, 5e5]]), "one length is a line over all");
    }

    fn trace() -> Trace {
        let curve = |measure, name: &str| TraceCurve {
            measure,
            name: name.into(),
            points: vec![(0.5, 1e6), (1.0, 2e6)],
        };
        Trace {
            experiment: "datatag".into(),
            case: "1 Gbit/s \"far\"".into(),
            transport: "sctp-stream".into(),
            paths: 1,
            used_paths: "1".into(),
            seconds: 1.0,
            curves: vec![
                curve(Measure::Rate, "delivered"),
                curve(Measure::Window, "all paths"),
                curve(Measure::RoundTrip, "smoothed"),
                curve(Measure::Queue, "path 1"),
            ],
            published: vec![
                ("lksctp".into(), 10.0, 5e5),
                ("tcp".into(), 10.0, 6e5),
                ("tcp".into(), 20.0, 7e5),
            ],
        }
    }

    #[test]
    fn a_run_has_its_drawings_on_one_axis_with_what_was_published() {
        let drawn = figure(&trace());
        assert_eq!(drawn.matches("<svg").count(), 5, "{drawn}");
        assert!(drawn.contains(">lksctp</text>") && drawn.contains(">tcp</text>"), "{drawn}");
        assert!(drawn.contains("&quot;end_s&quot;:1") && !drawn.contains("\"far\""), "{drawn}");
        assert!(drawn.contains("<h3>sctp-stream, path 1: "), "{drawn}");
        let two = figure(&Trace { paths: 2, used_paths: "2+3".into(), ..trace() });
        assert!(two.contains("<h3>sctp-stream, paths 2+3: "), "{two}");
    }

    #[test]
    fn every_run_is_drawn_and_many_are_folded_by_case() {
        let of_case = |case: usize| Trace { case: format!("two, {case} bytes"), ..trace() };
        let traces: Vec<Trace> = (0..=RUNS_SHOWN).map(|number| of_case(1 << (number / 9))).collect();
        let drawn = |count| over_time(&traces.iter().take(count).collect::<Vec<_>>());
        let (few, many) = (drawn(RUNS_SHOWN), drawn(RUNS_SHOWN + 1));
        assert_eq!((few.matches("<figure").count(), few.contains("<details>")), (RUNS_SHOWN, false));
        assert_eq!((many.matches("<figure").count(), many.matches("<details>").count()), (RUNS_SHOWN + 1, 7));
        assert!(many.contains("<summary>two, 1 bytes: 9 runs</summary>"), "the first size");
        assert!(many.contains("<h3>sctp-stream, path 1: two, 64 bytes</h3>"), "the last size");
    }

    #[test]
    fn a_path_has_one_color_in_all_drawings_of_a_run() {
        let mut trace = trace();
        let of_rate = |name: &str| TraceCurve {
            measure: Measure::Rate,
            name: name.into(),
            points: vec![(0.5, 1e6), (1.0, 2e6)],
        };
        trace.curves.extend(["path 1", "path 2"].map(of_rate));
        let names = ["delivered", "all paths", "smoothed", "path 1", "path 2"];
        assert_eq!(names.map(|name| color_of(&trace, name)), COLORS[..5]);
    }

    #[test]
    fn a_title_names_what_is_drawn() {
        let curve = |name: &str| TraceCurve { measure: Measure::Rate, name: name.into(), points: Vec::new() };
        let title = |names: &[&str]| {
            let curves: Vec<TraceCurve> = names.iter().map(|name| curve(name)).collect();
            rate_title(&curves.iter().collect::<Vec<_>>())
        };
        assert_eq!(title(&["delivered"]), "Delivered");
        assert_eq!(title(&["delivered", "path 1", "path 2"]), "Delivered, and what each line took");
        assert!(title(&["delivered", "tcp-cubic"]).ends_with("the one beside it"));
    }

    #[test]
    fn bytes_since_the_beginning_stand_beside_published_transfers() {
        let with = with_transfer(&trace());
        let transfer = with.curves.iter().find(|curve| curve.measure == Measure::Transfer).expect("derived");
        assert_eq!(transfer.points, [(0.5, 62_500.0), (1.0, 187_500.0)]);
        let points: Vec<_> = published_transfers(&with).into_iter().map(|curve| curve.points).collect();
        let expected = [vec![(0.0, 0.0), (10.0, 625e3)], vec![(0.0, 0.0), (10.0, 750e3), (20.0, 1750e3)]];
        assert_eq!(points, expected);
        let of_one_length = Trace { published: trace().published[..1].into(), ..trace() };
        assert_eq!(with_transfer(&of_one_length), of_one_length);
    }

    #[test]
    fn curves_of_one_drawing_differ() {
        let styles: std::collections::HashSet<CurveStyle> = (0..32).map(style).collect();
        assert_eq!(styles.len(), COLORS.len() * MARKERS.len());
    }

    /// The longest names that the live experiments have.
    #[test]
    fn names_have_room_in_the_legend() {
        let row = json!({"case": "two, 8 bytes", "message_bytes": 8, "transport": "openss7 2007", "bits_per_s": 1.0,
            "mode": "message", "used_paths": "1+2", "published": true});
        let (_, name, ..) = point_by_size(row.as_object().expect("an object")).expect("a point");
        for name in [name.as_str(), ROUND_TRIP_NAME] {
            assert!(name.chars().count() <= LEGEND_CHARACTERS, "{name}");
        }
    }

    #[test]
    fn rates_by_size_have_a_curve_for_each_transport() {
        let row = |bytes: u32, transport: &str, published: bool| {
            let value = json!({
                "case": format!("two, {bytes} bytes"), "message_bytes": bytes, "transport": transport, "bits_per_s": 1e6 * f64::from(bytes), "used_paths": "1",
                "published": published
            });
            value.as_object().expect("an object").clone()
        };
        let rows: Vec<Row> = [8, 64, 512]
            .into_iter()
            .flat_map(|bytes| [row(bytes, "tcp", false), row(bytes, "openss7", true)])
            .collect();
        let numbered: Vec<(usize, &Row)> = rows.iter().enumerate().collect();
        let drawn = by_size(&numbered);
        assert!(drawn.contains("<title>tcp, 1, 64 bytes: 64.00 Mbit/s</title>"), "{drawn}");
        assert!(drawn.contains(">openss7, 1</text>"), "{drawn}");
        assert_eq!(by_size(&numbered[..2]), "", "one size is no curve");
    }
}
