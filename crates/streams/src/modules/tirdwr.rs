//! A module that turns a transport connection into a plain stream of bytes.

use tpi::{Primitive, Which};

use crate::identifiers::Side;
use crate::message::{Control, Kind, Marks, Message};
use crate::module::{Module, Q};
use crate::{Chain, Errno};

/// Lets a program read and write a transport connection like a file (`tirdwr`): above the module there are data and the end of
/// the file, and no primitives.
///
/// Writes go down unchanged, as `M_DATA` or `T_OPTDATA_REQ`, since the provider takes both. Data that comes up loses its control
/// part. The peer's orderly release becomes the end of the file, an empty message, and once it has come, popping the module
/// releases this side, too. A disconnection becomes a hang-up. Any other primitive, in either direction, violates the protocol of
/// the module and makes the stream fail with `EPROTO`.
#[derive(Debug, Default)]
pub struct TiRdWr {
    /// The peer has released its side.
    released: bool,
    /// The stream has failed or was hung up: nothing passes any more.
    ended: bool,
}

impl TiRdWr {
    fn violate(&mut self, q: &mut Q<'_>) {
        self.ended = true;
        let error = Some(Errno::EPROTO);
        let m = Message::new(Kind::Error { read: error, write: error });
        if q.side() == Side::Read { q.putnext(m) } else { q.qreply(m) }
    }

    /// Handles a control part of the provider, which is a primitive unless the provider breaks the rules.
    fn indication(&mut self, q: &mut Q<'_>, m: Message) {
        let (Kind::Proto(Control::Tpi(primitive)) | Kind::PcProto(Control::Tpi(primitive))) = &m.kind else {
            q.freemsg(m);
            return self.violate(q);
        };
        match primitive {
            // The head returns the window by association, and the stream has only one.
            Primitive::OptdataInd { .. } | Primitive::DataInd { .. } if !m.data.is_empty() => {
                q.pass(Message { kind: Kind::Data, ..m });
            }
            Primitive::OptdataInd { .. } | Primitive::DataInd { .. } => q.freemsg(m),
            Primitive::OrdrelInd { .. } => {
                self.released = true;
                q.freemsg(m);
                q.pass(Message::data(Chain::new()).marked(Marks::CREDITED));
            }
            Primitive::DisconInd { .. } => {
                self.ended = true;
                q.putnext(Message::new(Kind::Hangup));
            }
            // A notification has no counterpart in a file.
            Primitive::NotificationInd(_) => q.freemsg(m),
            _ => {
                q.freemsg(m);
                self.violate(q);
            }
        }
    }
}

impl Module for TiRdWr {
    fn name(&self) -> &str {
        "tirdwr"
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        let m = m.decoded();
        match m.kind {
            Kind::Data if self.ended => {}
            Kind::Proto(_) | Kind::PcProto(_) if self.ended => {}
            // The form of a write on this provider's stream.
            Kind::Proto(Control::Tpi(Primitive::OptdataReq { .. })) => q.pass(m),
            Kind::Proto(_) | Kind::PcProto(_) => self.violate(q),
            _ => q.pass(m),
        }
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        let m = m.decoded();
        match &m.kind {
            Kind::Proto(_) | Kind::PcProto(_) | Kind::Data if self.ended => q.freemsg(m),
            Kind::Proto(_) | Kind::PcProto(_) => self.indication(q, m),
            _ => q.pass(m),
        }
    }

    fn close(&mut self, q: &mut Q<'_>) {
        if self.released && !self.ended {
            q.putnext(Message::new(Kind::Proto(Control::Tpi(Primitive::OrdrelReq {
                association: Which::Only,
            }))));
        }
    }
}
