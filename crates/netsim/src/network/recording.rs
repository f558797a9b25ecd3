//! Captures of a network: records of packets at its hosts and pipes.

use std::net::SocketAddr;

use super::{Network, Traveller};
use crate::capture::{Fate, Recorder, Sight};
use crate::flow::Flow;
use crate::packet::{Packet, PipeId};
use crate::{Capture, CaptureError, Payload};

impl<P: Payload> Network<P> {
    /// Starts to write the packets at the hosts and pipes of a capture. Stops an earlier capture first.
    ///
    /// # Errors
    ///
    /// The end of the earlier capture or the start of this one cannot be written.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # use netsim::{Capture, CaptureBuffer};
    /// let buffer = CaptureBuffer::default();
    /// network.start_capture(Capture::to(buffer.clone()).pipe(there, "line"))?;
    /// network.send(0, a, b, 1500, "hello");
    /// network.stop_capture()?;
    /// assert!(!buffer.bytes().is_empty());
    /// # Ok::<(), netsim::CaptureError>(())
    /// ```
    pub fn start_capture(&mut self, capture: Capture) -> Result<(), CaptureError> {
        self.stop_capture()?;
        self.recorder = Some(Box::new(Recorder::start(capture)?));
        Ok(())
    }

    /// Ends the capture, if one runs, after all of it is written.
    ///
    /// # Errors
    ///
    /// A packet could not be written; the capture ends before it.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use std::net::SocketAddr;
    /// # let (a, b) = (SocketAddr::from(([10, 0, 0, 1], 9899)), SocketAddr::from(([10, 0, 0, 2], 9899)));
    /// # let mut network = Network::new(1);
    /// # network.add_host(&[a.ip()]);
    /// # network.add_host(&[b.ip()]);
    /// # let (there, back) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
    /// # network.send(0, a, b, 1500, ());
    /// network.stop_capture()?; // none runs, and that is no error
    /// # Ok::<(), netsim::CaptureError>(())
    /// ```
    pub fn stop_capture(&mut self) -> Result<(), CaptureError> {
        self.recorder.take().map_or(Ok(()), |recorder| recorder.stop())
    }

    #[cold]
    pub(super) fn record_offered(
        &mut self,
        now_ns: u64,
        pipe: Option<PipeId>,
        traveller: &Traveller<P>,
        fate: Fate,
    ) {
        let Some(recorder) = &mut self.recorder else { return };
        let flow = self.flows.get(traveller.flow);
        let sight = traveller.sight(now_ns, flow);
        if traveller.passed == 0
            && let Some(host) = flow.from_host
        {
            recorder.sent(host, fate, &sight);
        }
        if let Some(pipe) = pipe {
            recorder.offered(pipe, fate, &sight);
        }
    }

    pub(super) fn record_unroutable(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        to: SocketAddr,
        packet: &Packet<P>,
    ) {
        let Some(recorder) = &mut self.recorder else { return };
        let Some(host) = self.hosts.get(&from.ip()) else { return };
        let (ecn, payload) = (packet.ecn, packet.payload.wire());
        recorder.sent(
            *host,
            Fate::NoRoute,
            &Sight { at_ns: now_ns, from, to, ecn, corrupted: false, payload },
        );
    }
}

impl<P: Payload> Traveller<P> {
    pub(super) fn sight(&self, at_ns: u64, flow: &Flow) -> Sight<'_> {
        let Traveller { ecn, corrupted, .. } = *self;
        Sight { at_ns, from: flow.from, to: flow.to, ecn, corrupted, payload: self.payload.wire() }
    }
}
