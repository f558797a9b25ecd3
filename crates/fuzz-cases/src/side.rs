//! One endpoint and its program, and what must hold for them at every moment.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use sctp::config::{MESSAGE_OVERHEAD_BYTES, PEER_ADDRESSES_MAX};
use sctp::{
    Admission, AssociationConfig, AssociationId, BatchLimits, Endpoint, EndpointConfig, SendInfo, Time,
};

use crate::app::{App, Record};

/// The largest chunk there is.
const CHUNK_BYTES_MAX: usize = 65_535;
/// Timer entries that associations leave behind, and may have at most.
const TIMER_ENTRIES_MAX: usize = 64;
const TIMER_ENTRIES_MAX_EACH: usize = 8;

/// An endpoint with its program.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) app: App,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) config: Arc<AssociationConfig>,
    number: u8,
    initial_tsn: Option<u32>,
    boots: u8,
    records: u64,
}

impl Side {
    pub(crate) fn new(
        number: u8,
        addresses: Vec<SocketAddr>,
        config: AssociationConfig,
        app: App,
        initial_tsn: Option<u32>,
    ) -> Self {
        let config = Arc::new(config);
        let endpoint = Endpoint::new(EndpointConfig::default(), [number; 32], limits());
        let mut side = Side {
            endpoint,
            app,
            addresses,
            config,
            number,
            initial_tsn,
            boots: 0,
            records: u64::from(number),
        };
        side.prepare();
        side
    }

    fn prepare(&mut self) {
        let addresses: Vec<IpAddr> = self.addresses.iter().map(SocketAddr::ip).collect();
        self.endpoint.set_local_addresses(addresses);
        if let Some(tsn) = self.initial_tsn {
            self.endpoint.set_initial_tsn(tsn);
        }
    }

    /// A crash: the endpoint begins anew, and knows nothing.
    pub(crate) fn reboot(&mut self) {
        self.boots = self.boots.wrapping_add(1);
        let mut seed = [self.number; 32];
        seed[0] = self.boots;
        self.endpoint = Endpoint::new(EndpointConfig::default(), seed, limits());
        self.app.crash();
        self.prepare();
    }

    pub(crate) fn listen(&mut self, port: u16) {
        self.endpoint.listen(port, (*self.config).clone());
    }

    pub(crate) fn connect(&mut self, now: Time, ports: (u16, u16), remotes: &[SocketAddr]) {
        let config = Arc::clone(&self.config);
        if let Ok(id) = self.endpoint.connect(now, ports.0, ports.1, remotes, config, &self.app) {
            self.app.begin(id);
        }
    }

    /// Sends a record or the next part of one, of at most `bytes`, if there is room.
    pub(crate) fn send(&mut self, id: AssociationId, info: SendInfo, bytes: usize) {
        self.records += 2;
        // Until the peer has said how many streams it takes, only the first is sure to exist.
        let up = self.app.open_log(id).is_some_and(|log| self.app.logs[log].up);
        let info = SendInfo { stream: if up { info.stream } else { 0 }, ..info };
        let length = if info.more { bytes * 3 } else { bytes };
        let part = self.app.next_part(id, (info, Record::new(self.records, length.max(1))));
        let (first, record, before) = part;
        let bytes = bytes.clamp(1, record.len() - before);
        let info = SendInfo { more: before + bytes < record.len(), ..first };
        match self.endpoint.admit(id, &info, bytes) {
            Admission::Idle | Admission::Room => {}
            Admission::Full | Admission::Fail(_) => return,
        }
        let block = Bytes::from(record.to_vec()).slice(before..before + bytes);
        let sent = self.endpoint.send(id, &info, bytes, [block]);
        assert_eq!(sent, Ok(()), "what was admitted is taken");
        self.app.sent(id, part, bytes);
    }

    /// Reads up to that many messages of every association, or half of one.
    pub(crate) fn read(&mut self, messages: usize) {
        for log in self.app.logs.iter_mut().filter(|log| log.closed.is_none()) {
            let half = log.unread.front().map_or(0, |bytes| bytes / 2);
            if messages == 0 && half > 0 {
                self.endpoint.consumed(log.id, half, false);
                log.unread[0] -= half;
                log.unread_bytes -= half;
            }
            for _ in 0..messages {
                let Some(bytes) = log.unread.pop_front() else { break };
                log.unread_bytes -= bytes;
                self.endpoint.consumed(log.id, bytes, true);
            }
        }
    }

    /// The address that a packet leaves from: the one that is wanted, or the one in the net of its receiver.
    pub(crate) fn source(&self, wanted: Option<IpAddr>, to: SocketAddr) -> SocketAddr {
        let net = |address: &SocketAddr| match address.ip() {
            IpAddr::V4(v4) => v4.octets()[1],
            IpAddr::V6(_) => 0,
        };
        let mut addresses = self.addresses.iter();
        let from = match wanted {
            Some(ip) => addresses.find(|a| a.ip() == ip),
            None => addresses.find(|a| net(a) == net(&to)),
        };
        *from.unwrap_or(&self.addresses[0])
    }

    /// Bytes of all send buffers.
    pub(crate) fn send_buffered_bytes(&self) -> usize {
        let buffered = |id| self.endpoint.statistics(id).map_or(0, |s| s.send_buffered_bytes as usize);
        self.app.open().into_iter().map(buffered).sum()
    }

    /// Counters equal a recount, and memory is bounded.
    pub(crate) fn check(&self) {
        self.endpoint.assert_counters();
        let open = self.app.logs.iter().filter(|log| log.closed.is_none());
        let (config, mut count) = (&self.config, 0);
        for log in open {
            count += 1;
            let statistics = self.endpoint.statistics(log.id).expect("what has not ended is there");
            let held = statistics.receive_buffered_bytes as usize;
            let held_max = 2 * config.receive_buffer_bytes + CHUNK_BYTES_MAX + MESSAGE_OVERHEAD_BYTES;
            assert!(held <= held_max, "{held} bytes are held, {held_max} may be");
            assert!(log.unread_bytes <= held, "{} bytes are not read, {held} counted", log.unread_bytes);
            let buffered = statistics.send_buffered_bytes as usize;
            let buffer_bytes = config.send_buffer_bytes.max(config.send_buffer_tuned_bytes);
            let buffered_max = buffer_bytes + config.message_bytes_max + MESSAGE_OVERHEAD_BYTES;
            assert!(buffered <= buffered_max, "{buffered} bytes are to be sent, {buffered_max} may be");
            assert!(statistics.outstanding_bytes <= statistics.send_buffered_bytes);
            assert!(statistics.paths.len() <= 2 * PEER_ADDRESSES_MAX, "{} paths", statistics.paths.len());
        }
        assert_eq!(count, self.endpoint.association_count(), "every association has said that it ended");
        let entries_max = TIMER_ENTRIES_MAX + TIMER_ENTRIES_MAX_EACH * self.app.logs.len();
        assert!(self.endpoint.timer_entries() <= entries_max, "{} timers", self.endpoint.timer_entries());
    }
}

fn limits() -> BatchLimits {
    BatchLimits { segments_max: 16, bytes_max: 65_000 }
}
