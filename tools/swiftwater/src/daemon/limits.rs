//! Limits of the daemon for the programs of one user.

use clap::Args;
use swiftwater::{ListenerOptions, StackOptions};
use swiftwater_daemon::Limits;

use crate::units::parse_bytes;

/// Minimum memory that lets a user send the longest record and read one at the same time.
const MEMORY_BYTES_MIN: usize = 1 << 20;

/// Limits of one user and of all users.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory for messages that one user's programs have sent and no peer has acknowledged. Beyond it, sends wait, or fail with
    /// EAGAIN; a single message longer than the limit fails with EMSGSIZE.
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = parse_memory)]
    pub user_memory: usize,
    /// Memory for such messages of all users together. As it fills, each user may have no more than what is free.
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = parse_memory)]
    pub memory: usize,
    /// Memory for messages of more than 64 KiB that one user's programs have not read. Beyond it they wait, and
    /// their peers' windows close.
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_memory)]
    pub user_unread_memory: usize,
    /// Memory for such messages of all users together. As it fills, each user may have no more than what is free.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_memory)]
    pub unread_memory: usize,
    /// Memory for data that one user's associations have received and its programs have not read. As it fills, their receive
    /// windows close.
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = parse_memory)]
    pub user_receive_memory: usize,
    /// Memory for data that the associations of all users together have received. As it fills, each user may have no more than
    /// what is free.
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = parse_memory)]
    pub receive_memory: usize,
    /// Memory for the pages that one user's sockets share with their programs: 8 KiB each, 68 KiB for a one-to-many socket
    /// and 10 KiB for each of its associations and for each of a closed socket, with 1.5 KiB for each further address of a peer.
    /// Beyond it, the oldest associations of closed sockets are aborted; then socket fails with ENOBUFS and associations of
    /// peers are aborted.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_memory)]
    pub user_page_memory: usize,
    /// Memory for the pages and associations of all users together. As it fills, each user may have no more than what is free.
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = parse_memory)]
    pub page_memory: usize,
    /// Most associations that one user's one-to-many and closed sockets may have. Beyond it, the oldest ones of closed sockets
    /// are aborted, then further ones from peers; programs get ENOBUFS.
    #[arg(long, value_name = "COUNT", default_value_t = 32_768)]
    pub user_associations: usize,
    /// Most associations that one listening socket may have at a time. Further ones are refused with ABORT.
    #[arg(long, value_name = "COUNT", default_value_t = ListenerOptions::default().associations_max)]
    pub listener_associations: usize,
    /// Most associations that one listening socket may have at a time with peers of one source prefix, the first 24 bits of an
    /// IPv4 address or 56 of an IPv6 address. Further ones are refused with ABORT. Peers on this host count as one prefix, but
    /// programs of this daemon by their user.
    #[arg(long, value_name = "COUNT", default_value_t = StackOptions::default().prefix_associations_max)]
    pub prefix_associations: usize,
}

fn parse_memory(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes @ MEMORY_BYTES_MIN.. => Ok(bytes),
        _ => Err("at least 1M is needed".into()),
    }
}

impl From<&LimitArgs> for Limits {
    fn from(args: &LimitArgs) -> Limits {
        Limits {
            user_memory_bytes: args.user_memory,
            memory_bytes: args.memory,
            user_unread_bytes: args.user_unread_memory,
            unread_bytes: args.unread_memory,
            user_receive_bytes: args.user_receive_memory,
            receive_bytes: args.receive_memory,
            user_page_bytes: args.user_page_memory,
            page_bytes: args.page_memory,
            user_associations: args.user_associations,
        }
    }
}
