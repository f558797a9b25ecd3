//! Sets of comparable figures: the same processors, packets and connections.

use crate::bench::curve::Curve;
use crate::units::grouped;

/// Comparable curves.
pub(super) struct View {
    /// Their common properties, in words.
    pub(super) name: String,
    pub(super) curves: Vec<Curve>,
}

/// Returns all views, the most processors and the largest packets first. A series without packet size is in each of them.
pub(super) fn all(curves: &[Curve], loopback_packet_bytes: usize) -> Vec<View> {
    let distinct = |of: fn(&Curve) -> usize| {
        let mut values: Vec<usize> = curves.iter().map(of).filter(|value| *value > 0).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.dedup();
        values
    };
    let mut packets = distinct(|curve| curve.packet_bytes);
    if packets.is_empty() {
        packets.push(loopback_packet_bytes);
    }
    let mut parallel = distinct(|curve| curve.parallel);
    parallel.reverse();
    let mut views = Vec::new();
    for &cpus in &distinct(|curve| curve.cpus) {
        for &parallel in &parallel {
            for &packet_bytes in &packets {
                let belongs = |curve: &&Curve| {
                    (curve.cpus, curve.parallel) == (cpus, parallel)
                        && (curve.packet_bytes == 0 || curve.packet_bytes == packet_bytes)
                };
                let curves: Vec<Curve> = curves.iter().filter(belongs).cloned().collect();
                if !curves.is_empty() {
                    let name = name(cpus, parallel, packet_bytes, loopback_packet_bytes);
                    views.push(View { name, curves });
                }
            }
        }
    }
    views
}

fn name(cpus: usize, parallel: usize, packet_bytes: usize, loopback_packet_bytes: usize) -> String {
    let processors = match cpus {
        1 => "both ends on one processor".to_owned(),
        2 => "a processor for each end".to_owned(),
        cpus => format!("{cpus} processors, half for each end"),
    };
    let whose = if packet_bytes == loopback_packet_bytes { ", the loopback device's" } else { "" };
    let parallel = if parallel == 1 {
        String::new()
    } else {
        format!("; {parallel} associations or connections at a time")
    };
    format!("Packets of {} bytes{whose}; {processors}{parallel}", grouped(packet_bytes as u64))
}
