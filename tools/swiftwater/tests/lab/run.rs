//! Programs of this machine on two hosts: what the lines between them do to packets, and what hosts are like.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::support::{Folder, SWIFTWATER, is_root, lab, lab_refused, number, output, possible, users};

/// Sends a file over TCP, from the server to the client.
fn transfer(user: Option<u32>, device: &str, path: &str, folder: &Folder) -> Vec<Value> {
    let (sent, received, json) = (folder.file("sent"), folder.file("received"), folder.file("rows.json"));
    for old in [&received, &json] {
        let _ = fs::remove_file(old);
    }
    let server = format!("exec socat -u FILE:{} TCP-LISTEN:5000", sent.display());
    let (json_word, to) = (format!("--json={}", json.display()), format!("CREATE:{}", received.display()));
    let words = ["run", "--device", device, "--path", path, "--server", &server, &json_word, "--"];
    let client = ["socat", "-u", "TCP:198.18.0.2:5000", &to];
    let (output, said) = output(&mut lab(user, &[&words[..], &client].concat()));
    assert!(output.status.success(), "{said}");
    assert!(fs::read(&sent).expect("ours") == fs::read(&received).expect("the client's"), "{path}: {said}");
    serde_json::from_slice(&fs::read(&json).expect("written")).expect("JSON")
}

/// Returns the row of the flow with the most bytes.
fn largest<'a>(rows: &'a [Value], to: &str) -> &'a Value {
    rows.iter().find(|row| row["to"] == to).expect("a flow")
}

#[test]
#[ignore = "needs namespaces, ip and socat: ./test --all"]
fn the_kernels_tcp_gets_its_file_through_over_any_line_and_device() {
    if !possible(&["socat"]) {
        return;
    }
    let folder = Folder::new("transfer");
    let content: Vec<u8> =
        (0..4_000_000u32).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(folder.file("sent"), &content[..6_000_000]).expect("room");
    let clean = "500mbit,1ms";
    let foul = "500mbit,1ms,loss=0.5%,corrupt=0.5%,duplicate=1%,reorder=1%/2ms,ecn=30kB";
    for user in users() {
        // Not every user may open TUN.
        for device in ["veth", "auto"] {
            let rows = transfer(user, device, clean, &folder);
            let row = largest(&rows, "client");
            assert!(number(row, "delivered_bytes") > 6e6, "{row}");
            assert_eq!(number(row, "lost_packets"), 0.0, "{row}");
            // Packets are those of the line, not the super-packets of the host.
            assert!(number(row, "delivered_packets") > 6e6 / 1500.0, "{row}");
            let rows = transfer(user, device, foul, &folder);
            let row = largest(&rows, "client");
            assert!(number(row, "lost_packets") > 0.0, "{row}");
            let fates =
                ["delivered_packets", "in_flight_packets", "lost_packets", "dropped_packets", "down_packets"];
            assert_eq!(
                fates.map(|key| number(row, key)).iter().sum::<f64>(),
                number(row, "packets"),
                "{row}"
            );
        }
    }
}

