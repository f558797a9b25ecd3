//! The end that sends data and makes requests.

use std::collections::VecDeque;
use std::io::{self, BufRead as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use swiftwater::PathStatistics;
use thiserror::Error;

use super::config::ClientConfig;
use super::connector::{Connector, Window};
use super::control::{
    Control, ControlError, FromClient, FromServer, Interval, Purpose, Speaker, Totals, VERSION,
};
use super::spec::{Exchange, Link, Protocol, SpecError};
use crate::load::sctp_transport::offered_link;
use crate::load::{LoadError, Meter, histogram};
use crate::moment::Moment;
use crate::output::note;
use crate::sockets::Connecting;
use crate::{host, interrupt, sockets};

/// Interval at which a running test checks for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a server may take to answer; it may be running another test.
const READY_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for delivery of the remaining data after the end of the test.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to wait for the other end's report of a failure.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// Largest number of windows that wait for the report of their interval: those of a minute and more without any report.
const SAMPLES_MAX: usize = 1024;

/// Line of a client that has connected and waits for its release.
pub(crate) const CONNECTED: &str = "connected: begins after a line on standard input";

/// Result of a test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Data sent.
    pub client: Totals,
    /// Data delivered.
    pub server: Totals,
    /// Latency of the answers, if the test has answers.
    pub latency: Option<Latency>,
    /// Totals of each path of SCTP.
    #[serde(default)]
    pub paths: Vec<PathTotals>,
    /// Start of the test.
    #[serde(default)]
    pub began: Moment,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// The link that carried SCTP: UDP or IP.
    #[serde(default)]
    pub link: Option<Link>,
}

/// Totals of one path of an association.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PathTotals {
    /// Our address, unless the system chooses it for each packet.
    pub local: Option<IpAddr>,
    /// The server's address.
    pub remote: IpAddr,
    /// State at the end.
    pub state: String,
    /// Bytes of DATA chunks that arrived over it.
    pub bytes: u64,
    /// Packets with data that were lost on it.
    pub packets_lost: u64,
    /// Smoothed round-trip time, once measured.
    pub srtt_us: Option<f64>,
}

impl From<&PathStatistics> for PathTotals {
    fn from(path: &PathStatistics) -> Self {
        PathTotals {
            local: path.local.map(|local| local.to_canonical()),
            remote: path.remote.ip().to_canonical(),
            state: path.state.name().to_owned(),
            bytes: path.delivered_bytes,
            packets_lost: path.packets_lost,
            srtt_us: path.srtt.map(|srtt| srtt.as_secs_f64() * 1e6),
        }
    }
}

impl Outcome {
    /// Returns the delivered messages per second; in a test with answers, the exchanges per second.
    pub(crate) fn messages_per_s(&self) -> f64 {
        per(self.server.messages as f64, self.seconds())
    }

    /// Returns the delivered bits of messages per second.
    pub(crate) fn bits_per_s(&self) -> f64 {
        per(self.server.bytes as f64 * 8.0, self.seconds())
    }

    /// Returns the time that the rates refer to: from the first to the last delivery, or of all exchanges.
    pub(crate) fn seconds(&self) -> f64 {
        if self.latency.is_some() { self.client.seconds } else { self.server.seconds }
    }
}

/// Returns the quotient, or 0 for a divisor of 0.
pub(crate) fn per(amount: f64, of: f64) -> f64 {
    if of > 0.0 { amount / of } else { 0.0 }
}

/// Percentiles of the latency from request to answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Minimum.
    pub min_us: f64,
    /// Mean of all answers.
    pub mean_us: f64,
    /// Mean over the time: each answer weighs as much as it took, so that one that is awaited for long counts.
    pub mean_over_time_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

impl Latency {
    /// Returns the percentiles of recorded nanoseconds.
    pub(crate) fn of(latencies: &Histogram<u64>) -> Self {
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            min_us: latencies.min() as f64 / 1e3,
            mean_us: latencies.mean() / 1e3,
            mean_over_time_us: mean_over_time(latencies) / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: latencies.max() as f64 / 1e3,
        }
    }
}

