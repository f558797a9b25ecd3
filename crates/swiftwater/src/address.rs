//! Addresses of SCTP endpoints, with the UDP port that carries them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::str::FromStr;

/// The UDP port that carries SCTP unless an address names another (RFC 6951 §5.1).
pub const UDP_PORT_DEFAULT: u16 = links::SCTP_TUNNELING_PORT;

/// The transport addresses of an SCTP endpoint: one or several IP addresses, one SCTP port, and the UDP port that
/// carries SCTP (RFC 6951). A connect tries the addresses one after the other until one answers.
///
/// Written `HOST[,HOST...]:PORT[/udp:UDPPORT]`. `PORT` is the SCTP port; IPv6 addresses stand in brackets; without `/udp:` the
/// UDP port is 9899. As in [`std::net`], parsing takes IP addresses only, and [`ToAddresses`] resolves the names of hosts.
///
/// An address has no scope: SCTP packets carry addresses without the interface that an IPv6 link-local address belongs to. A
/// link-local peer is reached from a stack that is bound to the link-local address of the interface
/// ([`StackOptions::local_addresses`](crate::StackOptions::local_addresses)). A [`SocketAddr`] or a text with a scope is
/// an error.
///
/// ```
/// use swiftwater::Address;
///
/// let server: Address = "192.0.2.1,[2001:db8::1]:5000/udp:9900".parse()?;
/// assert_eq!(server.port, 5000);
/// assert_eq!(server.udp_port, Some(9900));
/// assert_eq!(server.hosts.len(), 2);
/// # Ok::<(), swiftwater::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The IP addresses; at least one.
    pub hosts: Vec<IpAddr>,
    /// The SCTP port.
    pub port: u16,
    /// The UDP encapsulation port; `None` stands for 9899.
    pub udp_port: Option<u16>,
}

/// Reason why an address is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The text has no `:PORT`.
    NoPort(String),
    /// A port is not a number from 0 to 65,535.
    BadPort(String),
    /// A host is not an IP address, where a name cannot be resolved.
    BadHost(String),
    /// A host is not an IP address, and its name does not resolve.
    Unresolved {
        /// The host.
        host: String,
        /// The reason that the resolver gave.
        reason: String,
    },
    /// The address has no host.
    NoHost,
    /// A host is named twice.
    Duplicate(IpAddr),
    /// An IPv6 address has a scope, as in `fe80::1%eth0`.
    Scoped(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::NoPort(text) => {
                write!(f, "`{text}` has no port; write HOST:PORT or HOST:PORT/udp:UDPPORT, IPv6 in brackets")
            }
            AddressError::BadPort(text) => write!(f, "`{text}` is not a port; use a number from 0 to 65535"),
            AddressError::NoHost => f.write_str("the address has no host; name at least one, as HOST:PORT"),
            AddressError::Duplicate(host) => write!(f, "{host} is listed twice; list each address once"),
            AddressError::BadHost(text) => {
                write!(
                    f,
                    "`{text}` is not an IP address; IPv6 addresses need brackets, and names must be resolved first"
                )
            }
            AddressError::Unresolved { host, reason } => write!(
                f,
                "`{host}` is neither an IP address nor a name that resolves ({reason}); check the name, and write IPv6 addresses in brackets"
            ),
            AddressError::Scoped(text) => write!(
                f,
                "{text} has a scope; write it without one, and bind the link-local address of that interface"
            ),
        }
    }
}

impl std::error::Error for AddressError {}

impl Address {
    /// Returns the IP addresses, each with the SCTP port.
    pub fn socket_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.hosts.iter().map(|host| SocketAddr::new(*host, self.port))
    }

    /// Returns the UDP port that carries SCTP to this endpoint.
    pub fn encapsulation_port(&self) -> u16 {
        self.udp_port.unwrap_or(UDP_PORT_DEFAULT)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Parses an address whose hosts are IP addresses. Does not block.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parsed = parse_with(text, |host| Err(AddressError::BadHost(host.to_owned())))?;
        parsed.into_iter().next().ok_or(AddressError::NoHost)
    }
}

