//! Peers in the states that scripts begin with, their chunks by name, and queries of the endpoint.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lab::packets::{build, each_chunk};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer, Say};
use sctp::congestion::Algorithm;
use sctp::{
    AssociationConfig, CloseReason, Event, PathChange, PathStatistics, SendInfo, Statistics, Unreachable,
};
use sctp_wire::cause::{Cause, Causes};
use sctp_wire::chunk::{
    Abort, Chunk, CookieAck, CookieEcho, DataFlags, Error, Heartbeat, HeartbeatAck, Shutdown, ShutdownAck,
    ShutdownComplete,
};
use sctp_wire::parameter::{Ipv4, Parameters};

use crate::stage::Stage;

/// The peer's second address.
pub(crate) const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 9));
/// The peer's third address.
pub(crate) const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 9));

/// The first fragment of a message.
pub(crate) const FIRST: DataFlags = DataFlags { ending: false, ..DataFlags::WHOLE };
/// A fragment from the middle of a message.
pub(crate) const MIDDLE: DataFlags = DataFlags { beginning: false, ending: false, ..DataFlags::WHOLE };
/// The last fragment of a message.
pub(crate) const LAST: DataFlags = DataFlags { beginning: false, ..DataFlags::WHOLE };
/// A whole message that bypasses the order of its stream.
pub(crate) const UNORDERED: DataFlags = DataFlags { unordered: true, ..DataFlags::WHOLE };

/// Chunks by name.
pub(crate) trait Chunks: Sized {
    /// Adds a SHUTDOWN that acknowledges the endpoint's DATA up to chunk `number`.
    fn shutdown(self, number: i32) -> Self;
    /// Adds a SHUTDOWN ACK.
    fn shutdown_ack(self) -> Self;
    /// Adds a SHUTDOWN COMPLETE.
    fn shutdown_complete(self, reflected_tag: bool) -> Self;
    /// Adds an ABORT without causes.
    fn abort(self, reflected_tag: bool) -> Self;
    /// Adds an ERROR of one cause.
    fn error(self, cause: &Cause<'_>) -> Self;
    /// Adds a HEARTBEAT.
    fn heartbeat(self, info: &[u8]) -> Self;
    /// Adds a HEARTBEAT ACK.
    fn heartbeat_ack(self, info: &[u8]) -> Self;
    /// Adds a COOKIE ECHO.
    fn cookie_echo(self, cookie: &[u8]) -> Self;
    /// Adds a COOKIE ACK.
    fn cookie_ack(self) -> Self;
    /// Adds the peer's INIT.
    fn init(self) -> Self;
}

impl Chunks for Say<'_> {
    fn shutdown(self, number: i32) -> Self {
        self.chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(number) }.write(out))
    }

    fn shutdown_ack(self) -> Self {
        self.chunk(|_, out| ShutdownAck.write(out))
    }

    fn shutdown_complete(self, reflected_tag: bool) -> Self {
        self.chunk(|_, out| ShutdownComplete { reflected_tag }.write(out))
    }

    fn abort(self, reflected_tag: bool) -> Self {
        self.chunk(|_, out| Abort { reflected_tag, causes: Causes::default() }.write(out))
    }

    fn error(self, cause: &Cause<'_>) -> Self {
        let mut causes = Vec::new();
        cause.write(&mut causes);
        self.chunk(|_, out| Error { causes: Causes::new(&causes) }.write(out))
    }

    fn heartbeat(self, info: &[u8]) -> Self {
        self.chunk(|_, out| Heartbeat { info }.write(out))
    }

    fn heartbeat_ack(self, info: &[u8]) -> Self {
        self.chunk(|_, out| HeartbeatAck { info }.write(out))
    }

    fn cookie_echo(self, cookie: &[u8]) -> Self {
        self.chunk(|_, out| CookieEcho { cookie }.write(out))
    }

    fn cookie_ack(self) -> Self {
        self.chunk(|_, out| CookieAck.write(out))
    }

    fn init(self) -> Self {
        self.chunk(|p, out| p.init().write(out))
    }
}

