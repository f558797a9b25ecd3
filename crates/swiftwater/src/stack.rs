//! Stacks: a set of sockets with everything that runs on them.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use links::{Link, UdpEncap, UdpEncapConfig};
use providers::{SctpDriver, SctpDriverConfig};
use streams::Executive;

use crate::address::{Address, ToAddress, UDP_PORT_DEFAULT};
use crate::association::Association;
use crate::endpoint::Endpoint;
use crate::error::{BindError, ConnectError};
use crate::listener::Listener;
use crate::options::Options;
use crate::shard::{Hold, Shard};
use crate::trace::TraceSink;

/// Sockets, one protocol instance and one lock, for any number of listeners and associations.
///
/// [`Listener::bind`] and [`Association::connect`] make one of their own. A program with many associations
/// shares one: ten thousand idle ones cost it no sockets and no threads.
///
/// ```
/// use swiftwater::{Options, Stack};
///
/// let stack = Stack::bind(&Options { udp_port: Some(0), ..Options::default() })?;
/// let listener = stack.listen(7)?;
/// let client = stack.connect(&listener.local_address())?;
/// client.send(b"to myself")?;
/// assert_eq!(listener.accept()?.recv()?.unwrap().to_vec(), b"to myself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Stack {
    pub(crate) shard: Arc<Hold>,
    pub(crate) options: Arc<Options>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("udp_port", &self.udp_port()).finish_non_exhaustive()
    }
}

/// Counters of a [`Stack`].
#[derive(Clone, Debug, Default)]
pub struct StackStatistics {
    /// Associations that exist.
    pub associations: usize,
    /// What the protocol has counted.
    pub endpoint: sctp::EndpointStatistics,
    /// What the UDP sockets have counted.
    pub link: links::LinkStats,
}

impl Stack {
    /// Binds the UDP sockets that `options` name: port 9899 unless they name another.
    ///
    /// # Errors
    ///
    /// The port is taken, the address is not ours, or the system has no more to give.
    pub fn bind(options: &Options) -> Result<Stack, BindError> {
        let link = UdpEncap::bind(&UdpEncapConfig {
            addresses: options.local_addresses.clone(),
            port: options.udp_port.unwrap_or(UDP_PORT_DEFAULT),
            mtu_bytes: options.mtu_bytes,
            ..UdpEncapConfig::default()
        })
        .map_err(BindError::Link)?;
        Stack::over(Box::new(link), options)
    }

    /// Sockets for one who connects: any free UDP port unless `options` name one.
    pub(crate) fn bind_client(options: &Options) -> Result<Stack, BindError> {
        let options = Options { udp_port: Some(options.udp_port.unwrap_or(0)), ..options.clone() };
        Stack::bind(&options)
    }

    pub(crate) fn over(link: Box<dyn Link>, options: &Options) -> Result<Stack, BindError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|e| BindError::System(io::Error::other(e)))?;
        let config = SctpDriverConfig {
            endpoint: sctp::EndpointConfig { checksum: options.checksum, ..sctp::EndpointConfig::default() },
            association: options.association_config(),
            local_addresses: options.local_addresses.clone(),
        };
        let mut executive = Executive::new();
        let epoch = options.trace.as_ref().map_or_else(Instant::now, TraceSink::epoch);
        let mut driver = SctpDriver::new(link, config, seed, epoch);
        driver.set_trace(options.trace.as_ref().map(TraceSink::taker));
        let driver = executive.add_driver("sctp", Box::new(driver));
        let shard = Shard::start(executive, driver, options).map_err(BindError::System)?;
        Ok(Stack { shard, options: Arc::new(options.clone()) })
    }

    /// Accepts associations on an SCTP port; 0 takes a free one.
    ///
    /// # Errors
    ///
    /// The port is in use in this stack.
    pub fn listen(&self, port: u16) -> Result<Listener, BindError> {
        Listener::on(self, port)
    }

    /// A one-to-many endpoint on an SCTP port; 0 takes a free one.
    ///
    /// # Errors
    ///
    /// The port is in use in this stack.
    pub fn endpoint(&self, port: u16) -> Result<Endpoint, BindError> {
        Endpoint::on(self, port)
    }

    /// Sets up an association with a server.
    ///
    /// # Errors
    ///
    /// Nobody listens there, nobody answers, or there is no way to it.
    pub fn connect(&self, server: impl ToAddress) -> Result<Association, ConnectError> {
        Association::connect_on(self, &server.to_address()?)
    }

    /// The local UDP port.
    pub fn udp_port(&self) -> u16 {
        self.with_driver(|driver| driver.link_addresses().first().map_or(0, |a| a.port())).unwrap_or_default()
    }

    /// Counters.
    pub fn statistics(&self) -> StackStatistics {
        self.with_driver(|driver| StackStatistics {
            associations: driver.association_count(),
            endpoint: driver.endpoint_statistics(),
            link: driver.link_statistics(),
        })
        .unwrap_or_default()
    }

    pub(crate) fn with_driver<R>(&self, f: impl FnOnce(&mut SctpDriver) -> R) -> Option<R> {
        with_driver(&self.shard, f)
    }

    /// The address of an SCTP port of this stack, as a peer on this host would name it.
    pub(crate) fn address_of(&self, port: u16) -> Address {
        let bound = self.with_driver(|driver| driver.link_addresses()).unwrap_or_default();
        let udp_port = bound.first().map(|a| a.port());
        let hosts = bound
            .iter()
            .map(|a| match a.ip() {
                ip if ip.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
                ip => ip,
            })
            .collect();
        Address { hosts, port, udp_port }
    }
}

/// `None`: a fault has closed everything.
pub(crate) fn with_driver<R>(shard: &Shard, f: impl FnOnce(&mut SctpDriver) -> R) -> Option<R> {
    let mut inner = shard.enter();
    let driver = inner.driver;
    inner.guarded(None, |inner| inner.executive.with_driver(driver, |driver, _| f(driver))).flatten()
}
