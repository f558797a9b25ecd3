//! Restrictions that the system puts on this process, and on the hosts that it makes.

use std::thread;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockRef, Socket, Type};

/// Requested receive buffer, beyond every usual limit.
const BUFFER_BYTES: usize = 64 << 20;
/// Real-time priority that is tried, among 1 to 99.
const PRIORITY: i32 = 1;

/// Returns the restrictions, a sentence each.
pub(in crate::lab) fn all() -> Vec<String> {
    of_buffers().into_iter().chain(of_priority()).collect()
}

/// Returns a sentence if sockets cannot have larger buffers than the system's limit.
pub(in crate::lab) fn of_buffers() -> Option<String> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_ok() {
        return None;
    }
    let socket = SockRef::from(&socket);
    socket.set_recv_buffer_size(BUFFER_BYTES).ok()?;
    // The kernel doubles the size for its own records.
    let bytes = socket.recv_buffer_size().ok()? / 2;
    Some(buffers_sentence(bytes))
}

fn buffers_sentence(bytes: usize) -> String {
    format!(
        "net.core.* cannot be changed in this namespace: socket buffers have at most {bytes} bytes; \
         sysctl net.core.rmem_max and net.core.wmem_max as root raise that"
    )
}

/// Returns a sentence if threads cannot have a real-time priority.
fn of_priority() -> Option<String> {
    // The thread ends with its priority.
    let tried = thread::spawn(|| links::become_realtime(PRIORITY)).join();
    Some(priority_sentence(tried.ok()?.err()?))
}

fn priority_sentence(refused: Errno) -> String {
    format!(
        "real-time priority is not permitted ({}): on a busy machine packets are late; run this as root for it",
        refused.desc()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_a_sentence_that_says_what_to_do() {
        // Root has no limits.
        let possible = [buffers_sentence(212_992), priority_sentence(Errno::EPERM)];
        for limit in possible.into_iter().chain(all()) {
            assert!(limit.contains("as root"), "{limit}");
        }
        assert!(buffers_sentence(212_992).contains("at most 212992 bytes"));
        assert!(priority_sentence(Errno::EPERM).contains("Operation not permitted"));
    }
}
