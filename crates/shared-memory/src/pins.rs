//! Pins of shared memory.
//!
//! The kernel replaces pages of a memfd by a huge one on request of any process that maps it, even for reading (`MADV_COLLAPSE`).
//! Each access to the memory waits meanwhile, as long as that process gets no processor. The kernel does not begin while a page
//! has another reference. A page in a pipe has one, so a pipe that no process reads keeps the kernel from replacing the pages.
//!
//! A pipe holds several pages, and releases none before it is closed. When half of its pages belong to memory that was freed,
//! the others move to another pipe.
//!
//! Some sandboxes forbid `vmsplice`, as the default of podman does. Memory is not pinned there.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::Mapping;

/// Maximum number of pages in a pipe.
const PIPE_PAGES: usize = 16;
/// Number of pipes of a user from which on the kernel makes its pipes smaller (`pipe-user-pages-soft`).
const PIPES_OF_A_USER: usize = 1024;
/// Maximum number of pages in such a pipe.
const SMALL_PIPE_PAGES: usize = 2;

/// The pins of a part of a process' memory.
#[derive(Debug)]
pub struct Pins {
    /// Maximum number of pipes, but for one more while pages move.
    pipes_max: usize,
    /// The system forbids pins.
    are_forbidden: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pipes: HashMap<u64, Pipe>,
    /// The pipe that takes further pages, if it has room.
    open: u64,
    /// The pipe with the page of each pinned memory, by its address.
    places: HashMap<usize, u64>,
}

/// A pipe that holds pages.
#[derive(Debug)]
struct Pipe {
    /// Keeps the pipe from being broken.
    _reader: OwnedFd,
    writer: OwnedFd,
    /// The memory that is in use.
    live: Vec<Arc<Mapping>>,
    /// Number of pages in the pipe.
    pages: usize,
}

/// Keeps the kernel from moving memory.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    address: usize,
}

