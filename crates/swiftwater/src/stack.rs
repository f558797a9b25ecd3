//! Stacks: a set of sockets with everything that runs on them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use links::{AddressCheck, Hairpin, Link, RawIp, RawIpConfig, UdpEncap, UdpEncapConfig};
use providers::{SctpDriver, SctpDriverConfig};
use sctp::AssociationConfig;
use streams::{Executive, Module, ModuleFactory, PushError};
use tpi::{Errno, Primitive, TError};

use crate::address::{Address, UDP_PORT_DEFAULT};
use crate::error::BindError;
use crate::options::{AssociationOptions, LinkKind, ListenerOptions, StackOptions};
use crate::shard::{Inner, Shard, ShardOwner};
use crate::socket::{Socket, Style};
use crate::trace::TraceSink;
use crate::{LinkBindError, LinkStatistics};

/// Sockets, one protocol instance and one lock, for any number of listeners and associations.
///
/// [`Listener::bind`](crate::Listener::bind) and [`Association::connect`](crate::Association::connect) create one of their own. A
/// program with many associations shares one: ten thousand idle associations need no further sockets and no further threads.
///
/// ```
/// use swiftwater::{Stack, StackOptions};
///
/// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
/// let listener = stack.listen(7)?;
/// let client = stack.connect(&listener.address())?;
/// client.send(b"to myself")?;
/// let (server, _) = listener.accept()?;
/// assert_eq!(server.recv()?.unwrap().to_vec(), b"to myself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Stack {
    pub(crate) shard: Arc<ShardOwner>,
    /// The options of the sockets, with the defaults of the listeners and associations that this handle opens.
    pub(crate) options: Arc<StackOptions>,
    /// The addresses to which the listeners and associations that this handle opens are restricted; empty for all
    /// addresses of the sockets.
    local_addresses: Arc<[IpAddr]>,
    /// The check of addresses on the host of the sockets.
    address_check: AddressCheck,
    /// The configuration of the associations that this handle opens, if it differs from that of the sockets.
    config: Option<Arc<AssociationConfig>>,
    warning: Option<Arc<str>>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("udp_port", &self.udp_port()).finish_non_exhaustive()
    }
}

/// Counters of a [`Stack`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StackStatistics {
    /// Number of associations that exist.
    pub associations: usize,
    /// Counters of the protocol (RFC 3873).
    pub endpoint: sctp::EndpointStatistics,
    /// Counters of the sockets.
    pub link: LinkStatistics,
}

impl Stack {
    /// Binds sockets as `options` specify: by default UDP port 9899 of all addresses of both families.
    ///
    /// # Errors
    ///
    /// The port is in use, an address is not local to this host or is listed twice, raw IP is not permitted, or the
    /// system lacks resources.
    pub fn bind(options: &StackOptions) -> Result<Stack, BindError> {
        match options.link {
            LinkKind::Udp => Stack::over(bind_udp(options)?, options),
            LinkKind::Raw => Stack::over_raw(bind_raw(options)?, options),
            LinkKind::Auto => match bind_raw(options) {
                Err(BindError::Link(error @ LinkBindError::RawNotPermitted { .. })) => {
                    let stack = Stack::over(bind_udp(options)?, options)?;
                    Ok(Stack { warning: Some(format!("UDP carries SCTP: {error}").into()), ..stack })
                }
                link => Stack::over_raw(link?, options),
            },
        }
    }

    fn over_raw(link: Box<dyn Link>, options: &StackOptions) -> Result<Stack, BindError> {
        let stack = Stack::over(link, options)?;
        Ok(Stack { warning: links::kernel_speaks_sctp().then(|| KERNEL_SCTP_WARNING.into()), ..stack })
    }

    /// Binds sockets for a client: any free UDP port unless `options` specify one.
    pub(crate) fn bind_client(options: &StackOptions) -> Result<Stack, BindError> {
        let options = StackOptions { udp_port: Some(options.udp_port.unwrap_or(0)), ..options.clone() };
        Stack::bind(&options)
    }

