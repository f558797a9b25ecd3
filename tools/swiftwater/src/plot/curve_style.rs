//! Styles that distinguish curves: colours for light and dark pages, and the shapes of points.
//!
//! The colours also differ for readers who confuse red and green; where ten of them come close, the shapes differ.

use std::fmt::Write;

/// A colour of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Color {
    Ink,
    Grey,
    Blue,
    Green,
    Ochre,
    Vermilion,
    Violet,
    Magenta,
    Cyan,
    Red,
}

/// The shape of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Marker {
    /// Smaller than all others, for many points.
    Dot,
    Circle,
    Square,
    Diamond,
    Up,
    Down,
    Right,
    /// Circle, square and diamond outlines.
    Ring,
    Frame,
    Kite,
}

/// Colour and point shape of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CurveStyle {
    pub(crate) color: Color,
    pub(crate) marker: Marker,
}

impl CurveStyle {
    pub(crate) const fn new(color: Color, marker: Marker) -> Self {
        CurveStyle { color, marker }
    }

    /// Returns a colour for curves without markers.
    pub(crate) const fn line(color: Color) -> Self {
        CurveStyle { color, marker: Marker::Dot }
    }
}

impl Marker {
    pub(super) fn is_hollow(self) -> bool {
        matches!(self, Marker::Ring | Marker::Frame | Marker::Kite)
    }
}

/// Backgrounds of charts, on a light and on a dark page.
const GROUNDS: [&str; 2] = ["#ffffff", "#171f27"];

impl Color {
    const ALL: [Color; 10] = [
        Color::Ink,
        Color::Grey,
        Color::Blue,
        Color::Green,
        Color::Ochre,
        Color::Vermilion,
        Color::Violet,
        Color::Magenta,
        Color::Cyan,
        Color::Red,
    ];

    /// Returns the values on a light and on a dark page.
    fn values(self) -> [&'static str; 2] {
        match self {
            Color::Ink => ["#20262d", "#f2f5f8"],
            Color::Grey => ["#8a939c", "#7f8a95"],
            Color::Blue => ["#0059c8", "#4d9dff"],
            Color::Green => ["#00854f", "#2fc98f"],
            Color::Ochre => ["#b58900", "#f0c93a"],
            Color::Vermilion => ["#d1490c", "#ff8a4c"],
            Color::Violet => ["#4b2a9e", "#c4b2ff"],
            Color::Magenta => ["#c4237f", "#ff79c0"],
            Color::Cyan => ["#1c9cc0", "#7fe3f5"],
            Color::Red => ["#821000", "#d6100c"],
        }
    }

    /// Returns the class of elements in this colour.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Color::Ink => "k-ink",
            Color::Grey => "k-grey",
            Color::Blue => "k-blue",
            Color::Green => "k-green",
            Color::Ochre => "k-ochre",
            Color::Vermilion => "k-vermilion",
            Color::Violet => "k-violet",
            Color::Magenta => "k-magenta",
            Color::Cyan => "k-cyan",
            Color::Red => "k-red",
        }
    }
}

/// Returns the style sheet of charts, for the page or the drawing that holds them.
pub(crate) fn style() -> String {
    let mut out = String::from(RULES);
    for (scheme, ground) in GROUNDS.iter().enumerate() {
        if scheme == 1 {
            out.push_str(
                "@media (prefers-color-scheme:dark){.plot{--soft:#9aa8b5;--line:#5b6875;--grid:#28333d}",
            );
        }
        // Writing to a string cannot fail.
        let _ = write!(out, ".plot{{--ground:{ground}}}");
        for color in Color::ALL {
            let _ = write!(out, ".{}{{color:{}}}", color.class(), color.values()[scheme]);
        }
    }
    out + "}"
}

const RULES: &str = "\
.plot{--soft:#56626e;--line:#a9b4be;--grid:#e6ebf0;display:block;width:100%;height:auto;\
font:11.5px system-ui,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}\
.plot text{fill:var(--soft);font-variant-numeric:tabular-nums}\
.plot .name{font-style:italic}\
.plot .title{font-size:16px;font-weight:600}\
.plot .axis{stroke:var(--line);fill:none}\
.plot .grid{stroke:var(--grid)}\
.plot .rule{stroke:var(--soft);stroke-dasharray:2 3}\
.plot .curve{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}\
.plot .limit{fill:none;stroke:currentColor;stroke-width:1.1;stroke-dasharray:5 4}\
.plot .full{fill:currentColor}\
.plot .hollow{fill:var(--ground);stroke:currentColor;stroke-width:1.4}\
.plot .ground{fill:var(--ground)}";

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the linear red, green and blue of a colour.
    fn linear(color: &str) -> [f64; 3] {
        let byte = |at: usize| u8::from_str_radix(&color[at..at + 2], 16).expect("two digits");
        [1, 3, 5].map(|at| {
            let value = f64::from(byte(at)) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn luminance([r, g, b]: [f64; 3]) -> f64 {
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    /// Returns the colour as a reader without receptors for green sees it (Viénot, Brettel and Mollon 1999).
    fn deuteranope([r, g, b]: [f64; 3]) -> [f64; 3] {
        [0.292_75 * r + 0.707_25 * g, 0.292_75 * r + 0.707_25 * g, -0.022_34 * r + 0.022_34 * g + b]
    }

    /// Returns the difference between two colours: their distance in Oklab.
    fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
        let lab = |[r, g, b]: [f64; 3]| {
            let l = (0.412_221_47 * r + 0.536_332_54 * g + 0.051_445_99 * b).cbrt();
            let m = (0.211_903_5 * r + 0.680_699_55 * g + 0.107_396_96 * b).cbrt();
            let s = (0.088_302_46 * r + 0.281_718_84 * g + 0.629_978_7 * b).cbrt();
            [
                0.210_454_26 * l + 0.793_617_79 * m - 0.004_072_05 * s,
                1.977_998_5 * l - 2.428_592_2 * m + 0.450_593_7 * s,
                0.025_904_04 * l + 0.782_771_77 * m - 0.808_675_77 * s,
            ]
        };
        lab(a).iter().zip(lab(b)).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn colours_differ_for_all_readers_and_stand_out_from_the_page() {
        for (scheme, ground) in GROUNDS.iter().enumerate() {
            for (index, a) in Color::ALL.iter().enumerate() {
                let of = |color: Color| linear(color.values()[scheme]);
                let (light, dark) = (luminance(of(*a)), luminance(linear(ground)));
                let contrast = (light.max(dark) + 0.05) / (light.min(dark) + 0.05);
                assert!(contrast >= 3.0, "{a:?} on {ground}: {contrast:.2}, WCAG 2.2 §1.4.11 asks for 3");
                for b in &Color::ALL[index + 1..] {
                    let apart = distance(of(*a), of(*b));
                    assert!(apart >= 0.10, "{a:?} and {b:?} on {ground}: {apart:.3}");
                    let apart = distance(deuteranope(of(*a)), deuteranope(of(*b)));
                    assert!(apart >= 0.06, "{a:?} and {b:?} on {ground} without green: {apart:.3}");
                }
            }
        }
    }

    #[test]
    fn the_style_has_each_colour_for_both_schemes() {
        let style = style();
        for color in Color::ALL {
            assert_eq!(style.matches(&format!(".{}{{", color.class())).count(), 2, "{style}");
        }
        assert_eq!(style.matches('{').count(), style.matches('}').count());
    }
}