/// Returns the mean of values that each weigh as much as they are large: the sum of their squares by their sum.
fn mean_over_time(latencies: &Histogram<u64>) -> f64 {
    let mean = latencies.mean();
    per(latencies.stdev().powi(2) + mean.powi(2), mean)
}

/// Error of a test.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    /// The test's parameters are invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The name is unknown.
    #[error("cannot find the host `{host}`: {source}; check the name or give its address; -p names the port")]
    Resolve { host: String, source: io::Error },
    /// A local address is not one of this host.
    #[error("cannot send from {address}: {source}; give -B addresses of this host: `ip address` lists them")]
    Local { address: IpAddr, source: io::Error },
    /// The server cannot be reached.
    #[error(
        "cannot reach a server at {address}: {source}; start `swiftwater perf server` there and open TCP port {port} in its firewall",
        port = address.port()
    )]
    Connect { address: SocketAddr, source: io::Error },
    /// The control connection failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The server refused the test.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server aborted the test.
    #[error("the server's side of the test failed: {0}")]
    Server(String),
    /// The client failed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The server did not report the end of the data.
    #[error("not all data was delivered {seconds} s after the end of the test; the path may lose packets, or the transport stands still", seconds = DRAIN_TIMEOUT.as_secs())]
    Drain,
    /// Ctrl-C came before there were results.
    #[error("stopped before the test began")]
    Interrupted,
}

/// A function that is called for each interval.
type Observer<'a> = dyn FnMut(Interval, Option<Window>) + 'a;

/// Runs the test and reports each interval as received from the server, with the windows at its end, if known.
pub(crate) fn run(config: &ClientConfig, observe: &mut Observer<'_>) -> Result<Outcome, ClientError> {
    config.spec.check()?;
    for &address in &config.local_addresses {
        sockets::check_local(address).map_err(|source| ClientError::Local { address, source })?;
    }
    let (mut control, remote) = reach(config)?;
    let mut spec = config.spec.clone();
    if spec.method.protocol() == Protocol::Sctp && spec.link != Link::Udp {
        spec.link = offered_link(&spec, &config.local_addresses).map_err(LoadError::from)?;
    }
    control.say(&FromClient::Test { version: VERSION, spec })?;
    let (connector, link) = match control.hear(Some(READY_TIMEOUT))? {
        FromServer::Ready { token, ports, udp_port } => {
            let link = if udp_port.is_some() { Link::Udp } else { Link::Raw };
            (Connector::new(config, remote, token, ports, udp_port)?, link)
        }
        FromServer::Refused { reason } => return Err(ClientError::Refused(reason)),
        FromServer::Failed { reason } => return Err(ClientError::Server(reason)),
        _ => return Err(ControlError::NotUnderstood.into()),
    };
    let mut speaker = control.speaker().map_err(ControlError::from)?;
    let mut test = RunningTest::start(config, connector, control);
    let outcome = test.follow(config, &mut speaker, observe);
    test.stop.store(true, Ordering::Relaxed);
    test.gate.open(false);
    speaker.hang_up();
    let link = (config.spec.method.protocol() == Protocol::Sctp).then_some(link);
    outcome.map(|outcome| Outcome { link, ..outcome })
}

/// Opens the control connection to the first of the host's addresses that answers.
fn reach(config: &ClientConfig) -> Result<(Control, SocketAddr), ClientError> {
    let resolve = |source| ClientError::Resolve { host: config.host.clone(), source };
    // Brackets surround IPv6 addresses in other notations.
    let inner = config.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let addresses = (inner.unwrap_or(&config.host), config.port).to_socket_addrs().map_err(resolve)?;
    let mut failure = None;
    for address in addresses {
        let (control, local) = match config.control {
            Some(control) => (SocketAddr::new(control, config.port), None),
            None => (address, config.local_addresses.first().copied()),
        };
        match open_control(control, local) {
            Ok(control) => return Ok((control, address)),
            Err(source) => {
                failure.get_or_insert(ClientError::Connect { address: control, source });
            }
        }
    }
    Err(failure.unwrap_or_else(|| resolve(io::ErrorKind::NotFound.into())))
}

