use emulator::{Distribution, EmulatorCounts, FlowCounts, LineCounts, PathCounts};
use netsim::PipeStats;

use super::probe::Received;
use super::*;

fn spec(text: &str) -> PathSpec {
    text.parse().expect("a path")
}

/// Returns counters of a path whose lines both have these, and have carried one flow of datagrams.
fn counts(pipe: PipeStats, packets_received: u64) -> EmulatorCounts {
    let flow = FlowKey { protocol: UDP, from: ([198, 18, 0, 1].into(), 9), to: ([198, 18, 0, 2].into(), 9) };
    let flow_counts = FlowCounts { packets_delivered: packets_received, ..FlowCounts::default() };
    let line = LineCounts {
        pipe,
        packets_read: 0,
        packets_written: 0,
        memory_drops: 0,
        waited: Distribution::default(),
        flows: vec![(Some(flow), flow_counts)],
    };
    EmulatorCounts {
        paths: vec![PathCounts { lines: [line.clone(), line], write_drops: 0, read_drops: 0 }],
        late: Distribution::default(),
        elapsed: Duration::from_secs(2),
        processor: Duration::ZERO,
        realtime: true,
        long_turns: 0,
        write_max: Duration::ZERO,
    }
}

/// Returns the row of a line that delivers what is offered for 2 s, by counters of this host.
fn row_of(text: &str, pipe: PipeStats, packets_received: u64, delays: &[Duration]) -> Row {
    let spec = spec(text);
    let flood = flood(&spec, Duration::from_secs(2));
    let received = Received {
        packets_sent: flood.packets().ceil() as u64,
        packets_received,
        bits_on_line: packets_received * 12_000,
        first: Duration::ZERO,
        last: Duration::from_secs(2),
    };
    let delays: Delays = delays.iter().copied().collect();
    let delays = DelaysOf { idle: delays.clone(), loaded: delays };
    let carried = Carried::Flood(flood, received);
    let counts = counts(pipe, packets_received);
    let loaded = Loaded { counts, host_dropped: 0, processors: 0.0, carried: Vec::new() };
    row(LineOf { number: 0, spec: &spec, to: End::Server }, Load::Udp, Some(&delays), &carried, &loaded)
}

/// Returns a row of a line of 100 Mbit/s that this host holds.
fn good_row() -> Row {
    let pipe = PipeStats { packets_offered: 17_166, packets_delivered: 16_666, ..PipeStats::default() };
    row_of("100mbit,10ms", pipe, 16_666, &[Duration::from_micros(10_100)])
}

#[test]
fn a_line_that_this_host_cannot_hold_is_named_with_the_reason() {
    assert_eq!(good_row().complaint(), None);
    let slow = Row { bits_per_s: 98.0e6, ..good_row() };
    let late = Row { late_us_p99: 1_001.0, ..good_row() };
    let lossy = Row { host_dropped_packets: 17, ..good_row() };
    let deaf = Row { received_packets: Some(16_000), ..good_row() };
    let delayed = Row { delay_ms_p50: Some(10.3), ..good_row() };
    let loaded = Row { loaded_delay_ms_p50: Some(10.21), ..good_row() };
    for (row, words) in [
        (slow, "carries 98.00 of 100.00 Mbit/s on this host, less than 99 %"),
        (late, "1001 µs"),
        (lossy, "itself dropped: 17"),
        (deaf, "delivered 16,666 packets, and this host received 16,000"),
        (delayed, "a delay of 10.300 ms on this host, in place of 10.003"),
        (loaded, "a delay of 10.210 ms while the other direction is full on this host, in place of 10.003"),
    ] {
        let complaint = row.complaint().expect("a complaint");
        assert!(complaint.contains(words) && complaint.contains("path 1 (100mbit,10ms)"), "{complaint}");
    }
    let both = Row { bits_per_s: 98.0e6, late_us_p99: 1_001.0, ..good_row() };
    let complaint = both.complaint().expect("a complaint");
    assert!(complaint.contains("98.00 of") && complaint.contains("1001 µs"), "{complaint}");
}

#[test]
fn equal_paths_are_told_apart_in_the_table() {
    let rows = [1, 2].map(|path| Row { path, ..good_row() });
    let table = table(&rows, "tun");
    let names: Vec<&str> =
        table.lines().filter_map(|line| line.split_once(" server")).map(|one| one.0.trim()).collect();
    assert_eq!(names, ["1: 100mbit,10ms", "2: 100mbit,10ms"]);
}

#[test]
fn a_lossy_line_is_offered_what_it_loses_on_top() {
    let rate = |text: &str| flood(&spec(text), Duration::from_secs(2)).bits_per_s;
    assert_eq!(rate("100mbit"), 103_000_000);
    assert_eq!(rate("100mbit,loss=50%"), 206_000_000);
    assert_eq!(rate("100mbit,loss=20%,burst=4"), 128_750_000);
    assert_eq!(rate("100mbit,loss=90%"), 206_000_000, "there is a limit");
}

#[test]
fn losses_and_damage_of_the_line_are_no_defects_of_the_host() {
    // Bursts leave the line idle at times; every packet that it delivered was received.
    let bursts = PipeStats { packets_delivered: 16_000, ..PipeStats::default() };
    assert_eq!(row_of("100mbit,loss=5%,burst=400", bursts, 16_000, &[]).complaint(), None);
    assert_eq!(row_of("100mbit,loss=60%", bursts, 16_000, &[]).complaint(), None);
    let damaged = PipeStats { packets_delivered: 16_666, packets_corrupted: 833, ..PipeStats::default() };
    assert_eq!(row_of("100mbit,corrupt=5%", damaged, 15_833, &[]).complaint(), None);
    let row = row_of("100mbit,corrupt=5%", damaged, 15_000, &[]);
    assert!(
        row.complaint().is_some_and(|complaint| complaint.contains("carries 90.00 of 95.00 Mbit/s")),
        "{row:?}"
    );
    let idle = Row { sent_packets: Some(9_000), ..row_of("100mbit,loss=60%", bursts, 16_000, &[]) };
    let complaint = idle.complaint().expect("a complaint");
    assert!(
        complaint.contains("is not filled by this host, which sends 9,000 of 33,333 packets"),
        "{complaint}"
    );
}

