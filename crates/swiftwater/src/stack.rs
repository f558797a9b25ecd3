//! Stacks: a set of sockets with everything that runs on them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use links::{Hairpin, Link, RawIp, RawIpConfig, UdpEncap, UdpEncapConfig};
use providers::{SctpDriver, SctpDriverConfig};
use sctp::AssociationConfig;
use streams::{Executive, Module, ModuleFactory, PushError};
use tpi::Errno;

use crate::address::{Address, ToAddress, UDP_PORT_DEFAULT};
use crate::association::Association;
use crate::endpoint::Endpoint;
use crate::error::{BindError, ConnectError};
use crate::listener::Listener;
use crate::options::{AssociationOptions, LinkKind, ListenerOptions, StackOptions};
use crate::shard::{Hold, Inner, Shard};
use crate::socket::{Socket, Style};
use crate::trace::TraceSink;

/// Sockets, one protocol instance and one lock, for any number of listeners and associations.
///
/// [`Listener::bind`] and [`Association::connect`] make one of their own. A program with many associations
/// shares one: ten thousand idle ones cost it no sockets and no threads.
///
/// ```
/// use swiftwater::{Stack, StackOptions};
///
/// let stack = Stack::bind(&StackOptions { udp_port: Some(0), ..StackOptions::default() })?;
/// let listener = stack.listen(7)?;
/// let client = stack.connect(&listener.local_address())?;
/// client.send(b"to myself")?;
/// let (server, _) = listener.accept()?;
/// assert_eq!(server.recv()?.unwrap().to_vec(), b"to myself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Stack {
    pub(crate) shard: Arc<Hold>,
    /// The options of the sockets, with those of what is opened through this handle.
    pub(crate) options: Arc<StackOptions>,
    /// The addresses that what is opened through this handle is restricted to; none stand for all of the sockets.
    local_addresses: Arc<[IpAddr]>,
    /// The configuration of what is opened through this handle, where it is not that of the sockets.
    config: Option<Arc<AssociationConfig>>,
    advice: Option<Arc<str>>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("udp_port", &self.udp_port()).finish_non_exhaustive()
    }
}

/// Counters of a [`Stack`].
#[derive(Clone, Debug, Default)]
pub struct StackStatistics {
    /// Number of associations that exist.
    pub associations: usize,
    /// Counters of the protocol (RFC 3873).
    pub endpoint: sctp::EndpointStatistics,
    /// Counters of the sockets.
    pub link: links::LinkStats,
}

impl Stack {
    /// Binds the sockets that `options` name: UDP port 9899 unless they name another, or raw IP.
    ///
    /// # Errors
    ///
    /// The port is in use, an address is not one of this host or is named twice, raw IP is not permitted, or the system lacks
    /// resources.
    pub fn bind(options: &StackOptions) -> Result<Stack, BindError> {
        match options.link {
            LinkKind::Udp => Stack::over(bind_udp(options)?, options),
            LinkKind::Raw => Stack::over_raw(bind_raw(options)?, options),
            LinkKind::Auto => match bind_raw(options) {
                Err(BindError::Link(error @ links::BindError::RawNotPermitted { .. })) => {
                    let stack = Stack::over(bind_udp(options)?, options)?;
                    Ok(Stack { advice: Some(format!("UDP carries SCTP: {error}").into()), ..stack })
                }
                link => Stack::over_raw(link?, options),
            },
        }
    }

    fn over_raw(link: Box<dyn Link>, options: &StackOptions) -> Result<Stack, BindError> {
        let stack = Stack::over(link, options)?;
        Ok(Stack { advice: links::kernel_speaks_sctp().then(|| KERNEL_SCTP_ADVICE.into()), ..stack })
    }

    /// Sockets for one who connects: any free UDP port unless `options` name one.
    pub(crate) fn bind_client(options: &StackOptions) -> Result<Stack, BindError> {
        let options = StackOptions { udp_port: Some(options.udp_port.unwrap_or(0)), ..options.clone() };
        Stack::bind(&options)
    }