/// Parses text whose hosts may be names. A single name stands for alternatives: one for each of its addresses. A list of hosts
/// is one address, in which a name stands for all of its addresses.
fn parse_with(
    text: &str,
    resolve: impl Fn(&str) -> Result<Vec<IpAddr>, AddressError>,
) -> Result<Vec<Address>, AddressError> {
    let (endpoint, udp_port) = match text.split_once("/udp:") {
        Some((endpoint, port)) => (endpoint, Some(parse_port(port)?)),
        None => (text, None),
    };
    let (list, port) = endpoint.rsplit_once(':').ok_or_else(|| AddressError::NoPort(text.to_owned()))?;
    if list.ends_with(':') || (list.contains(':') && !list.contains(']')) {
        return Err(AddressError::NoPort(text.to_owned()));
    }
    let port = parse_port(port)?;
    let of = |hosts: Vec<IpAddr>| {
        let address = Address { hosts, port, udp_port };
        address.check().map(|()| address)
    };
    let mut hosts = Vec::new();
    for host in list.split(',') {
        match parse_host(host)? {
            Some(literal) => hosts.push(literal),
            None if host == list => return resolve(host)?.into_iter().map(|ip| of(vec![ip])).collect(),
            None => {
                for ip in resolve(host)? {
                    if !hosts.contains(&ip) {
                        hosts.push(ip);
                    }
                }
            }
        }
    }
    of(hosts).map(|address| vec![address])
}

/// Returns the IP address that a host is; `None` if it may be a name.
fn parse_host(host: &str) -> Result<Option<IpAddr>, AddressError> {
    let bare = host.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(host);
    match bare.split_once('%') {
        Some((ip, _)) if ip.parse::<Ipv6Addr>().is_ok() => Err(AddressError::Scoped(bare.to_owned())),
        _ => Ok(bare.parse().ok()),
    }
}

impl Address {
    /// Returns the address that a connect uses: an IPv4-mapped host (`::ffff:192.0.2.1`) stands for its IPv4 address, an
    /// unspecified host for the loopback address of its family.
    pub(crate) fn of_server(&self) -> Address {
        let hosts = self.hosts.iter().map(|host| match host.to_canonical() {
            IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(host) if host.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            host => host,
        });
        Address { hosts: hosts.collect(), ..*self }
    }

    /// Checks that the address has at least one host, and no host twice.
    pub(crate) fn check(&self) -> Result<(), AddressError> {
        let hosts: Vec<IpAddr> = self.hosts.iter().map(IpAddr::to_canonical).collect();
        let duplicate = hosts.iter().enumerate().find(|(n, host)| hosts[..*n].contains(host));
        match duplicate {
            Some((_, host)) => Err(AddressError::Duplicate(*host)),
            None if hosts.is_empty() => Err(AddressError::NoHost),
            None => Ok(()),
        }
    }
}

fn parse_port(text: &str) -> Result<u16, AddressError> {
    text.parse().map_err(|_| AddressError::BadPort(text.to_owned()))
}

/// Returns all addresses of a host by its name; blocks.
fn resolve_host(host: &str) -> Result<Vec<IpAddr>, AddressError> {
    let unresolved = |reason: String| AddressError::Unresolved { host: host.to_owned(), reason };
    let found = (host, 0).to_socket_addrs().map_err(|error| unresolved(error.to_string()))?;
    let mut ips = Vec::new();
    for address in found {
        // An address with a scope cannot be used: see `Address`.
        let ip = Some(address.ip()).filter(|ip| !has_scope(&address) && !ips.contains(ip));
        ips.extend(ip);
    }
    if ips.is_empty() { Err(unresolved("it has no usable address".into())) } else { Ok(ips) }
}

fn has_scope(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0)
}

/// Fails for an IPv6 address with a scope.
impl TryFrom<SocketAddr> for Address {
    type Error = AddressError;

    fn try_from(address: SocketAddr) -> Result<Self, AddressError> {
        if has_scope(&address) {
            return Err(AddressError::Scoped(address.to_string()));
        }
        Ok(Address { hosts: vec![address.ip()], port: address.port(), udp_port: None })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, host) in self.hosts.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match host {
                IpAddr::V4(v4) => write!(f, "{comma}{v4}")?,
                IpAddr::V6(v6) => write!(f, "{comma}[{v6}]")?,
            }
        }
        write!(f, ":{}", self.port)?;
        match self.udp_port {
            Some(port) if port != UDP_PORT_DEFAULT => write!(f, "/udp:{port}"),
            _ => Ok(()),
        }
    }
}

impl From<SocketAddrV4> for Address {
    fn from(address: SocketAddrV4) -> Self {
        Address::from((IpAddr::V4(*address.ip()), address.port()))
    }
}

