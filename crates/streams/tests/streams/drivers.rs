//! The pseudo-devices that come with the executive: `echo(4)`, `loop(4)`, `nuls(4)`, `null(4)`, `mux(4)`,
//! `log(7)`.

use std::time::{Duration, Instant};

use streams::drivers::{Echo, Join, Log, LogRecord, Mux, Null, Nuls, Pipe};
use streams::modules::PipeMod;
use streams::{
    Chain, Control, Credentials, Driver, DriverId, Errno, Executive, Flush, IoctlError, Kind, LinkError,
    LinkId, Message, Module, Q, ReadError, SendInfo, StreamId, Which, WriteError,
};

use crate::support::{epoch, text};

fn executive(driver: impl Driver) -> (Executive, DriverId, StreamId) {
    let mut executive = Executive::new(Instant::now());
    let driver = executive.add_driver("device", Box::new(driver));
    let s = executive.open(driver).unwrap();
    (executive, driver, s)
}

fn write(executive: &mut Executive, s: StreamId, text: &str) -> Result<(), WriteError> {
    let written = executive.write(s, Which::Only, SendInfo::default(), text.as_bytes(), epoch);
    executive.at(epoch()).run();
    written
}

fn take(executive: &mut Executive, s: StreamId) -> Option<String> {
    let m = executive.getmsg(s).unwrap();
    executive.at(epoch()).run();
    m.map(|m| text(&m))
}

#[test]
fn echo_sends_everything_back_and_waits_for_its_reader() {
    let (mut executive, _, s) = executive(Echo::default());
    let mut written = 0;
    while write(&mut executive, s, &format!("{written} {}", "x".repeat(1000))).is_ok() {
        written += 1;
        assert!(written < 10_000, "a reader that does not read stops the writer");
    }
    for number in 0..written {
        let read = take(&mut executive, s).unwrap();
        assert!(read.starts_with(&format!("{number} ")), "{number}: {read:.10}");
    }
    assert_eq!(take(&mut executive, s), None);
    write(&mut executive, s, "again").unwrap();
    assert_eq!(executive.ioctl(s, 1, Chain::new()), Err(IoctlError::Refused(Errno::EINVAL)));
}

#[test]
fn nuls_takes_everything_and_gives_nothing() {
    let (mut executive, _, s) = executive(Nuls);
    for _ in 0..1000 {
        write(&mut executive, s, &"x".repeat(1000)).unwrap();
    }
    assert_eq!(take(&mut executive, s), None);
    assert!(executive.ioctl(s, 77, Chain::new()).unwrap().is_some());
}

#[test]
fn null_gives_its_readers_the_end() {
    let (mut executive, _, s) = executive(Null);
    write(&mut executive, s, "gone").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(executive.read(s, &mut buffer), Ok(None), "the driver is asked");
    assert_eq!(executive.read(s, &mut buffer).unwrap().map(|read| read.0), Some(0));
}

fn pipe() -> (Executive, StreamId, StreamId) {
    let (mut executive, driver, a) = executive(Pipe::default());
    let b = executive.open(driver).unwrap();
    let joined = executive.driver_state(driver, |pipe: &mut Pipe| pipe.join(a, b)).unwrap();
    assert_eq!(joined, Ok(()));
    (executive, a, b)
}

#[test]
fn two_ends_are_joined_by_ioctl_and_hung_up_when_one_is_closed() {
    let (mut executive, driver, a) = executive(Pipe::default());
    assert!(write(&mut executive, a, "nowhere").is_ok());
    assert_eq!(write(&mut executive, a, "x"), Err(WriteError::Failed(Errno::ENXIO)), "it is not joined");
    let (a, b) = (executive.open(driver).unwrap(), executive.open(driver).unwrap());
    let minor = executive.minor_of(b).unwrap().to_ne_bytes().to_vec();
    assert!(executive.ioctl(a, Pipe::JOIN, minor.clone()).unwrap().is_some());
    assert_eq!(executive.ioctl(b, Pipe::JOIN, minor), Err(IoctlError::Refused(Errno::EBUSY)));
    let nobody = 9999u32.to_ne_bytes().to_vec();
    assert_eq!(executive.ioctl(b, Pipe::JOIN, nobody), Err(IoctlError::Refused(Errno::ENXIO)));
    write(&mut executive, a, "last words").unwrap();
    executive.at(epoch()).close(a);
    assert_eq!(take(&mut executive, b).unwrap(), "last words");
    assert_eq!(executive.getmsg(b), Err(ReadError::HungUp));
    assert_eq!(executive.driver_state(driver, |pipe: &mut Pipe| pipe.join(b, a)), Some(Err(Join::NotOurs)));
}

