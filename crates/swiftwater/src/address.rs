//! Addresses of SCTP endpoints, with the UDP port that carries them.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// The UDP port that carries SCTP unless an address names another (RFC 6951 §5.1).
pub const UDP_PORT_DEFAULT: u16 = links::SCTP_TUNNELING_PORT;

/// The transport addresses of an SCTP endpoint: one or several IP addresses, one SCTP port, and the UDP port that
/// carries SCTP (RFC 6951). A connect tries the addresses one after the other until one answers.
///
/// Written `HOST[,HOST...]:PORT[/udp:UDPPORT]`. `PORT` is the SCTP port; IPv6 addresses stand in brackets;
/// without `/udp:` the UDP port is 9899.
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
pub enum AddressError {
    /// The text has no `:PORT`.
    NoPort(String),
    /// A port is not a number from 0 to 65,535.
    BadPort(String),
    /// A host is neither an IP address nor a name that resolves.
    BadHost(String),
    /// The address has no host.
    NoHost,
    /// A host is named twice.
    Duplicate(IpAddr),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::NoPort(text) => {
                write!(f, "`{text}` has no port; write HOST:PORT or HOST:PORT/udp:UDPPORT, IPv6 in brackets")
            }
            AddressError::BadPort(text) => write!(f, "`{text}` is not a port; use a number from 0 to 65535"),
            AddressError::NoHost => f.write_str("an address has at least one host"),
            AddressError::Duplicate(host) => write!(f, "{host} is listed twice; list each address once"),
            AddressError::BadHost(text) => {
                write!(
                    f,
                    "`{text}` is neither an IP address nor a name that resolves; IPv6 addresses need brackets"
                )
            }
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
    pub fn carrier_port(&self) -> u16 {
        self.udp_port.unwrap_or(UDP_PORT_DEFAULT)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Parses an address. The host may be a name, which is resolved: that may block.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        Address::parse_with(text, resolve_host)
    }
}

impl Address {
    /// Parses an address whose hosts are IP addresses; names of hosts are errors.
    #[cfg(feature = "tokio")]
    pub(crate) fn parse_literal(text: &str) -> Result<Self, AddressError> {
        Address::parse_with(text, |host| Err(AddressError::BadHost(host.to_owned())))
    }

    fn parse_with(
        text: &str,
        resolve: impl Fn(&str) -> Result<IpAddr, AddressError>,
    ) -> Result<Self, AddressError> {
        let (endpoint, udp_port) = match text.split_once("/udp:") {
            Some((endpoint, port)) => (endpoint, Some(parse_port(port)?)),
            None => (text, None),
        };
        let (hosts, port) = endpoint.rsplit_once(':').ok_or_else(|| AddressError::NoPort(text.to_owned()))?;
        if hosts.ends_with(':') || (hosts.contains(':') && !hosts.contains(']')) {
            return Err(AddressError::NoPort(text.to_owned()));
        }
        let port = parse_port(port)?;
        let parse_host = |host: &str| {
            let bare = host.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(host);
            bare.parse().or_else(|_| resolve(host))
        };
        let hosts = hosts.split(',').map(parse_host).collect::<Result<Vec<_>, _>>()?;
        let address = Address { hosts, port, udp_port };
        address.check().map(|()| address)
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

fn resolve_host(text: &str) -> Result<IpAddr, AddressError> {
    let bad = || AddressError::BadHost(text.to_owned());
    let mut found = (text, 0).to_socket_addrs().map_err(|_| bad())?;
    found.next().map(|a| a.ip()).ok_or_else(bad)
}

impl From<SocketAddr> for Address {
    fn from(a: SocketAddr) -> Self {
        Address { hosts: vec![a.ip()], port: a.port(), udp_port: None }
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

/// Types that name an endpoint: text, a [`SocketAddr`], an [`Address`].
pub trait ToAddress {
    /// Returns the address. Names of hosts are resolved, which may block.
    ///
    /// # Errors
    ///
    /// The text is not a valid address, or a name does not resolve.
    fn to_address(&self) -> Result<Address, AddressError>;

    /// Returns the text of an address that may contain names of hosts, which a caller resolves where it may block.
    #[doc(hidden)]
    fn as_text(&self) -> Option<&str> {
        None
    }
}

impl ToAddress for str {
    fn to_address(&self) -> Result<Address, AddressError> {
        self.parse()
    }

    fn as_text(&self) -> Option<&str> {
        Some(self)
    }
}

impl ToAddress for String {
    fn to_address(&self) -> Result<Address, AddressError> {
        self.parse()
    }

    fn as_text(&self) -> Option<&str> {
        Some(self)
    }
}

impl ToAddress for Address {
    fn to_address(&self) -> Result<Address, AddressError> {
        Ok(self.clone())
    }
}

impl ToAddress for SocketAddr {
    fn to_address(&self) -> Result<Address, AddressError> {
        Ok((*self).into())
    }
}

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_address(&self) -> Result<Address, AddressError> {
        (**self).to_address()
    }

    fn as_text(&self) -> Option<&str> {
        (**self).as_text()
    }
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
    fn an_invalid_address_is_named() {
        for (text, word) in [
            ("127.0.0.1", "no port"),
            ("::1:5000", "no port"),
            ("127.0.0.1:70000", "not a port"),
            ("127.0.0.1:1/udp:x", "not a port"),
            ("no such host:1", "neither"),
            ("127.0.0.1,::ffff:127.0.0.1:1", "no port"),
            ("127.0.0.1,[::ffff:127.0.0.1]:1", "127.0.0.1 is listed twice"),
        ] {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
