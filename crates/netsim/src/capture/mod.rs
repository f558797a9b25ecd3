//! Captures of the packets that pass a host or a pipe, written as files.

mod datagram;

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError};

use crate::{DropReason, Ecn, HostId, Passage, PipeId, Verdict};

/// A capture: its place in the network, and the pcapng file that Wireshark and similar programs read.
///
/// Each host and pipe is an interface of the file. A host shows the packets that it sends and receives; a pipe shows those
/// that enter it. Times are those of the virtual clock, to the nanosecond, from 1970 on. The network's
/// packets have no headers of their own, so each is written as a UDP datagram in IPv4 or IPv6 between the addresses that
/// it has in the network, with its ECN field, right lengths and right checksums; a payload that is longer than a datagram
/// is cut. The comment of a packet states its fate: dropped and why, marked, sent twice, damaged. At a host the comment
/// covers only the first pipe.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use netsim::{Capture, CaptureBuffer, Loss, Network, PipeConfig};
///
/// let (a, b): (SocketAddr, SocketAddr) = ("10.0.0.1:9899".parse()?, "10.0.0.2:9899".parse()?);
/// let mut network = Network::new(1);
/// let client = network.add_host(&[a.ip()]);
/// network.add_host(&[b.ip()]);
/// let (there, _) = network.connect(a.ip(), b.ip(), &PipeConfig::default());
///
/// let buffer = CaptureBuffer::default(); // or a file
/// network.start_capture(Capture::to(buffer.clone()).host(client, "client").pipe(there, "line"))?;
/// network.send(0, a, b, 1250, "hello");
/// network.pipe_mut(there).set_loss(Loss::Always);
/// network.send(7, a, b, 1250, "anybody?"); // commented "dropped: lost on the line"
/// network.stop_capture()?;
/// assert!(buffer.bytes().starts_with(b"\x0a\x0d\x0d\x0a"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Capture {
    out: Box<dyn Write + Send>,
    points: Vec<(Point, String)>,
    packet_bytes_max: usize,
}

/// A place at which packets are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Host(HostId),
    Pipe(PipeId),
}

impl Capture {
    /// Returns a capture that records nothing yet. Wrap a file in a [`BufWriter`](io::BufWriter).
    ///
    /// ```
    /// # use netsim::{Capture, Network};
    /// let mut network = Network::<()>::new(0);
    /// network.start_capture(Capture::to(std::io::sink()))?;
    /// # Ok::<(), netsim::CaptureError>(())
    /// ```
    pub fn to(out: impl Write + Send + 'static) -> Self {
        Capture { out: Box::new(out), points: Vec::new(), packet_bytes_max: usize::MAX }
    }

    /// Records also the packets that a host sends and receives.
    ///
    /// ```
    /// # use netsim::{Capture, Network};
    /// let host = Network::<()>::new(0).add_host(&[]);
    /// let capture = Capture::to(std::io::sink()).host(host, "client");
    /// ```
    pub fn host(mut self, host: HostId, name: &str) -> Self {
        self.points.push((Point::Host(host), name.to_owned()));
        self
    }

    /// Records also the packets at the near end of a pipe.
    ///
    /// ```
    /// # use netsim::{Capture, Network, PipeConfig};
    /// let pipe = Network::<()>::new(0).add_pipe(&PipeConfig::default());
    /// let capture = Capture::to(std::io::sink()).pipe(pipe, "bottleneck");
    /// ```
    pub fn pipe(mut self, pipe: PipeId, name: &str) -> Self {
        self.points.push((Point::Pipe(pipe), name.to_owned()));
        self
    }

    /// Keeps the first bytes of each packet alone, headers included. Default: all of it.
    ///
    /// ```
    /// # use netsim::Capture;
    /// let headers_alone = Capture::to(std::io::sink()).packet_bytes_max(128);
    /// ```
    pub fn packet_bytes_max(mut self, bytes: usize) -> Self {
        self.packet_bytes_max = bytes;
        self
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("points", &self.points).finish_non_exhaustive()
    }
}

/// A place in memory to capture to. Copies share it.
///
/// # Examples
///
/// See [`Capture`].
#[derive(Clone, Debug, Default)]
pub struct CaptureBuffer(Arc<Mutex<Vec<u8>>>);

impl CaptureBuffer {
    /// Returns the bytes captured so far; all of them once the capture has stopped.
    ///
    /// ```
    /// assert_eq!(netsim::CaptureBuffer::default().bytes(), []);
    /// ```
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Write for CaptureBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A capture could not be written.
///
/// # Examples
///
/// ```
/// use netsim::{Capture, Network};
///
/// let full: &mut [u8] = Box::leak(Box::new([0u8; 10]));
/// let error = Network::<()>::new(0).start_capture(Capture::to(full)).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the capture could not be written; see that there is room for it: failed to write whole buffer"
/// );
/// ```
#[derive(Debug)]
pub struct CaptureError(PcapError);

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = "the capture could not be written; see that there is room for it";
        match &self.0 {
            // pcap-file says of each error of a reader or writer that it read bytes.
            PcapError::IoError(error) => write!(f, "{advice}: {error}"),
            error => write!(f, "{advice}: {error}"),
        }
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// A packet as a capture sees it.
pub(crate) struct Sight<'a> {
    pub(crate) at_ns: u64,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: Ecn,
    pub(crate) corrupted: bool,
    pub(crate) payload: Cow<'a, [u8]>,
}

