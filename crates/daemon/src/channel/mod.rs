//! What a socket shares with its program: the endpoint that carries records, the page, and the room in the receive windows that
//! unread messages keep. The layers above see messages, and not where they lie.

pub(crate) mod blocked;
pub(crate) mod busy_poll;
pub(crate) mod endpoint;
mod form;
pub(crate) mod long_messages;
pub(crate) mod putter;
pub(crate) mod raw_record;
pub(crate) mod recall;
pub(crate) mod shared_page;
pub(crate) mod style;
pub(crate) mod window_credit;

use std::cell::{RefCell, RefMut};
use std::io::IoSlice;
use std::sync::Arc;

use carrier::record::{Header, Kind};

use blocked::NotPut;
use endpoint::Endpoint;
pub(crate) use form::Put;
use raw_record::RawRecord;
use shared_page::SharedPage;
use window_credit::WindowCredit;

/// What a socket shares with its program. The program has the other end of `endpoint`, and maps `page`.
pub(crate) struct Channel {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) page: SharedPage,
    pub(crate) credit: WindowCredit,
    /// Locked while a message is put, from its first part to its last.
    pub(crate) delivery: Arc<tokio::sync::Mutex<()>>,
    announced: RefCell<Announced>,
}

/// What a reader knows of the records in its carrier. If a message is no longer than its buffer, and alone, it takes it without
/// looking at it first.
#[derive(Clone, Copy, Default)]
struct Announced {
    /// How long messages have been so far.
    longest: u32,
    /// How often that has grown.
    notices: u32,
    /// There may be bundles.
    bundles: bool,
    /// Messages that came alone since the last bundle.
    alone: u32,
}

/// Number of notices with exact lengths. Later notices round up to a power of two, so that there are few in all.
const EXACT_NOTICES_MAX: u32 = 8;
/// After each run of this many messages that came alone, no bundle is expected if the program has read everything.
const ALONE_MAX: u32 = 64;

impl Channel {
    pub(crate) fn new(endpoint: Endpoint, page: SharedPage) -> Channel {
        let credit = WindowCredit::new(Arc::clone(endpoint.closer()));
        Channel {
            endpoint: Arc::new(endpoint),
            page,
            credit,
            delivery: Arc::default(),
            announced: RefCell::default(),
        }
    }

    /// Tells the reader what it must know before a message of this length comes alone. It is counted as so many: a notification
    /// is none.
    fn announce_one(&self, bytes: u32, counted: u32) -> Result<(), NotPut> {
        let mut announced = self.announced();
        let is_time = announced.bundles && (announced.alone + 1).is_multiple_of(ALONE_MAX);
        // Where all messages before it were read, no bundle is left.
        if is_time && !self.has_unread_besides(counted) {
            self.page.set_bundles(false);
            announced.bundles = false;
        }
        let news = announced.news_of_longer(bytes);
        drop(announced);
        self.announce(news)
    }

    /// Tells the reader what it must know before a bundle comes.
    fn announce_bundle(&self) -> Result<(), NotPut> {
        let news = self.announced().news_of_bundle();
        self.announce(news)
    }

    fn announce(&self, news: Option<Announced>) -> Result<(), NotPut> {
        let Some(news) = news else { return Ok(()) };
        self.page.set_longest(news.longest);
        self.page.set_bundles(news.bundles);
        self.endpoint.try_put_parts(&[IoSlice::new(&Header::new(Kind::SizeHint).encode())], &[])?;
        // A hint that was not put is put again.
        *self.announced() = news;
        Ok(())
    }

    /// Counts a message that came alone.
    fn note_alone(&self) {
        let mut announced = self.announced();
        if announced.bundles {
            announced.alone += 1;
        }
    }

    /// Announces a record that is put into the carrier before the program reads from it.
    pub(crate) fn expect(&self, record: &RawRecord) {
        let mut announced = self.announced();
        let messages = record.messages().map(|(_, header)| header.bytes);
        announced.longest = messages.fold(announced.longest, u32::max);
        announced.bundles |= record.messages().nth(1).is_some();
        self.page.set_longest(announced.longest);
        self.page.set_bundles(announced.bundles);
    }

    /// Announces messages of this length that are put into the carrier before the program reads from it.
    pub(crate) fn expect_length(&self, bytes: u32) {
        let mut announced = self.announced();
        announced.longest = announced.longest.max(bytes);
        self.page.set_longest(announced.longest);
    }

    fn announced(&self) -> RefMut<'_, Announced> {
        self.announced.borrow_mut()
    }
}

impl Announced {
    /// Returns what the reader must know before a message of this length comes; `None` if it is no longer than those before.
    fn news_of_longer(&self, bytes: u32) -> Option<Announced> {
        let exact = self.notices < EXACT_NOTICES_MAX;
        let longest = if exact { bytes } else { bytes.next_power_of_two() };
        (bytes > self.longest).then_some(Announced { longest, notices: self.notices + 1, ..*self })
    }

    /// What the reader must know before a bundle comes.
    fn news_of_bundle(&mut self) -> Option<Announced> {
        self.alone = 0;
        (!self.bundles).then_some(Announced { bundles: true, ..*self })
    }
}
