//! Memory that will be read soon.
#![allow(unsafe_code)]

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks the CPU to bring this to its nearest cache; waits for nothing.
#[inline(always)]
pub fn prefetch<T>(slice: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let from = slice.as_ptr().cast::<i8>();
        for at in (0..size_of_val(slice)).step_by(LINE) {
            // SAFETY: part of every x86-64; it reads nothing and can't fail.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, LINE);
}
