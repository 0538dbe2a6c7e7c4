//! Memory that will be read or written soon.
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