impl From<(IpAddr, u16)> for Address {
    fn from((host, port): (IpAddr, u16)) -> Self {
        Address { hosts: vec![host], port, udp_port: None }
    }
}

/// Types that name one endpoint or several alternatives: text, an [`Address`], and the types of [`ToSocketAddrs`] of
/// [`std::net`], such as [`SocketAddr`] and `("localhost", 7)`; also lists (`[T]`, `[T; N]`, [`Vec`]) of any of these.
///
/// The name of a host, as in `localhost:5000`, stands for one alternative for each of its addresses: these may belong to
/// different hosts, or reach different programs, so a connect tries them one after the other and a bind takes the first
/// that is possible, as in [`std::net`]. The addresses of a list such as `one.example,two.example:5000` belong to one endpoint.
/// An IPv4-mapped address such as `::ffff:192.0.2.1`, as a socket of both families names its clients, is its IPv4 address.
///
/// ```
/// # use swiftwater::{Association, Listener};
/// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
/// # let address = listener.address().to_string();
/// # let nowhere = Listener::bind("127.0.0.1:0/udp:0")?.address().to_string();
/// // The second answers.
/// let client = Association::connect([nowhere, address])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ToAddresses {
    /// Returns the alternatives. Names of hosts are resolved, which may block.
    ///
    /// # Errors
    ///
    /// The text is not a valid address, or a name does not resolve.
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError>;

    /// Returns the texts of the alternatives if they may contain names of hosts, which a caller resolves where it may block.
    #[doc(hidden)]
    fn texts(&self) -> Option<Vec<String>> {
        None
    }
}

impl ToAddresses for str {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        parse_with(self, resolve_host)
    }

    fn texts(&self) -> Option<Vec<String>> {
        Some(vec![self.to_owned()])
    }
}

/// Implements the trait for types that are converted to another one which has it.
macro_rules! to_addresses_as {
    ($($type:ty: $self:ident => $other:expr;)+) => {
        $(impl ToAddresses for $type {
            fn to_addresses(&$self) -> Result<Vec<Address>, AddressError> {
                $other.to_addresses()
            }

            fn texts(&$self) -> Option<Vec<String>> {
                $other.texts()
            }
        })+
    };
}

to_addresses_as! {
    String: self => self.as_str();
    (&str, u16): self => with_port(self.0, self.1);
    (String, u16): self => with_port(&self.0, self.1);
    (IpAddr, u16): self => Address::from(*self);
    (Ipv4Addr, u16): self => Address::from((IpAddr::from(self.0), self.1));
    (Ipv6Addr, u16): self => Address::from((IpAddr::from(self.0), self.1));
    SocketAddrV4: self => Address::from(*self);
    SocketAddrV6: self => SocketAddr::from(*self);
}

/// Returns the text of a host with a port.
fn with_port(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

impl ToAddresses for Address {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        Ok(vec![self.clone()])
    }
}

impl ToAddresses for SocketAddr {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        Ok(vec![Address::try_from(*self)?])
    }
}

impl<T: ToAddresses> ToAddresses for [T] {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        let mut addresses = Vec::with_capacity(self.len());
        for alternatives in self {
            addresses.extend(alternatives.to_addresses()?);
        }
        Ok(addresses)
    }

    fn texts(&self) -> Option<Vec<String>> {
        let texts: Option<Vec<_>> = self.iter().map(T::texts).collect();
        texts.map(|texts| texts.concat())
    }
}

impl<T: ToAddresses, const N: usize> ToAddresses for [T; N] {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        self[..].to_addresses()
    }

    fn texts(&self) -> Option<Vec<String>> {
        self[..].texts()
    }
}

impl<T: ToAddresses> ToAddresses for Vec<T> {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        self[..].to_addresses()
    }

    fn texts(&self) -> Option<Vec<String>> {
        self[..].texts()
    }
}

impl<T: ToAddresses + ?Sized> ToAddresses for &T {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        (**self).to_addresses()
    }

    fn texts(&self) -> Option<Vec<String>> {
        (**self).texts()
    }
}

