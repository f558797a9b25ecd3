//! The environment variables that the shim reads. Some programs clear their environment once they have begun, as nginx
//! does before its workers open sockets, so the values that the program was started with are kept.

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use channel_protocol::name::{DAEMON_VARIABLE, ON_DEMAND_VARIABLE, QUIET_VARIABLE, TCP_AS_SCTP_VARIABLE};

/// The values at the start of the program.
struct AtStart {
    daemon: Option<CString>,
    on_demand: bool,
    tcp_as_sctp: bool,
    quiet: bool,
}

static AT_START: OnceLock<AtStart> = OnceLock::new();

/// Returns the name of the daemon, if one is given.
pub(crate) fn daemon() -> Option<&'static CStr> {
    value(DAEMON_VARIABLE).filter(is_named).or_else(|| AT_START.get()?.daemon.as_deref())
}

/// Returns whether this program may start a daemon.
pub(crate) fn is_on_demand() -> bool {
    value(ON_DEMAND_VARIABLE).is_some() || AT_START.get().is_some_and(|start| start.on_demand)
}

/// Returns whether this program's TCP sockets become SCTP sockets.
pub(crate) fn is_tcp_as_sctp() -> bool {
    value(TCP_AS_SCTP_VARIABLE).is_some() || AT_START.get().is_some_and(|start| start.tcp_as_sctp)
}

/// Returns whether the program was started with its TCP sockets as SCTP sockets.
pub(crate) fn was_tcp_as_sctp() -> bool {
    AT_START.get().is_some_and(|start| start.tcp_as_sctp)
}

/// Returns whether the shim prints no warnings.
pub(crate) fn is_quiet() -> bool {
    value(QUIET_VARIABLE).is_some() || AT_START.get().is_some_and(|start| start.quiet)
}

/// Returns whether a variable names something. An empty value counts as none, as for the command.
fn is_named(value: &&CStr) -> bool {
    !value.is_empty()
}

/// Returns the present value of a variable. `std::env` takes a lock, which a child of `fork` may find held for ever.
fn value(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name is NUL-terminated, and so is the value found, which callers use at once.
    unsafe {
        let text = libc::getenv(name.as_ptr());
        (!text.is_null()).then(|| CStr::from_ptr(text))
    }
}

/// Runs before `main`, when the program has changed nothing yet.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn keep_what_was_given() {
        AT_START.get_or_init(|| AtStart {
            daemon: value(DAEMON_VARIABLE).filter(is_named).map(CStr::to_owned),
            on_demand: value(ON_DEMAND_VARIABLE).is_some(),
            tcp_as_sctp: value(TCP_AS_SCTP_VARIABLE).is_some(),
            quiet: value(QUIET_VARIABLE).is_some(),
        });
    }
    keep_what_was_given
};
