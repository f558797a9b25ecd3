//! Two network namespaces with a shaped line for each path between them.

use std::io;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use super::LiveError;

/// The network of each line: 198.18.N.0/24, which RFC 2544 has set aside for such tests.
const NETWORK: [u8; 2] = [198, 18];
/// What may leave a line at once: a few packets, as a driver hands them to a card.
const BURST_BYTES: u32 = 8 << 10;

/// Tells the testbeds of one program apart.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Client and server, and the lines between them. Dropping it takes them down.
#[derive(Debug)]
pub(super) struct Testbed {
    client: String,
    server: String,
    paths: usize,
}

impl Testbed {
    /// Lines of so many Mbit/s, with queues that hold what one carries in `queue_ms`.
    pub(super) fn build(rates_mbits: &[u64], queue_ms: u64) -> Result<Self, LiveError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LiveError::NotRoot);
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("sw-lab-{}-{number}-{end}", process::id());
        let testbed = Testbed { client: name("client"), server: name("server"), paths: rates_mbits.len() };
        let (client, server) = (&testbed.client, &testbed.server);
        for namespace in [client, server] {
            run(&format!("ip netns add {namespace}"))?;
            run(&format!("ip -n {namespace} link set lo up"))?;
        }
        for (path, rate) in rates_mbits.iter().enumerate() {
            run(&format!(
                "ip link add name p{path} netns {client} type veth peer name p{path} netns {server}"
            ))?;
            for (host, namespace) in [client, server].into_iter().enumerate() {
                let address = address(path, host);
                run(&format!("ip -n {namespace} address add {address}/24 dev p{path}"))?;
                run(&format!("ip -n {namespace} link set p{path} up"))?;
                run(&format!(
                    "tc -n {namespace} qdisc add dev p{path} root tbf rate {rate}mbit burst {BURST_BYTES} latency {queue_ms}ms"
                ))?;
            }
        }
        Ok(testbed)
    }

    /// Lets the kernel's MPTCP use every line: the server tells its other addresses, and the client connects to them.
    pub(super) fn allow_mptcp(&self) -> Result<(), LiveError> {
        for namespace in [&self.client, &self.server] {
            let others = self.paths - 1;
            run(&format!("ip -n {namespace} mptcp limits set subflows {others} add_addr_accepted {others}"))?;
        }
        for path in 1..self.paths {
            let (server, address) = (&self.server, address(path, 1));
            run(&format!("ip -n {server} mptcp endpoint add {address} dev p{path} signal"))?;
        }
        Ok(())
    }

    /// The addresses of the client on the first paths, or of the server.
    pub(super) fn addresses(&self, paths: usize, server: bool) -> Vec<String> {
        (0..paths).map(|path| address(path, usize::from(server))).collect()
    }

    /// What to put before a command that is to run at the client, or at the server.
    pub(super) fn inside(&self, server: bool) -> Vec<String> {
        let namespace = if server { &self.server } else { &self.client };
        ["ip", "netns", "exec", namespace].map(str::to_owned).to_vec()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for namespace in [&self.client, &self.server] {
            // The lines go with the namespaces. One that was never made cannot be deleted, which is as well.
            let _ = output(&format!("ip netns delete {namespace}"));
        }
    }
}

fn address(path: usize, host: usize) -> String {
    format!("{}.{}.{path}.{}", NETWORK[0], NETWORK[1], host + 1)
}

/// Runs a command of words without blanks.
fn run(line: &str) -> Result<(), LiveError> {
    let output = output(line).map_err(|source| LiveError::NoTool { line: line.to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LiveError::Tool { line: line.to_owned(), said })
}

fn output(line: &str) -> io::Result<process::Output> {
    let mut words = line.split(' ');
    Command::new(words.next().unwrap_or_default()).args(words).output()
}