    pub(crate) fn over(link: Box<dyn Link>, options: &StackOptions) -> Result<Stack, BindError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| BindError::System {
            what: "read random numbers",
            error: io::Error::other(error),
        })?;
        let bound = options.socket_addresses();
        // The peer gets no list of addresses from an endpoint that is bound to all of a family.
        let local_addresses = if bound.iter().any(IpAddr::is_unspecified) { bound } else { &[] };
        let config = SctpDriverConfig {
            endpoint: sctp::EndpointConfig {
                checksum: options.checksum,
                prefix_associations_max: options.prefix_associations_max,
                ..sctp::EndpointConfig::default()
            },
            association: options.association.config(
                &options.listener,
                local_addresses,
                options.trace.is_some(),
            ),
            local_addresses: bound.iter().copied().filter(|ip| !ip.is_unspecified()).collect(),
        };
        let mut executive = Executive::new(Instant::now());
        let epoch = options.trace.as_ref().map_or_else(Instant::now, TraceSink::epoch);
        let mut driver = SctpDriver::new(link, config, seed, epoch);
        driver.set_trace(options.trace.as_ref().map(TraceSink::taker));
        let driver = executive.add_driver("sctp", Box::new(driver));
        streams::modules::add_all(&mut executive);
        let shard = Shard::start(executive, driver, options).map_err(|error| BindError::System {
            what: "start the stack's thread and its descriptors",
            error,
        })?;
        Ok(Stack {
            shard,
            options: Arc::new(options.clone()),
            local_addresses: local_addresses.into(),
            address_check: AddressCheck::new(),
            config: None,
            warning: None,
        })
    }

    /// Adds a kind of module under a name, for [`Stream::push_named`](crate::Stream::push_named). Replaces a module
    /// that had the name before.
    pub fn add_module(&self, name: &str, factory: ModuleFactory) {
        // After a fault has closed the stack there are no streams.
        let _ = self
            .shard
            .enter()
            .guarded(None, |inner| inner.executive.with_messages_queued().add_module(name, factory));
    }

    /// Creates a module by its name, for pushing or to check that name and arguments are valid.
    ///
    /// # Errors
    ///
    /// No module has the name, or the module rejects the arguments.
    pub fn make_module(&self, name: &str, arguments: &[String]) -> Result<Box<dyn Module>, PushError> {
        let made = |inner: &mut Inner| inner.executive.make_module(name, arguments);
        self.shard.enter().guarded(None, made).unwrap_or(Err(PushError::NoModule))
    }

    /// Returns the sorted names of the modules that can be pushed by name.
    pub fn module_names(&self) -> Vec<String> {
        let names =
            |inner: &mut Inner| inner.executive.module_names().into_iter().map(str::to_owned).collect();
        self.shard.enter().guarded(None, names).unwrap_or_default()
    }

    /// Returns a handle to the same sockets that sets up and accepts associations with these options.
    ///
    /// ```
    /// # use swiftwater::{AssociationOptions, Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// let listener = stack.listen(7)?;
    /// let wide = stack.with_options(&AssociationOptions::default().with_streams_out(100));
    /// assert_eq!(wide.connect(&listener.address())?.streams_out(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_options(&self, options: &AssociationOptions) -> Stack {
        let options = StackOptions { association: options.clone(), ..(*self.options).clone() };
        self.with(options, Arc::clone(&self.local_addresses))
    }

    /// Returns a handle to the same sockets that uses only some of their addresses (`sctp_bindx`). Its listeners and
    /// associations list only these to the peer, send from these, and accept only packets to these, so several
    /// listeners may share a port. Here `0.0.0.0` and `::` stand for all addresses of their family alone, and an empty list for
    /// all addresses. [`Stack::listen`] and [`Stack::endpoint`] fail if the host does not have one of the others.
    ///
    /// ```
    /// # use swiftwater::{Stack, StackOptions};
    /// let local_addresses = vec!["127.0.0.1".parse()?, "127.0.0.2".parse()?];
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0).with_local_addresses(local_addresses))?;
    /// let one = stack.with_local_addresses(&["127.0.0.1".parse()?]).listen(7)?;
    /// let other = stack.with_local_addresses(&["127.0.0.2".parse()?]).listen(7)?;
    /// let client = stack.connect(other.address())?;
    /// assert_eq!(client.peer_addr(), "127.0.0.2:7".parse()?);
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

    /// Checks that the host has the addresses to which this handle is restricted. The sockets may stand for all addresses.
    pub(crate) fn check_addresses(&self) -> Result<(), BindError> {
        let mut named = self.local_addresses.iter().filter(|ip| !ip.is_unspecified());
        named.try_for_each(|ip| self.address_check.check(*ip)).map_err(BindError::Link)
    }

    /// Returns the configuration of the associations of a listener that this handle opens with these options.
    pub(crate) fn listener_config(&self, options: &ListenerOptions) -> AssociationConfig {
        let trace = self.options.trace.is_some();
        self.options.association.config(options, &self.local_addresses, trace)
    }

    /// Opens a stream with the options of this handle.
    pub(crate) fn open(&self, style: Style) -> Result<Socket, Errno> {
        match &self.config {
            Some(config) => self.open_with(style, Arc::clone(config)),
            None => Socket::open(&self.shard, style),
        }
    }

    /// Opens a stream and binds it to an SCTP port; 0 chooses a free one. Returns the stream and its port.
    pub(crate) fn open_bound(
        &self,
        port: u16,
        backlog: u32,
        config: AssociationConfig,
    ) -> Result<(Socket, u16), BindError> {
        let socket = self.open_with(Style::OneToMany, Arc::new(config)).map_err(BindError::unavailable)?;
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        match socket.ask(Primitive::BindReq { addresses: any.into(), backlog }) {
            Ok(Primitive::BindAck { addresses, .. }) => {
                let bound = addresses.list.first().map_or(port, |a| a.port());
                Ok((socket, bound))
            }
            Ok(Primitive::ErrorAck { t_error: TError::AddressBusy, .. }) => {
                Err(BindError::PortInUse { port })
            }
            Ok(Primitive::ErrorAck { t_error, .. }) => Err(BindError::unavailable(t_error)),
            Ok(_) => Err(BindError::unavailable("the provider gave no answer")),
            Err(error) => Err(BindError::unavailable(error)),
        }
    }

    /// Opens a stream whose associations have this configuration.
    fn open_with(&self, style: Style, config: Arc<AssociationConfig>) -> Result<Socket, Errno> {
        let socket = Socket::open(&self.shard, style)?;
        let stream = socket.stream;
        self.with_driver(|driver| driver.set_association_config(stream, config));
        Ok(socket)
    }

    /// Returns the options that the sockets were bound with, with the default options of listeners and associations
    /// that this handle opens.
    pub fn options(&self) -> &StackOptions {
        &self.options
    }

    /// Returns the link that carries SCTP: never [`LinkKind::Auto`].
    pub fn link(&self) -> LinkKind {
        match self.with_driver(|driver| driver.link_has_ports()) {
            Some(false) => LinkKind::Raw,
            _ => LinkKind::Udp,
        }
    }

    /// Returns a warning about the link, if there is one: raw IP was not permitted, or the kernel's own SCTP answers
    /// its packets.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the local UDP port; 0 with raw IP.
    pub fn udp_port(&self) -> u16 {
        self.with_driver(|driver| driver.link_addresses().first().map_or(0, |a| a.port())).unwrap_or_default()
    }

    /// Returns the number of associations that exist, in any state.
    ///
    /// ```
    /// # use swiftwater::{Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// let listener = stack.listen(7)?;
    /// let client = stack.connect(listener.address())?;
    /// assert_eq!(stack.association_count(), 2, "both ends are in this stack");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn association_count(&self) -> usize {
        self.with_driver(|driver| driver.association_count()).unwrap_or_default()
    }

    /// Returns the counters of the stack. Visits every association.
    pub fn statistics(&self) -> StackStatistics {
        self.with_driver(|driver| StackStatistics {
            associations: driver.association_count(),
            endpoint: driver.endpoint_statistics(),
            link: driver.link_statistics(),
        })
        .unwrap_or_default()
    }

    /// Returns whether one of the sockets can send to the address family of one of these hosts.
    pub(crate) fn reaches_any(&self, hosts: &[IpAddr]) -> bool {
        let bound = self.with_driver(|driver| driver.link_addresses()).unwrap_or_default();
        // The socket bound to `::` also sends to IPv4 addresses.
        let both = |ip: IpAddr| ip == Ipv6Addr::UNSPECIFIED;
        let reaches = |host: &IpAddr| {
            bound.iter().any(|a| both(a.ip()) || a.is_ipv6() == host.to_canonical().is_ipv6())
        };
        hosts.iter().any(reaches)
    }

    pub(crate) fn with_driver<R>(&self, f: impl FnOnce(&mut SctpDriver) -> R) -> Option<R> {
        self.shard.with_driver(f)
    }

    /// Returns the addresses to which the listeners and associations that this handle opens are restricted; none for all
    /// addresses of the sockets.
    pub(crate) fn scope(&self) -> &[IpAddr] {
        &self.local_addresses
    }

    /// Returns the first address of a listener that is restricted to `scope`, with an SCTP port. Sockets without an address are
    /// bound to the unspecified address.
    pub(crate) fn addr_of(&self, scope: &[IpAddr], port: u16) -> SocketAddr {
        let bound = self.with_driver(|driver| driver.link_addresses()).unwrap_or_default();
        let first = ips_within(&bound, scope).first().copied();
        SocketAddr::new(first.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port)
    }

    /// Returns the address of a listener that is restricted to `scope`, as a peer on this host would name it.
    pub(crate) fn address_of(&self, scope: &[IpAddr], port: u16) -> Address {
        let bound = self.with_driver(|driver| driver.link_addresses()).unwrap_or_default();
        let udp_port = bound.first().map(|a| a.port()).filter(|port| *port != 0);
        // The only socket, if bound to `::`, also receives from IPv4 addresses.
        let is_both =
            scope.is_empty() && matches!(bound[..], [SocketAddr::V6(any)] if any.ip().is_unspecified());
        let mut hosts: Vec<IpAddr> = Vec::with_capacity(bound.len());
        for ip in ips_within(&bound, scope) {
            let host = match ip {
                IpAddr::V6(all) if all.is_unspecified() && !is_both => Ipv6Addr::LOCALHOST.into(),
                ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                ip => ip,
            };
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        Address { hosts, port, udp_port }
    }
}

