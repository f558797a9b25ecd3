//! The published series: netperf on loopback in 2007, messages in 10 seconds for each message size.

use super::curve::{Curve, Point};
use crate::plot::{Color, CurveStyle, Marker};

/// Duration of each published run.
const SECONDS: f64 = 10.0;

/// A machine of the published experiment, and its file.
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) processors: usize,
    /// Number of the first of its four figures in the paper.
    pub(crate) first_figure: usize,
    csv: &'static str,
}

macro_rules! machine {
    ($name:literal, $processors:literal, $first_figure:literal, $file:literal) => {
        Machine {
            name: $name,
            processors: $processors,
            first_figure: $first_figure,
            csv: include_str!(concat!("../../../../docs/published/", $file)),
        }
    };
}

const MACHINES: [Machine; 7] = [
    machine!("Fedora Core 6, 3.0 GHz i630 HT, 2 processors (daisy)", 2, 24, "strsctp-fc6smp-daisy.csv"),
    machine!("Ubuntu 7.04, 2.57 GHz P4 (porky)", 1, 16, "strsctp-ubuntu704-porky.csv"),
    machine!("Fedora Core 6, 2.57 GHz P4 (porky)", 1, 4, "strsctp-fc6-porky.csv"),
    machine!("CentOS 4, 2.57 GHz P4 (porky)", 1, 8, "strsctp-centos4-porky.csv"),
    machine!("SuSE 10.0, 2.57 GHz P4 (porky)", 1, 12, "strsctp-suse10-porky.csv"),
    machine!("RedHat 7.2, 2.57 GHz P4 (pumbah)", 1, 20, "strsctp-rh72-pumbah.csv"),
    machine!("SuSE 10.0, 1.7 GHz P4 M notebook (mspiggy)", 1, 28, "strsctp-suse10-mspiggy.csv"),
];

/// The columns after the size, with their names and styles in figures.
const COLUMNS: [(&str, &str, CurveStyle); 4] = [
    ("xtios_tcp_messages", "2007 tcp, XTI", CurveStyle::new(Color::Violet, Marker::Kite)),
    ("sctp_xti_messages", "2007 sctp, XTI", CurveStyle::new(Color::Magenta, Marker::Frame)),
    ("sockets_normal_messages", "2007 tcp", CurveStyle::new(Color::Vermilion, Marker::Square)),
    ("sockets_artificial_messages", "2007 tcp artificial", CurveStyle::new(Color::Ochre, Marker::Down)),
];
const BASE_COLUMN: &str = "sockets_normal_messages";

/// Returns the machines, in the order of the page.
pub(crate) fn machines() -> &'static [Machine] {
    &MACHINES
}

impl Machine {
    /// Returns the four curves of the machine.
    pub(crate) fn curves(&self) -> [Curve; 4] {
        COLUMNS.map(|(column, label, style)| curve(self, column, label, style))
    }
}

/// A column of the published tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// TCP over XTI.
    Tcp,
    /// SCTP over XTI.
    Sctp,
    /// TCP sockets.
    SocketsNormal,
    /// TCP sockets with priorities in their favour.
    SocketsArtificial,
}

impl Column {
    const ALL: [Self; 4] = [Self::Tcp, Self::Sctp, Self::SocketsNormal, Self::SocketsArtificial];

    /// Returns the name in figures.
    pub(crate) fn name(self) -> &'static str {
        COLUMNS[self as usize].1
    }
}

/// A cell of a published table: messages in ten seconds.
pub(crate) struct Raw {
    pub machine: &'static str,
    pub column: Column,
    pub messages: f64,
}

/// Returns the cells for machines with so many processors and messages of this size.
pub(crate) fn raw(processors: usize, message_bytes: usize) -> Vec<Raw> {
    let machines = MACHINES.iter().filter(|machine| machine.processors == processors);
    let cells = machines.flat_map(|machine| {
        Column::ALL.into_iter().filter_map(move |column| {
            let (name, label, style) = COLUMNS[column as usize];
            let curve = curve(machine, name, label, style);
            let point = curve.points.iter().find(|point| point.message_bytes == message_bytes)?;
            let messages = (point.messages_per_s * SECONDS).round();
            Some(Raw { machine: machine.name, column, messages })
        })
    });
    cells.collect()
}

fn curve(machine: &Machine, column: &str, label: &str, style: CurveStyle) -> Curve {
    let mut lines = machine.csv.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let place = |name: &str| head.iter().position(|column| *column == name);
    let (ours, base) = (place(column), place(BASE_COLUMN));
    let points = lines.filter_map(|line| {
        let values: Vec<f64> = line.split(',').map(|value| value.trim().parse().unwrap_or(0.0)).collect();
        let (messages, base) = (*values.get(ours?)?, *values.get(base?)?);
        Some(Point::new(*values.first()? as usize, messages / SECONDS, Some(messages / base)))
    });
    Curve::published(label, style, points.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_four_whole_curves() {
        let curves = MACHINES.iter().flat_map(Machine::curves);
        assert_eq!(curves.clone().count(), 28);
        for curve in curves {
            let sizes: Vec<usize> = curve.points.iter().map(|point| point.message_bytes).collect();
            assert_eq!(sizes, (0..15).map(|power| 1 << power).collect::<Vec<usize>>(), "{}", curve.label);
            assert!(curve.points.iter().all(|point| point.messages_per_s > 1000.0), "{}", curve.label);
        }
    }

    #[test]
    fn a_known_number_is_where_it_was_published() {
        let daisy = MACHINES[0].curves();
        let sctp = daisy.iter().find(|curve| curve.label.contains("sctp")).expect("four curves");
        assert_eq!(sctp.points[0].messages_per_s, 150_775.4);
        let improvement = sctp.points[0].ratio_to_tcp.expect("a baseline");
        assert!((improvement - 1_507_754.0 / 530_271.0).abs() < 1e-12);
    }
}
