//! The messages of an ioctl: a conversation between the caller and a module or driver.
//!
//! The stream head sends `M_IOCTL`. The module or driver that knows the command acknowledges it, refuses it, or first asks
//! the caller to copy data in or out (`M_COPYIN`, `M_COPYOUT`); the head brings each answer down as `M_IOCDATA`. The
//! executive never touches the memory of a program: the caller copies.

use crate::Errno;

/// The user on whose behalf something is done (`cred_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
}

impl Credentials {
    /// The superuser.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Returns whether this user may control what `owner` has opened: its owner and the superuser may.
    pub fn may_control(&self, owner: &Credentials) -> bool {
        self.uid == 0 || self.uid == owner.uid
    }
}

/// A request to a module or the driver (`M_IOCTL`). The argument of an `I_STR` is the data of the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ioctl {
    /// What to do.
    pub command: u32,
    /// Names the request in its answers.
    pub id: u32,
    /// How the argument is given.
    pub argument: IoctlArgument,
    /// The caller.
    pub credentials: Credentials,
}

/// How an ioctl gives its argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoctlArgument {
    /// `I_STR`: the argument is the data of the message.
    #[default]
    Str,
    /// `TRANSPARENT`: the argument is the third argument of `ioctl`, a number or an address in the caller's memory.
    Transparent(u64),
}

/// Asks the caller of an ioctl to copy data (`M_COPYIN`, and `M_COPYOUT` with the data in the message).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// Names the ioctl.
    pub id: u32,
    /// The address in the caller's memory.
    pub address: u64,
    /// How many bytes to copy in. A copy out is as long as the data of its message.
    pub bytes: usize,
    /// Comes back in [`IocData`]: where the module is in the conversation.
    pub private: u64,
}

/// The caller's answer to a [`CopyRequest`] (`M_IOCDATA`). What was copied in is the data of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IocData {
    /// Which ioctl.
    pub ioctl: Ioctl,
    /// As in the request.
    pub private: u64,
    /// Whether the caller could copy.
    pub result: Result<(), Errno>,
}

/// The answer to a request that was carried out. The data of the message goes back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IocAck {
    /// Which request.
    pub id: u32,
    /// What the call returns.
    pub value: i32,
}

/// The answer to a request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IocNak {
    /// Which request.
    pub id: u32,
    /// Why.
    pub errno: Errno,
}