/// Returns the settings of most scripts: the congestion control and the failover of RFC 9260, no heartbeats, no probes
/// for the end of a burst.
pub(crate) fn quiet() -> AssociationConfig {
    AssociationConfig {
        congestion: Algorithm::NewReno,
        heartbeat_interval: None,
        tail_loss_probes: false,
        ecn: false,
        receive_buffer_tuned_bytes: 0,
        ..patient()
    }
}

/// Returns settings whose failover is that of RFC 9260 alone.
pub(crate) fn patient() -> AssociationConfig {
    AssociationConfig {
        potentially_failed_retries_max: u32::MAX,
        early_failover: false,
        ..AssociationConfig::default()
    }
}

/// Returns a peer without heartbeats.
pub(crate) fn established(stage: &Stage) -> Peer {
    stage.established_with(quiet())
}

/// Returns a peer whose first packets, which are acknowledged at once, are over: its next chunk is number 8.
pub(crate) fn settled(stage: &Stage) -> Peer {
    let mut peer = established(stage);
    for n in 0..8 {
        peer.sends().data(n).go();
        peer.expects(&format!("SACK {n}"));
    }
    peer
}

/// Returns a peer to which the endpoint has sent `count` messages of 100 bytes, each in a packet of its own.
pub(crate) fn outstanding(stage: &Stage, count: u8) -> Peer {
    let mut peer = established(stage);
    for n in 0..count {
        writes(&mut peer, 100);
        peer.expects(&format!("DATA {n}"));
    }
    peer
}

/// Returns a peer with several addresses, all of them verified. The first is `peer.address`.
pub(crate) fn multihomed(stage: &Stage, config: AssociationConfig, others: &[IpAddr]) -> Peer {
    multihomed_with_cookie(stage, config, others).0
}

/// Returns the peer of [`multihomed`], and the cookie that it has echoed.
pub(crate) fn multihomed_with_cookie(
    stage: &Stage,
    config: AssociationConfig,
    others: &[IpAddr],
) -> (Peer, Vec<u8>) {
    let mut parameters = Vec::new();
    for other in others {
        let IpAddr::V4(address) = *other else { continue };
        Ipv4 { address }.write(&mut parameters);
    }
    // All are verified at once, so that the scripts need not wait for it.
    let config = AssociationConfig { heartbeat_burst_max: u32::MAX, ..config };
    let mut peer = Peer::new(1, config);
    peer.sends()
        .tag(0)
        .chunk(|p, out| {
            let mut init = p.init();
            init.parameters = Parameters::new(&parameters);
            init.write(out);
        })
        .go();
    let cookie = peer.takes_init_ack();
    peer.sends().cookie_echo(&cookie).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer.waits(Duration::ZERO);
    while let Some((to, packet)) = peer.hears_on_maybe() {
        answers_heartbeat(&mut peer, to, &packet);
        if statistics(&peer).paths.iter().all(|p| p.active) {
            break;
        }
        // One address is verified after the other.
        let next = peer.endpoint.poll_timeout().map_or(Duration::ZERO, |at| at.saturating_since(peer.now));
        peer.waits(next);
    }
    ignores(&mut peer);
    assert!(statistics(&peer).paths.iter().all(|p| p.active), "every address is verified");
    (stage.play(peer), cookie)
}

/// Answers the heartbeat in a packet that went to `to`, from that address. Returns false if there is none.
pub(crate) fn answers_heartbeat(peer: &mut Peer, to: SocketAddr, packet: &[u8]) -> bool {
    let Some(info) = heartbeat_info(packet) else { return false };
    from(peer, to.ip(), |peer| peer.sends().heartbeat_ack(&info).go());
    true
}

/// Returns the contents of the HEARTBEAT of a packet, if there is one.
pub(crate) fn heartbeat_info(packet: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    each_chunk(packet, |chunk| {
        if let Chunk::Heartbeat(heartbeat) = chunk {
            found = Some(heartbeat.info.to_vec());
        }
    });
    found
}

/// The peer acts from another of its addresses.
pub(crate) fn from<T>(peer: &mut Peer, address: IpAddr, does: impl FnOnce(&mut Peer) -> T) -> T {
    let home = peer.address;
    peer.address.set_ip(address);
    let result = does(peer);
    peer.address = home;
    result
}

