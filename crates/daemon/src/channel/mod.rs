//! What a socket shares with its program: the endpoint that carries records, the page, and the room in the receive windows that
//! unread messages keep. The layers above see messages, and not where they lie.

pub(crate) mod busy_poll;
pub(crate) mod endpoint;
mod form;
pub(crate) mod long_messages;
pub(crate) mod raw_record;
pub(crate) mod recall;
pub(crate) mod shared_page;
pub(crate) mod style;
pub(crate) mod window_credit;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use carrier::bundle;
use carrier::record::{HEADER_BYTES, Header, Kind};
use rustix::io::Errno;

use endpoint::Endpoint;
use form::NOT_NOW;
pub(crate) use form::Put;
use raw_record::RawRecord;
use shared_page::SharedPage;
use window_credit::WindowCredit;

/// What a socket shares with its program. The program has the other end of `endpoint`, and maps `page`.
pub(crate) struct Channel {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) page: SharedPage,
    pub(crate) credit: WindowCredit,
    /// Held while a message is handed up, from its first part to its last.
    pub(crate) delivery: tokio::sync::Mutex<()>,
    announced: Mutex<Announced>,
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

/// After so many notices lengths are rounded up, so that there are few in all.
const EXACT_NOTICES_MAX: u32 = 8;
/// After so many messages that came alone no bundle is expected.
const ALONE_MAX: u32 = 64;

impl Channel {
    pub(crate) fn new(endpoint: Endpoint, page: SharedPage) -> Channel {
        let credit = WindowCredit::new(Arc::clone(endpoint.closer()));
        Channel {
            endpoint: Arc::new(endpoint),
            page,
            credit,
            delivery: tokio::sync::Mutex::default(),
            announced: Mutex::default(),
        }
    }

    /// Hands a message or a notification to the program; waits for room. The caller holds `delivery`.
    pub(crate) async fn put(self: &Arc<Self>, header: &Header, blocks: &[Bytes]) -> Result<Put, Errno> {
        match self.put_record(header, blocks).await {
            Err(NOT_NOW) => self.put_in_form(header, blocks).await,
            put => put.map(|()| Put::Record),
        }
    }

    /// Hands it over as a record. `NOT_NOW`: the carrier takes none for now.
    pub(crate) async fn put_record(self: &Arc<Self>, header: &Header, blocks: &[Bytes]) -> Result<(), Errno> {
        let news = self.news_of_one(header.bytes);
        let is_data = header.kind == Kind::Data;
        let counted = self.credit.count(u32::from(is_data));
        let put = async {
            self.announce(news).await?;
            self.endpoint.put(header, blocks).await
        }
        .await;
        if !matches!(put, Err(NOT_NOW)) {
            // What finds no reader any more is unread, too.
            counted.keep();
        }
        put?.into_iter().for_each(|long| self.keep_memory(long));
        Ok(())
    }

    /// Hands a bundle of so many messages, which keep no room, to the program as [`Socket::put`].
    pub(crate) async fn put_bundle(self: &Arc<Self>, bundle: &[u8], messages: u32) -> Result<(), Errno> {
        let news = self.announced().news_of_bundle();
        let counted = self.credit.count(messages);
        let put = async {
            self.announce(news).await?;
            self.endpoint.put_record(bundle, &[]).await
        }
        .await;
        if !matches!(put, Err(NOT_NOW)) {
            counted.keep();
            self.credit.keep_no_room(messages);
            return put;
        }
        drop(counted);
        for (at, header) in bundle::messages(bundle) {
            let content = &bundle[at + HEADER_BYTES..][..header.bytes as usize];
            if self.put(&header, &[Bytes::copy_from_slice(content)]).await? == Put::Record {
                self.credit.keep_no_room(1);
            }
        }
        Ok(())
    }

    /// What the reader must know before a message of this length comes alone.
    fn news_of_one(&self, bytes: u32) -> Option<Announced> {
        let mut announced = self.announced();
        if announced.bundles {
            announced.alone += 1;
            // Where all messages were read, no bundle is left.
            if announced.alone.is_multiple_of(ALONE_MAX) && !self.has_unread_data() {
                self.page.set_bundles(false);
                announced.bundles = false;
            }
        }
        announced.news_of_longer(bytes)
    }

    async fn announce(&self, news: Option<Announced>) -> Result<(), Errno> {
        let Some(news) = news else { return Ok(()) };
        self.page.set_longest(news.longest);
        self.page.set_bundles(news.bundles);
        self.endpoint.put(&Header::new(Kind::SizeHint), &[]).await?;
        // Given up before that, it is said again.
        *self.announced() = news;
        Ok(())
    }

    /// A record is put into the carrier before anybody reads from it.
    pub(crate) fn expect(&self, record: &RawRecord) {
        let mut announced = self.announced();
        let messages = record.messages().map(|(_, header)| header.bytes);
        announced.longest = messages.fold(announced.longest, u32::max);
        announced.bundles |= record.messages().nth(1).is_some();
        self.page.set_longest(announced.longest);
        self.page.set_bundles(announced.bundles);
    }

    /// Messages of this length are put into the carrier before anybody reads from it.
    pub(crate) fn expect_length(&self, bytes: u32) {
        let mut announced = self.announced();
        announced.longest = announced.longest.max(bytes);
        self.page.set_longest(announced.longest);
    }

    fn announced(&self) -> MutexGuard<'_, Announced> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Announced {
    /// What the reader must know before a message of this length comes.
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
