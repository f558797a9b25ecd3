//! Packets that another implementation has sent: each parses with a good checksum, and is built again byte
//! for byte.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be read fails the test")]

use sctp_wire::chunk::{self, Chunk, DataFlags};
use sctp_wire::parameter::Parameter;
use sctp_wire::{Header, Packet, Ppid, Ssn, StreamId, Tsn, VerificationTag, packet};

const RECORDED: &str = include_str!("golden/association.hex");

/// Returns the senders and packets of the recording.
fn recorded() -> Vec<(char, Vec<u8>)> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| (line.chars().next().unwrap(), decode(&line[2..]))).collect()
}

fn decode(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u32> = hexadecimal.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Returns the only chunk of the `index`th packet.
fn chunk_of(packets: &[(char, Vec<u8>)], index: usize) -> Chunk<'_> {
    let packet = Packet::parse(&packets[index].1).unwrap();
    let mut chunks = packet.chunks();
    let chunk = Chunk::parse(&chunks.next().unwrap().unwrap()).unwrap();
    assert_eq!(chunks.next(), None);
    chunk
}

#[test]
fn the_recording_reads_like_the_ladder_that_it_is() {
    let ladder: Vec<String> = recorded()
        .iter()
        .map(|(sender, bytes)| {
            let packet = Packet::parse(bytes).unwrap().to_string();
            // The test checks the parameters below.
            format!("{sender} {}", packet.split(" [parameter").next().unwrap())
        })
        .collect();
    assert_eq!(
        ladder,
        [
            "A 5000 > 5001 tag=0x00000000; INIT initiate_tag=0x7b6b04e4 a_rwnd=131072 outbound_streams=10 \
             inbound_streams=2048 initial_tsn=1914800696",
            "B 5001 > 5000 tag=0x7b6b04e4; INIT ACK initiate_tag=0xe7d80f15 a_rwnd=131072 outbound_streams=10 \
             inbound_streams=2048 initial_tsn=3978716307",
            "A 5000 > 5001 tag=0xe7d80f15; COOKIE ECHO cookie_bytes=308",
            "B 5001 > 5000 tag=0x7b6b04e4; COOKIE ACK",
            "A 5000 > 5001 tag=0xe7d80f15; DATA tsn=1914800696 stream=1 ssn=0 ppid=46 flags=BE bytes=5",
            "B 5001 > 5000 tag=0x7b6b04e4; SACK cum_tsn=1914800696 a_rwnd=131072",
            "A 5000 > 5001 tag=0xe7d80f15; DATA tsn=1914800697 stream=1 ssn=0 ppid=46 flags=IUBE bytes=5",
            "B 5001 > 5000 tag=0x7b6b04e4; SACK cum_tsn=1914800697 a_rwnd=131072",
            "A 5000 > 5001 tag=0xe7d80f15; HEARTBEAT info_bytes=36",
            "B 5001 > 5000 tag=0x7b6b04e4; HEARTBEAT ACK info_bytes=36",
            "A 5000 > 5001 tag=0xe7d80f15; SHUTDOWN cum_tsn=3978716306",
            "B 5001 > 5000 tag=0x7b6b04e4; SHUTDOWN ACK",
            "A 5000 > 5001 tag=0xe7d80f15; SHUTDOWN COMPLETE",
            "A 5002 > 5001 tag=0xaef38aac; ABORT [user-initiated abort \"enough\"]",
        ]
    );
}

#[test]
fn every_packet_has_a_good_checksum_and_is_built_again() {
    for (_, mut bytes) in recorded() {
        let packet = Packet::parse(&bytes).unwrap();
        assert!(packet.checksum_ok(), "{packet}");
        let mut again = Vec::new();
        packet::write_header(&packet.header(), &mut again);
        let chunk = Chunk::parse(&packet.chunks().next().unwrap().unwrap()).unwrap();
        chunk.write(&mut again);
        packet::finish(&mut again);
        if matches!(chunk, Chunk::Sack(_)) {
            // That implementation sets a reserved bit in one of its SACKs; ours does not.
            bytes[13] = 0;
            packet::finish(&mut bytes);
        }
        assert_eq!(again, bytes);
    }
}

#[test]
fn the_init_ack_hands_out_the_cookie_that_comes_back() {
    let packets = recorded();
    let (Chunk::InitAck(init_ack), Chunk::CookieEcho(echo)) = (chunk_of(&packets, 1), chunk_of(&packets, 2))
    else {
        panic!("the second packet is the INIT ACK and the third the COOKIE ECHO");
    };
    let parameters: Vec<Parameter<'_>> = init_ack.parameters().map(Result::unwrap).collect();
    let kinds: Vec<u16> = parameters.iter().map(Parameter::kind).collect();
    // Forward TSN, supported extensions, then random, chunk list and HMAC list of RFC 4895, and the cookie.
    assert_eq!(kinds, [0xc000, 0x8008, 0x8002, 0x8004, 0x8003, 7]);
    let Some(Parameter::StateCookie(cookie)) = parameters.last() else { panic!("the cookie is the last") };
    assert_eq!(cookie.cookie, echo.cookie);
}

#[test]
fn the_heartbeat_information_comes_back_unchanged() {
    let packets = recorded();
    let (Chunk::Heartbeat(request), Chunk::HeartbeatAck(ack)) =
        (chunk_of(&packets, 8), chunk_of(&packets, 9))
    else {
        panic!("the ninth packet is the HEARTBEAT and the tenth its answer");
    };
    assert_eq!(request.info, ack.info);
}

#[test]
fn a_packet_with_data_is_built_from_its_parts() {
    let mut bytes = Vec::new();
    let header =
        Header { source_port: 5000, destination_port: 5001, verification_tag: VerificationTag(0xe7d8_0f15) };
    packet::write_header(&header, &mut bytes);
    chunk::Data {
        flags: DataFlags::WHOLE,
        tsn: Tsn(1_914_800_696),
        stream: StreamId(1),
        ssn: Ssn(0),
        ppid: Ppid(46),
        payload: b"hello",
    }
    .write(&mut bytes);
    packet::finish(&mut bytes);
    assert_eq!(bytes, recorded()[4].1);
}