#[test]
fn a_pipe_has_flow_control_across() {
    let (mut executive, a, b) = pipe();
    let mut written = 0;
    while write(&mut executive, a, &"x".repeat(1000)).is_ok() {
        written += 1;
        assert!(written < 10_000, "a reader at the other end that does not read stops the writer");
    }
    let mut read = 0;
    while take(&mut executive, b).is_some() {
        read += 1;
    }
    assert_eq!(read, written);
    write(&mut executive, a, "there is room again").unwrap();
}

#[test]
fn a_flush_of_one_end_is_of_the_other_way_at_the_other() {
    let (mut executive, a, b) = pipe();
    write(&mut executive, a, "to b").unwrap();
    write(&mut executive, b, "to a").unwrap();
    executive.flush_queues(a, Flush::WRITE);
    executive.at(epoch()).run();
    assert_eq!(take(&mut executive, b), None, "what a writes is what b reads");
    assert_eq!(take(&mut executive, a).unwrap(), "to a");
}

#[test]
fn pipemod_exchanges_the_ways_of_a_flush() {
    let (mut executive, _, s) = executive(Echo::default());
    executive.push(s, Box::new(PipeMod)).unwrap();
    write(&mut executive, s, "kept").unwrap();
    executive.flush_queues(s, Flush::READ);
    assert_eq!(take(&mut executive, s).unwrap(), "kept", "the driver saw a flush of the write side");
}

#[test]
fn something_is_passed_through_a_pipe() {
    let (mut executive, a, b) = pipe();
    let user = Credentials { uid: 7, gid: 8 };
    assert_eq!(executive.recv_passed(b), Ok(None));
    executive.send_passed(a, 4711, user).unwrap();
    assert_eq!(executive.read(b, &mut [0; 8]), Err(ReadError::NotData), "EBADMSG");
    let passed = executive.recv_passed(b).unwrap().unwrap();
    assert_eq!((passed.number, passed.credentials), (4711, user));
    write(&mut executive, a, "data").unwrap();
    assert_eq!(executive.recv_passed(b), Err(ReadError::NotData));
}