fn open_control(address: SocketAddr, local: Option<IpAddr>) -> io::Result<Control> {
    let mut stream: TcpStream =
        sockets::connect(address, Connecting { local, ..Connecting::default() }, None)?;
    io::Write::write_all(&mut stream, &Purpose::Control.to_bytes())?;
    Control::new(stream)
}

enum Event {
    Connected,
    Worker(Result<Histogram<u64>, LoadError>),
    Heard(FromServer),
    ServerGone(ControlError),
}

/// Holds the workers back until all of them are connected.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    fn open(&self, go: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(go);
        self.changed.notify_all();
    }

    fn wait(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.changed.wait_while(state, |go| go.is_none()).unwrap_or_else(PoisonError::into_inner);
        *state == Some(true)
    }
}

/// A running test: a thread for each association and one that reads the server's messages.
struct RunningTest {
    stop: Arc<AtomicBool>,
    gate: Arc<Gate>,
    meters: Vec<Arc<Meter>>,
    events: Receiver<Event>,
    connector: Arc<Connector>,
    latencies: Histogram<u64>,
    totals: Option<Totals>,
    /// Beginning of the test, once all are connected.
    began: Instant,
    windows: WindowSamples,
    reports: Reports,
}

/// Number of reports of intervals, which is limited, so that a hostile server fills neither memory nor output.
#[derive(Debug, Default)]
struct Reports {
    count: u64,
}

impl Reports {
    /// Counts a report that came this long after the beginning of a test with intervals of this length. Returns the end of its
    /// interval, or nothing if the times are impossible, or if the server has sent more reports than it can have: its clock may
    /// be faster by a hundredth, and its last report may be of less than an interval.
    fn end_of(
        &mut self,
        interval: &Interval,
        elapsed: Duration,
        every: Option<Duration>,
    ) -> Option<Duration> {
        self.count += 1;
        let possible = elapsed.div_duration_f64(every?) * 1.01 + 3.0;
        let end = Duration::try_from_secs_f64(interval.end_s).ok()?;
        let ordered = interval.start_s >= 0.0 && interval.start_s <= interval.end_s;
        (ordered && self.count as f64 <= possible).then_some(end)
    }
}

/// Windows of the associations or connections, read at the intervals of the reports by the client's clock: a report may come
/// late, over a line that was down.
#[derive(Debug, Default)]
struct WindowSamples {
    /// Length of the intervals, once the test has begun. There are no reports without intervals.
    every: Option<Duration>,
    /// Number of samples so far.
    count: u32,
    /// Samples that may belong to reports that have not come, and the times since the beginning.
    kept: VecDeque<(Duration, Option<Window>)>,
}

impl WindowSamples {
    fn begin(&mut self, interval_ms: u64) {
        self.every = Some(Duration::from_millis(interval_ms)).filter(|every| !every.is_zero());
    }

    /// Returns the time since the beginning at which the next sample is due.
    fn due(&self) -> Option<Duration> {
        self.every.map(|every| every * (self.count + 1))
    }

    /// Reads the windows if it is time.
    fn sample(&mut self, now: Duration, read: impl FnOnce() -> Option<Window>) {
        let Some(every) = self.every.filter(|_| self.due().is_some_and(|due| due <= now)) else { return };
        self.count = u32::try_from(now.as_nanos() / every.as_nanos()).unwrap_or(u32::MAX);
        if self.kept.len() == SAMPLES_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((now, read()));
    }

    /// Returns the windows of the sample that is nearest to this moment, and forgets earlier ones. Reads them if the moment has
    /// no sample yet.
    fn at(
        &mut self,
        moment: Duration,
        now: Duration,
        read: impl FnOnce() -> Option<Window>,
    ) -> Option<Window> {
        let every = self.every?;
        if self.kept.back().is_none_or(|(at, _)| *at + every / 2 < moment) {
            self.kept.push_back((now, read()));
        }
        let distance = |(at, _): &(Duration, Option<Window>)| at.abs_diff(moment);
        while self.kept.len() > 1 && distance(&self.kept[1]) <= distance(&self.kept[0]) {
            self.kept.pop_front();
        }
        self.kept.front().and_then(|(_, window)| *window)
    }
}

