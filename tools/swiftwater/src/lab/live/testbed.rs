//! Two network namespaces with a shaped line for each path between them.

use netns::{Host, HostError};

/// The network of each line: 198.18.N.0/24, which RFC 2544 has set aside for such tests.
const NETWORK: [u8; 2] = [198, 18];
/// What may leave a line at once: a few packets, as a driver hands them to a card.
const BURST_BYTES: u32 = 8 << 10;

/// Client and server, and the lines between them. They go with it.
#[derive(Debug)]
pub(super) struct Testbed {
    client: Host,
    server: Host,
    paths: usize,
}

impl Testbed {
    /// Lines of so many Mbit/s, with queues that hold what one carries in `queue_ms`.
    pub(super) fn build(rates_mbits: &[u64], queue_ms: u64) -> Result<Self, HostError> {
        let testbed = Testbed { client: Host::new()?, server: Host::new()?, paths: rates_mbits.len() };
        let hosts = [&testbed.client, &testbed.server];
        for host in hosts {
            host.ip("link set lo up")?;
        }
        for (path, rate) in rates_mbits.iter().enumerate() {
            let far = testbed.server.name();
            testbed.client.ip(&format!("link add name p{path} type veth peer name p{path} netns {far}"))?;
            for (number, host) in hosts.into_iter().enumerate() {
                host.ip(&format!("address add {}/24 dev p{path}", address(path, number)))?;
                host.ip(&format!("link set p{path} up"))?;
                host.exec(&format!(
                    "tc qdisc add dev p{path} root tbf rate {rate}mbit burst {BURST_BYTES} latency {queue_ms}ms"
                ))?;
            }
        }
        Ok(testbed)
    }

    /// Lets the kernel's MPTCP use every line: the server tells its other addresses, and the client connects to them.
    pub(super) fn allow_mptcp(&self) -> Result<(), HostError> {
        for host in [&self.client, &self.server] {
            let others = self.paths - 1;
            host.ip(&format!("mptcp limits set subflows {others} add_addr_accepted {others}"))?;
        }
        for path in 1..self.paths {
            self.server.ip(&format!("mptcp endpoint add {} dev p{path} signal", address(path, 1)))?;
        }
        Ok(())
    }

    /// The addresses of the client on the first paths, or of the server.
    pub(super) fn addresses(&self, paths: usize, server: bool) -> Vec<String> {
        (0..paths).map(|path| address(path, usize::from(server))).collect()
    }

    /// The host of the client, or of the server.
    pub(super) fn host(&self, server: bool) -> &Host {
        if server { &self.server } else { &self.client }
    }
}

fn address(path: usize, host: usize) -> String {
    format!("{}.{}.{path}.{}", NETWORK[0], NETWORK[1], host + 1)
}
