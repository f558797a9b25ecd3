//! Streams as flat objects: a row for each stream, each part of it, and each counter, and one for what the report lacks.

use std::net::SocketAddr;

use serde::Serialize;
use swiftwater_daemon::{PartStatus, StreamStatus, Streams};

use crate::host::process_name;

#[derive(Debug, Serialize)]
#[serde(tag = "row", rename_all = "lowercase")]
pub(super) enum Row<'a> {
    Stream {
        stream: u32,
        socket: u64,
        user: u32,
        process: i32,
        #[serde(skip_serializing_if = "Option::is_none")]
        process_name: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        local: Option<SocketAddr>,
        peer: SocketAddr,
    },
    Part {
        stream: u32,
        place: usize,
        name: &'a str,
        read_messages: usize,
        read_bytes: usize,
        read_hiwat_bytes: usize,
        read_lowat_bytes: usize,
        read_full: bool,
        write_messages: usize,
        write_bytes: usize,
        write_hiwat_bytes: usize,
        write_lowat_bytes: usize,
        write_full: bool,
    },
    Link {
        stream: u32,
        linked_with: u32,
        linked_by: u32,
        messages: u64,
        bytes: u64,
    },
    Count {
        stream: u32,
        place: usize,
        name: &'a str,
        what: &'a str,
        count: u64,
    },
    Omitted {
        streams: usize,
    },
}

pub(super) fn of(streams: &Streams) -> Vec<Row<'_>> {
    let omitted = Some(streams.omitted).filter(|omitted| *omitted > 0);
    let omitted = omitted.map(|streams| Row::Omitted { streams });
    streams.streams.iter().flat_map(of_stream).chain(omitted).collect()
}

fn of_stream(stream: &StreamStatus) -> Vec<Row<'_>> {
    let mut rows = vec![Row::Stream {
        stream: stream.association,
        socket: stream.socket,
        user: stream.user,
        process: stream.process,
        process_name: process_name(stream.process),
        local: stream.local,
        peer: stream.peer,
    }];
    rows.extend(stream.link.as_ref().map(|link| Row::Link {
        stream: stream.association,
        linked_with: link.with,
        linked_by: link.user,
        messages: link.messages,
        bytes: link.bytes,
    }));
    for (place, part) in stream.parts.iter().enumerate() {
        rows.push(of_part(stream.association, place, part));
        let counts = part.counts.iter().map(|(what, count)| Row::Count {
            stream: stream.association,
            place,
            name: &part.name,
            what,
            count: *count,
        });
        rows.extend(counts);
    }
    rows
}

fn of_part(stream: u32, place: usize, part: &PartStatus) -> Row<'_> {
    let PartStatus { name, read, write, .. } = part;
    Row::Part {
        stream,
        place,
        name,
        read_messages: read.messages,
        read_bytes: read.bytes,
        read_hiwat_bytes: read.hiwat_bytes,
        read_lowat_bytes: read.lowat_bytes,
        read_full: read.is_full,
        write_messages: write.messages,
        write_bytes: write.bytes,
        write_hiwat_bytes: write.hiwat_bytes,
        write_lowat_bytes: write.lowat_bytes,
        write_full: write.is_full,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn the_last_row_tells_how_many_streams_the_report_lacks() {
        let last = |streams: &Streams| serde_json::to_value(of(streams).last()).expect("a row");
        let mut streams = example();
        assert_eq!(last(&streams)["row"], "count");
        streams.omitted = 3;
        assert_eq!(last(&streams), serde_json::json!({ "row": "omitted", "streams": 3 }));
    }
}