impl Pins {
    /// Returns the pins that take up to `pipes_max` pipes, of two descriptors each, and for a moment one more.
    pub fn new(pipes_max: usize) -> Pins {
        Pins { pipes_max, are_forbidden: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Returns the number of pipes that suffices for pins of this many pieces of memory, in whatever order
    /// earlier ones were released.
    pub const fn pipes_for(memories: usize) -> usize {
        // A pipe with fewer is emptied.
        let (least, least_of_small) = (PIPE_PAGES / 2 + 1, SMALL_PIPE_PAGES);
        let of_usual = memories.div_ceil(least);
        let pipes = if of_usual <= PIPES_OF_A_USER {
            of_usual
        } else {
            PIPES_OF_A_USER + (memories - PIPES_OF_A_USER * least).div_ceil(least_of_small)
        };
        // The open one may hold a single page.
        pipes + 1
    }

    /// Returns whether the system has forbidden a pin: what is pinned after that stays unpinned.
    pub fn are_forbidden(&self) -> bool {
        self.are_forbidden.load(Relaxed)
    }

    /// Pins the first page of memory, unless the system forbids that.
    ///
    /// # Errors
    ///
    /// `ENFILE`: there are as many pipes as there may be. Or no descriptor is left for a pipe, or no memory.
    pub(crate) fn pin(self: &Arc<Self>, mapping: &Arc<Mapping>) -> Result<Pin, Errno> {
        let address = mapping.place.as_ptr() as usize;
        match self.state().pin(mapping, self.pipes_max) {
            Err(Errno::PERM | Errno::NOSYS) => self.are_forbidden.store(true, Relaxed),
            pinned => pinned?,
        }
        Ok(Pin { pins: Arc::clone(self), address })
    }

    /// Returns the number of pipes, each of which has two descriptors.
    pub fn pipes(&self) -> usize {
        self.state().pipes.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pin(&mut self, mapping: &Arc<Mapping>, pipes_max: usize) -> Result<(), Errno> {
        if !self.put(mapping)? {
            if self.pipes.len() >= pipes_max {
                return Err(Errno::NFILE);
            }
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            self.open += 1;
            self.pipes.insert(self.open, Pipe { _reader: reader, writer, live: Vec::new(), pages: 0 });
            if !self.put(mapping)? {
                return Err(Errno::NOBUFS);
            }
        }
        Ok(())
    }

    /// Puts a page into the open pipe. Returns false if there is none with room.
    fn put(&mut self, mapping: &Arc<Mapping>) -> Result<bool, Errno> {
        let Some(pipe) = self.pipes.get_mut(&self.open).filter(|pipe| pipe.pages < PIPE_PAGES) else {
            return Ok(false);
        };
        let byte = libc::iovec { iov_base: mapping.place.as_ptr(), iov_len: 1 };
        // SAFETY: the byte is mapped, and the kernel only reads it, if a process reads the pipe, which none does.
        let put = unsafe { libc::vmsplice(pipe.writer.as_raw_fd(), &byte, 1, libc::SPLICE_F_NONBLOCK) };
        if put < 0 {
            let error = std::io::Error::last_os_error();
            // The pipe is smaller than usual.
            return match error.kind() {
                std::io::ErrorKind::WouldBlock if pipe.pages > 0 => {
                    pipe.pages = PIPE_PAGES;
                    Ok(false)
                }
                _ => Err(Errno::from_io_error(&error).unwrap_or(Errno::NOBUFS)),
            };
        }
        pipe.pages += 1;
        pipe.live.push(Arc::clone(mapping));
        self.places.insert(mapping.place.as_ptr() as usize, self.open);
        Ok(true)
    }

    fn unpin(&mut self, address: usize, pipes_max: usize) {
        let Some(number) = self.places.remove(&address) else { return };
        let Some(pipe) = self.pipes.get_mut(&number) else { return };
        pipe.live.retain(|mapping| mapping.place.as_ptr() as usize != address);
        let is_done = number != self.open || pipe.pages >= PIPE_PAGES;
        if !is_done || pipe.live.len() > pipe.pages / 2 {
            return;
        }
        let mut live = std::mem::take(&mut pipe.live);
        while let Some(mapping) = live.last()
            && self.pin(mapping, pipes_max + 1).is_ok()
        {
            live.pop();
        }
        if live.is_empty() {
            self.pipes.remove(&number);
        } else if let Some(pipe) = self.pipes.get_mut(&number) {
            // Pages that cannot be moved stay where they are.
            pipe.live = live;
        }
    }
}

impl Pin {
    /// Unpins the memory. Once it is unpinned, no move of pages to another pipe touches it.
    pub(crate) fn release(&self) {
        self.pins.state().unpin(self.address, self.pins.pipes_max);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use rustix::mm::ProtFlags;

    use super::*;
    use crate::OwnedMapping;

    const MADV_COLLAPSE: i32 = 25;
    const HUGE_BYTES: usize = 2 << 20;

    fn written(pins: &Arc<Pins>) -> OwnedMapping {
        OwnedMapping::new("swiftwater-test", 4096, 2, pins).expect("memory")
    }

    /// Asks the kernel to collapse memory as a reader of it; returns the error.
    fn collapse(memory: &OwnedMapping) -> i32 {
        let theirs = memory.for_reading().expect("a descriptor");
        // The kernel collapses where a huge page has its place.
        let place = Mapping::new(&theirs, 2 * HUGE_BYTES, ProtFlags::READ);
        let place = place.expect("address space behind the end of a file");
        let at = (place.place.as_ptr() as usize).next_multiple_of(HUGE_BYTES) as *mut libc::c_void;
        // SAFETY: the range lies in a mapping of this test, to which nothing refers.
        let moved = unsafe {
            libc::mmap(
                at,
                HUGE_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                theirs.as_raw_fd(),
                0,
            )
        };
        assert_eq!(moved, at);
        // SAFETY: as above.
        let collapsed = unsafe { libc::madvise(at, HUGE_BYTES, MADV_COLLAPSE) };
        if collapsed == 0 { 0 } else { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) }
    }

    #[test]
    fn pinned_memory_is_not_collapsed() {
        let pins = Arc::new(Pins::new(1));
        let memory = written(&pins);
        memory.store(16, b"here");
        assert_ne!(collapse(&memory), 0);
        assert_eq!(memory.load(16), u32::from_ne_bytes(*b"here"));
    }

    #[test]
    fn pipes_are_shared_and_closed() {
        let pins = Arc::new(Pins::new(10));
        let mut memory: Vec<OwnedMapping> = (0..10 * PIPE_PAGES).map(|_| written(&pins)).collect();
        assert_eq!(pins.pipes(), 10);
        assert_eq!(OwnedMapping::new("swiftwater-test", 4096, 2, &pins).err(), Some(Errno::NFILE));
        // A few pages of each pipe stay in use.
        let mut number = 0;
        memory.retain(|_| {
            number += 1;
            number % 4 == 0
        });
        assert!(pins.pipes() <= 6, "{}", pins.pipes());
        for memory in &memory {
            assert_ne!(collapse(memory), 0, "it was moved, and is held");
        }
        memory.clear();
        assert!(pins.pipes() <= 1);
    }

    #[test]
    fn pages_of_a_move_that_fails_are_forgotten_with_their_memory() {
        let pins = Arc::new(Pins::new(2));
        // The second pipe has room for two pages of the first.
        let memory: Vec<OwnedMapping> = (0..2 * PIPE_PAGES - 2).map(|_| written(&pins)).collect();
        let of_first = |page: &Arc<Mapping>| (page.place.as_ptr() as usize, Arc::downgrade(page));
        let pages: Vec<_> = pins.state().pipes[&1].live.iter().map(of_first).collect();
        for (address, _) in &pages[..PIPE_PAGES / 2] {
            // No pipe can be added, so the others stay.
            pins.state().unpin(*address, 1);
        }
        assert_eq!(pins.pipes(), 2);
        drop(memory);
        assert!(pages.iter().all(|(_, page)| page.strong_count() == 0), "no pipe keeps memory that is gone");
    }

    #[test]
    fn a_move_of_pages_fills_no_memory_that_was_emptied() {
        let pins = Arc::new(Pins::new(4));
        let mut memory: Vec<OwnedMapping> = (0..2 * PIPE_PAGES).map(|_| written(&pins)).collect();
        let emptied = memory.swap_remove(0);
        let theirs = emptied.for_reading().expect("a descriptor");
        let blocks = || rustix::fs::fstat(&theirs).expect("it is open").st_blocks;
        emptied.empty();
        // The other pages of its pipe move.
        memory.drain(..PIPE_PAGES / 2 + 1);
        assert!(!pins.state().pipes.contains_key(&1));
        assert_eq!(blocks(), 0);
        drop(emptied);
        assert_eq!(blocks(), 0);
        for memory in &memory {
            assert_ne!(collapse(memory), 0, "it is still pinned");
        }
    }

    #[test]
    fn pipes_hold_what_they_are_said_to_hold() {
        for memories in [1, 9, 10, 30, 100] {
            let pins = Arc::new(Pins::new(Pins::pipes_for(memories)));
            // The worst case: each pipe was filled, and then emptied as far as its pages stay.
            let mut held = Vec::new();
            for _ in 0..4 {
                while held.len() < memories {
                    held.push(written(&pins));
                }
                let mut number = 0;
                held.retain(|_| {
                    number += 1;
                    number % 16 < 9
                });
            }
        }
        assert_eq!(Pins::pipes_for(PIPES_OF_A_USER * 9 + 100), PIPES_OF_A_USER + 51);
    }
}