/// Fate of a packet that comes to a pipe, or the reason why it does not come to one.
#[derive(Clone, Copy)]
pub(crate) enum Fate {
    Passes(Passage),
    Dropped(DropReason),
    Filtered,
    NoRoute,
    /// The route has no pipes.
    Direct,
}

impl From<Verdict> for Fate {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Deliver(passage) => Fate::Passes(passage),
            Verdict::Drop(reason) => Fate::Dropped(reason),
        }
    }
}

/// Direction of a packet, as in the option `epb_flags`.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Direction {
    Inbound = 0b01,
    Outbound = 0b10,
}

/// A capture that runs.
pub(crate) struct Recorder {
    writer: PcapNgWriter<Box<dyn Write + Send>>,
    /// The interface's number is the place in the list.
    points: Vec<Point>,
    packet_bytes_max: usize,
    datagram: Vec<u8>,
    /// Once there is one, nothing more is written.
    error: Option<PcapError>,
}

impl Recorder {
    pub(crate) fn start(capture: Capture) -> Result<Self, CaptureError> {
        let Capture { out, points, packet_bytes_max } = capture;
        // A fixed byte order makes the file equal on every machine.
        let mut writer = PcapNgWriter::with_endianness(out, Endianness::Little).map_err(CaptureError)?;
        // 0 stands for no bound.
        let snaplen = u32::try_from(packet_bytes_max).unwrap_or(0);
        for (_, name) in &points {
            let options = vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                // Times are in units of 10^-9 s.
                InterfaceDescriptionOption::IfTsResol(9),
            ];
            let interface = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen, options };
            // The writer keeps the blocks of interfaces, so they must own what they hold.
            writer.write_pcapng_block(interface.into_owned()).map_err(CaptureError)?;
        }
        let points = points.into_iter().map(|(point, _)| point).collect();
        Ok(Recorder { writer, points, packet_bytes_max, datagram: Vec::new(), error: None })
    }

    pub(crate) fn stop(mut self) -> Result<(), CaptureError> {
        match self.error.take() {
            Some(error) => Err(CaptureError(error)),
            None => self.writer.get_mut().flush().map_err(|error| CaptureError(PcapError::IoError(error))),
        }
    }

    /// Records a packet that leaves a host.
    pub(crate) fn sent(&mut self, host: HostId, fate: Fate, sight: &Sight<'_>) {
        self.record(Point::Host(host), Direction::Outbound, Some(fate), sight);
    }

    /// Records a packet that enters a pipe.
    pub(crate) fn offered(&mut self, pipe: PipeId, fate: Fate, sight: &Sight<'_>) {
        self.record(Point::Pipe(pipe), Direction::Inbound, Some(fate), sight);
    }

    /// Records a packet that has arrived.
    pub(crate) fn arrived(&mut self, host: HostId, sight: &Sight<'_>) {
        self.record(Point::Host(host), Direction::Inbound, None, sight);
    }

    fn record(&mut self, point: Point, direction: Direction, fate: Option<Fate>, sight: &Sight<'_>) {
        for interface in
            (0..self.points.len()).filter(|place| self.points[*place] == point).collect::<Vec<_>>()
        {
            if self.error.is_none() {
                self.error = self.write(interface, direction, fate, sight).err();
            }
        }
    }

    fn write(
        &mut self,
        interface: usize,
        direction: Direction,
        fate: Option<Fate>,
        sight: &Sight<'_>,
    ) -> Result<(), PcapError> {
        self.datagram.clear();
        let whole = datagram::write(sight.from, sight.to, sight.ecn, &sight.payload, &mut self.datagram);
        let mut options = vec![EnhancedPacketOption::Flags(direction as u32)];
        let mut comment = |text: String| options.push(EnhancedPacketOption::Comment(Cow::Owned(text)));
        if sight.corrupted {
            comment("damaged on the way".to_owned());
        }
        if !whole {
            comment(format!("cut: it carries {} bytes", sight.payload.len()));
        }
        if let Some(fate) = fate {
            comments_on(fate, sight.ecn).into_iter().for_each(comment);
        }
        let kept = self.datagram.len().min(self.packet_bytes_max);
        let packet = EnhancedPacketBlock {
            interface_id: interface as u32,
            timestamp: Duration::from_nanos(sight.at_ns),
            original_len: self.datagram.len() as u32,
            data: Cow::Borrowed(&self.datagram[..kept]),
            options,
        };
        self.writer.write_pcapng_block(packet)?;
        Ok(())
    }
}

/// Returns the comments for a packet that has this fate.
fn comments_on(fate: Fate, ecn: Ecn) -> Vec<String> {
    let passage = match fate {
        Fate::Passes(passage) => passage,
        Fate::Dropped(reason) => return vec![format!("dropped: {reason}")],
        Fate::Filtered => return vec!["dropped: a filter took it".to_owned()],
        Fate::NoRoute => return vec!["dropped: no route leads there".to_owned()],
        Fate::Direct => return Vec::new(),
    };
    let mut comments = Vec::new();
    if passage.ecn != ecn {
        comments.push(format!("marked {}", passage.ecn));
    }
    if let Some(flips) = passage.flips {
        comments.push(format!("damaged, bits: {}", flips.bits));
    }
    if passage.late {
        comments.push("late".to_owned());
    }
    if let Some(behind) = passage.behind {
        comments.push(format!("waits for {} others", behind.packets));
    }
    if passage.copy_at_ns.is_some() {
        comments.push("sent twice".to_owned());
    }
    comments
}
