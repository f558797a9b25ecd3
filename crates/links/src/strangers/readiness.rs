//! Readiness of the sockets for strangers, behind one descriptor.
//!
//! A poller watches one epoll descriptor in place of three sockets for each address, and a receive asks it instead of reading
//! empty sockets. The kernel reports a socket once (`EPOLLONESHOT`) and again only after the link has emptied it, so the further
//! packets of a flood wake no thread. A socket with many packets within an interval is read only when the interval is over, so
//! that a flood is read and answered in batches. So is a socket that receives what a filter has left of a flood, and each socket
//! with packets while another one is flooded. Meanwhile the kernel does not watch the socket: it would look for a thread to wake
//! at each packet. A timer also reports when filters against a flood must be adapted, even if no packet passes them.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Number of receives between two questions to the kernel, because each costs a system call.
const STRIDE: u32 = 8;
/// Time that a flooded socket is left alone.
const INTERVAL: Duration = Duration::from_millis(1);
/// Number of packets of one socket within an interval that are read as they come. A server takes 8,000 handshakes a second
/// without a delay.
const PROMPT_PACKETS_MAX: usize = 8;
/// Maximum number of events taken with one system call; the kernel keeps the others.
const EVENTS_MAX: usize = 16;
/// Event of the timer; events of sockets contain their index.
const TIMER: u64 = u64::MAX;

/// The state of a socket in the readiness list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attention {
    /// The kernel will report the next packet.
    Armed,
    /// Packets may be available.
    Due,
    /// Becomes due when the timer expires.
    Deferred,
}

#[derive(Debug)]
struct Watched {
    attention: Attention,
    interval_began: Instant,
    /// Number of packets read since then.
    packets: usize,
    /// Whether these were many, or those that a filter has left.
    is_flooded: bool,
    /// Whether the kernel watches the socket.
    is_listed: bool,
}

/// A read of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) began: Instant,
    pub(crate) packets: usize,
    /// Whether it left no packets.
    pub(crate) emptied: bool,
    /// Whether the socket has a filter against a flood.
    pub(crate) is_filtered: bool,
}

/// The readiness of all sockets for strangers of a link.
#[derive(Debug)]
pub(crate) struct Readiness {
    epoll: Epoll,
    /// Makes the descriptor ready while a socket is due or deferred, about which the kernel reports nothing, or has a filter.
    timer: TimerFd,
    /// The time that the timer was set to, if it runs.
    timer_runs: Option<Duration>,
    has_expired: bool,
    watched: Vec<Watched>,
    receives: u32,
}

impl Readiness {
    /// Watches these sockets; the others of this type identify them by their index.
    pub(crate) fn new<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        epoll.add(timer.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        let mut watched = Vec::new();
        for (index, socket) in sockets.enumerate() {
            epoll.add(socket, armed(index))?;
            watched.push(Watched {
                attention: Attention::Armed,
                interval_began: Instant::now(),
                packets: 0,
                is_flooded: false,
                is_listed: true,
            });
        }
        Ok(Readiness { epoll, timer, timer_runs: None, has_expired: false, watched, receives: 0 })
    }

    /// Returns the descriptor to poll.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Begins a receive. In every few receives, asks the kernel which sockets have packets. Returns whether any is due, or
    /// the timer has expired.
    pub(crate) fn begin_receive(&mut self) -> bool {
        if self.receives.is_multiple_of(STRIDE) {
            self.take_events();
        }
        self.receives = self.receives.wrapping_add(1);
        std::mem::take(&mut self.has_expired)
            || self.watched.iter().any(|socket| socket.attention == Attention::Due)
    }

