//! The end that receives, counts and answers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::acceptor::Acceptor;
use super::config::ServerConfig;
use super::control::{
    Control, ControlError, FromClient, FromServer, Interval, Purpose, Speaker, Totals, VERSION,
};
use super::spec::{Link, Spec};
use crate::load::{LoadError, Meter, Span};
use crate::{host, interrupt, sockets};

/// Part of an interval that the end of a test must have for a report of its own.
const REMAINDER_MIN: f64 = 0.1;
/// Interval at which a waiting server checks for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a new connection may take to send its preamble.
const PREAMBLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a client may take to ask for its test.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the remaining data to arrive after the client has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Number of messages of a client after its request: `Go` and `Done`.
const CLIENT_MESSAGES_MAX: usize = 2;
/// Time without a message of the client and without data after which a test is over, so that others can have theirs.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Record of one test that a server has served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The test.
    pub spec: Spec,
    /// Data that arrived.
    pub totals: Totals,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
}

/// Events of a running server.
#[derive(Clone, Debug)]
pub(crate) enum ServerEvent {
    /// A test begins.
    Started(SocketAddr, Spec),
    /// Data that arrived since the last report.
    Interval(Interval),
    /// A test is over.
    Served(Served),
    /// A test was refused or broke off.
    Failed(SocketAddr, String),
}

/// Error of a server.
#[derive(Debug, Error)]
pub(crate) enum ServerError {
    /// The port is not available.
    #[error("cannot listen on {address}: {source}; {advice}", advice = advice("--port", source))]
    Bind { address: SocketAddr, source: io::Error },
    /// The UDP port is not available.
    #[error("cannot bind UDP port {port} on {ip}: {source}; {advice}", port = address.port(), ip = address.ip(), advice = advice("--udp-port", source))]
    Udp { address: SocketAddr, source: io::Error },
    /// The system failed later.
    #[error("the server had to stop: {0}")]
    Io(#[from] io::Error),
}

/// Returns a remedy for an address and port that are not available, which `option` chooses.
fn advice(option: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "stop the other program there (`ss -tulpn` as root lists them, `swiftwater daemon stop` ends a daemon), or choose another port with {option}"
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            "give -B addresses of this host: `ip address` lists them".to_owned()
        }
        io::ErrorKind::PermissionDenied => format!("choose a port above 1023 with {option}, or be root"),
        _ => format!("choose another address with -B or another port with {option}"),
    }
}

/// A listening server.
pub(crate) struct Server {
    listener: TcpListener,
    config: ServerConfig,
    tests: u64,
}

