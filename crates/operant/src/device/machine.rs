//! What this machine is, has left and has used.
#![allow(unsafe_code)]

use crate::error::{Error, Result};

/// Threads that this process may use.
pub fn threads_available() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

/// One line: CPU model, threads, widest vectors, operating system.
pub fn describe() -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let threads = match threads_available() {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    format!("{model}, {threads}, {}, {}", vectors(), std::env::consts::OS)
}

#[cfg(all(target_arch = "x86_64", not(operant_portable)))]
fn vectors() -> &'static str {
    if is_x86_feature_detected!("avx512f") {
        "AVX-512"
    } else if is_x86_feature_detected!("avx2") {
        "AVX2"
    } else {
        "SSE2"
    }
}

#[cfg(any(not(target_arch = "x86_64"), operant_portable))]
fn vectors() -> &'static str {
    std::env::consts::ARCH
}

/// CPU seconds that this process has used, all threads together; 0 where the system can't tell.
#[cfg(unix)]
pub fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec, which the call only writes.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    if failed != 0 { 0.0 } else { time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9 }
}

/// CPU seconds that this process has used, all threads together; 0 where the system can't tell.
#[cfg(not(unix))]
pub fn cpu_seconds() -> f64 {
    0.0
}

/// Makes a write beyond the limit on sizes of files (`ulimit -f`) fail like any other: left alone, it ends the process without a
/// word.
pub fn survive_file_size_limit() {
    #[cfg(unix)]
    // SAFETY: no handler is installed, so none can run; what the signal did before is of no use to anyone.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Memory that programs may still ask for, in bytes; `None` where the system does not say.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// What is not worth asking the system about.
const SMALL: u64 = 64 << 20;

/// Refuses what would not fit in memory: `what` takes so many bytes.
pub fn check_room(what: &str, bytes: u64, next: &str) -> Result<()> {
    if bytes <= SMALL {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match available_bytes().filter(|free| bytes > *free) {
        Some(free) => {
            Err(Error::Invalid(format!("{what} takes {:.1} GiB, {:.1} GiB are free; {next}", gib(bytes), gib(free))))
        }
        None => Ok(()),
    }
}

/// Memory of this process that is not swapped out, in bytes; `None` where the system does not say.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_sizes() {
        assert!(check_room("a row", 1 << 20, "").is_ok());
        if available_bytes().is_some() {
            let message = check_room("a network", 1 << 60, "make it smaller").unwrap_err().to_string();
            assert!(message.starts_with("a network takes 1073741824.0 GiB, "), "{message}");
            assert!(message.ends_with(" GiB are free; make it smaller"), "{message}");
        }
    }
}