fn trace(module: i32, minor: i32, level: i32) -> Vec<u8> {
    [module, minor, level].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn a_log_reader_gets_what_it_asked_for() {
    let (mut executive, driver, s) = executive(Log::default());
    let all = executive.open(driver).unwrap();
    assert!(executive.ioctl(s, Log::TRACE, trace(5, -1, 2)).unwrap().is_some());
    assert!(executive.ioctl(all, Log::TRACE, trace(-1, -1, 9)).unwrap().is_some());
    assert_eq!(executive.ioctl(s, Log::TRACE, vec![1]), Err(IoctlError::Refused(Errno::EINVAL)));
    let record = |module, level| LogRecord { module, minor: 1, level, text: format!("{module} {level}") };
    for (module, level) in [(5, 1), (5, 3), (6, 1)] {
        executive.at(epoch()).with_driver(driver, |log: &mut Log, cx| log.strlog(cx, &record(module, level)));
    }
    assert_eq!(std::iter::from_fn(|| take(&mut executive, s)).collect::<Vec<_>>(), ["5 1"]);
    assert_eq!(std::iter::from_fn(|| take(&mut executive, all)).collect::<Vec<_>>(), ["5 1", "5 3", "6 1"]);
}

#[test]
fn a_slow_log_reader_loses_records_and_delays_nobody() {
    let (mut executive, driver, s) = executive(Log::default());
    executive.ioctl(s, Log::TRACE, trace(-1, -1, 9)).unwrap();
    let record = LogRecord { module: 1, minor: 0, level: 0, text: "x".repeat(1000) };
    let write = |executive: &mut Executive| {
        executive.at(epoch()).with_driver(driver, |log: &mut Log, cx| log.strlog(cx, &record)).unwrap();
    };
    for _ in 0..1000 {
        write(&mut executive);
    }
    let kept = executive.nread(s).unwrap().0;
    let lost = executive.driver_state(driver, |log: &mut Log| log.lost(s)).unwrap();
    assert!(lost > 0 && kept as u64 + lost == 1000, "{kept} kept, {lost} lost");
}

#[test]
fn a_message_of_another_kind_passes_echo_as_it_is() {
    let (mut executive, _, s) = executive(Echo::default());
    for kind in [Kind::Break, Kind::Event, Kind::Ctl, Kind::Rse, Kind::PcRse, Kind::Stop, Kind::StartI] {
        executive.at(epoch()).putmsg(s, Message::new(kind)).unwrap();
    }
    assert_eq!(take(&mut executive, s), None, "the head frees what is for drivers");
    executive.at(epoch()).putmsg(s, Message::data(&b"data"[..]).in_band(3)).unwrap();
    assert_eq!(executive.getmsg(s).unwrap().unwrap().band, 3);
}

/// Sends what the test tells it in place of the first message.
struct Instead(Option<Message>);

impl Module for Instead {
    fn name(&self) -> &str {
        "instead"
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        q.pass(self.0.take().unwrap_or(m));
    }
}

/// SVR4.2 DDI/DKI messages(D5DK), M_DELAY: "a real-time delay on output"; messages of high priority do not wait.
#[test]
fn a_delay_is_a_pause_between_the_messages_before_and_behind_it() {
    let (mut executive, _, s) = executive(Echo::default());
    let start = Instant::now();
    write(&mut executive, s, "before").unwrap();
    let pause = Message::new(Kind::Delay(Duration::from_millis(30)));
    executive.push(s, Box::new(Instead(Some(pause)))).unwrap();
    write(&mut executive, s, "pause").unwrap();
    write(&mut executive, s, "behind").unwrap();
    write(&mut executive, s, "last").unwrap();
    executive.timeout(start);
    assert_eq!(take(&mut executive, s).as_deref(), Some("before"));
    assert_eq!(take(&mut executive, s), None);
    executive.at(epoch()).putmsg(s, Message::new(Kind::PcProto(Control::from(&b"now"[..])))).unwrap();
    executive.at(epoch()).run();
    assert!(matches!(executive.getmsg(s).unwrap().unwrap().kind, Kind::PcProto(_)), "it does not wait");
    executive.timeout(start + Duration::from_millis(29));
    executive.at(epoch()).run();
    assert_eq!(take(&mut executive, s), None);
    executive.timeout(start + Duration::from_millis(30));
    executive.at(epoch()).run();
    assert_eq!(take(&mut executive, s).as_deref(), Some("behind"));
    assert_eq!(take(&mut executive, s).as_deref(), Some("last"));
}

/// As above: the pause is of one stream.
#[test]
fn a_delay_of_one_end_of_a_pipe_holds_up_what_that_end_sends_alone() {
    let (mut executive, a, b) = pipe();
    let start = Instant::now();
    let pause = Message::new(Kind::Delay(Duration::from_millis(5)));
    executive.push(a, Box::new(Instead(Some(pause)))).unwrap();
    write(&mut executive, a, "pause").unwrap();
    write(&mut executive, a, "later").unwrap();
    write(&mut executive, b, "at once").unwrap();
    executive.timeout(start);
    assert_eq!(take(&mut executive, a).as_deref(), Some("at once"));
    assert_eq!(take(&mut executive, b), None);
    executive.timeout(start + Duration::from_millis(5));
    executive.at(epoch()).run();
    assert_eq!(take(&mut executive, b).as_deref(), Some("later"), "and the pause itself does not arrive");
}

/// Returns an executive with two streams of a multiplexor, each joined with a stream of an echo.
fn joined() -> (Executive, [StreamId; 2], [LinkId; 2]) {
    let (mut executive, mux, first) = executive(Mux::default());
    let echo = executive.add_driver("echo", Box::new(Echo::default()));
    let uppers = [first, executive.open(mux).unwrap()];
    let lowers = [executive.open(echo).unwrap(), executive.open(echo).unwrap()];
    let links = [0, 1].map(|n| executive.link(uppers[n], lowers[n], false).unwrap());
    (executive, uppers, links)
}

/// `mux(4)`: data goes to the stream that was linked, and comes back from it.
#[test]
fn mux_joins_each_stream_with_its_own() {
    let (mut executive, uppers, links) = joined();
    write(&mut executive, uppers[0], "first").unwrap();
    write(&mut executive, uppers[1], "second").unwrap();
    assert_eq!(uppers.map(|s| take(&mut executive, s).unwrap()), ["first", "second"]);
    let echo = executive.driver_named("echo").unwrap();
    let third = executive.open(echo).unwrap();
    let busy = executive.link(uppers[0], third, false);
    assert!(matches!(busy, Err(LinkError::Driver(Errno::EBUSY))), "one link for each: {busy:?}");
    executive.unlink(links[0]).unwrap();
    write(&mut executive, uppers[0], "gone").unwrap();
    write(&mut executive, uppers[1], "there").unwrap();
    assert_eq!(take(&mut executive, uppers[0]), None);
    assert_eq!(take(&mut executive, uppers[1]).unwrap(), "there");
}

/// `mux(4)`: flow control goes across, and nothing is lost or reordered by it.
#[test]
fn mux_stops_its_writer_while_nobody_reads() {
    let (mut executive, [s, _], _) = joined();
    let mut written = 0;
    while write(&mut executive, s, &format!("{written} {}", "x".repeat(1000))).is_ok() {
        written += 1;
        assert!(written < 10_000, "a reader that does not read stops the writer");
    }
    for number in 0..written {
        let read = take(&mut executive, s).unwrap();
        assert!(read.starts_with(&format!("{number} ")), "{number}");
    }
    assert_eq!(take(&mut executive, s), None);
    write(&mut executive, s, "again").unwrap();
    assert_eq!(take(&mut executive, s).unwrap(), "again");
}
