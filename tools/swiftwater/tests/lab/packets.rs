//! Tests of kinds of packets on the lines: TCP over IPv6, and SCTP without UDP.

use std::fs;

use crate::support::{Folder, lab, output, possible, users};

#[test]
#[ignore = "needs namespaces, ip and socat: ./test --all"]
fn super_packets_of_tcp_over_ipv6_get_a_file_through_a_foul_line() {
    if !possible(&["socat"]) {
        return;
    }
    let folder = Folder::new("ipv6");
    let (sent, received) = (folder.file("sent"), folder.file("received"));
    let content: Vec<u8> =
        (0..1_000_000u32).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(&sent, &content).expect("room");
    let server = format!("exec socat -u FILE:{} TCP6-LISTEN:5000", sent.display());
    let to = format!("CREATE:{}", received.display());
    for user in users() {
        for device in ["veth", "auto"] {
            for path in
                ["500mbit,1ms", "500mbit,1ms,loss=0.5%,corrupt=0.5%,duplicate=1%,reorder=1%/2ms,ecn=30kB"]
            {
                let _ = fs::remove_file(&received);
                let words = ["run", "--device", device, "--path", path, "--server", &server, "--"];
                let client = ["socat", "-u", "TCP6:[2001:2:0:0::2]:5000", &to];
                let (output, said) = output(&mut lab(user, &[&words[..], &client].concat()));
                assert!(output.status.success(), "{said}");
                assert!(fs::read(&received).expect("the client's") == content, "{device}, {path}: {said}");
                assert!(said.contains("TCP [2001:2::2]:5000 to [2001:2::1]:"), "{said}");
            }
        }
    }
}

#[test]
#[ignore = "needs namespaces and ip: ./test --all"]
fn sctp_without_udp_passes_the_line_as_it_is() {
    if !possible(&["python3"]) {
        return;
    }
    // The packet arrives whole, and so does its answer. Ports 5001 and 80, a tag, no checksum, and 1,000 bytes.
    let packet = "import socket, sys\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 132); s.settimeout(20)\n\
        def packet(ports): return ports + bytes([1, 2, 3, 4, 0, 0, 0, 0]) + bytes(n % 251 for n in range(1000))\n\
        there, back = packet(b'\\x13\\x89\\x00\\x50'), packet(b'\\x00\\x50\\x13\\x89')\n";
    // The client starts once the server has a UDP socket.
    let server = "u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('', 5000))\n\
        s.sendto(back, ('198.18.0.1', 0)) if s.recv(2000)[20:] == there else sys.exit(1)\n\
        s.recv(2000)\n";
    let client = "s.sendto(there, ('198.18.0.2', 0)); sys.exit(0 if s.recv(2000)[20:] == back else 1)\n";
    for user in users() {
        for device in ["veth", "auto"] {
            let waiting = format!("exec python3 -c \"{packet}{server}\"");
            let words = ["run", "--device", device, "--path", "100mbit,1ms", "--server", &waiting, "--"];
            let client = ["python3", "-c", &format!("{packet}{client}")];
            let (output, said) = output(&mut lab(user, &[&words[..], &client].concat()));
            assert!(output.status.success(), "{device}: {said}");
            for flow in ["SCTP 198.18.0.1:5001 to 198.18.0.2:80", "SCTP 198.18.0.2:80 to 198.18.0.1:5001"] {
                assert!(said.contains(&format!("{flow}: 1 of 1 packets delivered, 1,032 bytes")), "{said}");
            }
        }
    }
}
