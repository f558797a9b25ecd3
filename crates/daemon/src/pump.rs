//! Messages between a carrier and its association.
//!
//! Down: the carrier is read only while the association has room, so that the kernel tells the program when it may send.
//! Up: the association is read only while the carrier has room, so that the peer's window closes when the program is slow.

use std::sync::Arc;

use bytes::Bytes;
use carrier::page::State;
use carrier::record::{Flags, Header, Kind};
use rustix::io::Errno;
use swiftwater::tokio::Association;
use swiftwater::{Message, RecvError, SendError, SendInfo};
use tokio::task::JoinHandle;

use crate::line::Intake;
use crate::log;
use crate::socket::Socket;

/// How a program has left its side.
enum Left {
    /// It sends no more.
    HalfClosed,
    /// Nobody has the descriptor any more.
    Closed,
    /// The same, and something was unread.
    Unread,
    /// It asks for an end of the association that loses what is on its way, for this reason.
    Abort(Bytes),
}

/// Carries an association until it has ended and the program has left.
pub(crate) async fn carry(socket: &Arc<Socket>, association: Association) {
    let mut upward = Upward(tokio::spawn(up(Arc::clone(socket), association.clone())));
    let left = down(socket, &association).await;
    let lingers = socket.lock().settings.lingers();
    match left {
        Left::HalfClosed => {
            // One that is gone already needs no end.
            let _ = association.shutdown().await;
            // It ends with the association, which has a time limit for that.
            let _ = (&mut upward.0).await;
        }
        // What was sent is delivered, and the association shut down, when its last handle is dropped.
        Left::Closed if lingers => drop(association),
        Left::Closed => association.abort("the program has closed its socket with SO_LINGER 0"),
        Left::Unread => association.abort("the program has closed its socket without reading everything"),
        Left::Abort(reason) => association.abort(&String::from_utf8_lossy(&reason)),
    }
}

/// The task for the other direction. It ends with this one at the latest.
struct Upward(JoinHandle<()>);

impl Drop for Upward {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// From the carrier into the association.
async fn down(socket: &Socket, association: &Association) -> Left {
    // What is sent into an association that is gone is lost, as in the kernel.
    let mut gone = false;
    loop {
        let mut taken = socket.line.try_take();
        if matches!(taken, Err(Errno::AGAIN)) {
            // The program has nothing more to say for now: what it has said leaves.
            association.flush();
            taken = socket.line.take().await;
        }
        let (header, content) = match taken {
            Ok(Intake::Message(header, content)) => (header, content),
            Ok(Intake::End) => return if socket.line.is_hung_up() { Left::Closed } else { Left::HalfClosed },
            Ok(Intake::Unread) => return Left::Unread,
            Ok(Intake::Malformed) => {
                log(format_args!("a program writes something else than records to its socket"));
                return Left::Abort(Bytes::from_static(b"the program has broken its socket"));
            }
            Err(_) => return Left::Closed,
        };
        if header.flags.contains(Flags::ABORT) {
            return Left::Abort(content);
        }
        if !gone && !content.is_empty() {
            let sent = association.send_bytes(content, &send_info(&header)).await;
            gone = matches!(sent, Err(SendError::Closed));
        }
        if header.flags.contains(Flags::SHUTDOWN) {
            gone |= association.shutdown().await.is_err();
        }
    }
}

fn send_info(header: &Header) -> SendInfo {
    SendInfo {
        stream: header.stream,
        ppid: header.ppid,
        unordered: header.flags.contains(Flags::UNORDERED),
        immediate: header.flags.contains(Flags::IMMEDIATE),
        ..SendInfo::default()
    }
}

/// From the association into the carrier, and then its end.
async fn up(socket: Arc<Socket>, association: Association) {
    // Once the program reads no more, what comes is thrown away: the peer must not be stopped by a full window.
    let mut unread = false;
    let loss = loop {
        match association.recv().await {
            Ok(Some(message)) if !unread => unread = put(&socket, &message).await.is_err(),
            Ok(Some(_)) | Err(RecvError::Restarted(_)) => {}
            Ok(None) => break None,
            Err(_) => break Some(Errno::CONNRESET),
        }
    };
    if let Some(loss) = loss {
        socket.page.set_error(loss);
    }
    socket.set_stage(&mut socket.lock(), State::Ended);
    socket.line.end();
}

async fn put(socket: &Socket, message: &Message) -> Result<(), Errno> {
    let mut header = Header {
        stream: message.info.stream,
        ppid: message.info.ppid,
        tsn: message.info.tsn,
        ssn: message.info.ssn,
        ..Header::new(Kind::Data)
    };
    if message.info.unordered {
        header.flags = header.flags.with(Flags::UNORDERED);
    }
    if message.info.end_of_record {
        header.flags = header.flags.with(Flags::END);
    }
    header.bytes = u32::try_from(message.len()).map_err(|_| Errno::MSGSIZE)?;
    socket.line.put(&header, message.blocks()).await
}
