//! Whether this CPU multiplies matrices in tiles.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
use std::arch::x86_64::*;

/// Whether this CPU has AMX for bf16 and the operating system lets this process use it (asked for once).
pub fn has_tiles() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
    {
        static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *AVAILABLE.get_or_init(ask)
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(operant_portable))))]
    false
}

/// Asks the CPU for tiles and AVX-512 BF16, and Linux for the tiles' state
/// (Intel SDM volume 1, 18.3; Linux, Documentation/arch/x86/xstate.rst).
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
fn ask() -> bool {
    const XSAVE: u32 = 1 << 27; // CPUID.1:ECX.OSXSAVE
    const TILES: u32 = 1 << 24 | 1 << 22; // CPUID.7:EDX.AMX-TILE, AMX-BF16
    const STATE: u64 = 1 << 18 | 1 << 17; // XCR0.TILEDATA, TILECFG
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512bf16");
    wide && __cpuid(1).ecx & XSAVE != 0
        && __cpuid_count(7, 0).edx & TILES == TILES
        // SAFETY: OSXSAVE says that `xgetbv` may be used.
        && unsafe { xcr0() } & STATE == STATE
        // SAFETY: this call takes two numbers and changes only which state the process may use.
        && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0
}

/// # Safety
/// The CPU has `xgetbv`.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(operant_portable)))]
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: the caller's contract.
    unsafe { _xgetbv(0) }
}
