//! Memfds received from programs: long messages on their way to the daemon.

use std::os::fd::{BorrowedFd, OwnedFd};

use channel_protocol::record::MESSAGE_BYTES_MAX;
use rustix::buffer::spare_capacity;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_get_seals, fstat, memfd_create};
use rustix::io::{Errno, pread};

/// Seals that keep a memfd from changing.
const FINAL: SealFlags = SealFlags::WRITE.union(FIXED_SIZE);
/// Seals that keep the size of a memfd from changing. A ring has them, too.
const FIXED_SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Unit of `st_blocks` (`stat(2)`).
const BLOCK_BYTES: u64 = 512;

/// Creates a memfd for a program to fill and seal. Its memory belongs to the program.
pub(crate) fn memfd_to_fill() -> Result<OwnedFd, Errno> {
    memfd_create("swiftwater-message", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
}

/// Returns whether a descriptor is a memfd of this length that cannot change any more. Other descriptors have no seals, and are
/// not queried further, because a file system of a user may never answer.
pub(super) fn is_final(memfd: BorrowedFd<'_>, bytes: usize) -> bool {
    fcntl_get_seals(memfd).is_ok_and(|seals| seals.contains(FINAL))
        && fstat(memfd)
            .is_ok_and(|status| u64::try_from(status.st_size).is_ok_and(|size| size == bytes as u64))
}

/// Returns the most memory that a memfd may ever have; `None` if its size can still change, if it is longer than any message, or
/// if this is no memfd: other descriptors have no seals, and are not queried further.
pub(super) fn memory_max(memfd: BorrowedFd<'_>) -> Option<usize> {
    fcntl_get_seals(memfd).ok().filter(|seals| seals.contains(FIXED_SIZE))?;
    let status = fstat(memfd).ok()?;
    // There may be blocks beyond the end from before the seal against growth, and a hole may still get blocks.
    let allocated = u64::try_from(status.st_blocks).ok()?.checked_mul(BLOCK_BYTES)?;
    let bytes = usize::try_from(allocated.max(status.st_size.try_into().ok()?)).ok()?;
    (bytes <= MESSAGE_BYTES_MAX).then_some(bytes)
}

/// Reason why the content of a memfd was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemfdError {
    /// The host is short of memory. The content can be read later.
    Short,
    /// The memfd does not have this content.
    Broken,
}

/// Returns memory for the content of a memfd; `None` if the host is short of it.
pub(super) fn reserve(bytes: usize) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    content.try_reserve_exact(bytes).ok()?;
    Some(content)
}

/// Reads the content of a memfd into memory that was reserved for it. Waits while another process locks a page of the memfd.
pub(super) fn read(memfd: BorrowedFd<'_>, mut content: Vec<u8>, bytes: usize) -> Result<Vec<u8>, MemfdError> {
    while content.len() < bytes {
        let at = content.len() as u64;
        match pread(memfd, spare_capacity(&mut content), at) {
            Ok(0) => return Err(MemfdError::Broken),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::NOMEM | Errno::AGAIN) => return Err(MemfdError::Short),
            Err(_) => return Err(MemfdError::Broken),
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{FallocateFlags, fallocate, fcntl_add_seals, ftruncate};
    use rustix::io::pwrite;

    use super::*;

    #[test]
    fn only_a_sealed_memfd_is_read() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = memfd_create("swiftwater-test", flags).expect("a memfd");
        pwrite(&memfd, b"hello", 0).expect("the test made it");
        let read = |bytes| {
            let memory = is_final(memfd.as_fd(), bytes).then(|| reserve(bytes))??;
            super::read(memfd.as_fd(), memory, bytes).ok()
        };
        for seals in [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW] {
            assert_eq!(read(5), None, "it may still change");
            fcntl_add_seals(&memfd, seals).expect("the test made it");
        }
        assert_eq!(read(5).as_deref(), Some(&b"hello"[..]));
        assert_eq!(read(6), None, "it is shorter");
        assert_eq!(read(4), None, "it is longer");
        let file = std::fs::File::open("/dev/zero").expect("a file");
        assert!(!is_final(file.as_fd(), 5), "it is no memfd");
    }

    #[test]
    fn a_memfd_counts_with_all_memory_that_it_may_ever_have() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let longest = MESSAGE_BYTES_MAX as u64;
        let sizes = [
            (10, Some(64 << 10)),
            (1 << 20, Some(1 << 20)),
            (longest, Some(MESSAGE_BYTES_MAX)),
            (longest + 1, None),
            (1 << 62, None),
        ];
        for (size, expected) in sizes {
            let memfd = memfd_create("swiftwater-test", flags).expect("a memfd");
            ftruncate(&memfd, size).expect("a hole");
            fallocate(&memfd, FallocateFlags::KEEP_SIZE, 0, 64 << 10)
                .expect("blocks beyond the end of a short one");
            for seals in [SealFlags::GROW, SealFlags::SHRINK] {
                assert_eq!(memory_max(memfd.as_fd()), None, "its size may still change");
                fcntl_add_seals(&memfd, seals).expect("the test made it");
            }
            assert_eq!(memory_max(memfd.as_fd()), expected, "of {size} bytes");
        }
        let file = std::fs::File::open("/dev/zero").expect("a file");
        assert_eq!(memory_max(file.as_fd()), None, "it is no memfd");
    }

    #[test]
    fn a_message_for_which_the_host_has_no_memory_is_read_later() {
        assert!(reserve(usize::MAX / 4).is_none());
        let memfd = memfd_create("swiftwater-test", MemfdFlags::CLOEXEC).expect("a memfd");
        let content = vec![7; 100_000];
        pwrite(&memfd, &content, 0).expect("the test made it");
        let read = |bytes| super::read(memfd.as_fd(), reserve(bytes).expect("room"), bytes);
        let whole = read(content.len()).expect("its content");
        assert_eq!((&whole, whole.capacity()), (&content, content.len()), "it takes no more than is charged");
        assert_eq!(read(content.len() + 1), Err(MemfdError::Broken), "it is shorter");
    }
}
