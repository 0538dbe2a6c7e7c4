//! Compiles texts of kernels side by side, without a GPU.

use operant_device::{cuda, threads_available};
use operant_lanes::Math;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Architectures that every kernel is compiled for.
pub(crate) const ARCHS: [&str; 3] = ["sm_90", "sm_80", "sm_120"];

/// Compiles each text for its architecture: name, architecture, text.
pub(crate) fn compile(work: &[(String, &str, String)]) {
    if let Err(error) = cuda::compile("nothing", "", "sm_90", Math::Fast)
        && error.to_string().contains("not found")
    {
        panic!("{error}; cargo xtask test installs it, or: pip install nvidia-cuda-nvrtc");
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads_available().min(8) {
            scope.spawn(|| {
                while let Some((name, arch, text)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let cubin = cuda::compile(name, text, arch, Math::Fast).unwrap();
                    assert!(cubin.starts_with(b"\x7fELF"), "{name} {arch}");
                }
            });
        }
    });
}
