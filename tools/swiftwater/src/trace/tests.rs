//! Tests from an association on a virtual clock to a file, and from the file to lines and figures.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use lab::{A, B, TwoHosts, line};
use netsim::{Loss, PipeConfig};
use rustix::fs::{CWD, Mode, mkfifoat};
use sctp::congestion::Algorithm;
use sctp::{AssociationConfig, SendInfo, Statistics};

use super::args::{PlotArgs, Select, ShowArgs};
use super::plot;
use super::reader::{Body, Reader};
use super::schema::Chunk;
use super::show;
use super::writer::{Origin, Writer};
use super::{TraceError, names};

/// A file that is removed with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("swiftwater-{}-{name}", std::process::id())))
    }

    fn with(name: &str, content: impl AsRef<[u8]>) -> Self {
        let scratch = Self::new(name);
        fs::write(&scratch.0, content).expect("a file");
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Records 300 messages through a line that loses packets and is cut once, as a trace of the sender.
fn record(name: &str) -> (Scratch, Statistics) {
    let config = PipeConfig { loss: Loss::Random { probability: 0.02 }, ..line() };
    let mut hosts = TwoHosts::with_line(5, &config);
    let settings =
        AssociationConfig { trace: true, congestion: Algorithm::NewReno, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(settings, AssociationConfig::default());
    let messages = (0..300).map(|n| (SendInfo::default(), Bytes::from(vec![n as u8; 1000])));
    hosts.send_all(A, a, messages);
    hosts.run_for(Duration::from_millis(80));
    hosts.tap(A, |_| lab::Fate::Drop);
    hosts.run_for(Duration::from_secs(2));
    hosts.untap(A);
    hosts.run_until("all arrived", Duration::from_secs(60), |hosts| hosts.node(B).app.messages.len() == 300);
    hosts.run_for(Duration::from_secs(1));
    let scratch = Scratch::new(name);
    let out = BufWriter::new(File::create(&scratch.0).expect("a file"));
    let origin = Origin { title: "a lossy line".into(), side: "client", zero: None };
    let mut writer = Writer::new(out, &origin).expect("it is written");
    for record in &hosts.node(A).app.trace {
        writer.write(record).expect("it is written");
    }
    writer.flush().expect("it is written");
    (scratch, hosts.statistics(A, a))
}

fn show(file: &Path, event: &[&str], select: Select) -> Result<String, TraceError> {
    let event = event.iter().map(|name| (*name).to_owned()).collect();
    let mut out = Vec::new();
    show::run(&ShowArgs { file: file.to_owned(), event, select }, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn a_file_is_a_json_sequence_that_adds_up_to_the_statistics() {
    let (file, statistics) = record("sums.sqlog");
    let content = fs::read(&file.0).expect("a file");
    let texts: Vec<&[u8]> = content.split(|byte| *byte == 0x1e).skip(1).collect();
    assert!(texts.iter().all(|text| text.ends_with(b"\n")), "every record ends with a line feed");
    let values: Vec<serde_json::Value> =
        texts.iter().map(|text| serde_json::from_slice(text).expect("JSON")).collect();
    assert_eq!(values[0]["file_schema"], "urn:ietf:params:qlog:file:sequential");
    assert_eq!(values[0]["trace"]["common_fields"]["reference_time"]["clock_type"], "virtual");
    let documented = include_str!("../../../../docs/trace.md");
    for event in &values[1..] {
        let name = event["name"].as_str().expect("a name").strip_prefix("sctp:").expect("our namespace");
        assert!(documented.contains(&format!("`{name}`")), "{name} is missing in docs/trace.md");
        for key in event["data"].as_object().expect("an object").keys() {
            assert!(documented.contains(&format!("`{key}`")), "{key} is missing in docs/trace.md");
        }
    }
    let of = |name: &str| values.iter().filter(|event| event["name"] == name).count() as u64;
    let path = &statistics.paths[0];
    assert_eq!(of(names::SENT), statistics.packets_sent);
    assert_eq!(of(names::RECEIVED), statistics.packets_received);
    assert_eq!(of(names::LOST), path.packets_lost);
    assert!(path.packets_lost > 3 && statistics.timeouts > 0, "{statistics:?}");
    let last = |key: &str| {
        let metrics = values.iter().rev().filter(|event| event["name"] == names::METRICS);
        metrics.filter_map(|event| event["data"][key].as_f64()).next().unwrap_or_else(|| panic!("{key}"))
    };
    assert_eq!(last("congestion_window"), path.cwnd_bytes as f64);
    assert_eq!(last("bytes_in_flight"), 0.0);
    assert_eq!(last("smoothed_rtt"), path.srtt.expect("measured").as_nanos() as f64 / 1e6);
}

#[test]
fn a_written_trace_reads_back_the_same() {
    let (file, statistics) = record("read.sqlog");
    let mut reader = Reader::open(&file.0).expect("a trace");
    let (mut again, mut new, mut acked, mut timeouts) = (0, 0, 0, 0);
    while let Some(entry) = reader.next().expect("good lines") {
        match entry.body {
            Body::Sent(packet) => {
                for chunk in &packet.chunks {
                    if let Chunk::Data { count, retransmitted, .. } = chunk {
                        again += u64::from(*retransmitted);
                        new += u64::from(count - retransmitted);
                    }
                }
            }
            Body::Acked(data) => acked += data.bytes,
            Body::Timer(timer) if timer.timer == names::T3 => timeouts += 1,
            _ => {}
        }
    }
    assert!(!reader.is_cut_off());
    assert_eq!((new, again), (statistics.data_chunks_sent, statistics.data_chunks_retransmitted));
    assert_eq!((acked, timeouts), (statistics.paths[0].delivered_bytes, statistics.timeouts));
}

#[test]
fn lines_are_chosen_by_name_time_and_path() {
    let (file, statistics) = record("show.sqlog");
    let all = show(&file.0, &[], Select::default()).expect("lines");
    assert!(all.contains("association_state_updated  COOKIE-ECHOED -> ESTABLISHED\n"), "{all}");
    assert!(all.contains("#0 1472 bytes: 2 DATA (TSN "), "{all}");
    let lost = show(&file.0, &["packet_lost", "sctp:timer_expired"], Select::default()).expect("lines");
    let expected = statistics.paths[0].packets_lost + statistics.timeouts;
    assert_eq!(lost.lines().count() as u64, expected, "{lost}");
    assert!(lost.contains("bytes, timeout\n") && lost.contains("t3_rtx (1 in a row)\n"), "{lost}");
    let early = show(&file.0, &[], Select { to: Some(0.03), path: Some(0), ..Select::default() });
    let early = early.expect("lines");
    assert!(early.lines().count() < 12 && early.contains("INIT ACK"), "{early}");
    let nothing = show(&file.0, &[], Select { path: Some(7), ..Select::default() }).expect_err("no path 7");
    assert!(nothing.to_string().starts_with("no event of"), "{nothing}");
    let unknown = show(&file.0, &["packet_loss"], Select::default()).expect_err("no such event");
    assert!(unknown.to_string().contains("`packet_loss`; the names are association_started"), "{unknown}");
}

#[test]
fn a_figure_has_its_lines_marks_and_names() {
    let (file, statistics) = record("plot.sqlog");
    let out = Scratch::new("plot.html");
    let args = PlotArgs { file: file.0.clone(), output: Some(out.0.clone()), select: Select::default() };
    plot::run(&args).expect("it is drawn");
    let page = fs::read_to_string(&out.0).expect("a page");
    assert_eq!(page.matches("<svg ").count(), 1);
    for name in [
        "cwnd",
        "ssthresh",
        "in flight",
        "smoothed RTT",
        "min RTT",
        "latest RTT",
        "pacing",
        "arrived at the peer",
        "round trip, ms",
        "Mbit/s",
        "bytes",
        "sent again",
        "timeout",
        "probe",
        "undone",
    ] {
        assert!(page.contains(&format!(">{name}</text>")), "{name} is missing");
    }
    // The curves with more points than a line in the legend: window, smoothed round trip and rate; threshold; bytes in flight;
    // pacing.
    let curves_of = |color: &str, points_min: usize| {
        let class = format!("<g class=\"{color}\"><path");
        let paths = page.split(&class).skip(1).filter_map(|path| path.split("/>").next());
        paths.filter(|path| path.matches('L').count() + 1 >= points_min).count()
    };
    for (color, curves) in [("k-blue", 3), ("k-violet", 1), ("k-cyan", 1), ("k-ochre", 1)] {
        assert_eq!(curves_of(color, 4), curves, "{color}");
    }
    // The shortest round-trip time need not change.
    assert!(curves_of("k-green", 2) >= 1, "min RTT");
    let lost = statistics.paths[0].packets_lost;
    assert!(page.contains(&format!("{lost} packets lost")), "the heading counts {lost}");
    assert!(page.contains("a lossy line: association "), "the title is the file's");
    for outside in ["src=", "@import", "url(", "<script"] {
        assert!(!page.contains(outside), "the page asks for {outside}");
    }
}

#[test]
fn a_part_of_a_trace_begins_with_what_was_the_case() {
    let (file, _) = record("part.sqlog");
    let out = Scratch::new("part.svg");
    // The line is cut in these seconds, so no window is reported.
    let select = Select { from: Some(0.5), to: Some(2.0), ..Select::default() };
    plot::run(&PlotArgs { file: file.0.clone(), output: Some(out.0.clone()), select }).expect("it is drawn");
    let svg = fs::read_to_string(&out.0).expect("a drawing");
    assert!(svg.contains("class=\"k-blue\"><path class=\"curve\""), "the window is drawn");
}

#[test]
fn errors_in_a_file_are_reported_with_their_line() {
    let error = |file: &Path| show(file, &[], Select::default()).expect_err("a bad file").to_string();
    let missing = error(Path::new("no-such.sqlog"));
    assert!(missing.starts_with("cannot read no-such.sqlog: "), "{missing}");
    let empty = Scratch::with("empty.sqlog", "");
    assert!(
        error(&empty.0).contains(", line 1: the file is empty; a trace begins with"),
        "{}",
        error(&empty.0)
    );
    let other = Scratch::with("other.sqlog", "a,b\n1,2\n");
    assert!(error(&other.0).contains(", line 1: no header"), "{}", error(&other.0));
    let (good, _) = record("good.sqlog");
    let content = fs::read_to_string(&good.0).expect("text");
    let lines: Vec<&str> = content.lines().collect();
    let with = |name: &str, line: &str| {
        let file = Scratch::new(name);
        let mut out = File::create(&file.0).expect("a file");
        for text in [&lines[..4], &[line], &lines[4..]].concat() {
            writeln!(out, "{text}").expect("it is written");
        }
        error(&file.0)
    };
    let garbled = with("garbled.sqlog", "\u{1e}{\"time\":1,\"name\":");
    assert!(garbled.contains("garbled.sqlog, line 5: no event: "), "{garbled}");
    let data = "\u{1e}{\"time\":1,\"name\":\"sctp:packet_lost\",\"data\":{\"packet_number\":-1}}";
    let wrong = with("data.sqlog", data);
    assert!(wrong.contains("data.sqlog, line 5: the data of `sctp:packet_lost`: "), "{wrong}");
    let header = lines[0];
    let foreign = format!("{header}\n\u{1e}{{\"time\":1,\"name\":\"quic:packet_sent\",\"data\":{{}}}}\n");
    let foreign = Scratch::with("quic.sqlog", foreign);
    assert!(error(&foreign.0).contains("has no SCTP events"), "{}", error(&foreign.0));
}

#[test]
fn a_file_that_was_cut_off_is_good_up_to_there() {
    let (good, _) = record("cut.sqlog");
    let content = fs::read(&good.0).expect("a file");
    let whole = show(&good.0, &[], Select::default()).expect("lines").lines().count();
    fs::write(&good.0, &content[..content.len() - 10]).expect("a file");
    let cut = show(&good.0, &[], Select::default()).expect("lines").lines().count();
    assert_eq!(cut, whole - 1);
}

#[test]
fn a_pipe_cannot_be_drawn_and_is_not_waited_for() {
    let pipe = Scratch::new("pipe");
    mkfifoat(CWD, &pipe.0, Mode::RUSR | Mode::WUSR).expect("a folder for temporary files");
    for path in [&*pipe.0, Path::new("/dev/zero")] {
        let args = PlotArgs {
            file: path.to_owned(),
            output: Some(pipe.0.with_extension("svg")),
            select: Select::default(),
        };
        let error = plot::run(&args).expect_err("it cannot be read twice").to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
}

#[test]
fn a_time_that_ends_before_it_begins_is_told_so() {
    let select = |from, to| Select { from, to, ..Select::default() };
    let said = select(Some(5.0), Some(3.0)).check().expect_err("it is empty").to_string();
    assert!(said.contains("--from 5 is later than --to 3"), "{said}");
    for (from, to) in [(Some(3.0), Some(3.0)), (None, Some(0.0)), (Some(9.0), None)] {
        assert!(select(from, to).check().is_ok(), "{from:?} to {to:?}");
    }
}
