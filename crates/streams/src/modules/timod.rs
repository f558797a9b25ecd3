//! A module that makes requests of a transport user ioctls (`timod`).

use tpi::{Primitive, PrimitiveCode, TError};

use crate::message::{IocData, Ioctl, IoctlArgument, Kind, Message};
use crate::module::{Module, Q};
use crate::{Chain, Errno};

/// Lets a transport user manage its endpoint by ioctls (`timod`), so that it need not search what comes up for the answer.
///
/// The argument of an `I_STR` is a request of the transport interface; the module sends it to the provider, and the
/// acknowledgement becomes the data of the reply. A request that the provider refuses is answered, too: the value of
/// the reply has the transport error in its lowest eight bits, and the system's error in the next eight where that is
/// `TSYSERR`. [`TiMod::GETMYNAME`] and [`TiMod::GETPEERNAME`] are transparent, with the address of a `netbuf` as their
/// argument: two words for its room and length, and the address of its buffer in 64 bits. Everything else passes.
#[derive(Debug, Default)]
pub struct TiMod {
    waiting: Option<Waiting>,
    /// How many connect indications may wait on the endpoint, as it was last bound.
    backlog: u32,
}

/// An ioctl whose request the provider has not answered yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    ioctl: Ioctl,
    request: Request,
}

/// A request to the provider on behalf of an ioctl.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// The acknowledgement is the reply.
    Primitive(PrimitiveCode),
    /// `T_INFO_REQ` for `TI_SYNC`.
    Sync,
    /// `T_ADDR_REQ` for the name of an end.
    Name { netbuf: Netbuf },
}

/// A `netbuf` in the caller's memory.
#[derive(Clone, Copy, Debug)]
struct Netbuf {
    room_bytes: u32,
    buffer: u64,
}

/// Where a conversation with the caller stands (`private` of its steps): the `netbuf` was read, the name was written, its length
/// was written.
const NETBUF_READ: u64 = 0;
const NETBUF_WRITTEN: u64 = u64::MAX;

/// The size of a `netbuf`.
const NETBUF_BYTES: usize = 16;

/// The word of `T_ADDR_ACK` with the length of the local address; that of the remote address stands two words behind.
const LOCAL_LENGTH_WORD: usize = 1;
const REMOTE_LENGTH_WORD: usize = 3;

impl TiMod {
    const TIMOD: u32 = 0x5400;

    /// `TI_GETINFO`: `T_INFO_REQ`.
    pub const GETINFO: u32 = Self::TIMOD | 140;
    /// `TI_OPTMGMT`: `T_OPTMGMT_REQ`.
    pub const OPTMGMT: u32 = Self::TIMOD | 141;
    /// `TI_BIND`: `T_BIND_REQ`.
    pub const BIND: u32 = Self::TIMOD | 142;
    /// `TI_UNBIND`: `T_UNBIND_REQ`.
    pub const UNBIND: u32 = Self::TIMOD | 143;
    /// `TI_GETMYNAME`: the local address, as a `netbuf`.
    pub const GETMYNAME: u32 = Self::TIMOD | 144;
    /// `TI_GETPEERNAME`: the peer's address, as a `netbuf`.
    pub const GETPEERNAME: u32 = Self::TIMOD | 145;
    /// `TI_SYNC`: returns `T_INFO_ACK`, the number of connect indications that may wait, and a word of flags, which are all
    /// clear.
    pub const SYNC: u32 = Self::TIMOD | 148;
    /// `TI_GETADDRS`: `T_ADDR_REQ`.
    pub const GETADDRS: u32 = Self::TIMOD | 149;
    /// `TI_CAPABILITY`: `T_CAPABILITY_REQ`.
    pub const CAPABILITY: u32 = Self::TIMOD | 150;

    /// Returns which request an ioctl has as its argument.
    fn request_of(command: u32) -> Option<PrimitiveCode> {
        Some(match command {
            Self::GETINFO => PrimitiveCode::InfoReq,
            Self::OPTMGMT => PrimitiveCode::OptmgmtReq,
            Self::BIND => PrimitiveCode::BindReq,
            Self::UNBIND => PrimitiveCode::UnbindReq,
            Self::GETADDRS => PrimitiveCode::AddrReq,
            Self::CAPABILITY => PrimitiveCode::CapabilityReq,
            _ => return None,
        })
    }

    fn ioctl(&mut self, q: &mut Q<'_>, ioctl: Ioctl, m: Message) {
        match (ioctl.command, ioctl.argument) {
            (Self::GETMYNAME | Self::GETPEERNAME, IoctlArgument::Transparent(address)) => {
                q.copyin(&ioctl, address, NETBUF_BYTES, NETBUF_READ);
            }
            (Self::GETMYNAME | Self::GETPEERNAME, IoctlArgument::Str) => q.nak(&ioctl, Errno::EINVAL),
            (Self::SYNC, IoctlArgument::Str) => self.ask(q, ioctl, Request::Sync, Primitive::InfoReq),
            (command, IoctlArgument::Str) => match Self::request_of(command) {
                Some(code) => match Primitive::decode(&m.data.to_vec()) {
                    Ok(primitive) if primitive.code() == code => {
                        self.ask(q, ioctl, Request::Primitive(code), primitive);
                    }
                    _ => q.nak(&ioctl, Errno::EINVAL),
                },
                None => q.pass(m),
            },
            _ => q.pass(m),
        }
    }