impl RunningTest {
    fn start(config: &ClientConfig, connector: Connector, control: Control) -> Self {
        let (events_in, events) = channel();
        let (stop, gate, connector) =
            (Arc::new(AtomicBool::new(false)), Arc::new(Gate::default()), Arc::new(connector));
        let mut meters = Vec::new();
        for index in 0..config.spec.parallel {
            let meter = Arc::new(Meter::default());
            meters.push(Arc::clone(&meter));
            let (stop, gate, connector) = (Arc::clone(&stop), Arc::clone(&gate), Arc::clone(&connector));
            let limit = share(config.count, config.spec.parallel, index);
            let events = events_in.clone();
            thread::spawn(move || {
                let mut latencies = histogram();
                let connected = || {
                    let _ = events.send(Event::Connected);
                    gate.wait()
                };
                let outcome = connector.drive(index, limit, &stop, &meter, &mut latencies, connected);
                let _ = events.send(Event::Worker(outcome.map(|()| latencies)));
            });
        }
        thread::spawn(move || listen_to_server(control, &events_in));
        Self {
            stop,
            gate,
            meters,
            events,
            connector,
            latencies: histogram(),
            totals: None,
            began: Instant::now(),
            windows: WindowSamples::default(),
            reports: Reports::default(),
        }
    }

    fn follow(
        &mut self,
        config: &ClientConfig,
        speaker: &mut Speaker,
        observe: &mut Observer<'_>,
    ) -> Result<Outcome, ClientError> {
        self.wait_for_connections(config.spec.parallel)?;
        if config.hold {
            wait_for_release(io::stdin())?;
        }
        let cpu_before = host::processor_time();
        speaker.say(&FromClient::Go)?;
        let (began, began_at) = (Instant::now(), Moment::now());
        self.began = began;
        self.windows.begin(config.spec.interval_ms);
        self.gate.open(true);
        let interrupted = self.wait_for_workers(config, began, observe)?;
        let seconds = began.elapsed().as_secs_f64();
        let (calls, bytes) = Meter::total(&self.meters);
        let cpu_s = (host::processor_time() - cpu_before).as_secs_f64();
        let messages = config.spec.messages(calls, bytes);
        let client = Totals { messages, bytes, seconds, cpu_s, nice: host::current_nice() };
        let sent_until = Meter::sent_until(&self.meters);
        let sending_s = sent_until.map_or(0.0, |at| at.saturating_duration_since(began).as_secs_f64());
        speaker.say(&FromClient::Done { sending_s })?;
        let server = self.wait_for_totals(observe)?;
        let answered = config.spec.exchange != Exchange::OneWay;
        let latency = answered.then(|| Latency::of(&self.latencies));
        let paths = self.connector.take_paths().iter().map(PathTotals::from).collect();
        Ok(Outcome { client, server, latency, paths, began: began_at, interrupted, link: None })
    }

    fn wait_for_connections(&mut self, mut missing: usize) -> Result<(), ClientError> {
        while missing > 0 {
            match self.next(CHECK_INTERVAL) {
                Some(Event::Connected) => missing -= 1,
                Some(Event::Worker(Err(error))) => return Err(self.reason(error)),
                Some(other) => self.hear(other, &mut |_, _| ())?,
                None => {}
            }
            if missing > 0 && interrupt::requested() {
                return Err(ClientError::Interrupted);
            }
        }
        Ok(())
    }

    /// Waits until every worker has finished; returns true if Ctrl-C ended the test.
    fn wait_for_workers(
        &mut self,
        config: &ClientConfig,
        began: Instant,
        observe: &mut Observer<'_>,
    ) -> Result<bool, ClientError> {
        let mut deadline = began + config.duration;
        let (mut left, mut interrupted, mut stopping) = (config.spec.parallel, false, false);
        while left > 0 {
            let now = Instant::now();
            if !stopping && (now >= deadline || interrupt::requested()) {
                interrupted = interrupt::requested();
                stopping = true;
                self.stop.store(true, Ordering::Relaxed);
                deadline = now + DRAIN_TIMEOUT;
            } else if now >= deadline {
                return Err(ClientError::Drain);
            }
            match self.next(CHECK_INTERVAL.min(deadline.saturating_duration_since(now))) {
                Some(Event::Worker(Ok(latencies))) => {
                    left -= 1;
                    // Both histograms have the same bounds, so adding cannot fail.
                    let _ = self.latencies.add(&latencies);
                }
                Some(Event::Worker(Err(error))) => return Err(self.reason(error)),
                Some(other) => self.hear(other, observe)?,
                None => {}
            }
        }
        Ok(interrupted)
    }

