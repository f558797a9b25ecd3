//! A stream to a driver that the test controls, and modules that keep a diary.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use streams::{
    Admission, AssociationId, Cx, Driver, DriverId, DriverInfo, Errno, Executive, Kind, Message, Module,
    ModuleInfo, Open, Primitive, Q, QueueInfo, RecvInfo, SendError, SendInfo, StreamId, Which, WriteAs,
};

/// An association of a stream with several.
pub(crate) const ONE: Which = Which::Id(AssociationId::new(1, 1));

/// Returns the time at which all executives of these tests begin.
pub(crate) fn epoch() -> Instant {
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    *EPOCH
}

/// State of the driver of a [`Rig`]: what it has seen, and how it behaves.
pub(crate) struct State {
    pub(crate) info: DriverInfo,
    pub(crate) admission: Admission,
    /// Longer messages are refused.
    pub(crate) message_bytes_max: Option<usize>,
    /// While this is set, messages are queued with `putq` and stay there.
    pub(crate) busy: bool,
    pub(crate) received: Vec<Message>,
    pub(crate) consumed: Vec<(Which, usize)>,
    /// Charges returned beyond the data.
    pub(crate) charges: usize,
    pub(crate) opened: Vec<Open>,
    pub(crate) diary: Diary,
}

/// Events in order.
pub(crate) type Diary = Arc<Mutex<Vec<String>>>;

pub(crate) struct Device(Arc<Mutex<State>>);

impl Device {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Driver for Device {
    fn info(&self) -> DriverInfo {
        self.state().info
    }

    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, open: &Open) -> Result<(), Errno> {
        self.state().opened.push(*open);
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {
        self.state().diary.lock().unwrap().push("close".into());
    }

    fn admit(&mut self, _s: StreamId, _association: Which, _info: &SendInfo, bytes: usize) -> Admission {
        let state = self.state();
        match state.message_bytes_max {
            Some(limit_bytes) if bytes > limit_bytes => {
                Admission::Refused(SendError::TooLong { bytes, limit_bytes })
            }
            _ => state.admission,
        }
    }

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match m.kind {
            Kind::Flush(_) => return cx.flush(s, m),
            Kind::Ioctl(ref ioctl) if ioctl.command == 1 => return cx.ack(s, ioctl, 7, m.data),
            Kind::Ioctl(ref ioctl) if ioctl.command == 2 => return cx.nak(s, ioctl, Errno::EINVAL),
            _ => {}
        }
        let waits = !m.kind.is_high_priority() && self.state().busy;
        if waits || cx.queue(s).is_some_and(|q| !q.is_empty()) {
            cx.putq(s, m);
        } else {
            self.state().received.push(m);
        }
    }

    fn service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        self.state().diary.lock().unwrap().push(format!("service {}", s.index()));
        while !self.state().busy {
            let Some(m) = cx.getq(s) else { return };
            self.state().received.push(m);
        }
    }

    fn read_service(&mut self, _cx: &mut Cx<'_>, s: StreamId) {
        self.state().diary.lock().unwrap().push(format!("read service {}", s.index()));
    }

    fn consumed(&mut self, _cx: &mut Cx<'_>, _s: StreamId, association: Which, bytes: usize, charges: usize) {
        self.state().consumed.push((association, bytes));
        self.state().charges += charges;
    }
}

/// An executive with one driver and one stream.
pub(crate) struct Rig {
    pub(crate) executive: Executive,
    pub(crate) driver: DriverId,
    pub(crate) s: StreamId,
    state: Arc<Mutex<State>>,
}

impl Rig {
    /// A driver whose streams carry the writer's information about each message.
    pub(crate) const INFO: DriverInfo = DriverInfo {
        read: QueueInfo::served(64 * 1024, 8 * 1024),
        write: QueueInfo::served(64 * 1024, 8 * 1024),
        head: QueueInfo::served(128 * 1024, 16 * 1024),
        write_as: WriteAs::OptdataReq,
    };

    pub(crate) fn new() -> Self {
        Self::with_info(Self::INFO)
    }