/// Sends 45 datagrams of UDP in one call, and fails unless each arrives as one of its own. `lab` returns the command for words of
/// `swiftwater lab`.
fn send_segments(lab: impl Fn(&[&str]) -> Command, device: &str) {
    // The sender leaves segmentation to the device (UDP_SEGMENT is 103); the receiver looks at each datagram.
    let receiver = "import socket\n\
        s = socket.socket(socket.AF_INET6 if ':' in A else socket.AF_INET, socket.SOCK_DGRAM); s.bind((A, 5000))\n\
        got = [s.recv(65536) for _ in range(45)]\n\
        s.sendto(b'good' if got == [bytes([n]) * 1000 for n in range(44)] + [b'end'] else b'bad', (C, 5000))\n";
    let sender = "import socket, sys\n\
        s = socket.socket(socket.AF_INET6 if ':' in A else socket.AF_INET, socket.SOCK_DGRAM); s.bind((C, 5000))\n\
        s.settimeout(20)\n\
        s.setsockopt(17, 103, 1000)\n\
        s.sendto(b''.join(bytes([n]) * 1000 for n in range(44)) + b'end', (A, 5000))\n\
        sys.exit(0 if s.recv(100) == b'good' else 1)\n";
    for (client, server) in [("198.18.0.1", "198.18.0.2"), ("2001:2:0:0::1", "2001:2:0:0::2")] {
        let named = |program: &str| format!("A, C = '{server}', '{client}'\n{program}");
        let waiting = format!("exec python3 -c \"{}\"", named(receiver));
        let words = ["run", "--device", device, "--path", "200mbit,1ms", "--server", &waiting, "--"];
        let (output, said) = output(&mut lab(&[&words[..], &["python3", "-c", &named(sender)]].concat()));
        assert!(output.status.success(), "{device}, {server}: {said}");
        assert!(said.contains("45 of 45 packets delivered"), "{said}");
        assert!(device == "auto" || said.contains(&format!("emulator ({device})")), "{said}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn segments_of_udp_arrive_as_datagrams_of_their_own() {
    if !possible(&["python3"]) {
        return;
    }
    for user in users() {
        for device in ["veth", "auto"] {
            send_segments(|words| lab(user, words), device);
        }
    }
}

/// Linux 6.2 brought UDP segmentation by the reader of a device.
#[test]
#[ignore = "needs namespaces, ip and setarch: ./test --all"]
fn a_kernel_without_udp_segmentation_on_devices_makes_the_datagrams_itself() {
    if !possible(&["python3", "setarch"]) {
        return;
    }
    // `uname` then names a kernel 2.6.
    let old = |words: &[&str]| {
        let mut command = Command::new("setarch");
        command.args(["--uname-2.6", SWIFTWATER, "lab"]).args(words).stdin(Stdio::null());
        command
    };
    send_segments(old, "veth");
    // Not every user may open TUN.
    if is_root() {
        send_segments(|words| lab_refused(None, "udp-segmentation", words), "tun");
    }
}

#[test]
#[ignore = "needs namespaces and ip, and takes four minutes: ./test --all"]
fn the_kernels_tcp_is_as_fast_as_theory_says_where_packets_are_lost_at_random() {
    if !possible(&[]) {
        return;
    }
    let words = ["check", "--tcp", "--path", "100mbit,10ms,loss=0.1%", "--json"];
    let (output, said) = output(&mut lab(None, &words));
    assert!(output.status.success(), "{said}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let transports: Vec<&str> = rows.iter().filter_map(|row| row["transport"].as_str()).collect();
    assert_eq!(transports, ["tcp-reno", "tcp-cubic"]);
    for row in &rows {
        assert!((0.9..=1.1).contains(&number(row, "ratio_to_predicted")), "{row}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_line_that_loses_damages_or_delivers_nothing_is_no_defect_of_the_host() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        for path in [
            "10mbit,5ms,loss=5%,burst=400",
            "10mbit,loss=60%,jitter=2ms",
            "10mbit,corrupt=5%",
            "loss=100%",
            "1kbit",
        ] {
            let words = ["check", "--path", path, "--seconds", "1", "--json"];
            let (output, said) = output(&mut lab(user, &words));
            let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
            // A busy machine may be late all the same, and then carry less.
            let blames =
                said.split(';').filter(|complaint| !complaint.contains("is late")).any(|complaint| {
                    ["carries", "is not filled", "received"].iter().any(|words| complaint.contains(words))
                });
            assert!(rows.len() == 4 && !blames, "{path}: {said}");
            let mut alone = rows.iter().filter(|row| row["load"] == "udp");
            assert!(alone.all(|row| row["delay_ms_p50"].is_null() == (path == "loss=100%")), "{rows:?}");
        }
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn tcp_saves_nothing_of_a_connection_for_the_next_run() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        let words = ["run", "--", "cat", "/proc/sys/net/ipv4/tcp_no_metrics_save"];
        let (output, said) = output(&mut lab(user, &words));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1", "{said}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn packets_still_on_the_line_are_neither_delivered_nor_lost() {
    if !possible(&["python3"]) {
        return;
    }
    // The client ends long before its datagrams could arrive.
    let client = "import socket; s = socket.socket(type=socket.SOCK_DGRAM)\n\
        for _ in range(7): s.sendto(b'x' * 972, ('198.18.0.2', 5000))";
    let words = ["run", "--path", "600s", "--json", "--", "python3", "-c", client];
    for user in users() {
        let (output, said) = output(&mut lab(user, &words));
        assert!(output.status.success(), "{said}");
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
        let flow = |row: &&Value| row["flow"].as_str().is_some_and(|flow| flow.contains("5000"));
        let row = rows.iter().find(flow).expect("the datagrams");
        let told = ["packets", "delivered_packets", "delivered_bytes", "lost_packets", "in_flight_packets"];
        assert_eq!(told.map(|key| number(row, key)), [7.0, 0.0, 0.0, 0.0, 7.0], "{row}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_program_has_its_own_status_and_finds_its_hosts() {
    if !possible(&[]) {
        return;
    }
    for user in users() {
        let line = "[ $LAB_SERVER = 198.18.0.2,198.18.1.2 ] && ip -brief address show p1 | grep -q 198.18.1.1/24 && exit 7";
        let words = ["run", "--path", "5ms", "--path", "1mbit", "--", "sh", "-c", line];
        let (output, said) = output(&mut lab(user, &words));
        assert_eq!(output.status.code(), Some(7), "{said}");
        // A program has the descriptors that it would have without the laboratory.
        let list = ["sh", "-c", "ls -l /proc/self/fd | grep -c pipe:"];
        let (within, said) = self::output(&mut lab(user, &[&["run", "--"], &list[..]].concat()));
        let (without, _) = self::output(Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()));
        assert_eq!(within.stdout, without.stdout, "{said}");
        let inside = format!("{SWIFTWATER} lab shell --server");
        let entered =
            ["run", "--", "sh", "-c", &format!("echo 'ip -brief address show p0' | SHELL=/bin/sh {inside}")];
        let (output, said) = self::output(&mut lab(user, &entered));
        assert!(String::from_utf8_lossy(&output.stdout).contains("198.18.0.2/24"), "{said}");
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn a_stream_is_no_faster_than_its_line_and_not_half_as_fast() {
    if !possible(&[]) {
        return;
    }
    let folder = Folder::new("stream");
    let (rows, server) = (folder.file("rows.json"), format!("exec {SWIFTWATER} perf server -B 198.18.0.2"));
    let json = format!("--json={}", rows.display());
    let words = ["run", "--path", "10mbit,10ms", "--server", &server, "--", SWIFTWATER, "perf", "client"];
    let client = ["198.18.0.2", "--mode", "stream", "-l", "16k", "-n", "50", &json];
    let (output, said) = output(&mut lab(users()[0], &[&words[..], &client].concat()));
    assert!(output.status.success(), "{said}");
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(&rows).expect("written")).expect("JSON");
    let total = rows.iter().find(|row| row["period"] == "total").expect("a total");
    assert!((5e6..10e6).contains(&number(total, "bits_per_s")), "{total}");
}