    fn take_events(&mut self) {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        // An interrupted call returns no events, and the next one returns them.
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            if event.data() == TIMER {
                self.on_timer();
            } else if let Some(socket) = self.watched.get_mut(event.data() as usize) {
                socket.attention = Attention::Due;
            }
        }
    }

    fn on_timer(&mut self) {
        // Setting the timer again also ends its readiness, so a failure has no consequence.
        let _ = self.timer.wait();
        (self.timer_runs, self.has_expired) = (None, true);
        for socket in &mut self.watched {
            if socket.attention == Attention::Deferred {
                socket.attention = Attention::Due;
            }
        }
    }

    /// Returns whether packets of the socket may be available.
    pub(crate) fn is_due(&self, index: usize) -> bool {
        self.watched[index].attention == Attention::Due
    }

    /// Records a read of the socket.
    pub(crate) fn after_read(&mut self, (index, fd): (usize, BorrowedFd<'_>), read: Read) {
        let Read { began, packets, emptied, is_filtered } = read;
        let socket = &mut self.watched[index];
        if began.saturating_duration_since(socket.interval_began) >= INTERVAL {
            (socket.interval_began, socket.packets) = (began, 0);
        }
        socket.packets += packets;
        let has_packets = socket.packets > 0;
        socket.is_flooded = socket.packets > PROMPT_PACKETS_MAX || has_packets && is_filtered;
        if !emptied {
            return;
        }
        let is_deferred = has_packets && self.watched.iter().any(|socket| socket.is_flooded);
        let socket = &mut self.watched[index];
        if is_deferred {
            socket.attention = Attention::Deferred;
            socket.is_listed = socket.is_listed && self.epoll.delete(fd).is_err();
            return;
        }
        let listed = match socket.is_listed {
            true => self.epoll.modify(fd, &mut armed(index)),
            false => self.epoll.add(fd, armed(index)),
        };
        socket.is_listed |= listed.is_ok();
        socket.attention = if listed.is_ok() { Attention::Armed } else { Attention::Due };
    }

    /// Ends a receive: ensures that the descriptor becomes ready while a socket is not armed, and after this time, if one is
    /// given.
    pub(crate) fn end_receive(&mut self, again_after: Option<Duration>) {
        let all_armed = self.watched.iter().all(|socket| socket.attention == Attention::Armed);
        let Some(time) = again_after.filter(|_| all_armed).or((!all_armed).then_some(INTERVAL)) else {
            return;
        };
        if self.timer_runs.is_some_and(|running| running <= time) {
            return;
        }
        let once = Expiration::OneShot(time.into());
        self.timer_runs = self.timer.set(once, TimerSetTimeFlags::empty()).is_ok().then_some(time);
    }
}