    pub(crate) fn over(link: Box<dyn Link>, options: &StackOptions) -> Result<Stack, BindError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|e| BindError::System(io::Error::other(e)))?;
        let config = SctpDriverConfig {
            endpoint: sctp::EndpointConfig {
                checksum: options.checksum,
                prefix_associations_max: options.prefix_associations_max,
                ..sctp::EndpointConfig::default()
            },
            association: options.association.config(&options.listener, &[], options.trace.is_some()),
            local_addresses: options.local_addresses.clone(),
        };
        let mut executive = Executive::new(std::time::Instant::now());
        let epoch = options.trace.as_ref().map_or_else(Instant::now, TraceSink::epoch);
        let mut driver = SctpDriver::new(link, config, seed, epoch);
        driver.set_trace(options.trace.as_ref().map(TraceSink::taker));
        let driver = executive.add_driver("sctp", Box::new(driver));
        streams::modules::add_all(&mut executive);
        let shard = Shard::start(executive, driver, options).map_err(BindError::System)?;
        Ok(Stack {
            shard,
            options: Arc::new(options.clone()),
            local_addresses: Arc::new([]),
            config: None,
            advice: None,
        })
    }

    /// Adds a kind of module under a name, by which [`Stream::push_named`](crate::Stream::push_named) pushes it on the streams of
    /// associations. One that had the name before is replaced.
    pub fn add_module(&self, name: &str, factory: ModuleFactory) {
        // Where a fault has closed everything there are no streams.
        let _ = self.shard.enter().guarded(None, |inner| inner.executive.add_module(name, factory));
    }

    /// Makes a module by its name, to be pushed or to see whether that could be.
    ///
    /// # Errors
    ///
    /// No module has the name, or it does not take the arguments.
    pub fn make_module(&self, name: &str, arguments: &[String]) -> Result<Box<dyn Module>, PushError> {
        let made = |inner: &mut Inner| inner.executive.make_module(name, arguments);
        self.shard.enter().guarded(None, made).unwrap_or(Err(PushError::NoModule))
    }

    /// Returns the names of the modules that can be pushed by name, sorted.
    pub fn module_names(&self) -> Vec<String> {
        let names =
            |inner: &mut Inner| inner.executive.module_names().into_iter().map(str::to_owned).collect();
        self.shard.enter().guarded(None, names).unwrap_or_default()
    }

    /// Listens on an SCTP port; 0 takes a free one.
    ///
    /// # Errors
    ///
    /// The port is in use in this stack, at one of the same addresses.
    pub fn listen(&self, port: u16) -> Result<Listener, BindError> {
        self.listen_with(port, &self.options.listener)
    }

    /// Listens on an SCTP port with these options in place of [`StackOptions::listener`]; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// As [`Stack::listen`].
    pub fn listen_with(&self, port: u16, options: &ListenerOptions) -> Result<Listener, BindError> {
        Listener::on(self, port, options)
    }

    /// Binds a one-to-many endpoint to an SCTP port; 0 takes a free one.
    ///
    /// # Errors
    ///
    /// The port is in use in this stack.
    pub fn endpoint(&self, port: u16) -> Result<Endpoint, BindError> {
        Endpoint::on(self, port)
    }

    /// Sets up an association with a server; waits until it is up.
    ///
    /// # Errors
    ///
    /// No server listens there, the host does not answer, or there is no route to it.
    pub fn connect(&self, server: impl ToAddress) -> Result<Association, ConnectError> {
        Association::connect_on(self, &server.to_address()?)
    }

    /// Sets up an association from this local SCTP port; waits until it is up.
    ///
    /// ```
    /// # use swiftwater::{Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions { udp_port: Some(0), ..StackOptions::default() })?;
    /// let listener = stack.listen(7)?;
    /// let _client = stack.connect_from(700, &listener.local_address())?;
    /// let (_server, from) = listener.accept()?;
    /// assert_eq!(from.port(), 700);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Stack::connect`]; and the port already has an association with that peer.
    pub fn connect_from(&self, port: u16, server: impl ToAddress) -> Result<Association, ConnectError> {
        Association::connect_from(self, port, &server.to_address()?)
    }

    /// Returns a handle to the same sockets that sets up and accepts associations with these options.
    ///
    /// ```
    /// # use swiftwater::{AssociationOptions, Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions { udp_port: Some(0), ..StackOptions::default() })?;
    /// let listener = stack.listen(7)?;
    /// let wide = stack.with_options(&AssociationOptions { streams_out: 100, ..Default::default() });
    /// assert_eq!(wide.connect(&listener.local_address())?.streams_out(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_options(&self, options: &AssociationOptions) -> Stack {
        let options = StackOptions { association: options.clone(), ..(*self.options).clone() };
        self.with(options, Arc::clone(&self.local_addresses))
    }

    /// Returns a handle to the same sockets that uses only some of their addresses (`sctp_bindx`): its listeners and
    /// associations tell the peer these alone, send from these, and take nothing that comes to another. So several listeners may
    /// share a port. `0.0.0.0` and `::` stand for all addresses of their family, and an empty list for all addresses.
    ///
    /// ```
    /// # use swiftwater::{Stack, StackOptions};
    /// let local_addresses = vec!["127.0.0.1".parse()?, "127.0.0.2".parse()?];
    /// let stack = Stack::bind(&StackOptions { udp_port: Some(0), local_addresses, ..StackOptions::default() })?;
    /// let one = stack.with_local_addresses(&["127.0.0.1".parse()?]).listen(7)?;
    /// let other = stack.with_local_addresses(&["127.0.0.2".parse()?]).listen(7)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_local_addresses(&self, local_addresses: &[IpAddr]) -> Stack {
        self.with((*self.options).clone(), local_addresses.into())
    }

    fn with(&self, options: StackOptions, local_addresses: Arc<[IpAddr]>) -> Stack {
        let trace = options.trace.is_some();
        let config = options.association.config(&options.listener, &local_addresses, trace);
        Stack { options: Arc::new(options), local_addresses, config: Some(Arc::new(config)), ..self.clone() }
    }

    /// The configuration of the associations of a listener that is opened through this handle with these options.
    pub(crate) fn listener_config(&self, options: &ListenerOptions) -> AssociationConfig {
        let trace = self.options.trace.is_some();
        self.options.association.config(options, &self.local_addresses, trace)
    }

    /// Opens a stream that has the options of this handle.
    pub(crate) fn open(&self, style: Style) -> Result<Socket, Errno> {
        match &self.config {
            Some(config) => self.open_with(style, Arc::clone(config)),
            None => Socket::open(&self.shard, style),
        }
    }

    /// Opens a stream whose associations have this configuration.
    pub(crate) fn open_with(&self, style: Style, config: Arc<AssociationConfig>) -> Result<Socket, Errno> {
        let socket = Socket::open(&self.shard, style)?;
        let stream = socket.stream;
        self.with_driver(|driver| driver.set_association_config(stream, config));
        Ok(socket)
    }

    /// Returns the options that the sockets were bound with, with the default options of listeners and associations that are opened
    /// through this handle.
    pub fn options(&self) -> &StackOptions {
        &self.options
    }

    /// Returns what carries SCTP: never [`LinkKind::Auto`].
    pub fn link(&self) -> LinkKind {
        match self.with_driver(|driver| driver.link_has_ports()) {
            Some(false) => LinkKind::Raw,
            _ => LinkKind::Udp,
        }
    }

    /// Returns a warning about the link, if there is one: that raw IP was not permitted, or that the kernel's own SCTP answers
    /// its packets.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// Returns the local UDP port; 0 with raw IP.
    pub fn udp_port(&self) -> u16 {
        self.with_driver(|driver| driver.link_addresses().first().map_or(0, |a| a.port())).unwrap_or_default()
    }

    /// Returns the counters of the stack.
    pub fn statistics(&self) -> StackStatistics {
        self.with_driver(|driver| StackStatistics {
            associations: driver.association_count(),
            endpoint: driver.endpoint_statistics(),
            link: driver.link_statistics(),
        })
        .unwrap_or_default()
    }

    /// Returns whether one of the sockets sends to the family of one of these hosts.
    pub(crate) fn reaches_any(&self, hosts: &[IpAddr]) -> bool {
        let bound = self.with_driver(|driver| driver.link_addresses()).unwrap_or_default();
        // The socket for all IPv6 addresses carries IPv4 as well.
        let both = |ip: IpAddr| ip == Ipv6Addr::UNSPECIFIED;
        let reaches = |host: &IpAddr| {
            bound.iter().any(|a| both(a.ip()) || a.is_ipv6() == host.to_canonical().is_ipv6())
        };
        hosts.iter().any(reaches)
    }

    pub(crate) fn with_driver<R>(&self, f: impl FnOnce(&mut SctpDriver) -> R) -> Option<R> {
        with_driver(&self.shard, f)
    }

    /// The first address of this stack with an SCTP port, as a peer on this host would name it.
    pub(crate) fn addr_of(&self, port: u16) -> SocketAddr {
        let first = self.address_of(port).hosts.first().copied();
        SocketAddr::new(first.unwrap_or(Ipv4Addr::LOCALHOST.into()), port)
    }

    /// The address of an SCTP port of this stack, as a peer on this host would name it.
    pub(crate) fn address_of(&self, port: u16) -> Address {
        let bound = self.with_driver(|driver| driver.link_addresses()).unwrap_or_default();
        let udp_port = bound.first().map(|a| a.port()).filter(|port| *port != 0);
        let hosts = bound
            .iter()
            .map(|a| match a.ip() {
                ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                ip => ip,
            })
            .collect();
        Address { hosts, port, udp_port }
    }
}