    fn wait_for_totals(&mut self, observe: &mut Observer<'_>) -> Result<Totals, ClientError> {
        let until = Instant::now() + DRAIN_TIMEOUT;
        loop {
            if let Some(totals) = self.totals {
                return Ok(totals);
            }
            if Instant::now() > until {
                return Err(ClientError::Drain);
            }
            if let Some(event) = self.next(CHECK_INTERVAL) {
                self.hear(event, observe)?;
            }
        }
    }

    /// Waits for an event, and meanwhile reads the windows whenever it is time.
    fn next(&mut self, timeout: Duration) -> Option<Event> {
        let until = Instant::now() + timeout;
        loop {
            let sample_at = self.windows.due().map(|due| self.began + due);
            let wake_at = sample_at.map_or(until, |at| at.min(until));
            let received = self.events.recv_timeout(wake_at.saturating_duration_since(Instant::now()));
            self.windows.sample(self.began.elapsed(), || self.connector.window());
            match received {
                Ok(event) => return Some(event),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Event::ServerGone(ControlError::Closed));
                }
            }
        }
    }

    fn hear(&mut self, event: Event, observe: &mut Observer<'_>) -> Result<(), ClientError> {
        match event {
            Event::Heard(FromServer::Interval(interval)) => {
                let elapsed = self.began.elapsed();
                let end = self.reports.end_of(&interval, elapsed, self.windows.every);
                let end = end.ok_or(ControlError::NotUnderstood)?;
                let read = || self.connector.window();
                observe(interval, self.windows.at(end, elapsed, read));
            }
            Event::Heard(FromServer::Totals(totals)) if self.totals.is_none() => self.totals = Some(totals),
            Event::Heard(FromServer::Totals(_)) => return Err(ControlError::NotUnderstood.into()),
            Event::Heard(FromServer::Failed { reason }) => return Err(ClientError::Server(reason)),
            Event::Heard(FromServer::Refused { reason }) => return Err(ClientError::Refused(reason)),
            // The server has been ready before.
            Event::Heard(FromServer::Ready { .. }) => return Err(ControlError::NotUnderstood.into()),
            Event::Connected | Event::Worker(_) => {}
            Event::ServerGone(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns the server's report of the failure, if it sends one, and ours otherwise.
    fn reason(&mut self, ours: LoadError) -> ClientError {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + REASON_TIMEOUT;
        while let Some(event) = self.next(until.saturating_duration_since(Instant::now())) {
            match event {
                Event::Heard(FromServer::Failed { reason }) => return ClientError::Server(reason),
                Event::ServerGone(_) => break,
                // A server that goes on reporting gets no more time.
                _ if Instant::now() >= until => break,
                _ => {}
            }
        }
        ours.into()
    }
}

/// Says that all connections are open, and waits for a line of the input. Its end, or Ctrl-C, ends the test.
fn wait_for_release(input: impl io::Read + Send + 'static) -> Result<(), ClientError> {
    note(format_args!("{CONNECTED}"));
    let (line_in, line) = channel();
    thread::spawn(move || {
        let read = io::BufReader::new(input).read_line(&mut String::new());
        let _ = line_in.send(read.is_ok_and(|bytes| bytes > 0));
    });
    loop {
        match line.recv_timeout(CHECK_INTERVAL) {
            Ok(true) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if !interrupt::requested() => {}
            _ => return Err(ClientError::Interrupted),
        }
    }
}

fn listen_to_server(mut control: Control, events: &Sender<Event>) {
    loop {
        let event = match control.hear(None) {
            Ok(heard) => Event::Heard(heard),
            Err(error) => Event::ServerGone(error),
        };
        let last = matches!(event, Event::ServerGone(_));
        if events.send(event).is_err() || last {
            return;
        }
    }
}

/// Returns the share of `count` messages for the association of this index.
fn share(count: Option<u64>, parallel: usize, index: usize) -> u64 {
    count.map_or(u64::MAX, |count| {
        count / parallel as u64 + u64::from((index as u64) < count % parallel as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_held_begins_after_a_line_and_ends_with_its_input() {
        assert!(wait_for_release(&b"\n"[..]).is_ok());
        assert!(matches!(wait_for_release(&b""[..]), Err(ClientError::Interrupted)));
    }

    #[test]
    fn reports_that_come_too_often_or_are_of_impossible_times_are_refused() {
        let interval = |start_s, end_s| Interval { start_s, end_s, messages: 1, bytes: 1 };
        let (elapsed, every) = (Duration::from_secs(10), Some(Duration::from_secs(1)));
        for (start_s, end_s) in [(-1e308, 1e308), (0.0, 1e308), (0.0, f64::NAN), (0.0, -1.0), (2.0, 1.0)] {
            let end = Reports::default().end_of(&interval(start_s, end_s), elapsed, every);
            assert_eq!(end, None, "{start_s} to {end_s}");
        }
        let (good, mut reports) = (interval(0.0, 1.0), Reports::default());
        assert_eq!(Reports::default().end_of(&good, elapsed, None), None, "no reports were wanted");
        let accepted = (0..100).take_while(|_| reports.end_of(&good, elapsed, every).is_some()).count();
        assert_eq!(accepted, 13, "ten seconds, and three more");
    }

    #[test]
    fn windows_belong_to_the_moment_of_an_interval_however_late_its_report_comes() {
        let window = |cwnd_bytes| Some(Window { cwnd_bytes, srtt: Duration::ZERO });
        let ms = Duration::from_millis;
        let mut samples = WindowSamples::default();
        assert_eq!(samples.at(ms(100), ms(100), || window(1)), None, "there are no intervals");
        samples.begin(100);
        for (at, cwnd_bytes) in [(101, 10), (150, 0), (200, 20), (305, 30), (399, 0), (402, 40)] {
            samples.sample(ms(at), || window(cwnd_bytes));
        }
        // All reports come after the line is up again.
        let at = |samples: &mut WindowSamples, end_ms| samples.at(ms(end_ms), ms(420), || window(99));
        let seen = [100, 200, 300, 400].map(|end_ms| at(&mut samples, end_ms));
        assert_eq!(seen, [10, 20, 30, 40].map(window));
        assert_eq!(
            at(&mut samples, 500),
            window(99),
            "the report of the server's clock comes before our time"
        );
    }

    #[test]
    fn the_shares_add_up() {
        let sum: u64 = (0..4).map(|index| share(Some(10), 4, index)).sum();
        assert_eq!(sum, 10);
        assert_eq!(share(None, 4, 0), u64::MAX);
    }

    #[test]
    fn percentiles_are_microseconds() {
        let mut latencies = histogram();
        for us in 1..=100_u64 {
            latencies.record(us * 1000).expect("in range");
        }
        let latency = Latency::of(&latencies);
        assert!((latency.p50_us - 50.0).abs() < 0.1 && (latency.p99_us - 99.0).abs() < 0.1, "{latency:?}");
    }

    #[test]
    fn an_answer_counts_for_as_long_as_it_is_awaited() {
        let mut latencies = histogram();
        // Half of the time with answers after 2 ms, and half with one after 8 ms.
        for us in [2000, 2000, 2000, 2000, 8000] {
            latencies.record(us * 1000).expect("in range");
        }
        let latency = Latency::of(&latencies);
        assert!((latency.mean_us / 3200.0 - 1.0).abs() < 0.01, "{latency:?}");
        assert!((latency.mean_over_time_us / 5000.0 - 1.0).abs() < 0.01, "{latency:?}");
        assert_eq!(Latency::of(&histogram()).mean_over_time_us, 0.0);
    }
}