    pub(crate) fn with_info(info: DriverInfo) -> Self {
        let state = Arc::new(Mutex::new(State {
            info,
            admission: Admission::Room,
            message_bytes_max: None,
            busy: false,
            received: Vec::new(),
            consumed: Vec::new(),
            charges: 0,
            opened: Vec::new(),
            diary: Diary::default(),
        }));
        let mut executive = Executive::new(epoch());
        let driver = executive.add_driver("device", Box::new(Device(Arc::clone(&state))));
        let s = executive.open(driver).unwrap();
        Self { executive, driver, s, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn diary(&self) -> Diary {
        Arc::clone(&self.state().diary)
    }

    /// Returns the entries of the diary, and clears it.
    pub(crate) fn take_diary(&self) -> Vec<String> {
        std::mem::take(&mut *self.diary().lock().unwrap())
    }

    /// Calls `f` with the driver's streams.
    pub(crate) fn device(&mut self, f: impl FnOnce(&mut Cx<'_>, StreamId)) {
        let s = self.s;
        self.executive.at(epoch()).with_driver(self.driver, |_: &mut Device, cx| f(cx, s)).unwrap();
    }

    /// Makes the driver send a message up.
    pub(crate) fn up(&mut self, m: Message) {
        self.device(|cx, s| cx.putnext(s, m));
    }

    /// Makes the driver send user data of association 1 up.
    pub(crate) fn data_up(&mut self, text: &'static str) {
        self.up(data(text));
    }

    /// Gives the driver room, so that it takes its queued messages.
    pub(crate) fn release(&mut self) {
        self.state().busy = false;
        self.device(|cx, s| cx.qenable(s));
        self.run_all();
    }

    /// Runs service procedures until none is enabled.
    pub(crate) fn run_all(&mut self) {
        while self.executive.is_runnable() {
            self.executive.at(epoch()).run();
        }
    }

    pub(crate) fn write(&mut self, text: &str) -> Result<(), streams::WriteError> {
        self.executive.write(self.s, Which::Only, SendInfo::default(), text.as_bytes(), epoch)
    }

    /// Returns the data of the messages that have reached the driver.
    pub(crate) fn received(&self) -> Vec<String> {
        self.state().received.iter().map(text).collect()
    }

    /// Reads once with a buffer of this size; returns the text, and whether it ends its record.
    pub(crate) fn read(&mut self, buffer_bytes: usize) -> Option<(String, bool)> {
        let mut buffer = vec![0; buffer_bytes];
        let (len, info) = self.executive.read(self.s, &mut buffer).unwrap()?;
        buffer.truncate(len);
        Some((String::from_utf8(buffer).unwrap(), !info.more))
    }

    /// Reads everything that is there.
    pub(crate) fn read_all(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.read(1000)).map(|(text, _)| text).collect()
    }
}

/// Returns user data of association 1 on its way up.
pub(crate) fn data(text: &'static str) -> Message {
    Message::optdata_ind(ONE, RecvInfo::default(), Bytes::from_static(text.as_bytes()).into())
}

/// Returns user data of association 1 on its way up, with more to come.
pub(crate) fn partial_data(text: &'static str) -> Message {
    let info = RecvInfo { more: true, ..RecvInfo::default() };
    Message::optdata_ind(ONE, info, Bytes::from_static(text.as_bytes()).into())
}

/// Returns a high-priority primitive.
pub(crate) fn urgent(text: &'static str) -> Message {
    let mut m = Message::pc_proto(Primitive::InfoReq);
    m.data = Bytes::from_static(text.as_bytes()).into();
    m
}

pub(crate) fn text(m: &Message) -> String {
    String::from_utf8_lossy(&m.data.to_vec()).into_owned()
}

/// A module with these queues that notes in a diary each call of its procedures, and otherwise behaves like the provided ones.
pub(crate) struct Noting {
    pub(crate) name: &'static str,
    pub(crate) info: ModuleInfo,
    pub(crate) diary: Diary,
}

impl Noting {
    fn note(&self, what: &str) {
        self.diary.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl Module for Noting {
    fn name(&self) -> &str {
        self.name
    }
    fn info(&self) -> ModuleInfo {
        self.info
    }
    fn open(&mut self, _q: &mut Q<'_>) -> Result<(), Errno> {
        self.note("open");
        Ok(())
    }
    fn close(&mut self, _q: &mut Q<'_>) {
        self.note("close");
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        self.note(&format!("wput {}", text(&m)));
        q.pass(m);
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.note(&format!("rput {}", text(&m)));
        q.pass(m);
    }
    fn wsrv(&mut self, q: &mut Q<'_>) {
        self.note("wsrv");
        q.pass_queued();
    }
    fn rsrv(&mut self, q: &mut Q<'_>) {
        self.note("rsrv");
        q.pass_queued();
    }
}

/// Returns a stream with a module, by name, that has run once; and the start of its time.
pub(crate) fn pushed(name: &str, arguments: &[&str]) -> (Rig, Instant) {
    let mut rig = Rig::new();
    let start = Instant::now();
    streams::modules::add_all(&mut rig.executive);
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    rig.executive.push_named(rig.s, name, &arguments).unwrap();
    rig.executive.timeout(start);
    rig.executive.at(epoch()).run();
    (rig, start)
}

/// Advances the time in steps of a millisecond.
pub(crate) fn pass(rig: &mut Rig, start: Instant, from_ms: u64, to_ms: u64) {
    for ms in from_ms..=to_ms {
        rig.executive.timeout(start + Duration::from_millis(ms));
        rig.executive.at(epoch()).run();
    }
}