/// Why associations over raw IP break where the kernel has an SCTP of its own, and what to do.
const KERNEL_SCTP_ADVICE: &str = "the kernel's own SCTP is loaded and answers packets of raw IP with ABORT: unload it \
    (`rmmod sctp`) and keep it from being loaded, or let UDP carry SCTP";

fn bind_udp(options: &StackOptions) -> Result<Box<dyn Link>, BindError> {
    let link = UdpEncap::bind(&UdpEncapConfig {
        addresses: options.local_addresses.clone(),
        port: options.udp_port.unwrap_or(UDP_PORT_DEFAULT),
        mtu_bytes: options.mtu_bytes,
        bind_interfaces: options.bind_interfaces,
        strangers_apart: true,
        ..UdpEncapConfig::default()
    });
    Ok(complete(link.map_err(BindError::Link)?, options))
}

fn bind_raw(options: &StackOptions) -> Result<Box<dyn Link>, BindError> {
    let link = RawIp::bind(&RawIpConfig {
        addresses: options.local_addresses.clone(),
        mtu_bytes: options.mtu_bytes,
        bind_interfaces: options.bind_interfaces,
        strangers_apart: true,
        ..RawIpConfig::default()
    });
    Ok(complete(link.map_err(BindError::Link)?, options))
}

/// Puts before a link what the options ask for.
fn complete(link: impl Link + 'static, options: &StackOptions) -> Box<dyn Link> {
    match options.hairpin && !options.bind_interfaces {
        true => Box::new(Hairpin::new(link)),
        false => Box::new(link),
    }
}

/// `None`: a fault has closed everything.
pub(crate) fn with_driver<R>(shard: &Shard, f: impl FnOnce(&mut SctpDriver) -> R) -> Option<R> {
    let mut inner = shard.enter();
    let driver = inner.driver;
    inner.guarded(None, |inner| inner.executive.with_driver(driver, |driver, _| f(driver))).flatten()
}