/// Returns the event that reports the socket once.
fn armed(index: usize) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, index as u64)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    /// Longest time that a test waits for an event that comes.
    const WAIT_MAX_MS: u16 = 10_000;

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_nonblocking(true).expect("an open socket");
        socket
    }

    fn send_to(socket: &UdpSocket) {
        let to = socket.local_addr().expect("it is bound");
        assert_eq!(socket.send_to(&[7], to).expect("loopback is up"), 1);
    }

    /// Receives so many packets, which empties the socket.
    fn take(socket: &UdpSocket, packets: usize) {
        for number in 0..packets {
            let mut readable = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut readable, PollTimeout::from(WAIT_MAX_MS)).expect("a socket");
            assert!(ready > 0, "packet {number} of {packets} does not come");
            assert!(socket.recv(&mut [0]).is_ok(), "packet {number} of {packets}");
        }
    }

    fn read_of(began: Instant, packets: usize) -> Read {
        Read { began, packets, emptied: true, is_filtered: false }
    }

    fn is_ready(readiness: &Readiness, timeout: PollTimeout) -> bool {
        poll(&mut [PollFd::new(readiness.descriptor(), PollFlags::POLLIN)], timeout).expect("a descriptor")
            > 0
    }

    /// Waits for the descriptor, and receives until the kernel was asked.
    fn wait(readiness: &mut Readiness) {
        assert!(is_ready(readiness, PollTimeout::from(WAIT_MAX_MS)), "nothing comes");
        for _ in 0..STRIDE {
            readiness.begin_receive();
        }
    }

    #[test]
    fn a_socket_is_reported_once_until_it_has_been_emptied() {
        let socket = socket();
        let mut readiness = Readiness::new([socket.as_fd()].into_iter()).expect("descriptors");
        assert!(!readiness.begin_receive() && !is_ready(&readiness, PollTimeout::ZERO), "it is empty");
        send_to(&socket);
        wait(&mut readiness);
        assert!(readiness.is_due(0));
        send_to(&socket);
        assert!(!is_ready(&readiness, PollTimeout::ZERO), "the second packet wakes nobody");
        take(&socket, 2);
        readiness.after_read((0, socket.as_fd()), read_of(Instant::now(), 2));
        readiness.end_receive(None);
        assert!(
            !readiness.is_due(0)
                && readiness.timer_runs.is_none()
                && !is_ready(&readiness, PollTimeout::ZERO)
        );
        send_to(&socket);
        assert!(is_ready(&readiness, PollTimeout::from(WAIT_MAX_MS)), "it is armed again");
    }

    #[test]
    fn a_flooded_socket_is_due_again_when_the_interval_is_over() {
        let socket = socket();
        let mut readiness = Readiness::new([socket.as_fd()].into_iter()).expect("descriptors");
        let mut began = readiness.watched[0].interval_began;
        let mut read = |packets: usize, readiness: &mut Readiness| {
            began += INTERVAL / 4;
            readiness.after_read((0, socket.as_fd()), read_of(began, packets));
            readiness.watched[0].attention
        };
        assert_eq!(read(PROMPT_PACKETS_MAX - 1, &mut readiness), Attention::Armed);
        assert_eq!(read(1, &mut readiness), Attention::Armed);
        assert_eq!(read(1, &mut readiness), Attention::Deferred, "all of an interval count together");
        readiness.end_receive(None);
        wait(&mut readiness);
        assert!(readiness.is_due(0), "the timer has expired");
        // The next interval has begun.
        began = readiness.watched[0].interval_began + INTERVAL;
        readiness.after_read((0, socket.as_fd()), read_of(began, PROMPT_PACKETS_MAX));
        assert_eq!(readiness.watched[0].attention, Attention::Armed);
    }

    #[test]
    fn the_kernel_does_not_watch_a_flooded_socket_and_reports_what_came_meanwhile() {
        let socket = socket();
        let mut readiness = Readiness::new([socket.as_fd()].into_iter()).expect("descriptors");
        let watches = |readiness: &Readiness| {
            readiness.epoll.modify(socket.as_fd(), &mut armed(0)) != Err(Errno::ENOENT)
        };
        let began = readiness.watched[0].interval_began;
        for _ in 0..2 {
            readiness.after_read((0, socket.as_fd()), read_of(began, PROMPT_PACKETS_MAX + 1));
            assert!(!watches(&readiness));
        }
        send_to(&socket);
        assert!(!is_ready(&readiness, PollTimeout::ZERO));
        readiness.after_read((0, socket.as_fd()), read_of(began + INTERVAL, 0));
        assert_eq!(readiness.watched[0].attention, Attention::Armed);
        assert!(watches(&readiness) && is_ready(&readiness, PollTimeout::from(WAIT_MAX_MS)));
    }

    #[test]
    fn a_socket_beside_a_flooded_one_or_with_a_filter_wakes_nobody_at_each_packet() {
        let sockets = [socket(), socket()];
        let mut readiness = Readiness::new(sockets.iter().map(UdpSocket::as_fd)).expect("descriptors");
        let began = readiness.watched[1].interval_began;
        let mut read = |index: usize, read: Read| {
            readiness.after_read((index, sockets[index].as_fd()), read);
            readiness.watched[index].attention
        };
        let single = read_of(began, 1);
        assert_eq!(read(1, single), Attention::Armed, "there is no flood");
        assert_eq!(read(1, Read { is_filtered: true, ..single }), Attention::Deferred);
        let next = began + INTERVAL;
        let nothing = Read { is_filtered: true, ..read_of(next, 0) };
        assert_eq!(read(1, nothing), Attention::Armed, "the filter alone is no flood");
        assert_eq!(read(0, read_of(next, 1)), Attention::Armed);
        let many = read_of(next, PROMPT_PACKETS_MAX);
        assert_eq!(read(0, many), Attention::Deferred);
        assert_eq!(read(1, read_of(next, 1)), Attention::Deferred, "beside the flood");
        let later = next + INTERVAL;
        assert_eq!(read(1, read_of(later, 1)), Attention::Deferred, "the flood is read after it");
        assert_eq!(read(0, read_of(later, 1)), Attention::Armed);
        assert_eq!(read(1, read_of(later + INTERVAL, 1)), Attention::Armed);
    }

    #[test]
    fn the_kernel_is_asked_in_every_few_receives() {
        let socket = socket();
        let mut readiness = Readiness::new([socket.as_fd()].into_iter()).expect("descriptors");
        assert!(!readiness.begin_receive());
        send_to(&socket);
        assert!(is_ready(&readiness, PollTimeout::from(WAIT_MAX_MS)));
        for receive in 1..STRIDE {
            assert!(!readiness.begin_receive(), "receive {receive} asks nobody");
        }
        assert!(
            readiness.begin_receive() && readiness.begin_receive(),
            "a socket is due until it is emptied"
        );
    }

    #[test]
    fn a_socket_that_was_not_emptied_keeps_the_descriptor_ready() {
        let socket = socket();
        let mut readiness = Readiness::new([socket.as_fd()].into_iter()).expect("descriptors");
        send_to(&socket);
        wait(&mut readiness);
        for _ in 0..3 {
            let left = Read { emptied: false, ..read_of(Instant::now(), 1) };
            readiness.after_read((0, socket.as_fd()), left);
            assert!(readiness.is_due(0));
            readiness.end_receive(None);
            wait(&mut readiness);
        }
    }

    #[test]
    fn a_timer_without_packets_is_reported_once() {
        let socket = socket();
        let mut readiness = Readiness::new([socket.as_fd()].into_iter()).expect("descriptors");
        readiness.end_receive(Some(INTERVAL));
        assert!(is_ready(&readiness, PollTimeout::from(WAIT_MAX_MS)));
        assert!(readiness.begin_receive(), "a filter may have to be adapted");
        assert!(!readiness.begin_receive());
    }

    #[test]
    fn a_timer_that_runs_is_not_put_off() {
        let socket = socket();
        let mut readiness = Readiness::new([socket.as_fd()].into_iter()).expect("descriptors");
        const TIME: Duration = Duration::from_secs(3600);
        readiness.end_receive(Some(TIME));
        let half = Expiration::OneShot((TIME / 2).into());
        readiness.timer.set(half, TimerSetTimeFlags::empty()).expect("a timer");
        readiness.end_receive(Some(TIME));
        match readiness.timer.get().expect("a timer") {
            Some(Expiration::OneShot(rest)) => assert!(Duration::from(rest) <= TIME / 2, "{rest}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_descriptor_becomes_ready_after_a_given_time_and_sooner_for_a_flooded_socket() {
        let socket = socket();
        let mut readiness = Readiness::new([socket.as_fd()].into_iter()).expect("descriptors");
        const SOON: Duration = Duration::from_millis(5);
        readiness.end_receive(Some(SOON));
        assert_eq!(readiness.timer_runs, Some(SOON));
        readiness.after_read((0, socket.as_fd()), read_of(Instant::now(), PROMPT_PACKETS_MAX + 1));
        readiness.end_receive(Some(SOON));
        assert_eq!(readiness.timer_runs, Some(INTERVAL));
        assert!(is_ready(&readiness, PollTimeout::from(WAIT_MAX_MS)));
        readiness.take_events();
        assert!(readiness.begin_receive() && readiness.timer_runs.is_none());
    }
}
