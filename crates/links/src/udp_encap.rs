//! SCTP packets in UDP datagrams (RFC 6951), in batches.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use crate::bind::open_all;
use crate::blocks::RECEIVE_BYTES;
use crate::link::{BatchLimits, Expected, Link, PathInfo, Sink, Transmit};
use crate::sockets::Sockets;
use crate::strangers::Class;
use crate::strangers::receive::Strangers;
use crate::strangers::thinning::Filter;
use crate::syscalls::{attach_filter, detach_filter};
use crate::{BindError, LinkStats, UdpEncapConfig};

mod answers;
mod receive;
mod send;

const UDP_HEADER_BYTES: usize = 8;
/// Maximum size of a batch: a larger one can arrive split into its segments, because receive offload includes headers in its
/// 65,535 bytes.
const BATCH_BYTES_MAX: usize = 65_300;
/// A link over UDP sockets, one for each local address.
///
/// A batch allocates nothing in either direction, except one that is received among many small datagrams, and a bounded number of
/// receive blocks is kept.
pub struct UdpEncap {
    sockets: Sockets,
    limits: BatchLimits,
    /// Number of batches in a row that the kernel did not segment although nothing else was wrong with them.
    refused_batches: u32,
    /// Buffer in which a datagram, or a batch of more slices than a system call accepts, is joined.
    scratch: Vec<u8>,
    singles: receive::Singles,
    strangers: Strangers,
}

impl UdpEncap {
    /// Opens and binds the sockets.
    ///
    /// # Errors
    ///
    /// [`BindError`] names the address and the remedy.
    ///
    /// # Examples
    ///
    /// ```
    /// use links::{Link, UdpEncap, UdpEncapConfig};
    ///
    /// let config = UdpEncapConfig { addresses: vec!["127.0.0.1".parse()?], port: 0, ..Default::default() };
    /// let link = UdpEncap::bind(&config)?;
    /// assert_ne!(link.local_addresses()[0].port(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(config: &UdpEncapConfig) -> Result<Self, BindError> {
        let bound = open_all(config)?;
        let segments_max = if config.offload { send::segments_max() } else { 1 };
        Ok(UdpEncap {
            sockets: Sockets::new(bound, UDP_HEADER_BYTES, config.mtu_bytes)?,
            limits: BatchLimits { segments_max, bytes_max: BATCH_BYTES_MAX },
            refused_batches: 0,
            scratch: Vec::with_capacity(RECEIVE_BYTES),
            singles: receive::Singles::new(),
            strangers: Strangers::default(),
        })
    }
}

impl Link for UdpEncap {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.sockets.local_addresses()
    }

    fn path_info(&self, remote: SocketAddr) -> PathInfo {
        self.sockets.path_info(remote)
    }

    fn is_same_host(&self, address: IpAddr) -> bool {
        self.sockets.is_same_host(address)
    }

    fn batch_limits(&self) -> BatchLimits {
        self.limits
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        let (singles, strangers) = (&mut self.singles, &mut self.strangers);
        let received = self.sockets.receive(sink, &mut |sockets, index, sink| {
            let socket = &sockets.list[index];
            if socket.class != Class::Peers {
                strangers.receive(sockets, index, sink, receive::deliver_stranger)
            } else if receive::takes_many(socket) {
                singles.receive_many(sockets, index, sink)
            } else {
                receive::receive_batch(sockets, index, sink)
            }
        });
        self.sockets.adapt_filters(&|socket| match socket.filter() {
            Some(Filter::Sample(sample)) => attach_filter(socket.inner.fd.as_fd(), &sample.program()),
            Some(Filter::Repetitions(repetitions)) => repetitions.attach_to(socket.inner.fd.as_fd()),
            None => detach_filter(socket.inner.fd.as_fd()),
        });
        received
    }

    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.send(transmit)
    }

    fn transmit_apart(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let Some(batch) = self.sockets.batch_apart(transmit)? else { return Ok(()) };
        let result = self.send_from(&batch);
        self.sockets.lose_blocked(result)
    }

    fn transmit_answers(&mut self, transmits: &[Transmit<'_>]) {
        self.send_answers(transmits);
    }

    fn set_expected(&mut self, expected: Expected<'_>) -> bool {
        self.sockets.steer(expected)
    }

    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>)) {
        self.sockets.descriptors(visit);
    }

    fn stats(&self) -> LinkStats {
        self.sockets.stats()
    }
}
