//! A client with two addresses, for a server with two: chooses, watches and tunes paths.
//!
//! ```console
//! $ cargo run -p swiftwater --features tokio --example echo -- server 127.0.0.63,127.0.0.64:7/udp:9863 &
//! listening at 127.0.0.63,127.0.0.64:7/udp:9863
//! $ cargo run -p swiftwater --features tokio --example multihomed_client -- \
//!     127.0.0.63,127.0.0.64:7/udp:9863 127.0.0.65,127.0.0.66
//! the path to 127.0.0.63 is active
//! the path to 127.0.0.64 is active
//! over the path to 127.0.0.63: hello
//! over the path to 127.0.0.64: hello
//! the primary path is that to 127.0.0.64
//! ```

use std::env;
use std::error::Error;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use swiftwater::{
    Address, Association, AssociationOptions, PathOptions, Received, RecvError, SendInfo, StackOptions,
};

/// Time limit for the confirmation of a path; other paths are not used.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<String> =
        env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let outcome = match arguments.as_slice() {
        [server, local] => run(server, local),
        _ => Err("usage: multihomed_client SERVER LOCAL[,LOCAL...]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("multihomed_client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(server: &str, local: &str) -> Result<(), Box<dyn Error>> {
    let server: Address = server.parse()?;
    let local_addresses = local.split(',').map(str::parse).collect::<Result<Vec<IpAddr>, _>>()?;
    let options = StackOptions::default()
        .with_local_addresses(local_addresses)
        // Events report which paths fail and recover.
        .with_association(AssociationOptions::default().with_events(true));
    let association = Association::connect_with(&server, &options)?;
    // Probes an idle path more often than every 30 s, and marks it inactive after two probes without an answer.
    let watched = PathOptions {
        heartbeat_interval: Some(Duration::from_secs(1)),
        retries_max: Some(2),
        ..PathOptions::default()
    };
    association.set_path(None, &watched)?;
    await_paths(&association, server.hosts.len())?;

    let mut paths = association.statistics().ok_or("the association has ended")?.paths;
    paths.sort_by_key(|path| path.remote);
    for path in &paths {
        let state = if path.active { "active" } else { "inactive" };
        println!("the path to {} is {state}", path.remote.ip());
    }
    for path in paths.iter().filter(|path| path.active) {
        let host = path.remote.ip();
        let info = SendInfo { path: association.path_to(host), ..SendInfo::default() };
        association.send_with(b"hello", &info)?;
        println!("over the path to {host}: {}", next_message(&association)?);
    }
    if let Some(last) = paths.iter().rfind(|path| path.active) {
        association.set_primary(last.remote.ip())?;
        println!("the primary path is that to {}", last.remote.ip());
    }
    association.close()?;
    Ok(())
}

/// Waits until the peer has answered at all of its addresses (RFC 9260 §5.4): data goes only to confirmed addresses.
fn await_paths(association: &Association, count: usize) -> Result<(), Box<dyn Error>> {
    loop {
        let paths = association.statistics().ok_or("the association has ended")?.paths;
        if paths.iter().filter(|path| path.active).count() >= count {
            return Ok(());
        }
        match association.recv_any_timeout(CONFIRMED_WITHIN) {
            Ok(Some(_)) => {}
            Ok(None) => return Err("the server has shut down".into()),
            Err(RecvError::TimedOut) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn next_message(association: &Association) -> Result<String, Box<dyn Error>> {
    loop {
        match association.recv_any()? {
            Some(Received::Message(message)) => {
                return Ok(String::from_utf8_lossy(&message.to_vec()).into_owned());
            }
            Some(Received::Event(_)) => {}
            None => return Err("the server has shut down".into()),
        }
    }
}
