//! The messages of an ioctl, a conversation between the caller and a module or driver.
//!
//! The stream head sends `M_IOCTL`. The module or driver that knows the command acknowledges or refuses it, or first asks the
//! caller to copy data in or out (`M_COPYIN`, `M_COPYOUT`); the head sends each answer down as `M_IOCDATA`. The executive never
//! touches the memory of a program: the caller copies.

use crate::Errno;

/// The user on whose behalf an operation runs (`cred_t`).
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

    /// Returns whether this user may control an object of `owner`: its owner and the superuser may.
    pub fn may_control(&self, owner: &Credentials) -> bool {
        self.uid == 0 || self.uid == owner.uid
    }
}

/// A request to a module or the driver (`M_IOCTL`). The argument of an `I_STR` is the data of the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ioctl {
    /// The command.
    pub command: u32,
    /// Number that the answers repeat.
    pub id: u32,
    /// Place of the argument.
    pub argument: IoctlArgument,
    /// The caller.
    pub credentials: Credentials,
}

/// Place of the argument of an ioctl.
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
    /// Number of the ioctl.
    pub id: u32,
    /// The address in the caller's memory.
    pub address: u64,
    /// Number of bytes to copy in. A copy out is as long as the data of its message.
    pub bytes: usize,
    /// Returned in [`IocData`]: the module's place in the conversation.
    pub private: u64,
}

/// The caller's answer to a [`CopyRequest`] (`M_IOCDATA`). Bytes that were copied in are the data of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IocData {
    /// The ioctl.
    pub ioctl: Ioctl,
    /// As in the request.
    pub private: u64,
    /// Whether the caller could copy.
    pub result: Result<(), Errno>,
}

/// The answer to a request that was carried out. The data of the message returns to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IocAck {
    /// Number of the request.
    pub id: u32,
    /// Return value of the call.
    pub value: i32,
}

/// The answer to a request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IocNak {
    /// Number of the request.
    pub id: u32,
    /// The error.
    pub errno: Errno,
}
