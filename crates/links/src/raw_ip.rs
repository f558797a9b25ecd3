//! SCTP packets directly in IP, protocol 132 (RFC 9260 §3), in batches.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;

use crate::link::{BatchLimits, CookieMark, Expected, Link, PathInfo, Sink, Transmit};
use crate::sockets::{Socket, Sockets};
use crate::strangers::Class;
use crate::strangers::receive::Strangers;
use crate::strangers::thinning::Filter;
use crate::syscalls::{MESSAGES_MAX, attach_filter};
use crate::{BindError, LinkStats};

mod filter;
mod open;
mod receive;
mod send;

pub use open::RawIpConfig;

use filter::Wanted;
use receive::Receiver;

/// Maximum size of a batch, as in every link: it bounds the delay that one path causes for others.
const BATCH_BYTES_MAX: usize = 65_300;

/// A link over raw sockets, one for each local address, or one for each family, and three more for strangers with
/// [`RawIpConfig::strangers_apart`].
///
/// The host delivers a copy of every packet of the protocol to every raw socket, so a filter in the kernel accepts only those for
/// the ports of [`Link::set_ports`]; none before that call. There are no ports below SCTP, so addresses have port 0. The kernel
/// segments only UDP, but a batch is nevertheless one system call, without allocation.
pub struct RawIp {
    sockets: Sockets,
    receiver: Receiver,
    strangers: Strangers,
    /// Ports that the filters accept.
    ports: Vec<u16>,
    tags: Option<Vec<u32>>,
    cookies: Option<CookieMark>,
}

impl RawIp {
    /// Opens and binds the sockets. They receive nothing before [`Link::set_ports`].
    ///
    /// # Errors
    ///
    /// [`BindError`] names the address and the remedy; [`BindError::RawNotPermitted`] if the program lacks `CAP_NET_RAW`.
    ///
    /// # Examples
    ///
    /// ```
    /// use links::{BindError, Link, RawIp, RawIpConfig};
    ///
    /// let config = RawIpConfig { addresses: vec!["127.0.0.1".parse()?], ..Default::default() };
    /// match RawIp::bind(&config) {
    ///     Ok(mut link) => link.set_ports(&[5000])?,
    ///     Err(BindError::RawNotPermitted { .. }) => println!("UDP encapsulation needs no privilege"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(config: &RawIpConfig) -> Result<Self, BindError> {
        let bound = open::open_all(config)?;
        Ok(RawIp {
            sockets: Sockets::new(bound, 0, config.mtu_bytes)?,
            receiver: Receiver::new(),
            strangers: Strangers::default(),
            ports: Vec::new(),
            tags: None,
            cookies: None,
        })
    }

    /// Attaches filters for the ports and tags to the sockets. A kernel with little memory for filters (net.core.optmem_max)
    /// still accepts one with a single range of ports, or at last one without tags.
    fn attach_filters(&mut self) -> Result<(), Errno> {
        for ranges_max in [filter::RANGES_MAX, 1] {
            match self.attach(self.wanted(ranges_max)) {
                Err(Errno::ENOMEM) => {}
                result => return result,
            }
        }
        self.tags = None;
        self.attach(self.wanted(1))
    }

    fn wanted(&self, ranges_max: usize) -> Wanted<'_> {
        let expected = Expected { tags: self.tags.as_deref(), init_ports: None, cookies: self.cookies };
        Wanted { ports: &self.ports, ranges_max, expected }
    }

    /// Attaches a filter to each socket, those of peers first: while the tags change, a packet of a peer may pass two filters,
    /// but never none.
    fn attach(&self, wanted: Wanted<'_>) -> Result<(), Errno> {
        let apart = self.sockets.has_strangers_apart();
        self.sockets.list.iter().try_for_each(|socket| attach_to(socket, wanted, apart))
    }
}

/// Attaches a filter for the wanted packets to a socket, with the one against a flood if the socket needs one.
fn attach_to(socket: &Socket, wanted: Wanted<'_>, apart: bool) -> Result<(), Errno> {
    let ipv6 = socket.inner.ipv6;
    let program = match apart {
        true => wanted.of_class(socket.class, ipv6).ok_or(Errno::ENOMEM)?,
        false => wanted.of_every_class(ipv6),
    };
    match socket.filter() {
        Some(Filter::Sample(sample)) => attach_filter(socket.inner.fd.as_fd(), &sample.after(program)),
        Some(Filter::Repetitions(repetitions)) => {
            repetitions.set_ports(wanted.ports)?;
            repetitions.attach_to(socket.inner.fd.as_fd())
        }
        None => attach_filter(socket.inner.fd.as_fd(), &program),
    }
}

/// Returns whether the SCTP of this host's kernel is active. It treats every SCTP packet as its own, finds no association and
/// answers with ABORT (RFC 9260 §8.4), which ends associations over raw IP.
pub fn kernel_speaks_sctp() -> bool {
    Path::new("/proc/net/sctp").exists()
}

impl Link for RawIp {
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
        BatchLimits { segments_max: MESSAGES_MAX, bytes_max: BATCH_BYTES_MAX }
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        let (receiver, strangers) = (&mut self.receiver, &mut self.strangers);
        let received =
            self.sockets.receive(sink, &mut |sockets, index, sink| match sockets.list[index].class {
                Class::Peers => receiver.receive_batch(sockets, index, sink),
                Class::Inits | Class::Cookies | Class::Strays => {
                    strangers.receive(sockets, index, sink, receive::deliver_stranger)
                }
            });
        let RawIp { sockets, ports, tags, cookies, .. } = self;
        let apart = sockets.has_strangers_apart();
        let expected = Expected { tags: tags.as_deref(), init_ports: None, cookies: *cookies };
        sockets.adapt_filters(&|socket| {
            let wanted = |ranges_max| Wanted { ports, ranges_max, expected };
            attach_to(socket, wanted(filter::RANGES_MAX), apart)
                .or_else(|_| attach_to(socket, wanted(1), apart))
        });
        received
    }

    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.send(transmit)
    }

    fn transmit_apart(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let Some(batch) = self.sockets.batch_apart(transmit)? else { return Ok(()) };
        let result = self.send_batch(&batch);
        self.sockets.lose_blocked(result)
    }

    fn has_ports(&self) -> bool {
        false
    }

    fn set_ports(&mut self, ports: &[u16]) -> io::Result<()> {
        self.ports = ports.to_vec();
        Ok(self.attach_filters()?)
    }

    fn set_expected(&mut self, expected: Expected<'_>) -> bool {
        if !self.sockets.has_strangers_apart() {
            return false;
        }
        (self.tags, self.cookies) = (expected.tags.map(<[u32]>::to_vec), expected.cookies);
        self.attach_filters().is_ok() && self.tags.is_some() == expected.tags.is_some()
    }

    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>)) {
        self.sockets.descriptors(visit);
    }

    fn stats(&self) -> LinkStats {
        self.sockets.stats()
    }
}