    /// Sends a request to the provider. One that it has not answered, although its ioctl was given up, holds up the next.
    fn ask(&mut self, q: &mut Q<'_>, ioctl: Ioctl, request: Request, primitive: Primitive) {
        if self.waiting.is_some() {
            return q.nak(&ioctl, Errno::EBUSY);
        }
        self.waiting = Some(Waiting { ioctl, request });
        q.putnext(Message::proto(primitive));
    }

    /// Continues the conversation about a name.
    fn copied(&mut self, q: &mut Q<'_>, step: &IocData, data: &Chain) {
        if let Err(errno) = step.result {
            return q.nak(&step.ioctl, errno);
        }
        match step.private {
            NETBUF_READ => match data.to_vec().first_chunk::<NETBUF_BYTES>() {
                Some(bytes) => {
                    let [a, b, c, d, _, _, _, _, buffer @ ..] = *bytes;
                    let room_bytes = u32::from_ne_bytes([a, b, c, d]);
                    let netbuf = Netbuf { room_bytes, buffer: u64::from_ne_bytes(buffer) };
                    self.ask(q, step.ioctl, Request::Name { netbuf }, Primitive::AddrReq);
                }
                None => q.nak(&step.ioctl, Errno::EINVAL),
            },
            NETBUF_WRITTEN => q.ack(&step.ioctl, 0, Chain::new()),
            // The name was written, and the step carries the second word of the netbuf.
            len_bytes => {
                let IoctlArgument::Transparent(address) = step.ioctl.argument else {
                    return q.nak(&step.ioctl, Errno::EINVAL);
                };
                let len_bytes = (len_bytes - 1) as u32;
                let length_at = address.wrapping_add(4);
                q.copyout(&step.ioctl, length_at, len_bytes.to_ne_bytes().to_vec().into(), NETBUF_WRITTEN);
            }
        }
    }

    /// Handles a primitive of the provider while an ioctl waits. Returns whether it was the answer.
    fn answer(&mut self, q: &mut Q<'_>, primitive: &Primitive) -> bool {
        let Some(Waiting { ioctl, request }) = self.waiting else { return false };
        let code = match request {
            Request::Primitive(code) => code,
            Request::Sync => PrimitiveCode::InfoReq,
            Request::Name { .. } => PrimitiveCode::AddrReq,
        };
        if acknowledged(primitive) != Some(code) {
            return false;
        }
        self.waiting = None;
        // The reply goes up, as all messages on this side of the module do.
        let mut q = q.other();
        match (primitive, request) {
            (Primitive::ErrorAck { t_error, errno, .. }, _) => {
                let system = if *t_error == TError::System { errno.0 & 0xff } else { 0 };
                q.ack(&ioctl, *t_error as i32 | system << 8, Chain::new());
            }
            (_, Request::Sync) => {
                let words = [self.backlog, 0].map(u32::to_ne_bytes).concat();
                q.ack(&ioctl, 0, [primitive.encode(), words].concat().into());
            }
            (_, Request::Name { netbuf }) => give_name(&mut q, ioctl, primitive, netbuf),
            (_, Request::Primitive(_)) => q.ack(&ioctl, 0, primitive.encode().into()),
        }
        true
    }
}

/// Returns which request a primitive acknowledges or refuses.
fn acknowledged(primitive: &Primitive) -> Option<PrimitiveCode> {
    Some(match primitive {
        Primitive::OkAck { primitive } | Primitive::ErrorAck { primitive, .. } => *primitive,
        Primitive::BindAck { .. } => PrimitiveCode::BindReq,
        Primitive::InfoAck(_) => PrimitiveCode::InfoReq,
        Primitive::OptmgmtAck(_) => PrimitiveCode::OptmgmtReq,
        Primitive::AddrAck { .. } => PrimitiveCode::AddrReq,
        Primitive::CapabilityAck { .. } => PrimitiveCode::CapabilityReq,
        _ => return None,
    })
}

/// Writes the address of an end to the caller's buffer, whose length follows.
fn give_name(q: &mut Q<'_>, ioctl: Ioctl, addresses: &Primitive, netbuf: Netbuf) {
    let encoded = addresses.encode();
    let word = |at: usize| {
        let bytes = encoded.get(at * 4..).and_then(|rest| rest.first_chunk()).copied();
        u32::from_ne_bytes(bytes.unwrap_or_default()) as usize
    };
    let at = if ioctl.command == TiMod::GETMYNAME { LOCAL_LENGTH_WORD } else { REMOTE_LENGTH_WORD };
    let (len, offset) = (word(at), word(at + 1));
    let name = encoded.get(offset..offset + len).unwrap_or_default();
    if name.len() > netbuf.room_bytes as usize {
        return q.nak(&ioctl, Errno::ERANGE);
    }
    q.copyout(&ioctl, netbuf.buffer, name.to_vec().into(), name.len() as u64 + 1);
}

impl Module for TiMod {
    fn name(&self) -> &str {
        "timod"
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        match &m.kind {
            Kind::Ioctl(ioctl) => {
                let ioctl = **ioctl;
                self.ioctl(q, ioctl, m);
            }
            Kind::IocData(step) if matches!(step.ioctl.command, Self::GETMYNAME | Self::GETPEERNAME) => {
                self.copied(q, step, &m.data);
            }
            _ => q.pass(m),
        }
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        let (Kind::Proto(control) | Kind::PcProto(control)) = &m.kind else { return q.pass(m) };
        if m.user_data().is_some() {
            return q.pass(m);
        }
        let Ok(primitive) = control.clone().decode() else { return q.pass(m) };
        if let Primitive::BindAck { backlog, .. } = &primitive {
            self.backlog = *backlog;
        }
        if !self.answer(q, &primitive) {
            q.pass(m);
        }
    }
}
