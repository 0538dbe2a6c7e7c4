//! The allocator of programs. It counts, so that the bench command and the tests can show that a loop allocates nothing, and it ends a
//! process that has no memory left with a message.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
#[cfg(unix)]
use std::fmt::Write;
#[cfg(unix)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(unix)]
use std::time::Duration;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Up to this size an allocation that fails ends the process. Who asks for more has asked [`check_room`](crate::check_room) before.
const LARGEST: usize = 64 << 20;

/// The system's allocator with a counter, and a message and exit code 1 where memory is at its end; install it with
/// `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator;

/// Allocations by all threads so far; stays 0 unless [`CountingAllocator`] is installed.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments; counting touches no memory of theirs.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        checked(unsafe { System.realloc(pointer, layout, size) }, size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What the system gave, if it gave something or the caller may do without.
#[inline(always)]
fn checked(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() && size <= LARGEST {
        out_of_memory(size);
    }
    pointer
}

/// Says that memory is at its end and ends the process, without an allocation. What a run has written is whole at any moment.
#[cold]
#[cfg(unix)]
fn out_of_memory(size: usize) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Another thread is about to say it and to end the process, which must not end before.
    while SAID.swap(true, Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut text = Text { bytes: [0; 256], len: 0 };
    let _ = writeln!(
        text,
        "error: out of memory: {size} bytes more could not be had; lower num_envs, buffers or the network, or raise the limit \
         (ulimit -v, the container's)"
    );
    // SAFETY: the pointer is to as many bytes of `text`.
    unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.len) };
    // SAFETY: ends the process; handlers that could ask for memory do not run.
    unsafe { libc::_exit(1) }
}

#[cfg(not(unix))]
fn out_of_memory(_: usize) {}

/// Text that needs no memory of its own.
#[cfg(unix)]
struct Text {
    bytes: [u8; 256],
    len: usize,
}

#[cfg(unix)]
impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let len = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}