impl Server {
    /// Listens. Without addresses, listens on all of IPv6 and IPv4, or of IPv4 if there is no IPv6.
    pub(crate) fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let first = config.control.or(config.addresses.first().copied());
        let address = SocketAddr::new(first.unwrap_or(any), config.port);
        let mut bound = sockets::listen(address, None);
        if first.is_none() && bound.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::AddrInUse) {
            bound = sockets::listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), config.port), None);
        }
        let listener = bound.map_err(|source| ServerError::Bind { address, source })?;
        Ok(Self { listener, config, tests: 0 })
    }

    /// Checks that the UDP port of later tests is free, if they need one.
    pub(crate) fn check_udp_port(&self) -> Result<(), ServerError> {
        if self.config.link == Link::Raw {
            return Ok(());
        }
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
        let addresses = if self.config.addresses.is_empty() { &any[..] } else { &self.config.addresses };
        for &address in addresses {
            let address = SocketAddr::new(address, self.config.udp_port);
            sockets::bind_udp(address, None).map_err(|source| ServerError::Udp { address, source })?;
        }
        Ok(())
    }

    /// Returns the address on which the server listens.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves tests one after another, at most `tests_max`, until Ctrl-C or until no client has come for `patience`.
    pub(crate) fn run(
        &mut self,
        tests_max: Option<u64>,
        patience: Option<Duration>,
        observe: &mut dyn FnMut(ServerEvent),
    ) -> Result<(), ServerError> {
        let mut idle_since = Instant::now();
        while !interrupt::requested() && tests_max.is_none_or(|max| self.tests < max) {
            if let Some((stream, client)) = sockets::accept_within(&self.listener, CHECK_INTERVAL)? {
                if self.serve(stream, client, observe) {
                    self.tests += 1;
                }
                idle_since = Instant::now();
            } else if patience.is_some_and(|patience| idle_since.elapsed() > patience) {
                break;
            }
        }
        Ok(())
    }

    /// Serves one control connection; returns true if it asked for a test.
    fn serve(&self, stream: TcpStream, client: SocketAddr, observe: &mut dyn FnMut(ServerEvent)) -> bool {
        if !self.config.clients.admit(&stream) {
            return false;
        }
        let Ok(Some(mut control)) = open_control(stream) else { return false };
        let spec = match control.hear(Some(ASK_TIMEOUT)) {
            Ok(FromClient::Test { version: VERSION, spec }) => spec,
            Ok(_) | Err(ControlError::NotUnderstood) => {
                let reason = "run the same version of swiftwater at both ends".to_owned();
                let _ = control.say(&FromServer::Refused { reason });
                return false;
            }
            Err(_) => return false,
        };
        if let Err(reason) = self.serve_test(control, client, &spec, observe) {
            observe(ServerEvent::Failed(client, reason));
        }
        true
    }

    fn serve_test(
        &self,
        mut control: Control,
        client: SocketAddr,
        spec: &Spec,
        observe: &mut dyn FnMut(ServerEvent),
    ) -> Result<(), String> {
        let token = host::random();
        let acceptor = spec.check().map_err(|error| error.to_string()).and_then(|()| {
            Acceptor::open(spec, &self.listener, &self.config, token).map_err(|error| error.to_string())
        });
        let acceptor = match acceptor {
            Ok(acceptor) => acceptor,
            Err(reason) => {
                let _ = control.say(&FromServer::Refused { reason: reason.clone() });
                return Err(reason);
            }
        };
        observe(ServerEvent::Started(client, spec.clone()));
        let mut speaker = control.speaker().map_err(|error| error.to_string())?;
        let mut test = RunningTest::start(Arc::new(acceptor), spec, control, &mut speaker, token)?;
        let outcome = test.watch(spec, &mut speaker, observe);
        test.end();
        let said = match &outcome {
            Ok(totals) => speaker.say(&FromServer::Totals(*totals)),
            Err(reason) => speaker.say(&FromServer::Failed { reason: reason.clone() }),
        };
        // The client reads the totals and closes; hanging up before that could lose them on their way.
        test.wait_for_client();
        speaker.hang_up();
        let totals = outcome?;
        let interrupted = interrupt::requested();
        observe(ServerEvent::Served(Served { spec: spec.clone(), totals, interrupted }));
        if interrupted { Ok(()) } else { said.map_err(|error| error.to_string()) }
    }
}

/// A report of a thread of a test.
enum Event {
    Worker(Result<Span, LoadError>),
    Heard(FromClient),
    ClientGone,
}

/// A running test: a thread for each association and one that reads the client's messages.
struct RunningTest {
    acceptor: Arc<Acceptor>,
    stop: Arc<AtomicBool>,
    meters: Vec<Arc<Meter>>,
    events: Receiver<Event>,
    workers_left: usize,
    client_left: bool,
    span: Span,
    /// When the server said that it is ready. No client sends before.
    ready: Instant,
    /// Time that the client has sent for, as it says, once it has ended.
    sending_s: Option<f64>,
}

impl RunningTest {
    fn start(
        acceptor: Arc<Acceptor>,
        spec: &Spec,
        control: Control,
        speaker: &mut Speaker,
        token: u64,
    ) -> Result<Self, String> {
        let (events_in, events) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut meters = Vec::new();
        for index in 0..spec.parallel {
            let meter = Arc::new(Meter::default());
            meters.push(Arc::clone(&meter));
            let (acceptor, stop, spec, events) =
                (Arc::clone(&acceptor), Arc::clone(&stop), spec.clone(), events_in.clone());
            thread::spawn(move || {
                let outcome = acceptor.serve(index, &spec, &stop, &meter);
                let _ = events.send(Event::Worker(outcome));
            });
        }
        let (ports, udp_port) = acceptor.ports();
        let ready = Instant::now();
        speaker.say(&FromServer::Ready { token, ports, udp_port }).map_err(|error| error.to_string())?;
        thread::spawn(move || read_client(control, &events_in));
        let workers_left = spec.parallel;
        Ok(Self {
            acceptor,
            stop,
            meters,
            events,
            workers_left,
            client_left: false,
            span: Span::default(),
            ready,
            sending_s: None,
        })
    }