#[test]
fn a_line_that_delivers_nothing_has_no_delay() {
    let row = row_of("loss=100%", PipeStats::default(), 0, &[]);
    assert_eq!((row.delay_ms_p50, row.complaint()), (None, None));
    let json = serde_json::to_value(&row).expect("JSON");
    assert!(json.get("delay_ms_p50").is_none() && json.get("delay_ms_p99").is_none(), "{json}");
    assert!(table(&[row], "tun").contains("none arrived"));
}

#[test]
fn a_single_packet_has_no_rate() {
    let one = PipeStats { packets_delivered: 1, ..PipeStats::default() };
    let row = Row { bits_per_s: 0.0, ..row_of("1kbit", one, 1, &[]) };
    assert_eq!(row.complaint(), None);
}

#[test]
fn jitter_belongs_to_the_delay_of_a_line() {
    let pipe = PipeStats { packets_delivered: 16_666, ..PipeStats::default() };
    let row = |ms| row_of("100mbit,10ms,jitter=2ms", pipe, 16_666, &[Duration::from_millis(ms)]);
    assert_eq!(row(11).complaint(), None);
    assert!(row(13).complaint().is_some());
}

/// Returns the row of a line of 100 Mbit/s that this load fills beside other lines.
fn row_beside(load: Load) -> Row {
    let without =
        Row { delay_ms_p50_limit: None, delay_ms_p50: None, loaded_delay_ms_p50: None, ..good_row() };
    match load {
        Load::TcpAll => Row { load, sent_packets: None, received_packets: None, ..without },
        _ => Row { load, ..without },
    }
}

#[test]
fn lines_that_this_host_holds_only_one_by_one_are_too_much() {
    for (load, circumstance) in
        [(Load::UdpAll, "beside the other paths"), (Load::TcpAll, "with TCP in both directions of all paths")]
    {
        let (good, held) = (good_row(), row_beside(load));
        assert!(verdict(&[good.clone(), held.clone()]).is_ok());
        let late = Row { late_us_p99: 1_001.0, ..held.clone() };
        let behind = Row { late_us_p50: 201.0, ..held.clone() };
        let lossy = Row { host_dropped_packets: 17, ..held };
        for (row, words) in [(late, "by 1001 µs"), (behind, "by 201 µs"), (lossy, "itself dropped: 17")] {
            let error = verdict(&[good.clone(), row]).expect_err("too much").to_string();
            for words in ["path 1 (100mbit,10ms) to the server", circumstance, words] {
                assert!(error.contains(words), "{error}");
            }
        }
    }
    let slow = Row { bits_per_s: 60e6, ..row_beside(Load::UdpAll) };
    assert!(verdict(&[slow]).expect_err("too much").to_string().contains("carries 60.00 of 100.00 Mbit/s"));
    // How much TCP sends is up to TCP.
    assert!(
        verdict(&[Row { bits_per_s: 60e6, expected: Expected::default(), ..row_beside(Load::TcpAll) }])
            .is_ok()
    );
}

#[test]
fn a_row_of_tcp_has_no_delays_and_no_datagrams_and_its_rate_is_no_defect() {
    let pipe = PipeStats { packets_offered: 10_000, packets_delivered: 10_000, ..PipeStats::default() };
    let loaded = Loaded { counts: counts(pipe, 0), host_dropped: 0, processors: 0.0, carried: Vec::new() };
    let carried = Carried::Tcp { bits_per_s: 60e6, congestion_control: "cubic".to_owned() };
    let spec = spec("100mbit,10ms");
    let line = LineOf { number: 0, spec: &spec, to: End::Server };
    let row = row(line, Load::TcpAll, None, &carried, &loaded);
    assert_eq!((row.complaint(), row.bits_per_s, row.delivered_packets), (None, 60e6, 10_000));
    let json = serde_json::to_value(&row).expect("JSON");
    assert_eq!(json["congestion_control"], "cubic");
    for key in ["sent_packets", "received_packets", "delay_ms_p50", "delay_ms_p50_limit"] {
        assert!(json.get(key).is_none(), "{key}: {json}");
    }
    let datagrams = serde_json::to_value(good_row()).expect("JSON");
    assert!(datagrams.get("delay_ms_p50_limit").is_some() && datagrams.get("congestion_control").is_none());
}

#[test]
fn all_paths_are_loaded_together_where_there_are_several() {
    assert_eq!(loads_of_all(1).collect::<Vec<_>>(), [Load::TcpAll]);
    assert_eq!(loads_of_all(2).collect::<Vec<_>>(), [Load::UdpAll, Load::TcpAll]);
}

#[test]
fn the_table_tells_the_promised_delay_beside_the_measured_one() {
    let table = table(&[good_row(), row_beside(Load::TcpAll)], "tun");
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words[0].join(" ").contains("load Mbit/s p50 at most delay p50, p99 ms"), "{table}");
    assert!(
        words[1].join(" ").contains("udp 100.0 of 100 10.203 10.100, 10.100 10.100, 10.100 16666 of"),
        "{table}"
    );
    assert!(words[2].join(" ").contains("tcp-all 100.0 of 100 0, 0"), "{table}");
}