/// Returns the first success; without one, the last error.
pub(crate) fn first_success<T, E: From<AddressError>>(
    alternatives: &[Address],
    mut attempt: impl FnMut(&Address) -> Result<T, E>,
) -> Result<T, E> {
    let mut outcome = Err(AddressError::NoHost.into());
    for address in alternatives {
        outcome = attempt(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["127.0.0.1:5000", "127.0.0.1:5000/udp:9900", "[::1]:0", "10.0.0.1,[fd00::1]:7/udp:1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("127.0.0.1:1/udp:9899".parse::<Address>().unwrap().to_string(), "127.0.0.1:1");
    }

    #[test]
    fn types_of_the_standard_library_and_lists_name_addresses() {
        let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
        let texts = |named: &dyn ToAddresses| {
            let found = named.to_addresses().unwrap();
            found.iter().map(Address::to_string).collect::<Vec<_>>()
        };
        let (of_v4, of_v6) = (["192.0.2.1:7"], ["[2001:db8::1]:7"]);
        for named in
            [&SocketAddrV4::new(v4, 7) as &dyn ToAddresses, &(v4, 7), &(IpAddr::V4(v4), 7), &("192.0.2.1", 7)]
        {
            assert_eq!(texts(named), of_v4);
        }
        let v6_address = SocketAddrV6::new(v6, 7, 0, 0);
        for named in
            [&v6_address as &dyn ToAddresses, &(v6, 7), &("2001:db8::1", 7), &("[2001:db8::1]".to_owned(), 7)]
        {
            assert_eq!(texts(named), of_v6);
        }
        let both = [of_v4, of_v6].concat();
        assert_eq!(texts(&[SocketAddr::from((v4, 7)), v6_address.into()]), both);
        assert_eq!(texts(&both), both);
        assert_eq!(texts(&Vec::from([("192.0.2.1", 7), ("2001:db8::1", 7)])), both);
        assert_eq!(texts(&both.to_addresses().unwrap()), both);
        assert!(matches!(("fe80::1%eth0", 7).to_addresses(), Err(AddressError::Scoped(_))));
        assert!([("no such host", 7)].to_addresses().is_err());
        // Only texts may have to be resolved.
        assert_eq!(
            [("localhost", 7), ("2001:db8::1", 7)].texts().unwrap(),
            ["localhost:7", "[2001:db8::1]:7"]
        );
        assert_eq!([(v4, 7)].texts(), None);
    }

    #[test]
    fn an_invalid_address_is_named() {
        for (text, word) in [
            ("127.0.0.1", "no port"),
            ("::1:5000", "no port"),
            ("127.0.0.1:70000", "not a port"),
            ("127.0.0.1:1/udp:x", "not a port"),
            ("no such host:1", "not an IP address"),
            ("localhost:1", "not an IP address"),
            ("[fe80::1%2]:1", "fe80::1%2 has a scope"),
            ("127.0.0.1,::ffff:127.0.0.1:1", "no port"),
            ("127.0.0.1,[::ffff:127.0.0.1]:1", "127.0.0.1 is listed twice"),
        ] {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }

    /// Parses with a resolver that knows one name.
    fn resolved(text: &str) -> Result<Vec<Address>, AddressError> {
        parse_with(text, |host| match host {
            "both" => Ok(vec!["::1".parse().unwrap(), "127.0.0.1".parse().unwrap()]),
            _ => resolve_host(host),
        })
    }

    #[test]
    fn a_name_stands_for_an_alternative_for_each_of_its_addresses() {
        let texts = |found: Vec<Address>| found.iter().map(Address::to_string).collect::<Vec<_>>();
        assert_eq!(texts(resolved("both:7/udp:1").unwrap()), ["[::1]:7/udp:1", "127.0.0.1:7/udp:1"]);
        let list = resolved("127.0.0.1,both,10.0.0.1:7").unwrap();
        assert_eq!(texts(list), ["127.0.0.1,[::1],10.0.0.1:7"], "a list is one endpoint");
    }

    #[test]
    fn a_name_that_does_not_resolve_is_named_with_the_reason() {
        // The resolver refuses the space without asking another host.
        let message = "no such host:1".to_addresses().unwrap_err().to_string();
        assert!(message.starts_with("`no such host` is neither"), "{message}");
        assert!(matches!(resolved("no such host:1"), Err(AddressError::Unresolved { .. })));
    }

    #[test]
    fn a_scope_is_refused_and_not_dropped() {
        let scoped: SocketAddr = "[fe80::1%2]:7".parse().unwrap();
        assert!(matches!(Address::try_from(scoped), Err(AddressError::Scoped(_))));
        assert!(matches!(scoped.to_addresses(), Err(AddressError::Scoped(_))));
        assert!(matches!("[fe80::1%eth0]:7".to_addresses(), Err(AddressError::Scoped(_))));
    }
}