/// Returns the addresses of sockets at which a listener that is restricted to `scope` listens. An unspecified address in the
/// scope denotes those of its family.
fn ips_within(bound: &[SocketAddr], scope: &[IpAddr]) -> Vec<IpAddr> {
    let bound = || bound.iter().map(SocketAddr::ip);
    if scope.is_empty() {
        return bound().collect();
    }
    let mut ips = Vec::new();
    for wanted in scope.iter().map(IpAddr::to_canonical) {
        let before = ips.len();
        if wanted.is_unspecified() {
            ips.extend(bound().filter(|ip| ip.is_ipv4() == wanted.is_ipv4()));
        }
        if ips.len() == before {
            ips.push(wanted);
        }
    }
    ips
}

/// Explains why associations over raw IP fail beside the kernel's own SCTP, and the remedy.
const KERNEL_SCTP_WARNING: &str = "the kernel's own SCTP is loaded and answers packets of raw IP with ABORT: unload it \
    (`rmmod sctp`) and keep it from being loaded, or let UDP carry SCTP";

fn bind_udp(options: &StackOptions) -> Result<Box<dyn Link>, BindError> {
    let link = UdpEncap::bind(&UdpEncapConfig {
        addresses: options.socket_addresses().to_vec(),
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
        addresses: options.socket_addresses().to_vec(),
        mtu_bytes: options.mtu_bytes,
        bind_interfaces: options.bind_interfaces,
        strangers_apart: true,
        ..RawIpConfig::default()
    });
    Ok(complete(link.map_err(BindError::Link)?, options))
}

/// Wraps a link in the layers that the options request.
fn complete(link: impl Link + 'static, options: &StackOptions) -> Box<dyn Link> {
    match options.hairpin && !options.bind_interfaces {
        true => Box::new(Hairpin::new(link)),
        false => Box::new(link),
    }
}
