//! Strangers that send all sorts of packets and know no tag.

use std::net::SocketAddr;

use bytes::Bytes;
use lab::packets::{build, write_data, write_sack};
use sctp_wire::cause::Causes;
use sctp_wire::chunk::{
    Abort, CookieAck, CookieEcho, DataFlags, Heartbeat, Init, Shutdown, ShutdownAck, ShutdownComplete,
};
use sctp_wire::parameter::Parameters;
use sctp_wire::{Tsn, VerificationTag};

use crate::dice::Dice;

/// Returns a packet between two ports, and its apparent source: a host of the network or another address.
pub fn packet(dice: &mut Dice, ports: (u16, u16), peer: SocketAddr) -> (SocketAddr, Bytes) {
    let stranger = SocketAddr::from(([192, 0, 2, dice.even(1, 200) as u8], 9899));
    let from = if dice.one_in(3) { peer } else { stranger };
    // The tags of a case come from a good random source: no guess of 32 bits is right.
    let tag = if dice.one_in(4) { 0 } else { dice.next() as u32 };
    let number = dice.next() as u32;
    if dice.one_in(8) {
        let bytes: Vec<u8> = (0..dice.even(0, 64)).map(|_| dice.next() as u8).collect();
        return (from, bytes.into());
    }
    let reflected_tag = dice.one_in(2);
    let kind = dice.even(0, 9);
    let packet = build(ports.0, ports.1, if kind == 0 { 0 } else { tag }, |out| match kind {
        0 => init(number).write(out),
        1 => Abort { reflected_tag, causes: Causes::default() }.write(out),
        2 => CookieEcho { cookie: &[7; 90] }.write(out),
        3 => CookieAck.write(out),
        4 => write_data(DataFlags::WHOLE, number, 0, 0, b"not for you", out),
        5 => write_sack(number, 0, &[(2, 9)], out),
        6 => Shutdown { cum_tsn: Tsn(number) }.write(out),
        7 => ShutdownAck.write(out),
        8 => ShutdownComplete { reflected_tag }.write(out),
        _ => Heartbeat { info: b"anybody there?" }.write(out),
    });
    (from, packet)
}

fn init(tag: u32) -> Init<'static> {
    Init {
        initiate_tag: VerificationTag(tag | 1),
        a_rwnd: 100_000,
        outbound_streams: 10,
        inbound_streams: 10,
        initial_tsn: Tsn(tag),
        parameters: Parameters::new(&[]),
    }
}
