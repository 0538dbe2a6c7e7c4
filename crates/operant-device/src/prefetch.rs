//! Memory that will be read or written soon.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;

thread_local! {
    /// What [`Later`] asks for, as addresses.
    static LATER: Cell<Range<usize>> = const { Cell::new(0..0) };
}

/// What this thread reads after the next products, which ask for it meanwhile: fetched at once, each line would be waited for, since a
/// core asks for few at a time.
pub fn read_later<T>(slice: &[T]) {
    let from = slice.as_ptr().addr();
    LATER.set(from..from + size_of_val(slice));
}

/// What is left to ask for, while a product has it.
pub(super) struct Later(Range<usize>);

impl Later {
    /// This thread's.
    #[inline(always)]
    pub(super) fn take() -> Self {
        Self(LATER.take())
    }

    /// Asks for the next lines, in the second cache; waits for nothing.
    #[inline(always)]
    pub(super) fn ask<const LINES: usize>(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.0.start < self.0.end {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            for line in 0..LINES {
                let at = std::ptr::without_provenance::<i8>(self.0.start + line * LINE);
                // SAFETY: part of every x86-64; it reads nothing and can't fail, also past the end.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(at) };
            }
            self.0.start += LINES * LINE;
        }
    }
}

impl Drop for Later {
    #[inline(always)]
    fn drop(&mut self) {
        LATER.set(self.0.clone());
    }
}

/// Asks the CPU to bring this to its nearest cache; waits for nothing.
#[inline(always)]
pub fn prefetch<T>(slice: &[T]) {
    prefetch_from(slice.as_ptr().cast(), size_of_val(slice));
}

/// Asks for so many bytes from an address on; waits for nothing. Nothing is read, so anything may be there.
#[inline(always)]
pub fn prefetch_from(at: *const (), bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: part of every x86-64; it reads nothing and can't fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>().wrapping_add(offset)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, bytes, LINE);
}

/// The same for what will be written.
pub fn prefetch_all_to_write(at: *const (), bytes: usize) {
    (0..bytes).step_by(LINE).for_each(|offset| prefetch_to_write(at.cast::<u8>().wrapping_add(offset)));
}

/// Asks the CPU for a cache line that will be written, which other cores then give up; waits for nothing. Nothing is read, so the
/// address may be past the end of what is there.
#[inline(always)]
pub fn prefetch_to_write<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: 64-bit CPUs that do not know this instruction pass over it; it reads nothing and can't fail.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
