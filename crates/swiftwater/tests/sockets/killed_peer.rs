//! A peer whose process was killed.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use swiftwater::{Association, AssociationOptions, Listener, LossKind, RecvError};

use crate::pair::must_end;

/// Set in the process that plays the peer.
const ROLE: &str = "SWIFTWATER_TEST_PEER";

/// Not a test: runs the process of the peer.
#[test]
fn peer_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let listener = Listener::bind("127.0.0.1:0/udp:0").unwrap();
    println!("\naddress {}", listener.address());
    std::io::stdout().flush().unwrap();
    let (association, _) = listener.accept().unwrap();
    while let Some(message) = association.recv().unwrap() {
        association.send_bytes(message.into_bytes(), &Default::default()).unwrap();
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_peer() -> (Killed, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["killed_peer::peer_process", "--exact", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.starts_with("address ")).unwrap();
    (Killed(child), line["address ".len()..].to_owned())
}

#[test]
fn is_found_out() {
    must_end(|| {
        let (peer, address) = start_peer();
        let options = AssociationOptions::default()
            .with_rto_initial(Duration::from_millis(20))
            .with_rto_min(Duration::from_millis(10))
            .with_rto_max(Duration::from_millis(40))
            .with_association_retries_max(4)
            .into();
        let association = Association::connect_with(address, &options).unwrap();
        association.send(b"are you there?").unwrap();
        assert_eq!(association.recv().unwrap().unwrap().to_vec(), b"are you there?");
        drop(peer);
        association.send(b"and now?").unwrap();
        let lost = association.recv().unwrap_err();
        assert!(matches!(&lost, RecvError::Lost(loss) if loss.kind == LossKind::TimedOut), "{lost}");
        println!("{lost}");
        // Not the kind of a time limit, after which a program receives again.
        assert_eq!(io::Error::from(lost).kind(), io::ErrorKind::ConnectionAborted);
    });
}