/// The endpoint's application writes a message of that many bytes on stream 0.
pub(crate) fn writes(peer: &mut Peer, bytes: usize) {
    peer.app_sends(SendInfo::default(), vec![b'm'; bytes]);
}

/// The application writes messages before anything can leave.
pub(crate) fn writes_together(peer: &mut Peer, count: usize, bytes: usize) {
    for _ in 0..count {
        let message = [vec![0; bytes].into()];
        peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), bytes, message).expect("it is taken");
    }
    peer.collect_output();
}

/// Returns a peer that has acknowledged data, without recording it, until the congestion window has that many packets, and the
/// number of the next chunk. Nothing is outstanding.
pub(crate) fn grown(stage: &Stage, packets: usize) -> (Peer, i32) {
    let mut peer = Peer::established_with(1, quiet());
    while path(&peer, peer.address.ip()).cwnd_bytes < packets * 1472 {
        writes_together(&mut peer, 2 * packets, 1444);
        while statistics(&peer).send_buffered_bytes > 0 {
            peer.waits(Duration::from_millis(1));
            let sent = statistics(&peer).data_chunks_sent as i32;
            peer.sends().sack(sent - 1, &[]).go();
            ignores(&mut peer);
        }
    }
    let next = statistics(&peer).data_chunks_sent as i32;
    (stage.play(peer), next)
}

/// The endpoint sends a message of one byte in chunk `number`, which the peer acknowledges.
pub(crate) fn take_off(peer: &mut Peer, number: i32) {
    writes(peer, 1);
    peer.expects(&format!("DATA {number}"));
    peer.sends().sack(number, &[]).go();
}

/// The network reports that packets to an address of the peer must be shorter.
pub(crate) fn narrows(peer: &mut Peer, address: IpAddr, mtu_bytes: usize) {
    let to = SocketAddr::new(address, peer.address.port());
    let quoted = build(ENDPOINT_PORT, PEER_PORT, peer.tag, |_| {});
    let why = Unreachable::TooBig { mtu_bytes };
    peer.endpoint.handle_unreachable(peer.now, to, why, &quoted, &mut peer.app);
}

/// The peer discards the packets of the endpoint.
pub(crate) fn ignores(peer: &mut Peer) {
    while peer.hears_maybe().is_some() {}
}

/// Returns the endpoint's statistics of the association, which is up.
pub(crate) fn statistics(peer: &Peer) -> Statistics {
    peer.endpoint.statistics(peer.id).expect("the association is there")
}

/// Returns the endpoint's statistics of its path to one of the peer's addresses.
pub(crate) fn path(peer: &Peer, address: IpAddr) -> PathStatistics {
    statistics(peer).paths.into_iter().find(|p| p.remote.ip() == address).expect("a path to it")
}

/// Keeps the peer silent until T3 has expired that many times in all; the endpoint's packets meanwhile are lost. Returns false if
/// the association ends first.
pub(crate) fn silent_until_timeouts(peer: &mut Peer, count: u64) -> bool {
    for _ in 0..10_000 {
        match peer.endpoint.statistics(peer.id) {
            None => return false,
            Some(statistics) if statistics.timeouts >= count => return true,
            Some(_) => {}
        }
        ignores(peer);
        let next = peer.endpoint.poll_timeout().expect("a timer runs");
        peer.waits(next.saturating_since(peer.now));
    }
    panic!("T3 expires");
}

/// Returns whether the association has ended, and why.
pub(crate) fn ended(peer: &Peer) -> Option<CloseReason> {
    peer.app.events.iter().find_map(|e| match &e.event {
        Event::Closed(reason) if e.id == peer.id => Some(reason.clone()),
        _ => None,
    })
}

/// Returns how often the application was told that a path became usable, or unusable.
pub(crate) fn path_changes(peer: &Peer, address: IpAddr, active: bool) -> usize {
    let changed = |e: &Event| {
        matches!(e, Event::PathChanged { remote, change, .. }
            if remote.ip() == address && (*change != PathChange::Unreachable) == active)
    };
    peer.app.events.iter().filter(|e| changed(&e.event)).count()
}