    /// Follows the test to its end and counts the arrivals.
    fn watch(
        &mut self,
        spec: &Spec,
        speaker: &mut Speaker,
        observe: &mut dyn FnMut(ServerEvent),
    ) -> Result<Totals, String> {
        let mut cpu_before = host::processor_time();
        let mut began = Instant::now();
        // Before the test begins there is nothing to report.
        let mut reports: Option<Reports> = None;
        let mut give_up = None;
        let mut silence = Silence::new(began);
        while self.workers_left > 0 && !interrupt::requested() {
            if give_up.is_some_and(|at| Instant::now() > at) {
                return Err(
                    "what the client sent did not all arrive in time; the path may lose packets".into()
                );
            }
            let event = self.events.recv_timeout(reports.as_ref().map_or(CHECK_INTERVAL, Reports::wait));
            let total = Meter::total(&self.meters);
            if silence.observe(Instant::now(), event.is_ok(), total) == Client::Silent {
                return Err(format!("the client has sent nothing for {} s", SILENCE_MAX.as_secs()));
            }
            match event {
                Ok(Event::Worker(Ok(span))) => self.finish_worker(span),
                Ok(Event::Worker(Err(error))) => return Err(error.to_string()),
                Ok(Event::Heard(FromClient::Go)) => {
                    cpu_before = host::processor_time();
                    began = Instant::now();
                    reports = Some(Reports::new(spec, began));
                }
                Ok(Event::Heard(heard)) => {
                    self.hear_end(&heard);
                    self.stop.store(true, Ordering::Relaxed);
                    give_up = Some(Instant::now() + DRAIN_TIMEOUT);
                }
                Ok(Event::ClientGone) => {
                    self.client_left = true;
                    return Err("the client went away before the test was over".into());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(report) = reports.as_mut().and_then(|reports| reports.due(spec, &self.meters)) {
                // A client that does not read its reports would hold up the test.
                speaker.say(&FromServer::Interval(report)).map_err(|error| error.to_string())?;
                observe(ServerEvent::Interval(report));
            }
        }
        if let Some(report) = reports.as_mut().and_then(|reports| reports.remainder(spec, &self.meters)) {
            let _ = speaker.say(&FromServer::Interval(report));
            observe(ServerEvent::Interval(report));
        }
        let (calls, bytes) = Meter::total(&self.meters);
        let cpu_s = (host::processor_time() - cpu_before).as_secs_f64();
        let elapsed_s = began.elapsed().as_secs_f64();
        self.wait_for_sending_time();
        let sending_s = self.sending_s.unwrap_or(0.0).min(self.ready.elapsed().as_secs_f64());
        let seconds = duration_s(self.span, elapsed_s, sending_s);
        Ok(Totals {
            messages: spec.messages(calls, bytes),
            bytes,
            seconds,
            cpu_s,
            nice: host::current_nice(),
        })
    }

    /// Waits until the client has told how long it has sent, which it does behind the end of its last connection.
    fn wait_for_sending_time(&mut self) {
        let until = Instant::now() + ASK_TIMEOUT;
        while self.sending_s.is_none()
            && !self.client_left
            && !interrupt::requested()
            && Instant::now() < until
        {
            match self.events.recv_timeout(CHECK_INTERVAL) {
                Ok(Event::Heard(heard)) => self.hear_end(&heard),
                Ok(Event::ClientGone) | Err(RecvTimeoutError::Disconnected) => self.client_left = true,
                Ok(Event::Worker(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn hear_end(&mut self, heard: &FromClient) {
        if let FromClient::Done { sending_s } = heard {
            self.sending_s = Some(*sending_s);
        }
    }

    fn finish_worker(&mut self, span: Span) {
        self.workers_left -= 1;
        self.span.first = [self.span.first, span.first].into_iter().flatten().min();
        self.span.last = [self.span.last, span.last].into_iter().flatten().max();
    }

    /// Stops the remaining threads.
    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.acceptor.close();
    }

    fn wait_for_client(&mut self) {
        let until = Instant::now() + ASK_TIMEOUT;
        while !self.client_left && !interrupt::requested() && Instant::now() < until {
            self.client_left |= matches!(self.events.recv_timeout(CHECK_INTERVAL), Ok(Event::ClientGone));
        }
    }
}

/// Returns the time that the rates of a test refer to. If the receiver was late, all that was sent until then arrives within a
/// moment, which is no measure; so it is at least the time of the sending.
fn duration_s(arrivals: Span, elapsed_s: f64, sending_s: f64) -> f64 {
    let arriving_s = match (arrivals.first, arrivals.last) {
        (Some(first), Some(last)) if last > first => (last - first).as_secs_f64(),
        _ => elapsed_s,
    };
    arriving_s.max(sending_s)
}

/// Reports the messages of the client, and then its end. A client that sends more than these messages is none of ours, and counts
/// as gone.
fn read_client(mut control: Control, events: &Sender<Event>) {
    for _ in 0..CLIENT_MESSAGES_MAX {
        let Ok(heard) = control.hear(None) else { break };
        if events.send(Event::Heard(heard)).is_err() {
            return;
        }
    }
    // It leaves once it has read the totals.
    let _ = control.hear::<FromClient>(None);
    let _ = events.send(Event::ClientGone);
}

/// Whether a client is active, by its last messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Client {
    Active,
    /// Nothing has come from it for [`SILENCE_MAX`].
    Silent,
}

/// Watches for a client that neither says nor sends anything.
struct Silence {
    since: Instant,
    counted: (u64, u64),
}

impl Silence {
    fn new(now: Instant) -> Self {
        Self { since: now, counted: (0, 0) }
    }

    /// Observes whether there was an event, and all that has arrived.
    fn observe(&mut self, now: Instant, event: bool, counted: (u64, u64)) -> Client {
        if event || counted != self.counted {
            *self = Self { since: now, counted };
        }
        let is_silent = now.saturating_duration_since(self.since) > SILENCE_MAX;
        if is_silent { Client::Silent } else { Client::Active }
    }
}

/// Reports of a test with intervals.
struct Reports {
    interval: Option<Duration>,
    began: Instant,
    next: Instant,
    last_s: f64,
    last: (u64, u64),
}

impl Reports {
    fn new(spec: &Spec, began: Instant) -> Self {
        let interval = (spec.interval_ms > 0).then(|| Duration::from_millis(spec.interval_ms));
        Self { interval, began, next: began + interval.unwrap_or_default(), last_s: 0.0, last: (0, 0) }
    }

    fn wait(&self) -> Duration {
        let until_next = self.interval.map(|_| self.next.saturating_duration_since(Instant::now()));
        until_next.unwrap_or(CHECK_INTERVAL).min(CHECK_INTERVAL)
    }

    fn due(&mut self, spec: &Spec, meters: &[Arc<Meter>]) -> Option<Interval> {
        let interval = self.interval?;
        if Instant::now() < self.next {
            return None;
        }
        self.next += interval;
        Some(self.report(spec, meters))
    }

    /// Returns the report of what is left at the end of the test, unless that is too short to have a rate.
    fn remainder(&mut self, spec: &Spec, meters: &[Arc<Meter>]) -> Option<Interval> {
        let left_s = self.began.elapsed().as_secs_f64() - self.last_s;
        let whole_s = self.interval?.as_secs_f64();
        (left_s >= whole_s * REMAINDER_MIN).then(|| self.report(spec, meters))
    }

    fn report(&mut self, spec: &Spec, meters: &[Arc<Meter>]) -> Interval {
        let (calls, bytes) = Meter::total(meters);
        let (start_s, end_s) = (self.last_s, self.began.elapsed().as_secs_f64());
        let messages = spec.messages(calls, bytes) - spec.messages(self.last.0, self.last.1);
        let report = Interval { start_s, end_s, messages, bytes: bytes - self.last.1 };
        self.last_s = end_s;
        self.last = (calls, bytes);
        report
    }
}

/// Accepts a new connection as a control connection if its preamble says so.
fn open_control(stream: TcpStream) -> io::Result<Option<Control>> {
    match Purpose::read(&stream, PREAMBLE_TIMEOUT)? {
        Some(Purpose::Control) => Control::new(stream).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::spec::example;

    #[test]
    fn a_client_is_silent_when_neither_messages_nor_data_come() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut silence = Silence::new(began);
        let mut observe = |seconds, event, counted| silence.observe(at(seconds), event, counted);
        assert_eq!([60, 61].map(|at| observe(at, false, (0, 0))), [Client::Active, Client::Silent]);
        assert_eq!(observe(61, true, (0, 0)), Client::Active, "a message has come");
        assert_eq!(observe(120, false, (1, 64)), Client::Active, "data has come");
        assert_eq!([180, 181].map(|at| observe(at, false, (1, 64))), [Client::Active, Client::Silent]);
    }

    #[test]
    fn a_client_that_repeats_messages_counts_as_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a listener");
        let control = Control::new(listener.accept().expect("a client").0).expect("a live connection");
        io::Write::write_all(&mut client, &b"{\"say\":\"go\"}\n".repeat(100)).expect("room");
        let (events, heard) = channel();
        read_client(control, &events);
        drop(events);
        let heard: Vec<Event> = heard.iter().collect();
        assert!(matches!(heard[..], [Event::Heard(_), Event::Heard(_), Event::ClientGone]));
    }

    #[test]
    fn a_client_that_has_ended_its_side_is_there_until_it_leaves() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a listener");
        let control = Control::new(listener.accept().expect("a client").0).expect("a live connection");
        io::Write::write_all(&mut client, b"{\"say\":\"go\"}\n{\"say\":\"done\",\"sending_s\":1.0}\n")
            .expect("room");
        let (events, heard) = channel();
        thread::spawn(move || read_client(control, &events));
        assert!(matches!(heard.recv(), Ok(Event::Heard(FromClient::Go))));
        assert!(matches!(heard.recv(), Ok(Event::Heard(FromClient::Done { .. }))));
        assert!(matches!(heard.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout)));
        drop(client);
        assert!(matches!(heard.recv(), Ok(Event::ClientGone)));
    }

    #[test]
    fn arrivals_in_one_moment_are_measured_by_the_time_of_the_sending() {
        let at = Instant::now();
        let arrivals = |ms| Span { first: Some(at), last: Some(at + Duration::from_millis(ms)) };
        assert_eq!(duration_s(arrivals(10), 1.5, 1.0), 1.0);
        assert_eq!(duration_s(arrivals(1200), 1.5, 1.0), 1.2);
        assert_eq!(duration_s(arrivals(0), 1.5, 0.0), 1.5);
        assert_eq!(duration_s(Span::default(), 1.5, 1.0), 1.5);
    }

    /// Reports, in intervals of 1000 s, of a test that began so many seconds ago.
    fn reports(seconds_ago: u64) -> (Spec, Reports) {
        let spec = Spec { interval_ms: 1_000_000, ..example() };
        let began =
            Instant::now().checked_sub(Duration::from_secs(seconds_ago)).expect("the host has run so long");
        let reports = Reports::new(&spec, began);
        (spec, reports)
    }

    #[test]
    fn the_end_of_a_test_is_reported_unless_it_is_short() {
        let (spec, mut short) = reports(0);
        assert_eq!(short.remainder(&spec, &[]), None);
        let (spec, mut long) = reports(110);
        let report = long.remainder(&spec, &[]).expect("more than a tenth");
        assert!(report.start_s == 0.0 && report.end_s >= 110.0, "{report:?}");
        let without = Spec { interval_ms: 0, ..spec };
        assert_eq!(Reports::new(&without, long.began).remainder(&without, &[]), None);
    }
}
