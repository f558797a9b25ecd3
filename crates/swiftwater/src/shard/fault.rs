//! Containment of internal faults: a panic ends the association or stream being handled, and nothing else.
//!
//! Work inside the perimeter runs guarded. If it panics, the association that was being handled is aborted. The thread
//! inside, which may have been working for another association, continues.
//!
//! A guard whose destructor aborts the association would let the panic pass on to the caller. `catch_unwind` stops it, and a
//! release build inlines it: a call that does not panic executes no instruction for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use streams::StreamId;

use super::Inner;

impl Inner {
    /// Runs `work`, on behalf of stream `s` if there is one. Returns `None` after a panic, which has ended the
    /// association or stream being handled.
    #[inline]
    pub(crate) fn guarded<T>(
        &mut self,
        s: Option<StreamId>,
        work: impl FnOnce(&mut Inner) -> T,
    ) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(result) => Some(result),
            Err(_) => {
                self.contain(s);
                None
            }
        }
    }

    #[cold]
    fn contain(&mut self, s: Option<StreamId>) {
        let contained = catch_unwind(AssertUnwindSafe(|| self.executive.fault(s)));
        if contained.is_err() {
            // The state inside is no longer trustworthy: every stream is closed.
            self.dispose();
            self.notify_all();
        }
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use links::{BatchLimits, Link, LinkStats, PathInfo, Sink, Transmit, UdpEncap, UdpEncapConfig};

    use crate::{Address, Association, AssociationOptions, ConnectError, LossKind, Stack, StackOptions};

    /// The test link panics when it is asked for a route to this address.
    const FAULTY: &str = "127.0.0.66";

    /// A link that panics on demand.
    struct Faulty {
        link: UdpEncap,
        /// Number of batches, from the next on, whose transmission panics.
        transmits: Arc<AtomicU32>,
        /// Number of receives, from the next on, that panic after receiving.
        receives: Arc<AtomicU32>,
    }

    fn take(count: &AtomicU32) -> bool {
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    impl Link for Faulty {
        fn local_addresses(&self) -> Vec<SocketAddr> {
            self.link.local_addresses()
        }

        fn path_info(&self, remote: SocketAddr) -> PathInfo {
            assert_ne!(remote.ip(), FAULTY.parse::<IpAddr>().unwrap(), "a fault on purpose");
            self.link.path_info(remote)
        }

        fn batch_limits(&self) -> BatchLimits {
            self.link.batch_limits()
        }

        fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
            let more = self.link.receive(sink);
            assert!(!take(&self.receives), "a fault on purpose");
            more
        }

        fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
            assert!(!take(&self.transmits), "a fault on purpose");
            self.link.transmit(transmit)
        }

        fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>)) {
            self.link.descriptors(visit);
        }

        fn stats(&self) -> LinkStats {
            self.link.stats()
        }
    }

    fn options(addresses: &[&str]) -> StackOptions {
        StackOptions {
            udp_port: Some(0),
            local_addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            association: AssociationOptions {
                rto_initial: std::time::Duration::from_millis(20),
                rto_min: std::time::Duration::from_millis(10),
                ..AssociationOptions::default()
            },
            ..StackOptions::default()
        }
    }

    struct Fixture {
        stack: Stack,
        transmits: Arc<AtomicU32>,
        receives: Arc<AtomicU32>,
        sound: Association,
        peer: Association,
    }

    /// Returns a stack over a faulty link, with an association to a stack over a sound link.
    fn fixture() -> Fixture {
        let config =
            UdpEncapConfig { addresses: vec!["127.0.0.1".parse().unwrap()], port: 0, ..Default::default() };
        let (transmits, receives) = (Arc::default(), Arc::default());
        let link = Faulty {
            link: UdpEncap::bind(&config).unwrap(),
            transmits: Arc::clone(&transmits),
            receives: Arc::clone(&receives),
        };
        let stack = Stack::over(Box::new(link), &options(&["127.0.0.1"])).unwrap();
        let listener = Stack::bind(&options(&["127.0.0.1"])).unwrap().listen(7).unwrap();
        let sound = stack.connect(listener.address()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        Fixture { stack, transmits, receives, sound, peer }
    }

    impl Fixture {
        fn assert_sound(&self) {
            for i in 0..100u8 {
                self.sound.send(&[i]).unwrap();
                assert_eq!(self.peer.recv().unwrap().unwrap().to_vec(), [i]);
                self.peer.send(&[i, i]).unwrap();
                assert_eq!(self.sound.recv().unwrap().unwrap().to_vec(), [i, i]);
            }
        }
    }

    #[test]
    fn a_request_that_panics_fails() {
        let fixture = fixture();
        let failed = fixture.stack.connect(format!("{FAULTY}:7")).unwrap_err();
        let ConnectError::Lost(loss) = failed else { panic!("{failed}") };
        assert_eq!(loss.kind, LossKind::Fault);
        fixture.assert_sound();
    }

    #[test]
    fn an_association_whose_packet_panics_is_aborted_and_no_other() {
        let fixture = fixture();
        // The listener's INIT ACK lists the address that makes the client's link panic.
        let listener = Stack::bind(&options(&["127.0.0.1", FAULTY])).unwrap().listen(7).unwrap();
        let server = Address { hosts: vec!["127.0.0.1".parse().unwrap()], ..listener.address() };
        let failed = fixture.stack.connect(server).unwrap_err().to_string();
        assert!(failed.contains("internal fault"), "{failed}");
        assert_eq!(fixture.stack.statistics().associations, 1);
        fixture.assert_sound();
    }

    #[test]
    fn packets_lost_by_a_fault_of_the_link_are_retransmitted() {
        let fixture = fixture();
        for _ in 0..3 {
            fixture.transmits.store(1, Ordering::Relaxed);
            fixture.assert_sound();
            fixture.receives.store(1, Ordering::Relaxed);
            fixture.assert_sound();
        }
        fixture.sound.close().unwrap();
    }
}
